//! The bounds of the driver itself, with what they cost. What clients may take is in
//! [`Limits`](unbroken_broker_core::Limits); these are the sizes of the machinery around the
//! shards.

use std::time::Duration;

/// Bytes read from one socket in one turn: one buffer of this size for each shard thread. A
/// connection that has more waits for the others to have theirs.
pub(crate) const READ_BYTES: usize = 256 * 1024;

/// Bytes written to one socket in one turn, so that one fast reader cannot hold up the others.
pub(crate) const WRITE_BYTES: usize = 1024 * 1024;

/// Readiness events taken from the kernel at once; 12 bytes each on Linux.
pub(crate) const EVENTS: usize = 1_024;

/// Letters that wait in the feed from one shard to another. A sender that has this many more of its
/// own stops reading its clients.
pub(crate) const FEED_LETTERS: usize = 4_096;

/// Passwords that wait to be verified, all listeners together. Beyond it a client is told 0x89.
pub(crate) const VERIFICATIONS: usize = 1_024;

/// Connections the kernel keeps for us until they are accepted.
pub(crate) const BACKLOG: i32 = 4_096;

/// Connections beyond `connections_max` that are let in to be told so in their protocol. Beyond
/// these they are closed without a word.
pub(crate) const REFUSED_AT_ONCE: u32 = 256;

/// How long a closed connection is kept open for the peer to read our last words.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Pause of the acceptor after the system has run out of descriptors or memory.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Log lines that wait for whoever reads our output; beyond it they are counted instead.
pub(crate) const LOG_LINES: usize = 8_192;

/// Listeners of one broker: their position is a `u16`.
pub(crate) const LISTENERS: u16 = 1_024;
