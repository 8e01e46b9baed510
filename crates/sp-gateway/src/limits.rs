//! Every limit of a gateway, with what it costs.

use std::time::Duration;

/// Connections of SP peers at a time; each has its socket, a task and a read buffer, and holds one
/// incomplete message, as large as messages may be. One more is closed at once and counted.
pub(crate) const PEERS_MAX: usize = 256;

/// One address may have so many times what is free of them: 231, if no other has any. Many peers
/// may be behind one router.
pub(crate) const ADDRESS_SHARE: usize = 9;

/// Messages that wait for one SUB peer, or replies for one REQ peer, beside the one that is
/// written. Beyond it those for this peer are dropped and counted.
pub(crate) const PEER_MESSAGES_MAX: usize = 256;

/// Bytes of such messages, for all peers together; a message for several peers counts for each.
/// Beyond it they are dropped as above. One peer may have as many as are free: half, if no other
/// has any.
pub(crate) const PEER_BYTES_MAX: usize = 64 << 20;

/// A SUB peer that has taken nothing for so long while a message is written to it, and a REQ peer
/// that has not taken a whole reply, is disconnected.
pub(crate) const PEER_STALL: Duration = Duration::from_secs(10);

/// Messages of MQTT that the gateway has taken and no SP socket has: the broker sends no more.
/// Of requests, those without a reply. Each is as large as messages may be.
pub(crate) const UNACKNOWLEDGED_MAX: u16 = 256;

/// Messages of QoS 0 that wait for SP peers. Beyond it they are dropped and counted.
pub(crate) const QOS0_WAITING_MAX: usize = 1_024;

/// Messages of SP that the broker has not acknowledged. At the limit no peer is read.
pub(crate) const UNPUBLISHED_MAX: usize = 256;

/// Bytes of such messages; a larger one is the only one. At most `u32::MAX`.
pub(crate) const UNPUBLISHED_BYTES_MAX: usize = 16 << 20;

/// Bytes of a packet from the broker beside the body: topic and properties. The broker drops what
/// is larger, by name.
pub(crate) const PACKET_BYTES_BESIDE: usize = 192 << 10;

/// Bytes read at a time. A connection has as many, and the message that is incomplete.
pub(crate) const READ_BYTES: usize = 16 << 10;

/// The longest time from a connection to its header.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// A peer that is silent for so long is asked by the kernel whether it is still there (keep alive).
pub(crate) const PEER_IDLE: Duration = Duration::from_secs(30);

/// The first pause between two tries to connect. It doubles up to
/// [`Options::retry`](crate::Options::retry).
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The pause of a listener after the system has run out of descriptors or memory.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long the broker keeps messages for a gateway that does not run, in seconds: a day.
pub(crate) const SESSION_EXPIRY_S: u32 = 86_400;

/// How long a gateway that stops waits for the broker to acknowledge what it has published, and
/// then to take DISCONNECT.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Time between two lines of the log about dropped messages.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(10);
