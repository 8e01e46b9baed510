//! Limits of resources.

use std::time::Duration;

/// Open connections. Further ones wait in the listener's queue.
pub(crate) const CONNECTIONS_MAX: usize = 64;
/// For the header of a request, and for the next request of an open connection.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// For a connection, however many requests it has: a peer that does not read its answers makes room
/// for others by then.
pub(crate) const CONNECTION_TIME_MAX: Duration = Duration::from_mins(1);
/// For the last answer of a connection that has had its time.
pub(crate) const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the header of a request.
pub(crate) const HEADER_BYTES_MAX: usize = 16 * 1024;
/// For the broker to answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Requests that wait for the broker, each on a thread of its own.
pub(crate) const ASKING_MAX: usize = 4;
/// Between two signs of life of a stream of events that has none.
pub(crate) const STREAM_KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Steps of a trace that a stream takes at once; up to about 500 bytes each, and the payload that
/// is shown.
pub(crate) const TRACE_STEPS_AT_ONCE: usize = 256;
