//! From which number on a lane that turns up is judged, and whether a directory lists it.
//!
//! A receiver that joins late cannot know what it missed of a lane that was under way. Of two kinds
//! of epochs it knows that they began while it listened: one of a lane of which messages of another
//! epoch came or a directory listed one, and one that a directory announced before its first
//! message. Both are judged from number 0 on, so a first message that is lost is named. A
//! checkpoint or drop record alone is no such sign: a client without the key can send a recorded
//! one again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::limits::{ANNOUNCED_MAX, HEARD_MAX};
use super::receiver::Join;
use crate::saved::{Fields, StateError, Writer};
use crate::{Epoch, LaneId};

/// What decides it.
#[derive(Clone, Debug)]
pub(super) struct Joining {
    pub(super) join: Join,
    /// Epochs of lanes of which messages came, or that a directory listed: another one of the same
    /// lane begins while the receiver listens.
    heard: BTreeSet<(LaneId, Epoch)>,
    /// Epochs of which a directory said that nothing was issued yet, and nothing has come.
    announced: BTreeSet<(LaneId, Epoch)>,
    /// Epochs that no directory has listed since they turned up, and when that was. Not saved.
    unlisted: BTreeMap<(LaneId, Epoch), Duration>,
}

impl Joining {
    pub(super) fn new(join: Join) -> Self {
        Self {
            join,
            heard: BTreeSet::new(),
            announced: BTreeSet::new(),
            unlisted: BTreeMap::new(),
        }
    }

    /// How an epoch is joined that begins now for this receiver.
    #[cold]
    pub(super) fn begin(&mut self, lane: (LaneId, Epoch), now: Duration) -> Join {
        self.unlisted.insert(lane, now);
        let is_announced = self.announced.remove(&lane);
        let is_heard = self.is_another_heard(lane);
        match self.join {
            Join::Late if is_announced || is_heard => Join::Beginning,
            join => join,
        }
    }

    /// Takes it that a directory lists an epoch.
    pub(super) fn list(&mut self, lane: (LaneId, Epoch)) {
        self.unlisted.remove(&lane);
        self.hear(lane);
    }

    /// Takes it that messages of an epoch came, or a directory lists it. One of each lane is enough
    /// to know the others.
    pub(super) fn hear(&mut self, lane: (LaneId, Epoch)) {
        if self.heard.len() < HEARD_MAX && !self.is_another_heard(lane) {
            self.heard.insert(lane);
        }
    }

    fn is_another_heard(&self, (lane, epoch): (LaneId, Epoch)) -> bool {
        let of_lane = (lane, Epoch(0))..=(lane, Epoch(u32::MAX));
        self.heard.range(of_lane).any(|(_, heard)| *heard != epoch)
    }

    /// The epochs that turned up at this time or before, without a directory since; each once.
    pub(super) fn take_unlisted(&mut self, by: Duration) -> Vec<(LaneId, Epoch)> {
        let due = self.unlisted.extract_if(.., |_, since| *since <= by);
        due.map(|(lane, _)| lane).collect()
    }

    /// Takes what a directory says of an epoch of which nothing has come.
    pub(super) fn announce(&mut self, lane: (LaneId, Epoch), size: u64) {
        if size == 0 && self.announced.len() < ANNOUNCED_MAX {
            self.announced.insert(lane);
        }
    }

    /// No directory lists it any more.
    pub(super) fn withdraw(&mut self, lane: (LaneId, Epoch)) {
        self.announced.remove(&lane);
    }

    pub(super) fn save(&self, write: &mut Writer<'_>) {
        write.list(self.announced.iter(), |write, (lane, epoch)| {
            write.u64(lane.value());
            write.u32(epoch.0);
        });
    }

    pub(super) fn restore(&mut self, read: &mut Fields<'_>) -> Result<(), StateError> {
        let announced = read.list(|read| {
            let lane = LaneId::new(read.u64("lane")?).ok_or_else(|| read.refuse("lane"))?;
            Ok((lane, Epoch(read.u32("epoch")?)))
        })?;
        self.announced = announced.into_iter().take(ANNOUNCED_MAX).collect();
        Ok(())
    }
}
