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
/// For a connection on which a caller has shown credentials: its requests may be streams.
pub(crate) const CALLER_TIME_MAX: Duration = Duration::from_mins(10);
/// Bytes of the body of a request.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024;

/// Passwords that are hashed at once, each on a thread with 19 MiB.
pub(crate) const HASHING_MAX: usize = 2;
/// Changes of accounts and tokens that wait for the disk, each on a thread.
pub(crate) const CHANGING_MAX: usize = 1;
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
/// Bytes of the file of the history. There are two: a full one is kept until the next is full.
pub(crate) const HISTORY_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes of the target of an entry; more are cut off.
pub(crate) const TARGET_BYTES_MAX: usize = 512;
/// Entries of a page of a list.
pub(crate) const PAGE_MAX: usize = 1_000;

const _: () = assert!(SESSIONS_OF_ACCOUNT_MAX < SESSIONS_MAX);
const _: () = assert!(THROTTLE_FORGETS.as_secs() > THROTTLE_ADDRESS_MAX.as_secs());
