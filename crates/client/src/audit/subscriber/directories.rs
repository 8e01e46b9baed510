//! Lanes that are to come, as the owner and the producers' directories say.
//!
//! Invariant: a directory opens no lane that is not expected, since the lanes of a producer may be
//! on topics that are not subscribed to. It only announces it: an epoch that a directory lists with
//! no messages is judged from number 0 on when it turns up.

use unbroken_merkle_log::ledger::limits::PRODUCERS_MAX;
use unbroken_merkle_log::ledger::{Join, Taken};
use unbroken_merkle_log::{Directory, LaneId, Property};

use super::{AuditedSubscriber, Delivery, NO_ROOM_MAX};

const CONTRADICTS: &str = "contradicts another directory of the same producer: two producers use the \
                           id, or one of the two is forged; both count";

impl AuditedSubscriber {
    /// Has the ledger miss what is expected. It may be one that a spool or a state remembered.
    pub(super) fn expect(&mut self) {
        if self.expected.listed {
            self.ledger.expect_listed();
            if self.join == Join::Beginning {
                self.ledger.require_directories();
            }
        }
        for lane in &self.expected.lanes {
            self.ledger.expect(*lane, self.clock.now());
        }
        self.direct.extend(&self.expected.lanes);
    }

    /// Takes a directory. One that is refused comes back as the reason and the lanes that it is
    /// about.
    pub(super) fn handle_directory(&mut self, payload: &[u8]) -> Result<(), (String, Vec<LaneId>)> {
        let sealed = Directory::parse(payload).map_err(|error| (error.to_string(), Vec::new()))?;
        let mut listed: Vec<LaneId> = sealed.lanes().iter().map(|open| open.lane).collect();
        let is_known = listed.iter().any(|lane| self.is_known(*lane));
        match sealed.open(&self.hasher) {
            Ok(directory) => {
                for lane in &listed {
                    if self.expected.listed || self.expected.lanes.contains(lane) {
                        self.make_known(*lane);
                    }
                }
                let (direct, now) = (&self.direct, self.clock.now());
                let is_heard = |lane: LaneId| direct.contains(&lane);
                match self.ledger.directory(&directory, now, is_heard) {
                    Taken::Contradicts => {
                        listed.extend(self.ledger.listed_by(directory.producer));
                        Err((CONTRADICTS.to_owned(), listed))
                    }
                    Taken::NoRoomForProducer => {
                        self.name_no_room_for_producers();
                        Ok(())
                    }
                    Taken::Counts | Taken::Old | Taken::NoRoom => Ok(()),
                }
            }
            // One that lists nothing may be of anybody's.
            Err(_) if listed.is_empty() => Ok(()),
            Err(error) if is_known => Err((error.to_string(), listed)),
            // Of a producer with another key: its lanes may be on topics not subscribed to.
            Err(error) => {
                for lane in listed {
                    if !self.is_known(lane)
                        && (self.expected.listed || self.expected.lanes.contains(&lane))
                    {
                        self.name_other_key_once(lane, &error.to_string());
                    }
                }
                Ok(())
            }
        }
    }

    pub(super) fn name_no_room(&mut self, property: &Property) {
        let (lane, epoch) = (property.lane, property.epoch);
        if self.no_room.len() < NO_ROOM_MAX && self.no_room.insert((lane, epoch)) {
            let lanes_max = self.limits.lanes_max;
            self.ready.push_back(Delivery::NoRoom {
                lane,
                epoch,
                lanes_max,
            });
        }
    }

    fn name_no_room_for_producers(&mut self) {
        if !self.is_full_of_producers {
            self.is_full_of_producers = true;
            self.ready.push_back(Delivery::NoRoomForProducers {
                producers_max: PRODUCERS_MAX,
            });
        }
    }

    /// Tells who is absent, and who has come.
    pub(super) fn take_presences(&mut self) {
        for (lane, presence) in self.ledger.take_presences() {
            self.ready.push_back(Delivery::Expected { lane, presence });
        }
    }
}
