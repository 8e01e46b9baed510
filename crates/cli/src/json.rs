//! A message as a JSON object: `%j`, `%J` and `--json` of `sub`. The names are Mosquitto's.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Zoned;
use serde_json::Value;
use unbroken_mqtt_proto::{Properties, Property};

use crate::message::Message;
use crate::properties::hyphenated;

/// How the payload stands in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadForm {
    /// `%j`: a string; bytes that are not text are replaced.
    Text,
    /// `%J`: as it is, as it is JSON itself.
    Json,
    /// `--json`: a string if it is text, otherwise `payload_base64`. Nothing is lost.
    Lossless,
}

/// Prints the object, without an end of line. False: the payload is not JSON, and nothing was
/// printed.
pub(crate) fn print(
    out: &mut dyn Write,
    message: &Message<'_>,
    at: &Zoned,
    form: PayloadForm,
    pretty: bool,
) -> io::Result<bool> {
    let mut object = Object {
        out,
        pretty,
        depth: 0,
        empty: true,
    };
    let payload = match (form, std::str::from_utf8(message.payload)) {
        (PayloadForm::Text | PayloadForm::Json, Ok("")) => ("payload", "null".to_owned()),
        (PayloadForm::Json, Ok(text)) if serde_json::from_str::<Value>(text).is_ok() => {
            ("payload", text.to_owned())
        }
        (PayloadForm::Json, _) => return Ok(false),
        (PayloadForm::Lossless, Err(_)) => {
            ("payload_base64", quoted(&STANDARD.encode(message.payload)))
        }
        _ => ("payload", quoted(&String::from_utf8_lossy(message.payload))),
    };
    object.open()?;
    object.field(
        "tst",
        &quoted(&at.strftime("%Y-%m-%dT%H:%M:%S.%6f%z").to_string()),
    )?;
    object.field("topic", &quoted(message.topic))?;
    object.field("qos", &message.qos.to_string())?;
    object.field("retain", &u8::from(message.retain).to_string())?;
    if form == PayloadForm::Lossless && message.dup {
        object.field("dup", "1")?;
    }
    object.field("payloadlen", &message.payload.len().to_string())?;
    if let Some(id) = message.packet_id {
        object.field("mid", &id.to_string())?;
    }
    if !message.properties.is_empty() {
        object.key("properties")?;
        print_properties(&mut object, message.properties)?;
    }
    object.field(payload.0, &payload.1)?;
    object.close()?;
    Ok(true)
}

/// User properties as an object of their own, in order and repeated if they are.
fn print_properties(object: &mut Object<'_>, properties: Properties<'_>) -> io::Result<()> {
    object.open()?;
    for property in &properties {
        if let Some(value) = property_value(&property) {
            object.field(&hyphenated(property.id()), &value)?;
        }
    }
    if properties.user_properties().next().is_some() {
        object.key("user-properties")?;
        object.open()?;
        for (name, value) in properties.user_properties() {
            object.field(name, &quoted(value))?;
        }
        object.close()?;
    }
    object.close()
}

/// The value of a property that a PUBLISH may have; user properties stand apart.
fn property_value(property: &Property<'_>) -> Option<String> {
    Some(match *property {
        Property::PayloadFormatIndicator(flag) => u8::from(flag).to_string(),
        Property::MessageExpiryInterval(seconds) => seconds.to_string(),
        Property::ContentType(text) | Property::ResponseTopic(text) => quoted(text),
        Property::CorrelationData(data) => match std::str::from_utf8(data) {
            Ok(text) => quoted(text),
            Err(_) => quoted(&STANDARD.encode(data)),
        },
        Property::SubscriptionIdentifier(id) => id.to_string(),
        Property::TopicAlias(alias) => alias.to_string(),
        _ => return None,
    })
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// Writes an object key by key, on one line or indented with tabs.
struct Object<'a> {
    out: &'a mut dyn Write,
    pretty: bool,
    depth: usize,
    /// Nothing was written since the last `{`.
    empty: bool,
}

impl Object<'_> {
    fn open(&mut self) -> io::Result<()> {
        self.depth += 1;
        self.empty = true;
        self.out.write_all(b"{")
    }

    fn key(&mut self, name: &str) -> io::Result<()> {
        if !self.empty {
            self.out.write_all(b",")?;
        }
        self.empty = false;
        self.line()?;
        write!(
            self.out,
            "{}:{}",
            quoted(name),
            if self.pretty { "\t" } else { "" }
        )
    }

    fn field(&mut self, name: &str, value: &str) -> io::Result<()> {
        self.key(name)?;
        self.out.write_all(value.as_bytes())
    }

    fn close(&mut self) -> io::Result<()> {
        self.depth -= 1;
        self.empty = false;
        self.line()?;
        self.out.write_all(b"}")
    }

    fn line(&mut self) -> io::Result<()> {
        if !self.pretty {
            return Ok(());
        }
        write!(self.out, "\n{}", "\t".repeat(self.depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unbroken_mqtt_proto::{PacketId, PropertyBuf, QoS};

    fn check(payload: &[u8], form: PayloadForm, pretty: bool, expect: &str) {
        let mut properties = PropertyBuf::new();
        properties.push(Property::UserProperty("k", "1")).unwrap();
        properties.push(Property::ContentType("c")).unwrap();
        properties.push(Property::UserProperty("k", "2")).unwrap();
        let message = Message {
            topic: "a\"b",
            payload,
            qos: QoS::AtLeastOnce,
            retain: false,
            dup: false,
            packet_id: PacketId::new(7),
            properties: properties.as_properties(),
        };
        let at: Zoned = "2026-11-21T04:05:06.000007+00:00[UTC]".parse().unwrap();
        let mut out = Vec::new();
        let printed = print(&mut out, &message, &at, form, pretty).unwrap();
        assert_eq!(printed, !expect.is_empty());
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    const HEAD: &str =
        "{\"tst\":\"2026-11-21T04:05:06.000007+0000\",\"topic\":\"a\\\"b\",\"qos\":1,\"retain\":0,";
    const PROPERTIES: &str = "\"mid\":7,\"properties\":{\"content-type\":\"c\",\
        \"user-properties\":{\"k\":\"1\",\"k\":\"2\"}},";

    #[test]
    fn a_text_payload_is_quoted() {
        let tail = "\"payload\":\"x\\n\"}";
        for form in [PayloadForm::Text, PayloadForm::Lossless] {
            check(
                b"x\n",
                form,
                false,
                &format!("{HEAD}\"payloadlen\":2,{PROPERTIES}{tail}"),
            );
        }
    }

    #[test]
    fn a_json_payload_stands_as_it_is_and_others_are_refused() {
        let tail = "\"payload\":[1, 2]}";
        check(
            b"[1, 2]",
            PayloadForm::Json,
            false,
            &format!("{HEAD}\"payloadlen\":6,{PROPERTIES}{tail}"),
        );
        check(b"[1, 2", PayloadForm::Json, false, "");
        check(b"\xff", PayloadForm::Json, false, "");
    }

    #[test]
    fn bytes_that_are_no_text_are_not_lost() {
        let tail = "\"payload_base64\":\"/wA=\"}";
        check(
            b"\xff\0",
            PayloadForm::Lossless,
            false,
            &format!("{HEAD}\"payloadlen\":2,{PROPERTIES}{tail}"),
        );
    }

    #[test]
    fn pretty_is_indented_with_tabs() {
        check(
            b"x",
            PayloadForm::Text,
            true,
            "{\n\t\"tst\":\t\"2026-11-21T04:05:06.000007+0000\",\n\t\"topic\":\t\"a\\\"b\",\
             \n\t\"qos\":\t1,\n\t\"retain\":\t0,\n\t\"payloadlen\":\t1,\n\t\"mid\":\t7,\
             \n\t\"properties\":\t{\n\t\t\"content-type\":\t\"c\",\
             \n\t\t\"user-properties\":\t{\n\t\t\t\"k\":\t\"1\",\n\t\t\t\"k\":\t\"2\"\n\t\t}\n\t},\
             \n\t\"payload\":\t\"x\"\n}",
        );
    }
}
