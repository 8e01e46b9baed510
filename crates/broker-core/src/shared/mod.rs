//! Shared subscriptions: the groups of this shard, and what ended sessions leave to groups.

mod groups;
mod hand_overs;

pub(crate) use groups::{PacketLimit, SharedGroups, share_text};
pub(crate) use hand_overs::HandOvers;
