//! What is put on disk of messages that several shards want: what a session that stays has asked
//! for at QoS 1 or 2, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use shard_bus::{Broker, Client, join, publish, resident, stay, subscribe, unsubscribe};
use unbroken_broker_core::{Limits, Settings};
use unbroken_mqtt_proto::QoS;

fn durable(shards: u8) -> Broker {
    let mut settings = Settings::default();
    settings.durable = true;
    Broker::with(shards, Limits::default(), settings)
}

/// Whether a message to `t` is stored, which is published now.
fn is_stored(broker: &mut Broker, publisher: Client, id: u16) -> bool {
    broker.take_asked();
    broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, id));
    let asked = broker.take_asked();
    let is_stored = asked.contains(&"message t".to_owned());
    let answered = broker.take(publisher) == [format!("PUBACK #{id} 00")];
    assert_eq!(answered, !is_stored, "{asked:?}");
    broker.stored();
    broker.take(publisher);
    is_stored
}

#[test]
fn what_sessions_that_stay_get_at_qos_0_only_is_not_stored_wherever_they_live() {
    for shards in [1, 3] {
        for filter in ["t", "$share/g/t"] {
            let mut broker = durable(shards);
            let publisher = join(&mut broker, "p");
            let receivers = ["s", "u", "v", "w"]
                .map(|id| resident(&mut broker, id, &[(filter, QoS::AtMostOnce)]));
            let times: u16 = 4;
            for id in 1..=times {
                assert!(
                    !is_stored(&mut broker, publisher, id),
                    "{filter} on {shards}"
                );
            }
            let copies = receivers.map(|client| broker.take(client).len());
            let each = usize::from(times / if filter == "t" { 1 } else { 4 });
            assert_eq!(copies, [each; 4], "{filter} on {shards}");
        }
    }
}

#[test]
fn a_message_is_stored_as_subscriptions_are_when_it_comes() {
    let wanted = [
        Some(QoS::AtMostOnce),
        Some(QoS::AtLeastOnce),
        Some(QoS::ExactlyOnce),
        Some(QoS::AtMostOnce),
        None,
        Some(QoS::ExactlyOnce),
        Some(QoS::AtMostOnce),
        Some(QoS::AtLeastOnce),
        None,
    ];
    for shards in [1, 3] {
        for filter in ["t", "$share/g/t"] {
            for client_id in ["s", "u", "v", "w"] {
                let mut broker = durable(shards);
                let publisher = join(&mut broker, "p");
                // One that is not changed and keeps nothing: what is withdrawn is not for it.
                resident(&mut broker, "o", &[(filter, QoS::AtMostOnce)]);
                let client = resident(&mut broker, client_id, &[]);
                for (wanted, id) in wanted.into_iter().zip(1..) {
                    match wanted {
                        Some(qos) => subscribe(&mut broker, client, filter, qos),
                        None => unsubscribe(&mut broker, client, filter),
                    }
                    broker.stored();
                    let keeps = wanted.is_some_and(|qos| qos > QoS::AtMostOnce);
                    let is_stored = is_stored(&mut broker, publisher, id);
                    assert_eq!(
                        is_stored, keeps,
                        "{id} to {client_id} by {filter} of {shards}"
                    );
                }
                subscribe(&mut broker, client, filter, QoS::AtLeastOnce);
                broker.stored();
                assert!(
                    is_stored(&mut broker, publisher, 10),
                    "{filter} of {shards}"
                );
                // Another session begins.
                stay(&mut broker, client_id, true);
                broker.stored();
                assert!(
                    !is_stored(&mut broker, publisher, 11),
                    "{filter} of {shards}"
                );
            }
        }
    }
}
