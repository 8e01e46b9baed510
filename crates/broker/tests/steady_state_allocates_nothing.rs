//! In the steady state no shard thread asks the allocator for anything: QoS 0 messages through real
//! sockets, counted by an allocator that knows this test's own thread from all others. A binary of
//! its own, because an allocator is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]

#[path = "loopback/client.rs"]
#[allow(dead_code, reason = "the other test binary uses all of it")]
mod client;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{Client, publish};
use unbroken_broker::Server;
use unbroken_broker::config::{Config, Listener};

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

const PAIRS: usize = 10;
/// Messages of each pair in one round; a round ends when all have arrived.
const ROUND: usize = 10;
const WARM_UP_ROUNDS: usize = 20;
const ROUNDS: usize = 100;

#[test]
fn ten_thousand_qos_0_messages_allocate_nothing_on_the_shard_thread() {
    OWN.set(true);
    let mut config = Config::default();
    config.broker.shards = Some(1);
    config.broker.sys_interval = None;
    config.listeners = vec![Listener {
        bind: Ipv4Addr::LOCALHOST.into(),
        port: 0,
        ..Listener::default()
    }];
    let server = Server::start(config).unwrap();
    let address = server.listeners()[0].address;
    let mut pairs: Vec<_> = (0..PAIRS)
        .map(|n| {
            let topic = format!("pair/{n}");
            let mut subscriber = Client::connect(address, &format!("subscriber-{n}"));
            subscriber.subscribe(&topic);
            let publisher = Client::connect(address, &format!("publisher-{n}"));
            let burst = publish(&topic, &[0; 16]).repeat(ROUND);
            (publisher, subscriber, burst)
        })
        .collect();
    let mut rounds = |count: usize| {
        for _ in 0..count {
            for (publisher, _, burst) in &mut pairs {
                publisher.send(burst);
            }
            for (_, subscriber, _) in &mut pairs {
                for _ in 0..ROUND {
                    subscriber.expect_message();
                }
            }
        }
    };
    rounds(WARM_UP_ROUNDS);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    rounds(ROUNDS);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert_eq!(allocations, 0, "in {} messages", PAIRS * ROUND * ROUNDS);
    assert!(before > 0, "the counter counts");
}
