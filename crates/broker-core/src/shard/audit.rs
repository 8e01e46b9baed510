//! What the shard does for the audit: lends it sessions, asks the index for it, and carries out
//! what it returns.

use std::sync::Arc;
use std::time::Instant;

use unbroken_merkle_log::{Epoch, LaneId};
use unbroken_mqtt_proto::PropertyBuf;

use crate::audit::Audit;
use crate::audit::finding::Finding;
use crate::audit::lane::IngressLane;
use crate::audit::owners::{LaneMessage, Sender};
use crate::audit::receipt::News;
use crate::audit::statement;
use crate::audit::verify::LaneSession;
use crate::audit::watch::Wants;
use crate::connection::{Connection, Connections};
use crate::delivery::Item;
use crate::durability::{CommitGate, LaneUser, Record};
use crate::ids::{SessionId, ShardId};
use crate::mesh::{Mesh, MeshMessage};
use crate::message::Publication;
use crate::reason::DropReason;
use crate::routing::Router;
use crate::session::{Session, Sessions};
use crate::telemetry::Telemetry;
use crate::timers::{Timer, Timers};

/// The parts that this is about.
pub(super) struct Auditor<'a> {
    pub(super) now: Instant,
    pub(super) id: ShardId,
    pub(super) stopping: bool,
    pub(super) connections: &'a Connections,
    pub(super) sessions: &'a mut Sessions,
    pub(super) router: &'a mut Router,
    pub(super) gate: &'a mut CommitGate,
    pub(super) audit: &'a mut Audit,
    pub(super) telemetry: &'a mut Telemetry,
    pub(super) mesh: &'a mut Mesh,
    pub(super) timers: &'a mut Timers,
}

impl Auditor<'_> {
    /// Gives an accepted message its number, and its stamp where that is forwarded: then `stamped`
    /// holds its properties.
    pub(super) fn put_mark<'a>(
        &mut self,
        id: SessionId,
        publication: &mut Publication<'a>,
        stamped: &'a mut PropertyBuf,
    ) {
        let Self {
            sessions,
            audit,
            telemetry,
            router,
            stopping: false,
            ..
        } = self
        else {
            return;
        };
        let Some(session) = sessions.get_mut(id) else {
            return;
        };
        let Session {
            client_id, ledger, ..
        } = session;
        let Some(lane) = audit.number(self.now, telemetry, client_id, ledger, publication) else {
            return;
        };
        if audit.is_watched() {
            look_up(lane, router);
            audit.follow_message(id, lane, publication);
        }
        audit.forward_stamp(telemetry, (id, client_id), ledger, publication, stamped);
    }

    /// Judges what a publisher that stamps itself says about its message, and checkpoints. Answers
    /// in whose ledger the message is. `said_on`: what the publisher calls its topic.
    pub(super) fn verify_publisher(
        &mut self,
        id: SessionId,
        again: bool,
        publication: &Publication<'_>,
        said_on: &str,
    ) -> Option<(LaneId, Epoch)> {
        if !self.audit.says_something(publication, said_on) {
            return None;
        }
        let sender = self.sender(id)?;
        let Self {
            sessions,
            audit,
            telemetry,
            ..
        } = self;
        let ledger = &sessions.get(id)?.ledger;
        audit.verify_publisher(telemetry, &sender, ledger, again, publication, said_on)
    }

    /// Whether a message is of a lane of another user, whose clients alone may send it.
    #[inline]
    pub(super) fn is_another_users(
        &self,
        id: SessionId,
        publication: &Publication<'_>,
        said_on: &str,
    ) -> bool {
        self.audit.knows_owners()
            && self.audit.says_something(publication, said_on)
            && self.sender(id).is_some_and(|sender| {
                let said = publication.on(said_on);
                self.audit.is_another_users(&sender, &said)
            })
    }

    /// A message is refused. If it is of a lane of another user its sender is named.
    #[cold]
    pub(super) fn name_other_user(&mut self, id: SessionId, publication: &Publication<'_>) {
        let Some((sender, session)) = self.sender(id).zip(self.sessions.get(id)) else {
            return;
        };
        let said = publication.on(session.own_topic(publication.topic));
        if self.audit.says_something(publication, said.topic) {
            let Self {
                audit, telemetry, ..
            } = self;
            audit.name_other_user(telemetry, &sender, &said);
        }
    }

    /// A message is not taken in: of a publisher that stamps itself it is not lost, it is refused.
    #[cold]
    pub(super) fn note_refused(
        &mut self,
        id: SessionId,
        publication: &Publication<'_>,
        reason: DropReason,
    ) {
        let sender = self.sender(id);
        let Self {
            sessions,
            audit,
            telemetry,
            ..
        } = self;
        if let Some((sender, session)) = sender.zip(sessions.get(id)) {
            let said = (publication, session.own_topic(publication.topic));
            audit.note_refused(telemetry, &sender, &session.ledger, said, reason);
        }
    }

    /// The client of this session, and the user as whom it was let in.
    fn sender(&self, id: SessionId) -> Option<Sender> {
        let session = self.sessions.get(id)?;
        let connection = session
            .connection()
            .and_then(|index| self.connections.at(index));
        Some(Sender {
            client_id: Arc::clone(&session.client_id),
            user: match connection.map(Connection::user) {
                None => LaneUser::Unknown,
                Some(None) => LaneUser::Anonymous,
                Some(Some(name)) => LaneUser::Named(Arc::clone(name)),
            },
        })
    }

    /// A message of this session was routed. If it is stored, so is how far its lanes are: that of
    /// the session, if its stamps are forwarded, and the one that its publisher stamps.
    #[inline]
    pub(super) fn note_lane_snapshot(
        &mut self,
        id: SessionId,
        item: &Item<'_>,
        own: Option<(LaneId, Epoch)>,
    ) {
        if item.position().is_none() {
            return;
        }
        if let Some(own) = own {
            self.audit.note_stored(own);
        }
        if let Some(session) = self.sessions.get_mut(id)
            && let Some(record) = session.ledger.lane_so_far(&session.client_id)
        {
            self.gate.ask(record);
        }
    }

    /// A session has ended, and its lane with it.
    pub(super) fn end_lane(&mut self, client_id: &Arc<str>, lane: Option<Box<IngressLane>>) {
        self.audit.end_lane(self.now, client_id, lane);
        self.carry_out();
    }

    /// Another shard has sent something about lanes.
    pub(super) fn take_lane_message(&mut self, from: ShardId, message: LaneMessage) {
        let Self {
            audit, telemetry, ..
        } = self;
        audit.take_lane_message(telemetry, from, message);
    }

    #[cold]
    pub(super) fn name_finding(&mut self, finding: Finding) {
        match finding {
            Finding::Fault {
                place,
                kind,
                first,
                count,
            } => {
                let Self {
                    audit, telemetry, ..
                } = self;
                audit.name_fault(telemetry, place, kind, first, count);
            }
            Finding::News {
                publisher,
                epoch,
                number,
                news,
            } => {
                let home = self.audit.home_of(&publisher);
                if home == self.id {
                    return self.take_news(&publisher, epoch, number, news);
                }
                let message = MeshMessage::News {
                    publisher,
                    epoch,
                    number,
                    news,
                };
                self.mesh.send(home, message);
            }
        }
    }

    /// What became known of a message of a client of this shard.
    pub(super) fn take_news(
        &mut self,
        publisher: &Arc<str>,
        epoch: Epoch,
        number: u64,
        news: News,
    ) {
        let Self {
            sessions, audit, ..
        } = self;
        let session = sessions.find_mut(publisher);
        let lane = session.and_then(|session| session.ledger.lane_mut());
        audit.take_news(self.now, lane, publisher, epoch, number, news);
    }

    /// As [`carry_out`].
    pub(super) fn carry_out(&mut self) {
        let Self {
            audit,
            mesh,
            gate,
            timers,
            ..
        } = self;
        carry_out(self.now, audit, mesh, gate, timers);
    }

    /// Reports the states that have changed, and forgets what is not followed any more.
    pub(super) fn tick_audit(&mut self) {
        let Self {
            sessions,
            audit,
            router,
            ..
        } = self;
        let mut followed = audit.take_followed();
        followed.retain(|id| {
            let session = sessions.get_mut(*id);
            let Some(lane) = session.and_then(|session| session.ledger.lane_mut()) else {
                return false;
            };
            look_up(lane, router);
            audit.tick_followed(self.now, lane)
        });
        audit.keep_following(followed);
        audit.tick_over(self.now);
        self.report_accounts();
    }

    /// Reports the accounts that are watched.
    fn report_accounts(&mut self) {
        let Self {
            sessions,
            audit,
            gate,
            ..
        } = self;
        if audit.watches_all_accounts() {
            for client_id in sessions.client_ids() {
                if !audit.watch_account(client_id) {
                    break;
                }
            }
        }
        let mut last: Option<Box<str>> = None;
        while let Some(client_id) = audit.next_account(last.as_deref()) {
            let session = sessions.find(&client_id).and_then(|id| sessions.get(id));
            let text = match session {
                None => statement::no_account(&client_id),
                Some(session) => {
                    let kept = session.kept.as_deref();
                    let behind = kept.and_then(|kept| kept.backlog.as_deref());
                    statement::account(
                        &client_id,
                        &session.ledger,
                        session.is_connected(),
                        behind.map_or(0, |behind| behind.messages),
                        session.unstored(gate.log_ends().on_disk()),
                    )
                }
            };
            audit.report_account(&client_id, text, session.is_some());
            last = Some(client_id);
        }
    }

    /// Moves the clocks of the lanes on whose publishers are connected, and stores how far
    /// their ledgers are.
    pub(super) fn tick_publishers(&mut self) {
        let Self {
            audit, telemetry, ..
        } = self;
        let since = audit.begin_lanes_tick(self.now, telemetry);
        let mut last = None;
        while let Some((key, client_id)) = self.audit.next_lane(last) {
            let session = self.lane_session(client_id);
            let Self {
                audit, telemetry, ..
            } = self;
            audit.tick_lane(key, session, since, telemetry);
            last = Some(key);
        }
        self.store_ledgers();
        if let Some(at) = self.audit.end_lanes_tick(self.now) {
            self.timers.set(at, Timer::Publishers);
        }
    }

    fn lane_session(&self, client_id: &Arc<str>) -> Option<LaneSession> {
        let sessions = &self.sessions;
        let session = sessions.get(sessions.find(client_id)?)?;
        Some(LaneSession {
            is_connected: session.is_connected(),
            is_durable: session.is_durable(),
        })
    }

    /// Stores how far the ledgers are of persistent sessions, where messages were stored.
    fn store_ledgers(&mut self) {
        while let Some((key, client_id)) = self.audit.next_unstored_lane() {
            let session = self.lane_session(&client_id);
            let is_durable = session.is_some_and(|session| session.is_durable);
            if let Some(record) = self.audit.lane_so_far(key, is_durable) {
                self.gate.ask(record);
            }
        }
    }

    /// The broker stops, and numbers nothing any more.
    pub(super) fn lay_lanes_to_rest(&mut self) {
        debug_assert!(self.stopping, "a lane that goes on is not at rest");
        // Those that are not at rest, because they are not exact, go on as after a crash.
        self.store_ledgers();
        let mut at_rest = Vec::new();
        for (_, session) in self.sessions.iter() {
            if let Some(lane) = session.ledger.lane().filter(|_| session.is_durable()) {
                at_rest.push(lane.state(Arc::clone(&session.client_id)));
            }
        }
        let mut last = None;
        while let Some((key, client_id)) = self.audit.next_lane(last) {
            let session = self.lane_session(client_id);
            if session.is_some_and(|session| session.is_durable) {
                at_rest.extend(self.audit.lane_at_rest(key));
            }
            last = Some(key);
        }
        for lane in at_rest {
            self.gate.ask(Record::LaneClosed(lane));
        }
    }
}

/// Sends what other shards are to hear, asks for what the disk is to have, and sets the times.
pub(super) fn carry_out(
    now: Instant,
    audit: &mut Audit,
    mesh: &mut Mesh,
    gate: &mut CommitGate,
    timers: &mut Timers,
) {
    while let Some((to, message)) = audit.take_message() {
        mesh.send(to, MeshMessage::Lane(message));
    }
    while let Some(record) = audit.take_record() {
        gate.ask(record);
    }
    if let Some(at) = audit.next_tick(now) {
        timers.set(at, Timer::Audit);
    }
    if let Some(at) = audit.next_lanes_tick(now) {
        timers.set(at, Timer::Publishers);
    }
}

/// Looks up what is wanted of this lane, if subscriptions have changed since the last time.
fn look_up(lane: &mut IngressLane, router: &mut Router) {
    if lane.was_looked_up(router.generation()) {
        return;
    }
    let mut wants = Wants::default();
    for (what, wanted) in Wants::ALL {
        if router.has_route(&lane.topic(what)) {
            wants.add(wanted);
        }
    }
    lane.set_wants(router.generation(), wants);
}
