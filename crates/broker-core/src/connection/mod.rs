//! Connections of one shard: what is known of each client as long as it stays connected, what it
//! has sent and is not used, and what is to be written to it.
//!
//! Invariants:
//! - The fields of a connection, and the bytes that it waits with, are touched here alone.
//! - Bytes are appended to one buffer per connection; the driver writes each buffer once for all
//!   that has come to it, those first that have waited longest. A buffer exists only while
//!   something is pending.
//! - A packet that waits for the disk or another shard leaves in its order, when that has answered.
//!
//! Deliberately absent: what packets mean, and sessions.

mod buffers;
mod connect;
mod connections;
mod enhanced;
mod final_bytes;
mod handshake;
mod login;
mod pending;
mod read_buffer;
mod write_buffer;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::connection::server::Phase;
use unbroken_mqtt_proto::{Packet, Version};

pub(crate) use self::connect::{
    check_connect, check_will_topic, is_connect, not_connect, response_prefix,
};
pub(crate) use self::connections::{Connections, Writer};
pub(crate) use self::enhanced::Enhanced;
pub use self::enhanced::{AuthExchange, AuthStep};
pub(crate) use self::final_bytes::Client;
pub use self::final_bytes::LastWords;
use self::handshake::Handshake;
pub(crate) use self::handshake::{Caller, ConnectRequest};
pub(crate) use self::login::Terms;
use self::login::{Login, Vouched};
use self::pending::Pending;
pub(crate) use self::pending::{Answer, HeldCopy, Outgoing, PendingPacket};
use self::read_buffer::ReadBuffer;
pub(crate) use self::write_buffer::NextPacket;
use self::write_buffer::WriteBuffer;
use crate::durability::CommitGate;
use crate::ids::{ConnectionId, SessionId, StoreId};
use crate::limits::{Limits, UNCOUNTED_BYTES};
use crate::policy::{Ceiling, Claims, Grant, Mount, Peer};
use crate::rates::Rates;
use crate::reason::Fault;
use crate::shares::{Full, Network, Reserved};

#[derive(Debug)]
pub(crate) struct Connection {
    id: ConnectionId,
    peer: Peer,
    /// As CONNECT says, even one that is refused. Before it no answer is possible, see
    /// `greeted`.
    version: Version,
    /// A CONNECT came and named a version, so the peer can be answered in it.
    greeted: bool,
    /// It has published nothing new yet: what it sends again, it sent over an earlier connection.
    repeats: bool,
    /// Counted among the connections of the broker and of its listener; one that is not has to get
    /// a place at its CONNECT.
    counted: bool,
    /// In the shard's list of connections with output.
    dirty: bool,
    /// What it has sent is not looked at while much of what it has published is on its way to very
    /// many, or another shard is asked whether it keeps what comes next.
    paused: bool,
    /// What it has sent is looked at in a later turn.
    in_line: bool,
    /// Its CONNECT has the bit by which Mosquitto's bridges make themselves known.
    is_bridge: bool,
    /// What its CONNACK has said of how it may publish.
    announced: Ceiling,
    /// The client's Maximum Packet Size [MQTT-3.1.2-24].
    packet_bytes_max: u32,
    /// One and a half times the keep alive in force [MQTT-3.1.2-22].
    keep_alive: Option<Duration>,
    /// When its client was let in, for operators.
    admitted_at: Option<Instant>,
    login: Login,
    /// What it may send in a second, if there is a limit.
    rates: Option<Box<Rates>>,
    /// What another shard has answered about the retained message that comes next.
    retain_answer: Option<Box<RetainAnswer>>,
    input: ReadBuffer,
    output: WriteBuffer,
    pending: Pending,
    handshake: Handshake,
    /// What its transport holds, as the driver has last reported.
    transport_bytes: usize,
    /// Bytes that are counted for it in the budget of those that are not admitted.
    unadmitted_bytes: usize,
    /// The same for those that are.
    memory_bytes: usize,
}

/// Whether a retained message may be kept, as the shard of its topic has answered.
#[derive(Debug)]
pub(crate) struct RetainAnswer {
    pub(crate) topic: Box<str>,
    pub(crate) answer: Result<Reserved, Full>,
}

impl Connection {
    /// One that is to have a session by `until`. `counted`: it has a place.
    pub(crate) fn new(
        id: ConnectionId,
        peer: Peer,
        now: Instant,
        until: Instant,
        counted: bool,
    ) -> Self {
        Self {
            id,
            peer,
            version: Version::V5,
            greeted: false,
            repeats: true,
            counted,
            dirty: false,
            paused: false,
            in_line: false,
            is_bridge: false,
            announced: Ceiling::NONE,
            packet_bytes_max: u32::MAX,
            keep_alive: None,
            admitted_at: None,
            login: Login::default(),
            rates: None,
            retain_answer: None,
            input: ReadBuffer::new(now),
            output: WriteBuffer::default(),
            pending: Pending::new(),
            handshake: Handshake::Awaiting(until),
            transport_bytes: 0,
            unadmitted_bytes: 0,
            memory_bytes: 0,
        }
    }

    pub(crate) const fn id(&self) -> ConnectionId {
        self.id
    }

    /// Before its CONNECT: what depends on the peer is decided there.
    pub(crate) fn set_peer(&mut self, peer: Peer) {
        debug_assert_eq!(
            self.peer.listener, peer.listener,
            "its place is counted there"
        );
        self.peer = peer;
    }

    pub(crate) const fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) const fn version(&self) -> Version {
        self.version
    }

    pub(crate) const fn is_bridge(&self) -> bool {
        self.is_bridge
    }

    /// How the client may publish as its CONNACK says: more is a protocol error.
    pub(crate) const fn announced(&self) -> Ceiling {
        self.announced
    }

    pub(crate) const fn packet_bytes_max(&self) -> u32 {
        self.packet_bytes_max
    }

    pub(crate) const fn user(&self) -> Option<&Arc<str>> {
        self.login.user.as_ref()
    }

    pub(crate) const fn keep_alive(&self) -> Option<Duration> {
        self.keep_alive
    }

    /// When its client was let in.
    pub(crate) const fn admitted_at(&self) -> Option<Instant> {
        self.admitted_at
    }

    /// The session that is attached.
    pub(crate) const fn session(&self) -> Option<SessionId> {
        self.handshake.session()
    }

    pub(crate) fn phase(&self) -> Phase {
        match (self.handshake.phase(), &self.login.enhanced) {
            (Phase::Connected { .. }, Some(enhanced)) => enhanced.phase(),
            (phase, _) => phase,
        }
    }

    /// When patience with a client ends that has no session.
    pub(crate) const fn is_to_be_in_by(&self) -> Option<Instant> {
        self.handshake.until()
    }

    /// Names in the CONNECT that the driver decides about.
    pub(crate) fn caller(&self) -> Option<Caller> {
        Some(self.handshake.request()?.caller())
    }

    /// It has no place, and its CONNECT has not come.
    const fn is_silent_without_place(&self) -> bool {
        !self.counted && matches!(self.handshake, Handshake::Awaiting(_))
    }

    pub(crate) const fn has_place(&self) -> bool {
        self.counted
    }

    /// Whether it has no session yet.
    const fn is_unadmitted(&self) -> bool {
        self.handshake.session().is_none()
    }

    /// Memory of what it has sent, of what is to be written to it, of packets that wait and of its
    /// login, of which little does not count; and of its transport.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        let bytes = self.input.memory() + self.output.memory() + self.pending.bytes();
        let bytes = bytes + self.login.memory();
        let counted = if bytes > UNCOUNTED_BYTES { bytes } else { 0 };
        counted + self.transport_bytes
    }

    /// What counts of it before it is admitted.
    fn unadmitted_memory(&self) -> usize {
        let request = self.handshake.request();
        if self.is_unadmitted() {
            let request = request.map_or(0, ConnectRequest::memory);
            let enhanced = self.login.enhanced.as_ref().map_or(0, |it| it.memory());
            self.input.memory() + request + enhanced + self.transport_bytes
        } else {
            0
        }
    }

    /// Whether the packet by which the broker ends it may leave without what waits in front of it:
    /// no other one is half written.
    pub(crate) fn is_between_packets(&mut self) -> bool {
        self.output.is_between_packets()
    }

    /// A CONNECT came that can be answered in this version.
    pub(crate) fn greet(&mut self, version: Version) {
        self.version = version;
        self.greeted = true;
    }

    /// A CONNECT was decoded: what it says of answers to it holds for a refusal too.
    pub(crate) fn note_connect(&mut self, packet_bytes_max: Option<u32>, is_bridge: bool) {
        self.packet_bytes_max = packet_bytes_max.unwrap_or(self.packet_bytes_max);
        self.is_bridge = is_bridge;
    }

    /// The driver is asked to decide about a CONNECT by then.
    pub(crate) fn await_decision(&mut self, until: Instant, request: Box<ConnectRequest>) {
        self.handshake = Handshake::Deciding(until, request);
    }

    pub(crate) const fn is_being_decided(&self) -> bool {
        matches!(self.handshake, Handshake::Deciding(..))
    }

    /// The CONNECT that the driver decides about.
    pub(crate) const fn request(&self) -> Option<&ConnectRequest> {
        self.handshake.request()
    }

    /// The driver has decided about this CONNECT.
    pub(crate) fn take_request(&mut self) -> Option<Box<ConnectRequest>> {
        self.handshake.take_request()
    }

    /// As whom the driver lets the client in.
    pub(crate) fn identify(&mut self, grant: Grant) {
        let Grant {
            user,
            claims,
            until,
            proof: _,
        } = grant;
        self.login.user = user;
        let is_more = claims.is_some() || until.is_some();
        self.login.vouched = is_more.then(|| Box::new(Vouched { claims, until }));
    }

    /// What is vouched for beside the user's name.
    pub(crate) fn claims(&self) -> Option<&Arc<Claims>> {
        self.login.vouched.as_ref()?.claims.as_ref()
    }

    /// When what the client has authenticated by ends.
    pub(crate) fn vouched_until(&self) -> Option<Instant> {
        self.login.vouched.as_ref()?.until
    }

    /// Lets the client in.
    pub(crate) fn accept(&mut self, now: Instant, terms: &Terms) {
        self.handshake = Handshake::Admitted(terms.session);
        self.announced = terms.announced;
        self.keep_alive = terms.keep_alive;
        self.admitted_at = Some(now);
        self.input.heard(now);
        if let Some(most) = terms.aliases_in_max {
            let table = alias::Inbound::new(most);
            self.input.restore_aliases(Some(Box::new(table)));
        }
        let most = terms.aliases_out_max;
        let table = (most > 0).then(|| Box::new(alias::Outbound::new(most)));
        self.output.allow_aliases(table);
        self.output.set_mount(terms.mount.clone());
    }

    /// The client's mount, as long as it is connected.
    #[inline]
    pub(crate) const fn mount(&self) -> Option<&Mount> {
        self.output.mount()
    }

    /// Whether a packet may be looked at now: not while CONNECT is being decided about or CONNACK
    /// may not leave [MQTT-3.1.4-6], nor while the answers to earlier packets wait or are not
    /// taken. Messages that the client does not take stop no packet: its acknowledgements and pings
    /// stand behind what it publishes.
    #[inline]
    pub(crate) fn may_consume(&self, gate: &CommitGate, limits: &Limits) -> bool {
        let most = limits.output_bytes_max as usize;
        !matches!(self.handshake, Handshake::Deciding(..))
            && !self.pending.answers_first()
            && !self.paused
            && !self.in_line
            && !self.is_over_rate()
            && (self.unwritten() + self.pending.bytes() < most || self.has_room_for_answers(most))
            && self.gate_open(gate.stored())
    }

    /// Whether an output that is full has room for what answers the client.
    #[cold]
    fn has_room_for_answers(&self, most: usize) -> bool {
        self.output.answers() + self.pending.bytes() < most
    }

    /// Whether the socket has not taken all of what was written last.
    #[inline]
    pub(crate) const fn is_stalled(&self) -> bool {
        self.output.is_stalled()
    }

    /// Whether the client is not read because of what it waits for, which is not for it to change.
    pub(crate) fn keeps_waiting(&self, gate: &CommitGate, limits: &Limits) -> bool {
        !self.gate_open(gate.stored())
            || self.paused
            || self.in_line
            || self.is_over_rate()
            || self.pending.bytes() >= limits.output_bytes_max as usize
            || self.pending.answers_first() && self.pending.front_waits(gate)
    }

    /// Stops looking at what it has sent, or goes on.
    pub(crate) fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Whether it is not read because it is over its rate.
    #[inline]
    pub(crate) fn is_over_rate(&self) -> bool {
        self.rates.as_ref().is_some_and(|rates| rates.is_paused())
    }

    /// So many bytes have come. Answers whether it is over its rate by them.
    #[inline]
    pub(crate) fn take_bytes(&mut self, now: Instant, bytes: usize) -> bool {
        let Some(rates) = self.rates_mut() else {
            return false;
        };
        let was_paused = rates.is_paused();
        !rates.take_bytes(now, bytes) && !was_paused
    }

    /// What it may send in a second.
    pub(crate) fn rates(&self) -> Option<&Rates> {
        self.rates.as_deref()
    }

    /// The same, to take something.
    #[inline]
    pub(crate) fn rates_mut(&mut self) -> Option<&mut Rates> {
        self.rates.as_deref_mut()
    }

    pub(crate) fn set_rates(&mut self, rates: Option<Box<Rates>>) {
        self.rates = rates;
    }

    /// Whether it goes on in a later turn.
    pub(crate) const fn is_in_line(&self) -> bool {
        self.in_line
    }

    pub(crate) fn set_in_line(&mut self, in_line: bool) {
        self.in_line = in_line;
    }

    /// The shard of a topic has answered: the packet is looked at again.
    pub(crate) fn take_in_answer(&mut self, answer: RetainAnswer) {
        self.retain_answer = Some(Box::new(answer));
        self.paused = false;
    }

    /// Takes the answer, once.
    pub(crate) fn take_retain_answer(&mut self) -> Option<Box<RetainAnswer>> {
        self.retain_answer.take()
    }

    /// Where the client is, as far as shares go.
    pub(crate) fn network(&self) -> Option<Network> {
        Network::of_peer(self.peer.address)
    }

    /// When it last showed that it is there.
    pub(crate) const fn last_received(&self) -> Instant {
        self.input.last_received()
    }

    /// How many bytes were received and are not used.
    pub(crate) const fn unread_bytes(&self) -> usize {
        self.input.len()
    }

    /// Whether all that was received is used.
    pub(crate) const fn has_used_all(&self) -> bool {
        self.input.is_empty()
    }

    /// The length of the packet that has begun, and how many bytes of it are still to come.
    pub(crate) fn begun_packet(&self, packet_bytes_max: u32) -> Option<(usize, usize)> {
        self.input.begun_packet(packet_bytes_max)
    }

    /// Bytes have come: keeps those that complete the packet that has begun, and answers the rest.
    /// Only these are copied: of a client that writes faster than a read is long, every read ends
    /// within a packet. A CONNECT may move to another shard, with everything behind it.
    pub(crate) fn receive<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
        packet_bytes_max: u32,
    ) -> &'a [u8] {
        let is_in = self.session().is_some();
        self.input.heard(now);
        self.input.complete(bytes, packet_bytes_max, !is_in)
    }

    /// Lends the table of topic aliases out while it lends a topic.
    pub(crate) fn take_aliases(&mut self) -> Option<Box<alias::Inbound>> {
        self.input.take_aliases()
    }

    /// Takes it back.
    pub(crate) fn restore_aliases(&mut self, aliases: Option<Box<alias::Inbound>>) {
        self.input.restore_aliases(aliases);
    }

    /// Whether it has published nothing new yet: what it sends again, it sent over an earlier
    /// connection.
    pub(crate) const fn repeats(&self) -> bool {
        self.repeats
    }

    /// It has published something new.
    pub(crate) fn note_new(&mut self) {
        self.repeats = false;
    }

    /// Bytes waiting for the socket.
    #[inline]
    pub(crate) fn unwritten(&self) -> usize {
        self.output.pending()
    }

    /// Bytes that may be written now.
    pub(crate) fn writable(&self, stored: StoreId) -> &[u8] {
        if self.gate_open(stored) {
            self.output.unwritten()
        } else {
            &[]
        }
    }

    /// Whether the client takes a packet as long as this [MQTT-3.1.2-24].
    pub(crate) fn takes(&self, packet: &Packet<'_>) -> bool {
        let mut bytes = Vec::new();
        packet.encode(self.version, &mut bytes).is_ok()
            && bytes.len() <= self.packet_bytes_max as usize
    }

    /// Takes what is still to be written, and behind it the packet by which the broker ends the
    /// connection: nothing is to be written to it any more. `client`: if it was let in. Answers
    /// also with the reason code in that packet, if it is sent.
    pub(crate) fn take_final_bytes(
        &mut self,
        client: Option<Client>,
        last: LastPacket<'_>,
    ) -> (LastWords, Option<u8>) {
        let (mut bytes, written, aliases) = self.output.take_all();
        let sent = match last {
            LastPacket::None => None,
            LastPacket::ConnAck(fault) => final_bytes::connack(self, &mut bytes, fault),
            LastPacket::Disconnect(fault) => final_bytes::disconnect(self, &mut bytes, fault),
        };
        let (version, is_awaited) = (self.version, self.greeted);
        let words = LastWords::new(bytes, written, version, is_awaited, client, aliases);
        (words, sent)
    }

    /// Whether what is written may leave.
    #[inline]
    pub(crate) fn gate_open(&self, stored: StoreId) -> bool {
        self.pending.gate_open(stored)
    }

    /// Whether no packet waits.
    #[inline]
    pub(crate) fn holds_nothing(&self) -> bool {
        self.pending.is_empty()
    }

    /// Memory of the packets that wait.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.pending.bytes()
    }

    /// Whether a packet waits for something that is not true.
    pub(crate) fn any_waits(&self, gate: &CommitGate) -> bool {
        self.pending.any_waits(gate)
    }

    /// Takes the first packet that waits if it waits for nothing any more; a message only while the
    /// output is not full.
    pub(crate) fn pop_ready(
        &mut self,
        gate: &CommitGate,
        output_bytes_max: usize,
    ) -> Option<Outgoing> {
        let takes_messages = self.unwritten() < output_bytes_max;
        self.pending.pop_ready(gate, takes_messages)
    }

    /// What it has sent is not looked at before all that waits has left.
    pub(crate) fn answer_first(&mut self) {
        self.pending.answer_first();
    }

    /// Takes the packets that wait: it has gone.
    pub(crate) fn take_held(&mut self) -> VecDeque<PendingPacket> {
        self.pending.take_all()
    }
}

/// The packet by which the broker ends a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LastPacket<'a> {
    /// None: the client has ended it.
    None,
    /// CONNACK with an error.
    ConnAck(&'a Fault),
    /// DISCONNECT with its reason.
    Disconnect(&'a Fault),
}

/// The name of the client in events: shared, so that an event costs no copy.
pub(crate) fn anonymous() -> Arc<str> {
    Arc::from("")
}
