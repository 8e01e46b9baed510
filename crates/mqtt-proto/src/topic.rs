//! Topic names, topic filters and shared subscriptions: parsed once, then trusted.
//!
//! What holds of a value of these types: it is not empty, has at most 65,535 bytes, contains no
//! U+0000, and its wildcards are where the standard allows them. Well-formed UTF-8 is already the
//! property of `&str`. Comparison is by bytes, without normalization of any kind
//! `[MQTT-4.7.3-4]` `[MQTT311-4.7.3-4]`: `/a` is not `a`, `A` is not `a`, and empty levels count.
//!
//! [`TopicFilter::matches`] is the definition of matching, written to be read. An index over many
//! filters is built elsewhere and compared with it; [`filters_on`] finds them in a sorted list.
//!
//! Deliberately absent: limits on length or levels below the standard's (see [`TopicName::levels`]
//! and `count()`), access control, and any meaning of `$SYS`.

mod sorted;

use std::str::Split;

use thiserror::Error;

use crate::ReasonCode;

pub use self::sorted::filters_on;

/// The longest name or filter, in bytes: its length prefix on the wire has two bytes.
pub const MAX_TOPIC_LEN: usize = 65_535;

/// What a shared subscription's filter starts with.
const SHARE_PREFIX: &str = "$share/";

/// A topic that a message is published to: no wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName<'a>(&'a str);

impl<'a> TopicName<'a> {
    /// Checks a topic as it stands in PUBLISH, in a will, or in a Response Topic.
    #[inline]
    pub fn parse(text: &'a str) -> Result<Self, TopicError> {
        // Every PUBLISH comes by here: one pass that does not stop early, which the compiler can
        // turn into vector instructions.
        let suspect = |byte| matches!(byte, 0 | b'+' | b'#');
        let suspicious = text
            .bytes()
            .fold(false, |found, byte| found | suspect(byte));
        if suspicious || text.is_empty() || text.len() > MAX_TOPIC_LEN {
            return Err(TopicError::Name(Self::fault(text)));
        }
        Ok(Self(text))
    }

    #[cold]
    fn fault(text: &str) -> TopicFault {
        match check_text(text) {
            Err(fault) => fault,
            // [MQTT-4.7.0-1] [MQTT-3.3.2-2] [MQTT-3.3.2-14] [MQTT311-3.3.2-2] [MQTT311-4.7.1-1]
            Ok(()) => TopicFault::Wildcard,
        }
    }

    /// For text that this crate has kept from an earlier [`TopicName`].
    pub(crate) fn trusted(text: &'a str) -> Self {
        debug_assert!(Self::parse(text).is_ok(), "kept text was a topic name");
        Self(text)
    }

    /// The topic as text.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The parts between the slashes, empty ones included; at least one.
    pub fn levels(self) -> Levels<'a> {
        Levels(self.0.split('/'))
    }

    /// Whether it starts with `$`, which keeps it out of leading wildcards.
    pub fn is_dollar(self) -> bool {
        self.0.starts_with('$')
    }
}

/// What a subscription asks for: a topic in which `+` stands for one level and a final `#` for the
/// rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicFilter<'a>(&'a str);

impl<'a> TopicFilter<'a> {
    /// Checks a filter that is not a shared one; see [`SubscriptionFilter`] for what SUBSCRIBE has.
    pub fn parse(text: &'a str) -> Result<Self, TopicError> {
        check_text(text).map_err(TopicError::Filter)?;
        let mut levels = text.split('/');
        while let Some(level) = levels.next() {
            let wildcard = level.bytes().find(|byte| matches!(byte, b'+' | b'#'));
            let fault = match wildcard {
                None => continue,
                // [MQTT-4.7.1-2] [MQTT311-4.7.1-3]
                Some(b'+') if level == "+" => continue,
                Some(b'+') => TopicFault::PlusNotAlone,
                // [MQTT-4.7.1-1] [MQTT311-4.7.1-2]
                Some(_) if level != "#" => TopicFault::HashNotAlone,
                Some(_) if levels.next().is_some() => TopicFault::HashNotLast,
                Some(_) => break,
            };
            return Err(TopicError::Filter(fault));
        }
        Ok(Self(text))
    }

    /// The filter as text.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The parts between the slashes, empty ones and wildcards included; at least one.
    pub fn levels(self) -> Levels<'a> {
        Levels(self.0.split('/'))
    }

    /// Whether more than one topic can match.
    pub fn has_wildcard(self) -> bool {
        self.0.bytes().any(|byte| matches!(byte, b'+' | b'#'))
    }

    /// Whether it starts with `$`.
    pub fn is_dollar(self) -> bool {
        self.0.starts_with('$')
    }

    /// Whether a message on `topic` is for this filter.
    pub fn matches(self, topic: TopicName<'_>) -> bool {
        // [MQTT-4.7.2-1] [MQTT311-4.7.2-1]: a leading wildcard does not reach the `$` topics.
        if topic.is_dollar() && self.0.starts_with(['+', '#']) {
            return false;
        }
        let mut topic_levels = topic.levels();
        for wanted in self.levels() {
            // `#` stands for its parent too: `a/#` matches `a`.
            if wanted == "#" {
                return true;
            }
            match topic_levels.next() {
                Some(level) if wanted == "+" || wanted == level => {}
                _ => return false,
            }
        }
        topic_levels.next().is_none()
    }
}

/// A filter as SUBSCRIBE and UNSUBSCRIBE carry it: plain, or `$share/group/filter`.
///
/// 3.1 and 3.1.1 do not know shared subscriptions, but clients of these versions use them where a
/// broker offers them, so the rule is one for all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubscriptionFilter<'a> {
    /// Every subscriber gets each message.
    Plain(TopicFilter<'a>),
    /// One member of the group gets each message.
    Shared {
        /// The share name: not empty, no `/`, `+` or `#`.
        group: &'a str,
        /// What the group subscribes to.
        filter: TopicFilter<'a>,
    },
}

impl<'a> SubscriptionFilter<'a> {
    /// Checks one entry of a SUBSCRIBE or UNSUBSCRIBE payload.
    pub fn parse(text: &'a str) -> Result<Self, TopicError> {
        let Some(rest) = text.strip_prefix(SHARE_PREFIX) else {
            // `$share` alone is what is left of a share name that got lost.
            if text == SHARE_PREFIX.trim_end_matches('/') {
                return Err(TopicError::Filter(TopicFault::ShareIncomplete));
            }
            return TopicFilter::parse(text).map(Self::Plain);
        };
        check_text(text).map_err(TopicError::Filter)?;
        let (group, filter) = rest
            .split_once('/')
            .ok_or(TopicError::Filter(TopicFault::ShareIncomplete))?;
        // [MQTT-4.8.2-1]
        if group.is_empty() {
            return Err(TopicError::Filter(TopicFault::ShareNameEmpty));
        }
        // [MQTT-4.8.2-2]
        if group.contains(['+', '#']) {
            return Err(TopicError::Filter(TopicFault::ShareNameWildcard));
        }
        if filter.is_empty() {
            return Err(TopicError::Filter(TopicFault::ShareIncomplete));
        }
        TopicFilter::parse(filter).map(|filter| Self::Shared { group, filter })
    }

    /// What topics are matched with, without the share name.
    pub fn filter(self) -> TopicFilter<'a> {
        match self {
            Self::Plain(filter) | Self::Shared { filter, .. } => filter,
        }
    }

    /// The share name, if there is one.
    pub fn group(self) -> Option<&'a str> {
        match self {
            Self::Plain(_) => None,
            Self::Shared { group, .. } => Some(group),
        }
    }
}

/// The levels of a name or filter, in order. `count()` is what a limit on levels compares with.
#[derive(Clone, Debug)]
pub struct Levels<'a>(Split<'a, char>);

impl<'a> Iterator for Levels<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }
}

/// Why text is not a topic name or not a topic filter. It is the client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TopicError {
    /// Where a topic name belongs.
    #[error("invalid topic name: {0}")]
    Name(TopicFault),
    /// Where a topic filter belongs.
    #[error("invalid topic filter: {0}")]
    Filter(TopicFault),
}

impl TopicError {
    /// What the client is told.
    pub fn reason(self) -> ReasonCode {
        match self {
            Self::Name(_) => ReasonCode::TopicNameInvalid,
            // 0x8F is for a well-formed filter that the server does not accept.
            Self::Filter(_) => ReasonCode::ProtocolError,
        }
    }
}

/// What is wrong with the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TopicFault {
    /// It has no characters `[MQTT-4.7.3-1]`.
    #[error("it is empty")]
    Empty,
    /// It has more bytes than a length prefix can say `[MQTT-4.7.3-3]`.
    #[error("it is longer than 65535 bytes")]
    TooLong,
    /// It contains U+0000 `[MQTT-4.7.3-2]`.
    #[error("it contains U+0000")]
    Nul,
    /// A wildcard where a name belongs.
    #[error("a topic name has no wildcards")]
    Wildcard,
    /// `#` beside other characters of its level.
    #[error("'#' must be alone in its level")]
    HashNotAlone,
    /// `#` before the last level.
    #[error("'#' must be the last level")]
    HashNotLast,
    /// `+` beside other characters of its level.
    #[error("'+' must be alone in its level")]
    PlusNotAlone,
    /// `$share/…` without a filter.
    #[error("a shared subscription is $share/name/filter")]
    ShareIncomplete,
    /// `$share//…`.
    #[error("the share name is empty")]
    ShareNameEmpty,
    /// `+` or `#` in the share name.
    #[error("the share name has no wildcards")]
    ShareNameWildcard,
}

/// What names and filters have in common.
fn check_text(text: &str) -> Result<(), TopicFault> {
    // [MQTT-4.7.3-1] [MQTT311-4.7.3-1]
    if text.is_empty() {
        return Err(TopicFault::Empty);
    }
    // [MQTT-4.7.3-3] [MQTT311-4.7.3-3]
    if text.len() > MAX_TOPIC_LEN {
        return Err(TopicFault::TooLong);
    }
    // [MQTT-4.7.3-2] [MQTT311-4.7.3-2]
    if text.bytes().any(|byte| byte == 0) {
        return Err(TopicFault::Nul);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_name(text: &str, expect: Result<(), TopicFault>) {
        let got = TopicName::parse(text).map(|name| assert_eq!(name.as_str(), text));
        assert_eq!(got, expect.map_err(TopicError::Name), "{text:?}");
    }

    fn check_filter(text: &str, expect: Result<(), TopicFault>) {
        let got = TopicFilter::parse(text).map(|filter| assert_eq!(filter.as_str(), text));
        assert_eq!(got, expect.map_err(TopicError::Filter), "{text:?}");
    }

    fn check_subscription(text: &str, expect: Result<(Option<&str>, &str), TopicFault>) {
        let got = SubscriptionFilter::parse(text).map(|s| (s.group(), s.filter().as_str()));
        assert_eq!(got, expect.map_err(TopicError::Filter), "{text:?}");
    }

    fn check_match(filter: &str, topic: &str, expect: bool) {
        let parsed = (
            TopicFilter::parse(filter).unwrap(),
            TopicName::parse(topic).unwrap(),
        );
        assert_eq!(
            parsed.0.matches(parsed.1),
            expect,
            "{filter:?} on {topic:?}"
        );
    }

    // [MQTT-4.7.0-1] [MQTT-4.7.3-1] [MQTT-4.7.3-2] [MQTT-4.7.3-3] [MQTT-3.3.2-2] [MQTT311-3.3.2-2]
    // [MQTT311-4.7.1-1] [MQTT311-4.7.3-1] [MQTT311-4.7.3-2] [MQTT311-4.7.3-3]
    #[test]
    fn names_have_text_and_no_wildcards() {
        for good in [
            "a",
            "/",
            "//",
            " ",
            "a b",
            "/a",
            "a/",
            "$SYS/x",
            "Ä/ö",
            "\u{feff}a",
        ] {
            check_name(good, Ok(()));
        }
        check_name("", Err(TopicFault::Empty));
        check_name("a\0", Err(TopicFault::Nul));
        check_name("a/+", Err(TopicFault::Wildcard));
        check_name("a#", Err(TopicFault::Wildcard));
        check_name(&"x".repeat(65_535), Ok(()));
        check_name(&"x".repeat(65_536), Err(TopicFault::TooLong));
    }

    // [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT311-4.7.1-2] [MQTT311-4.7.1-3]
    #[test]
    fn wildcards_of_a_filter_stand_alone_and_hash_is_last() {
        for good in [
            "#",
            "+",
            "a/#",
            "+/+",
            "/+",
            "+/tennis/#",
            "a/+/b",
            "/",
            "//#",
            "$SYS/#",
        ] {
            check_filter(good, Ok(()));
        }
        check_filter("", Err(TopicFault::Empty));
        check_filter("\0", Err(TopicFault::Nul));
        check_filter("sport+", Err(TopicFault::PlusNotAlone));
        check_filter("a/+b/c", Err(TopicFault::PlusNotAlone));
        check_filter("++", Err(TopicFault::PlusNotAlone));
        check_filter("+#", Err(TopicFault::PlusNotAlone));
        check_filter("sport/tennis#", Err(TopicFault::HashNotAlone));
        check_filter("##", Err(TopicFault::HashNotAlone));
        check_filter("#+", Err(TopicFault::HashNotAlone));
        check_filter("sport/tennis/#/ranking", Err(TopicFault::HashNotLast));
        check_filter("#/", Err(TopicFault::HashNotLast));
        check_filter(&"x".repeat(65_536), Err(TopicFault::TooLong));
    }

    // [MQTT-4.8.2-1] [MQTT-4.8.2-2]
    #[test]
    fn shared_filters_have_a_name_and_a_filter() {
        check_subscription("a/+", Ok((None, "a/+")));
        check_subscription("$share/g/a/#", Ok((Some("g"), "a/#")));
        check_subscription("$share/g//", Ok((Some("g"), "/")));
        check_subscription("$share/g/$SYS/#", Ok((Some("g"), "$SYS/#")));
        check_subscription("$shared/g/a", Ok((None, "$shared/g/a")));
        check_subscription("$SHARE/g/a", Ok((None, "$SHARE/g/a")));
        check_subscription("$share", Err(TopicFault::ShareIncomplete));
        check_subscription("$share/", Err(TopicFault::ShareIncomplete));
        check_subscription("$share/g", Err(TopicFault::ShareIncomplete));
        check_subscription("$share/g/", Err(TopicFault::ShareIncomplete));
        check_subscription("$share//a", Err(TopicFault::ShareNameEmpty));
        check_subscription("$share/g+/a", Err(TopicFault::ShareNameWildcard));
        check_subscription("$share/#/a", Err(TopicFault::ShareNameWildcard));
        check_subscription("$share/g\0/a", Err(TopicFault::Nul));
        check_subscription("$share/g/a#", Err(TopicFault::HashNotAlone));
        check_subscription("", Err(TopicFault::Empty));
    }

    #[test]
    fn matching_follows_the_standards_examples() {
        for topic in ["sport/tennis/player1", "sport/tennis/player1/ranking"] {
            check_match("sport/tennis/player1/#", topic, true);
        }
        check_match(
            "sport/tennis/player1/#",
            "sport/tennis/player1/score/wimbledon",
            true,
        );
        check_match("sport/#", "sport", true);
        check_match("sport/#", "sports", false);
        check_match("sport/tennis/+", "sport/tennis/player1", true);
        check_match("sport/tennis/+", "sport/tennis/player1/ranking", false);
        check_match("sport/+", "sport", false);
        check_match("sport/+", "sport/", true);
        check_match("+/+", "/finance", true);
        check_match("/+", "/finance", true);
        check_match("+", "/finance", false);
        check_match("a", "a", true);
        check_match("a", "/a", false);
        check_match("a", "A", false);
        check_match("a/b", "a", false);
        check_match("#", "/", true);
        check_match("//#", "/", true);
        check_match("+/#", "a", true);
    }

    // [MQTT-4.7.2-1] [MQTT311-4.7.2-1]
    #[test]
    fn leading_wildcards_do_not_match_dollar_topics() {
        check_match("#", "$SYS", false);
        check_match("+/monitor/Clients", "$SYS/monitor/Clients", false);
        check_match("$SYS/#", "$SYS", true);
        check_match("$SYS/monitor/+", "$SYS/monitor/Clients", true);
        check_match("a/+", "a/$x", true);
        check_match("a/#", "a/$x", true);
    }

    // [MQTT-4.7.3-4] [MQTT311-4.7.3-4]
    #[test]
    fn matching_does_not_normalize() {
        check_match("Å", "A\u{30a}", false);
        check_match("\u{feff}a", "a", false);
    }

    #[test]
    fn levels_count_empty_ones() {
        assert_eq!(TopicName::parse("/").unwrap().levels().count(), 2);
        assert_eq!(
            TopicFilter::parse("a//#")
                .unwrap()
                .levels()
                .collect::<Vec<_>>(),
            ["a", "", "#"]
        );
    }

    #[test]
    fn the_reason_code_says_which_kind_was_invalid() {
        let name = TopicName::parse("#").unwrap_err();
        assert_eq!(name.reason(), ReasonCode::TopicNameInvalid);
        let filter = SubscriptionFilter::parse("#a").unwrap_err();
        assert_eq!(filter.reason(), ReasonCode::ProtocolError);
        assert_eq!(
            filter.to_string(),
            "invalid topic filter: '#' must be alone in its level"
        );
    }
}
