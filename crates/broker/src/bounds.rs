//! The bounds of the driver itself, with what they cost. What clients may take is in
//! [`Limits`](unbroken_broker_core::Limits) and can be configured; these are the sizes of the
//! machinery around the shards, which knows buffers, feeds and sockets that `broker-core` does not.
//!
//! None is configurable, because none can lose a message: at each somebody waits a turn, or is
//! refused and told, or (log lines) is counted. A bound that a client's message could be dropped at
//! belongs in `Limits`.

use std::time::Duration;

/// Readiness events taken from the kernel at once; 12 bytes each on Linux.
pub(crate) const EVENTS: usize = 1_024;

/// Size of the read buffer, one per event loop; the longest packet that is read without a copy.
/// Three whole messages of 64 KiB fit, and it stays in the core's cache.
pub(crate) const READ_BUFFER_BYTES: usize = 192 * 1024;

/// A sixteenth of `output_bytes_max`: after so many bytes of input all outputs are written, because
/// topic aliases and many subscription identifiers make an output longer than the input. So no
/// output is full only because its turn has not come.
pub(crate) const OUTPUT_PARTS: usize = 16;

/// Letters that wait in the feed from one shard to another, about 100 bytes each and what they
/// hold. A sender that has this many more of its own stops reading its clients.
pub(crate) const FEED_LETTERS: u32 = 4_096;

/// Bytes of the messages in a feed, however few they are; each may be shared with its receivers and
/// so with other feeds. A small one in a bundle counts for 1 KiB, so that no more of them are on
/// their way than letters. Beyond it, with what the sender has made and not handed over, the sender
/// keeps the rest, and stops reading its clients. The last letter may exceed it, and so may what
/// one read of a client (`READ_BUFFER_BYTES`) or one letter of another shard brings; so a pair of
/// shards costs twice 4 MiB and little more, for what clients send to the one and the other
/// delivers.
///
/// It does not bound what comes in two hops: a message for a shared group goes to the group's shard
/// and from there to the member's. The shard between takes all mail, also while it is behind
/// itself, and keeps what the third does not take; who writes to it sees no full feed. What is
/// on disk at QoS 1 and 2 for a group that keeps it is bounded by what publishers may have
/// unacknowledged (`receive_maximum` each, where they are of 5.0), since these wait for the group.
/// All else is bounded by nothing but by how fast the third shard is: it takes all its mail in each
/// turn, before it reads its own clients.
pub(crate) const FEED_BYTES: u64 = 4 * 1024 * 1024;

/// Parcels that wait in a feed to a shard from the verifier, the disk or the control thread, which
/// wait when it is full.
pub(crate) const FEED_OTHERS: u32 = 256;

/// Passwords that wait to be verified, all listeners together: a user name and password each.
/// Beyond it a client is told 0x89, and before if those that wait would take longer than it does.
pub(crate) const VERIFICATIONS: usize = 1_024;

/// Connections the kernel keeps for us until they are accepted, in its memory.
pub(crate) const BACKLOG: i32 = 4_096;

/// Open files that connections leave to the broker: the store's tables (at most 128 at a time),
/// journals and directories, listeners and the control socket.
pub(crate) const FILES_OF_ITS_OWN: u64 = 256;

/// And to each shard: what it polls and is woken with, and the table that its log is written to.
pub(crate) const FILES_OF_A_SHARD: u64 = 4;

/// Open files for which there is a place in the system's table from the beginning, if so many may
/// be opened; 8 bytes each, of the system's memory.
pub(crate) const FILES_AT_START: u64 = 1 << 20;

/// Bytes that one connection's transforms (TLS, WebSocket) have sealed and the kernel has not
/// taken, before no more are sealed and nothing is read that could ask for more. A piece of 16 KiB
/// more may be among them.
pub(crate) const SEALED_BYTES: usize = 64 * 1024;

/// Bytes that a transform leaves as the beginning of something longer; a record of TLS has 16 KiB
/// and a little. Beyond it the peer breaks the protocol.
pub(crate) const UNOPENED_BYTES: usize = 32 * 1024;

/// Requests of a handle that wait for one shard; a few hundred bytes each, and the messages that
/// are to be published.
pub(crate) const HANDLE_REQUESTS: u32 = 64;

/// Bytes of messages that wait to be published through a handle, all together.
pub(crate) const HANDLE_BYTES: u64 = 4 * 1024 * 1024;

/// Entries of a listing that a shard answers at once.
pub(crate) const HANDLE_PAGE: usize = 256;

/// Receivers of events of one broker.
pub(crate) const HANDLE_WATCHES: usize = 16;

/// Events that wait for one receiver, at most; up to about 200 bytes each and the names in them.
pub(crate) const HANDLE_EVENTS: usize = 10_000;

/// How long a closed connection is kept open for the peer to read our last words, which are kept as
/// long. While the broker drains it is `broker.drain_timeout` instead.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// How long a draining shard waits for peers that only have to close: the kernel has taken all that
/// was for them, and a FIN. It begins anew when one of them sends something, for that one may still
/// read. What it sends is not used, so a peer that sends more rarely is not waited for.
pub(crate) const FIN_GRACE: Duration = Duration::from_millis(500);

/// Connections accepted in one turn of the first shard's loop. The others wait in the kernel for
/// the next turn. No memory.
pub(crate) const ACCEPTS: usize = 64;

/// Pause of the acceptor after the system has run out of descriptors or memory.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Log lines that wait for whoever reads our output; beyond it they are counted instead. Each
/// costs its text.
pub(crate) const LOG_LINES: usize = 8_192;

/// Bytes of log lines that are written at once, and one line more.
pub(crate) const LOG_WRITE_BYTES: usize = 64 * 1024;

/// Time between two writes of the log: so late a line may be that comes behind another.
pub(crate) const LOG_PAUSE: Duration = Duration::from_millis(5);

/// Listeners of one broker: their position is a `u16`.
pub(crate) const LISTENERS: u16 = 1_024;

/// Commands that look into the data directory of the running broker at once: a thread each, and
/// what the moment that they look at keeps on disk. Beyond it one is told to try again.
pub(crate) const CONTROL_CONNECTIONS: usize = 4;

/// Bytes of a question of one of them. The longest name a key of 65,535 bytes, in base64.
pub(crate) const CONTROL_REQUEST_BYTES: u64 = 512 * 1024;

/// Bytes of keys, values and messages in an answer, and one more of them; about three times that
/// in memory for each connection.
pub(crate) const CONTROL_PIECE_BYTES: usize = 1024 * 1024;

/// A connection that asks nothing, or takes no answer, for so long is closed, and what was kept on
/// disk for it is freed.
pub(crate) const CONTROL_SILENCE: Duration = Duration::from_mins(5);
