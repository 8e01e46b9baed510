//! The shard: takes inputs one at a time, sorts packets by kind, and lets each part of the crate do
//! its own.
//!
//! Invariants:
//! - [`Outputs`] borrows the shard, so a second input before the last one's outputs were taken does
//!   not compile.
//! - After a fault of the peer its connection is gone before the next packet is looked at; whatever
//!   it had sent behind is not read.

mod announce;
mod audit;
mod close;
mod connect;
mod enhanced;
mod lanes;
mod memory;
mod messages;
mod mount;
mod operator;
mod outputs;
mod places;
mod publish;
mod questions;
mod rates;
mod restore;
mod retained;
mod route;
mod sockets;
mod store;
mod subscribe;
mod tick;
mod trace;
mod turn;

pub use lanes::{LaneFilter, LanePage, LanePlace};
pub use outputs::Outputs;
pub use restore::{RestoreError, RestoredEntry, RestoredHandOver, RestoredSession};

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::connection::server::Phase;
use unbroken_mqtt_proto::{
    Ack, Frame, Packet, PacketType, PropertyBuf, Publish, ReasonCode, Version, next_frame,
};

use crate::audit::Audit;
use crate::connection::{Connections, is_connect, not_connect};
use crate::delivery::{Deliverer, Deliveries};
use crate::durability::CommitGate;
use crate::ids::{ConnectionId, GroupId, Numbers, SessionId};
use crate::input::Input;
use crate::mesh::Mesh;
use crate::output::Output;
use crate::policy::AccessControl;
use crate::reason::{Fault, Flow};
use crate::retained::Retained;
use crate::routing::Router;
use crate::session::{SessionShares, Sessions};
use crate::settings::ShardOptions;
use crate::shared::SharedGroups;
use crate::shares::Shares;
use crate::telemetry::{Event, Telemetry};
use crate::timers::Timers;
use announce::Announcer;
use audit::Auditor;
use memory::MemoryWatch;
use mount::MountPoints;
use restore::Revived;
use turn::Turn;

/// One shard of the broker.
pub struct Shard {
    options: ShardOptions,
    connections: Connections,
    sessions: Sessions,
    /// What each address has of sessions and subscriptions.
    shares: SessionShares,
    /// What clients may do.
    access: AccessControl,
    /// In which part of the topic tree the clients of each listener live.
    mount_points: MountPoints,
    router: Router,
    groups: SharedGroups,
    retained: Retained,
    deliveries: Deliveries,
    /// What must be true before something leaves.
    gate: CommitGate,
    audit: Audit,
    telemetry: Telemetry,
    mesh: Mesh,
    timers: Timers,
    outputs: VecDeque<Output>,
    /// The broker is stopping: nothing that has to wait will be delivered, but what is on disk.
    stopping: bool,
    /// [`Timer::Progress`] is set.
    progress_is_due: bool,
    memory_watch: MemoryWatch,
    revived: Revived,
    /// Numbers what this shard asks of others.
    numbers: Numbers,
    scratch: Scratch,
    turn: Turn,
}

/// What is taken for one message and put back, so that the next finds it.
#[derive(Default)]
struct Scratch {
    /// For the properties that go on, where some are left out.
    properties: PropertyBuf,
    /// For topic and properties of a message whose client has a mount.
    mounted: (String, PropertyBuf),
    /// For properties that the audit adds to a message.
    stamped: PropertyBuf,
    /// Of the last PUBLISH, so that a burst of one client counts its references once.
    publisher: Option<Arc<str>>,
    groups: Vec<GroupId>,
}

/// Delivery at work on the parts of a shard that it needs. No method, so that the other parts can
/// be in use meanwhile.
macro_rules! deliverer {
    ($shard:expr, $now:expr) => {
        $crate::delivery::Deliverer {
            now: $now,
            stopping: $shard.stopping,
            limits: &$shard.options.limits,
            access: &mut $shard.access,
            connections: &mut $shard.connections,
            sessions: &mut $shard.sessions,
            telemetry: &mut $shard.telemetry,
            retained: &mut $shard.retained,
            gate: &mut $shard.gate,
            audit: &mut $shard.audit,
            deliveries: &mut $shard.deliveries,
        }
    };
}
pub(crate) use deliverer;

impl Shard {
    /// An empty shard.
    ///
    /// # Panics
    /// If the shard number is not below the number of shards, or that is not in `1..=64`.
    pub fn new(options: ShardOptions) -> Self {
        assert!(
            options.valid(),
            "shard {} of {}",
            options.id,
            options.shards
        );
        let places = Shares::new(options.seed, options.shards);
        let mut shard = Self {
            connections: Connections::new(&options.totals, &options.limits, places),
            sessions: Sessions::new(options.seed),
            shares: SessionShares::new(options.seed, options.shards),
            access: AccessControl::default(),
            mount_points: MountPoints::new(&options.settings.mount_points),
            router: Router::new(options.seed, options.shards),
            groups: SharedGroups::new(options.id),
            retained: Retained::new(&options),
            deliveries: Deliveries::new(options.settings.at_once, &options.totals.memory),
            gate: CommitGate::new(options.id),
            audit: Audit::new(&options),
            telemetry: Telemetry::default(),
            mesh: Mesh::new(options.id, options.shards),
            timers: Timers::default(),
            outputs: VecDeque::new(),
            stopping: false,
            progress_is_due: false,
            memory_watch: MemoryWatch::default(),
            revived: Revived::default(),
            numbers: Numbers::default(),
            scratch: Scratch::default(),
            turn: Turn::new(options.start),
            options,
        };
        shard.start_sys();
        shard
    }

    /// Takes one input. The answer says what is to be done; bytes to write are told by
    /// [`take_dirty`](Self::take_dirty).
    pub fn handle(&mut self, now: Instant, input: Input<'_>) -> Outputs<'_> {
        let before = self.telemetry.work();
        self.begin_turn(now);
        match input {
            Input::Opened { connection, peer } => self.open(now, connection, peer),
            Input::Identified { connection, peer } => self.identify(now, connection, peer),
            Input::TransportHolds { connection, bytes } => {
                self.connections.set_transport_bytes(connection, bytes);
            }
            Input::Received { connection, bytes } => self.receive(now, connection, bytes),
            Input::Closed { connection, cause } => self.handle_closed(now, connection, cause),
            Input::Unsaid(last_words) => self.deliverer(now).drop_unsaid(&last_words),
            Input::Authenticated {
                connection,
                admission,
            } => self.handle_admission(now, connection, admission),
            Input::Challenged {
                connection,
                data,
                exchange,
            } => self.handle_challenge(now, connection, &data, exchange),
            Input::RatesSet { connection, rates } => self.set_rates(now, connection, rates),
            Input::Stored(id) => {
                self.handle_stored(now, id);
                self.release_subacks(now);
            }
            Input::Read(answer) => self.handle_read(now, answer),
            Input::StoreSize(size) => self.handle_store_size(now, &size),
            Input::DiskLacksSpace(lacks) => self.handle_disk_space(lacks),
            Input::StoreFailed { cause } => self.handle_store_failed(now, cause),
            Input::ShardMessage { from, message } => self.handle_message(now, from, message),
            Input::Timeout { heard } => self.handle_timeout(now, heard),
            Input::Operator(operation) => self.operate(now, &operation),
            Input::Reconfigured(limits) => self.reconfigure(now, *limits),
            Input::ClientIdRulesReplaced(rules) => self.options.settings.client_ids = rules,
            Input::MountPointsReplaced(points) => self.replace_mount_points(now, &points),
            Input::PolicyReplaced(policy) => self.replace_policy(now, policy),
            Input::Drain => self.drain(now),
        }
        self.check_memory(now);
        self.announce_queue_changes();
        self.tell_missed(now);
        self.settle_audit(now);
        self.schedule_report(now);
        self.schedule_progress(now);
        self.schedule_log_end(now);
        self.schedule_retention(now);
        self.schedule_scan(now);
        if self.timers.has_doubled() {
            self.compact_timers();
        }
        self.mesh.close_bundles();
        let work = self.telemetry.work().since(before);
        Outputs::new(self, work)
    }

    /// When [`Input::Timeout`] is wanted next.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Delivery at work on the parts that it needs.
    #[inline]
    pub(crate) fn deliverer(&mut self, now: Instant) -> Deliverer<'_> {
        deliverer!(self, now)
    }

    /// What the other shards learn of sessions, at work on the parts that it needs.
    #[inline]
    fn announcer(&mut self) -> Announcer<'_> {
        Announcer {
            id: self.options.id,
            shards: self.options.shards,
            sessions: &mut self.sessions,
            connections: &self.connections,
            access: &self.access,
            router: &mut self.router,
            groups: &mut self.groups,
            gate: &self.gate,
            audit: &mut self.audit,
            mesh: &mut self.mesh,
            numbers: &mut self.numbers,
        }
    }

    /// What is done for the audit, at work on the parts that it needs.
    #[inline]
    fn auditor(&mut self, now: Instant) -> Auditor<'_> {
        Auditor {
            now,
            id: self.options.id,
            stopping: self.stopping,
            connections: &self.connections,
            sessions: &mut self.sessions,
            router: &mut self.router,
            gate: &mut self.gate,
            audit: &mut self.audit,
            telemetry: &mut self.telemetry,
            mesh: &mut self.mesh,
            timers: &mut self.timers,
        }
    }

    /// All shards learn which sessions have become full or have room again.
    #[inline]
    pub(crate) fn announce_queue_changes(&mut self) {
        while let Some(change) = self.sessions.next_queue_change(&self.options.limits) {
            self.announcer().announce_queue_change(change);
        }
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.telemetry.report(event);
    }

    /// Sends what a session may have now: what waits for it, then what is retained for its new
    /// subscriptions.
    pub(crate) fn pump(&mut self, now: Instant, session: SessionId) {
        if !self.has_room_and_nothing(session) {
            self.deliverer(now).pump(session);
        }
        self.read_on(session);
        self.sessions.note_room(&self.options.limits, session);
        if self.retained.has_queries(session) || self.deliveries.has_fan_outs() {
            self.pump_retained(now, session);
        }
    }

    /// Whether nothing waits for this session, and something might leave.
    #[inline]
    fn has_room_and_nothing(&self, id: SessionId) -> bool {
        let Some(session) = self.sessions.get(id) else {
            return false;
        };
        let connection = session.connection();
        let connection = connection.and_then(|index| self.connections.at(index));
        connection.is_some_and(|connection| {
            session.has_room_and_nothing(connection, &self.options.limits)
        })
    }

    /// Whether more room in its output changes nothing for this connection or its session, and
    /// nothing is left to report: so it is behind nearly every write.
    #[inline]
    fn is_at_rest(&self, id: ConnectionId, session_id: SessionId) -> bool {
        let Some(connection) = self.connections.get(id) else {
            return false;
        };
        let session = self.sessions.get(session_id);
        session.is_some_and(|session| {
            session.has_room_and_nothing(connection, &self.options.limits) && !session.is_durable()
        }) && !self.retained.has_queries(session_id)
            && connection.has_used_all()
            && !self.deliveries.has_fan_outs()
            && self.sessions.all_have_room()
            && self.audit.is_at_rest()
    }

    fn receive(&mut self, now: Instant, id: ConnectionId, bytes: &[u8]) {
        self.telemetry.received_bytes(bytes.len());
        let packet_bytes_max = self.options.limits.packet_bytes_max;
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let is_over_rate = connection.take_bytes(now, bytes.len());
        let mut rest = connection.receive(now, bytes, packet_bytes_max);
        if is_over_rate {
            self.begin_pause(id);
        }
        if rest.len() < bytes.len() {
            self.consume_unread(now, id);
            self.connections.count(id);
        }
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        if connection.has_used_all() {
            let used = self.consume(now, id, rest);
            rest = &rest[used..];
        }
        if !rest.is_empty() {
            self.connections.keep_unread(id, rest, packet_bytes_max);
        }
    }

    /// Goes on with what was received earlier.
    pub(crate) fn consume_unread(&mut self, now: Instant, id: ConnectionId) {
        if let Some(unread) = self.connections.take_unread(id) {
            let used = self.consume(now, id, &unread);
            self.connections.restore_unread(id, unread, used);
        }
    }

    /// Handles whole packets from the front; answers how many bytes they had.
    fn consume(&mut self, now: Instant, id: ConnectionId, bytes: &[u8]) -> usize {
        let (mut used, steps) = (0, self.steps());
        while let Some(connection) = self.connections.get(id)
            && connection.may_consume(&self.gate, &self.options.limits)
        {
            let rest = &bytes[used..];
            let mut limit = self.options.limits.packet_bytes_max;
            if connection.phase() == Phase::Authenticating {
                limit = limit.min(self.options.limits.connect_bytes_max);
            } else if connection.phase() == Phase::AwaitConnect {
                // Said at the first byte: who is not known yet gets no room for anything else.
                let first = rest.first().copied();
                if first.is_some_and(|byte| !is_connect(byte)) {
                    self.fail(now, id, not_connect());
                    break;
                }
                if !connection.has_place()
                    && let Some(fault) = self.is_too_long_without_place(id, rest)
                {
                    self.fail(now, id, fault);
                    break;
                }
                limit = limit.min(self.options.limits.connect_bytes_max);
            }
            let frame = match next_frame(rest, limit) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    self.greet_early(id, rest);
                    self.fail(now, id, error.into());
                    break;
                }
            };
            let flow = self.handle_frame(now, id, frame, rest);
            if matches!(flow, Ok(Flow::Requeue)) {
                break;
            }
            self.telemetry.received_packet();
            // [MQTT-4.13.1-1, MQTT311-4.8.0-1]
            if let Err(fault) = flow {
                self.fail(now, id, fault);
                break;
            }
            used += frame.bytes.len();
            self.yield_turn(now, id, steps);
        }
        used
    }

    /// `rest`: what was received, from the beginning of this packet on.
    fn handle_frame(
        &mut self,
        now: Instant,
        id: ConnectionId,
        frame: Frame<'_>,
        rest: &[u8],
    ) -> Result<Flow, Fault> {
        let Some(connection) = self.connections.get(id) else {
            return Ok(Flow::Done);
        };
        let (version, phase) = (connection.version(), connection.phase());
        let (session, has_rates) = (connection.session(), connection.rates().is_some());
        let Some(packet_type) = frame.packet_type() else {
            return Err(Fault::new(ReasonCode::MalformedPacket, "packet type 0"));
        };
        phase
            .expect(packet_type, version)
            .map_err(|violation| Fault {
                reason: violation.reason(),
                detail: Cow::Owned(violation.to_string()),
            })?;
        let may_end = matches!(packet_type, PacketType::Connect | PacketType::Disconnect);
        if may_end && self.must_end_later(now, id) {
            return Ok(Flow::Requeue);
        }
        let Some(session) = session else {
            if phase == Phase::Authenticating {
                let packet = Packet::decode(frame, version)?;
                return self.handle_step(now, id, packet).map(|()| Flow::Done);
            }
            return self
                .handle_connect(now, id, frame, rest)
                .map(|()| Flow::Done);
        };
        // By itself, since most packets are one of these: what holds any packet is large to move.
        match packet_type {
            PacketType::Publish => {
                if has_rates {
                    return self.handle_rated_publish(now, id, session, (frame, version));
                }
                let publish = Publish::decode(frame, version)?;
                self.handle_publish(now, id, session, publish)
            }
            PacketType::PubAck => {
                if self.telemetry.tracer.is_on() {
                    self.trace_packet(session, frame);
                }
                let ack = Ack::decode_puback(frame, version)?;
                self.deliverer(now).handle_puback(session, ack)?;
                self.pump(now, session);
                Ok(Flow::Done)
            }
            _ => {
                if self.telemetry.tracer.is_on() {
                    self.trace_packet(session, frame);
                }
                let packet = Packet::decode(frame, version)?;
                self.handle_packet(now, id, session, version, packet)
            }
        }
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        version: Version,
        packet: Packet<'_>,
    ) -> Result<Flow, Fault> {
        let done = match packet {
            Packet::Publish(publish) => return self.handle_publish(now, id, session, publish),
            Packet::PubAck(ack) => {
                self.deliverer(now).handle_puback(session, ack)?;
                self.pump(now, session);
                Ok(())
            }
            Packet::PubRec(ack) => {
                let mut deliverer = self.deliverer(now);
                if deliverer.handle_pubrec(id, session, version, ack)? {
                    self.pump(now, session);
                }
                Ok(())
            }
            Packet::PubRel(ack) => {
                let mut deliverer = self.deliverer(now);
                deliverer.handle_pubrel(id, session, version, ack);
                Ok(())
            }
            Packet::PubComp(ack) => {
                self.deliverer(now).handle_pubcomp(session, ack)?;
                self.pump(now, session);
                Ok(())
            }
            Packet::Subscribe(subscribe) => self.handle_subscribe(now, id, session, subscribe),
            Packet::Unsubscribe(unsubscribe) => {
                self.handle_unsubscribe(now, id, session, unsubscribe)
            }
            Packet::PingReq => {
                // [MQTT-3.12.4-1, MQTT311-3.12.4-1]
                self.connections.pong(&mut self.telemetry, id.index);
                Ok(())
            }
            Packet::Disconnect(disconnect) => self.handle_disconnect(now, id, session, disconnect),
            Packet::Auth(auth) => self.handle_auth(now, id, auth),
            Packet::Connect(_)
            | Packet::ConnAck(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp => Err(Fault::new(
                ReasonCode::ProtocolError,
                "a packet that only a server sends",
            )),
        };
        done.map(|()| Flow::Done)
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard")
            .field("id", &self.options.id)
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}
