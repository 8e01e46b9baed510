//! What an operator is shown of shared groups.

use std::sync::Arc;

use unbroken_mqtt_proto::QoS;

use crate::ids::{SessionId, ShardId};

/// A shared group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupInfo {
    /// As its members write it, `$share/GROUP/FILTER`.
    pub filter: Arc<str>,
    /// How many members it has.
    pub members: u32,
    /// Some of them: those whose turn is next.
    pub listed: Vec<GroupMember>,
}

/// A member of a shared group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupMember {
    /// The shard of its session.
    pub shard: ShardId,
    /// Its session there.
    pub session: SessionId,
    /// The most a message is delivered with.
    pub qos: QoS,
    /// `ready`; `away`, but its session keeps messages; `full`; or `absent`: it is away, and keeps
    /// nothing.
    pub state: &'static str,
}
