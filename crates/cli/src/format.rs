//! `-F FORMAT` of `sub`: Mosquitto's little language for printing messages.
//!
//! `%` begins a value of the message, `@` one of the time it came (as strftime), `\` a character
//! that is hard to type. A format is read once; printing cannot fail but for the output.

use std::io::{self, Write};

use jiff::Zoned;
use jiff::fmt::strtime;
use unbroken_mqtt_proto::PacketId;

use crate::json::{self, PayloadForm};
use crate::message::Message;

/// A format, read.
#[derive(Clone, Debug)]
pub(crate) struct Format(Vec<Piece>);

#[derive(Clone, Debug)]
enum Piece {
    Literal(Vec<u8>),
    Value {
        name: char,
        layout: Layout,
    },
    /// A conversion of strftime.
    Time(char),
    Nanoseconds,
}

/// How wide a value is.
#[derive(Clone, Copy, Debug)]
struct Layout {
    zero: bool,
    left: bool,
    width: usize,
    /// The most characters, for texts.
    max: Option<usize>,
}

impl Format {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(first) = rest.next() {
            let piece = match first {
                '%' => {
                    let mut layout = Layout {
                        left: rest.next_if_eq(&'-').is_some(),
                        zero: rest.next_if_eq(&'0').is_some(),
                        width: number(&mut rest).unwrap_or(0),
                        max: None,
                    };
                    if rest.next_if_eq(&'.').is_some() {
                        layout.max = Some(number(&mut rest).unwrap_or(0));
                    }
                    match rest.next() {
                        Some('%') => Err(b'%'),
                        Some(name) if VALUES.contains(name) => Ok(Piece::Value { name, layout }),
                        Some(name) => {
                            return Err(format!("`%{name}` is none of the formats %{VALUES}"));
                        }
                        None => return Err("it ends within a `%`".to_owned()),
                    }
                }
                '@' => match rest.next() {
                    Some('@') => Err(b'@'),
                    Some('N') => Ok(Piece::Nanoseconds),
                    Some(name) => Ok(Piece::Time(name)),
                    None => return Err("it ends within an `@`".to_owned()),
                },
                '\\' => Err(match rest.next() {
                    Some('\\') => b'\\',
                    Some('0') => 0,
                    Some('a') => 0x07,
                    Some('e') => 0x1b,
                    Some('n') => b'\n',
                    Some('r') => b'\r',
                    Some('t') => b'\t',
                    Some('v') => 0x0b,
                    Some(other) => {
                        return Err(format!(
                            "`\\{other}` is none of \\\\ \\0 \\a \\e \\n \\r \\t \\v"
                        ));
                    }
                    None => return Err("it ends within a `\\`".to_owned()),
                }),
                other => {
                    literal.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
                    continue;
                }
            };
            match piece {
                Err(byte) => literal.push(byte),
                Ok(piece) => {
                    if !literal.is_empty() {
                        pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                    }
                    pieces.push(piece);
                }
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self(pieces))
    }

    /// Prints one message. False: its payload was to be JSON and is not; nothing of that value was
    /// printed.
    pub(crate) fn print(
        &self,
        out: &mut dyn Write,
        message: &Message<'_>,
        at: &Zoned,
        pretty: bool,
    ) -> io::Result<bool> {
        let mut whole = true;
        for piece in &self.0 {
            match piece {
                Piece::Literal(bytes) => out.write_all(bytes)?,
                Piece::Nanoseconds => write!(out, "{:09}", at.subsec_nanosecond())?,
                // A conversion that is not known is printed as it stands.
                Piece::Time(name) => match strtime::format(format!("%{name}"), at) {
                    Ok(text) => write!(out, "{text}")?,
                    Err(_) => write!(out, "%{name}")?,
                },
                Piece::Value { name, layout } => {
                    whole &= print_value(out, *name, *layout, message, at, pretty)?;
                }
            }
        }
        Ok(whole)
    }
}

/// Prints what stands behind a `%`.
fn print_value(
    out: &mut dyn Write,
    name: char,
    layout: Layout,
    message: &Message<'_>,
    at: &Zoned,
    pretty: bool,
) -> io::Result<bool> {
    let properties = message.properties;
    let id = message.packet_id.map_or(0, PacketId::get);
    match name {
        'A' => layout.number(out, properties.topic_alias())?,
        'C' => layout.text(out, properties.content_type())?,
        'D' => out.write_all(properties.correlation_data().unwrap_or_default())?,
        'E' => layout.number(out, properties.message_expiry_interval())?,
        'F' => layout.number(out, properties.payload_format_indicator().map(u8::from))?,
        'I' => layout.text(out, Some(&iso_8601(at)))?,
        'j' => return json::print(out, message, at, PayloadForm::Text, pretty),
        'J' => return json::print(out, message, at, PayloadForm::Json, pretty),
        'l' => layout.number(out, Some(message.payload.len()))?,
        'm' => layout.number(out, Some(id))?,
        'P' => {
            for (i, (name, value)) in properties.user_properties().enumerate() {
                write!(out, "{}{name}:{value}", if i > 0 { " " } else { "" })?;
            }
        }
        'p' => layout.payload(out, message.payload, None)?,
        'q' => write!(out, "{}", message.qos)?,
        'R' => layout.text(out, properties.response_topic())?,
        'r' => write!(out, "{}", u8::from(message.retain))?,
        'S' => layout.number(out, properties.subscription_identifiers().next())?,
        't' => layout.text(out, Some(message.topic))?,
        'U' => write!(
            out,
            "{}.{:09}",
            at.timestamp().as_second(),
            at.subsec_nanosecond()
        )?,
        'x' => layout.payload(out, message.payload, Some(b"0123456789abcdef"))?,
        'X' => layout.payload(out, message.payload, Some(b"0123456789ABCDEF"))?,
        // `parse` lets nothing else through.
        _ => {}
    }
    Ok(true)
}

impl Layout {
    /// A text, cut and padded with blanks.
    fn text(self, out: &mut dyn Write, value: Option<&str>) -> io::Result<()> {
        let value: String = value
            .unwrap_or_default()
            .chars()
            .take(self.max.unwrap_or(usize::MAX))
            .collect();
        Self {
            zero: false,
            ..self
        }
        .number(out, Some(value))
    }

    /// Padded with zeros, if they are asked for, or with blanks. What is not there is all padding.
    fn number(self, out: &mut dyn Write, value: Option<impl ToString>) -> io::Result<()> {
        self.bytes(
            out,
            value
                .map_or(String::new(), |value| value.to_string())
                .as_bytes(),
        )
    }

    /// A payload, in hexadecimal digits or as it is. As Mosquitto prints it: a width cuts to so
    /// many bytes, in hexadecimal to half of what is left then, and `-` without a width adds a
    /// blank for each byte.
    fn payload(
        self,
        out: &mut dyn Write,
        payload: &[u8],
        digits: Option<&[u8; 16]>,
    ) -> io::Result<()> {
        let mut shown = payload;
        let missing = if self.width == 0 {
            if self.left { payload.len() } else { 0 }
        } else {
            shown = &shown[..shown.len().min(self.width)];
            match digits {
                Some(_) => {
                    shown = &shown[..shown.len() / 2];
                    self.width - shown.len() * 2
                }
                None => self.width - shown.len(),
            }
        };
        if !self.left {
            let padding = if self.zero { "0" } else { " " };
            out.write_all(padding.repeat(missing).as_bytes())?;
        }
        match digits {
            None => out.write_all(shown)?,
            Some(digits) => {
                let digit = |nibble: u8| digits[usize::from(nibble & 0xf)];
                let pairs = shown.iter().map(|byte| [digit(byte >> 4), digit(*byte)]);
                out.write_all(pairs.collect::<Vec<_>>().as_flattened())?;
            }
        }
        if self.left {
            return write!(out, "{:missing$}", "");
        }
        Ok(())
    }

    fn bytes(self, out: &mut dyn Write, value: &[u8]) -> io::Result<()> {
        // Continuation bytes of UTF-8 take no place.
        let length = value
            .iter()
            .filter(|byte| **byte & 0b1100_0000 != 0b1000_0000)
            .count();
        let missing = self.width.saturating_sub(length);
        if self.left {
            out.write_all(value)?;
            return write!(out, "{:missing$}", "");
        }
        let padding = if self.zero { "0" } else { " " };
        out.write_all(padding.repeat(missing).as_bytes())?;
        out.write_all(value)
    }
}

fn iso_8601(at: &Zoned) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%z").to_string()
}

fn number(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<usize> {
    let mut number = None;
    while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
        rest.next();
        number = Some((number.unwrap_or(0) * 10 + digit as usize).min(WIDTH_MAX));
    }
    number
}

/// Every letter that may stand behind a `%`.
const VALUES: &str = "ACDEFIJjlmPpqRrStUxX";
/// More than any terminal; a mistyped width must not fill the disk.
const WIDTH_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use unbroken_mqtt_proto::{Property, PropertyBuf, QoS};

    fn properties() -> PropertyBuf {
        let mut properties = PropertyBuf::new();
        for property in [
            Property::ContentType("text/x"),
            Property::CorrelationData(b"cd"),
            Property::MessageExpiryInterval(100),
            Property::PayloadFormatIndicator(true),
            Property::UserProperty("k", "v"),
            Property::UserProperty("k2", "v2"),
            Property::ResponseTopic("re/sp"),
        ] {
            properties.push(property).unwrap();
        }
        properties
    }

    fn check(format: &str, expect: &str) {
        let at: Zoned = "2026-11-21T04:05:06.000000789+01:00[+01:00]"
            .parse()
            .unwrap();
        let properties = properties();
        let message = Message {
            topic: "fmt/one",
            payload: b"h\"i",
            qos: QoS::AtLeastOnce,
            retain: true,
            dup: false,
            packet_id: PacketId::new(1),
            properties: properties.as_properties(),
        };
        let mut out = Vec::new();
        Format::parse(format)
            .unwrap()
            .print(&mut out, &message, &at, false)
            .unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expect, "{format}");
    }

    /// Expectations are the output of mosquitto_sub 2.0.11 for the same message.
    #[test]
    fn values_of_a_message_print_as_mosquitto_prints_them() {
        check(
            "t=%t|p=%p|l=%l|q=%q|r=%r|m=%m",
            "t=fmt/one|p=h\"i|l=3|q=1|r=1|m=1",
        );
        check(
            "x=%x|X=%X|A=%A|C=%C|D=%D",
            "x=682269|X=682269|A=|C=text/x|D=cd",
        );
        check(
            "E=%E|F=%F|P=%P|R=%R|S=%S|%%",
            "E=100|F=1|P=k:v k2:v2|R=re/sp|S=|%",
        );
        check(
            "%10t|%-10t|%.2t|%010l|%-5l|%5.2C|",
            "   fmt/one|fmt/one   |fm|0000000003|3    |   te|",
        );
        check("%3q|%03r|%-05m|%5S|", "1|1|1    |     |");
        check(
            "%.1x|%.2X|%012x|%6x|%-5X|%-x|%1x|",
            "682269|682269|000000000068|    68|68   |682269   | |",
        );
        check(
            "%2p|%5p|%05p|%-5p|%-p|%.1p|",
            "h\"|  h\"i|00h\"i|h\"i  |h\"i   |h\"i|",
        );
    }

    #[test]
    fn time_prints_as_strftime_does() {
        check(
            "@Y-@m-@dT@H:@M:@S@z.@N",
            "2026-11-21T04:05:06+0100.000000789",
        );
        check(
            "%I|%U|@@|@s",
            "2026-11-21T04:05:06+0100|1795230306.000000789|@|1795230306",
        );
        check(
            "%30I|%.4I|%-26I|",
            "      2026-11-21T04:05:06+0100|2026|2026-11-21T04:05:06+0100  |",
        );
    }

    #[test]
    fn escapes_print_their_characters() {
        check("\\\\\\0\\a\\e\\n\\r\\t\\v", "\\\0\x07\x1b\n\r\t\x0b");
    }

    #[test]
    fn a_wrong_format_is_refused() {
        for (format, why) in [
            ("%Z", "`%Z` is none of"),
            ("%--5t", "`%-` is none of"),
            ("%0-5t", "`%-` is none of"),
            ("%", "ends within a `%`"),
            ("%05", "ends within a `%`"),
            ("@", "ends within an `@`"),
            ("a\\q", "`\\q` is none of"),
            ("\\", "ends within a `\\`"),
        ] {
            let error = Format::parse(format).unwrap_err();
            assert!(error.contains(why), "{format}: {error}");
        }
    }
}
