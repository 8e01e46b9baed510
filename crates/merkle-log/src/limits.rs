//! Every limit of the crate, with what it costs.

/// Messages of one epoch, and one more than the highest sequence number. Half the range of `u64`,
/// so that sizes, ends and level arithmetic cannot overflow.
pub const MAX_SIZE: u64 = 1 << 63;

/// The usual window: 2^10 = 1,024 messages.
pub const DEFAULT_WINDOW_LOG2: u8 = 10;

/// The largest window that a checkpoint may name: 2^16 messages. With whole leaves of 32 bytes its
/// detail is 2 MiB.
pub const MAX_WINDOW_LOG2: u8 = 16;

/// Lanes that one directory may list: 20 bytes each, 80 KiB in all.
pub const MAX_OPEN_LANES: usize = 4096;

/// Leaves of a heritage tree: 2^24. With leaves of 40 bytes it is serialised as 928 MiB.
pub const MAX_HERITAGE_LEAVES: u32 = 1 << 24;

/// Leaves of a THEX tree: 2^24, which are 16 GiB in blocks of 1,024 bytes. It is serialised as
/// 768 MiB.
pub const MAX_THEX_LEAVES: u32 = 1 << 24;

const _: () = assert!(DEFAULT_WINDOW_LOG2 <= MAX_WINDOW_LOG2 && MAX_WINDOW_LOG2 < 32);
