//! Did every message arrive, and if not, which one, where and why?
//!
//! ```text
//! counters of one moment ─▶ Delivery: a sentence and a state
//! events that name messages ─▶ Incidents: grouped, bounded, on disk
//! ```
//!
//! Invariants:
//! - An answer is made of one snapshot of the counters, and says since when they count.
//! - Nothing is green that is not known: an incident stays until it is repaired or ignored, also
//!   over a restart, and events that were missed are counted and shown.

pub(crate) mod file;
pub(crate) mod flow;
pub(crate) mod incident;
pub(crate) mod incidents;
pub(crate) mod inside;
pub(crate) mod missing;
pub(crate) mod now;
pub(crate) mod repair;
pub(crate) mod strip;

pub(crate) use self::incident::Incident;
pub(crate) use self::incidents::Incidents;
pub(crate) use self::now::Delivery;
