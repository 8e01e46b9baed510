//! What producers say of which lanes they have open: so that a lane that was lost whole is missed
//! too, and one that nobody opened is not taken for one.
//!
//! A directory cannot say who is to get its lanes. So by default it only tells how far known lanes
//! have come and which are over. A receiver that takes every lane of the producers it hears of says
//! so ([`Ledger::expect_listed`]); then a lane of which nothing came is lost like any tail. If it
//! was there before they began ([`Ledger::require_directories`]), a message of a lane that no
//! directory lists is injected, too. A producer therefore lists a lane before it issues in it.
//!
//! **Invariant.** Of one start of a producer directories are taken in the order in which they were
//! made; an older one changes nothing. One of a start below the highest is of a producer that goes
//! on beside another one with its id, or beside a forger: both count, so that no loss goes unseen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::lanes::Ledger;
use super::limits::PRODUCERS_MAX;
use super::receiver::Join;
use crate::saved::{Fields, StateError, Writer};
use crate::{Digest, Directory, Epoch, LaneId};

/// The newest directory of each producer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Directories {
    pub(super) required: bool,
    producers: BTreeMap<u64, Producer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    newest: Newest,
    /// The last one of another start, which is lower. Not saved.
    other: Option<Newest>,
    /// How many came of a start while a higher one was known; the other counts from the first on.
    contradictions: u32,
}

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
    /// It counts, and so does that of a higher start: two producers use the id, or one of the two
    /// is forged. Said once for a producer.
    Contradicts,
    /// It is not newer than what is known, and changes nothing.
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
        let (before, taken) = match self.directories.take(directory.producer, newest, is_keyed) {
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
        is_keyed: bool,
    ) -> Result<(BTreeSet<(LaneId, Epoch)>, Taken), Taken> {
        let known = self.producers.len();
        match self.producers.get_mut(&id) {
            Some(producer) => producer.take(new, is_keyed),
            None if known >= PRODUCERS_MAX => Err(Taken::NoRoomForProducer),
            None => {
                self.producers.insert(id, Producer::new(new));
                Ok((BTreeSet::new(), Taken::Counts))
            }
        }
    }

    pub(super) fn save(&self, write: &mut Writer<'_>) {
        write.u8(u8::from(self.required));
        write.list(
            self.producers.iter(),
            |write, (id, Producer { newest, .. })| {
                write.u64(*id);
                write.u32(newest.epoch.0);
                write.u32(newest.number);
                write.list(newest.lanes.iter(), |write, (lane, epoch)| {
                    write.u64(lane.value());
                    write.u32(epoch.0);
                });
            },
        );
    }

    pub(super) fn restore(read: &mut Fields<'_>) -> Result<Self, StateError> {
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
            Ok((producer, Producer::new(newest)))
        })?;
        Ok(Self {
            required,
            producers: BTreeMap::from_iter(producers),
        })
    }
}

impl Producer {
    fn new(newest: Newest) -> Self {
        Self {
            newest,
            other: None,
            contradictions: 0,
        }
    }

    fn lists(&self, lane: (LaneId, Epoch)) -> bool {
        let other = self.other.as_ref().filter(|_| self.contradictions > 0);
        self.newest.lanes.contains(&lane) || other.is_some_and(|other| other.lanes.contains(&lane))
    }

    /// With a key nothing can be forged, and what is of a lower start that was not heard before is
    /// a replay.
    fn take(
        &mut self,
        new: Newest,
        is_keyed: bool,
    ) -> Result<(BTreeSet<(LaneId, Epoch)>, Taken), Taken> {
        if new.epoch > self.newest.epoch {
            let before = std::mem::replace(&mut self.newest, new);
            let lanes = before.lanes.clone();
            self.other = Some(before);
            return Ok((lanes, Taken::Counts));
        }
        if new.epoch == self.newest.epoch {
            if new.number <= self.newest.number {
                return Err(Taken::Old);
            }
            let before = std::mem::replace(&mut self.newest, new);
            return Ok((before.lanes, Taken::Counts));
        }
        let heard = self.other.as_ref().filter(|other| other.epoch == new.epoch);
        if heard.map_or(is_keyed, |heard| new.number <= heard.number) {
            return Err(Taken::Old);
        }
        let before = self.other.replace(new);
        self.contradictions = self.contradictions.saturating_add(1);
        // The last one before a restart may come after the first one behind it.
        let taken = match self.contradictions {
            2 => Taken::Contradicts,
            _ => Taken::Counts,
        };
        Ok((before.map(|before| before.lanes).unwrap_or_default(), taken))
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
            assert_eq!(take(&directory(1, &[(1, 9)])), Taken::Old, "a copy");
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
    fn an_older_directory_changes_nothing() {
        let mut ledger = ledger(true);
        assert!(
            ledger
                .directory(&directory(4, &[(1, 1)]), SECOND, |_| true)
                .is_whole()
        );
        assert!(
            !ledger
                .directory(&directory(4, &[(2, 1)]), SECOND, |_| true)
                .is_whole()
        );
        assert!(
            !ledger
                .directory(&directory(3, &[(2, 1)]), SECOND, |_| true)
                .is_whole()
        );
        assert_eq!(send(&mut ledger, 2, 0), Verdict::Injected);
        let later = Directory {
            epoch: Epoch(1),
            ..directory(0, &[(2, 1)])
        };
        assert!(ledger.directory(&later, SECOND, |_| true).is_whole());
        assert_eq!(send(&mut ledger, 2, 0), Verdict::InOrder);
    }

    #[test]
    fn directories_are_remembered_across_a_restart() {
        let mut before = ledger(true);
        before.directory(&directory(4, &[(1, 0)]), SECOND, |_| true);
        let mut saved = Vec::new();
        before.save(&[], SECOND, &mut saved);
        let limits = LedgerLimits::default();
        let (mut after, _) = Ledger::restore(&saved, Hasher::xxh3(), limits, Join::Late)
            .expect("it was just written");
        assert!(
            !after
                .directory(&directory(4, &[(1, 0)]), SECOND, |_| true)
                .is_whole()
        );
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
