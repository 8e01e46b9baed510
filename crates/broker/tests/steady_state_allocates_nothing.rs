//! In the steady state no shard thread asks the allocator for anything: messages of QoS 0 and 1
//! through real sockets, on one shard and from one shard to the other, counted by an allocator that
//! knows this test's own thread from all others. A binary of its own, because an allocator is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]

#[path = "loopback/client.rs"]
#[allow(dead_code, reason = "the other test binary uses all of it")]
mod client;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use client::{Client, Received, connect, packet, publish, string, subscribe_at};
use unbroken_broker::Server;
use unbroken_broker::config::{Config, Listener};
use unbroken_broker_core::{
    ConnectionId, Input, Limits, Output, Peer, Settings, Shard, ShardId, ShardOptions, Totals,
};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread's allocations are the test's own.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

fn count() {
    if !OWN.get() {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PAIRS: u16 = 10;
/// Messages of each pair in one round; a round ends when all have arrived and are acknowledged.
const ROUND: u16 = 10;
const ROUNDS: u16 = 100;
const MESSAGES: u16 = PAIRS * ROUND * ROUNDS;
/// In all rounds. No message needs one, but the test does not control how the threads take turns,
/// so a buffer may be used for something longer than before, and grow, after the warm-up too.
const ALLOCATIONS_MAX: u64 = 100;
/// Enough for what a burst has made large to become small again.
const WARM_UP_ROUNDS: u16 = 100;
/// Bytes of a packet that are sent before its rest.
const CUT: usize = 7;

#[test]
fn in_the_steady_state_a_message_allocates_nothing_on_the_shard_threads() {
    OWN.set(true);
    for shards in [1, 2] {
        for qos in [0, 1] {
            let allocations = allocations_in_the_steady_state(shards, qos);
            assert!(
                allocations <= ALLOCATIONS_MAX,
                "{allocations} in {MESSAGES} messages at QoS {qos} with {shards} shards"
            );
        }
    }
}

fn allocations_in_the_steady_state(shards: u8, qos: u8) -> u64 {
    let mut config = Config::default();
    config.broker.shards = Some(shards);
    config.broker.sys_interval = None; // its figures are messages that need memory of their own
    config.storage.in_memory = true;
    config.listeners = vec![Listener {
        bind: Ipv4Addr::LOCALHOST.into(),
        port: 0,
        ..Listener::default()
    }];
    let server = Server::start(config).unwrap();
    let address = server.listeners()[0].address.tcp().unwrap();
    let mut pairs: Vec<_> = (0..PAIRS)
        .map(|n| Pair::connect(address, n, shards, qos))
        .collect();
    // As many messages at once as will be under way later, however the threads take turns: those
    // of a round, and those of the one before whose acknowledgements have not been read.
    for pair in &mut pairs {
        round(slice::from_mut(pair), 2 * PAIRS * ROUND);
    }
    for _ in 0..WARM_UP_ROUNDS {
        round(&mut pairs, ROUND);
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..ROUNDS {
        round(&mut pairs, ROUND);
    }
    assert!(before > 0, "the counter counts");
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

fn round(pairs: &mut [Pair], count: u16) {
    for pair in &mut *pairs {
        pair.publish(count);
    }
    for pair in pairs {
        pair.receive(count);
    }
}

/// A publisher and its subscriber, which live on different shards if there are two.
struct Pair {
    publisher: Client,
    subscriber: Client,
    topic: String,
    qos: u8,
    /// Bytes of the next message that were sent already.
    begun: usize,
}

impl Pair {
    fn connect(address: SocketAddr, n: u16, shards: u8, qos: u8) -> Self {
        let topic = format!("pair/{n}");
        let id = |role: &str, home| {
            let mut ids = (0..).map(|attempt| format!("{role}-{n}-{attempt}"));
            ids.find(|id| home_of(id, shards) == home).unwrap()
        };
        let mut subscriber = Client::connect(address, &id("subscriber", ShardId(0)));
        subscriber.send(&subscribe_at(&topic, qos));
        assert!(matches!(subscriber.receive(), Received::Packet(0x90, _)));
        Self {
            publisher: Client::connect(address, &id("publisher", ShardId(shards - 1))),
            subscriber,
            topic,
            qos,
            begun: 0,
        }
    }

    /// Sends so many messages in one write. Every other time the beginning of the next one comes
    /// with them, which the broker has to keep until the rest comes.
    fn publish(&mut self, count: u16) {
        let mut burst: Vec<u8> = (1..=count).flat_map(|id| self.packet(id)).collect();
        burst.drain(..self.begun);
        self.begun = CUT - self.begun;
        burst.extend_from_slice(&self.packet(1)[..self.begun]);
        self.publisher.send(&burst);
    }

    fn packet(&self, id: u16) -> Vec<u8> {
        match self.qos {
            0 => publish(&self.topic, &[0; 16]),
            _ => packet(
                0x32,
                &[&string(&self.topic)[..], &id.to_be_bytes(), b"\0", &[0; 16]].concat(),
            ),
        }
    }

    /// Receives them, and at QoS 1 acknowledges them and receives their acknowledgements.
    fn receive(&mut self, count: u16) {
        if self.qos == 0 {
            for _ in 0..count {
                self.subscriber.expect_message();
            }
            return;
        }
        for _ in 0..count {
            let Received::Packet(0x32, body) = self.subscriber.receive() else {
                panic!("not PUBLISH at QoS 1");
            };
            let id = &body[2 + self.topic.len()..][..2];
            self.subscriber.send(&[&[0x40, 2], id].concat());
        }
        for _ in 0..count {
            assert!(matches!(
                self.publisher.receive(),
                Received::Packet(0x40, _)
            ));
        }
    }
}

/// The shard that a client lives on: the first one is asked whether it would send it away.
fn home_of(client_id: &str, shards: u8) -> ShardId {
    let first = ShardId(0);
    let mut shard = Shard::new(ShardOptions {
        id: first,
        shards,
        limits: Limits::default(),
        settings: Settings::default(),
        totals: Arc::new(Totals::default()),
        seed: 0,
        start: Instant::now(),
    });
    let connection = ConnectionId {
        index: 0,
        serial: 0,
    };
    let peer = Peer::default();
    let now = Instant::now();
    let opened = Input::Opened { connection, peer };
    assert_eq!(shard.handle(now, opened).count(), 0);
    let bytes = &connect(client_id);
    let asked = shard.handle(now, Input::Received { connection, bytes });
    let moved = asked.filter_map(|output| match output {
        Output::Move { to, .. } => Some(to),
        _ => None,
    });
    moved.last().unwrap_or(first)
}
