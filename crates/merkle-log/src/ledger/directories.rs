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
mod tests {
    use super::*;
    use crate::ledger::{Event, LedgerLimits, Request, Verdict};
    use crate::{Hasher, OpenLane, Property};

    const SECOND: Duration = Duration::from_secs(1);

    fn lane(id: u64) -> LaneId {
        LaneId::new(id).expect("not 0")
    }

    fn directory(number: u32, lanes: &[(u64, u64)]) -> Directory {
        let open = |&(id, size): &(u64, u64)| OpenLane {
            lane: lane(id),
            epoch: Epoch(0),
            size,
        };
        Directory {
            producer: 9,
            epoch: Epoch(0),
            number,
            time_us: 0,
            lanes: lanes.iter().map(open).collect(),
        }
    }

    fn ledger(required: bool) -> Ledger<Hasher> {
        let mut ledger = Ledger::new(Hasher::xxh3(), LedgerLimits::default(), Join::Beginning);
        ledger.resume(Duration::ZERO);
        if required {
            ledger.require_directories();
        }
        ledger
    }

    fn send(ledger: &mut Ledger<Hasher>, id: u64, number: u64) -> Verdict {
        let property = Property::stamp(&Hasher::xxh3(), lane(id), Epoch(0), number, b"t", b"p");
        ledger.message(&property, b"t", b"p", SECOND)
    }

    fn events(ledger: &mut Ledger<Hasher>) -> Vec<Event> {
        ledger.take_events().map(|(_, _, event)| event).collect()
    }

    #[test]
    fn a_lane_lost_whole_is_named_where_all_lanes_are_to_come() {
        let lost = Event::Lost {
            numbers: 0..5,
            tail: true,
        };
        let mut whole = ledger(true);
        assert!(
            whole
                .directory(&directory(0, &[(1, 5), (2, 0)]), SECOND, |_| true)
                .is_whole()
        );
        whole.poll(SECOND + SECOND / 2);
        assert_eq!(events(&mut whole), []);
        whole.poll(SECOND * 2);
        assert_eq!(events(&mut whole), [lost]);
        let requests: Vec<_> = whole
            .requests()
            .map(|(lane, _, request)| (lane, request))
            .collect();
        assert_eq!(
            requests,
            [(lane(1), Request::Numbers(std::iter::once(0..5).collect()))]
        );

        let mut part = ledger(false);
        assert!(
            part.directory(&directory(0, &[(1, 5)]), SECOND, |_| true)
                .is_whole()
        );
        part.poll(SECOND * 9);
        assert_eq!(events(&mut part), []);
    }

    #[test]
    fn a_message_of_a_lane_that_no_directory_lists_is_injected() {
        let mut ledger = ledger(true);
        assert_eq!(send(&mut ledger, 1, 0), Verdict::Injected);
        ledger.directory(&directory(0, &[(1, 0)]), SECOND, |_| true);
        assert_eq!(send(&mut ledger, 1, 0), Verdict::InOrder);
        assert_eq!(send(&mut ledger, 2, 0), Verdict::Injected);
    }

    #[test]
    fn a_directory_tells_of_the_tail_of_a_known_lane() {
        let mut ledger = ledger(false);
        send(&mut ledger, 1, 0);
        ledger.directory(&directory(0, &[(1, 3)]), SECOND, |_| true);
        ledger.poll(SECOND * 2);
        let lost = Event::Lost {
            numbers: 1..3,
            tail: true,
        };
        assert!(events(&mut ledger).contains(&lost));
    }

    #[test]
    fn a_lane_that_is_listed_no_more_is_not_over_by_that_alone() {
        let mut ledger = ledger(false);
        send(&mut ledger, 1, 0);
        ledger.directory(&directory(0, &[(1, 1)]), SECOND, |_| true);
        ledger.directory(&directory(1, &[]), SECOND, |_| true);
        ledger.poll(SECOND * 60);
        let told = events(&mut ledger);
        assert!(
            matches!(told[..], [Event::Unlisted, Event::Silent(_), ..]),
            "{told:?}"
        );
    }

    #[test]
    fn a_forged_start_hides_none_of_what_the_producer_lists_later() {
        let forged = Directory {
            epoch: Epoch(u32::MAX - 1),
            ..directory(0, &[])
        };
        for is_first in [true, false] {
            let mut ledger = ledger(false);
            send(&mut ledger, 1, 0);
            let mut take = |directory: &Directory| ledger.directory(directory, SECOND, |_| true);
            if !is_first {
                take(&directory(0, &[(1, 1)]));
            }
            assert_eq!(take(&forged), Taken::Counts);
            assert_eq!(take(&directory(1, &[(1, 1)])), Taken::Counts);
            assert_eq!(take(&directory(1, &[(1, 1)])), Taken::Old, "a copy");
            assert_eq!(take(&directory(2, &[(1, 3)])), Taken::Contradicts);
            assert_eq!(take(&directory(3, &[(1, 3)])), Taken::Counts, "said once");
            ledger.poll(SECOND * 2);
            let lost = Event::Lost {
                numbers: 1..3,
                tail: true,
            };
            assert!(events(&mut ledger).contains(&lost), "{is_first}");
        }
    }

    #[test]
    fn with_a_key_a_start_below_the_highest_that_was_not_heard_is_a_replay() {
        let hasher = Hasher::blake3(&crate::Key([7; 32]));
        let mut ledger = Ledger::new(hasher, LedgerLimits::default(), Join::Beginning);
        let mut take = |epoch, number| {
            let directory = Directory {
                epoch: Epoch(epoch),
                ..directory(number, &[])
            };
            ledger.directory(&directory, SECOND, |_| true)
        };
        assert_eq!(take(5, 3), Taken::Counts);
        assert_eq!(take(4, 9), Taken::Old);
        assert_eq!(take(6, 0), Taken::Counts);
        assert_eq!(take(5, 3), Taken::Old);
        assert_eq!(take(5, 4), Taken::Counts, "it goes on");
    }

    #[test]
    fn a_forged_number_hides_none_of_what_the_producer_lists_later() {
        let lost = Event::Lost {
            numbers: 0..5,
            tail: true,
        };
        for forged in [directory(u32::MAX, &[(1, 0)]), directory(1, &[])] {
            for is_higher_known in [true, false] {
                let mut ledger = ledger(true);
                let mut take =
                    |directory: &Directory| ledger.directory(directory, SECOND, |_| true);
                take(&directory(0, &[(1, 0)]));
                take(&forged);
                let higher = Directory {
                    epoch: Epoch(7),
                    ..directory(0, &[])
                };
                let taken = [1, 2].map(|number| {
                    if is_higher_known {
                        take(&higher);
                    }
                    take(&directory(number, &[(1, 0), (2, 5)]))
                });
                assert!(taken.contains(&Taken::Contradicts), "{forged:?}: {taken:?}");
                ledger.poll(SECOND * 2);
                assert!(events(&mut ledger).contains(&lost), "{forged:?}");
            }
        }
    }

    #[test]
    fn with_a_key_two_of_one_number_are_of_two_producers_and_a_lower_one_is_a_replay() {
        let hasher = Hasher::blake3(&crate::Key([7; 32]));
        let mut ledger = Ledger::new(hasher, LedgerLimits::default(), Join::Beginning);
        let mut take = |number, lanes: &[(u64, u64)]| {
            ledger.directory(&directory(number, lanes), SECOND, |_| true)
        };
        assert_eq!(take(4, &[(1, 0)]), Taken::Counts);
        assert_eq!(take(5, &[(1, 0)]), Taken::Counts);
        assert_eq!(take(3, &[(2, 3)]), Taken::Old);
        assert_eq!(take(4, &[(2, 3)]), Taken::Contradicts);
    }

    #[test]
    fn a_copy_of_a_directory_changes_nothing() {
        let mut ledger = ledger(true);
        let mut take =
            |number, id| ledger.directory(&directory(number, &[(id, 1)]), SECOND, |_| true);
        assert_eq!([take(3, 2), take(4, 1)], [Taken::Counts; 2]);
        assert_eq!([take(4, 1), take(3, 2)], [Taken::Old; 2]);
    }

    #[test]
    fn directories_are_remembered_across_a_restart() {
        let mut before = ledger(true);
        let mut take = |directory| before.directory(&directory, SECOND, |_| true);
        take(directory(3, &[]));
        take(directory(4, &[(1, 0)]));
        let mut saved = Vec::new();
        before.save(&[], SECOND, &mut saved);
        let limits = LedgerLimits::default();
        let (mut after, _) = Ledger::restore(&saved, Hasher::xxh3(), limits, Join::Late)
            .expect("it was just written");
        let mut take = |directory| after.directory(&directory, SECOND, |_| true);
        assert_eq!(take(directory(3, &[])), Taken::Old);
        assert_eq!(take(directory(4, &[(1, 0)])), Taken::Old);
        assert_eq!(send(&mut after, 2, 0), Verdict::Injected);
        assert_eq!(send(&mut after, 1, 0), Verdict::InOrder);
    }

    #[test]
    fn the_size_of_a_lane_whose_messages_come_another_way_does_not_count() {
        let mut ledger = ledger(false);
        send(&mut ledger, 1, 0);
        ledger.directory(&directory(0, &[(1, 3)]), SECOND, |_| false);
        ledger.directory(&directory(1, &[]), SECOND, |_| false);
        ledger.poll(SECOND * 2);
        assert_eq!(events(&mut ledger), []);
    }

    #[test]
    fn a_lane_for_which_there_is_no_room_is_reported() {
        let limits = LedgerLimits {
            lanes_max: 2,
            ..LedgerLimits::default()
        };
        let ledger = |join| Ledger::new(Hasher::xxh3(), limits.clone(), join);
        let listed = directory(0, &[(1, 0), (2, 0), (3, 0)]);
        let has_room = |join, required, all_listed| {
            let mut ledger = ledger(join);
            if required {
                ledger.require_directories();
            }
            if all_listed {
                ledger.expect_listed();
            }
            let has_room = ledger.directory(&listed, SECOND, |_| true).is_whole();
            (has_room, ledger.lanes.len())
        };
        assert_eq!(has_room(Join::Beginning, true, false), (false, 2));
        assert_eq!(has_room(Join::Beginning, false, true), (false, 2));
        assert_eq!(has_room(Join::Beginning, false, false), (true, 0));
        // A member of a group sees its share of the lanes.
        assert_eq!(has_room(Join::Member, true, true), (true, 0));
    }

    #[test]
    fn the_directories_of_as_many_producers_are_remembered_as_there_is_room_for() {
        let mut ledger = ledger(false);
        let most = u64::try_from(PRODUCERS_MAX).expect("it is small");
        for producer in 0..=most {
            let directory = Directory {
                producer,
                ..directory(0, &[])
            };
            let taken = ledger.directory(&directory, SECOND, |_| true);
            let expected = if producer < most {
                Taken::Counts
            } else {
                Taken::NoRoomForProducer
            };
            assert_eq!(taken, expected, "{producer}");
        }
        let newer = directory(1, &[]);
        assert!(
            ledger.directory(&newer, SECOND, |_| true).is_whole(),
            "it is known"
        );
    }
}
