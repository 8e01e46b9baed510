//! Every constant that trades latency against throughput. None of them can lose a message; the
//! limits of resources are in [`crate::bounds`] and [`Limits`](unbroken_broker_core::Limits), and
//! how many receivers of a large fan-out one turn serves is `Settings::at_once` of
//! `unbroken-broker-core`.
//!
//! Each says what happens when it is doubled or halved. Measurements and what was tried are in
//! `docs/notes/scheduler.md`; the decision is ADR 53.

use std::time::Duration;

/// Bytes that are read of a connection per round, unless a packet is longer: the quantum of the
/// round robin.
/// Doubled: a quiet client waits twice as long beside a busy one. Halved: a busy client costs more
/// CPU time, since each read brings half as many packets.
pub(crate) const READ_QUANTUM: usize = 16 * 1024;

/// Connections read in one turn.
/// Doubled: an answer waits for twice as many reads. Halved: each turn gathers less for its writes
/// and for its commit.
pub(crate) const TURN_READS: usize = 64;

/// Steps of handshakes (TLS) in one turn; one takes 0.1 to 0.4 ms. Others wait for the next turn.
/// Doubled: connected clients wait twice as long beside many that connect. Halved: those wait for
/// more turns.
pub(crate) const TURN_HANDSHAKES: usize = 4;

/// Bytes read, from clients and other shards, after which every pending output is written; and
/// after which a turn ends in which one connection sends alone.
/// Doubled: they and their copies in the outputs leave the core's cache. Halved: a write gathers
/// less.
pub(crate) const TURN_READ_BYTES: usize = 256 * 1024;

/// Connections written to in one turn; the others are the first of the next turn, and what arrives
/// for them meanwhile leaves in the same write.
/// Doubled: publishers to many receivers wait longer before they are read again. Halved: where
/// each message read has an answer and a receiver, outputs gather more than they should.
pub(crate) const TURN_WRITES: usize = 2 * TURN_READS;

/// Bytes written to one connection in one turn.
/// Doubled: a fast reader of large messages delays the others. Halved: it needs more calls.
pub(crate) const WRITE_QUANTUM: usize = 1024 * 1024;

/// Bytes that the kernel takes of a connection and has not sent (`TCP_NOTSENT_LOWAT`), beside one
/// segment; what is on its way is not among them. Without it a slow client's kernel buffer holds
/// megabytes in front of the answer to a ping.
/// Doubled: that answer waits twice as long behind a slow link. Halved: a fast reader of large
/// messages needs more writes.
pub(crate) const UNSENT_BYTES: u32 = 16 * 1024;

/// The delays between which [`crate::batching`] chooses.
/// Doubled: a message waits twice as long under load. Halved: a read and a write serve fewer
/// messages.
pub(crate) const BATCHING_DELAYS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_micros(250),
    Duration::from_millis(1),
    Duration::from_millis(4),
];

/// Time over which a batching delay is measured, at least.
/// Doubled: the right delay is found later. Halved: chance decides more often.
pub(crate) const BATCHING_SAMPLE: Duration = Duration::from_millis(10);

/// The part by which two samples differ when the difference counts.
/// Doubled: a delay that makes messages a tenth cheaper is missed. Halved: the delay follows noise.
pub(crate) const BATCHING_SIGNIFICANT: f64 = 0.1;

/// Turns in a sample, at least: what one turn has gathered is missing in the next.
/// Doubled: with long turns the right delay is found later. Halved: single turns decide.
pub(crate) const BATCHING_TURNS: u32 = 4;

/// Samples for which a delay is kept before its neighbours are tried again.
/// Doubled: the delay follows a change of the load later. Halved: twice as much of the time is
/// spent on delays that are worse.
pub(crate) const BATCHING_REST: u32 = 64;

/// A delay may be so long after a shorter turn too; otherwise it is as long as the turn.
/// Doubled: messages of a lightly loaded loop are later. Halved: short turns gather too little.
pub(crate) const BATCHING_ALWAYS: Duration = Duration::from_millis(1);

/// Packets per call of the kernel from which no delay is tried, since a call costs little then.
/// Doubled: a publisher that writes in batches is delayed for nothing. Halved: streams of small
/// writes are not batched.
pub(crate) const BATCHING_PACKETS: u64 = 24;
