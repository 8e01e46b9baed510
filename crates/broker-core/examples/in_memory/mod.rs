//! A shard whose clients are in memory, for programs that count what it does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_broker_core::{
    Admission, ConnectionId, Grant, Input, Limits, Output, Peer, Settings, Shard, ShardId,
    ShardOptions, Totals,
};

/// One shard, and time that stands still but for [`Broker::begin_turn`].
pub(crate) struct Broker {
    shard: Shard,
    now: Instant,
    dirty: Vec<ConnectionId>,
}

impl Broker {
    #[expect(clippy::disallowed_methods, reason = "the epoch of a measurement")]
    pub(crate) fn new(audit: bool) -> Self {
        let mut settings = Settings::default();
        settings.sys_interval = None;
        settings.audit.enabled = audit;
        let now = Instant::now();
        let shard = Shard::new(ShardOptions {
            id: ShardId(0),
            shards: 1,
            limits: Limits::default(),
            settings,
            totals: Arc::new(Totals::default()),
            seed: 1,
            start: now,
        });
        let dirty = Vec::new();
        Self { shard, now, dirty }
    }

    /// A clean session of MQTT 3.1.1.
    pub(crate) fn connect(&mut self, index: u32, client_id: &str) {
        self.open(index, &[b"\x04\x02\0\0", &string(client_id)[..]].concat());
    }

    /// A clean session of MQTT 5.0.
    #[allow(dead_code, reason = "not every program has one")]
    pub(crate) fn connect_v5(&mut self, index: u32, client_id: &str) {
        self.open(index, &[b"\x05\x02\0\0\0", &string(client_id)[..]].concat());
    }

    /// `rest` is what follows the protocol name in CONNECT.
    fn open(&mut self, index: u32, rest: &[u8]) {
        let connection = named(index);
        let (address, listener) = (None, 0);
        let peer = Peer {
            address,
            listener,
            certificate: None,
        };
        self.begin_turn();
        self.input(Input::Opened { connection, peer });
        self.send(index, &packet(0x10, &[b"\0\x04MQTT", rest].concat()));
        let admission = Admission::Granted(Grant::anonymous());
        self.input(Input::Authenticated {
            connection,
            admission,
        });
    }

    pub(crate) fn send(&mut self, index: u32, bytes: &[u8]) {
        let connection = named(index);
        self.input(Input::Received { connection, bytes });
    }

    fn input(&mut self, input: Input<'_>) {
        for output in self.shard.handle(self.now, input) {
            assert!(!matches!(output, Output::Close { .. }), "{output:?}");
        }
    }

    /// What waits for another turn goes on. The coming of a client begins one, too.
    pub(crate) fn begin_turn(&mut self) {
        self.now += Duration::from_nanos(1);
        if self.shard.next_timeout().is_some_and(|at| at <= self.now) {
            self.input(Input::Timeout { heard: self.now });
        }
    }

    /// Bytes that are to be written to a client.
    #[allow(dead_code, reason = "not every program asks")]
    pub(crate) fn waiting(&self, index: u32) -> usize {
        self.shard.pending_output(named(index)).len()
    }

    /// Takes what is to be written; at QoS 1 receivers acknowledge it.
    pub(crate) fn write(&mut self, qos: u8) -> usize {
        let mut dirty = std::mem::take(&mut self.dirty);
        self.shard.take_dirty(&mut dirty, usize::MAX);
        let mut written = 0;
        for id in dirty.drain(..) {
            let output = self.shard.pending_output(id);
            let length = output.len();
            let publish = qos > 0 && output.first() == Some(&0x32);
            let packet_id = publish.then(|| packet_id_of(output));
            self.shard.wrote(self.now, id, length);
            written += length;
            if let Some([high, low]) = packet_id {
                self.send(id.index, &[0x40, 2, high, low]);
            }
        }
        self.dirty = dirty;
        written
    }
}

/// The two bytes behind the topic of a PUBLISH.
fn packet_id_of(publish: &[u8]) -> [u8; 2] {
    let length_bytes = publish[1..]
        .iter()
        .take_while(|byte| **byte >= 0x80)
        .count()
        + 1;
    let topic = 1 + length_bytes;
    let length = u16::from_be_bytes([publish[topic], publish[topic + 1]]);
    let at = topic + 2 + usize::from(length);
    [publish[at], publish[at + 1]]
}

fn named(index: u32) -> ConnectionId {
    let serial = index;
    ConnectionId { index, serial }
}

/// With its length in front.
pub(crate) fn string(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap().to_be_bytes();
    [&length[..], text.as_bytes()].concat()
}

pub(crate) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    let mut rest = body.len();
    while rest >= 0x80 {
        bytes.push(u8::try_from(rest % 0x80).unwrap() | 0x80);
        rest /= 0x80;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes.extend_from_slice(body);
    bytes
}
