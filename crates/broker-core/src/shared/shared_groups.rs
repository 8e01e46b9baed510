//! The shared groups that live on one shard, as one part: their members, the answers that wait for
//! other shards, and what ended sessions of this shard have left to groups.
//!
//! The caller subscribes for a group, delivers its messages, and informs the other shards.

use std::collections::VecDeque;
use std::sync::Arc;

use unbroken_mqtt_proto::TopicFilter;

use super::groups::GroupTable;
use super::hand_overs::HandOvers;
use super::info::GroupInfo;
use super::packet_limit::PacketLimit;
use crate::ids::{GroupId, GroupRef, HandOver, Member, Readiness, ShardId};
use crate::message::Publication;
use crate::policy::AccessControl;
use crate::position::Position;
use crate::routing::Grant;

/// The shared groups of a shard.
#[derive(Debug)]
pub(crate) struct SharedGroups {
    shard: ShardId,
    groups: GroupTable,
    /// Joins of other shards' sessions that are not answered, in the order of their barriers.
    joins: VecDeque<PendingJoin>,
    hand_overs: HandOvers,
}

/// The join of another shard's session, until every shard knows of the group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingJoin {
    pub(crate) barrier: u64,
    /// The shard of the session.
    pub(crate) shard: ShardId,
    /// That shard's name for the join.
    pub(crate) token: u64,
}

/// A member has joined a group, or joined once more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    pub(crate) id: GroupId,
    /// The group was made for it.
    pub(crate) is_new: bool,
    pub(crate) keeping: Keeping,
    /// All members that could take a message are full.
    pub(crate) is_full: bool,
}

/// A member has left a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) id: GroupId,
    /// It was the last one: the group has ended.
    pub(crate) was_last: bool,
    pub(crate) keeping: Keeping,
    /// All members that could take a message are full.
    pub(crate) is_full: bool,
}

/// Whether a group has members that keep what they are given, and had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeping {
    AsBefore,
    Begins,
    Ends,
}

/// The member whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chosen {
    pub(crate) member: Member,
    pub(crate) grant: Grant,
    pub(crate) group: GroupRef,
}

impl Keeping {
    fn of(kept: bool, keeps: bool) -> Self {
        match (kept, keeps) {
            (false, true) => Self::Begins,
            (true, false) => Self::Ends,
            _ => Self::AsBefore,
        }
    }
}

/// Members.
impl SharedGroups {
    pub(crate) fn new(shard: ShardId) -> Self {
        Self {
            shard,
            groups: GroupTable::default(),
            joins: VecDeque::new(),
            hand_overs: HandOvers::default(),
        }
    }

    /// Adds a member, ready, that keeps what it is given or not, to the group of this name and
    /// filter, which is made if need be. One that is in it already gets the new grant and keeps its
    /// turn.
    pub(crate) fn join(
        &mut self,
        group: &str,
        filter: TopicFilter<'_>,
        (member, keeps): (Member, bool),
        grant: Grant,
        limit: Option<PacketLimit>,
    ) -> Joined {
        let found = self.find(group, filter);
        let kept = found.is_some_and(|id| self.keeps(id));
        let (id, is_new) = self.groups.join(group, filter, (member, keeps), grant);
        if let Some(limit) = limit {
            self.groups.set_limit(id, member, limit);
        }
        Joined {
            id,
            is_new,
            keeping: Keeping::of(kept, self.keeps(id)),
            is_full: self.groups.is_full(id),
        }
    }

    /// Removes a member; `None` if there is no such group.
    pub(crate) fn leave(
        &mut self,
        group: &str,
        filter: TopicFilter<'_>,
        member: Member,
    ) -> Option<Left> {
        let id = self.find(group, filter)?;
        let kept = self.keeps(id);
        let was_last = self.groups.leave(id, member);
        Some(Left {
            id,
            was_last,
            keeping: Keeping::of(kept, self.keeps(id)),
            is_full: self.groups.is_full(id),
        })
    }

    /// Whether a member is able to take messages, and which, if it is connected. Answers the group
    /// and whether all its members are full.
    pub(crate) fn set_readiness(
        &mut self,
        group: &str,
        filter: TopicFilter<'_>,
        member: Member,
        readiness: Readiness,
        limit: Option<PacketLimit>,
    ) -> Option<(GroupId, bool)> {
        let id = self.find(group, filter)?;
        self.groups.set_readiness(id, member, readiness);
        if let Some(limit) = limit {
            self.groups.set_limit(id, member, limit);
        }
        Some((id, self.groups.is_full(id)))
    }

    /// The group of this name and filter.
    pub(crate) fn find(&self, group: &str, filter: TopicFilter<'_>) -> Option<GroupId> {
        self.groups.find(group, filter)
    }

    /// A part of the groups, from this number on, and where the next part begins.
    pub(crate) fn list(&self, from: usize, most: usize) -> (Vec<GroupInfo>, Option<usize>) {
        self.groups.list(from, most)
    }

    /// The group that chose a member, if it still exists.
    pub(crate) fn resolve(&self, group: GroupRef) -> Option<GroupId> {
        (self.groups.serial(group.group) == Some(group.serial)).then_some(group.group)
    }

    /// It as its members write it, `$share/…`.
    pub(crate) fn text(&self, id: GroupId) -> Option<&Arc<str>> {
        self.groups.text(id)
    }

    /// Whether a member keeps what it is given.
    pub(crate) fn keeps(&self, id: GroupId) -> bool {
        self.groups.keeps(id)
    }

    /// Chooses the member that gets this message: see [`GroupTable::choose`].
    pub(crate) fn choose(
        &mut self,
        id: GroupId,
        publication: &Publication<'_>,
        access: &mut AccessControl,
    ) -> Option<Chosen> {
        let takes = |limit: &PacketLimit, grant| {
            limit.allows(publication, grant)
                && access.member_may_receive(limit.client.as_ref(), publication.topic)
        };
        let (member, grant) = self.groups.choose(id, takes)?;
        let group = GroupRef {
            shard: self.shard,
            group: id,
            serial: self.groups.serial(id)?,
        };
        Some(Chosen {
            member,
            grant,
            group,
        })
    }

    /// A join is to be answered when its barrier is reached, which is not before that of the last
    /// one.
    pub(crate) fn hold_join(&mut self, join: PendingJoin) {
        self.joins.push_back(join);
    }

    /// Takes a join that is to be answered now: every shard has reached this barrier.
    pub(crate) fn take_join(&mut self, reached: u64) -> Option<PendingJoin> {
        self.joins.pop_front_if(|join| join.barrier <= reached)
    }
}

/// What sessions that have ended have left to groups.
impl SharedGroups {
    /// Names one more, whose message is at this position of a log.
    pub(crate) fn begin_hand_over(&mut self, position: Option<Position>) -> HandOver {
        let hand_over = self.hand_overs.next(self.shard);
        self.hand_overs.hold(hand_over, position);
        hand_over
    }

    /// A shard has named this one in an earlier run.
    pub(crate) fn note_hand_over(&mut self, hand_over: HandOver) {
        if hand_over.from == self.shard {
            self.hand_overs.go_on_behind(hand_over.number);
        }
    }

    /// This shard needs the message of this one in its log.
    pub(crate) fn hold_hand_over(&mut self, hand_over: HandOver, position: Option<Position>) {
        self.hand_overs.hold(hand_over, position);
    }

    /// A member has it, or it was dropped by name.
    pub(crate) fn end_hand_over(&mut self, hand_over: HandOver) {
        self.hand_overs.let_go(hand_over);
    }

    /// What is not to be trimmed.
    pub(crate) fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        self.hand_overs.positions()
    }
}
