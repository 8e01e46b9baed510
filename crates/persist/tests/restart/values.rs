//! Restores stores with values that the test has written.

use crate::{QOS1, World};
use std::time::{Duration, UNIX_EPOCH};
use unbroken_mqtt_proto::PacketId;
use unbroken_persist::{Times, restore};
use unbroken_store::errand::Errand;
use unbroken_store::session::{Carried, Inbound, Outbound, Part, ToRetain, key};
use unbroken_store::{Batch, Fault, Faulty, Memory, MessageRecord, On, Space, Store, StoreError};

#[test]
fn a_message_that_is_in_no_log_is_reported_once() {
    let mut world = World::new(1);
    world.resident("s", &[("t", QOS1)]);
    let lost = Outbound {
        what: Carried::Log(unbroken_store::Position {
            log: unbroken_store::LogId(0),
            sequence: unbroken_store::Sequence(99),
        }),
        packet_id: None,
        qos: QOS1,
        received: false,
        retain: false,
        by_group: true,
        group: Some("$share/g/t".to_owned()),
        identifiers: Vec::new(),
    };
    let mut batch = Batch::new();
    let key = key("s", Part::Outbound(7));
    batch.put(Space::Sessions, key, lost.encode());
    assert!(world.kept.store.commit(&[batch]).unwrap()[0].is_ok());
    for times in [1, 0] {
        let restored = restore(&*world.kept.store, 1, world.broker.now, &world.kept.times).unwrap();
        assert_eq!(restored.lost.len(), times);
        assert_eq!(restored.sessions.len(), 1);
    }
}

#[test]
fn copies_that_were_not_released_are_retained_many_at_a_time() {
    const COPIES: u16 = 1_000;
    let store = Faulty::new(Memory::new());
    let mut batch = Batch::new();
    for number in 1..=COPIES {
        let topic = format!("t/{number}");
        let message = MessageRecord::plain(&topic, 1_790_000_000_000, b"x").encode();
        let errand = Errand {
            from: 0,
            to: 1,
            number: number.into(),
        };
        // The first half is done, and what became of it since is not to be undone.
        if number == COPIES / 2 {
            batch.put(Space::Control, errand.key(), errand.done());
        }
        let retained = Some(ToRetain { errand, message });
        let key = key("p", Part::Inbound(PacketId::new(number).unwrap()));
        batch.put(Space::Sessions, key, Inbound { retained }.encode());
    }
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    store.inject(Fault {
        on: On::Commit(0),
        after: 10,
        kind: std::io::ErrorKind::Other,
    });
    let now = std::time::Instant::now();
    let times = Times::new(now, UNIX_EPOCH + Duration::from_secs(1_790_000_000));
    let restored = restore(&store, 1, now, &times).unwrap();
    assert_eq!(restored.retained.len(), usize::from(COPIES / 2));
    let mut retained = restored.retained.iter();
    assert!(retained.all(|message| message.topic() != "t/500"));
}

#[test]
fn a_value_of_a_newer_version_is_no_damage() {
    let (newer, none) = (vec![200, 1, 2], vec![0, 1, 2]);
    for (value, is_newer) in [(newer, true), (none, false)] {
        let world = World::new(1);
        for space in [Space::Retained, Space::Lanes] {
            let store = Memory::new();
            let mut batch = Batch::new();
            batch.put(space, b"kitchen".to_vec(), value.clone());
            assert!(store.commit(&[batch]).unwrap()[0].is_ok());
            let error = restore(&store, 1, world.broker.now, &world.kept.times).unwrap_err();
            let expected = match &error {
                StoreError::Format { found: 200, .. } => is_newer,
                StoreError::Damaged { .. } => !is_newer,
                _ => false,
            };
            assert!(expected, "{space}: {error}");
        }
    }
}
