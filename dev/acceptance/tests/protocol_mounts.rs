//! Mount points on the wire: what a client with one sends and gets are the bytes of a client that
//! has the tree to itself.

use unbroken_acceptance::raw::{AckKind, Connect, Publish, Subscribe, Version, Will, id, reason};
use unbroken_acceptance::{Broker, Launch};

const GRANTED: u8 = 0;

/// Clients `a`, `a2` and `b` live in the parts of these names; `service` has the whole tree.
fn broker(shards: u32) -> Broker {
    let config = "[limits]\ntopic_bytes_max = 12\ntopic_levels_max = 4\n\n\
                  [[roles]]\nallow = [\"all #\"]\n\n\
                  [[roles]]\nname = \"a\"\nclients = [\"a*\"]\nmount_point = \"a/\"\n\n\
                  [[roles]]\nname = \"b\"\nclients = [\"b\"]\nmount_point = \"b/{client}/\"\n";
    Launch::config(config).shards(shards).durable().start()
}

/// [MQTT-3.3.2-12]
#[test]
fn aliases_stand_for_own_topics_and_the_bytes_have_no_mount() {
    for shards in [1, 3] {
        let broker = broker(shards);
        let mut service = broker.connect("service");
        assert_eq!(service.subscribe(&Subscribe::to("#", 0)), [GRANTED]);
        let mut a = broker.accept(&Connect::v5("a").property(id::TOPIC_ALIAS_MAXIMUM, 5));
        assert_eq!(a.subscribe(&Subscribe::to("t", 0)), [GRANTED]);
        a.publish(Publish::new("t", "x").property(id::TOPIC_ALIAS, 2));
        a.publish(Publish::new("", "y").property(id::TOPIC_ALIAS, 2));
        service.expect_message("a/t", "x");
        service.expect_message("a/t", "y");
        let first = a.expect_message("t", "x");
        assert_eq!(first.properties.number(id::TOPIC_ALIAS), Some(1));
        // Fixed header, empty topic, three bytes of properties behind their length, one of payload.
        assert_eq!(a.expect_frame_length(), 2 + 2 + 1 + 3 + 1);
        // Before 5.0: fixed header, topic, payload.
        let mut old = broker.connect_as(Version::V3_1_1, "a2");
        assert_eq!(old.subscribe(&Subscribe::to("t", 0)), [GRANTED]);
        service.publish(Publish::new("a/t", "z"));
        assert_eq!(old.expect_frame_length(), 2 + 2 + 1 + 1);
    }
}

/// [MQTT-3.1.2-24]: a packet is as long as the client gets it.
#[test]
fn a_packet_is_too_large_without_its_mount_or_not_at_all() {
    let broker = broker(1);
    let mut service = broker.connect("service");
    // A PUBLISH on `t` with ten bytes, at QoS 0.
    let most = 2 + 2 + 1 + 1 + 10;
    let mut b = broker.accept(&Connect::v5("b").property(id::MAXIMUM_PACKET_SIZE, most));
    assert_eq!(b.subscribe(&Subscribe::to("t", 0)), [GRANTED]);
    service.publish(Publish::new("b/b/t", "0123456789"));
    service.publish(Publish::new("b/b/t", "0123456789a"));
    service.publish(Publish::new("b/b/t", "end"));
    b.expect_message("t", "0123456789");
    b.expect_message("t", "end");
}

#[test]
fn limits_of_topics_count_the_mount() {
    let broker = broker(1);
    let check = |topic: &str, is_within: bool| {
        let mut b = broker.connect("b");
        let filter = if is_within {
            GRANTED
        } else {
            reason::TOPIC_FILTER_INVALID
        };
        assert_eq!(b.subscribe(&Subscribe::to(topic, 0)), [filter], "{topic}");
        b.send_publish(&Publish::new(topic, "x"));
        if is_within {
            b.expect_message(topic, "x");
        } else {
            b.expect_disconnect(reason::TOPIC_NAME_INVALID);
        }
        let will = Connect::v5("b").will(Will::new(topic, "x"));
        let connack = broker.attempt(&will).expect_connack();
        let expected = if is_within {
            0
        } else {
            reason::TOPIC_NAME_INVALID
        };
        assert_eq!(connack.reason, expected, "{topic}");
    };
    check("12345678", true);
    check("123456789", false);
    check("1/2", true);
    check("1/2/3", false);
}

#[test]
fn a_name_that_means_more_than_itself_is_refused_with_the_reason() {
    let config = "[[roles]]\nallow = [\"all #\"]\nmount_point = \"x/{client}/\"\n";
    let broker = Launch::config(config).start();
    for client_id in ["a/b", "+", "#", "$SYS"] {
        let mut client = broker.attempt(&Connect::v5(client_id));
        let connack = client.expect_connack_refusal(reason::NOT_AUTHORIZED);
        let text = connack.properties.text(id::REASON_STRING);
        let expected = "its mount point `x/{client}/` names it, and its name contains";
        assert!(
            text.is_some_and(|text| text.starts_with(expected)),
            "{text:?}"
        );
    }
    broker.wait_for_log("names it, and its name contains");
}

#[test]
fn the_brokers_topics_are_the_same_for_all_and_no_client_poses_as_the_broker() {
    let broker = broker(1);
    let mut a = broker.connect("a");
    // The role allows `#`, which does not reach them.
    let refused = [reason::NOT_AUTHORIZED];
    assert_eq!(a.subscribe(&Subscribe::to("$SYS/#", 0)), refused);
    assert_eq!(a.subscribe(&Subscribe::to("#", 0)), [GRANTED]);
    let packet_id = a.next_id();
    a.send_publish(&Publish::new("$x", "no").qos(1).packet_id(packet_id));
    let answer = a.await_ack(AckKind::PubAck, packet_id);
    assert_eq!(answer.reason, reason::NOT_AUTHORIZED);
    let mut service = broker.connect("service");
    service.publish(Publish::new("a/$SYS/x", "no"));
    service.publish(Publish::new("a/end", "x"));
    a.expect_message("end", "x");
}

/// The mount is stored with the session: after a restart it is known that it was another one, also
/// where no mount point is left.
#[test]
fn a_session_whose_mount_point_changed_while_the_broker_was_down_is_not_gone_on_with() {
    for after in ["mount_point = \"y/\"\n", ""] {
        let config = |mount: &str| format!("[[roles]]\nallow = [\"all #\"]\n{mount}");
        let launch = Launch::config(&config("mount_point = \"x/\"\n"));
        let mut broker = launch.durable().start();
        let connect = Connect::v5("c").persistent();
        let mut client = broker.accept(&connect);
        assert_eq!(client.subscribe(&Subscribe::to("t", 1)), [1]);
        client.publish(Publish::new("t", "before").qos(1));
        client.vanish();
        broker.kill();
        broker.rewrite_config(&config(after));
        broker.start_again();
        let mut client = broker.accept(&connect);
        assert!(!client.session_present());
        let log = broker.wait_for_log("mount-point-changed");
        assert!(log.contains("filter=x/t"), "{log}");
        client.publish(Publish::new("t", "after").qos(1));
        client.ping();
    }
}
