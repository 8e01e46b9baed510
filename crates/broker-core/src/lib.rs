//! One shard of the broker as a value: inputs in, outputs out.
//!
//! [`Shard`] is the only mutable type. A driver gives it bytes, messages from other shards, answers
//! to its requests and the time; it answers with bytes to write, messages to send, and requests.
//! Nothing here opens a socket, reads a clock, starts a thread or takes a lock, so that the
//! simulator runs exactly the code that production runs.
//!
//! Reading order: [`input`], [`output`], [`shard`], then in `shard/` `connect`, `publish` (the hot
//! path), `subscribe`, `close`; `delivery` (a message to one session), `mesh`.
//!
//! Invariants:
//! - A session lives on the shard its client id hashes to; so does its connection, once admitted.
//! - Messages between two shards arrive in the order they were sent, and none is lost.
//! - Nothing that is not delivered goes unnamed: every such message has a [`DropReason`].
//!
//! Deliberately absent: authentication (asked of the driver), disk (asked of the driver through
//! [`Output::Store`]), TLS and WebSocket (byte transforms in the driver).

#![forbid(unsafe_code)]

mod audit;
mod by_filter;
mod client_ids;
mod connection;
mod delivery;
mod durability;
mod filter_size;
mod ids;
pub mod input;
mod limits;
mod memory;
mod mesh;
mod message;
mod name_pattern;
mod option_box;
pub mod output;
mod placement;
mod policy;
mod position;
mod rates;
mod reason;
mod retained;
mod routing;
mod session;
mod settings;
pub mod shard;
mod shared;
mod shares;
mod telemetry;
mod timers;

pub use audit::clean_shutdown::EPOCHS_AHEAD_MAX;
pub use audit::verify::{LaneCheckpoint, LaneInfo};
pub use client_ids::{ClientIdRules, ClientIdSource};
pub use connection::{AuthExchange, AuthStep, LastWords};
pub use durability::{
    Entry, LaneState, LaneTold, LaneUser, Marker, MaybeSent, Presence, Progress, ReadAnswer,
    ReadRequest, ReceivedEntry, Record, StoreRequest, StoreSize, StoredSubscription, Will,
};
pub use ids::{ConnectionId, Errand, GroupId, HandOver, LogId, SessionId, ShardId, StoreId};
pub use input::{Admission, Clients, Forget, Input, Operation, OwnMessage};
pub use limits::{DeniedPublish, Limits, LimitsError, QueueFull, RESERVE_MAX, StoreFull};
pub use mesh::ShardMessage;
pub use message::{MarkParts, Message, MessageParts};
pub use output::{Credentials, Output};
pub use policy::{
    Action, Actions, Ceiling, Claims, Combining, Decision, Denial, Effect, Grant, Identity, Member,
    MountError, MountPoint, MountPointError, Peer, Policy, PolicyError, Role, Rule, RuleSet,
    TooManyClaims, Verdict,
};
pub use position::{Frontier, Position};
pub use rates::{RateLimits, RatePlace, RateRefusal, RateScope, Rates};
pub use reason::{
    CloseCause, Disconnection, DropPlace, DropReason, FaultKind, FaultPlace, LaneRefusal, Sent,
};
pub use retained::{RetainedPage, TopicLevel, TopicLevels, WantedRetained};
pub use session::{
    ClientInfo, Page, Place, SessionInfo, SleepingSession, SubscriptionInfo, Wanted,
    WantedSubscriptions,
};
pub use settings::{AuditAction, AuditRule, AuditSettings, Room, Settings, ShardOptions, Totals};
pub use shard::{
    LaneFilter, LanePage, LanePlace, Outputs, RestoreError, RestoredEntry, RestoredHandOver,
    RestoredSession, Shard,
};
pub use shared::{GroupInfo, GroupMember};
pub use telemetry::{
    Aside, AuditTotals, CommitTimes, Event, Histogram, Latencies, Numbers, PublishersTotals,
    SleepingTotals, Stats, TraceFilter, TraceStep, Traced, Work,
};
