//! One value: from the words behind a key to what they mean.

use super::options::Type;
use super::{Direction, Secret, Topic, Value};
use crate::bounds::TEXT_BYTES_MAX;
use crate::filter;
use crate::lex::Token;
use crate::mistake::{Mistake, Source};

/// A mistake is rare and large.
pub(super) type Read<T> = Result<T, Box<Mistake>>;

/// The words behind a key.
pub(super) struct Words<'s, 't> {
    source: &'s Source<'t>,
    key: Token,
    tokens: &'s [Token],
    /// How many of them were read.
    taken: usize,
}

impl<'s, 't> Words<'s, 't> {
    pub(super) fn new(source: &'s Source<'t>, key: Token, words: &'s [Token]) -> Self {
        Self {
            source,
            key,
            tokens: words,
            taken: 0,
        }
    }

    /// The value of an option whose lines only set something.
    pub(super) fn value(&mut self, kind: Type, is_secret: bool) -> Read<Value> {
        Ok(match kind {
            Type::Bool => Value::Flag(self.flag()?),
            Type::Integer(min, max) => Value::Number(self.integer(min, max)?.into()),
            Type::Loose => Value::Number(leading_number(self.word("a number")?.1)),
            Type::Prefix(bytes) => Value::Text(self.text(bytes)?),
            Type::Text if is_secret => Value::Secret(Secret(self.text(TEXT_BYTES_MAX)?)),
            Type::Choice(words) => Value::Text(self.choice(words)?),
            Type::Exact(words) => Value::Text(self.exactly(words)?),
            Type::Expiry => Value::Seconds(self.expiry()?),
            Type::Keepalive => Value::Numbers(self.keepalive()?),
            Type::Restart => Value::Numbers(self.restart()?),
            Type::Addresses => Value::Addresses(self.addresses()?),
            Type::LogDest => self.log_dest()?,
            Type::Topic => Value::Topic(self.topic()?),
            Type::Versions => Value::Words(self.versions()?),
            Type::Nothing => {
                self.taken = self.tokens.len();
                Value::None
            }
            _ => Value::Text(self.text(TEXT_BYTES_MAX)?),
        })
    }

    /// The first word that was not used.
    pub(super) fn ignored(&self) -> Option<Token> {
        self.tokens.get(self.taken).copied()
    }

    pub(super) fn next(&mut self) -> Option<(Token, &'t str)> {
        let token = *self.tokens.get(self.taken)?;
        self.taken += 1;
        // Words that are no text equal nothing that is expected.
        let text = self.source.utf8(token, "").unwrap_or("\u{fffd}");
        Some((token, text))
    }

    /// The next word, which must be there.
    pub(super) fn word(&mut self, expected: &str) -> Read<(Token, &'t str)> {
        self.next().ok_or_else(|| Box::new(self.missing(expected)))
    }

    /// The line ends behind what was read, and something was expected.
    pub(super) fn missing(&self, expected: &str) -> Mistake {
        self.source.ends(self.last(), expected)
    }

    /// A mistake at what was read last.
    pub(super) fn wrong_last(&self, expected: &str) -> Mistake {
        self.source.wrong(self.last(), expected)
    }

    fn last(&self) -> Token {
        let read = &self.tokens[..self.taken];
        read.last().copied().unwrap_or(self.key)
    }

    /// The rest of the line, without blanks at its ends.
    pub(super) fn text(&mut self, bytes_max: usize) -> Read<String> {
        let missing = Box::new(self.missing("a value"));
        let rest = &self.tokens[self.taken..];
        self.taken = self.tokens.len();
        let token = self.source.joined(rest).ok_or(missing)?;
        if token.of(self.source.text).len() > bytes_max {
            let expected = format!("at most {bytes_max} bytes");
            return Err(Box::new(self.source.wrong(token, expected)));
        }
        Ok(self.source.utf8(token, "a text")?.to_owned())
    }

    fn wrong<T>(&self, token: Token, expected: impl Into<String>) -> Read<T> {
        Err(Box::new(self.source.wrong(token, expected)))
    }

    fn flag(&mut self) -> Read<bool> {
        let expected = "`true` or `false`";
        match self.word(expected)? {
            (_, "true" | "1") => Ok(true),
            (_, "false" | "0") => Ok(false),
            (token, _) => self.wrong(token, expected),
        }
    }

    pub(super) fn integer(&mut self, min: i32, max: i32) -> Read<i32> {
        let expected = match (min, max) {
            (i32::MIN, i32::MAX) => "a whole number".to_owned(),
            (i32::MIN, max) => format!("a whole number up to {max}"),
            (min, i32::MAX) => format!("a whole number from {min}"),
            (min, max) => format!("a whole number from {min} to {max}"),
        };
        let (token, text) = self.word(&expected)?;
        match c_number(text) {
            Some(number) if (min..=max).contains(&number) => Ok(number),
            _ => self.wrong(token, expected),
        }
    }

    fn choice(&mut self, words: &[&str]) -> Read<String> {
        let expected = one_of(words);
        let (token, text) = self.word(&expected)?;
        if words.contains(&text) {
            return Ok(text.to_owned());
        }
        self.wrong(token, expected)
    }

    /// Mosquitto compares all that stands behind the key and one space.
    fn exactly(&mut self, words: &[&str]) -> Read<String> {
        let expected = format!("{} behind one space, and nothing else", one_of(words));
        let (token, text) = self.word(&expected)?;
        let is_next = token.start == self.key.end + 1;
        let is_last = self.source.text.get(token.end as usize) != Some(&b' ');
        if words.contains(&text) && is_next && is_last {
            return Ok(text.to_owned());
        }
        self.wrong(token, expected)
    }

    fn expiry(&mut self) -> Read<u64> {
        const DAY_S: i64 = 86_400;
        let expected = "a number of at least 1 with `s`, `h`, `d`, `w`, `m` or `y`";
        let (token, text) = self.word(expected)?;
        let unit_s = match text.chars().next_back() {
            Some('s') => 1,
            Some('h') => 3_600,
            Some('d') => DAY_S,
            Some('w') => 7 * DAY_S,
            Some('m') => 30 * DAY_S,
            Some('y') => 365 * DAY_S,
            _ => return self.wrong(token, expected),
        };
        match u64::try_from(leading_number(text).saturating_mul(unit_s)) {
            Ok(seconds) if seconds > 0 => Ok(seconds),
            _ => self.wrong(token, expected),
        }
    }

    fn keepalive(&mut self) -> Read<Vec<i64>> {
        let mut numbers = Vec::new();
        for _ in 0..3 {
            numbers.push(self.integer(1, i32::MAX)?.into());
        }
        Ok(numbers)
    }

    fn restart(&mut self) -> Read<Vec<i64>> {
        const BASE_S_MAX: i64 = 3_600;
        let (_, base) = self.word("a number of seconds")?;
        let base = leading_number(base).clamp(1, BASE_S_MAX);
        let mut numbers = vec![base];
        if let Some((token, cap)) = self.next() {
            let cap = leading_number(cap);
            if cap < base {
                return self.wrong(token, format!("a number of seconds from {base}"));
            }
            numbers.push(cap);
        }
        if let Some((token, stable)) = self.next() {
            let stable = leading_number(stable);
            if stable < 0 {
                return self.wrong(token, "a number of seconds from 0");
            }
            numbers.push(stable);
        }
        Ok(numbers)
    }

    fn addresses(&mut self) -> Read<Vec<(String, u16)>> {
        const DEFAULT_PORT: u16 = 1883;
        let expected = "a host, or a host with `:` and a port from 1 to 65535";
        let mut addresses = Vec::new();
        while let Some((token, text)) = self.next() {
            if text.starts_with('#') {
                self.taken = self.tokens.len();
                break;
            }
            let (host, port) = match text.rsplit_once(':') {
                None => (text, Some(DEFAULT_PORT)),
                Some((host, port)) => (host, u16::try_from(leading_number(port)).ok()),
            };
            match port {
                Some(port) if port > 0 => addresses.push((host.to_owned(), port)),
                _ => return self.wrong(token, expected),
            }
        }
        if addresses.is_empty() {
            return Err(Box::new(self.source.ends(self.key, expected)));
        }
        Ok(addresses)
    }

    fn log_dest(&mut self) -> Read<Value> {
        const WORDS: &[&str] = &["none", "syslog", "stdout", "stderr", "topic", "dlt", "file"];
        let word = self.choice(WORDS)?;
        if word != "file" {
            return Ok(Value::Text(word));
        }
        let path = self.text(TEXT_BYTES_MAX)?;
        Ok(Value::Words(vec![word, path]))
    }

    fn versions(&mut self) -> Read<Vec<String>> {
        self.word("`3`, `4` or `5`")?;
        self.taken = 0;
        let mut versions = Vec::new();
        while let Some((_, text)) = self.next() {
            let listed = text.split([',', '\t']).filter(|word| !word.is_empty());
            versions.extend(listed.map(str::to_owned));
        }
        Ok(versions)
    }

    fn topic(&mut self) -> Read<Topic> {
        let (first, filter) = self.topic_filter()?;
        let mut topic = Topic {
            filter: Some(filter).filter(|filter| filter != "\"\""),
            direction: Direction::Out,
            qos: 0,
            local_prefix: None,
            remote_prefix: None,
        };
        if let Some((token, text)) = self.next() {
            topic.direction = match text.to_ascii_lowercase().as_str() {
                "out" => Direction::Out,
                "in" => Direction::In,
                "both" => Direction::Both,
                _ => return self.wrong(token, "`out`, `in` or `both`"),
            };
        }
        if let Some((token, text)) = self.before_comment() {
            // As a C program that keeps the lowest eight bits.
            let qos = leading_number(text).rem_euclid(256);
            topic.qos = match u8::try_from(qos) {
                Ok(qos @ 0..=2) => qos,
                _ => return self.wrong(token, "a QoS of 0, 1 or 2"),
            };
        }
        topic.local_prefix = self.prefix(topic.filter.as_deref())?;
        topic.remote_prefix = self.prefix(topic.filter.as_deref())?;
        let has_both = topic.local_prefix.is_some() && topic.remote_prefix.is_some();
        if topic.filter.is_none() && !has_both {
            return self.wrong(first, "a topic filter, or two prefixes behind `\"\"`");
        }
        Ok(topic)
    }

    /// One word, or all between quotes.
    fn topic_filter(&mut self) -> Read<(Token, String)> {
        let (first, text) = self.word("a topic filter")?;
        let Some(begun) = text.strip_prefix('"').filter(|rest| !rest.starts_with('"')) else {
            return Ok((first, text.to_owned()));
        };
        let rest = self.tokens.get(self.taken..).unwrap_or_default();
        let end = rest
            .iter()
            .position(|word| word.of(self.source.text).contains(&b'"'));
        let Some(end) = end else {
            return self.wrong(first, "a topic filter that ends with `\"`");
        };
        let whole = Token {
            end: rest[end].end,
            start: first.end + 1,
            ..first
        };
        let whole = self.source.utf8(whole, "a topic filter")?;
        let quoted = whole.split('"').next().unwrap_or_default();
        self.taken += end + 1;
        Ok((first, format!("{begun} {quoted}")))
    }

    fn prefix(&mut self, filter: Option<&str>) -> Read<Option<String>> {
        let Some((token, text)) = self.before_comment() else {
            return Ok(None);
        };
        if text == "\"\"" {
            return Ok(None);
        }
        if let Some(at) = text.find(['+', '#']) {
            let wrong = self
                .source
                .wrong_at(token, at, "a prefix without wildcards");
            return Err(Box::new(wrong));
        }
        let whole = format!("{text}{}", filter.unwrap_or_default());
        match filter::problem(whole.as_bytes()) {
            Some((_, expected)) => self.wrong(token, expected),
            None => Ok(Some(text.to_owned())),
        }
    }

    /// The next word, unless a comment begins there.
    pub(super) fn before_comment(&mut self) -> Option<(Token, &'t str)> {
        let (token, text) = self.next()?;
        if text.starts_with('#') {
            self.taken = self.tokens.len();
            return None;
        }
        Some((token, text))
    }
}

/// A whole number as C's `strtol` reads it with base 0: decimal, `0x` hexadecimal, `0` octal.
fn c_number(text: &str) -> Option<i32> {
    let text = text.trim_start_matches(['\t', '\u{b}', '\u{c}', '\r']);
    let (is_negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let (base, digits) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let number = i64::from_str_radix(digits, base).ok()?;
    i32::try_from(if is_negative { -number } else { number }).ok()
}

/// A number as C's `atol` reads it: as far as there are digits, otherwise 0.
fn leading_number(text: &str) -> i64 {
    let text = text.trim_start_matches(['\t', '\u{b}', '\u{c}', '\r']);
    let sign = usize::from(text.starts_with(['-', '+']));
    let digits = text
        .bytes()
        .skip(sign)
        .take_while(u8::is_ascii_digit)
        .count();
    let number = &text[..sign + digits];
    let limit = if number.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    };
    match digits {
        0 => 0,
        _ => number.parse().unwrap_or(limit),
    }
}

fn one_of(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, before)) if !before.is_empty() => {
            format!("{} or {last}", before.join(", "))
        }
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, expect) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("+7", Some(7)),
            ("0x1F", Some(31)),
            ("010", Some(8)),
            ("08", None),
            ("1a", None),
            ("", None),
            ("-", None),
            ("0x", None),
            ("--1", None),
            ("\t5", Some(5)),
            ("2147483647", Some(i32::MAX)),
            ("2147483648", None),
            ("-2147483648", Some(i32::MIN)),
            ("99999999999999999999", None),
        ] {
            assert_eq!(c_number(text), expect, "{text:?}");
        }
        for (text, expect) in [
            ("12abc", 12),
            ("abc", 0),
            ("-3x", -3),
            ("", 0),
            ("010", 10),
            ("99999999999999999999", i64::MAX),
            ("-99999999999999999999", i64::MIN),
        ] {
            assert_eq!(leading_number(text), expect, "{text:?}");
        }
    }
}
