//! What a sender relies on beyond whole packets: headers apart from their payload, ids to patch,
//! refusals that write nothing.

#![allow(clippy::unwrap_used, reason = "a failed test is the point")]

use unbroken_mqtt_proto::{
    Ack, Auth, ConnAck, Connect, DecodeError, EncodeError, MAX_VARINT, Packet, PacketId,
    PacketType, Properties, Property, PropertyBuf, Publish, QoS, ReasonCode, SubAck, Subscribe,
    Subscriptions, TopicFilters, Unsubscribe, Version, frame_length, next_frame,
    publish::{PublishHeader, encode_header, packet_id_offset, patch_packet_id},
};

const ID: PacketId = PacketId::FIRST;

fn header(topic: &str, qos: QoS, payload_len: usize) -> PublishHeader<'_> {
    PublishHeader {
        dup: false,
        qos,
        retain: false,
        topic,
        packet_id: (qos > QoS::AtMostOnce).then_some(ID),
        property_len: 0,
        payload_len,
    }
}

fn publish(qos: QoS) -> Publish<'static> {
    Publish {
        dup: false,
        qos,
        retain: false,
        topic: "a/b",
        packet_id: (qos > QoS::AtMostOnce).then_some(ID),
        properties: Properties::EMPTY,
        payload: b"payload",
    }
}

fn encode(packet: &Packet<'_>, version: Version) -> Result<Vec<u8>, EncodeError> {
    let mut out = b"kept".to_vec();
    let result = packet.encode(version, &mut out);
    assert!(out.starts_with(b"kept"));
    if result.is_err() {
        assert_eq!(out, b"kept", "a refused packet leaves nothing behind");
    }
    result.map(|()| out.split_off(4))
}

#[test]
fn header_properties_and_payload_apart_are_the_same_packet() {
    let mut properties = PropertyBuf::new();
    properties
        .push(Property::ContentType("text/plain"))
        .unwrap();
    for version in Version::ALL {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let mut whole = publish(qos);
            if version.has_properties() {
                whole.properties = properties.as_properties();
            }
            let header = PublishHeader {
                property_len: whole.properties.len(),
                ..header(whole.topic, qos, whole.payload.len())
            };
            let mut apart = Vec::new();
            encode_header(&mut apart, version, &header).unwrap();
            apart.extend_from_slice(whole.properties.as_bytes());
            apart.extend_from_slice(whole.payload);
            assert_eq!(apart.len(), header.packet_len(version));
            assert_eq!(apart, encode(&Packet::Publish(whole), version).unwrap());
        }
    }
}

#[test]
fn remaining_length_takes_the_fewest_bytes_at_every_boundary() {
    for (remaining, header_len) in [
        (127, 2),
        (128, 3),
        (16_383, 3),
        (16_384, 4),
        (2_097_151, 4),
        (2_097_152, 5),
        (MAX_VARINT as usize, 5),
    ] {
        let header = header("a", QoS::AtMostOnce, remaining - 3);
        let mut out = Vec::new();
        encode_header(&mut out, Version::V3_1_1, &header).unwrap();
        assert_eq!(out.len(), header_len + 3);
        assert_eq!(
            frame_length(&out, u32::MAX),
            Ok(Some(header_len + remaining))
        );
        assert_eq!(header.packet_len(Version::V3_1_1), header_len + remaining);
    }
}

#[test]
fn a_packet_id_is_found_and_patched_in_place() {
    let next = ID.next();
    for version in Version::ALL {
        for topic in ["a".to_owned(), "x".repeat(200)] {
            let mut out = b"other packets".to_vec();
            let start = out.len();
            let header = header(&topic, QoS::AtLeastOnce, 0);
            let at = encode_header(&mut out, version, &header).unwrap().unwrap();
            let mut frame = out.split_off(start);
            assert_eq!(packet_id_offset(&frame), Some(at - start));
            assert!(patch_packet_id(&mut frame, at - start, next));
            let decoded = Publish::decode(next_frame(&frame, u32::MAX).unwrap().unwrap(), version);
            assert_eq!(decoded.unwrap().packet_id, Some(next));
        }
    }
}

#[test]
fn a_packet_id_is_not_found_where_there_is_none() {
    let qos_0 = encode(&Packet::Publish(publish(QoS::AtMostOnce)), Version::V5).unwrap();
    assert_eq!(packet_id_offset(&qos_0), None);
    let puback = encode(&Packet::PubAck(Ack::success(ID)), Version::V5).unwrap();
    assert_eq!(packet_id_offset(&puback), None);
    assert_eq!(packet_id_offset(&[]), None);
    assert_eq!(packet_id_offset(&[0x32, 0x03, 0x00, 0x01, 0x61]), None);
    assert_eq!(packet_id_offset(&[0x32, 0x02, 0xFF, 0xFF]), None);
    assert!(!patch_packet_id(&mut [0; 4], 3, ID));
    assert!(!patch_packet_id(&mut [0; 4], usize::MAX, ID));
}

#[test]
fn frames_tell_what_they_are_by_their_first_byte() {
    let plain = [0x30, 3, 0, 1, b'a'];
    let retained = [0x31, 3, 0, 1, b'a'];
    let frame = |bytes| next_frame(bytes, u32::MAX).unwrap().unwrap();
    assert!(frame(&plain).is_plain_publish());
    assert!(frame(&plain).is_publish());
    assert!(!frame(&retained).is_plain_publish());
    assert!(frame(&retained).is_publish());
    assert!(!frame(&[0xC0, 0]).is_publish());
    assert_eq!(frame(&[0xC0, 0]).packet_type(), Some(PacketType::PingReq));
}

/// [MQTT-3.1.0-1, MQTT311-3.1.0-1]
#[test]
fn the_first_packet_is_connect_or_refused() {
    for packet in PacketType::ALL {
        let bytes = [packet.first_byte(), 0];
        let frame = next_frame(&bytes, u32::MAX).unwrap().unwrap();
        let expected = PacketType::Connect;
        let error = Connect::decode_first(frame).unwrap_err();
        assert_eq!(
            error == DecodeError::UnexpectedPacket { packet, expected },
            packet != PacketType::Connect
        );
    }
}

#[test]
fn what_a_version_cannot_carry_is_left_out() {
    let mut properties = PropertyBuf::new();
    properties.push(Property::ReasonString("because")).unwrap();
    let properties = properties.as_properties();
    let ack = Ack {
        packet_id: ID,
        reason: ReasonCode::QuotaExceeded,
        properties,
    };
    let connack = ConnAck {
        session_present: true,
        reason: ReasonCode::Success,
        properties,
    };
    let suback = SubAck {
        packet_id: ID,
        properties,
        reasons: &[0x01, 0x87],
    };
    let v3 = Version::V3_1_1;
    assert_eq!(encode(&Packet::PubAck(ack), v3).unwrap(), [0x40, 2, 0, 1]);
    assert_eq!(
        encode(&Packet::ConnAck(connack), v3).unwrap(),
        [0x20, 2, 1, 0]
    );
    assert_eq!(
        encode(&Packet::ConnAck(connack), Version::V3_1).unwrap(),
        [0x20, 2, 0, 0]
    );
    assert_eq!(
        encode(&Packet::SubAck(suback), v3).unwrap(),
        [0x90, 4, 0, 1, 0x01, 0x80]
    );
}

#[test]
fn every_error_has_a_connack_code_of_3_x() {
    for &reason in ReasonCode::ALL {
        let code = reason.to_connack_v3();
        assert_eq!(code == 0, !reason.is_error(), "{reason}");
        assert!(code <= 5);
    }
}

#[test]
fn what_the_peer_would_refuse_is_not_sent() {
    let v5 = Version::V5;
    let check = |packet: Packet<'_>, version, expect: EncodeError| {
        assert_eq!(encode(&packet, version), Err(expect));
    };
    let long = "x".repeat(65_536);
    let topic_too_long = Publish {
        topic: &long,
        ..publish(QoS::AtMostOnce)
    };
    check(
        Packet::Publish(topic_too_long),
        v5,
        EncodeError::ValueTooLong { length: 65_536 },
    );
    let null = Publish {
        topic: "a\0",
        ..publish(QoS::AtMostOnce)
    };
    check(Packet::Publish(null), v5, EncodeError::NullCharacter);
    let without_id = Publish {
        packet_id: None,
        ..publish(QoS::AtLeastOnce)
    };
    check(
        Packet::Publish(without_id),
        v5,
        EncodeError::PacketIdMismatch,
    );
    let with_id = Publish {
        packet_id: Some(ID),
        ..publish(QoS::AtMostOnce)
    };
    check(Packet::Publish(with_id), v5, EncodeError::PacketIdMismatch);
    let dup = Publish {
        dup: true,
        ..publish(QoS::AtMostOnce)
    };
    let packet = PacketType::Publish;
    check(
        Packet::Publish(dup),
        v5,
        EncodeError::Invalid(DecodeError::DupAtQoS0 { packet }),
    );

    let code = ReasonCode::PacketTooLarge.code();
    let packet = PacketType::PubAck;
    let invalid = EncodeError::Invalid(DecodeError::InvalidReasonCode { packet, code });
    check(
        Packet::PubAck(Ack::new(ID, ReasonCode::PacketTooLarge)),
        v5,
        invalid,
    );

    let connack = ConnAck {
        session_present: true,
        reason: ReasonCode::Banned,
        properties: Properties::EMPTY,
    };
    let invalid = EncodeError::Invalid(DecodeError::SessionPresentOnRefusal);
    check(Packet::ConnAck(connack), v5, invalid);
    check(Packet::ConnAck(connack), Version::V3_1_1, invalid);

    let auth = Auth {
        reason: ReasonCode::Success,
        properties: Properties::EMPTY,
    };
    let (packet, version) = (PacketType::Auth, Version::V3_1);
    check(
        Packet::Auth(auth),
        version,
        EncodeError::PacketNotInVersion { packet, version },
    );

    let empty = |packet| EncodeError::Invalid(DecodeError::EmptyList { packet });
    let (packet_id, properties) = (ID, Properties::EMPTY);
    let subscribe = Subscribe {
        packet_id,
        properties,
        filters: Subscriptions::new(&[]),
    };
    check(
        Packet::Subscribe(subscribe),
        v5,
        empty(PacketType::Subscribe),
    );
    let unsubscribe = Unsubscribe {
        packet_id,
        properties,
        filters: TopicFilters::new(&[]),
    };
    check(
        Packet::Unsubscribe(unsubscribe),
        v5,
        empty(PacketType::Unsubscribe),
    );
    let suback = SubAck {
        packet_id,
        properties,
        reasons: &[],
    };
    check(Packet::SubAck(suback), v5, empty(PacketType::SubAck));
}

#[test]
fn misplaced_properties_are_not_sent() {
    let mut properties = PropertyBuf::new();
    properties.push(Property::ReceiveMaximum(1)).unwrap();
    let with = Publish {
        properties: properties.as_properties(),
        ..publish(QoS::AtMostOnce)
    };
    assert!(matches!(
        encode(&Packet::Publish(with), Version::V5),
        Err(EncodeError::Invalid(DecodeError::MisplacedProperty { .. }))
    ));
}

#[test]
fn a_packet_longer_than_a_packet_can_be_is_not_sent() {
    let packet = PacketType::Publish;
    for payload_len in [MAX_VARINT as usize - 2, usize::MAX] {
        let mut out = Vec::new();
        let header = header("a", QoS::AtMostOnce, payload_len);
        let result = encode_header(&mut out, Version::V3_1_1, &header);
        assert_eq!(result, Err(EncodeError::PacketTooLong { packet }));
        assert!(out.is_empty());
    }
}

#[test]
fn a_password_stays_out_of_debug_output() {
    let bytes = b"\x10\x13\0\x04MQTT\x04\xC2\0\x3C\0\x01c\0\x01u\0\x01\xAA";
    let frame = next_frame(bytes, u32::MAX).unwrap().unwrap();
    let shown = format!("{:?}", Connect::decode_first(frame).unwrap());
    assert!(shown.contains("password_len: Some(1)"), "{shown}");
    assert!(!shown.contains("170"), "{shown}");
}

#[test]
fn errors_say_what_and_where() {
    let error = DecodeError::PacketTooLarge {
        packet: PacketType::Publish,
        length: 9,
        limit: 7,
    };
    assert_eq!(
        error.to_string(),
        "PUBLISH of 9 bytes is over the limit of 7"
    );
    let frame = next_frame(&[0x82, 5, 0, 1, 0, 0, 1], u32::MAX)
        .unwrap()
        .unwrap();
    let error = Packet::decode(frame, Version::V5).unwrap_err();
    assert_eq!(error.to_string(), "SUBSCRIBE ends within topic filter");
}

/// [MQTT-3.1.2-2, MQTT311-3.1.2-2]
#[test]
fn an_unknown_version_is_answered_in_the_style_of_its_sender() {
    let connect = |name: &[u8], level| {
        let mut bytes = vec![0x10, u8::try_from(name.len()).unwrap() + 8, 0];
        bytes.push(u8::try_from(name.len()).unwrap());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&[level, 2, 0, 60, 0, 0]);
        bytes
    };
    for (name, level, v5_style) in [
        (&b"MQTT"[..], 6, true),
        (b"MQTT", 127, true),
        (b"MQTT", 0x85, true),
        (b"MQTT", 3, false),
        (b"MQTT", 0, false),
        (b"MQIsdp", 5, false),
        (b"MQIsdp", 6, false),
    ] {
        let bytes = connect(name, level);
        let frame = next_frame(&bytes, u32::MAX).unwrap().unwrap();
        let expect = DecodeError::UnsupportedVersion { level, v5_style };
        assert_eq!(Connect::decode_first(frame), Err(expect));
        let answer = if v5_style {
            Version::V5
        } else {
            Version::V3_1_1
        };
        assert_eq!(Connect::claimed_version(frame), Some(answer));
    }
    let bytes = connect(b"HTTP", 4);
    let frame = next_frame(&bytes, u32::MAX).unwrap().unwrap();
    assert_eq!(Connect::claimed_version(frame), None);
}

#[test]
fn packet_ids_follow_each_other_and_leave_out_0() {
    let last = PacketId::new(u16::MAX).unwrap();
    assert_eq!(PacketId::FIRST.next().get(), 2);
    assert_eq!(last.next(), PacketId::FIRST);
    assert_eq!(PacketId::new(0), None);
}

#[test]
fn a_puback_alone_is_what_it_is_among_all_packets() {
    for version in Version::ALL {
        for bytes in [
            &b"\x40\x02\0\x07"[..],
            b"\x40\x03\0\x07\x10",
            b"\x40\x03\0\x07\x01",
            b"\x40\x04\0\x07\0\0",
            b"\x40\x05\0\x07\0\0\0",
            b"\x40\x02\0\0",
            b"\x40\x01\0",
            b"\x42\x02\0\x07",
        ] {
            let frame = next_frame(bytes, u32::MAX).unwrap().unwrap();
            let alone = Ack::decode_puback(frame, version).map(Packet::PubAck);
            assert_eq!(alone, Packet::decode(frame, version), "{bytes:x?}");
        }
        let pubrec = next_frame(b"\x50\x02\0\x07", u32::MAX).unwrap().unwrap();
        let (packet, expected) = (PacketType::PubRec, PacketType::PubAck);
        assert_eq!(
            Ack::decode_puback(pubrec, version),
            Err(DecodeError::UnexpectedPacket { packet, expected })
        );
    }
}
