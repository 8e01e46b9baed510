//! Restores all shards from a store.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use unbroken_broker_core::{
    EPOCHS_AHEAD_MAX, Entry, Frontier, HandOver, LaneState, LogId, MaybeSent, Message,
    ReceivedEntry, RestoreError, RestoredEntry, RestoredHandOver, RestoredSession, Shard, ShardId,
    StoredSubscription, Will,
};
use unbroken_mqtt_proto::Escaped;
use unbroken_store::errand::{self, Errand};
use unbroken_store::hand_over::{self, Left};
use unbroken_store::lane::{FLOOR_KEY, Floor, Lane, is_crash_recovery};
use unbroken_store::moves::{MOVES_MAX, Moves};
use unbroken_store::session::{
    Carried, Cursor, Head, Inbound, Outbound, Part, PartView, Subscription, ToRetain, key,
    parse_key,
};
use unbroken_store::{
    self as store, Batch, COMMIT_BYTES_MAX, Kv, MessageBytes, Page, Position, RecordError, Space,
    Store, StoreError, moves, store_health,
};

use crate::expected_deliveries::deliver_pending;
use crate::in_flight::InFlightMessages;
use crate::lane::lane_state;
use crate::message::{message_of, will_of};
use crate::position::{frontier_of, last_before, position_of, positions_of, shard_log};
use crate::times::Times;

/// The state of a store.
#[derive(Debug, Default)]
pub struct Restored {
    /// The last message of each log.
    pub tails: Frontier,
    /// Positions where publishers have moved to other logs and that a session has not passed,
    /// oldest first.
    pub moves: Vec<Frontier>,
    /// Grows with each start that may have lacked acknowledged data.
    pub gaps: u64,
    /// Sessions of all shards.
    pub sessions: Vec<RestoredSession>,
    /// Lanes of sessions, if the broker stopped in good order.
    pub lanes: Vec<LaneState>,
    /// Lanes as of their last record while the broker ran.
    pub crash_recovery_lanes: Vec<LaneState>,
    /// The first epoch that this run may begin.
    pub floor: u32,
    /// Wills of clients whose sessions have ended with the broker, for all shards.
    pub wills: Vec<(Arc<str>, Will)>,
    /// Group messages of ended sessions, for groups of all shards, in the order in which each shard
    /// has recorded them.
    pub hand_overs: Vec<RestoredHandOver>,
    /// Retained messages of all shards.
    pub retained: Vec<Message>,
    /// Messages in flight, or of ended sessions, that are in no log any more.
    pub lost: Vec<String>,
    /// Pending group deliveries of groups without a member. Some may have been reported before the
    /// broker stopped.
    pub undelivered: Vec<String>,
}

impl Restored {
    /// Gives each shard its state, before its first input. The shards must exchange messages before
    /// clients connect.
    pub fn distribute(self, now: Instant, shards: &mut [Shard]) -> Result<(), RestoreError> {
        let moves = Arc::from(self.moves);
        for shard in &mut *shards {
            shard.restore_tails(self.tails.clone());
            shard.restore_moves(Arc::clone(&moves));
            shard.restore_gaps(self.gaps);
        }
        for session in self.sessions {
            let client_id = Arc::clone(&session.client_id);
            if let Some(home) = shards.iter_mut().find(|s| s.is_home_of(&client_id)) {
                home.restore_session(now, session)?;
            }
        }
        for lane in self.lanes {
            if let Some(home) = shards.iter_mut().find(|s| s.is_home_of(lane.client_id())) {
                home.restore_lane(now, lane);
            }
        }
        for shard in &mut *shards {
            shard.resume_lanes(now, self.floor);
        }
        // The oldest first: beyond the limit they are dropped first.
        let mut crash_recovery = self.crash_recovery_lanes;
        crash_recovery.sort_by_key(LaneState::epoch);
        for lane in crash_recovery {
            if let Some(home) = shards.iter_mut().find(|s| s.is_home_of(lane.client_id())) {
                home.restore_lane_so_far(now, lane);
            }
        }
        for (client_id, will) in self.wills {
            if let Some(home) = shards.iter_mut().find(|s| s.is_home_of(&client_id)) {
                home.restore_will(now, &client_id, will)?;
            }
        }
        for hand_over in &self.hand_overs {
            for shard in &mut *shards {
                shard.restore_hand_over(now, hand_over);
            }
        }
        for message in self.retained {
            let topic = message.topic();
            if let Some(keeper) = shards.iter_mut().find(|s| s.keeps_retained(topic)) {
                keeper.restore_retained(now, message);
            }
        }
        Ok(())
    }
}

/// Reads everything except the logs, for a broker with so many shards. It takes memory for
/// sessions, messages in flight and retained messages, none for queued ones. Pending requests to
/// retain are carried out first, and pending group deliveries made, because their publishers had no
/// answer. Leftovers of ended sessions, and of messages that are in no log, are removed.
pub fn restore<S: Store + ?Sized>(
    store: &S,
    shards: u8,
    now: Instant,
    times: &Times,
) -> Result<Restored, StoreError> {
    let mut restored = Restored {
        gaps: store_health::of(store)?.gaps,
        ..Restored::default()
    };
    for log in store.logs()? {
        let last = last_before(store.bounds(log)?.next);
        restored.tails.set(shard_log(log), last);
    }
    retain_pending(store)?;
    restored.undelivered = deliver_pending(store)?;
    read_sessions(store, now, times, &mut restored)?;
    read_hand_overs(store, times, &mut restored)?;
    let floor_before = read_lanes(store, &mut restored)?;
    each(store, Space::Retained, &[], |key, value| {
        let bytes = MessageBytes::parse(value.to_vec()).map_err(|error| damaged(key, &error))?;
        restored.retained.push(message_of(&bytes, None, times));
        Ok(())
    })?;
    restored.moves = note_moves(store, shards, &restored)?;
    restored.floor = floor_after(floor_before, now, times);
    note_floor(store, restored.floor)?;
    Ok(restored)
}

/// Messages in flight are read together, for all sessions that have some; most offline sessions
/// have none.
fn read_sessions<S: Store + ?Sized>(
    store: &S,
    now: Instant,
    times: &Times,
    restored: &mut Restored,
) -> Result<(), StoreError> {
    let mut session = Parts::default();
    let mut leftovers = Batch::new();
    let mut with_messages = Vec::new();
    each(store, Space::Sessions, &[], |key, value| {
        let view = parse_key(key).map_err(|error| damaged(key, &error))?;
        if *session.client != *view.client {
            let done = std::mem::take(&mut session);
            if done.places().next().is_some() {
                with_messages.push(done);
            } else {
                let none = InFlightMessages::default();
                done.finish(&none, now, times, restored, &mut leftovers);
            }
            session.client = view.client.to_vec();
        }
        let decoded = session.take(view.part, value);
        decoded.map_err(|error| damaged(key, &error))?;
        // The head is the first of a session's keys. A session that was to end with its connection
        // has none, and has the rest if the broker was killed before that.
        if session.head.is_none() && view.part != PartView::Will {
            leftovers.delete(Space::Sessions, key.to_vec());
        }
        Ok(())
    })?;
    with_messages.push(session);
    let places = with_messages.iter().flat_map(Parts::places).collect();
    let in_flight = InFlightMessages::read(store, places, times)?;
    for session in with_messages {
        session.finish(&in_flight, now, times, restored, &mut leftovers);
    }
    if !leftovers.is_empty() {
        store.commit(&[leftovers])?;
    }
    Ok(())
}

/// Returns the floor of the run before, if there was one. Lanes of ended sessions are removed.
fn read_lanes<S: Store + ?Sized>(
    store: &S,
    restored: &mut Restored,
) -> Result<Option<u32>, StoreError> {
    let sessions: HashSet<_> = restored.sessions.iter().map(|s| &*s.client_id).collect();
    let mut orphans = Batch::new();
    let mut floor_before = None;
    each(store, Space::Lanes, &[], |key, value| {
        if key == FLOOR_KEY {
            let floor = Floor::decode(value).map_err(|error| damaged(key, &error))?;
            floor_before = Some(floor.epoch);
            return Ok(());
        }
        let lane = Lane::decode(key, value).map_err(|error| damaged(key, &error))?;
        if let Lane::Own(own) = &lane
            && !sessions.contains(own.client_id.as_str())
        {
            orphans.delete(Space::Lanes, key.to_vec());
            return Ok(());
        }
        let lanes = if is_crash_recovery(key) {
            &mut restored.crash_recovery_lanes
        } else {
            &mut restored.lanes
        };
        lanes.push(lane_state(lane));
        Ok(())
    })?;
    if !orphans.is_empty() {
        store.commit(&[orphans])?;
    }
    Ok(floor_before)
}

/// Before anything is acknowledged, so that the record survives like the store's health: a run of
/// which a power cut leaves nothing else has begun its epochs too.
fn note_floor<S: Store + ?Sized>(store: &S, epoch: u32) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    let floor = Floor { epoch };
    batch.put(Space::Lanes, FLOOR_KEY.to_vec(), floor.encode());
    store.commit(&[batch])?;
    Ok(())
}

/// The floor of a run that begins now: above the time, and above whatever the run before may have
/// begun, if there was one.
fn floor_after(before: Option<u32>, now: Instant, times: &Times) -> u32 {
    let second = u32::try_from(times.ms(now) / 1_000).unwrap_or(u32::MAX);
    before.map_or(second, |before| {
        second.max(before).saturating_add(EPOCHS_AHEAD_MAX)
    })
}

/// With another number of shards publishers move to other logs. The position of each move is kept
/// until every session is beyond it. Positions that are in no log any more do not count.
fn note_moves<S: Store + ?Sized>(
    store: &S,
    shards: u8,
    restored: &Restored,
) -> Result<Vec<Frontier>, StoreError> {
    let recorded = moves::of(store)?;
    let tails = &restored.tails;
    let there = |positions: &Vec<Position>| -> Frontier {
        let before = frontier_of(positions);
        let logs = tails.iter();
        logs.map(|(log, tail)| (log, tail.min(before.of(log))))
            .collect()
    };
    let mut all: Vec<_> = recorded.moves.iter().map(there).collect();
    if recorded.shards != shards {
        all.push(tails.clone());
        all.dedup();
    }
    let mut lowest = tails.clone();
    for session in &restored.sessions {
        for (log, _) in tails.iter() {
            lowest.set(log, lowest.of(log).min(session.through.of(log)));
        }
    }
    // Each is within the tails.
    all.retain(|at| !lowest.reaches(at));
    all.drain(..all.len().saturating_sub(MOVES_MAX));
    let now = Moves {
        shards,
        moves: all.iter().map(positions_of).collect(),
    };
    if now != recorded {
        let mut batch = Batch::new();
        batch.put(Space::Control, moves::KEY.to_vec(), now.encode());
        store.commit(&[batch])?;
    }
    Ok(all)
}

/// A message of QoS 2 that is marked is not accepted again, so it is not retained again either.
/// A request that its topic's shard has carried out is not repeated: a later message may have
/// replaced its result. The messages may exceed the memory, so they are read one by one.
fn retain_pending<S: Store + ?Sized>(store: &S) -> Result<(), StoreError> {
    let mut pending = Vec::new();
    each(store, Space::Sessions, &[], |key, value| {
        if let Some(ToRetain { errand, .. }) = to_retain(key, value)? {
            pending.push((errand.number, key.to_vec()));
        }
        Ok(())
    })?;
    pending.sort_unstable();
    let mut batch = Batch::new();
    for (_, key) in pending {
        let found = store.get(Space::Sessions, &key)?;
        let found = found.map_or(Ok(None), |found| to_retain(&key, &found.bytes))?;
        let Some(ToRetain { errand, message }) = found else {
            continue;
        };
        if !is_done(store, errand)? {
            let record = message.record();
            let topic = record.topic.as_bytes().to_vec();
            if record.payload.is_empty() {
                batch.delete(Space::Retained, topic);
            } else {
                batch.put(Space::Retained, topic, message.into_bytes());
            }
        }
        // Only its id is still needed.
        batch.put(Space::Sessions, key, Inbound::default().encode());
        if batch.bytes() >= COMMIT_BYTES_MAX {
            store.commit(&[std::mem::take(&mut batch)])?;
        }
    }
    // Numbers start again, and no marker has an old one any more.
    batch.delete_all(Space::Control, errand::PREFIX.to_vec());
    store.commit(&[batch])?;
    Ok(())
}

/// The pending retained message of an unreleased packet id, if the key is one.
fn to_retain(key: &[u8], value: &[u8]) -> Result<Option<ToRetain>, StoreError> {
    let view = parse_key(key).map_err(|error| damaged(key, &error))?;
    if !matches!(view.part, PartView::Inbound(_)) {
        return Ok(None);
    }
    let inbound = Inbound::decode(value).map_err(|error| damaged(key, &error))?;
    Ok(inbound.retained)
}

fn is_done<S: Kv + ?Sized>(store: &S, errand: Errand) -> Result<bool, StoreError> {
    let key = errand.key();
    let Some(found) = store.get(Space::Control, &key)? else {
        return Ok(false);
    };
    let last = errand::last_done(&found.bytes).map_err(|error| damaged(&key, &error))?;
    Ok(errand.number <= last)
}

pub(crate) fn each<S: Kv + ?Sized>(
    store: &S,
    space: Space,
    prefix: &[u8],
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let Page { pairs, more } = store.scan(space, prefix, after.as_deref(), SCAN_BYTES)?;
        for pair in &pairs {
            take(&pair.key, &pair.value.bytes)?;
        }
        after = pairs.into_iter().next_back().map(|pair| pair.key);
        if !more || after.is_none() {
            return Ok(());
        }
    }
}

pub(crate) fn damaged(key: &[u8], error: &RecordError) -> StoreError {
    StoreError::record(format_args!("key {}", key.escape_ascii()), error)
}

/// The values of one session, as they come.
#[derive(Default)]
struct Parts {
    client: Vec<u8>,
    head: Option<Head>,
    subscriptions: Vec<(u32, Subscription)>,
    through: BTreeMap<LogId, u64>,
    outbound: Vec<(u64, Outbound)>,
    markers: Vec<unbroken_mqtt_proto::PacketId>,
    will: Option<store::session::Will>,
    maybe_sent: store::session::MaybeSent,
}

impl Parts {
    fn take(&mut self, part: PartView, value: &[u8]) -> Result<(), RecordError> {
        match part {
            PartView::Head => self.head = Some(Head::decode(value)?),
            PartView::Subscription { era } => {
                self.subscriptions.push((era, Subscription::decode(value)?));
            }
            PartView::Cursor(log) => {
                let cursor = Cursor::decode(value)?;
                self.through.insert(shard_log(log), cursor.through.0);
            }
            PartView::Outbound(number) => {
                self.outbound.push((number, Outbound::decode(value)?));
            }
            PartView::Inbound(id) => {
                Inbound::decode(value)?;
                self.markers.push(id);
            }
            PartView::Will => self.will = Some(store::session::Will::decode(value)?),
            PartView::MaybeSent => {
                self.maybe_sent = store::session::MaybeSent::decode(value)?;
            }
        }
        Ok(())
    }

    /// The positions of messages in flight, which must be in the logs.
    fn places(&self) -> impl Iterator<Item = Position> {
        let outbound = self.outbound.iter();
        outbound.filter_map(|(_, outbound)| match outbound.what {
            Carried::Log(at) if !outbound.received => Some(at),
            _ => None,
        })
    }

    /// Without a head there is only the will of a client whose session ends with its connection.
    fn finish(
        self,
        in_flight: &InFlightMessages,
        now: Instant,
        times: &Times,
        into: &mut Restored,
        leftovers: &mut Batch,
    ) {
        let will = self.will.map(|will| will_of(&will, times));
        let Some(head) = self.head else {
            if let Some(will) = will
                && let Some(client_id) = will.message.publisher().cloned()
            {
                into.wills.push((client_id, will));
            }
            return;
        };
        let subscriptions: Vec<_> = self
            .subscriptions
            .into_iter()
            .map(|(era, subscription)| stored_subscription(era, subscription))
            .collect();
        let mut through = Frontier::new();
        for (log, tail) in into.tails.iter() {
            // A session without a recorded position is where its first subscription began.
            let begun = subscriptions.iter().map(|held| held.since.of(log)).min();
            let recorded = self.through.get(&log).copied();
            through.set(log, recorded.or(begun).unwrap_or(tail));
        }
        let mut entries = Vec::new();
        for (number, outbound) in self.outbound {
            if let Some(entry) = entry(in_flight, number, outbound, times) {
                entries.push(entry);
                continue;
            }
            // Each loss is reported once.
            let id = &head.client_id;
            into.lost.push(format!(
                "session {}: its message {number} is in no log",
                Escaped::new(id)
            ));
            leftovers.delete(Space::Sessions, key(id, Part::Outbound(number)));
        }
        let away = head.offline_since_ms.map(|since| times.since(since, now));
        into.sessions.push(RestoredSession {
            client_id: Arc::from(head.client_id),
            expiry_s: head.expiry_s.get(),
            user: head.user.map(Arc::from),
            mount: head.mount.map(Into::into),
            away,
            will,
            subscriptions,
            through,
            entries,
            maybe_sent: maybe_sent(&self.maybe_sent),
            markers: self.markers,
        });
    }
}

fn maybe_sent(stored: &store::session::MaybeSent) -> MaybeSent {
    MaybeSent {
        through: frontier_of(&stored.through),
        entries: stored.entries,
    }
}

fn stored_subscription(era: u32, subscription: Subscription) -> StoredSubscription {
    let ended = subscription.ended;
    let mut until = Frontier::new();
    let mut since = Frontier::new();
    for ranges in &subscription.ranges {
        let log = shard_log(ranges.log);
        since.set(log, last_before(ranges.from));
        if let Some(end) = ranges.until {
            until.set(log, last_before(end));
        }
    }
    StoredSubscription {
        filter: subscription.filter.into(),
        era,
        options: subscription.options,
        identifier: subscription.identifier,
        since,
        until: ended.then_some(until),
        retained_due: subscription.retained_due,
    }
}

/// `None`: its message is not there.
fn entry(
    in_flight: &InFlightMessages,
    number: u64,
    outbound: Outbound,
    times: &Times,
) -> Option<RestoredEntry> {
    if let (true, Carried::Log(at)) = (outbound.received, &outbound.what) {
        let position = position_of(at.log, at.sequence);
        let by_group = outbound.by_group;
        let done = || position.map(|position| RestoredEntry::Done { number, position });
        return outbound.packet_id.map_or_else(done, |packet_id| {
            Some(RestoredEntry::Received(ReceivedEntry {
                number,
                packet_id,
                position,
                by_group,
            }))
        });
    }
    Some(RestoredEntry::Given(Entry {
        number,
        packet_id: outbound.packet_id,
        qos: outbound.qos,
        message: message(in_flight, &outbound.what, times)?,
        retain: outbound.retain,
        identifiers: outbound.identifiers,
        by_group: outbound.by_group,
        group: outbound.group.map(Arc::from),
    }))
}

/// A record of a hand-over stays until another member has the message. Each loss is reported once.
fn read_hand_overs<S: Store + ?Sized>(
    store: &S,
    times: &Times,
    into: &mut Restored,
) -> Result<(), StoreError> {
    let mut recorded = Vec::new();
    each(store, Space::Control, hand_over::PREFIX, |key, value| {
        let name = hand_over::HandOver::parse_key(key).map_err(|error| damaged(key, &error))?;
        let left = Left::decode(value).map_err(|error| damaged(key, &error))?;
        recorded.push((name, left));
        Ok(())
    })?;
    let places = recorded.iter().filter_map(|(_, left)| match left.what {
        Carried::Log(at) => Some(at),
        Carried::Own(_) => None,
    });
    let in_flight = InFlightMessages::read(store, places.collect(), times)?;
    let mut lost = Batch::new();
    for (name, Left { group, what }) in recorded {
        let Some(message) = message(&in_flight, &what, times) else {
            into.lost.push(format!(
                "group {}: a message that an ended session had is in no log",
                Escaped::new(&group)
            ));
            lost.delete(Space::Control, name.key());
            continue;
        };
        into.hand_overs.push(RestoredHandOver {
            hand_over: HandOver {
                from: ShardId(name.from),
                number: name.number,
            },
            group: Arc::from(group),
            message,
        });
    }
    if !lost.is_empty() {
        store.commit(&[lost])?;
    }
    Ok(())
}

/// `None`: it is in a log no more.
fn message(in_flight: &InFlightMessages, what: &Carried, times: &Times) -> Option<Arc<Message>> {
    match what {
        Carried::Own(bytes) => Some(Arc::new(message_of(bytes, None, times))),
        Carried::Log(at) => in_flight.at(*at),
    }
}

/// Bytes of keys and values that are read at a time.
const SCAN_BYTES: usize = 1024 * 1024;
