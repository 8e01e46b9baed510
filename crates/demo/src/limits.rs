//! Every limit of the crate, with what it costs.

use std::time::Duration;

/// The largest file that is played: 64 MiB, held as lines with 16 bytes more each.
pub(crate) const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Injections ordered and not given yet, and as many given and not taken: about 300 bytes each.
pub(crate) const ORDERS_MAX: usize = 1 << 16;

/// How long a message waits for the neighbour that is to overtake it.
pub(crate) const SWAP_WITHIN: Duration = Duration::from_secs(2);

/// Windows that a strip shows: as many as any terminal has columns, 16 bytes each.
pub(crate) const WINDOWS_SHOWN: usize = 400;

/// Rates that are shown, 8 bytes each.
pub(crate) const RATES_SHOWN: usize = 400;

/// Faults without an explanation that are kept, 40 bytes each. One is too many.
pub(crate) const FAULTS_SHOWN: usize = 1_000;

/// Numbers that C has passed over and that may still come, about 20 bytes each.
pub(crate) const PASSED_OVER_MAX: usize = 64 * 1_024;

/// Messages of a lane that wait for one before them, about 30 bytes each.
pub(crate) const WAITING_MAX: usize = 64 * 1_024;

/// Inputs of a stage whose outputs are not acknowledged: at most as many as a client receives
/// before it must acknowledge one.
pub(crate) const UNACKNOWLEDGED_MAX: usize = 512;

/// Lines of B kept for when it ends by itself: a panic has fewer.
pub(crate) const LAST_WORDS_MAX: usize = 10;

/// The longest line that a stage makes a message of: the broker's packet limit, as far as the user
/// does not change it, less 128 KiB for a topic and properties. Held once while it is read.
pub(crate) const LINE_BYTES_MAX: u64 = (16 << 20) - (128 << 10);

/// How often time passes for a stage.
pub(crate) const STAGE_TICK: Duration = Duration::from_millis(20);

/// How long a stage answers after its input has ended: as long as confirming a loss takes.
pub(crate) const LINGER: Duration = Duration::from_secs(3);

/// How long an interrupted stage waits for acknowledgements.
pub(crate) const FAREWELL: Duration = Duration::from_secs(3);

/// How often a consumer's state is written while messages come.
pub(crate) const SAVE_EVERY: Duration = Duration::from_millis(100);

/// Pieces of news that wait to be shown, about 60 bytes each. At it the stage that tells them
/// waits.
pub(crate) const NEWS_WAITING_MAX: usize = 65_536;

/// How soon an injected fault is named: the demonstration's promise, which every plain run
/// measures.
pub(crate) const NAMED_WITHIN: Duration = Duration::from_secs(2);

/// How long after its repair a broken part still explains faults: several ticks of every stage.
pub(crate) const TOLD_WITHIN: Duration = Duration::from_millis(500);
