//! Where a subscription begins in the log of another shard: with the first message that this shard
//! has sent for it, though SUBACK has not left yet.

use std::collections::BTreeMap;

use unbroken_broker_core::{Position, Record, StoredSubscription};
use unbroken_mqtt_proto::{QoS, SubscriptionOptions};

use super::durable;
use super::shard_bus::{Broker, Client, join, publish, resident, send_subscribe};

/// Three shards with a publisher on each of two, and a session on the third.
struct Between {
    broker: Broker,
    session: Client,
    /// The one whose shard learns first what the session wants, and the other.
    publishers: [Client; 2],
}

impl Between {
    /// The session has these subscriptions, and messages stay on their way from now on.
    fn new(filters: &[(&str, QoS)]) -> Self {
        let mut broker = durable(3);
        let session = resident(&mut broker, "s", filters);
        let home = broker.shard_of(session);
        let mut publishers = Vec::new();
        for shard in (0..3).filter(|shard| *shard != home) {
            let mut names = (0..).map(|n| format!("p{n}"));
            publishers.push(loop {
                let publisher = join(&mut broker, &names.next().unwrap());
                if broker.shard_of(publisher) == shard {
                    break publisher;
                }
            });
        }
        broker.stored();
        broker.stores.clear();
        broker.hold_messages = true;
        let publishers = publishers.try_into().unwrap_or_else(|_| unreachable!());
        Self {
            broker,
            session,
            publishers,
        }
    }

    /// The next message between shards arrives: what the session wants, at the first of them.
    fn first_shard_learns(&mut self) {
        assert!(self.broker.deliver_message());
    }

    /// Publishes, and answers where the message is if it is to be stored.
    fn publish(&mut self, by: usize, id: u16) -> Option<Position> {
        let before = self.broker.stores.len();
        let packet = publish("t", "x", QoS::AtLeastOnce, id);
        self.broker.send(self.publishers[by], packet);
        let asked = self.broker.stores[before..].iter();
        let mut positions = asked.filter_map(|(_, _, record, _)| match record {
            Record::Message { message, .. } => message.position(),
            _ => None,
        });
        positions.next()
    }

    /// The session subscribes to all of these at once.
    fn subscribe(&mut self, filters: &[(&str, QoS)]) {
        let list: Vec<_> = filters
            .iter()
            .map(|(filter, qos)| (*filter, SubscriptionOptions::at(*qos)))
            .collect();
        send_subscribe(&mut self.broker, self.session, &list);
    }

    /// Everything arrives, and the session gets its SUBACK. Answers what is stored of its
    /// subscriptions to `t` that find messages in logs.
    fn finish(&mut self) -> Vec<StoredSubscription> {
        self.broker.hold_messages = false;
        self.broker.deliver_messages();
        let mut by_era = BTreeMap::new();
        for (_, _, record, _) in &self.broker.stores {
            let (replaced, held) = match record {
                Record::Subscribed {
                    subscription,
                    replaced,
                    ..
                } => (replaced.as_ref(), subscription),
                Record::Unsubscribed { subscription, .. } => (None, subscription),
                _ => continue,
            };
            for held in replaced.into_iter().chain([held]) {
                if &*held.filter == "t" && held.options.qos > QoS::AtMostOnce {
                    by_era.insert(held.era, held.clone());
                }
            }
        }
        self.broker.stored();
        by_era.into_values().collect()
    }
}

fn contains(held: &StoredSubscription, position: Position) -> bool {
    let until = held.until.as_ref();
    !held.since.covers(position) && until.is_none_or(|until| until.covers(position))
}

#[test]
fn what_came_when_one_of_two_shards_knew_of_a_subscription_is_found_after_a_kill() {
    for before in [&[][..], &[("t", QoS::AtMostOnce)]] {
        let mut between = Between::new(before);
        between.subscribe(&[("t", QoS::AtLeastOnce)]);
        assert_eq!(between.publish(0, 1), None, "nobody that stays wants it");
        between.first_shard_learns();
        let position = between.publish(0, 2).expect("it is stored");
        let held = between.finish();
        let [held] = &held[..] else {
            panic!("one subscription is stored: {held:?}");
        };
        assert!(contains(held, position), "{held:?}, {position}");
        // And nothing from before.
        assert_eq!(held.since.of(position.log), position.number - 1);
        let answers = between.broker.take(between.publishers[0]);
        assert!(answers.contains(&"PUBACK #2 00".to_owned()), "{answers:?}");
    }
}

/// Whenever a message comes in: it is stored if its shard knows of the subscription, and is then in
/// one range of it.
#[test]
fn what_is_stored_for_a_subscription_is_in_its_range_whatever_it_waits_for() {
    use QoS::{AtLeastOnce, AtMostOnce, ExactlyOnce};
    let plain = [("t", AtLeastOnce)];
    let other = [("t", ExactlyOnce)];
    let groups: Vec<String> = (0..4).map(|group| format!("$share/{group}/u")).collect();
    let mut wishes = vec![plain.to_vec(), other.to_vec()];
    for group in &groups {
        wishes.push(vec![plain[0], (group, AtLeastOnce)]);
        wishes.push(vec![(group, AtLeastOnce), ("v", AtMostOnce), plain[0]]);
    }
    for first in &wishes {
        // On other terms it begins with what is announced last: here with the first announcement.
        let others = wishes.iter().take(3);
        let others = others.filter(|second| first.len() == 1 || second[0].1 == AtLeastOnce);
        for second in others {
            for at in 0..9 {
                for before in [&[][..], &[("t", AtMostOnce)]] {
                    check_ranges(before, first, second, at);
                }
            }
        }
    }
}

/// The session asks for the first, and in step `at` for the second.
fn check_ranges(before: &[(&str, QoS)], first: &[(&str, QoS)], second: &[(&str, QoS)], at: usize) {
    let mut between = Between::new(before);
    between.subscribe(first);
    let mut positions = Vec::new();
    for (step, id) in (0..12).zip((1..).step_by(2)) {
        if step == at {
            between.subscribe(second);
        }
        positions.extend(between.publish(0, id));
        positions.extend(between.publish(1, id + 1));
        between.broker.deliver_message();
    }
    let held = between.finish();
    assert!(!positions.is_empty());
    for position in positions {
        let found = held.iter().filter(|held| contains(held, position));
        assert_eq!(
            found.count(),
            1,
            "{position} by {first:?}, and {second:?} in step {at}: {held:?}"
        );
    }
}
