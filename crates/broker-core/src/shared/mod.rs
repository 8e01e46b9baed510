//! Shared subscriptions: the groups of this shard, and what ended sessions leave to groups.

mod groups;
mod hand_overs;
mod info;
mod message;
mod packet_limit;
mod shared_groups;

pub(crate) use groups::share_text;
pub use info::{GroupInfo, GroupMember};
pub(crate) use message::{Duty, GroupMessage};
pub(crate) use packet_limit::PacketLimit;
pub(crate) use shared_groups::{Keeping, PendingJoin, SharedGroups};
