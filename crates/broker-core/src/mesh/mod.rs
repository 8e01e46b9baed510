//! What goes from one shard to the others, in order and numbered.
//!
//! Announcements are numbered by *barriers*. Messages between two shards are in order, so a shard
//! that has answered barrier n has applied everything up to n. A SUBACK, or the answer to a join of
//! a shared group, waits for the barrier that was the latest when it began to wait. With one shard
//! every barrier is reached at once.
//!
//! Each message has a number of its own, so that one which is lost, comes twice or late on its way
//! is a named fault.
//!
//! Deliberately absent: what a message means to the shard that it is for ([`crate::shard`]).

mod bundle;
mod message;

use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) use bundle::Bundle;
pub use message::ShardMessage;
pub(crate) use message::{Awaited, MeshMessage, RetainMessage};

use self::bundle::{Bundles, is_plain};
use crate::ids::ShardId;
use crate::message::Publication;
use crate::reason::FaultKind;
use crate::shared::GroupMessage;

/// One shard's connection with the others.
#[derive(Debug)]
pub(crate) struct Mesh {
    me: ShardId,
    /// One for each shard, this one too.
    links: Vec<Link>,
    /// The latest barrier.
    issued: u64,
    bundles: Bundles,
    outgoing: VecDeque<(ShardId, ShardMessage)>,
    /// The others are to hear of the end of the log.
    log_end_is_due: bool,
    /// What they have heard: of its length, and of how much of it is on disk.
    log_end_sent: (u64, u64),
}

#[derive(Clone, Default, Debug)]
struct Link {
    /// The number of the next message to it.
    next: u64,
    /// The number of the next message from it.
    due: u64,
    /// The barrier that it has answered.
    reached: u64,
}

/// Messages that are missing, or came twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfOrder {
    pub(crate) kind: FaultKind,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Mesh {
    pub(crate) fn new(me: ShardId, shards: u8) -> Self {
        let mut links = vec![Link::default(); shards.into()];
        links[usize::from(me.0)].reached = u64::MAX;
        Self {
            me,
            links,
            issued: 0,
            bundles: Bundles::default(),
            outgoing: VecDeque::new(),
            log_end_is_due: false,
            log_end_sent: (0, 0),
        }
    }

    /// Sends a message behind everything sent before.
    pub(crate) fn send(&mut self, to: ShardId, message: MeshMessage) {
        debug_assert_ne!(to, self.me, "a shard does not send to itself");
        self.close_bundle(to);
        self.push(to, message);
    }

    /// The same about a shared group.
    pub(crate) fn send_about_group(&mut self, to: ShardId, message: GroupMessage) {
        self.send(to, MeshMessage::Group(message));
    }

    /// Sends one to each of the others.
    pub(crate) fn broadcast(&mut self, message: impl Fn() -> MeshMessage) {
        for shard in (0..).map(ShardId).take(self.links.len()) {
            if shard != self.me {
                self.send(shard, message());
            }
        }
    }

    /// Sends a publication together with others, if it is one of those; answers whether it is.
    pub(crate) fn bundle(
        &mut self,
        to: ShardId,
        publication: &Publication<'_>,
        publisher: Option<&Arc<str>>,
    ) -> bool {
        if !is_plain(publication) {
            return false;
        }
        if let Some(full) = self.bundles.add(to, publication, publisher) {
            self.push(to, MeshMessage::Bundle(full));
        }
        true
    }

    /// The input is over: sends what is bundled.
    #[inline]
    pub(crate) fn close_bundles(&mut self) {
        while let Some(to) = self.bundles.first_begun() {
            self.close_bundle(to);
        }
    }

    #[inline]
    fn close_bundle(&mut self, to: ShardId) {
        if let Some(bundle) = self.bundles.take(to) {
            self.push(to, MeshMessage::Bundle(bundle));
        }
    }

    fn push(&mut self, to: ShardId, message: MeshMessage) {
        let next = &mut self.links[usize::from(to.0)].next;
        let number = *next;
        *next += 1;
        self.outgoing
            .push_back((to, ShardMessage { message, number }));
    }

    pub(crate) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The next message for the driver to carry.
    #[inline]
    pub(crate) fn take_outgoing(&mut self) -> Option<(ShardId, ShardMessage)> {
        self.outgoing.pop_front()
    }

    /// A message came with this number.
    pub(crate) fn receive(&mut self, from: ShardId, number: u64) -> Option<OutOfOrder> {
        let due = &mut self.links[usize::from(from.0)].due;
        if number == *due {
            *due += 1;
            return None;
        }
        let expected = *due;
        *due = expected.max(number + 1);
        let (kind, first) = if number > expected {
            (FaultKind::Lost, expected)
        } else {
            (FaultKind::Duplicated, number)
        };
        let count = number.saturating_sub(expected).max(1);
        Some(OutOfOrder { kind, first, count })
    }

    /// A barrier behind another announcement.
    pub(crate) fn issue_barrier(&mut self) -> u64 {
        self.issued += 1;
        self.issued
    }

    /// The barrier to wait for so that everything announced up to now is in force.
    pub(crate) fn latest_barrier(&self) -> u64 {
        self.issued
    }

    /// The barrier that every shard has reached.
    pub(crate) fn reached_barrier(&self) -> u64 {
        let reached = self.links.iter().map(|link| link.reached);
        reached.min().unwrap_or(u64::MAX)
    }

    /// Whether everything announced up to now is in force on this shard.
    pub(crate) fn is_up_to_date(&self, shard: ShardId) -> bool {
        self.links[usize::from(shard.0)].reached >= self.issued
    }

    /// A shard has reached this barrier. Answers the one that it had reached before.
    pub(crate) fn note_reached(&mut self, shard: ShardId, barrier: u64) -> u64 {
        let reached = &mut self.links[usize::from(shard.0)].reached;
        let before = *reached;
        *reached = barrier.max(before);
        before
    }

    /// Whether to send the end of the log later, since the others have not heard of this one.
    pub(crate) fn is_news(&mut self, log_end: (u64, u64)) -> bool {
        let is_news = log_end != self.log_end_sent && self.links.len() > 1;
        is_news && !std::mem::replace(&mut self.log_end_is_due, true)
    }

    pub(crate) fn send_log_end(&mut self, log_end: (u64, u64)) {
        (self.log_end_is_due, self.log_end_sent) = (false, log_end);
        let (tail, on_disk) = log_end;
        self.broadcast(|| MeshMessage::Tail { tail, on_disk });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_shard_waits_for_no_other() {
        let mut mesh = Mesh::new(ShardId(0), 1);
        let barrier = mesh.issue_barrier();
        assert!(mesh.reached_barrier() >= barrier);
    }

    #[test]
    fn the_slowest_shard_decides() {
        let mut mesh = Mesh::new(ShardId(1), 3);
        let barrier = mesh.issue_barrier();
        assert!(mesh.reached_barrier() < barrier);
        assert_eq!(mesh.note_reached(ShardId(0), barrier), 0);
        assert!(mesh.reached_barrier() < barrier);
        assert!(mesh.is_up_to_date(ShardId(0)) && !mesh.is_up_to_date(ShardId(2)));
        mesh.note_reached(ShardId(2), barrier);
        assert!(mesh.reached_barrier() >= barrier);
    }

    #[test]
    fn a_number_that_is_passed_over_or_comes_again_is_named() {
        let mut mesh = Mesh::new(ShardId(0), 4);
        let from = ShardId(3);
        let mut receive = |number| {
            let found = mesh.receive(from, number);
            found.map(|found| (found.kind, found.first, found.count))
        };
        assert_eq!(receive(0), None);
        assert_eq!(receive(3), Some((FaultKind::Lost, 1, 2)));
        assert_eq!(receive(2), Some((FaultKind::Duplicated, 2, 1)));
        assert_eq!(receive(4), None);
    }

    #[test]
    fn the_end_of_the_log_is_due_once_until_it_is_sent() {
        let mut mesh = Mesh::new(ShardId(0), 2);
        assert!(!mesh.is_news((0, 0)));
        assert!(mesh.is_news((1, 0)));
        assert!(!mesh.is_news((2, 0)));
        mesh.send_log_end((2, 0));
        assert!(!mesh.is_news((2, 0)));
        assert!(mesh.is_news((2, 1)));
        assert_eq!(mesh.take_outgoing().map(|(to, _)| to), Some(ShardId(1)));
        assert!(!mesh.has_outgoing());
    }
}
