//! A broker of some shards without threads or sockets; messages and time move as the test says.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::format_push_string, reason = "a test reads better so")]

mod authentication;
mod disk;
mod order;
mod packets;
mod show;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_broker_core::{
    Admission, CloseCause, ConnectionId, Event, Forget, Grant, Input, Limits, Output, Peer,
    ReadRequest, Record, Room, Settings, Shard, ShardId, ShardMessage, ShardOptions, StoreId,
    StoreSize, Totals,
};
use unbroken_mqtt_proto::{
    Connect, Packet, PacketId, Properties, Property, PropertyBuf, Publish, QoS, ReasonCode,
    RetainHandling, Subscribe, SubscriptionOptions, Subscriptions, TopicFilters, Unsubscribe,
    Version, next_frame,
};

use self::authentication::scripted;
pub(crate) use self::disk::Disk;
use self::disk::Logs;
#[allow(unused_imports, reason = "each test file uses its part")]
pub(crate) use self::packets::{
    connect, publish, retained, send_subscribe, subscribe, unsubscribe,
};
use self::show::{show, show_record};

/// Shards and the clients connected to them.
pub(crate) struct Broker {
    pub(crate) shards: Vec<Shard>,
    pub(crate) now: Instant,
    pub(crate) events: Vec<Event>,
    pub(crate) stores: Vec<(usize, StoreId, Record, Instant)>,
    /// What the shards want to read, and have not been answered.
    reads: Vec<(usize, ReadRequest)>,
    disk: Box<dyn Disk>,
    /// What was asked to be stored since it was last looked at, each as a short text.
    asked: Vec<String>,
    messages: VecDeque<(ShardId, ShardId, ShardMessage)>,
    /// Messages stay where they are until `deliver_messages`.
    pub(crate) hold_messages: bool,
    /// Nothing is read until this is false again.
    pub(crate) hold_reads: bool,
    /// Up to when clients have been listened to, if not up to now.
    pub(crate) heard: Option<Instant>,
    /// Nobody is let in until `admit`.
    pub(crate) hold_admissions: bool,
    admissions: Vec<(usize, ConnectionId, Admission)>,
    /// What clients are let in with, beside their user names.
    pub(crate) vouched: Grant,
    /// Nothing is written until `release_writes`: every receiver is slow.
    pub(crate) hold_writes: bool,
    /// Bytes that a peer takes of the last words of its connection.
    pub(crate) last_words_max: usize,
    links: Vec<Link>,
    serial: u32,
    dirty: Vec<ConnectionId>,
}

struct Link {
    peer: Peer,
    shard: usize,
    id: ConnectionId,
    received: Vec<u8>,
    version: Version,
    open: bool,
}

pub(crate) struct Received {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) properties: Vec<(String, String)>,
}

/// A client of a [`Broker`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Client(usize);

impl Broker {
    pub(crate) fn new(shards: u8) -> Self {
        Self::with(shards, Limits::default(), Settings::default())
    }

    pub(crate) fn with(shards: u8, limits: Limits, mut settings: Settings) -> Self {
        settings.sys_interval = None;
        Self::made(shards, limits, settings)
    }

    /// One that tells what is under `$SYS`.
    pub(crate) fn with_sys(shards: u8) -> Self {
        Self::made(shards, Limits::default(), Settings::default())
    }

    fn made(shards: u8, limits: Limits, settings: Settings) -> Self {
        Self::in_room(Room::default(), shards, limits, settings)
    }

    /// One whose system has room for so many connections.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's epoch; it advances only by `advance`"
    )]
    pub(crate) fn in_room(room: Room, shards: u8, limits: Limits, settings: Settings) -> Self {
        let start = Instant::now();
        let totals = Arc::new(Totals::new(room, &[]));
        let shards = (0..shards)
            .map(|id| {
                Shard::new(ShardOptions {
                    id: ShardId(id),
                    shards,
                    limits: limits.clone(),
                    settings: settings.clone(),
                    totals: Arc::clone(&totals),
                    seed: 7,
                    start,
                })
            })
            .collect();
        Self {
            shards,
            now: start,
            events: Vec::new(),
            stores: Vec::new(),
            reads: Vec::new(),
            disk: Box::new(Logs::default()),
            asked: Vec::new(),
            messages: VecDeque::new(),
            hold_messages: false,
            hold_reads: false,
            heard: None,
            hold_admissions: false,
            admissions: Vec::new(),
            vouched: Grant::default(),
            hold_writes: false,
            last_words_max: usize::MAX,
            links: Vec::new(),
            serial: 0,
            dirty: Vec::new(),
        }
    }

    /// Opens a connection on some shard.
    pub(crate) fn open(&mut self, version: Version) -> Client {
        self.open_from(version, Peer::default())
    }

    /// The same, from this address.
    pub(crate) fn open_from(&mut self, version: Version, peer: Peer) -> Client {
        let shard = self.links.len() % self.shards.len();
        let client = Client(self.links.len());
        let id = self.next_id();
        self.links.push(Link {
            shard,
            id,
            peer: peer.clone(),
            received: Vec::new(),
            version,
            open: true,
        });
        let connection = id;
        self.input(shard, Input::Opened { connection, peer });
        client
    }

    /// More is known of the other side.
    pub(crate) fn identify(&mut self, client: Client, peer: Peer) {
        let Link { shard, id, .. } = self.links[client.0];
        self.links[client.0].peer = peer.clone();
        let connection = id;
        self.input(shard, Input::Identified { connection, peer });
    }

    /// The transport of a connection holds so many bytes.
    pub(crate) fn transport_holds(&mut self, client: Client, bytes: usize) {
        let Link { shard, id, .. } = self.links[client.0];
        let connection = id;
        self.input(shard, Input::TransportHolds { connection, bytes });
    }

    fn next_id(&mut self) -> ConnectionId {
        self.serial += 1;
        ConnectionId {
            index: self.serial,
            serial: self.serial,
        }
    }

    /// Sends a packet.
    pub(crate) fn send(&mut self, client: Client, packet: Packet<'_>) {
        let mut bytes = Vec::new();
        packet
            .encode(self.links[client.0].version, &mut bytes)
            .unwrap();
        self.send_bytes(client, &bytes);
    }

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&mut self, client: Client, bytes: &[u8]) {
        let Link {
            shard, id, open, ..
        } = self.links[client.0];
        if open {
            self.input(
                shard,
                Input::Received {
                    connection: id,
                    bytes,
                },
            );
        }
    }

    /// Gives every shard other limits.
    pub(crate) fn reconfigure(&mut self, limits: Limits) {
        for shard in 0..self.shards.len() {
            let limits = Box::new(limits.clone());
            self.input(shard, Input::Reconfigured(limits));
        }
    }

    /// Tells every shard how large the store is.
    pub(crate) fn store_size(&mut self, bytes: u64) {
        self.store_size_with(bytes, [0, 0], u64::MAX);
    }

    /// The same, of it values and what stays on the disk, which has room for so much.
    pub(crate) fn store_size_with(&mut self, bytes: u64, [values, staying]: [u64; 2], room: u64) {
        let mut lowest = BTreeMap::new();
        for shard in &self.shards {
            for (log, number) in shard.needed().iter() {
                let lowest = lowest.entry(log).or_insert(number);
                *lowest = number.min(*lowest);
            }
        }
        let size = StoreSize {
            bytes,
            values,
            staying,
            room,
            needed: lowest.into_iter().collect(),
            left_out: self.disk.left_out(),
            commits: None,
        };
        for shard in 0..self.shards.len() {
            self.input(shard, Input::StoreSize(size.clone()));
        }
    }

    /// Tells every shard whether the disk lacks space.
    pub(crate) fn disk_lacks_space(&mut self, lacks: bool) {
        for shard in 0..self.shards.len() {
            self.input(shard, Input::DiskLacksSpace(lacks));
        }
    }

    /// Tells every shard that nothing is stored any more: nothing that was asked for is.
    pub(crate) fn store_failed(&mut self, cause: &str) {
        self.stores.clear();
        self.reads.clear();
        for shard in 0..self.shards.len() {
            let cause = Arc::from(cause);
            self.input(shard, Input::StoreFailed { cause });
        }
    }

    /// Tells every shard what is to be removed.
    pub(crate) fn forget(&mut self, what: &Forget) {
        for shard in 0..self.shards.len() {
            self.input(shard, Input::Operator(what.clone().into()));
        }
    }

    /// Tells every shard to stop.
    pub(crate) fn drain(&mut self) {
        for shard in 0..self.shards.len() {
            self.input(shard, Input::Drain);
        }
    }

    /// Writes so many bytes of what waits for the client, and no more.
    pub(crate) fn write(&mut self, client: Client, bytes: usize) {
        let Link { shard, id, .. } = self.links[client.0];
        let written = self.shards[shard].pending_output(id)[..bytes].to_vec();
        self.links[client.0].received.extend_from_slice(&written);
        self.shards[shard].wrote(self.now, id, bytes);
    }

    /// So many bytes of the output will leave as they are.
    pub(crate) fn seal(&mut self, client: Client, bytes: usize) {
        let Link { shard, id, .. } = self.links[client.0];
        self.shards[shard].note_sealed(id, bytes);
    }

    /// Cuts the connection.
    pub(crate) fn cut(&mut self, client: Client) {
        let Link { shard, id, .. } = self.links[client.0];
        self.links[client.0].open = false;
        self.input(
            shard,
            Input::Closed {
                connection: id,
                cause: CloseCause::Peer,
            },
        );
    }

    /// The shard that the connection of this client is at.
    pub(crate) fn shard_of(&self, client: Client) -> usize {
        self.links[client.0].shard
    }

    pub(crate) fn is_open(&self, client: Client) -> bool {
        self.links[client.0].open
    }

    /// Bytes that wait to be written to the client.
    pub(crate) fn pending(&self, client: Client) -> usize {
        let Link { shard, id, .. } = self.links[client.0];
        self.shards[shard].pending_output(id).len()
    }

    /// Whether a driver would read from the client now.
    pub(crate) fn wants_input(&self, client: Client) -> bool {
        let Link { shard, id, .. } = self.links[client.0];
        self.shards[shard].wants_input(id)
    }

    /// The packets the client has received since it was last asked, each as its `Debug` text.
    pub(crate) fn take(&mut self, client: Client) -> Vec<String> {
        let link = &mut self.links[client.0];
        let bytes = std::mem::take(&mut link.received);
        let mut rest = bytes.as_slice();
        let mut packets = Vec::new();
        while let Some(frame) = next_frame(rest, u32::MAX).unwrap() {
            packets.push(show(&Packet::decode(frame, link.version).unwrap()));
            rest = &rest[frame.bytes.len()..];
        }
        assert!(rest.is_empty(), "half a packet was written");
        packets
    }

    /// The payloads of the messages that the client has received since it was last asked.
    pub(crate) fn take_payloads(&mut self, client: Client) -> Vec<Vec<u8>> {
        let received = self.take_publishes(client).into_iter();
        received.map(|received| received.payload).collect()
    }

    /// The messages that the client has received since it was last asked.
    pub(crate) fn take_publishes(&mut self, client: Client) -> Vec<Received> {
        let link = &mut self.links[client.0];
        let bytes = std::mem::take(&mut link.received);
        let mut rest = bytes.as_slice();
        let mut messages = Vec::new();
        while let Some(frame) = next_frame(rest, u32::MAX).unwrap() {
            if let Packet::Publish(publish) = Packet::decode(frame, link.version).unwrap() {
                let user = publish.properties.user_properties();
                messages.push(Received {
                    topic: publish.topic.to_owned(),
                    payload: publish.payload.to_vec(),
                    packet_id: publish.packet_id,
                    properties: user.map(|(k, v)| (k.into(), v.into())).collect(),
                });
            }
            rest = &rest[frame.bytes.len()..];
        }
        messages
    }

    /// The bytes that the client has received since it was last asked.
    pub(crate) fn take_bytes(&mut self, client: Client) -> Vec<u8> {
        std::mem::take(&mut self.links[client.0].received)
    }

    /// Lets in who waits for it.
    pub(crate) fn admit(&mut self) {
        self.hold_admissions = false;
        for (shard, connection, admission) in std::mem::take(&mut self.admissions) {
            let answer = Input::Authenticated {
                connection,
                admission,
            };
            self.input(shard, answer);
        }
    }

    /// Lets in nobody of who waits for it.
    pub(crate) fn refuse(&mut self) {
        self.hold_admissions = false;
        for (shard, connection, _) in std::mem::take(&mut self.admissions) {
            let reason = ReasonCode::BadUserNameOrPassword;
            let detail = reason.name().into();
            let admission = Admission::Refused { reason, detail };
            let answer = Input::Authenticated {
                connection,
                admission,
            };
            self.input(shard, answer);
        }
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, by: Duration) {
        self.now += by;
        for shard in 0..self.shards.len() {
            if self.shards[shard]
                .next_timeout()
                .is_some_and(|at| at <= self.now)
            {
                let heard = self.heard.unwrap_or(self.now);
                self.input(shard, Input::Timeout { heard });
            }
        }
    }

    pub(crate) fn deliver_messages(&mut self) {
        while let Some((from, to, message)) = self.messages.pop_front() {
            self.input_one(usize::from(to.0), Input::ShardMessage { from, message });
        }
        self.flush();
    }

    /// The oldest message that is held arrives. False if there is none.
    pub(crate) fn deliver_message(&mut self) -> bool {
        let Some((from, to, message)) = self.messages.pop_front() else {
            return false;
        };
        self.input_one(usize::from(to.0), Input::ShardMessage { from, message });
        self.flush();
        true
    }

    pub(crate) fn input(&mut self, shard: usize, input: Input<'_>) {
        self.input_one(shard, input);
        if !self.hold_messages {
            self.deliver_messages();
        }
        self.flush();
        self.answer_reads();
    }

    fn input_one(&mut self, shard: usize, input: Input<'_>) {
        let outputs: Vec<_> = self.shards[shard].handle(self.now, input).collect();
        // For the same shard, when all that it has asked for is done.
        let mut answers = Vec::new();
        for output in outputs {
            match output {
                Output::Close {
                    connection,
                    mut last_words,
                } => {
                    let taken = last_words.unwritten().len().min(self.last_words_max);
                    if let Some(link) = self.link(shard, connection) {
                        link.received
                            .extend_from_slice(&last_words.unwritten()[..taken]);
                        link.open = false;
                    }
                    last_words.wrote(taken);
                    if !last_words.unwritten().is_empty() {
                        answers.push(Input::Unsaid(last_words));
                    }
                }
                Output::Move {
                    connection,
                    to,
                    unread,
                } => {
                    let (to, id) = (usize::from(to.0), self.next_id());
                    let link = self.link(shard, connection).unwrap();
                    (link.shard, link.id) = (to, id);
                    let (connection, peer) = (id, link.peer.clone());
                    self.input_one(to, Input::Opened { connection, peer });
                    let bytes = &unread;
                    self.input_one(to, Input::Received { connection, bytes });
                }
                Output::Authenticate {
                    connection,
                    credentials,
                    ..
                } => {
                    if let Some(step) = credentials.step {
                        answers.push(scripted(connection, step));
                        continue;
                    }
                    let admission = Admission::Granted(Grant {
                        user: credentials.user_name.map(Into::into),
                        ..self.vouched.clone()
                    });
                    if self.hold_admissions {
                        self.admissions.push((shard, connection, admission));
                        continue;
                    }
                    answers.push(Input::Authenticated {
                        connection,
                        admission,
                    });
                }
                Output::ShardMessage { to, message } => {
                    self.messages
                        .push_back((ShardId(u8::try_from(shard).unwrap()), to, message));
                }
                Output::Store(request) => {
                    self.asked.push(show_record(&request.record));
                    self.stores
                        .push((shard, request.id, request.record, self.now));
                }
                Output::Read(request) => self.reads.push((shard, request)),
                // Nothing is trimmed here, and who is cut is cut at once.
                Output::Needed(_) => {}
                Output::Event(event) => self.events.push(event),
            }
        }
        for answer in answers {
            self.input_one(shard, answer);
        }
    }

    fn link(&mut self, shard: usize, id: ConnectionId) -> Option<&mut Link> {
        self.links
            .iter_mut()
            .find(|link| link.shard == shard && link.id == id)
    }

    /// Writes what was held.
    pub(crate) fn release_writes(&mut self) {
        self.hold_writes = false;
        self.flush();
    }

    /// Writes everything that waits, until nothing does.
    fn flush(&mut self) {
        if self.hold_writes {
            return;
        }
        loop {
            let mut written = false;
            for shard in 0..self.shards.len() {
                let mut dirty = std::mem::take(&mut self.dirty);
                self.shards[shard].take_dirty(&mut dirty, usize::MAX);
                for id in dirty.drain(..) {
                    let bytes = self.shards[shard].pending_output(id).to_vec();
                    self.shards[shard].wrote(self.now, id, bytes.len());
                    if let Some(link) = self.link(shard, id) {
                        link.received.extend_from_slice(&bytes);
                    }
                    written = true;
                }
                self.dirty = dirty;
            }
            if !written {
                return;
            }
        }
    }
}

pub(crate) fn join(broker: &mut Broker, client_id: &str) -> Client {
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(connect(client_id)));
    assert_eq!(broker.take(client), ["CONNACK 0 00"]);
    client
}

pub(crate) fn stay(broker: &mut Broker, client_id: &str, clean_start: bool) -> Client {
    let mut properties = PropertyBuf::new();
    properties
        .push(Property::SessionExpiryInterval(100))
        .unwrap();
    let client = broker.open(Version::V5);
    let packet = Connect {
        clean_start,
        properties: properties.as_properties(),
        ..connect(client_id)
    };
    broker.send(client, Packet::Connect(packet));
    client
}

/// A client whose session stays, with everything it has asked for so far stored and read.
pub(crate) fn resident(broker: &mut Broker, client_id: &str, filters: &[(&str, QoS)]) -> Client {
    let client = stay(broker, client_id, false);
    broker.stored();
    for (filter, qos) in filters {
        subscribe(broker, client, filter, *qos);
        broker.stored();
    }
    broker.take(client);
    broker.take_asked();
    client
}
