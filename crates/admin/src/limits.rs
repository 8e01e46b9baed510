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
/// For what waits for a disk, or for all shards to have new rules.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Entries of one page of a list, unless the request says less.
pub(crate) const PAGE_USUAL: usize = 100;
/// Bytes of a text by which a list is searched, or where a page begins.
pub(crate) const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a payload that a list shows; the rest is downloaded.
pub(crate) const PREVIEW_BYTES: usize = 4 * 1024;
/// Subscriptions that the description of one session shows; the rest is a list.
pub(crate) const SUBSCRIPTIONS_SHOWN: usize = 100;
/// Denied attempts that are remembered, the newest; up to about 1 KiB each.
pub(crate) const DENIALS_MAX: usize = 1_000;
/// Denials that wait to be remembered.
pub(crate) const EVENTS_WAITING: usize = 1_000;
/// Users, rules and the like in one change of a role.
pub(crate) const ROLE_CHANGES_MAX: usize = 1_000;
/// Requests that wait for the broker, each on a thread of its own.
pub(crate) const ASKING_MAX: usize = 4;
/// The same for counters: probes, metrics and the recorder.
pub(crate) const COUNTING_MAX: usize = 2;
/// The same for changes, which may wait for a disk.
pub(crate) const CHANGES_MAX: usize = 4;
/// For a connection on which a caller has shown credentials: its requests may be streams.
pub(crate) const CALLER_TIME_MAX: Duration = Duration::from_mins(10);
/// Bytes of the body of a request.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024;

/// Passwords that are hashed at once, each on a thread with 19 MiB.
pub(crate) const HASHING_MAX: usize = 2;
/// Changes of accounts and tokens that wait for the disk, each on a thread.
pub(crate) const CHANGING_MAX: usize = 1;
/// Requests that may change something, while they run: of callers, and as many of others. One goes
/// on when its connection has ended.
pub(crate) const WRITES_MAX: usize = 2 * CONNECTIONS_MAX;
/// Threads that write incidents.
pub(crate) const SAVING_MAX: usize = 1;
/// For a turn to hash or to change.
pub(crate) const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of the file with accounts and tokens, when it is read: more than the most of both take.
pub(crate) const BOOK_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Accounts of the admin server.
pub(crate) const ACCOUNTS_MAX: usize = 1_000;
/// Tokens, those that have expired included.
pub(crate) const TOKENS_MAX: usize = 1_000;
/// Bytes of the name of an account or token.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// Characters of a password of an account.
pub(crate) const PASSWORD_CHARS_MIN: usize = 8;
/// Bytes of a password of an account.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1_024;
/// Entries of the scope of a token.
pub(crate) const SCOPES_MAX: usize = 16;
/// Bytes of one of them.
pub(crate) const SCOPE_BYTES_MAX: usize = 256;

/// Sessions of browsers, about 300 bytes each. The one that was idle longest makes room.
pub(crate) const SESSIONS_MAX: usize = 1_000;
/// Of one account.
pub(crate) const SESSIONS_OF_ACCOUNT_MAX: usize = 32;
/// A session ends so long after its begin …
pub(crate) const SESSION_TIME_MAX: Duration = Duration::from_hours(12);
/// … or after its last request.
pub(crate) const SESSION_IDLE_MAX: Duration = Duration::from_hours(1);
/// The link by which the first account is made is good for so long.
pub(crate) const LINK_TIME_MAX: Duration = Duration::from_mins(15);

/// Addresses and names whose attempts to sign in are counted, about 150 bytes each.
pub(crate) const THROTTLED_MAX: usize = 4_096;
/// Attempts without a wait.
pub(crate) const ATTEMPTS_FREE: u32 = 5;
/// The longest wait of an address.
pub(crate) const THROTTLE_ADDRESS_MAX: Duration = Duration::from_mins(15);
/// The longest wait for a name.
pub(crate) const THROTTLE_NAME_MAX: Duration = Duration::from_mins(1);
/// Failures count until there were none for so long.
pub(crate) const THROTTLE_FORGETS: Duration = Duration::from_hours(1);

/// Entries of the admin history in memory, about 400 bytes each.
pub(crate) const HISTORY_MAX: usize = 5_000;
/// Entries of the history a minute of what one caller was refused.
pub(crate) const REFUSED_MAX: u32 = 10;
/// Bytes of the file of the history. There are two: a full one is kept until the next is full.
pub(crate) const HISTORY_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes of the target of an entry; more are cut off.
pub(crate) const TARGET_BYTES_MAX: usize = 512;
/// Entries of a page of a list.
pub(crate) const PAGE_MAX: usize = 1_000;

/// Between two signs of life of a stream of events that has none.
pub(crate) const STREAM_KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A stream whose caller has lost its credentials or role ends within this time.
pub(crate) const STREAM_CHECK_EVERY: Duration = Duration::from_secs(2);
/// Steps of a trace that a stream takes at once; up to about 500 bytes each, and the payload that
/// is shown.
pub(crate) const TRACE_STEPS_AT_ONCE: usize = 256;

/// Incidents that are kept; about 600 bytes each with short names, 2 KiB at most.
pub(crate) const INCIDENTS_MAX: usize = 1_000;
/// Bytes of a name, a topic or a note of an incident; longer ones are cut.
pub(crate) const INCIDENT_TEXT_MAX: usize = 512;
/// What is named of the same messages within this time is one incident.
pub(crate) const INCIDENT_GROUP_MS: u64 = 60_000;
/// Events that wait to become incidents; about 300 bytes each. Those without room are counted.
pub(crate) const INCIDENT_EVENTS_MAX: usize = 4_096;
/// Runs of missing numbers of one incident, 16 bytes each; what has no room is counted.
pub(crate) const MISSING_RUNS_MAX: usize = 128;
/// The file of incidents: all of them at their longest.
pub(crate) const INCIDENT_FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Between two times that it is written.
pub(crate) const SAVE_INCIDENTS_EVERY: Duration = Duration::from_secs(10);
/// Between two looks for events while nothing changes and no one looks; a timer of this length
/// wakes its thread twice.
pub(crate) const IDLE_TICK: Duration = Duration::from_secs(2);
/// Such ticks at most between two readings of the counters.
pub(crate) const IDLE_TICKS_MAX: u32 = 4;
/// Seconds between two readings, if the broker answers: the ticks, the question and the answer.
pub(crate) const IDLE_GAP_S_MAX: u64 = 14;
/// Cells of the strip, about 150 bytes each: an hour of traffic.
pub(crate) const CELLS_MAX: usize = 3_600;
/// Points of a series in one answer.
pub(crate) const POINTS_MAX: u64 = 2_000;
/// Series in one answer.
pub(crate) const SERIES_MAX: usize = 40;
/// Streams that are open at once, of [`CONNECTIONS_MAX`].
pub(crate) const STREAMS_MAX: usize = 16;
/// What waits for a slow stream, about 3 KiB each and shared; it misses the oldest.
pub(crate) const LIVE_WAITING_MAX: usize = 16;
/// For the demonstration to end by itself.
pub(crate) const DEMONSTRATION_TIME_MAX: Duration = Duration::from_mins(10);
/// Faults that one demonstration injects.
pub(crate) const DEMONSTRATION_FAULTS_MAX: usize = 1_000;

const _: () = assert!(SESSIONS_OF_ACCOUNT_MAX < SESSIONS_MAX);
const _: () = assert!(THROTTLE_FORGETS.as_secs() > THROTTLE_ADDRESS_MAX.as_secs());
