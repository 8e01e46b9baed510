//! Values as text: counts, durations, sizes, choices; parsed and formatted.
//!
//! A [`Kind`] parses the values of a key, and describes them in error messages.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use unbroken_broker_core::MountPoint;

use super::units::{parse_duration, parse_size, show_duration, show_size};
use super::{AdminListen, Bind, FileMode};

/// A value that fits its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Flag(bool),
    Number(u64),
    Time(Duration),
    Text(String),
    List(Vec<String>),
    /// The value for "not set": auto, off, never, unlimited.
    Absent,
}

/// The values of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Flag,
    /// A whole number in this range, or the value for absent.
    Count {
        min: u64,
        max: u64,
        absent: Option<&'static str>,
    },
    /// A time with units in this range, or the value for absent.
    Time {
        min: Duration,
        max: Duration,
        absent: Option<&'static str>,
    },
    /// A number of bytes in this range, or the value for absent.
    Size {
        min: u64,
        max: u64,
        absent: Option<&'static str>,
    },
    /// Free text; empty is absent.
    Text,
    /// A mount point; empty is absent.
    MountPoint,
    /// A file; empty is absent. Relative to the directory of the config file that names it.
    Path,
    /// Files, as [`Self::Path`]; none if empty.
    Paths,
    /// Networks of IP addresses; none if empty.
    Networks,
    /// IP addresses, or `localhost`; `*` is all of both families.
    Addresses,
    /// Permissions of a file, in octal digits.
    Mode,
    /// [`AdminListen`].
    AdminListen,
    /// One of these.
    Choice(&'static [&'static str]),
    /// Texts.
    List,
}

/// The form of a value in its source: environment variables and flags are always text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Integer,
    Flag,
    /// An array as the file has it.
    Array,
    /// A table, a date: no key takes one.
    Other,
}

impl Kind {
    /// Parses `text`; an error is one sentence.
    pub(super) fn parse(self, text: &str, form: Form) -> Result<Value, String> {
        let text = text.trim();
        let wrong = || {
            let shown = if form == Form::Array { "[…]" } else { text };
            Err(format!("`{shown}` is not {}", self.expects()))
        };
        let takes_array = matches!(
            self,
            Self::List | Self::Paths | Self::Networks | Self::Addresses
        );
        if form == Form::Other || form == Form::Array && !takes_array {
            return wrong();
        }
        match self {
            Self::Flag => match text {
                "true" => Ok(Value::Flag(true)),
                "false" => Ok(Value::Flag(false)),
                _ => wrong(),
            },
            Self::Count {
                absent: Some(word), ..
            }
            | Self::Time {
                absent: Some(word), ..
            }
            | Self::Size {
                absent: Some(word), ..
            } if text == word => Ok(Value::Absent),
            Self::Count { min, max, .. } => match text.replace('_', "").parse::<u64>() {
                Ok(n) if (min..=max).contains(&n) => Ok(Value::Number(n)),
                _ => wrong(),
            },
            Self::Time { min, max, .. } => match parse_duration(text) {
                Ok(time) if (min..=max).contains(&time) => Ok(Value::Time(time)),
                Ok(_) => wrong(),
                Err(why) => Err(format!("`{text}` {why}; it takes {}", self.expects())),
            },
            Self::Size { min, max, .. } => match parse_size(text) {
                Ok(bytes) if (min..=max).contains(&bytes) => Ok(Value::Number(bytes)),
                Ok(_) => wrong(),
                Err(why) => Err(format!("`{text}` {why}; it takes {}", self.expects())),
            },
            Self::Networks if form == Form::Text && !text.starts_with('[') => {
                Ok(Value::List(parts(text, ',')))
            }
            Self::Paths if form == Form::Text && !text.starts_with('[') => {
                let path = (!text.is_empty()).then(|| text.to_owned());
                Ok(Value::List(path.into_iter().collect()))
            }
            Self::Text | Self::MountPoint | Self::Path if form != Form::Text => wrong(),
            Self::Text | Self::MountPoint | Self::Path if text.is_empty() => Ok(Value::Absent),
            Self::MountPoint => match MountPoint::parse(text) {
                Ok(_) => Ok(Value::Text(text.to_owned())),
                Err(why) => Err(format!("`{text}` is not {}: {why}", self.expects())),
            },
            Self::Text | Self::Path => Ok(Value::Text(text.to_owned())),
            Self::Addresses => addresses(text, form).map_or_else(wrong, |list| {
                Ok(Value::List(list.iter().map(IpAddr::to_string).collect()))
            }),
            Self::Mode => match FileMode::parse(text) {
                Some(mode) if form == Form::Text => Ok(Value::Text(mode.to_string())),
                _ => wrong(),
            },
            Self::AdminListen => match text.parse::<AdminListen>() {
                Ok(listen) if form == Form::Text => Ok(Value::Text(listen.to_string())),
                _ => wrong(),
            },
            Self::Choice(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Self::Choice(_) => wrong(),
            Self::List | Self::Paths | Self::Networks => {
                texts(text).map_or_else(wrong, |texts| Ok(Value::List(texts)))
            }
        }
    }

    /// Describes the values, to follow "is not" or "it takes".
    pub(super) fn expects(self) -> String {
        let or =
            |absent: Option<&str>| absent.map_or(String::new(), |word| format!(" or \"{word}\""));
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Count { min, max, absent } => {
                let range = range(min, max, |bound| bound.to_string());
                format!("a whole number {range}{}", or(absent))
            }
            Self::Time { min, max, absent } => {
                let shown = show_duration(max);
                // Of weeks, days, hours and more the weeks are enough.
                let largest = match *shown.split(' ').collect::<Vec<_>>().as_slice() {
                    [largest, _, _, ..] => largest.to_owned(),
                    _ => shown,
                };
                format!(
                    "a time from {} to {largest} with a unit (ms, s, m, h, d, w), such as \"30s\" \
                     or \"1h 30m\"{}",
                    show_duration(min),
                    or(absent)
                )
            }
            Self::Size { min, max, absent } => format!(
                "a size {} with a unit (B, KiB, MiB, GiB, kB, MB, GB), such as \"64 KiB\"{}",
                range(min, max, show_size),
                or(absent)
            ),
            Self::Text => "a text in quotes".to_owned(),
            Self::MountPoint => "the beginning of topics, such as \"plant-a/{user}/\"".to_owned(),
            Self::Path => "a file name in quotes".to_owned(),
            Self::Networks => {
                "an IP address or a network such as \"10.0.0.0/8\", or an array of them".to_owned()
            }
            Self::Paths => "a file name in quotes, or an array of them".to_owned(),
            Self::Addresses => {
                "an IP address such as \"127.0.0.1\" or \"::\", \"localhost\", \"*\" \
                                for all addresses, or an array of different addresses"
                    .to_owned()
            }
            Self::Mode => {
                "permissions in octal digits and quotes, from \"000\" to \"0777\", such as \"0660\""
                    .to_owned()
            }
            Self::AdminListen => {
                "an IP address with a port, such as \"127.0.0.1:7883\", \"auto\" or \"off\""
                    .to_owned()
            }
            Self::Choice(words) => words
                .iter()
                .map(|word| format!("\"{word}\""))
                .collect::<Vec<_>>()
                .join(" or "),
            Self::List => "a list of texts such as [\"a\", \"b\"]".to_owned(),
        }
    }

    /// The value as it would stand in the config file.
    pub(super) fn show(self, value: &Value) -> String {
        match (self, value) {
            (Self::Size { .. }, Value::Number(bytes)) => quoted(&show_size(*bytes)),
            (_, Value::Number(n)) => n.to_string(),
            (_, Value::Flag(flag)) => flag.to_string(),
            (_, Value::Time(time)) => quoted(&show_duration(*time)),
            (_, Value::Text(text)) => quoted(text),
            (Self::Addresses, Value::List(texts)) if *texts == ["0.0.0.0", "::"] => quoted("*"),
            (Self::Paths, Value::List(texts)) if texts.is_empty() => quoted(""),
            (Self::Paths | Self::Addresses, Value::List(texts)) if texts.len() == 1 => {
                quoted(&texts[0])
            }
            (_, Value::List(texts)) => {
                let texts: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
                format!("[{}]", texts.join(", "))
            }
            (
                Self::Count {
                    absent: Some(word), ..
                }
                | Self::Time {
                    absent: Some(word), ..
                }
                | Self::Size {
                    absent: Some(word), ..
                },
                _,
            ) => quoted(word),
            (_, Value::Absent) => quoted(""),
        }
    }
}

/// Describes a range; one of the largest representable numbers is not shown as a bound.
fn range(min: u64, max: u64, show: impl Fn(u64) -> String) -> String {
    match max {
        u64::MAX => format!("of {} or more", show(min)),
        _ if show(max).len() > show(max + 1).len() => {
            format!("from {} to less than {}", show(min), show(max + 1))
        }
        _ => format!("from {} to {}", show(min), show(max)),
    }
}

/// Different IP addresses: one, `localhost`, `*`, an array, or several with commas between them.
fn addresses(text: &str, form: Form) -> Option<Vec<IpAddr>> {
    let one = |text: &str| match text {
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => text.trim_matches(['[', ']']).parse().ok(),
    };
    let list = if text == "*" {
        return Some(Bind::all().addresses().to_vec());
    } else if form == Form::Array {
        texts(text)?
    } else if let Some(address) = one(text) {
        return Some(vec![address]);
    } else if text.starts_with('[') {
        texts(text)?
    } else {
        parts(text, ',')
    };
    let list: Option<Vec<_>> = list.iter().map(|text| one(text)).collect();
    Bind::new(list?).map(|bind| bind.addresses().to_vec())
}

/// The texts of an array of TOML, which a variable can hold too.
fn texts(text: &str) -> Option<Vec<String>> {
    if !text.starts_with('[') {
        return None;
    }
    let mut table = toml::from_str::<toml::Table>(&format!("texts = {text}")).ok()?;
    let texts = table.remove("texts")?;
    let texts = texts.as_array().filter(|_| table.is_empty())?.iter();
    texts.map(|text| text.as_str().map(str::to_owned)).collect()
}

/// The texts between separators, without blanks around them and without empty ones.
fn parts(text: &str, separator: char) -> Vec<String> {
    let parts = text.split(separator).map(str::trim);
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Kind = Kind::Time {
        min: Duration::ZERO,
        max: Duration::from_secs(1_000_000_000),
        absent: Some("off"),
    };
    const SIZE: Kind = Kind::Size {
        min: 0,
        max: u64::MAX,
        absent: Some("unlimited"),
    };

    #[test]
    fn durations_take_units_and_their_sums() {
        for (text, ms) in [
            ("30s", 30_000),
            ("5m", 300_000),
            ("5min", 300_000),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
            ("250 ms", 250),
            ("0s", 0),
        ] {
            assert_eq!(
                TIME.parse(text, Form::Text),
                Ok(Value::Time(Duration::from_millis(ms))),
                "{text}"
            );
        }
        assert_eq!(TIME.parse("off", Form::Text), Ok(Value::Absent));
    }

    #[test]
    fn a_duration_with_a_wrong_or_missing_unit_reports_the_units() {
        for (text, why) in [
            ("30", "`30` has no unit"),
            ("30 KiB", "`30 KiB` has an unknown unit"),
            ("soon", "`soon` does not begin with a whole number"),
            ("", "`` is empty"),
            (
                "99999999999999999999s",
                "does not begin with a whole number",
            ),
            ("9999999999999999999s", "is too long"),
        ] {
            let message = TIME.parse(text, Form::Text).unwrap_err();
            assert!(message.contains(why), "{message}");
            assert!(message.contains("ms, s, m, h, d, w"), "{message}");
        }
    }

    #[test]
    fn sizes_take_binary_and_decimal_units() {
        for (text, bytes) in [
            ("256KiB", 262_144),
            ("64 MB", 64_000_000),
            ("1 GiB", 1 << 30),
            ("12 B", 12),
            ("3 KB", 3_000),
            ("3 kB", 3_000),
        ] {
            assert_eq!(
                SIZE.parse(text, Form::Text),
                Ok(Value::Number(bytes)),
                "{text}"
            );
        }
        assert_eq!(SIZE.parse("unlimited", Form::Text), Ok(Value::Absent));
        assert_eq!(SIZE.show(&Value::Absent), "\"unlimited\"");
        let message = SIZE.parse("64 s", Form::Text).unwrap_err();
        assert!(
            message.contains("unknown unit") && message.contains("KiB"),
            "{message}"
        );
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for ms in [0, 1, 999, 1_000, 61_000, 5_400_000, 694_861_001] {
            let value = Value::Time(Duration::from_millis(ms));
            let shown = TIME.show(&value);
            assert_eq!(TIME.parse(shown.trim_matches('"'), Form::Text), Ok(value));
        }
        for bytes in [0, 1, 1_000, 1_024, 1_025, 64_000_000, 1 << 30, u64::MAX] {
            let value = Value::Number(bytes);
            let shown = SIZE.show(&value);
            assert_eq!(SIZE.parse(shown.trim_matches('"'), Form::Text), Ok(value));
        }
    }

    #[test]
    fn a_list_has_texts_only() {
        let parse = |text, form| Kind::List.parse(text, form);
        let list = Value::List(vec!["a".to_owned(), "b\"".to_owned()]);
        let shown = Kind::List.show(&list);
        for form in [Form::Array, Form::Text] {
            assert_eq!(parse(&shown, form), Ok(list.clone()));
            assert_eq!(parse("[]", form), Ok(Value::List(Vec::new())));
        }
        for text in ["[1]", "a", "", "[\"a\"]\nb = 1", "[\"a\""] {
            assert!(parse(text, Form::Text).is_err(), "{text}");
        }
        let wrong = parse("[1]", Form::Array).unwrap_err();
        assert_eq!(wrong, "`[…]` is not a list of texts such as [\"a\", \"b\"]");
        assert!(Kind::Text.parse("[\"a\"]", Form::Array).is_err());
    }

    #[test]
    fn addresses_are_one_or_several_or_all() {
        let list = |texts: &[&str]| {
            let texts = texts.iter().map(|text| (*text).to_owned());
            Value::List(texts.collect())
        };
        for (text, form, expected) in [
            ("127.0.0.1", Form::Text, list(&["127.0.0.1"])),
            ("localhost", Form::Text, list(&["127.0.0.1"])),
            ("[::1]", Form::Text, list(&["::1"])),
            ("*", Form::Text, list(&["0.0.0.0", "::"])),
            ("127.0.0.1, ::1", Form::Text, list(&["127.0.0.1", "::1"])),
            (
                r#"["::1", "127.0.0.1"]"#,
                Form::Array,
                list(&["::1", "127.0.0.1"]),
            ),
            (
                r#"["::1", "127.0.0.1"]"#,
                Form::Text,
                list(&["::1", "127.0.0.1"]),
            ),
        ] {
            assert_eq!(Kind::Addresses.parse(text, form), Ok(expected), "{text}");
        }
        for (text, form) in [
            ("", Form::Text),
            ("mqtt.example.org", Form::Text),
            ("[]", Form::Array),
            (r#"["::1", "*"]"#, Form::Array),
            (r#"["::1", "::1"]"#, Form::Array),
        ] {
            assert!(Kind::Addresses.parse(text, form).is_err(), "{text}");
        }
        let show = |texts: &[&str]| Kind::Addresses.show(&list(texts));
        assert_eq!(show(&["::1"]), "\"::1\"");
        assert_eq!(show(&["0.0.0.0", "::"]), "\"*\"");
        assert_eq!(show(&["127.0.0.1", "::1"]), "[\"127.0.0.1\", \"::1\"]");
    }

    #[test]
    fn the_name_of_a_file_may_have_a_comma_in_it() {
        let paths = |texts: &[&str]| {
            let texts = texts.iter().map(|text| (*text).to_owned());
            Value::List(texts.collect())
        };
        for (text, form, expected) in [
            ("a,b.pem", Form::Text, paths(&["a,b.pem"])),
            ("", Form::Text, paths(&[])),
            (r#"["a,b.pem"]"#, Form::Array, paths(&["a,b.pem"])),
            (r#"["a", "b"]"#, Form::Text, paths(&["a", "b"])),
        ] {
            assert_eq!(
                Kind::Paths.parse(text, form),
                Ok(expected.clone()),
                "{text}"
            );
            let shown = Kind::Paths.show(&expected);
            let (text, form) = if shown.starts_with('[') {
                (shown.as_str(), Form::Array)
            } else {
                (shown.trim_matches('"'), Form::Text)
            };
            assert_eq!(Kind::Paths.parse(text, form), Ok(expected), "{shown}");
        }
    }

    #[test]
    fn ranges_are_in_words() {
        let (size, count) = (
            |max| {
                let absent = None;
                Kind::Size {
                    min: 1,
                    max,
                    absent,
                }
                .expects()
            },
            |max| {
                let absent = None;
                Kind::Count {
                    min: 1,
                    max,
                    absent,
                }
                .expects()
            },
        );
        assert!(size(u64::MAX).starts_with("a size of 1 B or more with"));
        assert!(size(u32::MAX.into()).starts_with("a size from 1 B to less than 4 GiB with"));
        assert!(size(1 << 20).starts_with("a size from 1 B to 1 MiB with"));
        assert_eq!(count(u64::MAX), "a whole number of 1 or more");
        assert_eq!(count(65_535), "a whole number from 1 to 65535");
        let time = Kind::Time {
            min: Duration::from_secs(1),
            max: Duration::from_secs(u32::MAX.into()),
            absent: None,
        };
        assert!(time.expects().starts_with("a time from 1s to 7101w with"));
    }

    #[test]
    fn a_count_outside_its_range_reports_the_range() {
        let kind = Kind::Count {
            min: 1,
            max: 64,
            absent: Some("auto"),
        };
        assert_eq!(kind.parse("8", Form::Integer), Ok(Value::Number(8)));
        assert_eq!(kind.parse("auto", Form::Text), Ok(Value::Absent));
        assert_eq!(
            kind.parse("65", Form::Integer),
            Err("`65` is not a whole number from 1 to 64 or \"auto\"".to_owned())
        );
    }
}
