//! One connection of the shard: what is known of the client as long as it stays connected.

mod pending;

pub(crate) use pending::{Answer, Held, Leaving, keep_unanswered};

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::connection::server::Phase;
use unbroken_mqtt_proto::{Connect, Frame, Packet, Version, next_frame};

use crate::access::{Identity, Peer};
use crate::ids::{ConnectionId, SessionId, StoreId};

/// Names in a CONNECT, as it claims them.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    pub(crate) client_id: Option<Arc<str>>,
    pub(crate) user_name: Option<Box<str>>,
}

impl Caller {
    pub(crate) fn of(connect: &Connect<'_>) -> Self {
        Self::with_id(connect.client_id.into(), connect)
    }

    /// With an id that the broker may have assigned.
    pub(crate) fn with_id(client_id: Arc<str>, connect: &Connect<'_>) -> Self {
        Self {
            client_id: Some(client_id),
            user_name: connect.user_name.map(Into::into),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) peer: Peer,
    pub(crate) phase: Phase,
    /// As CONNECT says, even one that is refused. Before it there is nobody to answer, see
    /// `greeted`.
    pub(crate) version: Version,
    /// A CONNECT came and named a version, so the peer can be answered in it.
    pub(crate) greeted: bool,
    /// It has published nothing new yet: what it sends again, it sent over an earlier connection.
    pub(crate) repeats: bool,
    /// Counted among the connections of the broker and of its listener; one that is not has to get
    /// a place at its CONNECT.
    pub(crate) counted: bool,
    /// When patience ends: first with a connection that has sent no CONNECT, then with the decision
    /// about that.
    pub(crate) admitted_by: Instant,
    /// The CONNECT while the driver decides about it; nothing behind it is looked at until then.
    pub(crate) connect: Option<Box<[u8]>>,
    /// Set while a session is attached.
    pub(crate) session: Option<SessionId>,
    pub(crate) identity: Identity,
    /// Bytes received and not yet used: an incomplete packet, or everything behind CONNECT while
    /// the client is being authenticated. Empty, without capacity, for an idle connection.
    pub(crate) unread: Vec<u8>,
    /// Encoded packets that the driver has not yet written, from the beginning of one. `written`
    /// of their bytes, from the front, are gone. Without capacity when nothing is pending.
    pub(crate) output: Vec<u8>,
    /// `0 <= written <= output.len()`.
    pub(crate) written: usize,
    /// In the shard's list of connections with output.
    pub(crate) dirty: bool,
    /// One and a half times the keep alive in force [MQTT-3.1.2-22].
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) last_received: Instant,
    /// The client's Maximum Packet Size [MQTT-3.1.2-24].
    pub(crate) packet_bytes_max: u32,
    /// The client's Request Problem Information.
    pub(crate) problem_information: bool,
    /// Its CONNECT has the bit by which Mosquitto's bridges make themselves known.
    pub(crate) is_bridge: bool,
    /// Boxed and absent until used: most connections never see an alias.
    pub(crate) aliases_in: Option<Box<alias::Inbound>>,
    pub(crate) aliases_out: Option<Box<alias::Outbound>>,
    /// Nothing of the output leaves before this request is stored.
    pub(crate) gate: StoreId,
    /// Packets that must not leave yet, in the order they must leave
    /// [MQTT-4.6.0-2, MQTT311-4.6.0-2] [MQTT-4.6.0-3, MQTT311-4.6.0-3].
    pub(crate) held: VecDeque<Held>,
    /// Memory of these, and of the SUBACKs that wait.
    pub(crate) held_bytes: usize,
    /// What it has sent is not looked at before these have left.
    pub(crate) answers_first: bool,
    /// Nor while much of what it has published is on its way to very many.
    pub(crate) waits_for_spreads: bool,
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, peer: Peer, now: Instant, admitted_by: Instant) -> Self {
        Self {
            id,
            peer,
            phase: Phase::AwaitConnect,
            version: Version::V5,
            greeted: false,
            repeats: true,
            counted: false,
            admitted_by,
            connect: None,
            session: None,
            identity: Identity::default(),
            unread: Vec::new(),
            output: Vec::new(),
            written: 0,
            dirty: false,
            keep_alive: None,
            last_received: now,
            packet_bytes_max: u32::MAX,
            problem_information: true,
            is_bridge: false,
            aliases_in: None,
            aliases_out: None,
            gate: StoreId::NOTHING,
            held: VecDeque::new(),
            held_bytes: 0,
            answers_first: false,
            waits_for_spreads: false,
        }
    }

    /// Names in the CONNECT that the driver decides about.
    pub(crate) fn caller(&self) -> Option<Caller> {
        let frame = next_frame(self.connect.as_deref()?, u32::MAX).ok()??;
        match Packet::decode(frame, self.version).ok()? {
            Packet::Connect(connect) => Some(Caller::of(&connect)),
            _ => None,
        }
    }

    /// It has no place, and its CONNECT has not come.
    pub(crate) const fn is_silent_without_place(&self) -> bool {
        !self.counted && self.connect.is_none() && self.session.is_none()
    }

    /// Bytes waiting for the socket.
    pub(crate) fn pending(&self) -> usize {
        self.output.len() - self.written
    }

    /// Makes room where the packets that are wholly written stand.
    pub(crate) fn forget_written(&mut self) {
        let unwritten = not_wholly_written(&self.output, self.written);
        let rest: usize = unwritten.map(|frame| frame.bytes.len()).sum();
        let gone = self.output.len() - rest;
        self.output.drain(..gone);
        self.written -= gone;
    }

    /// Whether the client takes a packet as long as this [MQTT-3.1.2-24].
    pub(crate) fn takes(&self, packet: &Packet<'_>) -> bool {
        let mut bytes = Vec::new();
        packet.encode(self.version, &mut bytes).is_ok()
            && bytes.len() <= self.packet_bytes_max as usize
    }

    /// Appends a packet that is not a PUBLISH. Answers whether it fitted the client's Maximum
    /// Packet Size; one that does not is not sent [MQTT-3.1.2-24].
    pub(crate) fn append(&mut self, packet: &Packet<'_>) -> bool {
        let start = self.output.len();
        let encoded = packet.encode(self.version, &mut self.output);
        debug_assert!(encoded.is_ok(), "{packet:?}: {encoded:?}");
        let fits = encoded.is_ok() && self.output.len() - start <= self.packet_bytes_max as usize;
        if !fits {
            self.output.truncate(start);
        }
        fits
    }
}

/// The packets of an output that are not wholly written, if so many bytes from its front are.
pub(crate) fn not_wholly_written(output: &[u8], written: usize) -> impl Iterator<Item = Frame<'_>> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let frame = next_frame(&output[end..], u32::MAX).ok()??;
        end += frame.bytes.len();
        Some((end, frame))
    })
    .skip_while(move |(end, _)| *end <= written)
    .map(|(_, frame)| frame)
}

/// The name of the client in events: shared, so that an event costs no copy.
pub(crate) fn anonymous() -> Arc<str> {
    Arc::from("")
}
