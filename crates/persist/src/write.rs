//! Converts a record of a shard to changes of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use unbroken_broker_core::{
    Entry, Errand, Frontier, HandOver, LogId, MaybeSent, Message, Position, Presence, Progress,
    ReceivedEntry, Record, StoredSubscription,
};
use unbroken_mqtt_proto::{PacketId, QoS};
use unbroken_store::hand_over::{self, Left};
use unbroken_store::lane::{self, Floor};
use unbroken_store::session::{
    self, Carried, Cursor, Head, Inbound, Outbound, Part, Subscription, ToRetain, key, prefix,
};
use unbroken_store::{self as store, Batch, Sequence, Space, expected_deliveries};

use crate::lane::lane_value;
use crate::message::{bytes_of, will_value};
use crate::position::{behind, log_of, stored};
use crate::times::Times;

/// The changes of a record that was requested at this moment.
pub fn batch_of(record: &Record, now: Instant, times: &Times) -> Batch {
    let mut batch = Batch::new();
    match record {
        Record::Message { .. }
        | Record::Marker { .. }
        | Record::Released { .. }
        | Record::Retained { .. }
        | Record::Unretained { .. } => message_changes(&mut batch, record, times),
        Record::SessionOpened { .. }
        | Record::SessionEnded { .. }
        | Record::Subscribed { .. }
        | Record::Unsubscribed { .. }
        | Record::Given { .. }
        | Record::Received { .. }
        | Record::Will { .. }
        | Record::WillOver { .. }
        | Record::Progress { .. } => session_changes(&mut batch, record, now, times),
        Record::DeliveriesExpected { .. }
        | Record::DeliveredBy { .. }
        | Record::DeliveriesComplete { .. }
        | Record::HandedOver { .. }
        | Record::HandedOn { .. } => group_changes(&mut batch, record, times),
        Record::LaneClosed(_)
        | Record::LanesResumed { .. }
        | Record::LaneSnapshot(_)
        | Record::LaneForgotten { .. } => lane_changes(&mut batch, record),
    }
    batch
}

/// Messages, packet ids of QoS 2, and retained messages.
fn message_changes(batch: &mut Batch, record: &Record, times: &Times) {
    match record {
        Record::Message {
            message,
            marker,
            will_over,
        } => {
            if let Some(position) = message.position() {
                let stored = stored(position);
                batch.append(stored.log, stored.sequence, bytes_of(message, times));
            }
            if let (Some(marker), Some(publisher)) = (marker, message.publisher()) {
                let retained = marker.retained.map(|errand| (errand, message));
                put_marker(batch, publisher, marker.packet_id, retained, times);
            }
            if let (true, Some(publisher)) = (will_over, message.publisher()) {
                delete(batch, publisher, Part::Will);
            }
        }
        Record::Marker {
            client_id,
            packet_id,
            retained,
        } => {
            let retained = retained
                .as_ref()
                .map(|(errand, message)| (*errand, message));
            put_marker(batch, client_id, *packet_id, retained, times);
        }
        Record::Released {
            client_id,
            packet_id,
        } => delete(batch, client_id, Part::Inbound(*packet_id)),
        Record::Retained { message, errand } => {
            let bytes = bytes_of(message, times).into_bytes();
            batch.put(Space::Retained, message.topic().into(), bytes);
            put_done(batch, *errand);
        }
        Record::Unretained { topic, errand } => {
            batch.delete(Space::Retained, topic.as_bytes().to_vec());
            put_done(batch, *errand);
        }
        _ => {}
    }
}

/// Sessions: subscriptions, entries, wills.
fn session_changes(batch: &mut Batch, record: &Record, now: Instant, times: &Times) {
    match record {
        Record::SessionOpened {
            client_id,
            expiry_s,
            user,
            mount,
            new,
        } => {
            if *new {
                delete_session(batch, client_id);
            }
            let presence = Presence {
                is_here: true,
                expiry_s: *expiry_s,
                user: user.clone(),
                mount: mount.clone(),
            };
            put_head(batch, client_id, &presence, now, times);
        }
        Record::SessionEnded { client_id } => delete_session(batch, client_id),
        Record::Subscribed {
            client_id,
            subscription: held,
            replaced,
        } => {
            for held in replaced.iter().chain([held]) {
                put_subscription(batch, client_id, held);
            }
        }
        Record::Unsubscribed {
            client_id,
            subscription: held,
        } => {
            put_subscription(batch, client_id, held);
        }
        Record::Given {
            client_id,
            entry,
            waited,
        } => {
            put_entry(batch, client_id, entry, times);
            if let Some(waited) = waited {
                delete(batch, client_id, Part::Outbound(waited.get()));
            }
        }
        Record::Received {
            client_id,
            received,
        } => {
            let part = Part::Outbound(received.number);
            put(batch, client_id, part, received_entry(received).encode());
        }
        Record::Will { client_id, will } => {
            let value = will_value(will, times).encode();
            put(batch, client_id, Part::Will, value);
        }
        Record::WillOver { client_id } => delete(batch, client_id, Part::Will),
        Record::Progress {
            client_id,
            progress,
        } => put_progress(batch, client_id, progress, now, times),
        _ => {}
    }
}

/// Pending group deliveries, and hand-overs of ended sessions.
fn group_changes(batch: &mut Batch, record: &Record, times: &Times) {
    match record {
        Record::DeliveriesExpected { position } => {
            let key = expected_deliveries::key(stored(*position));
            batch.put(Space::Control, key, expected_deliveries::value());
        }
        Record::DeliveredBy { group, position } => {
            let key = expected_deliveries::given_key(stored(*position), group);
            batch.put(Space::Control, key, expected_deliveries::value());
        }
        Record::DeliveriesComplete { position } => {
            batch.delete_all(Space::Control, expected_deliveries::key(stored(*position)));
        }
        Record::HandedOver {
            hand_over,
            group,
            message,
        } => {
            let left = Left {
                group: group.to_string(),
                what: carried(message.position(), message, times),
            };
            let key = stored_hand_over(*hand_over).key();
            batch.put(Space::Control, key, left.encode());
        }
        Record::HandedOn { hand_over } => {
            batch.delete(Space::Control, stored_hand_over(*hand_over).key());
        }
        _ => {}
    }
}

/// Lanes of the proof.
fn lane_changes(batch: &mut Batch, record: &Record) {
    match record {
        Record::LaneClosed(at_rest) => {
            let lane = lane_value(at_rest);
            batch.put(Space::Lanes, lane.key(), lane.encode());
        }
        Record::LanesResumed { floor } => {
            for prefix in lane::PREFIXES {
                batch.delete_all(Space::Lanes, vec![prefix]);
            }
            let floor = Floor { epoch: *floor };
            batch.put(Space::Lanes, lane::FLOOR_KEY.to_vec(), floor.encode());
        }
        Record::LaneSnapshot(so_far) => {
            let lane = lane_value(so_far);
            batch.put(
                Space::Lanes,
                lane.crash_recovery_key(),
                lane.encode_crash_recovery(),
            );
        }
        Record::LaneForgotten { client_id, epoch } => {
            batch.delete(
                Space::Lanes,
                lane::ingress_crash_recovery(client_id, *epoch),
            );
        }
        _ => {}
    }
}

fn put(batch: &mut Batch, client_id: &str, part: Part<'_>, value: Vec<u8>) {
    batch.put(Space::Sessions, key(client_id, part), value);
}

fn delete(batch: &mut Batch, client_id: &str, part: Part<'_>) {
    batch.delete(Space::Sessions, key(client_id, part));
}

/// The ledgers of the lanes that a client stamps end with its session. Its ingress lane may still
/// have to be announced.
fn delete_session(batch: &mut Batch, client_id: &str) {
    batch.delete_all(Space::Sessions, prefix(client_id));
    batch.delete_all(Space::Lanes, lane::own_crash_recovery(client_id));
}

fn put_marker(
    batch: &mut Batch,
    client_id: &str,
    packet_id: PacketId,
    retained: Option<(Errand, &Arc<Message>)>,
    times: &Times,
) {
    let retained = retained.map(|(errand, message)| ToRetain {
        errand: stored_errand(errand),
        message: bytes_of(message, times),
    });
    let value = Inbound { retained }.encode();
    put(batch, client_id, Part::Inbound(packet_id), value);
}

fn put_done(batch: &mut Batch, errand: Option<Errand>) {
    if let Some(errand) = errand.map(stored_errand) {
        batch.put(Space::Control, errand.key(), errand.done());
    }
}

fn stored_errand(errand: Errand) -> store::errand::Errand {
    store::errand::Errand {
        from: errand.from.0,
        to: errand.to.0,
        number: errand.number,
    }
}

fn stored_hand_over(hand_over: HandOver) -> hand_over::HandOver {
    hand_over::HandOver {
        from: hand_over.from.0,
        number: hand_over.number,
    }
}

fn put_head(batch: &mut Batch, client_id: &str, presence: &Presence, now: Instant, times: &Times) {
    let Some(expiry_s) = NonZeroU32::new(presence.expiry_s) else {
        return delete(batch, client_id, Part::Head); // it ends with its connection
    };
    let head = Head {
        client_id: client_id.to_owned(),
        expiry_s,
        offline_since_ms: (!presence.is_here).then(|| times.ms(now)),
        user: presence.user.as_deref().map(str::to_owned),
        mount: presence.mount.as_deref().map(str::to_owned),
    };
    put(batch, client_id, Part::Head, head.encode());
}

fn put_entry(batch: &mut Batch, client_id: &str, entry: &Entry, times: &Times) {
    let outbound = Outbound {
        what: carried(entry.message.position(), &entry.message, times),
        packet_id: entry.packet_id,
        qos: entry.qos,
        received: false,
        retain: entry.retain,
        by_group: entry.by_group,
        group: entry.group.as_deref().map(str::to_owned),
        identifiers: entry.identifiers.clone(),
    };
    put(
        batch,
        client_id,
        Part::Outbound(entry.number),
        outbound.encode(),
    );
}

fn carried(position: Option<Position>, message: &Message, times: &Times) -> Carried {
    match position {
        Some(position) => Carried::Log(stored(position)),
        None => Carried::Own(bytes_of(message, times)),
    }
}

fn received_entry(received: &ReceivedEntry) -> Outbound {
    // The message is not needed any more; its position is, so that it is not sent again.
    let nowhere = store::Position {
        log: store::LogId(0),
        sequence: Sequence::BEFORE_ALL,
    };
    Outbound {
        what: Carried::Log(received.position.map_or(nowhere, stored)),
        packet_id: Some(received.packet_id),
        qos: QoS::ExactlyOnce,
        received: true,
        retain: false,
        by_group: received.by_group,
        group: None,
        identifiers: Vec::new(),
    }
}

/// Only the position of its message counts.
fn done_entry(position: Position) -> Outbound {
    Outbound {
        what: Carried::Log(stored(position)),
        packet_id: None,
        qos: QoS::ExactlyOnce,
        received: true,
        retain: false,
        by_group: false,
        group: None,
        identifiers: Vec::new(),
    }
}

fn put_progress(
    batch: &mut Batch,
    client_id: &str,
    progress: &Progress,
    now: Instant,
    times: &Times,
) {
    for (log, number) in progress.through.iter() {
        let through = Sequence(number);
        let part = Part::Cursor(log_of(log));
        put(batch, client_id, part, Cursor { through }.encode());
    }
    for entry in &progress.given {
        put_entry(batch, client_id, entry, times);
    }
    for number in &progress.ended {
        delete(batch, client_id, Part::Outbound(*number));
    }
    for (number, position) in &progress.done {
        let part = Part::Outbound(*number);
        put(batch, client_id, part, done_entry(*position).encode());
    }
    for held in &progress.scanned {
        put_subscription(batch, client_id, held);
    }
    for (filter, era) in &progress.past {
        let era = *era;
        delete(batch, client_id, Part::Subscription { filter, era });
    }
    if let Some(presence) = &progress.presence {
        put_head(batch, client_id, presence, now, times);
    }
    match &progress.maybe_sent {
        Some(sent) if *sent == MaybeSent::default() => delete(batch, client_id, Part::MaybeSent),
        Some(sent) => put(batch, client_id, Part::MaybeSent, maybe_sent(sent).encode()),
        None => {}
    }
}

fn maybe_sent(sent: &MaybeSent) -> session::MaybeSent {
    let logs: BTreeMap<LogId, u64> = sent.through.iter().collect();
    let through = logs.into_iter();
    session::MaybeSent {
        entries: sent.entries,
        through: through
            .map(|(log, number)| stored(Position { log, number }))
            .collect(),
    }
}

fn put_subscription(batch: &mut Batch, client_id: &str, held: &StoredSubscription) {
    let part = Part::Subscription {
        filter: &held.filter,
        era: held.era,
    };
    put(batch, client_id, part, subscription(held).encode());
}

fn subscription(held: &StoredSubscription) -> Subscription {
    let (since, until) = (&held.since, held.until.as_ref());
    let within = until.into_iter().flat_map(Frontier::iter);
    let logs: BTreeSet<LogId> = since.iter().chain(within).map(|(log, _)| log).collect();
    let ranges = logs.into_iter().map(|log| {
        let from = behind(since.of(log));
        let until = until.map(|until| behind(until.of(log)));
        session::LogRange {
            log: log_of(log),
            // A subscription that ends before it was in force matches nothing.
            from: until.map_or(from, |until| from.min(until)),
            until,
        }
    });
    Subscription {
        filter: held.filter.clone().into(),
        options: held.options,
        identifier: held.identifier,
        ended: until.is_some(),
        retained_due: held.retained_due,
        ranges: ranges.collect(),
    }
}
