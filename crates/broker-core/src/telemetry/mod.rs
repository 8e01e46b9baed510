//! What a shard counts and reports: counters that can be added up over shards, and events.

mod audit_totals;
mod drops;
mod event;
mod stats;

pub use audit_totals::{Aside, AuditTotals, PublishersTotals};
pub use event::Event;
pub use stats::{CommitTimes, SleepingTotals, Stats, Work};

pub(crate) use audit_totals::Again;
pub(crate) use drops::{DropTallies, TELL_DROPS_EVERY};
