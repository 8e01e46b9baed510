//! What an operator asks about deliveries: since when they are counted, lanes, and events that name
//! messages.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use unbroken_broker_core::{Event, LaneFilter, LaneInfo, Place, PlaceParts, ShardId, Stats};

use super::{BrokerHandle, Cursor, Events, HandleError, Listing, Within};
use crate::bounds::{HANDLE_LOOKS, HANDLE_PAGE};
use crate::listener::OpenListener;
use crate::request::{PageRequest, Request};

/// How a broker began.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Began {
    /// When: counters are 0 then.
    pub at: SystemTime,
    /// The run before was killed, or ended by a power cut. A broker that stores nothing does not
    /// know that.
    pub after_crash: bool,
    /// The listeners that were opened.
    pub listeners: Vec<OpenListener>,
}

/// Counters that were asked for.
#[derive(Debug)]
pub struct CountersAsked {
    answers: Receiver<Stats>,
    missing: usize,
    sum: Stats,
}

impl CountersAsked {
    /// The counters, once all shards have answered.
    pub fn take(&mut self) -> Result<Option<Stats>, HandleError> {
        while self.missing > 0 {
            match self.answers.try_recv() {
                Ok(stats) => {
                    self.sum.add(&stats);
                    self.missing -= 1;
                }
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err(HandleError::Stopped),
            }
        }
        Ok(Some(std::mem::take(&mut self.sum)))
    }
}

impl BrokerHandle {
    /// How it began.
    pub fn began(&self) -> &Began {
        &self.began
    }

    /// Asks for the counters, as [`counters`](Self::counters) does, and does not wait for them.
    pub fn ask_counters(&self) -> Result<CountersAsked, HandleError> {
        let missing = usize::from(self.requests.shards());
        let (answer, answers) = sync_channel(missing);
        self.requests
            .send_request_to_all(|| Request::Counters(answer.clone()))?;
        Ok(CountersAsked {
            answers,
            missing,
            sum: Stats::default(),
        })
    }

    /// As [`events`](Self::events), of those that name messages that were not delivered as they
    /// were sent, or lanes that are not as they should be.
    pub fn incidents(&self, waiting: usize) -> Result<Events, HandleError> {
        self.events_of(waiting, |event| {
            matches!(
                event,
                Event::Dropped { .. }
                    | Event::PublisherFault { .. }
                    | Event::SentAgain { .. }
                    | Event::LaneIntruded { .. }
                    | Event::LaneRefused { .. }
                    | Event::Fault { .. }
            )
        })
    }

    /// Lanes: on each shard those that publishers stamp, then those of other clients. A part may
    /// have fewer entries than `within` allows, with more behind it.
    pub fn lanes(
        &self,
        filter: &LaneFilter,
        mut from: Cursor,
        within: Within,
    ) -> Result<Listing<LaneInfo>, HandleError> {
        let deadline = Instant::now() + within.timeout;
        let most = within.entries.max(1);
        let mut entries: Vec<LaneInfo> = Vec::new();
        for _ in 0..HANDLE_LOOKS {
            if from.shard >= self.requests.shards() || entries.len() >= most {
                break;
            }
            let page = PageRequest {
                from: from.place,
                most: HANDLE_PAGE.min(most - entries.len()),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let request = |answer| Request::Lanes {
                filter: filter.clone(),
                page,
                answer,
            };
            let page = self.requests.ask(ShardId(from.shard), left, request)?;
            entries.extend(page.entries);
            from = from.behind(page.next);
        }
        let next = (from.shard < self.requests.shards()).then_some(from);
        Ok(Listing { entries, next })
    }

    /// The epochs of one lane, the newest last.
    pub fn lane(&self, lane: u64, timeout: Duration) -> Result<Vec<LaneInfo>, HandleError> {
        let deadline = Instant::now() + timeout;
        let filter = LaneFilter {
            lane: Some(lane),
            text: None::<Arc<str>>,
        };
        let (mut found, mut from) = (Vec::new(), Cursor::default());
        loop {
            let within = Within {
                entries: HANDLE_PAGE,
                timeout: deadline.saturating_duration_since(Instant::now()),
            };
            let listing = self.lanes(&filter, from, within)?;
            found.extend(listing.entries);
            match listing.next {
                Some(next) if found.len() < HANDLE_PAGE => from = next,
                _ => break,
            }
        }
        found.sort_by_key(|info: &LaneInfo| info.epoch);
        Ok(found)
    }
}

impl Cursor {
    /// As text, for a client that comes back with it.
    pub fn to_text(self) -> String {
        let PlaceParts {
            index,
            offset,
            lane,
        } = self.place.parts();
        let lane = lane.map_or_else(String::new, |(lane, epoch)| format!(".{lane:x}.{epoch:x}"));
        format!("{:x}.{index:x}.{offset:x}{lane}", self.shard)
    }

    /// From such a text.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers = text
            .split('.')
            .map(|part| u64::from_str_radix(part, 16).ok());
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let lane = match numbers[..] {
            [_, _, _] => None,
            [_, _, _, lane, epoch] => Some((lane, u32::try_from(epoch).ok()?)),
            _ => return None,
        };
        let parts = PlaceParts {
            index: numbers[1],
            offset: numbers[2],
            lane,
        };
        Some(Self {
            shard: u8::try_from(numbers[0]).ok()?,
            place: Place::restore(parts),
        })
    }

    pub(super) fn behind(self, place: Option<Place>) -> Self {
        match place {
            Some(place) => Self { place, ..self },
            None => Self {
                shard: self.shard + 1,
                place: Place::default(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_the_same_from_its_text() {
        for text in ["0.0.0", "3.1f.2", "0.0.0.ab12.7"] {
            let cursor = Cursor::parse(text).expect("a cursor");
            assert_eq!(cursor.to_text(), text);
        }
        for text in ["", "0", "0.0", "0.0.0.1", "x.0.0", "100.0.0", "0.0.0.1.2.3"] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
    }
}
