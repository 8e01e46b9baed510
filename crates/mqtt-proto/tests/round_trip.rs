//! Random packets survive encoding and decoding; random bytes never do harm.

#![allow(clippy::unwrap_used, reason = "a failed test is the point")]

use proptest::{collection::vec, option, prelude::*, sample::select};
use unbroken_mqtt_proto::{
    Ack, Auth, ConnAck, Connect, Disconnect, Packet, PacketId, PacketType, Properties, Property,
    PropertyBuf, PropertyId, PropertySection, Publish, QoS, ReasonCode, RetainHandling, SubAck,
    Subscribe, SubscriptionOptions, Subscriptions, TopicFilters, UnsubAck, Unsubscribe, Version,
    Will, next_frame,
};

fn version() -> impl Strategy<Value = Version> {
    select(&Version::ALL[..])
}

fn qos() -> impl Strategy<Value = QoS> {
    select(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][..])
}

fn packet_id() -> impl Strategy<Value = PacketId> {
    (1..=u16::MAX).prop_map(|id| PacketId::new(id).unwrap())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z/+#$]{0,12}",
        "\\PC{0,8}",
        Just("x".repeat(65_535)),
        Just("\u{feff}".to_owned()),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![8 => vec(any::<u8>(), 0..24), 1 => vec(any::<u8>(), 120..400)]
}

/// Values from which a property of any kind is made.
#[derive(Clone, Debug)]
struct Raw {
    number: u32,
    name: String,
    text: String,
    bytes: Vec<u8>,
}

fn raw() -> impl Strategy<Value = Raw> {
    (any::<u32>(), text(), text(), bytes()).prop_map(|(number, name, text, bytes)| Raw {
        number,
        name,
        text,
        bytes,
    })
}

fn property(id: PropertyId, raw: &Raw) -> Property<'_> {
    use PropertyId as Id;
    let flag = raw.number & 1 != 0;
    let [high, low, ..] = raw.number.to_be_bytes();
    let short = u16::from_be_bytes([high, low]);
    match id {
        Id::PayloadFormatIndicator => Property::PayloadFormatIndicator(flag),
        Id::MessageExpiryInterval => Property::MessageExpiryInterval(raw.number),
        Id::ContentType => Property::ContentType(&raw.text),
        Id::ResponseTopic => Property::ResponseTopic(&raw.text),
        Id::CorrelationData => Property::CorrelationData(&raw.bytes),
        Id::SubscriptionIdentifier => {
            Property::SubscriptionIdentifier((raw.number >> 4).clamp(1, 268_435_455))
        }
        Id::SessionExpiryInterval => Property::SessionExpiryInterval(raw.number),
        Id::AssignedClientIdentifier => Property::AssignedClientIdentifier(&raw.text),
        Id::ServerKeepAlive => Property::ServerKeepAlive(short),
        Id::AuthenticationMethod => Property::AuthenticationMethod(&raw.text),
        Id::AuthenticationData => Property::AuthenticationData(&raw.bytes),
        Id::RequestProblemInformation => Property::RequestProblemInformation(flag),
        Id::WillDelayInterval => Property::WillDelayInterval(raw.number),
        Id::RequestResponseInformation => Property::RequestResponseInformation(flag),
        Id::ResponseInformation => Property::ResponseInformation(&raw.text),
        Id::ServerReference => Property::ServerReference(&raw.text),
        Id::ReasonString => Property::ReasonString(&raw.text),
        Id::ReceiveMaximum => Property::ReceiveMaximum(short.max(1)),
        Id::TopicAliasMaximum => Property::TopicAliasMaximum(short),
        Id::TopicAlias => Property::TopicAlias(short),
        Id::MaximumQoS => Property::MaximumQoS(if flag {
            QoS::AtLeastOnce
        } else {
            QoS::AtMostOnce
        }),
        Id::RetainAvailable => Property::RetainAvailable(flag),
        Id::UserProperty => Property::UserProperty(&raw.name, &raw.text),
        Id::MaximumPacketSize => Property::MaximumPacketSize(raw.number.max(1)),
        Id::WildcardSubscriptionAvailable => Property::WildcardSubscriptionAvailable(flag),
        Id::SubscriptionIdentifierAvailable => Property::SubscriptionIdentifierAvailable(flag),
        Id::SharedSubscriptionAvailable => Property::SharedSubscriptionAvailable(flag),
    }
}

/// Properties that may stand in `section`, in any order. `needed` is always among them.
fn properties(
    section: PropertySection,
    needed: Option<PropertyId>,
) -> impl Strategy<Value = PropertyBuf> {
    let allowed: Vec<PropertyId> = PropertyId::ALL
        .iter()
        .copied()
        .filter(|id| id.is_allowed_in(section))
        .collect();
    vec((select(allowed), raw()), 0..5).prop_map(move |mut chosen| {
        if let Some(needed) = needed {
            let raw = Raw {
                number: 0,
                name: String::new(),
                text: "m".into(),
                bytes: vec![],
            };
            chosen.push((needed, raw));
        }
        let mut seen = Vec::new();
        let mut buffer = PropertyBuf::new();
        for (id, raw) in &chosen {
            if !seen.contains(id) || id.may_repeat_in(section) {
                seen.push(*id);
                buffer.push(property(*id, raw)).unwrap();
            }
        }
        buffer
    })
}

fn reason(packet: PacketType) -> impl Strategy<Value = ReasonCode> {
    let allowed: Vec<ReasonCode> = ReasonCode::ALL
        .iter()
        .copied()
        .filter(|reason| reason.is_allowed_in(packet))
        .collect();
    select(allowed)
}

fn options() -> impl Strategy<Value = SubscriptionOptions> {
    let handling = select(
        &[
            RetainHandling::SendAlways,
            RetainHandling::SendIfNew,
            RetainHandling::DoNotSend,
        ][..],
    );
    (qos(), any::<bool>(), any::<bool>(), handling).prop_map(
        |(qos, no_local, retain_as_published, retain_handling)| SubscriptionOptions {
            qos,
            no_local,
            retain_as_published,
            retain_handling,
        },
    )
}

const fn section(packet: PacketType) -> PropertySection {
    PropertySection::Packet(packet)
}

/// What the version can carry of them.
fn carried(properties: &PropertyBuf, version: Version) -> Properties<'_> {
    if version.has_properties() {
        properties.as_properties()
    } else {
        Properties::EMPTY
    }
}

fn check(packet: &Packet<'_>, version: Version) {
    let mut out = b"before".to_vec();
    packet.encode(version, &mut out).unwrap();
    out.extend_from_slice(b"after");
    let frame = next_frame(&out[6..], u32::MAX).unwrap().unwrap();
    assert_eq!(&out[6 + frame.bytes.len()..], b"after");
    assert_eq!(Packet::decode(frame, version).as_ref(), Ok(packet));
}

proptest! {
    #[test]
    fn connect_survives(
        version in version(),
        (clean_start, bridge, keep_alive) in (any::<bool>(), any::<bool>(), any::<u16>()),
        (client_id, user_name, password) in (text(), option::of(text()), option::of(bytes())),
        will in option::of((
            text(), bytes(), qos(), any::<bool>(), properties(PropertySection::Will, None),
        )),
        properties in
            properties(section(PacketType::Connect), Some(PropertyId::AuthenticationMethod)),
    ) {
        let connect = Connect {
            version,
            clean_start,
            keep_alive,
            client_id: &client_id,
            will: will.as_ref().map(|(topic, payload, qos, retain, properties)| Will {
                topic,
                payload,
                qos: *qos,
                retain: *retain,
                properties: carried(properties, version),
            }),
            user_name: user_name.as_deref(),
            password: password
                .as_deref()
                .filter(|_| user_name.is_some() || version.allows_password_without_user_name()),
            properties: carried(&properties, version),
            bridge: bridge && version.has_bridge_bit(),
        };
        check(&Packet::Connect(connect), version);
    }

    #[test]
    fn connack_survives(
        version in version(),
        session_present: bool,
        reason in reason(PacketType::ConnAck),
        properties in properties(section(PacketType::ConnAck), None),
    ) {
        let reason = if version.has_properties() {
            reason
        } else {
            ReasonCode::from_connack_v3(reason.to_connack_v3()).unwrap()
        };
        let session_present =
            session_present && !reason.is_error() && version.has_session_present();
        let properties = carried(&properties, version);
        check(&Packet::ConnAck(ConnAck { session_present, reason, properties }), version);
    }

    #[test]
    fn publish_survives(
        version in version(),
        (dup, retain, qos, packet_id) in (any::<bool>(), any::<bool>(), qos(), packet_id()),
        (topic, payload) in (text(), bytes()),
        properties in properties(section(PacketType::Publish), None),
    ) {
        let acknowledged = qos > QoS::AtMostOnce;
        let publish = Publish {
            dup: dup && acknowledged,
            qos,
            retain,
            topic: &topic,
            packet_id: acknowledged.then_some(packet_id),
            properties: carried(&properties, version),
            payload: &payload,
        };
        check(&Packet::Publish(publish), version);
    }

    #[test]
    fn acknowledgements_survive(
        version in version(),
        packet_id in packet_id(),
        reasons in (
            reason(PacketType::PubAck),
            reason(PacketType::PubRec),
            reason(PacketType::PubRel),
            reason(PacketType::PubComp),
        ),
        properties in properties(section(PacketType::PubAck), None),
    ) {
        let ack = |reason| Ack {
            packet_id,
            reason: if version.has_properties() { reason } else { ReasonCode::Success },
            properties: carried(&properties, version),
        };
        check(&Packet::PubAck(ack(reasons.0)), version);
        check(&Packet::PubRec(ack(reasons.1)), version);
        check(&Packet::PubRel(ack(reasons.2)), version);
        check(&Packet::PubComp(ack(reasons.3)), version);
    }

    #[test]
    fn subscribe_survives(
        version in version(),
        packet_id in packet_id(),
        filters in vec((text(), options()), 1..6),
        properties in properties(section(PacketType::Subscribe), None),
    ) {
        let filters: Vec<(&str, SubscriptionOptions)> = filters
            .iter()
            .map(|(filter, options)| {
                let options =
                    if version == Version::V5 {
                        *options
                    } else {
                        SubscriptionOptions::at(options.qos)
                    };
                (filter.as_str(), options)
            })
            .collect();
        let properties = carried(&properties, version);
        let filters = Subscriptions::new(&filters);
        check(&Packet::Subscribe(Subscribe { packet_id, properties, filters }), version);
    }

    #[test]
    fn suback_survives(
        version in version(),
        packet_id in packet_id(),
        reasons in vec(reason(PacketType::SubAck), 1..6),
        properties in properties(section(PacketType::SubAck), None),
    ) {
        let reasons: Vec<u8> =
            reasons.into_iter().map(|reason| version.suback_code(reason.code())).collect();
        let properties = carried(&properties, version);
        check(&Packet::SubAck(SubAck { packet_id, properties, reasons: &reasons }), version);
    }

    #[test]
    fn unsubscribe_survives(
        version in version(),
        packet_id in packet_id(),
        filters in vec(text(), 1..6),
        properties in properties(section(PacketType::Unsubscribe), None),
    ) {
        let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
        let properties = carried(&properties, version);
        let filters = TopicFilters::new(&filters);
        check(&Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters }), version);
    }

    #[test]
    fn unsuback_survives(
        version in version(),
        packet_id in packet_id(),
        reasons in vec(reason(PacketType::UnsubAck), 1..6),
        properties in properties(section(PacketType::UnsubAck), None),
    ) {
        let mut reasons: Vec<u8> = reasons.into_iter().map(ReasonCode::code).collect();
        if !version.has_unsuback_codes() {
            reasons.clear();
        }
        let properties = carried(&properties, version);
        check(&Packet::UnsubAck(UnsubAck { packet_id, properties, reasons: &reasons }), version);
    }

    #[test]
    fn disconnect_survives(
        version in version(),
        reason in reason(PacketType::Disconnect),
        properties in properties(section(PacketType::Disconnect), None),
    ) {
        let reason = if version.has_properties() { reason } else { ReasonCode::Success };
        let properties = carried(&properties, version);
        check(&Packet::Disconnect(Disconnect { reason, properties }), version);
    }

    #[test]
    fn auth_survives(
        reason in reason(PacketType::Auth),
        properties in properties(section(PacketType::Auth), Some(PropertyId::AuthenticationMethod)),
    ) {
        let properties = properties.as_properties();
        check(&Packet::Auth(Auth { reason, properties }), Version::V5);
    }

    #[test]
    fn any_bytes_are_a_packet_or_an_error_and_a_packet_can_be_sent_again(
        bytes in vec(any::<u8>(), 0..64),
        version in version(),
    ) {
        decode_and_send_again(&bytes, version);
    }

    /// With a header that fits, so that more of them reach the packet itself.
    #[test]
    fn any_body_is_a_packet_or_an_error_and_a_packet_can_be_sent_again(
        first_byte in 0x10..=0xFFu8,
        body in vec(prop_oneof![0..4u8, any::<u8>()], 0..48),
        version in version(),
    ) {
        let mut bytes = vec![first_byte, u8::try_from(body.len()).unwrap()];
        bytes.extend(body);
        decode_and_send_again(&bytes, version);
    }
}

fn decode_and_send_again(bytes: &[u8], version: Version) {
    let Ok(Some(frame)) = next_frame(bytes, 1024) else {
        return;
    };
    if let Ok(packet) = Packet::decode(frame, version) {
        check(&packet, version);
    }
}

#[test]
fn ping_survives() {
    for version in Version::ALL {
        check(&Packet::PingReq, version);
        check(&Packet::PingResp, version);
    }
}
