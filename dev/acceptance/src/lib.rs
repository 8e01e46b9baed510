//! What the acceptance tests share: the broker as another process, and clients that are not ours.
//!
//! Everything here talks to the real binary, over TCP or another transport. The raw client writes
//! and reads MQTT bytes by hand and knows nothing of the broker's own codec, so that an error made
//! symmetrically in encoder and decoder is still seen. Helpers panic with what was expected and
//! what came instead: their only callers are tests.
//!
//! Deliberately absent: sleeps and fixed ports. A test waits for a condition until a deadline.

pub mod admin;
pub mod client;
pub mod disk;
pub mod door;
pub mod fake_broker;
#[cfg(feature = "gherkin")]
pub mod features;
pub mod mosquitto;
pub mod process;
#[cfg(feature = "gherkin")]
pub mod program;
pub mod raw;
pub mod server;
pub mod slow_link;
pub mod tools;
#[cfg(feature = "gherkin")]
pub mod wire;

use std::time::Duration;

pub use admin::Admin;
pub use client::{Client, collect};
pub use door::Transport;
pub use fake_broker::{FakeBroker, Guest};
pub use mosquitto::Mosquitto;
pub use process::{Broker, Launch, User};
pub use server::Server;

/// How long anything that must happen may take before a test gives up on it.
///
/// Generous, because the suite shares its machine; a passing test never waits this long.
pub const DEADLINE: Duration = Duration::from_secs(15);

/// Names the case that a test over many of them is about to try; shown when it fails.
#[expect(
    clippy::print_stderr,
    reason = "the test harness captures this and shows it on failure"
)]
pub fn case(name: &str) {
    eprintln!("case: {name}");
}
