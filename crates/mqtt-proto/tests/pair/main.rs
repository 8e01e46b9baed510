//! A client and a server, built of this crate's session and connection state, in virtual time over
//! a link that delays and breaks. Each seed is one history; both sides publish at every QoS all the
//! time.
//!
//! What must hold in every history: QoS 2 arrives exactly once, QoS 1 at least once, QoS 0 at most
//! once, in the order of publication at each QoS; no side ever has more unfinished than the other
//! takes; DUP tells the truth; no legal history looks like a protocol error to either side; and
//! when the faults end, both sides come to rest with nothing left.
//!
//! A failure prints its seed and the packets before it; `PAIR_SEED=<n> cargo test --test pair
//! <name>` runs that one alone.
//!
//! Deliberately absent: bytes (golden packets test them), and what a server does with a message.

mod link;
mod peer;
mod world;

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use world::World;

/// How unkind a world is. Chances are per mille and per millisecond.
#[derive(Clone, Debug)]
struct Faults {
    /// How long a packet is under way, in ms.
    delay: RangeInclusive<u64>,
    /// The connection breaks, and with it goes what is under way.
    cut: u64,
    /// A session ends: the client wants a clean start, or the server forgets a disconnected
    /// client.
    session_end: u64,
    /// A side stops and starts again with what is on its disk.
    crash: u64,
    /// How long storing takes, in ms; none: sessions live in memory.
    disk: Option<RangeInclusive<u64>>,
}

const KIND: Faults = Faults {
    delay: 0..=3,
    cut: 0,
    session_end: 0,
    crash: 0,
    disk: None,
};

#[test]
fn a_kind_link_delivers_everything_once() {
    check(500, Faults { ..KIND });
}

// [MQTT-4.4.0-1] [MQTT-4.6.0-1] [MQTT-4.3.3-10] [MQTT-3.3.4-9] [MQTT311-4.4.0-1]
#[test]
fn lost_connections_lose_no_message() {
    check(
        6_000,
        Faults {
            cut: 40,
            delay: 0..=9,
            ..KIND
        },
    );
}

#[test]
fn sessions_that_end_take_only_their_own_messages_along() {
    check(
        3_000,
        Faults {
            cut: 40,
            session_end: 30,
            delay: 0..=9,
            ..KIND
        },
    );
}

#[test]
fn slow_disks_hold_answers_back_and_nothing_else() {
    check(
        1_500,
        Faults {
            cut: 30,
            disk: Some(0..=6),
            delay: 0..=5,
            ..KIND
        },
    );
}

#[test]
fn restarts_lose_and_repeat_nothing_that_was_answered() {
    check(
        3_000,
        Faults {
            cut: 20,
            crash: 30,
            disk: Some(0..=6),
            delay: 0..=5,
            ..KIND
        },
    );
}

fn check(seeds: u64, faults: Faults) {
    let only = std::env::var("PAIR_SEED")
        .ok()
        .map(|text| text.parse().expect("a number"));
    let seeds = only.map_or(0..seeds, |seed| seed..seed + 1);
    for seed in seeds {
        let mut world = World::new(seed, faults.clone());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.run())) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("?");
            panic!("PAIR_SEED={seed}: {text}\n{}", world.last_packets());
        }
    }
}
