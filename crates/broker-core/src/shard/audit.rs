//! What the shard does for the audit: lends it sessions, asks the index for it, and carries out
//! what it returns.

use std::sync::Arc;
use std::time::Instant;

use unbroken_merkle_log::{Epoch, LaneId};
use unbroken_mqtt_proto::PropertyBuf;

use super::Shard;
use crate::audit::finding::Finding;
use crate::audit::lane::IngressLane;
use crate::audit::owners::{LaneMessage, Sender, User};
use crate::audit::receipt::News;
use crate::audit::statement;
use crate::audit::verify::LaneSession;
use crate::audit::watch::Wants;
use crate::connection::Connection;
use crate::delivery::Item;
use crate::durability::{LaneState, Record};
use crate::ids::{SessionId, ShardId};
use crate::mesh::MeshMessage;
use crate::message::Publication;
use crate::reason::DropReason;
use crate::routing::Router;
use crate::session::Session;
use crate::shard::Clients;
use crate::timers::Timer;

impl Shard {
    /// Gives an accepted message its number, and its stamp where that is forwarded: then `stamped`
    /// holds its properties.
    pub(crate) fn put_mark<'a>(
        &mut self,
        now: Instant,
        id: SessionId,
        publication: &mut Publication<'a>,
        stamped: &'a mut PropertyBuf,
    ) {
        let Self {
            clients, router, ..
        } = self;
        let Clients {
            sessions,
            audit,
            telemetry,
            stopping: false,
            ..
        } = clients
        else {
            return;
        };
        let Some(session) = sessions.get_mut(id) else {
            return;
        };
        let Session {
            client_id, ledger, ..
        } = session;
        let Some(lane) = audit.number(now, telemetry, client_id, ledger, publication) else {
            return;
        };
        if audit.is_watched() {
            look_up(lane, router);
            audit.follow_message(id, lane, publication);
        }
        audit.forward_stamp(telemetry, (id, client_id), ledger, publication, stamped);
    }

    /// Judges what a publisher that stamps itself says about its message, and checkpoints. Answers
    /// in whose ledger the message is.
    pub(crate) fn verify_publisher(
        &mut self,
        id: SessionId,
        again: bool,
        publication: &Publication<'_>,
    ) -> Option<(LaneId, Epoch)> {
        if !self.clients.audit.says_something(publication) {
            return None;
        }
        let sender = self.sender(id)?;
        let Clients {
            sessions,
            audit,
            telemetry,
            ..
        } = &mut self.clients;
        let ledger = &sessions.get(id)?.ledger;
        audit.verify_publisher(telemetry, &sender, ledger, again, publication)
    }

    /// A message is not taken in: of a publisher that stamps itself it is not lost, it is refused.
    #[cold]
    pub(crate) fn note_refused(
        &mut self,
        id: SessionId,
        publication: &Publication<'_>,
        reason: DropReason,
    ) {
        let sender = self.sender(id);
        let Clients {
            sessions,
            audit,
            telemetry,
            ..
        } = &mut self.clients;
        if let Some((sender, session)) = sender.zip(sessions.get(id)) {
            audit.note_refused(telemetry, &sender, &session.ledger, publication, reason);
        }
    }

    /// The client of this session, and the user as whom it was let in.
    fn sender(&self, id: SessionId) -> Option<Sender> {
        let session = self.clients.sessions.get(id)?;
        let connection = session
            .connection
            .and_then(|index| self.clients.connections.at(index));
        Some(Sender {
            client_id: Arc::clone(&session.client_id),
            user: match connection.map(Connection::user) {
                None => User::Unknown,
                Some(None) => User::Anonymous,
                Some(Some(name)) => User::Named(Arc::clone(name)),
            },
        })
    }

    /// A message of this session was routed. If it is stored, so is how far its lanes are: that of
    /// the session, if its stamps are forwarded, and the one that its publisher stamps.
    #[inline]
    pub(crate) fn note_lane_snapshot(
        &mut self,
        id: SessionId,
        item: &Item<'_>,
        own: Option<(LaneId, Epoch)>,
    ) {
        if item.position().is_none() {
            return;
        }
        if let Some(own) = own {
            self.clients.audit.note_stored(own);
        }
        if let Some(session) = self.clients.sessions.get_mut(id)
            && let Some(record) = session.ledger.lane_so_far(&session.client_id)
        {
            self.clients.gate.ask(record);
        }
    }

    /// A session has ended, and its lane with it.
    pub(crate) fn end_lane(
        &mut self,
        now: Instant,
        client_id: &Arc<str>,
        lane: Option<Box<IngressLane>>,
    ) {
        self.clients.audit.end_lane(now, client_id, lane);
        self.carry_out_audit(now);
    }

    /// A filter has come into the index, or gone.
    pub(crate) fn note_filter(&mut self, filter: &str, came: bool) {
        self.clients.audit.note_filter(filter, came);
    }

    /// Names and passes on what was found, and publishes what is to be reported.
    pub(crate) fn settle_audit(&mut self, now: Instant) {
        loop {
            self.name_findings(now);
            // What is on its way to those who get a report leads to more reports.
            let reports = self.clients.audit.take_reports();
            if reports.is_empty() || self.clients.stopping {
                break;
            }
            for report in reports {
                let mut item = Item::borrowed(report.publication(now), None);
                self.route(now, &mut item, None);
                item.finish(&mut self.clients.deliveries);
            }
        }
        self.carry_out_audit(now);
    }

    /// What became known of a message that was routed, if it is followed; and what was found on the
    /// way.
    #[inline]
    pub(crate) fn pass_on_news(&mut self, now: Instant, item: &Item<'_>, news: News) {
        item.news(news, self.clients.audit.findings());
        self.name_findings(now);
    }

    /// Looks whether a message that came from another shard is the one that was accepted there.
    pub(crate) fn check_unaltered(
        &mut self,
        publication: &Publication<'_>,
        publisher: Option<&Arc<str>>,
    ) {
        let audit = &mut self.clients.audit;
        audit.check_unaltered(publication, publisher);
    }

    /// Another shard has sent something about lanes.
    pub(crate) fn take_lane_message(&mut self, from: ShardId, message: LaneMessage) {
        let Clients {
            audit, telemetry, ..
        } = &mut self.clients;
        audit.take_lane_message(telemetry, from, message);
    }

    /// Names and passes on what was found.
    #[inline]
    fn name_findings(&mut self, now: Instant) {
        while let Some(finding) = self.clients.audit.take_finding() {
            self.name_finding(now, finding);
        }
    }

    #[cold]
    fn name_finding(&mut self, now: Instant, finding: Finding) {
        match finding {
            Finding::Fault {
                place,
                kind,
                first,
                count,
            } => {
                let Clients {
                    audit, telemetry, ..
                } = &mut self.clients;
                audit.name_fault(telemetry, place, kind, first, count);
            }
            Finding::News {
                publisher,
                epoch,
                number,
                news,
            } => {
                let home = self.clients.audit.home_of(&publisher);
                if home == self.options.id {
                    return self.take_news(now, &publisher, epoch, number, news);
                }
                let message = MeshMessage::News {
                    publisher,
                    epoch,
                    number,
                    news,
                };
                self.clients.mesh.send(home, message);
            }
        }
    }

    /// What became known of a message of a client of this shard.
    pub(crate) fn take_news(
        &mut self,
        now: Instant,
        publisher: &Arc<str>,
        epoch: Epoch,
        number: u64,
        news: News,
    ) {
        let Clients {
            sessions, audit, ..
        } = &mut self.clients;
        let session = sessions.find_mut(publisher);
        let lane = session.and_then(|session| session.ledger.lane_mut());
        audit.take_news(now, lane, publisher, epoch, number, news);
    }

    /// Sends what other shards are to hear, asks for what the disk is to have, and sets the times.
    fn carry_out_audit(&mut self, now: Instant) {
        while let Some((to, message)) = self.clients.audit.take_message() {
            self.clients.mesh.send(to, MeshMessage::Lane(message));
        }
        while let Some(record) = self.clients.audit.take_record() {
            self.clients.gate.ask(record);
        }
        if let Some(at) = self.clients.audit.next_tick(now) {
            self.timers.set(at, Timer::Audit);
        }
        if let Some(at) = self.clients.audit.next_lanes_tick(now) {
            self.timers.set(at, Timer::Publishers);
        }
    }

    /// Reports the states that have changed, and forgets what is not followed any more.
    pub(super) fn tick_audit(&mut self, now: Instant) {
        let Self {
            clients, router, ..
        } = self;
        let Clients {
            sessions, audit, ..
        } = clients;
        let mut followed = audit.take_followed();
        followed.retain(|id| {
            let session = sessions.get_mut(*id);
            let Some(lane) = session.and_then(|session| session.ledger.lane_mut()) else {
                return false;
            };
            look_up(lane, router);
            audit.tick_followed(now, lane)
        });
        audit.keep_following(followed);
        audit.tick_over(now);
        self.report_accounts();
    }

    /// Reports the accounts that are watched.
    fn report_accounts(&mut self) {
        let Clients {
            sessions,
            audit,
            gate,
            ..
        } = &mut self.clients;
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
                        session.connection.is_some(),
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
    pub(super) fn tick_publishers(&mut self, now: Instant) {
        let Clients {
            audit, telemetry, ..
        } = &mut self.clients;
        let since = audit.begin_lanes_tick(now, telemetry);
        let mut last = None;
        while let Some((key, client_id)) = self.clients.audit.next_lane(last) {
            let session = self.lane_session(client_id);
            let Clients {
                audit, telemetry, ..
            } = &mut self.clients;
            audit.tick_lane(key, session, since, telemetry);
            last = Some(key);
        }
        self.store_ledgers();
        if let Some(at) = self.clients.audit.end_lanes_tick(now) {
            self.timers.set(at, Timer::Publishers);
        }
    }

    fn lane_session(&self, client_id: &Arc<str>) -> Option<LaneSession> {
        let sessions = &self.clients.sessions;
        let session = sessions.get(sessions.find(client_id)?)?;
        Some(LaneSession {
            is_connected: session.connection.is_some(),
            is_durable: session.is_durable(),
        })
    }

    /// Stores how far the ledgers are of persistent sessions, where messages were stored.
    fn store_ledgers(&mut self) {
        while let Some((key, client_id)) = self.clients.audit.next_unstored_lane() {
            let session = self.lane_session(&client_id);
            let is_durable = session.is_some_and(|session| session.is_durable);
            if let Some(record) = self.clients.audit.lane_so_far(key, is_durable) {
                self.clients.gate.ask(record);
            }
        }
    }

    /// The broker stops, and numbers nothing any more.
    pub(super) fn lay_lanes_to_rest(&mut self) {
        debug_assert!(self.clients.stopping, "a lane that goes on is not at rest");
        // Those that are not at rest, because they are not exact, go on as after a crash.
        self.store_ledgers();
        let mut at_rest = Vec::new();
        for (_, session) in self.clients.sessions.iter() {
            if let Some(lane) = session.ledger.lane().filter(|_| session.is_durable()) {
                at_rest.push(lane.state(Arc::clone(&session.client_id)));
            }
        }
        let mut last = None;
        while let Some((key, client_id)) = self.clients.audit.next_lane(last) {
            let session = self.lane_session(client_id);
            if session.is_some_and(|session| session.is_durable) {
                at_rest.extend(self.clients.audit.lane_at_rest(key));
            }
            last = Some(key);
        }
        for lane in at_rest {
            self.clients.gate.ask(Record::LaneClosed(lane));
        }
    }

    /// Goes on with a lane of an earlier run, after its session was restored.
    pub fn restore_lane(&mut self, now: Instant, lane: LaneState) {
        let Clients {
            sessions,
            audit,
            telemetry,
            ..
        } = &mut self.clients;
        let Some(id) = sessions.find(lane.client_id()) else {
            return;
        };
        if let Some(session) = sessions.get_mut(id) {
            audit.restore_ingress(telemetry, id, &mut session.ledger, &lane);
        }
        audit.restore_own(telemetry, &lane, false);
        self.carry_out_audit(now);
    }

    /// What is at rest on disk is void from now on: this run goes on with it. What it begins anew
    /// has epochs from this floor on, which is above that of the run before by
    /// [`EPOCHS_AHEAD_MAX`](crate::EPOCHS_AHEAD_MAX) at least. Every shard asks for that, and
    /// admits no client before.
    pub fn resume_lanes(&mut self, now: Instant, floor: u32) {
        self.timers.set(now, Timer::Ask);
        self.clients.audit.begin_epochs_from(floor);
        self.clients.gate.resume_lanes(floor);
    }

    /// Takes over what an earlier run has stored of a lane while it ran, after lanes at rest: what
    /// was not at rest was cut off by a crash.
    pub fn restore_lane_so_far(&mut self, now: Instant, state: LaneState) {
        let Clients {
            sessions,
            audit,
            telemetry,
            ..
        } = &mut self.clients;
        let session = sessions.find_mut(state.client_id());
        let ledger = session.map(|session| &mut session.ledger);
        if ledger.is_some() {
            audit.restore_own(telemetry, &state, true);
        }
        audit.restore_ingress_so_far(telemetry, ledger, &state);
        self.carry_out_audit(now);
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
