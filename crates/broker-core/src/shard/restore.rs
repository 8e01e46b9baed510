//! A shard as the disk had it: sessions and retained messages of an earlier run.
//!
//! Sessions and subscriptions beyond the limits are kept: they were promised, and nobody else is
//! let in before some have ended.
//!
//! A store may have less than its broker had told ([`Shard::restore_gaps`]). Its clients then know
//! packet ids that it does not: they have released ids that it has marked, so DUP decides what is a
//! repetition, and they have ids from it that it never gave, so it goes on far away from those.
//!
//! Before the first input, in this order: [`Shard::restore_tails`], moves, gaps, then sessions,
//! lanes, wills, what ended sessions left to their groups, and retained messages. What a session
//! waits for stays on disk until its client comes: however much that is, it costs nothing to begin
//! with. It is counted afterwards (`durability::recovery_scan`).
//!
//! A client that was connected when the broker stopped has lost its connection with it: its will,
//! its delay and the end of its session count from the restart. Of one that was away before, they
//! go on. What is due at once is published when this shard knows what the others want.
//!
//! The disk is told late what a client was sent at QoS 1 and has acknowledged. So one that was
//! connected gets with DUP what it finds in the log, and may have had already [MQTT-3.3.1-1], also
//! if the broker is started again before it comes.
//!
//! Which lanes of the audit go on, and how: [`crate::audit::clean_shutdown`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::session::{Entry as InFlight, Inbound};
use unbroken_mqtt_proto::{PacketId, QoS, SubscriptionFilter};

use super::close::GRACE;
use crate::audit::watch::Topics;
use crate::durability::{Entry, LaneState, MaybeSent, ReceivedEntry, StoredSubscription, Will};
use crate::filter_size::FilterSize;
use crate::ids::{HandOver, SessionId};
use crate::mesh::MeshMessage;
use crate::message::Message;
use crate::placement;
use crate::position::{Frontier, Position};
use crate::reason::DropReason;
use crate::routing::Grant;
use crate::session::{Backlog, Delivery, Kept, Session};
use crate::shard::Shard;
use crate::shared::Duty;
use crate::telemetry::Telemetry;
use crate::timers::Timer;

/// A session as the disk had it.
#[derive(Clone, Debug)]
pub struct RestoredSession {
    /// Whose.
    pub client_id: Arc<str>,
    /// Seconds it outlives its connection; `u32::MAX` is without end.
    pub expiry_s: u32,
    /// The user whose it is, if that is known.
    pub user: Option<Arc<str>>,
    /// For how long its client has been away; `None` if it was connected when the broker stopped.
    pub away: Option<Duration>,
    /// The mount of its client, if it had one.
    pub mount: Option<Box<str>>,
    /// Its will, if that was not published.
    pub will: Option<Will>,
    /// Its subscriptions, with those that have ended.
    pub subscriptions: Vec<StoredSubscription>,
    /// All up to here was given a packet id, is among the entries, or is not for it.
    pub through: Frontier,
    /// What it was given and has not done with, in the order of the numbers.
    pub entries: Vec<RestoredEntry>,
    /// What it may have been sent before the broker was started the last time.
    pub maybe_sent: MaybeSent,
    /// Messages of QoS 2 that came from it and are not released.
    pub markers: Vec<PacketId>,
}

/// Something that a session was given and has not done with.
#[derive(Clone, Debug)]
pub enum RestoredEntry {
    /// A message; with a packet id it may have been sent.
    Given(Entry),
    /// PUBREC came: only PUBREL is to be sent.
    Received(ReceivedEntry),
    /// It is over, and lies above *through*: it is not to be given again when the log is read.
    Done {
        /// The number of the entry.
        number: u64,
        /// Where its message is.
        position: Position,
    },
}

impl RestoredEntry {
    /// It has no packet id yet.
    fn waits(&self) -> bool {
        matches!(self, Self::Given(entry) if entry.packet_id.is_none())
    }

    /// Its packet id and its number, if it has both.
    fn under_id(&self) -> Option<(PacketId, u64)> {
        match self {
            Self::Given(entry) => Some((entry.packet_id?, entry.number)),
            Self::Received(entry) => Some((entry.packet_id, entry.number)),
            Self::Done { .. } => None,
        }
    }

    /// Where its message is, if a subscription could find it there.
    fn position(&self) -> Option<Position> {
        match self {
            Self::Given(entry) => entry.message.position().filter(|_| !entry.by_group),
            Self::Received(entry) => entry.position.filter(|_| !entry.by_group),
            Self::Done { position, .. } => Some(*position),
        }
    }
}

/// A message that a session which has ended had from a group, and that nobody has had since.
#[derive(Clone, Debug)]
pub struct RestoredHandOver {
    /// Its name.
    pub hand_over: HandOver,
    /// The group, as its filter is written.
    pub group: Arc<str>,
    /// The message.
    pub message: Arc<Message>,
}

/// Why something cannot be restored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// What cannot be true of one session, such as that it is there twice.
    #[error("session {client_id}: {what}")]
    Contradiction {
        /// Whose session.
        client_id: Arc<str>,
        /// What does not go together.
        what: &'static str,
    },
}

/// What was restored, and what of that begins when this shard knows what the others want.
#[derive(Debug, Default)]
pub(super) struct Revived {
    /// As [`Shard::restore_gaps`] said.
    gaps: u64,
    /// All shards have answered this.
    barrier: u64,
    timers: Vec<(Instant, Timer)>,
    hand_overs: Vec<RestoredHandOver>,
}

impl Shard {
    /// Says what is in each log. The shard goes on behind what is in its own.
    pub fn restore_tails(&mut self, tails: Frontier) {
        self.gate.restore_log_ends(tails);
    }

    /// Says where publishers have moved to other logs, the oldest first: of each such moment what
    /// was in each log, and is still. What is within comes to a session before what is not.
    pub fn restore_moves(&mut self, moves: Arc<[Frontier]>) {
        self.gate.restore_moves(moves);
    }

    /// Says that a broker may have begun with less in this store than it had told, as after a power
    /// cut where commits are not synced: 0 if none has, and another number after each such
    /// beginning.
    pub fn restore_gaps(&mut self, gaps: u64) {
        self.revived.gaps = gaps;
    }

    /// Whether the session of this client lives on this shard.
    pub fn is_home_of(&self, client_id: &str) -> bool {
        placement::of_client(client_id, self.options.shards) == self.options.id
    }

    /// Whether this shard keeps the retained message of this topic.
    pub fn keeps_retained(&self, topic: &str) -> bool {
        placement::of_topic(topic, self.options.shards) == self.options.id
    }

    /// Goes on with a session whose client is not here.
    pub fn restore_session(
        &mut self,
        now: Instant,
        restored: RestoredSession,
    ) -> Result<(), RestoreError> {
        let client_id = Arc::clone(&restored.client_id);
        let contradiction = |what| RestoreError::Contradiction {
            client_id: Arc::clone(&client_id),
            what,
        };
        if self.sessions.find(&client_id).is_some() {
            return Err(contradiction("it is there twice"));
        }
        let id = self.old_session(&client_id);
        self.restore_mount(id, restored.mount.as_deref());
        let absence = self.numbers.issue();
        let Self {
            sessions,
            telemetry,
            gate,
            audit,
            ..
        } = self;
        let Some(session) = sessions.get_mut(id) else {
            return Ok(());
        };
        let was_here = restored.away.is_none();
        let away = restored.away.unwrap_or_default();
        session.set_expiry(restored.expiry_s);
        session.set_user(restored.user);
        session.restore_will(restored.will);
        session.inbound = match self.revived.gaps {
            0 => Inbound::restore(restored.markers),
            _ => Inbound::restore_doubted(restored.markers),
        };
        let through = restored.through;
        let mut kept = Kept::new(through.clone());
        // A client that was connected may have been sent all.
        let maybe_sent = restored.maybe_sent;
        let sent_entries = maybe_sent.entries_of(was_here);
        let (in_flight, positions) = restore_entries(
            session,
            &mut kept,
            telemetry,
            audit.topics(),
            restored.entries,
            sent_entries,
        );
        session
            .outbox
            .restore(in_flight)
            .map_err(|_| contradiction("two messages have one packet id"))?;
        if self.revived.gaps > 0 {
            let newest = session.outbox.newest();
            session
                .outbox
                .go_on_behind(far_away(self.revived.gaps, newest));
        }
        kept.subscriptions = restored.subscriptions.iter().cloned().collect();
        let since = now.checked_sub(away).unwrap_or(now);
        session.begin_absence(Some(since), absence);
        let backlog = if through.reaches(gate.scan().ends()) {
            Backlog::from(through)
        } else {
            Backlog::restored(through, positions, since)
        };
        kept.backlog = Some(Box::new(backlog));
        kept.restore_redelivery(maybe_sent, was_here.then(|| gate.scan().ends()));
        session.restore(kept);
        for subscription in restored.subscriptions {
            if subscription.until.is_none() {
                self.restore_subscription(now, id, &subscription, &client_id)?;
            }
        }
        self.begin_restored(now, id, was_here, away);
        Ok(())
    }

    /// Goes on with a session that is there again.
    fn begin_restored(&mut self, now: Instant, id: SessionId, was_here: bool, away: Duration) {
        self.announcer().announce_to_groups(id, false);
        self.schedule_end(id, now + GRACE);
        self.revive_will(now, id, away);
        if was_here {
            // From now on it is away.
            self.sessions.touch_presence(id);
            self.schedule_progress(now);
        }
        let Self { sessions, gate, .. } = self;
        if let Some(session) = sessions.get_mut(id) {
            session.list_for_scan(id, gate.scan_mut());
        }
        self.sessions.note_fill(&self.options.limits, id);
        self.schedule_scan(now);
        let sessions = self.sessions.len();
        self.telemetry.note_sessions(sessions);
    }

    /// Goes on with the will of a client whose session has ended with its connection, when the
    /// broker stopped.
    pub fn restore_will(
        &mut self,
        now: Instant,
        client_id: &Arc<str>,
        will: Will,
    ) -> Result<(), RestoreError> {
        if self.sessions.find(client_id).is_some() {
            return Err(RestoreError::Contradiction {
                client_id: Arc::clone(client_id),
                what: "its will is there twice",
            });
        }
        let id = self.old_session(client_id);
        let absence = self.numbers.issue();
        if let Some(session) = self.sessions.get_mut(id) {
            session.begin_absence(None, absence);
            session.restore_will(Some(will));
        }
        let session = id;
        self.revive(now, now, Timer::SessionExpiry { session, absence });
        Ok(())
    }

    /// Goes on with what a session that has ended has left to a group: another member gets it when
    /// the shard of the group knows its members. Every shard is told.
    pub fn restore_hand_over(&mut self, now: Instant, restored: &RestoredHandOver) {
        self.groups.note_hand_over(restored.hand_over);
        if placement::of_hand_over(restored.hand_over, self.options.shards) == self.options.id {
            let position = restored.message.position();
            self.groups.hold_hand_over(restored.hand_over, position);
        }
        let Ok(SubscriptionFilter::Shared { group, filter }) =
            SubscriptionFilter::parse(&restored.group)
        else {
            return;
        };
        if placement::of_group(group, filter.as_str(), self.options.shards) == self.options.id {
            self.await_others(now);
            self.revived.hand_overs.push(restored.clone());
        }
    }

    /// A client comes whose last session was over with the broker: its will is due, if it was not
    /// yet published.
    pub(crate) fn end_orphan(&mut self, now: Instant, client_id: &Arc<str>) {
        let Some(id) = self.sessions.find(client_id) else {
            return;
        };
        let is_orphan = |session: &Session| !session.is_connected() && session.expiry_s() == 0;
        if self.sessions.get(id).is_some_and(is_orphan) {
            self.end_session(now, id, DropReason::SessionEnded);
        }
    }

    /// Sets the time of a restored will. Its client could not come while the broker was down: it
    /// may for a moment, or for the delay if that is shorter.
    fn revive_will(&mut self, now: Instant, id: SessionId, away: Duration) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let (expiry_s, absence) = (session.expiry_s(), session.absence());
        let Some(will) = session.will() else { return };
        if will.delay_s < expiry_s || expiry_s == u32::MAX {
            let delay = Duration::from_secs(will.delay_s.into());
            let at = now + delay.saturating_sub(away).max(delay.min(GRACE));
            let session = id;
            self.revive(now, at, Timer::Will { session, absence });
        }
        // Otherwise the end of the session publishes it.
    }

    /// Sets a timer as soon as this shard knows what the others want: their message that says so is
    /// before the answer to a question of this one.
    fn revive(&mut self, now: Instant, at: Instant, timer: Timer) {
        self.await_others(now);
        self.revived.timers.push((at, timer));
    }

    fn await_others(&mut self, now: Instant) {
        if self.revived.barrier == 0 && self.options.shards > 1 {
            let barrier = self.mesh.issue_barrier();
            self.revived.barrier = barrier;
            let mesh = &mut self.mesh;
            mesh.broadcast(|| MeshMessage::BarrierAsked { barrier });
        }
        self.timers.set(now, Timer::Revive);
    }

    /// Begins what waits for all shards, if it need not wait any more.
    pub(crate) fn begin_revived(&mut self, now: Instant) {
        if self.mesh.reached_barrier() < self.revived.barrier {
            return;
        }
        for (at, timer) in self.revived.timers.drain(..) {
            self.timers.set(at, timer);
        }
        for restored in std::mem::take(&mut self.revived.hand_overs) {
            let duty = Duty::HandedOver(restored.hand_over);
            self.hand_on(now, &restored.group, &restored.message, duty);
        }
    }

    fn restore_subscription(
        &mut self,
        now: Instant,
        id: SessionId,
        subscription: &StoredSubscription,
        client_id: &Arc<str>,
    ) -> Result<(), RestoreError> {
        let Ok(parsed) = SubscriptionFilter::parse(&subscription.filter) else {
            return Err(RestoreError::Contradiction {
                client_id: Arc::clone(client_id),
                what: "a subscription has a filter that is none",
            });
        };
        let size = FilterSize::of(parsed.filter());
        self.options.totals.restore_subscription(size);
        self.telemetry.subscribed();
        let grant = Grant {
            qos: subscription.options.qos,
            no_local: subscription.options.no_local,
            retain_as_published: subscription.options.retain_as_published,
            identifier: subscription.identifier,
        };
        if let Some(session) = self.sessions.get_mut(id) {
            session
                .subscriptions
                .insert(subscription.filter.clone(), grant);
        }
        if let (true, SubscriptionFilter::Plain(filter)) = (subscription.retained_due, &parsed) {
            // All of it, since it is not known how far it was; its SUBACK has left, or will not.
            self.add_query(now, id, *filter, grant, false);
        }
        // Other shards are told before anything can be published there.
        self.put_subscription(id, parsed, grant);
        Ok(())
    }

    /// Goes on with a retained message; one that has expired meanwhile is dropped, and named.
    pub fn restore_retained(&mut self, now: Instant, message: Message) {
        self.keep_retained(now, Arc::new(message));
    }

    /// Goes on with a lane of an earlier run, after its session was restored.
    pub fn restore_lane(&mut self, now: Instant, lane: LaneState) {
        let Self {
            sessions,
            audit,
            telemetry,
            ..
        } = self;
        let Some(id) = sessions.find(lane.client_id()) else {
            return;
        };
        if let Some(session) = sessions.get_mut(id) {
            audit.restore_ingress(telemetry, id, &mut session.ledger, &lane);
        }
        audit.restore_own(telemetry, &lane, false);
        self.auditor(now).carry_out();
    }

    /// What is at rest on disk is void from now on: this run goes on with it. What it begins anew
    /// has epochs from this floor on, which is above that of the run before by
    /// [`EPOCHS_AHEAD_MAX`](crate::EPOCHS_AHEAD_MAX) at least. Every shard asks for that, and
    /// admits no client before.
    pub fn resume_lanes(&mut self, now: Instant, floor: u32) {
        self.timers.set(now, Timer::Ask);
        self.audit.begin_epochs_from(floor);
        self.gate.resume_lanes(floor);
    }

    /// Takes over what an earlier run has stored of a lane while it ran, after lanes at rest: what
    /// was not at rest was cut off by a crash.
    pub fn restore_lane_so_far(&mut self, now: Instant, state: LaneState) {
        let Self {
            sessions,
            audit,
            telemetry,
            ..
        } = self;
        let session = sessions.find_mut(state.client_id());
        let ledger = session.map(|session| &mut session.ledger);
        if ledger.is_some() {
            audit.restore_own(telemetry, &state, true);
        }
        audit.restore_ingress_so_far(telemetry, ledger, &state);
        self.auditor(now).carry_out();
    }
}

/// Gives a session what it was given in an earlier run and has not done with. Answers what of that
/// is in flight, and where in the logs all of it is.
fn restore_entries(
    session: &mut Session,
    kept: &mut Kept,
    telemetry: &mut Telemetry,
    topics: &Topics,
    mut entries: Vec<RestoredEntry>,
    sent_entries: u64,
) -> (Vec<InFlight<Delivery>>, Vec<Position>) {
    let (mut in_flight, mut positions) = (Vec::new(), Vec::new());
    // What may have been sent went before what waits.
    entries.sort_by_key(RestoredEntry::waits);
    // Of two with one id the older is over: its end was on its way to the disk.
    let newest: BTreeMap<PacketId, u64> =
        entries.iter().filter_map(RestoredEntry::under_id).collect();
    for entry in entries {
        let position = entry.position();
        positions.extend(position);
        if let Some((id, number)) = entry.under_id()
            && newest.get(&id).is_some_and(|newest| *newest > number)
        {
            kept.restore_over(number, position);
            continue;
        }
        match entry {
            RestoredEntry::Given(entry) => {
                let mut delivery = Delivery::restore(&entry);
                telemetry.accepted();
                kept.restore_entry(entry.number, entry.packet_id, position);
                if let Some(id) = entry.packet_id {
                    session.accept_sent(topics, telemetry.audit(), &mut delivery);
                    in_flight.push(InFlight::Publish {
                        id,
                        qos: entry.qos,
                        message: delivery,
                    });
                } else {
                    session.accept(topics, telemetry.audit(), &mut delivery);
                    delivery.again = entry.number <= sent_entries && entry.qos == QoS::AtLeastOnce;
                    telemetry.queued(delivery.cost());
                    session.outbox.push(entry.qos, delivery);
                }
            }
            RestoredEntry::Received(entry) => {
                kept.restore_entry(entry.number, Some(entry.packet_id), position);
                in_flight.push(InFlight::PubRel {
                    id: entry.packet_id,
                });
            }
            RestoredEntry::Done { number, position } => {
                kept.restore_done(number, position);
            }
        }
    }
    (in_flight, positions)
}

/// Behind which number packet ids go on. What clients may still have from before a gap follows the
/// newest id that was under way then. So they go on a quarter to three quarters of the range behind
/// the newest that is under way: how far, differs from gap to gap, lest several starts lead around
/// the range and back.
///
/// Where none is under way, it is not known where ids had got to, and they are counted from 0, by a
/// golden section of the range for each gap.
fn far_away(gaps: u64, newest: Option<PacketId>) -> u16 {
    let [high, low, ..] = gaps.wrapping_mul(GOLDEN_SECTION).to_be_bytes();
    let section = u16::from_be_bytes([high, low]);
    match newest {
        Some(newest) => newest.get().wrapping_add(QUARTER + section / 2),
        None => section,
    }
}

/// Of all packet ids.
const QUARTER: u16 = 1 << 14;
/// 2^64 divided by 1.618.
const GOLDEN_SECTION: u64 = 0x9e37_79b9_7f4a_7c15;
