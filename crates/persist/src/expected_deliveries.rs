//! Deliveries of shared groups that were pending when the broker stopped.
//!
//! The publisher of such a message had no answer. It sends the message again, which is recognized
//! by its marker and ignored. So before sessions are restored, the message goes to a member of each
//! group that has not given it to one.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use unbroken_mqtt_proto::{Escaped, QoS, SubscriptionFilter, TopicFilter, TopicName};
use unbroken_store::session::{
    Carried, Head, Outbound, Part, PartView, Subscription, key, parse_key,
};
use unbroken_store::{
    Batch, COMMIT_BYTES_MAX, LogId, MessageBytes, Position, Sequence, Space, Store, StoreError,
    expected_deliveries,
};

use crate::in_flight::read_each;
use crate::restore::{damaged, each};

/// Makes the pending deliveries. Returns a description of each that has no member.
pub(crate) fn deliver_pending<S: Store + ?Sized>(store: &S) -> Result<Vec<String>, StoreError> {
    let notes = notes(store)?;
    let mut undelivered = Vec::new();
    if notes.is_empty() {
        return Ok(undelivered);
    }
    let mut members = members(store)?;
    let subscriptions = members
        .iter()
        .flat_map(|member| member.subscriptions.clone());
    let subscriptions: Vec<_> = subscriptions.collect();
    let parsed = subscriptions.iter().filter_map(|(era, subscription)| {
        let filter = group_of(subscription)?.filter();
        Some((filter, *era, &**subscription))
    });
    let parsed: Vec<_> = parsed.collect();
    // There may be as many as unacknowledged messages: a thousand for each client, and more with
    // MQTT 3.
    let pending = notes.iter().filter(|(_, note)| note.is_pending);
    let pending: Vec<_> = pending.map(|(position, _)| *position).collect();
    let mut batch = Batch::new();
    read_each(store, &pending, |position, message| {
        for group in pending_groups(&parsed, position, message) {
            let given_by = notes.get(&position).map(|note| &note.given_by);
            if given_by
                .is_some_and(|given| given.contains(&expected_deliveries::group_name(&group)))
            {
                continue;
            }
            if let Some(member) = next_member(&mut members, &group, position.log) {
                batch.extend(member.give(&group, position, message));
            } else {
                let topic = Escaped::new(message.topic());
                undelivered.push(format!(
                    "group {}: a message on {topic} was not delivered when the \
                     broker stopped, and no persistent member is left",
                    Escaped::new(&group)
                ));
            }
        }
        if batch.bytes() >= COMMIT_BYTES_MAX {
            store.commit(&[std::mem::take(&mut batch)])?;
        }
        Ok(())
    })?;
    if !batch.is_empty() {
        store.commit(&[batch])?;
    }
    let mut batch = Batch::new();
    batch.delete_all(Space::Control, expected_deliveries::PREFIX.to_vec());
    store.commit(&[batch])?;
    Ok(undelivered)
}

/// The records of one message.
#[derive(Default)]
struct Note {
    is_pending: bool,
    /// Groups that have given it, as in keys.
    given_by: BTreeSet<Vec<u8>>,
}

fn notes<S: Store + ?Sized>(store: &S) -> Result<BTreeMap<Position, Note>, StoreError> {
    let mut notes: BTreeMap<Position, Note> = BTreeMap::new();
    each(
        store,
        Space::Control,
        expected_deliveries::PREFIX,
        |key, value| {
            let view = expected_deliveries::parse_key(key).map_err(|error| damaged(key, &error))?;
            expected_deliveries::check(value).map_err(|error| damaged(key, &error))?;
            let note = notes.entry(view.position).or_default();
            match view.group {
                Some(group) => drop(note.given_by.insert(group.to_vec())),
                None => note.is_pending = true,
            }
            Ok(())
        },
    )?;
    Ok(notes)
}

/// A session with subscriptions of groups.
#[derive(Default)]
struct Member {
    client: Vec<u8>,
    /// `None`: it has ended with the broker.
    head: Option<Head>,
    /// Group subscriptions, with their eras.
    subscriptions: Vec<(u32, Rc<Subscription>)>,
    /// Numbers of its entries.
    entries: u64,
    /// In each log, the last message that is in flight to it.
    last_given: BTreeMap<LogId, Sequence>,
}

fn members<S: Store + ?Sized>(store: &S) -> Result<Vec<Member>, StoreError> {
    let mut members: Vec<Member> = Vec::new();
    each(store, Space::Sessions, &[], |key, value| {
        let error = |error| damaged(key, &error);
        let view = parse_key(key).map_err(error)?;
        if members
            .last()
            .is_none_or(|last| *last.client != *view.client)
        {
            members.pop_if(|last| !last.is_one());
            members.push(Member {
                client: view.client.to_vec(),
                ..Member::default()
            });
        }
        let Some(member) = members.last_mut() else {
            return Ok(());
        };
        match view.part {
            PartView::Head => member.head = Some(Head::decode(value).map_err(error)?),
            PartView::Subscription { era } => {
                let subscription = Subscription::decode(value).map_err(error)?;
                if group_of(&subscription).is_some() {
                    member.subscriptions.push((era, Rc::new(subscription)));
                }
            }
            PartView::Outbound(number) => {
                let outbound = Outbound::decode(value).map_err(error)?;
                member.entries = member.entries.max(number);
                if let Carried::Log(at) = outbound.what {
                    member.note_given(at);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    members.pop_if(|last| !last.is_one());
    Ok(members)
}

impl Member {
    fn is_one(&self) -> bool {
        self.head.is_some() && !self.subscriptions.is_empty()
    }

    fn note_given(&mut self, at: Position) {
        let last = self.last_given.entry(at.log).or_default();
        *last = at.sequence.max(*last);
    }

    /// Its present subscription, if messages for it are stored.
    fn subscription(&self, group: &str) -> Option<&Subscription> {
        let mut subscriptions = self.subscriptions.iter().map(|(_, found)| &**found);
        subscriptions.find(|found| {
            found.filter == group && !found.ended && found.options.qos > QoS::AtMostOnce
        })
    }

    /// Records that the message waits for this member.
    fn give(&mut self, group: &str, position: Position, message: &MessageBytes) -> Batch {
        let mut batch = Batch::new();
        let record = message.record();
        let (Some(subscription), Some(head)) = (self.subscription(group), &self.head) else {
            return batch;
        };
        let outbound = Outbound {
            what: Carried::Log(position),
            packet_id: None,
            qos: subscription.options.qos.min(record.qos),
            received: false,
            retain: record.retain && subscription.options.retain_as_published,
            by_group: true,
            group: Some(group.to_owned()),
            identifiers: subscription.identifier.into_iter().collect(),
        };
        let part = Part::Outbound(self.entries + 1);
        let key = key(&head.client_id, part);
        batch.put(Space::Sessions, key, outbound.encode()).put(
            Space::Control,
            expected_deliveries::given_key(position, group),
            expected_deliveries::value(),
        );
        self.entries += 1;
        self.note_given(position);
        batch
    }
}

/// Groups that had, or may have had, a persistent member when the message came. Messages for other
/// members at QoS 0 are sent before they are recorded, so they may have been delivered, and are not
/// pending.
fn pending_groups(
    subscriptions: &[(TopicFilter<'_>, u32, &Subscription)],
    position: Position,
    message: &MessageBytes,
) -> BTreeSet<String> {
    let Ok(topic) = TopicName::parse(message.record().topic) else {
        return BTreeSet::new();
    };
    let owing = subscriptions.iter().filter(|(filter, era, subscription)| {
        subscription.options.qos > QoS::AtMostOnce
            && filter.matches(topic)
            && (holds_at(subscription, position) || may_follow_others(*era, subscription))
    });
    owing
        .map(|(_, _, subscription)| subscription.filter.clone())
        .collect()
}

/// A member without later messages of the log, so that a publisher's messages stay in order; of
/// several, the one with the fewest.
fn next_member<'a>(members: &'a mut [Member], group: &str, log: LogId) -> Option<&'a mut Member> {
    let can = members
        .iter_mut()
        .filter(|member| member.subscription(group).is_some());
    can.min_by_key(|member| (member.last_given.get(&log).copied(), member.entries))
}

fn group_of(subscription: &Subscription) -> Option<SubscriptionFilter<'_>> {
    let parsed = SubscriptionFilter::parse(&subscription.filter).ok()?;
    parsed.group().is_some().then_some(parsed)
}

/// Whether the group may have had earlier members that have left: the store does not record them,
/// unless it was the same session.
fn may_follow_others(era: u32, subscription: &Subscription) -> bool {
    era == 0 && !subscription.ended
}

fn holds_at(subscription: &Subscription, position: Position) -> bool {
    let mut ranges = subscription.ranges.iter();
    ranges
        .find(|ranges| ranges.log == position.log)
        .map_or(!subscription.ended, |ranges| {
            ranges.from <= position.sequence
                && ranges.until.is_none_or(|until| position.sequence < until)
        })
}
