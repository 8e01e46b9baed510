//! The bounds of the driver itself, with what they cost. What clients may take is in
//! [`Limits`](unbroken_broker_core::Limits) and can be configured; these are the sizes of the
//! machinery around the shards, which knows buffers, feeds and sockets that `broker-core` does not.
//!
//! None is configurable, because none can lose a message: at each somebody waits a turn, or is
//! refused and told, or (log lines) is counted. A bound that a client's message could be dropped at
//! belongs in `Limits`.

use std::time::Duration;

/// Bytes read from one socket in one turn: one buffer of this size for each shard thread. A
/// connection that has more waits for the others to have theirs, and they wait for this much of it,
/// or for a piece where it is of small packets ([`PIECE_BYTES`]).
///
/// Tried: with 256 KiB the p99 of a quiet pair beside a flood of 100-byte messages was 3.4 and
/// 3.8 ms, and 3.4 and 2.9 million of these went through; with 192 KiB 1.7 ms and 4.0 million, with
/// 128 KiB 1.4 and 1.6 ms and as many. A message of 64 KiB took 17.6 µs with 256, 17.2 with 192 and
/// 19.5 with 128 KiB, where hardly a read has more than one whole (medians of four to seven).
///
/// Tried and lost, in a relay for messages of 64 KiB: larger ones gain nothing, and neither do
/// fixed socket buffers, registered ones or `splice`; see `docs/scaling.md`, which has the floor.
pub(crate) const READ_BYTES: usize = 192 * 1024;

/// A connection whose last read brought so much is read behind the others, and they are written to
/// before: see [`crate::shard_thread`]. Of 100-byte messages it is 150, which take 30 µs. No
/// memory.
pub(crate) const READ_MUCH: usize = 16 * 1024;

/// Who sends much in packets of at most so many bytes on average is taken in by the piece:
/// [`PIECE_BYTES`]. Of larger ones there are too few in a read to wait for, and cutting one costs a
/// copy.
pub(crate) const SMALL_PACKET: usize = 512;

/// Bytes after which who sends much in small packets lets others come between. Of 100-byte messages
/// it is 75, which take 13 µs. No memory. See ADR 49 for what was tried.
pub(crate) const PIECE_BYTES: usize = 8 * 1024;

/// Bytes read at once from who sends much in small packets, while somebody is about who does not:
/// for so long nobody else is served, nor during the write that this leads to. No less than
/// [`READ_MUCH`], or who floods would be taken for somebody who does not. No memory. See ADR 49 for
/// what it costs the flood, and what was tried.
pub(crate) const FLOOD_READ_BYTES: usize = READ_MUCH;

/// Turns for which somebody is about who was read and did not bring much: with a flood and nobody
/// else half a second to 1 s. No memory.
pub(crate) const COMPANY_TURNS: u32 = 8_192;

/// Reads of others between the pieces of what one read has brought, all together, and connections
/// that are looked at for one of these: so many of the first that are to be read in the next turn.
/// The others wait for it. No memory.
pub(crate) const AHEAD: usize = 64;

/// Bytes that come before all are written to that have something, and reading goes on. Together
/// with their copies in the outputs they fit into 1 MiB, which is in the cache of a core.
pub(crate) const READ_BEFORE_WRITE: usize = 256 * 1024;

/// Connections read in one turn before what they have led to is written, where the loop does not
/// wait for more to gather: they have something to do while the others are read. Who answers all at
/// once has nothing to do until all have answered in turn. No memory.
///
/// Tried with 15,000 clients that connect, 64 at a time, medians of three: 38,500 a second and 11.4
/// µs each where all were read first; 44,800 and 10.2 with 8, 41,800 and 10.3 with 16, 36,900 and
/// 11.0 with 4; all of them while a table of open files that grew held them up, here or there
/// ([`crate::open_files`]), and not tried again since. Requests and replies between 400, 200 and
/// 100 pairs: 2 % more go through with 8 and with 16, and each takes 1 to 3 % less. With 20,000 and
/// 60,000 messages/s the median is 1 to 3 µs sooner, for as much CPU time.
pub(crate) const READS_BEFORE_WRITE: usize = 8;

/// Connections read in one turn while something waits for the disk, so that acknowledgements do not
/// wait for the reading of all connections.
///
/// Tried with 200 publishers at 40,000 messages a second on two cores, PUBACK's 99th percentile in
/// runs of 3 s: 8 and 10 ms with 64; 12 and 16 ms with 24, whose turns gather less; 15 and 65 ms
/// with all. Where other machines took a fifth of the cores, medians of five: 71 ms with 64, 74 ms
/// with all. At full speed they were alike.
pub(crate) const READS_WHILE_STORING: usize = 64;

/// How long a commit waits for more while the loop does: see ADR 35 and 43. No memory.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1);

/// Bytes written to one socket in one turn, so that one fast reader cannot hold up the others. No
/// memory: the bytes are the shard's.
pub(crate) const WRITE_BYTES: usize = 1024 * 1024;

/// Connections written to for each that the turn has read so far, at its end and each time that it
/// writes before: whoever sends at QoS 1 has an answer, and the message a receiver. No memory.
pub(crate) const WRITES_A_READ: usize = 2;

/// Connections written to beyond that. The others are the first of the next turn, and what comes
/// for them meanwhile goes with what they wait for, up to [`READ_BEFORE_WRITE`] for all together.
/// See ADR 52 for what was tried.
pub(crate) const WRITES_AHEAD: usize = 16;

/// Of what an output may hold (`output_bytes_max`), such a part may come before all are written to:
/// 256 KiB of the 4 MiB that it is by default. A topic that came as an alias makes more of it, and
/// so do a great many subscription identifiers.
pub(crate) const UNWRITTEN_PARTS: usize = 16;

/// Readiness events taken from the kernel at once; 12 bytes each on Linux.
pub(crate) const EVENTS: usize = 1_024;

/// Letters that wait in the feed from one shard to another, about 100 bytes each and what they
/// hold. A sender that has this many more of its own stops reading its clients.
pub(crate) const FEED_LETTERS: u32 = 4_096;

/// Bytes of the messages in a feed, however few they are; each may be shared with its receivers and
/// so with other feeds. A small one in a bundle counts for 1 KiB, so that no more of them are on
/// their way than letters. Beyond it, with what the sender has made and not handed over, the sender
/// keeps the rest, and stops reading its clients. The last
/// letter may exceed it, and so may what one read of a client (`READ_BYTES`) or one letter of
/// another shard brings; so a pair of shards costs twice 4 MiB and little more, for what clients
/// send to the one and the other delivers.
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

/// How long the loop waits behind a turn that let in several. A sleep ends some 60 µs late.
pub(crate) const KNOCKS_GATHER: Duration = Duration::from_micros(1);

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

/// How long the loop waits for the disk at most where waiting gathers more, while something waits
/// for it.
pub(crate) const DISK_WAIT_MAX: Duration = Duration::from_millis(2);
