//! The golden packets of `testdata/`, and packets in words. See `testdata/README.md` for both.

use std::{fmt::Write as _, fs, path::Path};

use serde::Deserialize;
use unbroken_mqtt_proto::{Ack, Packet, Properties, Property, Version};

/// One row for one version.
#[derive(Debug)]
pub(crate) struct Golden {
    /// File, name and version, for messages.
    pub label: String,
    pub version: Version,
    pub limit: u32,
    pub bytes: Vec<u8>,
    pub expect: Expect,
}

#[derive(Debug)]
pub(crate) enum Expect {
    Incomplete,
    Packet { words: String, canonical: bool },
    Fault { variant: String, reason: u8 },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    packet: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    versions: Vec<String>,
    bytes: String,
    #[serde(default = "no_limit")]
    limit: u32,
    #[serde(default)]
    incomplete: bool,
    ok: Option<String>,
    #[serde(default = "yes")]
    canonical: bool,
    fault: Option<String>,
    reason: Option<u8>,
    #[serde(default, rename = "statements")]
    _statements: Vec<String>,
}

const fn no_limit() -> u32 {
    u32::MAX
}

const fn yes() -> bool {
    true
}

/// Every row of every file, once for each of its versions.
pub(crate) fn golden() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let file: File = toml::from_str(&fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file_name = path.file_stem().unwrap().to_str().unwrap();
        for row in file.packet {
            for version in &row.versions {
                let label = format!("{file_name}: {} ({version})", row.name);
                all.push(Golden {
                    version: parse_version(version),
                    limit: row.limit,
                    bytes: parse_hex(&row.bytes),
                    expect: row
                        .expect()
                        .unwrap_or_else(|| panic!("{label}: no expectation")),
                    label,
                });
            }
        }
    }
    all
}

impl Row {
    fn expect(&self) -> Option<Expect> {
        match (self.incomplete, &self.ok, &self.fault, self.reason) {
            (true, None, None, None) => Some(Expect::Incomplete),
            (false, Some(words), None, None) => Some(Expect::Packet {
                words: words.clone(),
                canonical: self.canonical,
            }),
            (false, None, Some(variant), Some(reason)) => Some(Expect::Fault {
                variant: variant.clone(),
                reason,
            }),
            _ => None,
        }
    }
}

fn parse_version(text: &str) -> Version {
    Version::ALL
        .into_iter()
        .find(|version| version.to_string() == text)
        .unwrap()
}

fn parse_hex(text: &str) -> Vec<u8> {
    text.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

/// A packet in words: its fields in the order of the wire, those that say nothing left out.
pub(crate) fn describe(packet: &Packet<'_>) -> String {
    let mut words = Words(packet.packet_type().to_string());
    match packet {
        Packet::Connect(connect) => {
            words.add(connect.version);
            words.flag("bridge", connect.bridge);
            words.flag("clean", connect.clean_start);
            words.add(format_args!("keep-alive={}", connect.keep_alive));
            words.add(format_args!("id={:?}", connect.client_id));
            if let Some(will) = &connect.will {
                let mut inner = Words(format!("qos={}", will.qos));
                inner.flag("retain", will.retain);
                inner.add(format_args!("topic={:?}", will.topic));
                inner.add(format_args!("payload={}", hex(will.payload)));
                inner.properties(will.properties);
                words.add(format_args!("will({})", inner.0));
            }
            if let Some(user_name) = connect.user_name {
                words.add(format_args!("user={user_name:?}"));
            }
            if let Some(password) = connect.password {
                words.add(format_args!("password={}", hex(password)));
            }
            words.properties(connect.properties);
        }
        Packet::ConnAck(connack) => {
            words.flag("session-present", connack.session_present);
            words.add(format_args!("0x{:02X}", connack.reason.code()));
            words.properties(connack.properties);
        }
        Packet::Publish(publish) => {
            words.flag("dup", publish.dup);
            words.add(format_args!("qos={}", publish.qos));
            words.flag("retain", publish.retain);
            words.add(format_args!("topic={:?}", publish.topic));
            if let Some(id) = publish.packet_id {
                words.add(format_args!("id={id}"));
            }
            words.properties(publish.properties);
            words.add(format_args!("payload={}", hex(publish.payload)));
        }
        Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
            let Ack {
                packet_id,
                reason,
                properties,
            } = *ack;
            words.add(format_args!("id={packet_id}"));
            words.add(format_args!("0x{:02X}", reason.code()));
            words.properties(properties);
        }
        Packet::Subscribe(subscribe) => {
            words.add(format_args!("id={}", subscribe.packet_id));
            words.properties(subscribe.properties);
            for (index, (filter, options)) in subscribe.filters.iter().enumerate() {
                words.0.push_str(if index > 0 { "," } else { "" });
                words.add(format_args!("{filter:?}"));
                words.add(format_args!("qos={}", options.qos));
                words.flag("no-local", options.no_local);
                words.flag("as-published", options.retain_as_published);
                words.add(format_args!("handling={}", options.retain_handling as u8));
            }
        }
        Packet::SubAck(suback) => {
            words.add(format_args!("id={}", suback.packet_id));
            words.properties(suback.properties);
            words.codes(suback.reasons);
        }
        Packet::Unsubscribe(unsubscribe) => {
            words.add(format_args!("id={}", unsubscribe.packet_id));
            words.properties(unsubscribe.properties);
            for filter in &unsubscribe.filters {
                words.add(format_args!("{filter:?}"));
            }
        }
        Packet::UnsubAck(unsuback) => {
            words.add(format_args!("id={}", unsuback.packet_id));
            words.properties(unsuback.properties);
            words.codes(unsuback.reasons);
        }
        Packet::PingReq | Packet::PingResp => {}
        Packet::Disconnect(disconnect) => {
            words.add(format_args!("0x{:02X}", disconnect.reason.code()));
            words.properties(disconnect.properties);
        }
        Packet::Auth(auth) => {
            words.add(format_args!("0x{:02X}", auth.reason.code()));
            words.properties(auth.properties);
        }
    }
    words.0
}

struct Words(String);

impl Words {
    fn add(&mut self, word: impl std::fmt::Display) {
        write!(self.0, " {word}").unwrap();
    }

    fn flag(&mut self, word: &str, set: bool) {
        if set {
            self.add(word);
        }
    }

    fn codes(&mut self, codes: &[u8]) {
        for code in codes {
            self.add(format_args!("{code:02X}"));
        }
    }

    fn properties(&mut self, properties: Properties<'_>) {
        if !properties.is_empty() {
            let all: Vec<String> = properties
                .iter()
                .map(|property| describe_property(&property))
                .collect();
            self.add(format_args!("{{{}}}", all.join(" ")));
        }
    }
}

fn describe_property(property: &Property<'_>) -> String {
    use Property as P;
    let name = property.id().name().to_lowercase().replace(' ', "-");
    let value = match *property {
        P::PayloadFormatIndicator(flag)
        | P::RequestProblemInformation(flag)
        | P::RequestResponseInformation(flag)
        | P::RetainAvailable(flag)
        | P::WildcardSubscriptionAvailable(flag)
        | P::SubscriptionIdentifierAvailable(flag)
        | P::SharedSubscriptionAvailable(flag) => flag.to_string(),
        P::MaximumQoS(qos) => qos.to_string(),
        P::ServerKeepAlive(number)
        | P::ReceiveMaximum(number)
        | P::TopicAliasMaximum(number)
        | P::TopicAlias(number) => number.to_string(),
        P::MessageExpiryInterval(number)
        | P::SubscriptionIdentifier(number)
        | P::SessionExpiryInterval(number)
        | P::WillDelayInterval(number)
        | P::MaximumPacketSize(number) => number.to_string(),
        P::CorrelationData(bytes) | P::AuthenticationData(bytes) => hex(bytes),
        P::ContentType(text)
        | P::ResponseTopic(text)
        | P::AssignedClientIdentifier(text)
        | P::AuthenticationMethod(text)
        | P::ResponseInformation(text)
        | P::ServerReference(text)
        | P::ReasonString(text) => format!("{text:?}"),
        P::UserProperty(name, value) => format!("{name:?}:{value:?}"),
    };
    format!("{name}={value}")
}

fn hex(bytes: &[u8]) -> String {
    let mut text = "x\"".to_owned();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text + "\""
}
