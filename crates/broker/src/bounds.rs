//! Limits of the driver, with their cost. Limits of clients are configurable and in
//! [`Limits`](unbroken_broker_core::Limits); these are the sizes of buffers, channels and sockets,
//! which `broker-core` does not have.
//!
//! None is configurable, because none can lose a message: at each limit a sender waits, a client is
//! refused with a reason, or (log lines) the loss is counted. A limit that could drop a client's
//! message belongs in `Limits`.

use std::time::Duration;

/// Readiness events taken from the kernel at once; 12 bytes each on Linux.
pub(crate) const EVENTS: usize = 1_024;

/// Size of the read buffer, one per event loop; the longest packet that is read without a copy.
/// Three whole messages of 64 KiB fit, and it stays in the core's cache.
pub(crate) const READ_BUFFER_BYTES: usize = 192 * 1024;

/// All outputs are written after this part of `output_bytes_max` (one of so many) was read, because
/// topic aliases and many subscription identifiers make an output longer than the input. So no
/// output is full only because its turn has not come.
pub(crate) const OUTPUT_PARTS: usize = 16;

/// Events in the channel from one shard to another, about 100 bytes each and their contents. A
/// sender with this many more of its own stops reading its clients.
pub(crate) const CHANNEL_MESSAGES: u32 = 4_096;

/// Bytes of the messages in a channel, however few they are; each may be shared with its receivers
/// and other channels. A small message in a bundle counts for 1 KiB, so that they are no more than
/// events. Above the limit, including unsent events, the sender queues the rest and stops reading
/// its clients. The last event may exceed it, and so may one read of a client (`READ_BUFFER_BYTES`)
/// or one event of another shard. So a pair of shards costs little more than twice 4 MiB.
///
/// It does not bound messages that cross two shards: one for a shared group goes to the group's
/// shard and from there to the member's. The shard between takes all messages, even while it is
/// behind, and queues what the third does not take; its senders see no full channel. At QoS 1 and
/// 2, messages for a persistent group are bounded by what publishers may have unacknowledged
/// (`receive_maximum` each, with 5.0), because the acknowledgement waits for the group. Other
/// messages are bounded only by the speed of the third shard, which takes all messages in each turn
/// before it reads its own clients.
pub(crate) const CHANNEL_BYTES: u64 = 4 * 1024 * 1024;

/// Events in a channel to a shard from the verifiers, the disk or the control thread, which wait
/// when it is full.
pub(crate) const CHANNEL_EVENTS: u32 = 256;

/// Threads that verify passwords: one for each core but one, which is left to the shards, at least
/// one, and at most this many. Each has a stack, and while it verifies the memory of one hash: 19
/// MiB for argon2id as `unbroken passwd` makes it, as much as the password file says for others.
pub(crate) const VERIFIERS: usize = 8;

/// Logins that wait for verification, of all listeners; about 200 bytes each, and a user name and
/// password. One client address alone gets a third of them. Beyond it a client is refused with
/// 0x89, and earlier if verification would take longer than it waits.
pub(crate) const WAITING_LOGINS: usize = 4_096;

/// Bytes of user names and passwords that wait. A third for one address, as above.
pub(crate) const WAITING_LOGIN_BYTES: usize = 16 * 1024 * 1024;

/// Wrong passwords of one address (IPv4, or an IPv6 /64) that are verified without delay.
pub(crate) const FAILED_LOGINS_AT_ONCE: u32 = 20;

/// An address that has failed so often waits this long for each further failure. Its clients beyond
/// those who can wait are refused with 0x9F.
pub(crate) const FAILED_LOGIN_INTERVAL: Duration = Duration::from_millis(200);

/// Where a hash is slow, it waits this many times as long as one hash takes, so that its failures
/// take no more than such a part of one thread.
pub(crate) const FAILED_LOGIN_SHARE: u32 = 4;

/// The longest such wait.
pub(crate) const FAILED_LOGIN_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// Addresses whose failures are counted, about 150 bytes each; each is forgotten at most
/// `FAILED_LOGINS_AT_ONCE` intervals after its last failure. Beyond it the oldest are forgotten.
pub(crate) const FAILED_LOGINS: usize = 65_536;

/// Logins that succeeded a short time ago and are not verified again; about 120 bytes each. Beyond
/// it the oldest is forgotten.
pub(crate) const RECENT_LOGINS: usize = 131_072;

/// How long such a login is remembered.
pub(crate) const RECENT_LOGIN_TIME: Duration = Duration::from_mins(10);

/// Keys in one set that verifies tokens; about 300 bytes each.
pub(crate) const TOKEN_KEYS: usize = 64;

/// Bytes of such a set, as an issuer publishes it.
pub(crate) const KEYS_BYTES: u64 = 256 * 1024;

/// How long a fetch of it may take.
pub(crate) const KEYS_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two fetches that unknown key ids have asked for: anybody can show one.
pub(crate) const KEYS_PAUSE: Duration = Duration::from_secs(10);

/// Bytes of what a service answers about one client.
pub(crate) const HOOK_ANSWER_BYTES: u64 = 64 * 1024;

/// Bytes of a file with the header by which the broker shows a service who it is.
pub(crate) const AUTHORIZATION_BYTES: u64 = 16 * 1024;

/// Time between two lines in the log about a service that does not answer.
pub(crate) const HOOK_REPORT_PAUSE: Duration = Duration::from_secs(10);

/// Tables of rates, each of which is compared with each client that connects; about 300 bytes each,
/// and its names.
pub(crate) const RATE_RULES: usize = 1_024;

/// Users and clients whose rates are remembered though none of them is connected, because these
/// have been used in the last moments; about 300 bytes each. Beyond it they are forgotten.
pub(crate) const RATED_USERS: usize = 65_536;

/// Users in the store; about 250 bytes each.
pub(crate) const STORED_USERS: usize = 1_000_000;

/// Roles in the store. With those of the configuration there can be 16,384.
pub(crate) const STORED_ROLES: usize = 8_192;

/// Rules in the store, of all roles. With those of the configuration there can be 262,144.
pub(crate) const STORED_RULES: usize = 131_072;

/// Users of one role in the store: a change of the role writes them all.
pub(crate) const STORED_MEMBERS: usize = 10_000;

/// Bans in the store, each with a name of up to 1 KiB and a reason.
pub(crate) const STORED_BANS: usize = 10_000;

/// How long a change of users, roles or bans may take until it is on disk, and in force on all
/// shards.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections that the kernel queues until they are accepted, in its memory.
pub(crate) const BACKLOG: i32 = 4_096;

/// Open files that are not for connections: the store's tables (at most 128 at a time), journals
/// and directories, listeners and the control socket.
pub(crate) const FILES_OF_BROKER: u64 = 256;

/// The same for each shard: its poll and waker, and the table that its log is written to.
pub(crate) const FILES_OF_A_SHARD: u64 = 4;

/// Open files for which the kernel's table has room from the start, if the limit allows so many; 8
/// bytes each, in the kernel.
pub(crate) const FILES_AT_START: u64 = 1 << 20;

/// Bytes that one connection's transforms (TLS, WebSocket) have sealed and the kernel has not
/// taken. Above it nothing more is sealed; it may be exceeded by 16 KiB. As many may be replies of
/// the transforms themselves; above it nothing is read that could cause more.
pub(crate) const SEALED_BYTES: usize = 64 * 1024;

/// Bytes of an incomplete unit that a transform may buffer; a TLS record has little more than 16
/// KiB. Beyond it the peer breaks the protocol.
pub(crate) const UNOPENED_BYTES: usize = 32 * 1024;

/// Bytes of one file of certificates, keys or revocation lists.
pub(crate) const CERTIFICATE_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes of a password file, which has about 150 for each user, or of an access control list.
pub(crate) const USERS_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Hints about lines of one access control list that are logged; `unbroken check` shows all.
pub(crate) const ACL_REMARKS_LOGGED: usize = 16;

/// How often the files of listeners with TLS are looked at.
pub(crate) const FILES_LOOK_EVERY: Duration = Duration::from_secs(2);

/// Bytes that a TLS session takes beside what it receives and sends: its keys, and the state of the
/// library. Counted for each connection, in the budgets of memory of `Limits`.
pub(crate) const TLS_SESSION_BYTES: usize = 6 * 1024;

/// Bytes by which the memory of a connection's transforms may differ from what its shard counts.
pub(crate) const TRANSPORT_STEP_BYTES: usize = 4 * 1024;

/// Bytes of a header of the PROXY protocol; about 200 are usual.
pub(crate) const PROXY_HEADER_BYTES: usize = 4 * 1024;

/// Requests of a handle that wait for one shard; a few hundred bytes each, and the messages to
/// publish.
pub(crate) const HANDLE_REQUESTS: u32 = 64;

/// Bytes of messages that wait to be published through a handle, in total.
pub(crate) const HANDLE_BYTES: u64 = 4 * 1024 * 1024;

/// Entries of a listing that a shard returns at once.
pub(crate) const HANDLE_PAGE: usize = 256;

/// Pages of shards that one request for a listing asks for. Where few entries are wanted, most
/// pages are short.
pub(crate) const HANDLE_PAGES: usize = 64;

/// Event receivers of one broker.
pub(crate) const HANDLE_WATCHES: usize = 16;

/// Traces at the same time. Each costs a look at its filter for each packet.
pub(crate) const TRACES: usize = 8;

/// How long a trace may take.
pub(crate) const TRACE_TIME_MAX: Duration = Duration::from_hours(1);

/// Steps that wait for the reader of one trace; about 250 bytes each and the payload that is shown.
pub(crate) const TRACE_STEPS: usize = 4_096;

/// Bytes of each payload that a trace may show.
pub const TRACE_PAYLOAD_MAX: u16 = 1_024;

/// Events that wait for one receiver; up to about 200 bytes each and the names in them.
pub(crate) const HANDLE_EVENTS: usize = 10_000;

/// How long a closing connection stays open for the peer to read its final bytes. While the broker
/// drains, `broker.drain_timeout` applies instead.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// How long a draining shard waits for peers that only have to close: the kernel has taken all
/// their bytes, and a FIN. The time starts again when one of them sends something, since it may
/// still read. A peer that sends more rarely is not waited for.
pub(crate) const FIN_GRACE: Duration = Duration::from_millis(500);

/// Connections accepted in one turn of the first shard. The others wait in the kernel. No memory.
pub(crate) const ACCEPTS: usize = 64;

/// Pause of a listener that has as many unfinished handshakes as it may.
pub(crate) const HANDSHAKES_PAUSE: Duration = Duration::from_millis(10);

/// Pause of the acceptor after the system has run out of descriptors or memory.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Characters of a client's text in a log line; the rest is cut.
pub(crate) const LOG_NAME_CHARACTERS: usize = 512;

/// Queued log lines; beyond it those of the loudest client are counted instead. Each costs its
/// text, which has up to 512 characters of each name.
pub(crate) const LOG_LINES: usize = 8_192;

/// Log lines of one kind that one client may cause in a second; beyond it they are counted, and
/// another line gives the number.
pub(crate) const LOG_LINES_PER_CLASS: u32 = 50;

/// Clients and kinds that a shard counts lines of in one second. About 100 bytes each.
pub(crate) const LOG_CLASSES: usize = 4_096;

/// Bytes of log lines that are written at once, and one line more.
pub(crate) const LOG_WRITE_BYTES: usize = 64 * 1024;

/// Pause between two writes of the log: the longest delay of a line.
pub(crate) const LOG_PAUSE: Duration = Duration::from_millis(5);

/// Listeners of one broker: their index is a `u16`.
pub(crate) const LISTENERS: u16 = 1_024;

/// Commands that read the running broker's directory at the same time: a thread each, and the disk
/// space of a snapshot. Beyond it a command is refused. Traces are not among them: [`TRACES`].
pub(crate) const CONTROL_CONNECTIONS: usize = 4;

/// Bytes of a request of a command. The longest has a key of 65,535 bytes, in base64.
pub(crate) const CONTROL_REQUEST_BYTES: u64 = 512 * 1024;

/// Bytes of keys, values and messages in an answer, and one more entry; about three times that in
/// memory for each connection.
pub(crate) const CONTROL_PIECE_BYTES: usize = 1024 * 1024;

/// A connection without a request, or that takes no answer, is closed after this time, and its
/// snapshot released.
pub(crate) const CONTROL_SILENCE: Duration = Duration::from_mins(5);
