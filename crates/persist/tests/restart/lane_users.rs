//! Whose lanes are, after a restart.

use std::time::Duration;

use unbroken_mqtt_proto::{Connect, Packet, Property as mqtt, PropertyBuf, Version};

use crate::lanes::{Producer, send_at, stop};
use crate::shard_bus::connect;
use crate::{QOS1, World};

#[test]
fn a_lane_is_its_users_after_a_crash_and_after_a_clean_stop() {
    let come = |world: &mut World, user: &str, client_id: &str| {
        let client = world.broker.open(Version::V5);
        let mut properties = PropertyBuf::new();
        properties.push(mqtt::SessionExpiryInterval(100)).unwrap();
        let packet = Connect {
            user_name: Some(user),
            clean_start: false,
            properties: properties.as_properties(),
            ..connect(client_id)
        };
        world.broker.send(client, Packet::Connect(packet));
        world.broker.stored();
        world.broker.take(client);
        client
    };
    for is_clean in [false, true] {
        let mut world = World::new(1);
        let client = come(&mut world, "ann", "p");
        let mut producer = Producer::new();
        let first = producer.issue("x");
        send_at(&mut world, client, (QOS1, 1), ("t", b"x"), Some(&first));
        world.broker.advance(Duration::from_secs(1));
        world.broker.stored();
        if is_clean {
            stop(&mut world);
        }
        world.restart();
        let second = producer.issue("x");
        let mallory = come(&mut world, "mallory", "m");
        send_at(&mut world, mallory, (QOS1, 2), ("t", b"x"), Some(&second));
        assert_eq!(world.broker.take(mallory), ["PUBACK #2 87"], "{is_clean}");
        let client = come(&mut world, "ann", "p");
        send_at(&mut world, client, (QOS1, 3), ("t", b"x"), Some(&second));
        world.broker.stored();
        let answers = world.broker.take(client);
        assert!(answers.contains(&"PUBACK #3 10".to_owned()), "{answers:?}");
        let found = world.broker.shards[0].stats().audit.publishers;
        assert_eq!((found.intruded, found.duplicated), (1, 0));
    }
}
