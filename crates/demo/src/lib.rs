//! The demonstration behind `unbroken demo`: a line of producer, broker, processor and consumer
//! that anybody may wound, and that names and repairs each wound.
//!
//! From the line's pieces up:
//!
//! - A [`Relay`] stands between MQTT peers and gives a [`Wound`] on order; it writes down which
//!   message it hurt.
//! - A stage ([`pipe`]) of a line sends, receives, or both, by the client's audited ends. [`News`]
//!   is what a receiver finds.
//! - A [`Board`] holds what is known of the line at this moment, and which [`Fault`] is the name of
//!   which wound.
//! - [`run`] starts the line, hurts it when asked to, and shows the board. The producer plays the
//!   [`plant`]'s recording, or any file line by line.
//!
//! Invariants: what a relay says it did is what it did, so that a test can compare it with what was
//! named; nothing that the demonstration starts outlives it.

mod board;
mod contradiction;
mod doubt;
mod fault;
mod handed_on;
mod limits;
mod line;
mod news;
mod news_line;
pub mod pipe;
pub mod plant;
mod process;
mod readings;
mod relay;
mod run;
mod sequence;
mod trial;
mod view;
mod wound;

pub use self::{
    board::{Board, Hurt, Part, Sentence, Strip, What},
    contradiction::Contradiction,
    doubt::{Doubt, Doubts},
    fault::{Fault, Kind, Place},
    line::{LineError, random_lane},
    news::News,
    process::ProcessError,
    readings::{Readings, ReadingsError},
    relay::{Relay, TooManyOrders, Towards},
    run::{Outcome, RunError, Settings, run},
    trial::Trial,
    wound::{Stamps, Wound, Wounded},
};
