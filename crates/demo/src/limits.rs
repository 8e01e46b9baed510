//! Every limit of the crate, with what it costs.

use std::time::Duration;

/// The largest packet that a relay passes, in bytes: 16 MiB, held once a way while it is
/// incomplete. A larger one ends its connection.
pub(crate) const PACKET_BYTES_MAX: u32 = 16 << 20;

/// Room for one read of a relay: 64 KiB, twice a connection.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// The largest file that is played: 64 MiB, held as lines with 16 bytes more each.
pub(crate) const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Wounds ordered and not given yet, and as many given and not taken: about 300 bytes each.
pub(crate) const ORDERS_MAX: usize = 1 << 16;

/// How long a message waits for the neighbour that is to overtake it.
pub(crate) const SWAP_WITHIN: Duration = Duration::from_secs(2);
