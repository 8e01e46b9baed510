//! What producers say of which lanes they have open: so that a lane that was lost whole is missed
//! too, and one that nobody opened is not taken for one.
//!
//! A directory cannot say who is to get its lanes. So by default it only tells how far known lanes
//! have come and which are over. A receiver that takes every lane of the producers it hears of says
//! so ([`Ledger::expect_listed`]); then a lane of which nothing came is lost like any tail. If it
//! was there before they began ([`Ledger::require_directories`]), a message of a lane that no
//! directory lists is injected, too. A producer therefore lists a lane before it issues in it.
//!
//! **Invariant.** Directories are taken in the order in which they were made, and a copy changes
//! nothing. Any other that is not newer than the last is of one of two producers with an id, or of
//! a forger: both count and are named. With a key it counts only if it cannot be a recorded one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::lanes::Ledger;
use super::limits::{DIRECTORIES_MAX, PRODUCERS_MAX};
use super::receiver::Join;
use crate::saved::{Fields, StateError, Writer};
use crate::{Digest, Directory, Epoch, LaneId, Tag};

/// The newest directory of each producer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Directories {
    pub(super) required: bool,
    producers: BTreeMap<u64, Producer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    newest: Newest,
    /// The last one of a lower start, or beside the newest. Not saved.
    other: Option<Newest>,
    /// The last ones that were taken.
    heard: VecDeque<Heard>,
    /// How many came that were not newer than the newest; the other counts from the first on. At
    /// two they are named.
    contradictions: u32,
}

/// Start, number, and a tag over the content.
type Heard = (Epoch, u32, Tag);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Newest {
    epoch: Epoch,
    number: u32,
    lanes: BTreeSet<(LaneId, Epoch)>,
}

/// What became of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It counts.
    Counts,
    /// It counts, and so does the newest one: two producers use the id, or one of the two is
    /// forged. Said once for a producer.
    Contradicts,
    /// A copy, or with a key perhaps a recorded one: it changes nothing.
    Old,
    /// There is no room for one of its lanes.
    NoRoom,
    /// As many producers are known as may be: it counts for nothing.
    NoRoomForProducer,
}

impl Taken {
    /// Whether all that it tells counts.
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Counts | Self::Contradicts)
    }
}

impl<D: Digest> Ledger<D> {
    /// From now on this receiver takes all lanes of its producers, and has heard all their
    /// directories: what these list must come, and nothing else may.
    pub fn require_directories(&mut self) {
        self.directories.required = true;
    }

    /// The lanes that the directories of this producer list which count.
    pub fn listed_by(&self, producer: u64) -> impl Iterator<Item = LaneId> {
        let producer = self.directories.producers.get(&producer).into_iter();
        producer
            .flat_map(Producer::counting)
            .flat_map(|told| told.lanes.iter().map(|open| open.0))
    }

    /// Takes a directory whose tag has been checked. Sizes count only of lanes that `is_heard`: of
    /// others the messages come by a processor, later than the directory.
    pub fn directory(
        &mut self,
        directory: &Directory,
        now: Duration,
        is_heard: impl Fn(LaneId) -> bool,
    ) -> Taken {
        let now = self.clock.at(now);
        let entries = directory.lanes.iter().map(|open| (open.lane, open.epoch));
        let newest = Newest {
            epoch: directory.epoch,
            number: directory.number,
            lanes: entries.collect(),
        };
        let is_keyed = self.digest.algorithm().is_keyed();
        let content = content(&self.digest, directory);
        let taken = self
            .directories
            .take(directory.producer, newest, content, is_keyed);
        let (before, taken) = match taken {
            Ok(taken) => taken,
            Err(refused) => return refused,
        };
        for gone in before {
            if self.directories.lists(gone) {
                continue;
            }
            self.joining.withdraw(gone);
            if let Some(ledger) = self.lanes.get_mut(&gone).filter(|_| is_heard(gone.0)) {
                ledger.unlisted();
            }
        }
        let is_member = self.joining.join == Join::Member;
        let mut has_room = true;
        for open in &directory.lanes {
            let lane = (open.lane, open.epoch);
            self.joining.list(lane);
            let is_expected = self.directories.required || self.expected.includes(open.lane);
            // One that has issued nothing yet too: who joins late then knows it from its beginning.
            if is_expected && !is_member {
                has_room &= self.open(lane, now).is_some();
            }
            match self.lanes.get_mut(&lane) {
                Some(ledger) if is_heard(open.lane) => ledger.listed(open.size, now),
                Some(_) => {}
                None => self.joining.announce(lane, open.size),
            }
        }
        if has_room { taken } else { Taken::NoRoom }
    }
}

fn content(digest: &impl Digest, directory: &Directory) -> Tag {
    let mut bytes = Vec::with_capacity(20 * directory.lanes.len());
    for open in &directory.lanes {
        bytes.extend_from_slice(&open.lane.value().to_be_bytes());
        bytes.extend_from_slice(&open.epoch.0.to_be_bytes());
        bytes.extend_from_slice(&open.size.to_be_bytes());
    }
    digest.tag(&[&directory.time_us.to_be_bytes(), &bytes])
}

impl Directories {
    /// Whether messages of this epoch of a lane may come.
    pub(super) fn allow(&self, lane: (LaneId, Epoch)) -> bool {
        !self.required || self.lists(lane)
    }

    pub(super) fn lists(&self, lane: (LaneId, Epoch)) -> bool {
        let mut producers = self.producers.values();
        producers.any(|producer| producer.lists(lane))
    }

    /// Takes a directory, and returns what the one before it listed.
    fn take(
        &mut self,
        id: u64,
        new: Newest,
        content: Tag,
        is_keyed: bool,
    ) -> Result<(BTreeSet<(LaneId, Epoch)>, Taken), Taken> {
        let known = self.producers.len();
        match self.producers.get_mut(&id) {
            Some(producer) => producer.take(new, content, is_keyed),
            None if known >= PRODUCERS_MAX => Err(Taken::NoRoomForProducer),
            None => {
                let heard = VecDeque::from([(new.epoch, new.number, content)]);
                self.producers.insert(id, Producer::new(new, heard));
                Ok((BTreeSet::new(), Taken::Counts))
            }
        }
    }

    pub(super) fn save(&self, write: &mut Writer<'_>) {
        write.u8(u8::from(self.required));
        write.list(
            self.producers.iter(),
            |write, (id, Producer { newest, heard, .. })| {
                write.u64(*id);
                write.u32(newest.epoch.0);
                write.u32(newest.number);
                write.list(newest.lanes.iter(), |write, (lane, epoch)| {
                    write.u64(lane.value());
                    write.u32(epoch.0);
                });
                write.list(heard.iter(), |write, (epoch, number, content)| {
                    write.u32(epoch.0);
                    write.u32(*number);
                    write.bytes(&content.0);
                });
            },
        );
    }

    /// `are_heard`: whether the state tells which directories were heard.
    pub(super) fn restore(read: &mut Fields<'_>, are_heard: bool) -> Result<Self, StateError> {
        let required = read.bool("rule about directories")?;
        let producers = read.list(|read| {
            let producer = read.u64("producer")?;
            let epoch = Epoch(read.u32("epoch of a producer")?);
            let number = read.u32("number of a directory")?;
            let lanes = read.list(|read| {
                let lane = LaneId::new(read.u64("lane")?).ok_or_else(|| read.refuse("lane"))?;
                Ok((lane, Epoch(read.u32("epoch")?)))
            })?;
            let lanes = BTreeSet::from_iter(lanes);
            let newest = Newest {
                epoch,
                number,
                lanes,
            };
            let heard = if are_heard {
                read.list(|read| {
                    let epoch = Epoch(read.u32("epoch of a directory")?);
                    let number = read.u32("number of a directory")?;
                    let content = read.bytes("content of a directory")?.try_into();
                    let content = content.map_err(|_| read.refuse("content of a directory"))?;
                    Ok((epoch, number, Tag(content)))
                })?
            } else {
                Vec::new()
            };
            Ok((producer, Producer::new(newest, VecDeque::from(heard))))
        })?;
        Ok(Self {
            required,
            producers: BTreeMap::from_iter(producers),
        })
    }
}

impl Producer {
    fn new(newest: Newest, heard: VecDeque<Heard>) -> Self {
        Self {
            newest,
            other: None,
            heard,
            contradictions: 0,
        }
    }

    fn counting(&self) -> impl Iterator<Item = &Newest> {
        let other = self.other.iter().filter(|_| self.contradictions > 0);
        other.chain([&self.newest])
    }

    fn lists(&self, lane: (LaneId, Epoch)) -> bool {
        self.counting().any(|told| told.lanes.contains(&lane))
    }

    fn take(
        &mut self,
        new: Newest,
        content: Tag,
        is_keyed: bool,
    ) -> Result<(BTreeSet<(LaneId, Epoch)>, Taken), Taken> {
        let at = (new.epoch, new.number);
        if self.heard.contains(&(new.epoch, new.number, content)) {
            return Err(Taken::Old);
        }
        let mut heard = self.heard.iter();
        let is_split = heard.any(|(epoch, number, _)| (*epoch, *number) == at);
        let is_newest = at > (self.newest.epoch, self.newest.number);
        // With a key nothing can be forged, and what was not heard before may be a recorded one.
        if !is_newest && is_keyed && !is_split && !self.is_next_of_other(&new) {
            return Err(Taken::Old);
        }
        if self.heard.len() == DIRECTORIES_MAX {
            self.heard.pop_front();
        }
        self.heard.push_back((new.epoch, new.number, content));
        if is_newest {
            let before = std::mem::replace(&mut self.newest, new);
            let lanes = before.lanes.clone();
            if before.epoch < self.newest.epoch {
                self.other = Some(before);
            }
            return Ok((lanes, Taken::Counts));
        }
        let was_named = self.contradictions >= 2;
        self.contradictions = self.contradictions.saturating_add(1);
        // The last one before a restart may come after the first one behind it.
        if is_split || new.epoch == self.newest.epoch {
            self.contradictions = self.contradictions.max(2);
        }
        let taken = match self.contradictions {
            2.. if !was_named => Taken::Contradicts,
            _ => Taken::Counts,
        };
        let before = self.other.replace(new);
        Ok((before.map(|before| before.lanes).unwrap_or_default(), taken))
    }

    /// Whether this one goes on where the last one of a lower start ended.
    fn is_next_of_other(&self, new: &Newest) -> bool {
        let mut other = self.other.iter().filter(|_| new.epoch < self.newest.epoch);
        other.any(|other| other.epoch == new.epoch && other.number < new.number)
    }
}

#[cfg(test)]
mod tests;
