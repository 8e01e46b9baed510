//! Shared subscription groups that live on this shard: who is in them, and whose turn it is.
//!
//! ```text
//!   ready:    A → B → C → (A)      those that can take a message now; the head is next
//!   away:     D → E → (D)          only if none is ready
//!   full:     F → (F)              only if no other member keeps a message
//!   absent:   G → (G)              the rest: away at QoS 0, so that nothing waits for them
//! ```
//!
//! Invariants:
//! - A member sits in exactly one of its group's four rings.
//! - A member that was chosen goes to the end of its ring, and a new one sits down at the end:
//!   between two turns of a member every other one of its ring has had one.
//! - A group without members does not exist; its number is used again.
//!   One that takes only smaller packets is passed over and stays where it is.
//! - Choosing, joining, leaving and changing rings cost the same in a group of any size; choosing
//!   costs a look at each member that is passed over.
//!
//! Deliberately absent: the messages, and the memory of who was given what (the member's session
//! has it); the subscription of the group itself (the caller inserts `Subscriber::Group` into the
//! index).

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;

use foldhash::fast::RandomState;
use slab::Slab;
use unbroken_mqtt_proto::TopicFilter;

use super::info::{GroupInfo, GroupMember};
use super::packet_limit::PacketLimit;
use crate::ids::{GroupId, Member, Readiness};
use crate::routing::Grant;

/// The groups of one shard.
#[derive(Debug, Default)]
pub(super) struct GroupTable {
    groups: Slab<Group>,
    /// By `$share/group/filter`: a group's name has no `/` in it [MQTT-4.8.2-1].
    by_text: HashMap<Arc<str>, GroupId, RandomState>,
    seats: Slab<Seat>,
    by_member: HashMap<(GroupId, Member), SeatId, RandomState>,
    /// Groups opened, ever.
    opened: u64,
}

#[derive(Debug)]
struct Group {
    /// Name and filter, as in `by_text`.
    text: Arc<str>,
    /// Never used again, unlike its number.
    serial: u64,
    /// By [`Readiness`].
    rings: [Ring; 4],
    /// Members that keep what they are given.
    keeping: u32,
    members: u32,
}

/// Seats in a circle. Empty or begun at whose turn it is.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    head: Option<SeatId>,
}

#[derive(Debug)]
struct Seat {
    member: Member,
    /// Its session outlives its connection, and is granted QoS 1 or 2.
    keeps: bool,
    grant: Grant,
    readiness: Readiness,
    /// As its last connection said.
    limit: PacketLimit,
    before: SeatId,
    after: SeatId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SeatId(usize);

impl GroupTable {
    /// Adds a member, ready, that keeps what it is given or not, to the group of this name and
    /// filter, which is made if need be; the answer's second part tells whether it was. Somebody
    /// who is in it already gets the new grant and keeps its turn.
    pub(super) fn join(
        &mut self,
        group: &str,
        filter: TopicFilter<'_>,
        (member, keeps): (Member, bool),
        grant: Grant,
    ) -> (GroupId, bool) {
        let found = self.find(group, filter);
        let id = found.unwrap_or_else(|| self.open(group, filter));
        let (mut kept, mut is_member) = (false, true);
        if let Some(&seat) = self.by_member.get(&(id, member)) {
            let seat = &mut self.seats[seat.0];
            seat.grant = grant;
            kept = std::mem::replace(&mut seat.keeps, keeps);
        } else {
            let seat = SeatId(self.seats.vacant_key());
            self.seats.insert(Seat {
                member,
                keeps,
                grant,
                readiness: Readiness::Ready,
                limit: PacketLimit::NONE,
                before: seat,
                after: seat,
            });
            self.by_member.insert((id, member), seat);
            self.sit_down(id, seat);
            is_member = false;
        }
        if let Some(group) = self.groups.get_mut(id.key()) {
            group.keeping = group.keeping - u32::from(kept) + u32::from(keeps);
            group.members += u32::from(!is_member);
        }
        (id, found.is_none())
    }

    /// Removes a member. `true` if it was the last one: the group has gone with it, and its
    /// subscription is to be removed.
    pub(super) fn leave(&mut self, id: GroupId, member: Member) -> bool {
        let Some(seat) = self.by_member.remove(&(id, member)) else {
            return false;
        };
        self.stand_up(id, seat);
        let seat = self.seats.remove(seat.0);
        let Some(group) = self.groups.get_mut(id.key()) else {
            return false;
        };
        group.keeping -= u32::from(seat.keeps);
        group.members -= 1;
        if group.rings.iter().any(|ring| ring.head.is_some()) {
            return false;
        }
        self.by_text.remove(&group.text);
        self.groups.remove(id.key());
        true
    }

    /// The group of this name and filter.
    pub(super) fn find(&self, group: &str, filter: TopicFilter<'_>) -> Option<GroupId> {
        self.by_text.get(&*share_text(group, filter)).copied()
    }

    /// It as its members write it, `$share/…`.
    pub(super) fn text(&self, id: GroupId) -> Option<&Arc<str>> {
        Some(&self.groups.get(id.key())?.text)
    }

    /// What tells a group from the next one of its number; `None` if there is no such group.
    pub(super) fn serial(&self, id: GroupId) -> Option<u64> {
        Some(self.groups.get(id.key())?.serial)
    }

    /// Whether a member keeps what it is given.
    pub(super) fn keeps(&self, id: GroupId) -> bool {
        let group = self.groups.get(id.key());
        group.is_some_and(|group| group.keeping > 0)
    }

    /// Whether it has full members, and no other that could take a message.
    pub(super) fn is_full(&self, id: GroupId) -> bool {
        let group = self.groups.get(id.key());
        group.is_some_and(|group| {
            let sits = |readiness| group.rings[readiness as usize].head.is_some();
            sits(Readiness::Full) && !sits(Readiness::Ready) && !sits(Readiness::Away)
        })
    }

    /// Whether a member is able to take messages. It goes to the end of the line.
    pub(super) fn set_readiness(&mut self, id: GroupId, member: Member, readiness: Readiness) {
        let Some(&seat) = self.by_member.get(&(id, member)) else {
            return;
        };
        if self.seats[seat.0].readiness != readiness {
            self.stand_up(id, seat);
            self.seats[seat.0].readiness = readiness;
            self.sit_down(id, seat);
        }
    }

    /// A member has connected.
    pub(super) fn set_limit(&mut self, id: GroupId, member: Member, limit: PacketLimit) {
        if let Some(seat) = self.by_member.get(&(id, member)) {
            self.seats[seat.0].limit = limit;
        }
    }

    /// Who gets this message: the ready members in turn, or, when none is ready, those that are
    /// away in turn, whose sessions keep it for them, then full ones, and those whose sessions do
    /// not keep it only if there is nobody else. One that cannot take it is passed over, unless
    /// none can. `None` if there is no such group.
    pub(super) fn choose(
        &mut self,
        id: GroupId,
        mut takes: impl FnMut(&PacketLimit, Grant) -> bool,
    ) -> Option<(Member, Grant)> {
        let group = self.groups.get(id.key())?;
        let heads = group.rings.map(|ring| ring.head);
        let first = heads.into_iter().flatten().next()?;
        let can = |seat: &SeatId| {
            let Seat { limit, grant, .. } = &self.seats[seat.0];
            takes(limit, *grant)
        };
        let chosen = {
            let mut all = heads.into_iter().flatten().flat_map(|head| self.ring(head));
            all.find(can).unwrap_or(first)
        };
        self.move_to_end(id, chosen);
        let seat = &self.seats[chosen.0];
        Some((seat.member, seat.grant))
    }

    /// Groups with these numbers, each with some of its members, those next in line first.
    pub(super) fn list(&self, from: usize, most: usize) -> (Vec<GroupInfo>, Option<usize>) {
        let info = |group: &Group| {
            let heads = group.rings.iter().filter_map(|ring| ring.head);
            let seats = heads.flat_map(|head| self.ring(head)).take(MEMBERS_LISTED);
            GroupInfo {
                filter: Arc::clone(&group.text),
                members: group.members,
                listed: seats.map(|seat| self.seats[seat.0].info()).collect(),
            }
        };
        let end = self.groups.capacity();
        let (mut groups, mut number) = (Vec::new(), from);
        let until = from.saturating_add(LOOKS_MAX).min(end);
        while number < until && groups.len() < most {
            groups.extend(self.groups.get(number).map(info));
            number += 1;
        }
        (groups, (number < end).then_some(number))
    }

    /// All seats of a ring, from this one on.
    fn ring(&self, head: SeatId) -> impl Iterator<Item = SeatId> {
        iter::successors(Some(head), move |seat| {
            let after = self.seats[seat.0].after;
            (after != head).then_some(after)
        })
    }

    fn move_to_end(&mut self, id: GroupId, seat: SeatId) {
        let Seat {
            readiness, after, ..
        } = self.seats[seat.0];
        let Some(group) = self.groups.get_mut(id.key()) else {
            return;
        };
        let ring = group.ring_mut(readiness);
        if ring.head == Some(seat) {
            ring.head = Some(after);
        } else {
            self.stand_up(id, seat);
            self.sit_down(id, seat);
        }
    }

    fn open(&mut self, name: &str, filter: TopicFilter<'_>) -> GroupId {
        let text: Arc<str> = share_text(name, filter).into();
        self.opened += 1;
        let number = self.groups.insert(Group {
            text: Arc::clone(&text),
            serial: self.opened,
            rings: Default::default(),
            keeping: 0,
            members: 0,
        });
        let id = GroupId(u32::try_from(number).expect("2^32 groups do not fit in memory"));
        self.by_text.insert(text, id);
        id
    }

    /// Puts a seat, which is in no ring, last into the one it belongs to.
    fn sit_down(&mut self, id: GroupId, seat: SeatId) {
        let Some(group) = self.groups.get_mut(id.key()) else {
            return;
        };
        let ring = group.ring_mut(self.seats[seat.0].readiness);
        let head = *ring.head.get_or_insert(seat);
        // Last is before the head. A seat that is alone has itself on both sides.
        let last = if head == seat {
            seat
        } else {
            self.seats[head.0].before
        };
        self.seats[seat.0].before = last;
        self.seats[seat.0].after = head;
        self.seats[last.0].after = seat;
        self.seats[head.0].before = seat;
    }

    /// Takes a seat out of its ring.
    fn stand_up(&mut self, id: GroupId, seat: SeatId) {
        let Seat {
            readiness,
            before,
            after,
            ..
        } = self.seats[seat.0];
        self.seats[before.0].after = after;
        self.seats[after.0].before = before;
        let Some(group) = self.groups.get_mut(id.key()) else {
            return;
        };
        let ring = group.ring_mut(readiness);
        if ring.head == Some(seat) {
            ring.head = (after != seat).then_some(after);
        }
    }
}

impl Seat {
    fn info(&self) -> GroupMember {
        GroupMember {
            shard: self.member.shard,
            session: self.member.session,
            qos: self.grant.qos,
            state: match self.readiness {
                Readiness::Ready => "ready",
                Readiness::Away => "away",
                Readiness::Full => "full",
                Readiness::Absent => "absent",
            },
        }
    }
}

impl Group {
    fn ring_mut(&mut self, readiness: Readiness) -> &mut Ring {
        &mut self.rings[readiness as usize]
    }
}

/// Members of one group that a listing names.
const MEMBERS_LISTED: usize = 32;
/// Numbers of groups that a page looks at; some are free.
const LOOKS_MAX: usize = 1_024;

impl GroupId {
    const fn key(self) -> usize {
        self.0 as usize
    }
}

/// A shared subscription as its client wrote it.
pub(crate) fn share_text(group: &str, filter: TopicFilter<'_>) -> Box<str> {
    format!("$share/{group}/{}", filter.as_str()).into()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use unbroken_mqtt_proto::{Properties, QoS, Version};

    use super::*;
    use crate::ids::Readiness::{Absent, Away, Full, Ready};
    use crate::ids::{SessionId, ShardId};
    use crate::message::Publication;

    const GRANT: Grant = Grant {
        qos: QoS::AtLeastOnce,
        no_local: false,
        retain_as_published: false,
        identifier: None,
    };

    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn message(payload: &[u8]) -> Publication<'_> {
        Publication {
            topic: "a/b",
            properties: Properties::EMPTY,
            payload,
            qos: QoS::AtMostOnce,
            retain: false,
            expires: None,
            stamp: Instant::now(),
            mark: None,
        }
    }

    fn any(_: &PacketLimit, _: Grant) -> bool {
        true
    }

    fn member(session: u32) -> Member {
        Member {
            shard: ShardId(0),
            session: SessionId(session),
            serial: 0,
        }
    }

    fn filter(text: &str) -> TopicFilter<'_> {
        TopicFilter::parse(text).unwrap()
    }

    fn group_of(members: std::ops::Range<u32>) -> (GroupTable, GroupId) {
        let mut groups = GroupTable::default();
        for session in members {
            groups.join("g", filter("a/+"), (member(session), false), GRANT);
        }
        let id = groups.find("g", filter("a/+")).unwrap();
        (groups, id)
    }

    fn turns(groups: &mut GroupTable, id: GroupId, count: usize) -> Vec<u32> {
        (0..count)
            .filter_map(|_| groups.choose(id, any))
            .map(|(member, _)| member.session.0)
            .collect()
    }

    #[test]
    fn ready_members_take_turns() {
        let (mut groups, id) = group_of(0..3);
        assert_eq!(turns(&mut groups, id, 7), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn members_that_are_not_ready_are_passed_over() {
        let (mut groups, id) = group_of(0..4);
        groups.set_readiness(id, member(1), Away);
        groups.set_readiness(id, member(1), Away);
        assert_eq!(turns(&mut groups, id, 4), [0, 2, 3, 0]);
        groups.set_readiness(id, member(1), Ready);
        assert_eq!(turns(&mut groups, id, 4), [2, 3, 0, 1]);
    }

    #[test]
    fn when_none_is_ready_all_take_turns() {
        let (mut groups, id) = group_of(0..3);
        for session in 0..3 {
            groups.set_readiness(id, member(session), Away);
        }
        assert_eq!(turns(&mut groups, id, 4), [0, 1, 2, 0]);
        groups.set_readiness(id, member(2), Ready);
        assert_eq!(turns(&mut groups, id, 2), [2, 2]);
    }

    #[test]
    fn joining_again_replaces_the_grant_and_keeps_the_turn() {
        let (mut groups, id) = group_of(0..2);
        let better = Grant {
            qos: QoS::ExactlyOnce,
            ..GRANT
        };
        assert_eq!(
            groups.join("g", filter("a/+"), (member(0), false), better),
            (id, false)
        );
        assert_eq!(groups.seats.len(), 2);
        assert_eq!(groups.choose(id, any), Some((member(0), better)));
    }

    #[test]
    fn a_group_is_its_name_and_its_filter() {
        let mut groups = GroupTable::default();
        let (first, new) = groups.join("g", filter("a"), (member(0), true), GRANT);
        assert!(new);
        let (other_filter, new) = groups.join("g", filter("b/a"), (member(0), false), GRANT);
        assert!(new);
        let (other_name, new) = groups.join("h", filter("a"), (member(0), false), GRANT);
        assert!(new);
        assert_eq!(groups.groups.len(), 3);
        assert_eq!(groups.find("g", filter("b/a")), Some(other_filter));
        assert_eq!(groups.find("h", filter("a")), Some(other_name));
        assert!(groups.leave(first, member(0)));
        assert_eq!(groups.find("g", filter("a")), None);
        assert_eq!(groups.choose(first, any), None);
        assert!(!groups.leave(first, member(0)));
    }

    #[test]
    fn leaving_hands_the_turn_on() {
        let (mut groups, id) = group_of(0..3);
        assert_eq!(turns(&mut groups, id, 1), [0]);
        assert!(!groups.leave(id, member(1)));
        assert_eq!(turns(&mut groups, id, 2), [2, 0]);
    }

    #[test]
    fn who_cannot_take_a_message_is_passed_over_and_keeps_its_turn() {
        let (mut groups, id) = group_of(0..3);
        let small = PacketLimit {
            bytes_max: 100,
            version: Version::V5,
            client: None,
        };
        groups.set_limit(id, member(0), small.clone());
        groups.set_limit(id, member(1), small);
        let payload = [0; 100];
        let large = |limit: &PacketLimit, grant| limit.allows(&message(&payload), grant);
        let chosen = |groups: &mut GroupTable| groups.choose(id, large).unwrap().0.session.0;
        assert_eq!(chosen(&mut groups), 2);
        assert_eq!(chosen(&mut groups), 2);
        assert_eq!(turns(&mut groups, id, 4), [0, 1, 2, 0]);
        assert_eq!(chosen(&mut groups), 2);
        assert_eq!(turns(&mut groups, id, 3), [1, 0, 2]);
        groups.set_readiness(id, member(2), Away);
        assert_eq!(chosen(&mut groups), 2);
        groups.leave(id, member(2));
        assert_eq!(chosen(&mut groups), 1);
    }

    /// The twin keeps the lines as plain queues.
    #[test]
    fn rings_behave_like_four_queues() {
        use std::collections::VecDeque;
        for seed in 1..200_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut below = |n: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % n
            };
            let mut groups = GroupTable::default();
            let mut lines: [VecDeque<u32>; 4] = Default::default();
            let mut keep = [false; 6];
            let mut id = GroupId(0);
            for _ in 0..500 {
                let session = u32::try_from(below(6)).unwrap();
                let known = lines.iter().any(|line| line.contains(&session));
                match below(4) {
                    0 => {
                        let empty = lines.iter().all(VecDeque::is_empty);
                        let keeps = below(2) == 0;
                        keep[session as usize] = keeps;
                        let member = (member(session), keeps);
                        let (joined, new) = groups.join("g", filter("f"), member, GRANT);
                        assert_eq!(new, empty, "seed {seed}");
                        id = joined;
                        if !known {
                            lines[Ready as usize].push_back(session);
                        }
                    }
                    1 => {
                        for line in &mut lines {
                            line.retain(|s| *s != session);
                        }
                        let emptied = known && lines.iter().all(VecDeque::is_empty);
                        assert_eq!(groups.leave(id, member(session)), emptied, "seed {seed}");
                    }
                    2 => {
                        let all = [Ready, Away, Full, Absent];
                        let readiness = all[usize::try_from(below(4)).unwrap()];
                        groups.set_readiness(id, member(session), readiness);
                        if known && !lines[readiness as usize].contains(&session) {
                            for line in &mut lines {
                                line.retain(|s| *s != session);
                            }
                            lines[readiness as usize].push_back(session);
                        }
                    }
                    _ => {
                        let line = lines.iter_mut().find(|line| !line.is_empty());
                        let expected = line.map(|line| {
                            line.rotate_left(1);
                            line[line.len() - 1]
                        });
                        let chosen = groups.choose(id, any).map(|(m, _)| m.session.0);
                        assert_eq!(chosen, expected, "seed {seed}");
                    }
                }
                let members = || lines.iter().flatten();
                assert_eq!(groups.seats.len(), members().count());
                let sits = |line: Readiness| !lines[line as usize].is_empty();
                let is_full = sits(Full) && !sits(Ready) && !sits(Away);
                assert_eq!(groups.is_full(id), is_full);
                assert_eq!(groups.keeps(id), members().any(|s| keep[*s as usize]));
            }
        }
    }
}
