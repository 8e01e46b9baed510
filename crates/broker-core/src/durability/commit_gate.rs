//! Nothing leaves before what it promises is true.
//!
//! ```text
//! ask, append ---> requests ---> the store ------> on_stored ---> pop_woken: waiters, in order
//! expect --------> token ------> other shards ---> on_settled --> a waiter
//! ```
//!
//! Requests are numbered, and an answer is good for all before it, so whether a packet may leave is
//! one comparison ([`is_met`](CommitGate::is_met)).
//!
//! Invariants:
//! - What waits becomes true without its client: by the store, or by another shard. A client that
//!   is not read because too much waits for it is therefore read again.
//! - What a shard asks of the store goes there in the order in which it asked.
//!
//! Deliberately absent: the packets that wait, which are in the queue of their connection
//! ([`crate::connection`]); SUBACK, which waits in [`crate::barrier`]; what a woken waiter does
//! ([`crate::shard`]); and what the store does, which is the driver's.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::log_ends::LogEnds;
use super::qos2_pending::Qos2Pending;
use super::reads::{Purpose, Reads};
use super::recovery_scan::RecoveryScan;
use super::request::{Request, StoreRequest};
use super::retention::{Retention, StoreSize};
use super::{Marker, ReadRequest, Record, WaitFor, Waiter};
use crate::ids::{SessionId, ShardId, StoreId};
use crate::message::Message;
use crate::position::{Frontier, Position};

/// What this shard has asked of the store and of other shards, and what waits for the answers.
#[derive(Debug)]
pub(crate) struct CommitGate {
    /// For the driver to take.
    requests: VecDeque<Request>,
    asked: StoreId,
    stored: StoreId,
    /// Why the store takes nothing any more: then requests are numbered and go nowhere.
    failed: Option<Arc<str>>,
    /// Clients whose session or will is over, and on disk may not be yet: one that is answered that
    /// it has no session waits for the last. In the order of the requests.
    ended: VecDeque<(StoreId, Arc<str>)>,
    /// Makes what an earlier run has left void: no client is let in before.
    resumed: StoreId,
    /// What waits for the store, in the order of the requests.
    waiters: VecDeque<(StoreId, Waiter)>,
    /// What was asked of other shards, by token.
    unsettled: HashMap<u64, Unsettled, FixedState>,
    log_ends: LogEnds,
    reads: Reads,
    retention: Retention,
    scan: RecoveryScan,
    qos2_pending: Qos2Pending,
    /// Bytes of messages that were appended since progress of sessions was stored.
    appended_bytes: u64,
    /// Up to where the logs may be trimmed, as it was last asked.
    trimmed: Frontier,
}

/// Messages to other shards about one publication, to retain it or to give it to members of groups.
#[derive(Debug, Default)]
struct Unsettled {
    /// So many are not answered.
    messages: u32,
    /// Woken when all are, and this request is stored.
    waiter: Option<(StoreId, Waiter)>,
    /// Where the publication is, if it is in a log.
    position: Option<Position>,
    /// A restart gives it to groups until all are answered.
    groups: Option<Position>,
}

impl CommitGate {
    pub(crate) fn new(shard: ShardId) -> Self {
        Self {
            requests: VecDeque::new(),
            asked: StoreId::NOTHING,
            stored: StoreId::NOTHING,
            failed: None,
            ended: VecDeque::new(),
            resumed: StoreId::NOTHING,
            waiters: VecDeque::new(),
            unsettled: HashMap::with_hasher(FixedState::with_seed(0)),
            log_ends: LogEnds::new(shard),
            reads: Reads::default(),
            retention: Retention::default(),
            scan: RecoveryScan::default(),
            qos2_pending: Qos2Pending::default(),
            appended_bytes: 0,
            trimmed: Frontier::new(),
        }
    }

    /// Asks for a record to be stored.
    pub(crate) fn ask(&mut self, record: Record) -> StoreId {
        self.asked.0 += 1;
        let id = self.asked;
        if self.failed.is_none() {
            let request = StoreRequest { id, record };
            self.requests.push_back(Request::Store(request));
        }
        id
    }

    /// Asks for a message to be stored, at the next place in the log of this shard.
    pub(crate) fn append(
        &mut self,
        message: Arc<Message>,
        marker: Option<Marker>,
        will_over: bool,
    ) -> StoreId {
        let position = self.log_ends.append();
        self.appended_bytes += message.publication().cost();
        message.set_position(position);
        let request = self.ask(Record::Message {
            message,
            marker,
            will_over,
        });
        self.log_ends.note_asked(request, position);
        request
    }

    /// Asks for a part of a log.
    pub(crate) fn read(&mut self, request: ReadRequest, purpose: Purpose) {
        self.reads.begin(request.token, purpose);
        self.requests.push_back(Request::Read(request));
    }

    /// Has the logs trimmed up to here, when all is stored that was asked for before.
    pub(crate) fn trim(&mut self, up_to: Frontier) {
        if self.failed.is_none() && up_to != self.trimmed {
            self.trimmed = up_to.clone();
            self.requests.push_back(Request::Trim(up_to));
        }
    }

    /// Takes the next request to the store.
    pub(crate) fn next_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Everything up to this request is on disk.
    pub(crate) fn stored(&self) -> StoreId {
        self.stored
    }

    pub(crate) fn is_met(&self, until: WaitFor) -> bool {
        until.stored <= self.stored
            && until
                .settled
                .is_none_or(|token| !self.unsettled.contains_key(&token))
    }

    /// What is not true yet of this.
    pub(crate) fn still_open(&self, mut until: WaitFor) -> WaitFor {
        if until.stored <= self.stored {
            until.stored = StoreId::NOTHING;
        }
        until
            .settled
            .take_if(|token| !self.unsettled.contains_key(token));
        until
    }

    /// Has this woken when all of it is true; gives it back if that is now.
    #[must_use]
    pub(crate) fn wake_when(&mut self, until: WaitFor, waiter: Waiter) -> Option<Waiter> {
        let unsettled = until.settled.and_then(|it| self.unsettled.get_mut(&it));
        if let Some(unsettled) = unsettled {
            unsettled.waiter = Some((until.stored, waiter));
            return None;
        }
        if until.stored <= self.stored {
            return Some(waiter);
        }
        let (request, waiters) = (until.stored, &mut self.waiters);
        if waiters.back().is_none_or(|(last, _)| *last <= request) {
            waiters.push_back((request, waiter));
        } else {
            // One that is asked again has an older number than the last.
            let at = waiters.partition_point(|(other, _)| *other <= request);
            waiters.insert(at, (request, waiter));
        }
        None
    }

    /// Everything up to this request is on disk: [`pop_woken`](Self::pop_woken) has what waited.
    pub(crate) fn on_stored(&mut self, stored: StoreId) {
        debug_assert!(stored <= self.asked, "nothing asked for {stored:?}");
        self.stored = stored.max(self.stored);
        self.log_ends.on_stored(self.stored);
        let is_over = |(asked, _): &mut (StoreId, Arc<str>)| *asked <= self.stored;
        while self.ended.pop_front_if(is_over).is_some() {}
    }

    /// Takes the next that has waited for the store and need not wait any more.
    pub(crate) fn pop_woken(&mut self) -> Option<Waiter> {
        let is_woken = |(request, _): &mut (StoreId, Waiter)| *request <= self.stored;
        let (_, waiter) = self.waiters.pop_front_if(is_woken)?;
        Some(waiter)
    }

    /// A message about this publication is about to be sent with this token, and will be answered.
    pub(crate) fn expect(&mut self, token: u64, position: Option<Position>) {
        let unsettled = self.unsettled.entry(token).or_default();
        unsettled.messages += 1;
        unsettled.position = position.or(unsettled.position);
    }

    /// A message with this token is answered. Gives what waited for the last one.
    pub(crate) fn on_settled(&mut self, token: u64) -> Option<Waiter> {
        let unsettled = self.unsettled.get_mut(&token)?;
        unsettled.messages -= 1;
        if unsettled.messages > 0 {
            return None;
        }
        let unsettled = self.unsettled.remove(&token)?;
        if let Some(position) = unsettled.groups {
            self.ask(Record::DeliveriesComplete { position });
        }
        let (stored, waiter) = unsettled.waiter?;
        self.wake_when(WaitFor::stored(stored), waiter)
    }

    /// Publications for which other shards have not answered: the entry of a session that gets one
    /// late refers to the log.
    pub(crate) fn unsettled_positions(&self) -> impl Iterator<Item = Position> {
        self.unsettled.values().filter_map(|it| it.position)
    }

    /// A publication that is marked has been routed: until the messages about it are answered, a
    /// restart is to give it in place of the groups that have not. That there are any is known only
    /// now; it is stored together with the publication, like all that one input leads to.
    pub(crate) fn note_groups(&mut self, position: Position, token: Option<u64>) -> StoreId {
        let Some(unsettled) = token.and_then(|token| self.unsettled.get_mut(&token)) else {
            self.ask(Record::DeliveriesComplete { position });
            return StoreId::NOTHING;
        };
        unsettled.groups = Some(position);
        self.ask(Record::DeliveriesExpected { position })
    }

    /// The session or the will of this client is over with what was asked for last: the client is
    /// not answered that it has none before that is stored.
    pub(crate) fn end_client(&mut self, client_id: Arc<str>) -> StoreId {
        self.ended.push_back((self.asked, client_id));
        self.asked
    }

    /// The will of this client stays on disk until the restart: the client is not let in before.
    pub(crate) fn block(&mut self, client_id: Arc<str>) {
        self.ended.push_back((StoreId::NEVER, client_id));
    }

    /// Whether something of this client is on disk that should not be.
    pub(crate) fn blocks(&self, client_id: &Arc<str>) -> bool {
        self.resumed > self.stored || self.ended.iter().any(|(_, ended)| ended == client_id)
    }

    /// What CONNACK waits for: `asked` for its session; and where it says that the client had none,
    /// that this one has ended on disk.
    pub(crate) fn before_connack(&self, asked: StoreId, present: bool) -> StoreId {
        // Where the store has failed no client is let in of which this is true.
        let ended = self.ended.back().filter(|_| !present && !self.has_failed());
        let ended = ended.map_or(StoreId::NOTHING, |(asked, _)| *asked);
        asked.max(ended).max(self.resumed)
    }

    /// This run goes on with what an earlier one has left, or begins epochs from this floor on.
    pub(crate) fn resume_lanes(&mut self, floor: u32) {
        self.resumed = self.ask(Record::LanesResumed { floor });
    }

    /// The store takes nothing any more.
    pub(crate) fn fail(&mut self, cause: Arc<str>) {
        self.failed.get_or_insert(cause);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Why the store takes nothing any more, if so.
    pub(crate) fn failure(&self) -> Option<&Arc<str>> {
        self.failed.as_ref()
    }

    pub(crate) fn log_ends(&self) -> &LogEnds {
        &self.log_ends
    }

    /// What is in each log when the broker starts.
    pub(crate) fn restore_log_ends(&mut self, ends: Frontier) {
        self.scan.restore(ends.clone());
        self.log_ends.restore(ends);
    }

    /// Where the logs ended when publishers moved to other logs, the oldest first.
    pub(crate) fn restore_moves(&mut self, moves: Arc<[Frontier]>) {
        self.log_ends.restore_moves(moves);
    }

    /// The log of another shard has a message at this place.
    pub(crate) fn note_log_end(&mut self, position: Position) {
        self.log_ends.note(position);
    }

    /// The log of another shard is on disk up to here.
    pub(crate) fn note_on_disk(&mut self, position: Position) {
        self.log_ends.note_on_disk(position);
    }

    pub(crate) fn reads(&self) -> &Reads {
        &self.reads
    }

    /// The answer to a read has come, whether or not its session waits for it.
    pub(crate) fn finish_read(&mut self, token: u64) -> Purpose {
        self.reads.finish(token)
    }

    pub(crate) fn retention(&self) -> &Retention {
        &self.retention
    }

    pub(crate) fn retention_mut(&mut self) -> &mut Retention {
        &mut self.retention
    }

    /// The store is full: releases the oldest part of what waits.
    pub(crate) fn release_oldest(&mut self, size: &StoreSize) {
        self.retention.release(self.log_ends.all(), size);
    }

    /// The next session that has something to drop, if its logs may be read now.
    pub(crate) fn next_overdue(&mut self) -> Option<SessionId> {
        let may_read = self.reads.have_room(Purpose::Retention);
        may_read.then(|| self.retention.next_overdue()).flatten()
    }

    pub(crate) fn scan(&self) -> &RecoveryScan {
        &self.scan
    }

    pub(crate) fn scan_mut(&mut self) -> &mut RecoveryScan {
        &mut self.scan
    }

    /// Whether the recovery scan is to be scheduled.
    pub(crate) fn schedule_scan(&mut self) -> bool {
        !self.reads.any(Purpose::RecoveryScan) && self.scan.schedule()
    }

    /// The next session to scan, if its logs may be read now.
    pub(crate) fn next_to_scan(&mut self) -> Option<SessionId> {
        let may_read = self.reads.have_room(Purpose::RecoveryScan);
        may_read.then(|| self.scan.take_next()).flatten()
    }

    pub(crate) fn qos2_pending(&self) -> &Qos2Pending {
        &self.qos2_pending
    }

    pub(crate) fn qos2_pending_mut(&mut self) -> &mut Qos2Pending {
        &mut self.qos2_pending
    }

    /// Bytes of messages that were appended since progress of sessions was stored.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// Progress of sessions is being stored.
    pub(crate) fn note_progress(&mut self) {
        self.appended_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ConnectionId;

    fn gate() -> CommitGate {
        CommitGate::new(ShardId(0))
    }

    fn ask(gate: &mut CommitGate) -> StoreId {
        let client_id = Arc::from("a");
        gate.ask(Record::WillOver { client_id })
    }

    fn packets(index: u32) -> Waiter {
        Waiter::Packets(ConnectionId { index, serial: 0 })
    }

    fn woken(gate: &mut CommitGate) -> Vec<Waiter> {
        std::iter::from_fn(|| gate.pop_woken()).collect()
    }

    #[test]
    fn waiters_are_woken_in_the_order_of_the_requests() {
        let mut gate = gate();
        let [first, second, third] = [(); 3].map(|()| ask(&mut gate));
        for (request, index) in [(first, 1), (third, 3), (second, 2)] {
            let until = WaitFor::stored(request);
            assert!(!gate.is_met(until));
            assert_eq!(gate.wake_when(until, packets(index)), None);
        }
        gate.on_stored(second);
        assert_eq!(woken(&mut gate), [packets(1), packets(2)]);
        assert!(gate.is_met(WaitFor::stored(second)));
        gate.on_stored(third);
        assert_eq!(woken(&mut gate), [packets(3)]);
        let waiter = gate.wake_when(WaitFor::stored(third), packets(4));
        assert_eq!(waiter, Some(packets(4)), "that is true already");
    }

    #[test]
    fn what_waits_for_both_is_woken_by_the_later() {
        for stored_first in [true, false] {
            let mut gate = gate();
            let stored = ask(&mut gate);
            gate.expect(7, None);
            gate.expect(7, None);
            let settled = Some(7);
            let until = WaitFor { stored, settled };
            assert_eq!(gate.wake_when(until, packets(1)), None);
            assert_eq!(gate.on_settled(7), None, "one is not answered");
            if stored_first {
                gate.on_stored(stored);
                assert_eq!(woken(&mut gate), []);
                assert_eq!(gate.on_settled(7), Some(packets(1)));
            } else {
                assert_eq!(gate.on_settled(7), None);
                gate.on_stored(stored);
                assert_eq!(woken(&mut gate), [packets(1)]);
            }
            assert!(gate.is_met(until));
        }
    }

    #[test]
    fn a_client_waits_for_the_end_of_its_last_session_only_if_it_has_none() {
        let mut gate = gate();
        let client_id: Arc<str> = Arc::from("a");
        let ended = ask(&mut gate);
        assert_eq!(gate.end_client(Arc::clone(&client_id)), ended);
        assert!(gate.blocks(&client_id));
        let nothing = StoreId::NOTHING;
        assert_eq!(gate.before_connack(nothing, false), ended);
        assert_eq!(gate.before_connack(nothing, true), nothing);
        gate.on_stored(ended);
        assert!(!gate.blocks(&client_id));
        assert_eq!(gate.before_connack(nothing, false), nothing);
    }

    #[test]
    fn requests_of_a_failed_store_are_numbered_and_go_nowhere() {
        let mut gate = gate();
        let before = ask(&mut gate);
        assert!(matches!(gate.next_request(), Some(Request::Store(_))));
        gate.fail("disk".into());
        gate.fail("a later error".into());
        assert!(ask(&mut gate) > before);
        assert!(!gate.has_requests());
        assert_eq!(gate.failure().map(|cause| &**cause), Some("disk"));
    }
}
