//! The demonstration behind `unbroken demo`: a line of producer, broker, processor and consumer
//! into which anybody may inject faults, and that names and repairs each.
//!
//! From the line's pieces up:
//!
//! - A [`Relay`] stands between MQTT peers and gives a [`Injection`] on order; it writes down which
//!   message it changed.
//! - A stage ([`pipe`]) of a line sends, receives, or both, by the client's audited ends. [`News`]
//!   is what a receiver finds.
//! - A [`Board`] holds what is known of the line at this moment, and which [`Fault`] is the name of
//!   which injected fault.
//! - [`run`] starts the line, injects faults when asked to, and shows the board. The producer plays
//!   the [`plant`]'s recording, or any file line by line.
//!
//! Invariants: what a relay says it did is what it did, so that a test can compare it with what was
//! named; nothing that the demonstration starts outlives it.

mod board;
mod contradiction;
mod doubt;
mod fault;
mod handed_on;
mod injection;
mod limits;
mod line;
mod news;
mod news_line;
pub mod pipe;
pub mod plant;
mod process;
mod readings;
mod relay;
mod remote;
mod run;
mod sequence;
mod trial;
mod view;

pub use self::{
    board::{Board, Incident, Part, Sentence, Strip, What},
    contradiction::Contradiction,
    doubt::{Doubt, Doubts},
    fault::{Fault, Kind, Place},
    injection::{Injected, Injection, Stamps},
    line::{LineError, random_lane},
    news::{Behind, News},
    process::ProcessError,
    readings::{Readings, ReadingsError},
    relay::{Relay, TooManyOrders, Towards},
    remote::{Remote, User},
    run::{Outcome, RunError, Settings, run},
    trial::Trial,
};
