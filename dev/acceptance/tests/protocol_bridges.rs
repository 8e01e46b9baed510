//! Bridges before 5.0: the top bit of the protocol level, by which Mosquitto's make themselves
//! known, means No Local and Retain As Published for all that they subscribe to.

use std::time::{Duration, Instant};

use unbroken_acceptance::raw::{Connect, Publish, Subscribe, Version, field, frame};
use unbroken_acceptance::{Broker, Client, DEADLINE, Mosquitto, case};

const BRIDGES: [Version; 2] = [Version::V3_1, Version::V3_1_1];

/// A client that says it is a bridge.
#[track_caller]
fn bridge(broker: &Broker, version: Version, clean: bool) -> Client {
    let head = [0x80 | version.level(), u8::from(clean) << 1, 0, 0];
    let name = field(version.protocol_name());
    let mut client = broker.open_as(version);
    client.send(frame(0x10, &[&name, &head, &field("bridge")]));
    assert_eq!(client.expect_connack().reason, 0);
    client
}

#[test]
fn a_bridge_does_not_hear_what_it_published() {
    let broker = Broker::start();
    for version in BRIDGES {
        case(&format!("{version:?}"));
        let mut bridge = bridge(&broker, version, true);
        bridge.subscribe_to("#", 1);
        let mut other = broker.connect("other");
        other.subscribe_to("#", 1);
        for qos in 0..=2 {
            bridge.publish(Publish::new("a", "from the bridge").qos(qos));
            other.take_message("a", "from the bridge");
        }
        other.publish(Publish::new("a", "to the bridge").qos(1));
        bridge.take_message("a", "to the bridge");
        bridge.disconnect();
    }
}

#[test]
fn a_bridge_hears_no_echo_after_a_reconnect_either() {
    let broker = Broker::start();
    for version in BRIDGES {
        case(&format!("{version:?}"));
        let mut first = bridge(&broker, version, false);
        first.subscribe_to("#", 1);
        first.vanish();
        let mut again = bridge(&broker, version, false);
        again.publish(Publish::new("a", "from the bridge").qos(1));
        again.expect_pong();
        again.disconnect();
        bridge(&broker, version, true).disconnect();
    }
}

#[test]
fn a_bridge_sees_which_messages_are_retained() {
    let broker = Broker::start();
    for version in BRIDGES {
        let mut bridge = bridge(&broker, version, true);
        bridge.subscribe_to("a", 0);
        let mut plain = broker.connect_as(version, "plain");
        plain.subscribe_to("a", 0);
        let mut publisher = broker.connect("publisher");
        publisher.publish(Publish::new("a", "x").retained());
        assert!(bridge.expect_message("a", "x").retain);
        assert!(!plain.expect_message("a", "x").retain);
        publisher.publish(Publish::new("a", "").retained());
        publisher.expect_pong();
        bridge.disconnect();
    }
}

#[test]
fn a_bridge_may_be_a_member_of_a_group() {
    let broker = Broker::start();
    for version in BRIDGES {
        let mut bridge = bridge(&broker, version, true);
        assert_eq!(bridge.subscribe(&Subscribe::to("$share/g/a", 1)), [1]);
        bridge.publish(Publish::new("a", "x").qos(1));
        bridge.take_message("a", "x");
        bridge.disconnect();
    }
}

/// With `topic # both` each side sends the other all that it hears.
#[test]
fn a_bridge_of_mosquitto_in_both_directions_does_not_loop() {
    let Some(installed) = Mosquitto::installed() else {
        return;
    };
    for protocol in ["mqttv31", "mqttv311"] {
        case(protocol);
        let broker = Broker::start();
        let mut here = broker.connect("here");
        here.subscribe_to("#", 1);
        let peer = installed.start(&bridged_to(&broker, protocol), &[]);
        let mut there = Client::connect(peer.address(), &Connect::v5("there"));
        there.subscribe_to("#", 1);
        let since = Instant::now();
        let mut tries = 0;
        loop {
            assert!(since.elapsed() < DEADLINE, "the bridge never came");
            here.publish(Publish::new("hello", "").qos(1));
            here.take_message("hello", "");
            tries += 1;
            if there.poll_message(POLL).is_some() {
                break;
            }
        }
        here.publish(Publish::new("a", "from here").qos(1));
        here.take_message("a", "from here");
        for _ in 0..tries {
            if take(&mut there).topic == "a" {
                break;
            }
        }
        there.publish(Publish::new("b", "from there").qos(1));
        assert_eq!(take(&mut there).topic, "b");
        here.take_message("b", "from there");
        // An echo of these would have come before what follows.
        for text in ["once more", "and again"] {
            there.publish(Publish::new("b", text).qos(1));
            there.take_message("b", text);
            here.take_message("b", text);
            here.publish(Publish::new("a", text).qos(1));
            here.take_message("a", text);
            there.take_message("a", text);
        }
    }
}

#[track_caller]
fn take(client: &mut Client) -> Publish {
    let message = client.expect_publish();
    client.complete(&message);
    message
}

/// The lines that make a Mosquitto a bridge to the broker.
fn bridged_to(broker: &Broker, protocol: &str) -> String {
    format!(
        "connection there\naddress {}\nbridge_protocol_version {protocol}\nnotifications false\n\
         remote_clientid bridge\nrestart_timeout 1\ntopic # both 1\n",
        broker.address(),
    )
}

/// Time between two looks for the bridge.
const POLL: Duration = Duration::from_millis(50);
