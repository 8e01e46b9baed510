//! The receiver's ledger: from what arrives and what the producer's checkpoints say to verdicts.
//!
//! A [`LaneLedger`] holds what a receiver knows of one epoch of one lane. It names each message
//! that is lost, late, duplicated, replayed, altered, injected, forged or out of its place, and
//! each window of 1,024 as proven, faulty or unproven. What is only unproven is never called lost.
//!
//! A [`Ledger`] is those of many lanes.
//!
//! Invariants: at every window issued = arrived + declared drops + named faults
//! ([`Account::is_lawful`]); every list has a limit in [`limits`]; time is an argument.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "a list of one gap is meant, not its numbers"
)]

pub(crate) use self::window::Peaks;

mod claim;
mod contradictions;
mod declared;
mod descent;
mod directories;
mod doubt;
mod expected;
mod gaps;
mod joining;
mod lanes;
pub mod limits;
mod merge;
mod open_window;
mod order;
mod prefix;
mod receiver;
mod repair;
mod state;
mod told;
mod verdict;
mod window;
mod windows;

pub use crate::saved::StateError;

pub use self::{
    descent::{Answer, GapListError, Refused, Request, read_gaps, write_gaps},
    directories::Taken,
    expected::Presence,
    lanes::Ledger,
    limits::LedgerLimits,
    order::Moved,
    receiver::{Arrival, Join, LaneLedger},
    repair::RepairError,
    verdict::{Account, Event, State, Verdict},
};
