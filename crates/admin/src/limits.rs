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

/// Incidents that are kept; about 600 bytes each with short names, 2 KiB at most.
pub(crate) const INCIDENTS_MAX: usize = 1_000;
/// Bytes of a name, a topic or a note of an incident; longer ones are cut.
pub(crate) const INCIDENT_TEXT_MAX: usize = 512;
/// What is named of the same messages within this time is one incident.
pub(crate) const INCIDENT_GROUP_MS: u64 = 60_000;
/// Events that wait to become incidents; about 300 bytes each. Those without room are counted.
pub(crate) const INCIDENT_EVENTS_MAX: usize = 4_096;
/// The file of incidents: all of them at their longest.
pub(crate) const INCIDENT_FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Between two times that it is written.
pub(crate) const SAVE_INCIDENTS_EVERY: Duration = Duration::from_secs(10);
/// Seconds at most between two readings of the counters while nothing changes and no one looks.
pub(crate) const IDLE_TICKS_MAX: u32 = 8;
/// Cells of the strip, about 150 bytes each: an hour of traffic.
pub(crate) const CELLS_MAX: usize = 3_600;
/// Entries of a list in one answer.
pub(crate) const LIST_MAX: usize = 1_000;
/// Points of a series in one answer.
pub(crate) const POINTS_MAX: u64 = 2_000;
/// Series in one answer.
pub(crate) const SERIES_MAX: usize = 40;
/// Streams that are open at once, of [`CONNECTIONS_MAX`].
pub(crate) const STREAMS_MAX: usize = 16;
/// For a stream; then its client connects again.
pub(crate) const STREAM_TIME_MAX: Duration = Duration::from_hours(1);
/// Without anything to send a stream gets a comment, so that proxies keep it open.
pub(crate) const STREAM_KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What waits for a slow stream, about 3 KiB each and shared; it misses the oldest.
pub(crate) const LIVE_WAITING_MAX: usize = 16;
/// Bytes of the body of a request.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024;
/// For the demonstration to end by itself.
pub(crate) const DEMONSTRATION_TIME_MAX: Duration = Duration::from_mins(10);
/// Faults that one demonstration injects.
pub(crate) const DEMONSTRATION_FAULTS_MAX: usize = 1_000;
