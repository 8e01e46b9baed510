//! What was acknowledged is there after a power cut that takes back every name that no sync of its
//! directory has made safe, and all that a sync has failed to make safe. And what lies beside a
//! sector that the disk does not give back is there.

use std::path::PathBuf;

use unbroken_acceptance::disk::Fault;
use unbroken_acceptance::raw::{Connect, Publish};
use unbroken_acceptance::{Broker, Client, Launch};

/// A session that waits for what is on a topic of its own name.
fn session(name: &str) -> Connect {
    Connect::v5(name).persistent()
}

fn durable() -> (Broker, Client) {
    let broker = Launch::config("[storage]\non_corruption = \"refuse\"\n")
        .shards(1)
        .on_a_disk_that_may_fail()
        .start();
    for name in ["reader", "sleeper"] {
        let mut client = broker.accept(&session(name));
        client.subscribe_to(name, 1);
        client.disconnect();
    }
    let publisher = broker.connect("publisher");
    (broker, publisher)
}

fn cut_power(broker: &mut Broker) {
    broker.kill();
    broker.disk().lose_all().expect("its files can be written");
    broker.start_again();
}

#[test]
fn the_first_acknowledged_message_outlives_a_power_cut() {
    let (mut broker, mut publisher) = durable();
    publisher.publish(Publish::new("reader", "first").qos(1));
    cut_power(&mut broker);
    broker
        .accept(&session("reader"))
        .take_message("reader", "first");
}

#[test]
fn a_log_that_goes_on_in_another_generation_outlives_a_power_cut() {
    let (mut broker, mut publisher) = durable();
    // A generation has 64 MiB.
    let chunk = "x".repeat(1_000_000);
    for _ in 0..70 {
        publisher.publish(Publish::new("sleeper", &chunk).qos(1));
    }
    for number in 0..3 {
        publisher.publish(Publish::new("reader", number.to_string()).qos(1));
    }
    // What the engine's trees consist of is in a file that is replaced: without it, this shows
    // nothing of the engine.
    assert!(broker.disk().has_renamed("current").unwrap());
    cut_power(&mut broker);
    let mut reader = broker.accept(&session("reader"));
    for number in 0..3 {
        reader.take_message("reader", &number.to_string());
    }
}

/// The system shows what it could not write to whoever reads, as long as the machine runs.
#[test]
fn a_message_behind_one_that_the_disk_refused_outlives_a_power_cut() {
    let (mut broker, mut publisher) = durable();
    publisher.publish(Publish::new("reader", "first").qos(1));
    broker.disk().fail(Fault::Sync, 0).unwrap();
    publisher.send_publish(&Publish::new("reader", "refused").qos(1).packet_id(2));
    assert_eq!(broker.wait().code(), Some(74));
    broker.disk().repair().unwrap();
    broker.start_again();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("reader", "second").qos(1));
    cut_power(&mut broker);
    let mut reader = broker.accept(&session("reader"));
    for payload in ["first", "refused", "second"] {
        reader.take_message("reader", payload);
    }
}

#[test]
fn a_journal_with_a_sector_that_cannot_be_read_is_set_aside_and_read_around_it() {
    let mut broker = Launch::config("")
        .shards(1)
        .on_a_disk_that_may_fail()
        .start();
    broker.accept(&session("reader")).subscribe_to("reader", 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("reader", "first").qos(1));
    // Longer than the sector, so that nothing of the first is in it.
    publisher.publish(Publish::new("reader", "second".repeat(200)).qos(1));
    broker.kill();
    let journal = broker.data().join("store/engine/0.jnl");
    let bytes = std::fs::read(journal).unwrap();
    let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let bad = bytes.len() - zeros - 20;
    broker
        .disk()
        .fail(Fault::Sector, u64::try_from(bad).unwrap())
        .unwrap();
    broker.start_as_the_disk_is();
    broker.wait_for_log("the store was damaged");
    broker
        .accept(&session("reader"))
        .take_message("reader", "first");
}

/// At `relaxed` what came before the last sync is there, and a sync comes without being asked for.
#[test]
fn what_is_acknowledged_at_relaxed_outlives_a_power_cut_behind_the_next_sync() {
    let (mut broker, mut publisher) = with_one_message("relaxed");
    for number in 1..100 {
        publisher.publish(Publish::new("reader", number.to_string()).qos(1));
    }
    broker.wait_for_sync(&newest_journal(&broker));
    cut_power(&mut broker);
    assert_eq!(messages_found(&broker), 100);
}

/// At `relaxed` and `off` too whatever is there is whole: it is the beginning of what was
/// acknowledged, and nobody calls it damaged.
#[test]
fn what_is_acknowledged_before_it_is_safe_may_go_with_the_power_from_the_end_on() {
    for durability in ["relaxed", "off"] {
        let (mut broker, mut publisher) = with_one_message(durability);
        for number in 1..100 {
            publisher.publish(Publish::new("reader", number.to_string()).qos(1));
        }
        cut_power(&mut broker);
        let found = messages_found(&broker);
        assert!(durability == "off" || found > 0, "what was synced is gone");
    }
}

/// A broker that has a message for `reader` which was synced as it ended, and a publisher.
fn with_one_message(durability: &str) -> (Broker, Client) {
    let storage = format!("durability = \"{durability}\"\non_corruption = \"refuse\"\n");
    let mut broker = Launch::config(&format!("[storage]\n{storage}"))
        .shards(1)
        .on_a_disk_that_may_fail()
        .start();
    let mut reader = broker.accept(&session("reader"));
    reader.subscribe_to("reader", 1);
    reader.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("reader", "0").qos(1));
    broker.ask_to_end(); // the last thing is a sync
    assert!(broker.wait().success());
    broker.start_again();
    let publisher = broker.connect("publisher");
    (broker, publisher)
}

/// Takes what waits for `reader`, which is numbered from 0 on without a gap; how much it is.
fn messages_found(broker: &Broker) -> usize {
    let mut reader = broker.accept(&session("reader"));
    reader.subscribe_to("end", 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("end", "").qos(1));
    for found in 0.. {
        let message = reader.expect_publish();
        reader.complete(&message);
        if message.topic == "end" {
            return found;
        }
        assert_eq!(message.payload, found.to_string().as_bytes());
    }
    unreachable!("there are more numbers than messages")
}

fn newest_journal(broker: &Broker) -> PathBuf {
    let files = std::fs::read_dir(broker.data().join("store/engine"));
    let files = files.expect("a store has an engine");
    let journals = files.filter_map(|file| {
        let path = file.ok()?.path();
        let number: u64 = path
            .file_name()?
            .to_str()?
            .strip_suffix(".jnl")?
            .parse()
            .ok()?;
        Some((number, path))
    });
    journals.max().expect("a store has a journal").1
}
