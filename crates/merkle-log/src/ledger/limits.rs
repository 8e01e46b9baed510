//! Every limit of the ledger and of a producer's lane, with what it costs in memory.
//!
//! At a limit something is named, never dropped quietly: the verdict is in each entry.

use std::time::Duration;

/// Messages of a window as a power of two: 1,024.
pub const WINDOW_LOG2: u8 = 10;

/// Messages of a window.
pub const WINDOW: u64 = 1 << WINDOW_LOG2;

/// Hashes of one answer in a descent: two rounds of 32 find one leaf among 1,024.
pub const FANOUT: u64 = 32;

/// Runs of a stretch of disorder; 24 bytes each. At it the stretch is solved as it is: the count of
/// moved messages is then an upper bound.
pub const DISORDER_RUNS_MAX: usize = 8_192;

/// Events of a lane that wait to be taken; 96 bytes each. At it they are counted:
/// [`super::Event::Unnamed`].
pub const EVENTS_MAX: usize = 16_384;

/// Producers whose directories a ledger remembers, with 12 bytes for each lane they list. The lanes
/// of one more are judged as if it had none.
pub const PRODUCERS_MAX: usize = 4_096;

/// Directories of a producer of which a copy is known as one; 24 bytes each.
pub const DIRECTORIES_MAX: usize = 64;

/// Epochs that directories announced and of which nothing has come; 12 bytes each. One more is
/// joined as if it had not been announced.
pub const ANNOUNCED_MAX: usize = 65_536;

/// Lanes that were heard or listed, by which a new epoch is known as new; 12 bytes each.
pub const HEARD_MAX: usize = 131_072;

/// Limits of one ledger, the same for each of its lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerLimits {
    /// Lanes, each epoch counting as one. At most 2 KiB each when all is in order. None is
    /// forgotten, not even one that is over: a late copy would be taken for the first message of
    /// a lane whose others are lost. Beyond it a message of a new lane is
    /// [`super::Verdict::NotAudited`].
    pub lanes_max: usize,
    /// Windows of a lane that are neither proven nor given up. One that fills in order takes 1.4
    /// KiB until a root proves it; each leaf behind a hole 50 bytes. Beyond it the oldest window
    /// ends as it is, unproven or faulty.
    pub open_windows_max: usize,
    /// Whether each leaf is held until a root proves it, at 36 bytes each, and 36 KiB a window. It
    /// tells copies with other content from duplicates ([`super::Verdict::Conflict`]), and each of
    /// several forged messages in a group of 32. False by default: leaves that come in order are
    /// folded, until a root of the lane has differed.
    pub hold_leaves: bool,
    /// Holes of a lane; about 60 bytes each. Beyond it the oldest is forgotten and named.
    pub gaps_max: usize,
    /// Altered copies, unfinished splits, and second copies, each, that a lane remembers; at most
    /// 80 bytes an entry. Beyond it the verdict is given, but not revised later.
    pub suspects_max: usize,
    /// How late a message may come before it is lost.
    pub lateness: Duration,
    /// Time between two checkpoints of a lane in use.
    pub heartbeat: Duration,
    /// Time between two checkpoints of a lane that issues nothing.
    pub idle_heartbeat: Duration,
}

impl Default for LedgerLimits {
    fn default() -> Self {
        Self {
            lanes_max: 65_536,
            open_windows_max: 64,
            hold_leaves: false,
            gaps_max: 65_536,
            suspects_max: 4_096,
            lateness: Duration::from_millis(800),
            heartbeat: Duration::from_secs(1),
            idle_heartbeat: Duration::from_secs(10),
        }
    }
}

const _: () = assert!(FANOUT * FANOUT == WINDOW, "two rounds find one leaf");
