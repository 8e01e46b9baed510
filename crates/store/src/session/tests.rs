use super::*;
use crate::record::MessageRecord;

fn id(id: u16) -> PacketId {
    PacketId::new(id).unwrap()
}

#[test]
fn keys_of_a_client_begin_with_its_prefix_and_those_of_others_do_not() {
    let long = "x".repeat(65_535);
    for client in ["a", "ab", long.as_str()] {
        let prefix = prefix(client);
        for (part, view) in [
            (Part::Head, PartView::Head),
            (
                Part::Subscription {
                    filter: &long,
                    era: 3,
                },
                PartView::Subscription { era: 3 },
            ),
            (Part::Cursor(LogId(9)), PartView::Cursor(LogId(9))),
            (Part::Outbound(1), PartView::Outbound(1)),
            (Part::Inbound(id(2)), PartView::Inbound(id(2))),
            (Part::Will, PartView::Will),
            (Part::MaybeSent, PartView::MaybeSent),
        ] {
            let key = key(client, part);
            assert!(key.len() < 600);
            let client = &prefix[..];
            assert_eq!(parse_key(&key), Ok(KeyView { client, part: view }));
        }
    }
    assert!(!key("ab", Part::Head).starts_with(&prefix("a")));
    assert!(!key(&long, Part::Head).starts_with(&prefix(&long[1..])));
}

#[test]
fn what_is_no_key_is_refused() {
    for bytes in [
        &b""[..],
        b"\x02a",
        b"\x01a",
        b"\x01a\x07",
        b"\x01a\x00\x00",
        b"\x01a\x03\x00\x00",
        b"\x00short\x00",
    ] {
        assert!(parse_key(bytes).is_err(), "{bytes:?}");
    }
}

/// Each value reads as it was written, and no byte can be cut or added.
fn check<V: PartialEq + std::fmt::Debug>(
    value: V,
    encode: impl Fn(&V) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<V, RecordError>,
) {
    let bytes = encode(&value);
    assert_eq!(decode(&bytes), Ok(value));
    for length in 0..bytes.len() {
        if let Ok(shorter) = decode(&bytes[..length]) {
            assert_eq!(encode(&shorter), bytes[..length], "cut at {length}");
        }
    }
    for flip in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[flip / 8] ^= 1 << (flip % 8);
        if let Ok(other) = decode(&flipped) {
            assert_eq!(encode(&other), flipped, "bit {flip}");
        }
    }
    assert!(matches!(decode(&[9]), Err(RecordError::Version(9))));
}

#[test]
fn values_read_as_they_were_written() {
    let expiry_s = NonZeroU32::new(u32::MAX).unwrap();
    for offline_since_ms in [None, Some(1_790_000_000_000)] {
        for user in [None, Some("ann".to_owned())] {
            for mount in [None, Some("plant-a/".to_owned())] {
                let head = Head {
                    client_id: "sensor".into(),
                    expiry_s,
                    offline_since_ms,
                    user: user.clone(),
                    mount,
                };
                check(head, Head::encode, Head::decode);
            }
        }
    }
    let subscription = Subscription {
        filter: "$share/g/a/+".into(),
        options: SubscriptionOptions {
            qos: QoS::ExactlyOnce,
            no_local: true,
            retain_as_published: true,
            retain_handling: RetainHandling::DoNotSend,
        },
        identifier: NonZeroU32::new(7),
        ended: true,
        retained_due: true,
        ranges: vec![
            LogRange {
                log: LogId(0),
                from: Sequence(5),
                until: Some(Sequence(900)),
            },
            LogRange {
                log: LogId(3),
                from: Sequence(1),
                until: None,
            },
        ],
    };
    check(subscription, Subscription::encode, Subscription::decode);
    let cursor = Cursor {
        through: Sequence(10),
    };
    check(cursor, Cursor::encode, Cursor::decode);
    let message = MessageRecord {
        topic: "last",
        qos: QoS::AtLeastOnce,
        retain: false,
        stamp_ms: 5,
        expires_ms: None,
        publisher: Some("sensor"),
        mark: None,
        properties: unbroken_mqtt_proto::Properties::EMPTY,
        payload: b"words",
    };
    let position = Position {
        log: LogId(2),
        sequence: Sequence(1 << 40),
    };
    for what in [Carried::Log(position), Carried::Own(message.encode())] {
        let outbound = Outbound {
            what,
            packet_id: PacketId::new(300),
            qos: QoS::ExactlyOnce,
            received: true,
            retain: true,
            by_group: true,
            group: Some("$share/g/last".into()),
            identifiers: vec![NonZeroU32::MIN, NonZeroU32::MAX],
        };
        check(outbound, Outbound::encode, Outbound::decode);
    }
    check(Inbound::default(), Inbound::encode, Inbound::decode);
    let inbound = Inbound {
        retained: Some(ToRetain {
            errand: Errand {
                from: 0,
                to: 2,
                number: 300,
            },
            message: message.encode(),
        }),
    };
    check(inbound, Inbound::encode, Inbound::decode);
    let authors = [
        None,
        Some(WillAuthor::default()),
        Some(WillAuthor {
            user: Some("ann".to_owned()),
            certificate: Some("pump-7".to_owned()),
            address: Some(([10, 0, 0, 7], 40_000).into()),
            listener: 300,
            roles: vec!["operator".to_owned()],
            claims: vec![("plant".to_owned(), "7".to_owned())],
        }),
    ];
    for author in authors {
        let will = Will {
            delay_s: 30,
            author,
            message: message.encode(),
        };
        check(will, Will::encode, Will::decode);
    }
    for logs in [&[][..], &[2], &[0, 3]] {
        let through = logs.iter().map(|log| Position {
            log: LogId(*log),
            sequence: Sequence(300),
        });
        let maybe_sent = MaybeSent {
            entries: 7,
            through: through.collect(),
        };
        check(maybe_sent, MaybeSent::encode, MaybeSent::decode);
    }
}
