//! Lanes that are to come because the receiver's owner says so, whoever sends what.
//!
//! What is lost of a lane is told by what comes of it later: a message, a checkpoint, a directory.
//! Of a lane of which nothing at all comes nobody tells. So the owner names it
//! ([`Ledger::expect`]); or it takes all lanes of its producers ([`Ledger::expect_listed`]), and
//! their directories name them.
//!
//! **Invariant.** A lane is known here if anything of any epoch has opened it, and only of one that
//! is not is it said that it is absent.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::lanes::Ledger;
use crate::{Digest, Epoch, LaneId};

/// Whether an expected lane is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Nothing of it has come for so long, which is two idle heartbeats or more: no message, no
    /// checkpoint, and no directory that lists it. Said once.
    Absent(Duration),
    /// Something has come of it, so long after it was expected. Said once.
    Come(Duration),
    /// Messages of one of its epochs have come for so long, which is two idle heartbeats, and no
    /// directory lists it. Said once for an epoch.
    Unannounced(Duration),
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(after) => write!(
                f,
                "nothing has come for {} s, not even a directory: its producer is not there, or \
                 all that it sends is lost",
                after.as_secs()
            ),
            Self::Unannounced(after) => write!(
                f,
                "no directory has listed it for {} s: its producer announces nothing, or what comes \
                 is not from a producer",
                after.as_secs()
            ),
            Self::Come(after) => write!(f, "it has come, after {} s", after.as_secs()),
        }
    }
}

/// What is to come. It is the owner's wish and not a part of what is saved.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    listed: bool,
    lanes: BTreeMap<LaneId, Awaited>,
    news: Vec<(LaneId, Presence)>,
}

/// Since when, on the ledger's clock, and what was said of it.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    since: Duration,
    told: Option<Presence>,
}

impl Expected {
    /// Whether a lane that a directory lists is to come.
    pub(super) fn includes(&self, lane: LaneId) -> bool {
        self.listed || self.lanes.contains_key(&lane)
    }
}

impl<D: Digest> Ledger<D> {
    /// From now on this lane is to come. All of it that a directory tells of is missed, from the
    /// size on that the first one tells, and if there is no sign of it at all it is absent.
    pub fn expect(&mut self, lane: LaneId, now: Duration) {
        let awaited = Awaited {
            since: self.clock.at(now),
            told: None,
        };
        self.expected.lanes.entry(lane).or_insert(awaited);
    }

    /// From now on every lane that a directory lists is to come.
    pub fn expect_listed(&mut self) {
        self.expected.listed = true;
    }

    /// What became known of expected lanes since the last call.
    pub fn take_presences(&mut self) -> Vec<(LaneId, Presence)> {
        std::mem::take(&mut self.expected.news)
    }

    /// Looks for what is expected; `now` is on the ledger's clock.
    pub(super) fn look_for_expected(&mut self, now: Duration) {
        let patience = self.limits.idle_heartbeat * 2;
        let unlisted = now.checked_sub(patience);
        let unlisted = unlisted.map(|by| self.joining.take_unlisted(by));
        for lane in unlisted.into_iter().flatten() {
            if !self.directories.lists(lane) {
                let presence = Presence::Unannounced(patience);
                self.expected.news.push((lane.0, presence));
            }
        }
        for (lane, awaited) in &mut self.expected.lanes {
            if let Some(Presence::Come(_)) = awaited.told {
                continue;
            }
            let after = now.saturating_sub(awaited.since);
            let epochs = (*lane, Epoch(0))..=(*lane, Epoch(u32::MAX));
            let presence = if self.lanes.range(epochs).next().is_some() {
                Presence::Come(after)
            } else if after >= patience && awaited.told.is_none() {
                Presence::Absent(after)
            } else {
                continue;
            };
            awaited.told = Some(presence);
            self.expected.news.push((*lane, presence));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Event, Join, LedgerLimits};
    use crate::{Directory, Hasher, OpenLane, Property};

    const SECOND: Duration = Duration::from_secs(1);
    const LANE: LaneId = LaneId::new(7).expect("not 0");

    fn ledger() -> Ledger<Hasher> {
        let mut ledger = Ledger::new(Hasher::xxh3(), LedgerLimits::default(), Join::Late);
        ledger.expect(LANE, Duration::ZERO);
        ledger
    }

    fn list(ledger: &mut Ledger<Hasher>, number: u32, size: u64, now: Duration) {
        let open = |lane| OpenLane {
            lane,
            epoch: Epoch(3),
            size,
        };
        let other = LaneId::new(8).expect("not 0");
        ledger.directory(
            &Directory {
                producer: 9,
                epoch: Epoch(1),
                number,
                time_us: 0,
                lanes: vec![open(LANE), open(other)],
            },
            now,
            |_| true,
        );
    }

    #[test]
    fn a_lane_that_no_directory_lists_is_named_once() {
        for is_listed in [false, true] {
            let mut ledger = Ledger::new(Hasher::xxh3(), LedgerLimits::default(), Join::Late);
            ledger.resume(Duration::ZERO);
            let property = Property::stamp(&Hasher::xxh3(), LANE, Epoch(3), 0, b"t", b"p");
            ledger.message(&property, b"t", b"p", SECOND);
            ledger.poll(SECOND * 20);
            assert_eq!(ledger.take_presences(), []);
            if is_listed {
                list(&mut ledger, 0, 1, SECOND * 20);
            }
            ledger.poll(SECOND * 21);
            let named = ledger.take_presences();
            let unannounced = [(LANE, Presence::Unannounced(SECOND * 20))];
            assert_eq!(named, if is_listed { &[][..] } else { &unannounced });
            ledger.poll(SECOND * 900);
            assert_eq!(ledger.take_presences(), []);
        }
    }

    #[test]
    fn a_lane_of_which_nothing_comes_is_absent_once_and_its_coming_is_reported() {
        let mut ledger = ledger();
        ledger.poll(SECOND * 60);
        assert_eq!(ledger.take_presences(), [], "the clock stands");
        ledger.resume(SECOND * 60);
        ledger.poll(SECOND * 79);
        assert_eq!(ledger.take_presences(), []);
        ledger.poll(SECOND * 80);
        let absent = Presence::Absent(SECOND * 20);
        assert_eq!(ledger.take_presences(), [(LANE, absent)]);
        ledger.poll(SECOND * 90);
        assert_eq!(ledger.take_presences(), []);
        let property = Property::stamp(&Hasher::xxh3(), LANE, Epoch(5), 0, b"t", b"p");
        ledger.message(&property, b"t", b"p", SECOND * 91);
        ledger.poll(SECOND * 91);
        let come = Presence::Come(SECOND * 31);
        assert_eq!(ledger.take_presences(), [(LANE, come)]);
        ledger.poll(SECOND * 900);
        let unannounced = Presence::Unannounced(SECOND * 20);
        assert_eq!(ledger.take_presences(), [(LANE, unannounced)]);
    }

    #[test]
    fn an_expected_lane_lost_whole_is_missed_by_a_late_joiner_that_heard_it_begin() {
        let mut ledger = ledger();
        ledger.resume(Duration::ZERO);
        list(&mut ledger, 0, 0, SECOND);
        ledger.poll(SECOND * 30);
        assert_eq!(ledger.take_events().count(), 0, "nothing was issued");
        list(&mut ledger, 1, 5, SECOND * 31);
        ledger.poll(SECOND * 32);
        let lost = Event::Lost {
            numbers: 0..5,
            tail: true,
        };
        let events: Vec<_> = ledger.take_events().collect();
        assert!(events.contains(&(LANE, Epoch(3), lost)), "{events:?}");
        assert!(events.iter().all(|(lane, ..)| *lane == LANE), "{events:?}");
        let come = Presence::Come(SECOND * 30);
        assert_eq!(ledger.take_presences(), [(LANE, come)]);
    }

    #[test]
    fn who_takes_all_lanes_misses_each_that_is_listed() {
        let mut ledger = Ledger::new(Hasher::xxh3(), LedgerLimits::default(), Join::Late);
        ledger.expect_listed();
        ledger.resume(Duration::ZERO);
        list(&mut ledger, 0, 0, SECOND);
        list(&mut ledger, 1, 2, SECOND * 2);
        ledger.poll(SECOND * 4);
        let lost = ledger.take_events();
        let lost = lost.filter(|(.., event)| matches!(event, Event::Lost { .. }));
        assert_eq!(lost.count(), 2);
    }

    #[test]
    fn a_presence_is_reported_with_the_seconds_that_it_took() {
        let check = |presence: Presence, expect: &str| {
            let text = presence.to_string();
            assert!(text.contains(expect), "{text}");
        };
        check(Presence::Absent(SECOND * 20), "nothing has come for 20 s");
        check(Presence::Come(SECOND * 31), "it has come, after 31 s");
        let unannounced = Presence::Unannounced(SECOND * 40);
        check(unannounced, "no directory has listed it for 40 s");
    }
}
