//! Every limit on what clients may take, with what it costs in memory. Nothing else in the
//! workspace invents one; the sizes of the machinery around the shards, at which no message is
//! lost, are in `crates/broker/src/bounds.rs`.
//!
//! What happens at a limit is a named reason ([`crate::DropReason`]) or an MQTT reason code,
//! counted and told; a limit never makes anything disappear quietly.

use std::time::Duration;

use unbroken_mqtt_proto::session::INFLIGHT_MAX;

/// Limits in force. The defaults suit a machine with 2 GiB of memory or more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at once, all listeners together. About 1 KiB each while idle, and up to 4 KiB
    /// more that [`memory_bytes_max`](Self::memory_bytes_max) does not count.
    /// Beyond it: CONNACK 0x97 (3.x: 3), then close. A client that has a connection takes its
    /// place.
    pub connections_max: u32,
    /// Sessions at once, connected or not. About 720 bytes each if only in memory, without queue
    /// and subscriptions, and about 1,000 if persistent and on disk; 200 to 1,500 more for one that
    /// publishes.
    /// Beyond it, or the share of its address, a new session is refused with 0x97 (3.x: 3).
    pub sessions_max: u32,
    /// Bytes of one control packet, both directions; announced as Maximum Packet Size.
    /// A connection holds at most this many bytes of an incomplete packet. Beyond it: 0x95.
    pub packet_bytes_max: u32,
    /// Bytes of a CONNECT, if that is less than `packet_bytes_max`. Its five fields have at most
    /// 64 KiB each; the default leaves 64 KiB to user properties. Beyond it: 0x95.
    pub connect_bytes_max: u32,
    /// Bytes that clients which are not admitted make the broker hold, all of them together: of
    /// their CONNECT until it is decided about, and of what they sent behind it. Beyond it those
    /// that hold most are refused with 0x97, or closed where no CONNECT came.
    pub unadmitted_bytes_max: u64,
    /// Bytes that all admitted clients together make the broker hold: of packets that have not
    /// come whole, of output that their sockets have not taken, of packets that wait, and of
    /// messages that wait for them in memory, each once. Retained messages have a limit of their
    /// own. Beyond it the clients that hold most are ended with 0x97, and what waits in memory for
    /// one that is away is dropped ([`crate::DropReason::QueueFull`]). While less than an eighth of
    /// it is free, no output takes more than 64 KiB.
    pub memory_bytes_max: u64,
    /// QoS 1 and 2 messages a client may have unanswered towards the broker; announced as Receive
    /// Maximum. 4 bytes each. Beyond it: 0x93 (5.0 only; 3.x knows no such limit).
    pub receive_maximum: u16,
    /// QoS 1 and 2 messages the broker has unanswered towards one client, if the client does not
    /// ask for fewer; at most 32,767, half of the packet ids. A connection begins with 64, and has
    /// one more with each acknowledgement while its output does not wait for the client. About 160
    /// bytes each plus the message, which all receivers share. Publishers that wait until their
    /// messages arrive wait for this too: with 1,024 and 200 of them, 10 messages under way each, a
    /// quarter fewer got through to one subscriber.
    pub inflight_max: u16,
    /// Messages waiting in one session beyond those in flight. 24 bytes each plus the message,
    /// which all receivers share. Beyond it what [`queue_full`](Self::queue_full) says.
    pub queue_messages_max: u32,
    /// Bytes of topic, properties and payload waiting in one session. Beyond it the same. As many
    /// may be in flight to it; beyond these, messages wait. As many may be on disk of what it has
    /// published to be retained at QoS 2 and not released, or one message; beyond it that is
    /// refused, as with [`QueueFull::Refuse`], whatever `queue_full` says.
    pub queue_bytes_max: u64,
    /// What happens at `queue_messages_max` and `queue_bytes_max`.
    pub queue_full: QueueFull,
    /// What happens to a client that publishes what it may not.
    pub denied_publish: DeniedPublish,
    /// Longest time a message waits in a session, counted from when the broker took it, in
    /// seconds; `u32::MAX` is without end. A session that stays keeps its log from being
    /// trimmed for at most so long. Beyond it the message is dropped, also one that was sent
    /// over a connection that has ended, and was not acknowledged:
    /// [`crate::DropReason::TooOld`].
    pub queue_age_max_s: u32,
    /// Bytes of what the store keeps: messages that somebody waits for, and values. On disk there
    /// is more beside it, which the store knows. At it, what [`store_full`](Self::store_full) says.
    pub store_bytes_max: u64,
    /// What happens at `store_bytes_max`.
    pub store_full: StoreFull,
    /// Encoded bytes waiting for one connection's socket. At it QoS 0 messages are dropped
    /// ([`crate::DropReason::SlowReceiver`]), and QoS 1 and 2 wait in the session's queue. One
    /// packet may exceed it. As many bytes of answers to the client's own packets may stand behind
    /// the last message; beyond these the connection is not read. That is room for an answer to
    /// each packet id, so only a client that sends without end and takes no answers reaches it.
    /// Packets that wait until what they promise is stored count as answers, at the memory they
    /// take: about 50 bytes each, and up to 9 for each filter of a SUBSCRIBE. A connection that is
    /// at the limit is read again when they leave.
    pub output_bytes_max: u32,
    /// Bytes of a topic name or filter. Beyond it: 0x90 or 0x8F.
    pub topic_bytes_max: u16,
    /// Levels of a topic name or filter; bounds the depth of the subscription tree.
    pub topic_levels_max: u16,
    /// Subscriptions of one session; about 250 bytes each with few levels, as much again where it
    /// stays and has many, and beside it what
    /// [`filter_levels_per_session_max`](Self::filter_levels_per_session_max) allows. Beyond it:
    /// 0x97. As many that have ended, or were replaced by one on other terms, may be kept beside
    /// them, as what waits from their time is for them; at that, a SUBSCRIBE that changes anything
    /// is answered the same, until its client has taken some of it.
    pub subscriptions_per_session_max: u32,
    /// Subscriptions of all sessions together. Beyond it, or the share of a client or an address:
    /// 0x97.
    pub subscriptions_max: u32,
    /// Levels of the filters of one session. Each that no other filter has takes a node of the
    /// tree of each shard: about 90 bytes, and 80 more and its text where no filter has that.
    /// Beyond it: 0x97. So many are looked at in one SUBSCRIBE, too.
    pub filter_levels_per_session_max: u32,
    /// Levels of the filters of all sessions together. Beyond it: 0x97.
    pub filter_levels_max: u32,
    /// Deep levels of all sessions together: those behind the tenth of filters with `+`. A topic
    /// visits all that match it, some 100 ns each, before anything else is done on its shard. One
    /// session may have an eighth of them. Beyond it: 0x97.
    pub deep_levels_max: u32,
    /// Retained messages. About 200 bytes each plus topic and payload if only in memory, 300 if on
    /// disk too. Beyond it, or the share of a client or an address, a new one of QoS 1 or 2 is
    /// refused with 0x97 (3.x: the connection ends), and one of QoS 0 is delivered but not kept:
    /// [`crate::DropReason::RetainedFull`]. A new value of a topic that has one needs no room.
    pub retained_messages_max: u32,
    /// Bytes of topics, properties and payloads of retained messages. Beyond it: `RetainedFull`.
    pub retained_bytes_max: u64,
    /// Topic aliases a client may set; announced as Topic Alias Maximum. Each holds one topic.
    pub topic_aliases_in_max: u16,
    /// Topic aliases the broker sets towards a client that allows them. Each holds one topic.
    pub topic_aliases_out_max: u16,
    /// Time from the opening of a connection to its CONNECT, and from that to the answer about its
    /// password. Beyond it: a plain close, or 0x89 (3.x: 3) and then a close.
    pub connect_timeout: Duration,
    /// Longest time a session outlives its connection, in seconds; `u32::MAX` is without end. Of
    /// sessions that were to stay for longer too.
    pub session_expiry_max_s: u32,
    /// For how long a client that is over its rate is only slowed; `None` is without end. Beyond
    /// it: DISCONNECT 0x96, or 0x97 if it is over its rate of bytes.
    pub rate_patience: Option<Duration>,
}

/// What happens to a client that publishes what it may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeniedPublish {
    /// Its message is acknowledged: with 0x87, before 5.0 without an error [MQTT311-3.3.5-2].
    #[default]
    Acknowledge,
    /// The same, and then its connection ends with 0x87.
    Disconnect,
}

/// What happens when a session is at the limit of what may wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueFull {
    /// The oldest that waits for it on disk is let go, the newest of what waits in memory:
    /// [`crate::DropReason::QueueFull`]. Publishers notice nothing.
    #[default]
    DropOldest,
    /// A message of QoS 1 or 2 that a full session would have to keep is refused, if the session
    /// stays; other sessions are as with [`Self::DropOldest`]. A 5.0 publisher is told 0x97; an
    /// older one is disconnected without an acknowledgement, and sends it again. What another
    /// shard has taken in before it heard of the session is kept beyond the limit.
    Refuse,
}

/// What happens when the store is at its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StoreFull {
    /// What has waited longest is let go, in all sessions: [`crate::DropReason::StoreFull`].
    /// Publishers notice nothing. The store may grow a little beyond its limit meanwhile. If values
    /// alone reach it nothing would be gained, and it is as with [`Self::Refuse`].
    #[default]
    DropOldest,
    /// A message of QoS 1 or 2 that would have to be stored is refused. A 5.0 publisher is told
    /// 0x97; MQTT 3 has no word for it, so an older publisher is disconnected without an
    /// acknowledgement, and sends it again. What is retained of QoS 0 reaches those who are there
    /// and is not retained.
    Refuse,
}

/// Messages of QoS 2 that a session gives packet ids before its window has places for them; not
/// more than its window either. 16 bytes each.
pub(crate) const LOOK_AHEAD_MAX: usize = 256;

/// Messages, and bytes of them, that wait in memory for a session that stays; those beyond are left
/// on disk and read when its client has taken these.
pub(crate) const LIVE_MESSAGES_MAX: usize = 4_096;
pub(crate) const LIVE_BYTES_MAX: u64 = 1024 * 1024;

/// Messages that a session which is behind is to get by subscriptions that are not in force yet:
/// of those come in a millisecond or less what other shards take in. About 100 bytes each.
pub(crate) const EARLY_MAX: usize = 4_096;

/// Subscriptions that have ended and that a session has beside its own, if it may have fewer of
/// those: about as large each. Whoever keeps up has them for half a second.
pub(crate) const PAST_SUBSCRIPTIONS_AT_LEAST: u32 = 100;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 100_000,
            sessions_max: 1_000_000,
            packet_bytes_max: 16 * 1024 * 1024,
            connect_bytes_max: 384 * 1024,
            unadmitted_bytes_max: 64 * 1024 * 1024,
            memory_bytes_max: 1024 * 1024 * 1024,
            receive_maximum: 1_024,
            inflight_max: 8_192,
            queue_messages_max: 100_000,
            queue_bytes_max: 64 * 1024 * 1024,
            queue_full: QueueFull::DropOldest,
            denied_publish: DeniedPublish::Acknowledge,
            queue_age_max_s: u32::MAX,
            store_bytes_max: 16 * 1024 * 1024 * 1024,
            store_full: StoreFull::DropOldest,
            output_bytes_max: 4 * 1024 * 1024,
            topic_bytes_max: u16::MAX,
            topic_levels_max: LEVELS_MAX,
            subscriptions_per_session_max: 10_000,
            subscriptions_max: 10_000_000,
            filter_levels_per_session_max: 100_000,
            filter_levels_max: 50_000_000,
            deep_levels_max: 32_768,
            retained_messages_max: 1_000_000,
            retained_bytes_max: 1024 * 1024 * 1024,
            topic_aliases_in_max: 64,
            topic_aliases_out_max: 64,
            connect_timeout: Duration::from_secs(10),
            session_expiry_max_s: u32::MAX,
            rate_patience: Some(Duration::from_mins(1)),
        }
    }
}

/// Why a set of limits cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// A limit that must be at least one is zero.
    #[error("limits.{name} is 0; it must be at least 1")]
    Zero {
        /// The limit.
        name: &'static str,
    },
    /// A limit exceeds what the protocol or the data structures allow.
    #[error("limits.{name} is {value}; it can be at most {max}")]
    TooLarge {
        /// The limit.
        name: &'static str,
        /// The value given.
        value: u64,
        /// The largest value allowed.
        max: u64,
    },
}

impl Limits {
    /// Deep levels that the filters of one session may have.
    pub(crate) fn deep_levels_per_session_max(&self) -> u32 {
        (self.deep_levels_max / DEEP_LEVELS_PART).max(1)
    }

    /// Seconds for which a session outlives its connection if so many were agreed on; `u32::MAX` is
    /// without end. One that stays does so for a second at least.
    pub(crate) fn expiry_s(&self, agreed_s: u32) -> u32 {
        agreed_s.min(self.session_expiry_max_s.max(1))
    }

    /// Checks each limit by itself and against the others.
    pub fn check(&self) -> Result<(), LimitsError> {
        let at_least_one: &[(&'static str, u64)] = &[
            ("connections_max", self.connections_max.into()),
            ("sessions_max", self.sessions_max.into()),
            ("packet_bytes_max", self.packet_bytes_max.into()),
            ("connect_bytes_max", self.connect_bytes_max.into()),
            ("unadmitted_bytes_max", self.unadmitted_bytes_max),
            ("memory_bytes_max", self.memory_bytes_max),
            ("receive_maximum", self.receive_maximum.into()),
            ("inflight_max", self.inflight_max.into()),
            ("queue_messages_max", self.queue_messages_max.into()),
            ("queue_bytes_max", self.queue_bytes_max),
            ("queue_age_max", self.queue_age_max_s.into()),
            ("store_bytes_max", self.store_bytes_max),
            ("output_bytes_max", self.output_bytes_max.into()),
            ("topic_bytes_max", self.topic_bytes_max.into()),
            ("topic_levels_max", self.topic_levels_max.into()),
            (
                "subscriptions_per_session_max",
                self.subscriptions_per_session_max.into(),
            ),
            ("subscriptions_max", self.subscriptions_max.into()),
            (
                "filter_levels_per_session_max",
                self.filter_levels_per_session_max.into(),
            ),
            ("filter_levels_max", self.filter_levels_max.into()),
            ("deep_levels_max", self.deep_levels_max.into()),
        ];
        for &(name, value) in at_least_one {
            if value == 0 {
                return Err(LimitsError::Zero { name });
            }
        }
        let at_most: &[(&'static str, u64, u64)] = &[
            (
                "packet_bytes_max",
                self.packet_bytes_max.into(),
                PACKET_BYTES_MAX.into(),
            ),
            (
                "topic_levels_max",
                self.topic_levels_max.into(),
                LEVELS_MAX.into(),
            ),
            (
                "connections_max",
                self.connections_max.into(),
                u64::from(u32::MAX / 2),
            ),
            (
                "inflight_max",
                self.inflight_max.into(),
                INFLIGHT_MAX.into(),
            ),
        ];
        for &(name, value, max) in at_most {
            if value > max {
                return Err(LimitsError::TooLarge { name, value, max });
            }
        }
        Ok(())
    }
}

/// The largest packet MQTT can express: 1 byte, 4 bytes of length, 268,435,455 bytes of content.
pub(crate) const PACKET_BYTES_MAX: u32 = 268_435_455 + 5;
/// Parts of a budget of memory. While less than one of them is free, an output takes little; when
/// clients are ended, it is until one is free, or two where admitted clients hold it.
pub(crate) const MEMORY_PARTS: u64 = 8;
/// Bytes of the buffers of one admitted connection that are not counted in
/// [`Limits::memory_bytes_max`]: most packets are small, and leave in the turn in which they came.
pub(crate) const UNCOUNTED_BYTES: usize = 4 * 1024;
/// Bytes that an output takes while less than an eighth of [`Limits::memory_bytes_max`] is free: a
/// packet that does not fit counts as one for a full output.
pub(crate) const SHORT_OUTPUT_BYTES: u64 = 64 * 1024;
/// How long little memory may be free until clients are ended for it, and how long a shard that has
/// found none to end waits for the others.
pub(crate) const MEMORY_LOOK_EVERY: Duration = Duration::from_millis(100);
/// Connections beyond `connections_max`, and beyond `max_connections` of a listener, whose CONNECT
/// is read, all shards together: a client's own connection may hold the place. If half of them
/// have sent none, the oldest of these makes room for the next. About 1 KiB each, up
/// to 128 while a CONNECT is read, and one read (192 KiB) while a password is checked.
pub const RESERVE_MAX: u32 = 256;
/// How long a connection for which there is no place may take to send its CONNECT, and then wait
/// for the answer about its password.
pub(crate) const PATIENCE_WITHOUT_PLACE: Duration = Duration::from_secs(2);
/// The largest CONNECT of a connection for which there is no place. A client with a longer one
/// waits until a place is free.
pub(crate) const SMALL_CONNECT_BYTES: u32 = 64 * 1024;
/// A client may have so many times what is still free of a limit that all share: half of it at
/// most, less the more clients have much.
pub(crate) const CLIENT_SHARE: u64 = 1;
/// The same for all clients of one address: nine tenths at most. More than one client's, since many
/// may be behind one router.
pub(crate) const ADDRESS_SHARE: u64 = 9;
/// The deepest topic. Matching goes through the tree level by level, so this bounds its steps.
pub(crate) const LEVELS_MAX: u16 = 200;
/// Levels of a filter that are never deep: a topic visits at most 2,047 nodes of the subscription
/// tree there. Each one more doubles that.
pub(crate) const FREE_LEVELS: u32 = 10;
/// One session may have this part of [`Limits::deep_levels_max`].
const DEEP_LEVELS_PART: u32 = 8;
/// Steps of a turn: nodes of the subscription tree that topics visit, levels of filters that are
/// subscribed to, and retained topics that queries look at. About 100 ns each. Beyond it topics
/// deeper than [`FREE_LEVELS`] and queries wait for the next turn.
pub(crate) const TURN_STEPS: u64 = 16_384;
/// Steps of one connection in a turn. Beyond it what else it has sent waits for the next turn.
pub(crate) const CONNECTION_STEPS: u64 = 4_096;
/// Shards of one broker: the receivers of a message are a bit set of this width.
pub(crate) const SHARDS_MAX: usize = 64;
/// Bytes of the messages that one shard keeps for reuse and nobody uses: some 15,000 small ones, as
/// many as wait where a window is large. The allocator took a tenth of the core's time of 200
/// publishers at QoS 1 when 1,024 were kept.
pub(crate) const MESSAGE_POOL_BYTES: usize = 4 * 1_024 * 1_024;
/// Bytes of one message beyond which it is given back to the allocator instead.
pub(crate) const MESSAGE_POOL_EACH_MAX: usize = 4 * 1_024;
/// Messages lent by one shard to others, 4 MiB together at most. A lent message keeps its payload,
/// and the memory, after its last receiver had it: until another takes its place, or 1,024 others
/// were lent after it. While more than these are under way, the allocator is asked.
pub(crate) const LENT_MAX: usize = 1_024;
/// Bytes of topic and payload of a message that goes to another shard in a bundle.
pub(crate) const BUNDLED_EACH_MAX: usize = 4 * 1_024;
/// Other shards that a message of a bundle goes to at most: it is copied for each.
pub(crate) const BUNDLED_FOR_MAX: u32 = 2;
/// Bytes that a bundled message takes of a feed's limit at least, so that a feed does not hold more
/// of them than of messages: its limit of bytes by that of messages.
pub(crate) const BUNDLED_COST_MIN: u64 = 1_024;
/// Bytes of a bundle beyond which nothing more is added to it.
pub(crate) const BUNDLE_BYTES_MAX: usize = 16 * 1_024;
/// Steps of one trace that wait for the driver, of one shard and turn. About 200 bytes each, and
/// the payload that the trace shows.
pub(crate) const TRACED_STEPS_MAX: usize = 2_048;
/// Clients that a trace of a user knows by their ids. 16 bytes each.
pub(crate) const TRACED_CLIENTS_MAX: usize = 1_024;
/// Receivers of a message that a trace names.
pub(crate) const TRACED_RECEIVERS_MAX: usize = 8;
/// Bytes of one bundle beyond which it is given back to the allocator.
pub(crate) const BUNDLE_LENT_EACH_MAX: usize = 40 * 1_024;
/// Bundles lent by one shard to others, 10 MiB together at most and as a rule a tenth of that. As
/// with a lent message.
pub(crate) const BUNDLES_LENT_MAX: usize = 256;
/// Buffers of output and of incomplete packets kept for reuse by one shard: small ones, and large
/// ones up to a capacity beyond which one is given back to the allocator. At most 256 x 64 KiB and
/// 16 x 1 MiB a shard.
pub(crate) const BUFFER_POOL_MAX: usize = 256;
pub(crate) const SMALL_BUFFER_BYTES_MAX: usize = 64 * 1_024;
pub(crate) const LARGE_BUFFER_POOL_MAX: usize = 16;
pub(crate) const BUFFER_BYTES_MAX: usize = 1_024 * 1_024;
/// Bytes at the front of an output that have been written, and are let go of before the rest is.
pub(crate) const WRITTEN_BYTES_MIN: usize = 64 * 1_024;
/// Messages in flight on a new connection at most. The window grows by one with each that is
/// acknowledged while its output does not wait for the client, up to what the client and
/// [`Limits::inflight_max`] allow.
pub(crate) const WINDOW_INITIAL: u16 = 64;
/// What a session that publishers are refused for may have beyond twice its limits: more than can
/// be under way to it from other shards.
pub(crate) const BEYOND_MESSAGES_MAX: u64 = 65_536;
pub(crate) const BEYOND_BYTES_MAX: u64 = 64 * 1_024 * 1_024;
/// Messages handed over in one piece of a retained answer; the next piece follows in a later turn.
pub(crate) const RETAINED_SLICE: usize = 256;
/// Messages with very many receivers that are on their way to them on one shard. Beyond it the
/// oldest goes to all the others at once, and so it does when those on their way come to
/// [`Limits::output_bytes_max`]: they have less than that and one packet. Each is there as it came,
/// once more for each layout in use (protocol, QoS and retain flag: 12 at most), and with a bit for
/// each receiver. Those of one topic share the route as long as nobody subscribes meanwhile: 32
/// bytes a receiver, and 4 for each number of a session up to the highest in it.
pub(crate) const FAN_OUTS_MAX: usize = 32;
/// So many, or half the bytes, and the publisher of the last is not read until that one has
/// arrived, or less than half of so much is left.
pub(crate) const FAN_OUTS_WAITED_FOR: usize = 16;
/// Topics remembered for a session that is still to be sent what is retained, to leave out copies
/// older than what was delivered meanwhile: some 100 bytes and the topic each. Beyond it such a
/// copy may arrive late: allowed by MQTT, never a loss.
pub(crate) const RETAINED_RACE_TOPICS_MAX: usize = 1_024;

/// Sessions of one shard whose part of the logs is read at a time after a restart, only to be
/// counted, and bytes of each read. Small, because a client that comes may wait for one of them.
pub(crate) const SCANS_MAX: usize = 2;
pub(crate) const SCAN_BYTES_MAX: usize = 64 * 1024;

/// Messages of one lane whose receipts are open, while somebody watches that lane: about 200 bytes
/// and the topic each. Beyond it the oldest is told as it is, unfinished.
pub(crate) const RECEIPTS_MAX: usize = 1_024;
/// Lanes of sessions that have ended with receipts open. Beyond it those are told unfinished.
pub(crate) const DEPARTED_LANES_MAX: usize = 1_024;
/// Lanes of publishers that stamp themselves, of one shard: about 2 KiB each in order, and up to
/// 200 KiB while windows are open and disordered. Beyond it messages of more lanes are delivered
/// and counted as unaudited.
pub(crate) const VERIFIED_LANES_MAX: usize = 4_096;
/// Of those, the ones that one client may have. Messages of one more are delivered, and counted as
/// unaudited.
pub(crate) const LANES_A_CLIENT_MAX: usize = 1_024;
/// Producers of directories that one client may have. More are not bound to it.
pub(crate) const PRODUCERS_A_CLIENT_MAX: usize = 64;
/// Of all lanes of a shard, those that are left to clients with fewer than [`LANES_FEW`].
pub(crate) const LANES_RESERVED: usize = 1_024;
/// A client has few lanes below this.
pub(crate) const LANES_FEW: usize = 4;
/// Lanes whose owner is known on the shard that all others ask for it, after the owner's session
/// has ended: 100 bytes each. Beyond it the oldest is forgotten, and opened again as a new one.
pub(crate) const LANES_CLOSED_MAX: usize = 4_096;
/// Pairs of a lane and a client that is not its owner which a shard names in a second; 200 bytes
/// each. What more of them send is only counted.
pub(crate) const INTRUSIONS_TOLD_MAX: usize = 1_024;
/// Epochs of lanes that a shard remembers, over all shards, after their publishers' sessions have
/// ended: 50 bytes each. A lane of which the last one is forgotten is joined late.
pub(crate) const EPOCHS_KNOWN_MAX: usize = 16_384;
/// Clients of whose lanes that are not judged a shard tells apart how many messages they had, in a
/// second; 100 bytes each. Those of more are only counted.
pub(crate) const LANES_REFUSED_TOLD_MAX: usize = 64;

const _: () = assert!(LANES_A_CLIENT_MAX + LANES_RESERVED < VERIFIED_LANES_MAX);
const _: () = assert!(LANES_FEW < LANES_A_CLIENT_MAX);
/// Epochs of ingress lanes of one shard that are over, until everybody has been told, 400 bytes
/// each. Beyond it the oldest is forgotten, and who was away when it ended cannot prove all of it.
pub(crate) const OVER_EPOCHS_MAX: usize = 16_384;
/// Subscriptions to the verdict that wait for it, of one shard; 16 bytes each. One more gets the
/// next one that is published.
pub(crate) const VERDICTS_ASKED_MAX: usize = 4_096;
/// Accounts of single sessions that are watched, of one shard; 500 bytes each. One more is not
/// told.
pub(crate) const STATEMENTS_MAX: usize = 4_096;
/// What a session that hears of drops has missed of stamped messages and has not been told, in
/// bytes: 16 a message among neighbours, 80 more for each run of them. Beyond it a message is not
/// named to its receiver, who calls it lost.
pub(crate) const MISSED_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of what is claimed of one client beside its name: roles, names and values, once for each
/// connection.
pub(crate) const CLAIM_BYTES_MAX: usize = 8 * 1024;

/// Rule sets of a policy, roles of all of them, and rules of all of these: for each rule about 200
/// bytes, its filter and where it is written, once for all shards.
pub(crate) const RULE_SETS_MAX: usize = 255;
pub(crate) const ROLES_MAX: usize = 16_384;
pub(crate) const RULES_MAX: usize = 262_144;
/// Verdicts that a shard remembers while it has a policy: 72 bytes each, the topic beyond 36 bytes,
/// and 100 bytes for each client of which there is one; 3 MiB at most. Beyond it an older one is
/// found anew.
pub(crate) const VERDICTS_MAX: usize = 4_096;
/// Bytes of a topic whose verdicts are remembered.
pub(crate) const VERDICT_TOPIC_MAX: usize = 512;

const _: () = assert!(
    ROLES_MAX <= u16::MAX as usize && RULE_SETS_MAX <= u8::MAX as usize,
    "a subject numbers its sets and roles"
);
const _: () = assert!(
    SHARDS_MAX <= u64::BITS as usize,
    "a shard is a bit of a u64"
);
const _: () = assert!(CLIENT_SHARE <= ADDRESS_SHARE, "an address has clients");
const _: () = assert!(RETAINED_SLICE > 0, "an answer must make progress");
const _: () = assert!(
    FAN_OUTS_WAITED_FOR < FAN_OUTS_MAX,
    "a publisher waits before it makes others hurry"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_usable() {
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn a_zero_limit_is_named() {
        let limits = Limits {
            inflight_max: 0,
            ..Limits::default()
        };
        assert_eq!(
            limits.check(),
            Err(LimitsError::Zero {
                name: "inflight_max"
            })
        );
    }

    #[test]
    fn a_packet_larger_than_the_protocol_allows_is_named() {
        let limits = Limits {
            packet_bytes_max: u32::MAX,
            ..Limits::default()
        };
        assert!(matches!(
            limits.check(),
            Err(LimitsError::TooLarge {
                name: "packet_bytes_max",
                ..
            })
        ));
    }
}
