//! Packets in words, as `testdata/README.md` describes them.

use std::fmt::Write as _;

use unbroken_mqtt_proto::{Ack, Packet, Properties, Property};

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
