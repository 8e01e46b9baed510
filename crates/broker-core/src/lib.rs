//! One shard of the broker as a value: inputs in, outputs out.
//!
//! [`Shard`] is the only mutable type. A driver gives it bytes, mail from other shards, answers to
//! its requests and the time; it answers with bytes to write, mail to send, and requests. Nothing
//! here opens a socket, reads a clock, starts a thread or takes a lock, so that the simulator runs
//! exactly the code that production runs.
//!
//! Reading order: [`input`], [`output`], [`shard`], then `admission` (CONNECT), `publish` (the hot
//! path), `delivery` (a message to one session), `subscribe`, `mesh`, `will`.
//!
//! Invariants:
//! - A session lives on the shard its client id hashes to; so does its connection, once admitted.
//! - Mail between two shards arrives in the order it was sent, and none is lost.
//! - Nothing that is not delivered goes unnamed: every such message has a [`DropReason`].
//!
//! Deliberately absent: authentication (asked of the driver), disk (asked of the driver through
//! [`Output::Store`]), TLS and WebSocket (byte transforms in the driver).

#![forbid(unsafe_code)]

mod admission;
mod audit;
mod by_filter;
mod clients;
mod connection;
mod delivery;
mod durability;
mod hand_back;
mod ids;
pub mod input;
mod limits;
mod mail;
mod mesh;
mod message;
mod name_pattern;
mod operator;
mod option_box;
pub mod output;
mod placement;
mod places;
mod policy;
mod position;
mod post;
mod read_only;
mod reason;
mod restore;
mod retained;
mod routing;
mod session;
mod settings;
pub mod shard;
mod shared;
mod sleeping;
mod sys;
mod telemetry;
mod timers;
mod will;

pub use audit::clean_shutdown::EPOCHS_AHEAD_MAX;
pub use connection::LastWords;
pub use durability::{
    Entry, LaneState, LaneTold, Marker, MaybeSent, Presence, Progress, ReadAnswer, ReadRequest,
    ReceivedEntry, Record, StoreRequest, StoreSize, StoredSubscription, Will,
};
pub use ids::{ConnectionId, Errand, GroupId, HandOver, LogId, SessionId, ShardId, StoreId};
pub use input::{Admission, Forget, Input, Operation, OwnMessage};
pub use limits::{Limits, LimitsError, QueueFull, RESERVE_MAX, StoreFull};
pub use mail::Mail;
pub use message::{MarkParts, Message, MessageParts};
pub use operator::{ClientInfo, Page, Place, SessionInfo, SubscriptionInfo};
pub use output::{Credentials, Output};
pub use policy::{
    Action, Actions, Decision, Denial, Effect, Identity, Member, Peer, Policy, PolicyError, Role,
    Rule, Verdict,
};
pub use position::{Frontier, Position};
pub use reason::{CloseCause, Disconnection, DropReason, FaultKind, FaultPlace, LaneRefusal, Sent};
pub use restore::{RestoreError, RestoredEntry, RestoredHandOver, RestoredSession};
pub use settings::{AuditAction, AuditRule, AuditSettings, Room, Settings, ShardOptions, Totals};
pub use shard::{Outputs, Shard};
pub use sleeping::SleepingSession;
pub use telemetry::{
    Aside, AuditTotals, CommitTimes, Event, PublishersTotals, SleepingTotals, Stats, Work,
};
