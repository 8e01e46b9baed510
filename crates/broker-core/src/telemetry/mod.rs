//! What a shard counts: plain counters that can be added up over shards.

mod audit_totals;
mod stats;

pub use audit_totals::{Aside, AuditTotals, PublishersTotals};
pub use stats::{CommitTimes, SleepingTotals, Stats};
