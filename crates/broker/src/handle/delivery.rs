//! What an operator asks about deliveries: since when they are counted, lanes, and events that name
//! messages.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use unbroken_broker_core::{Event, LaneFilter, LaneInfo, LanePlace, ShardId, Stats};

use super::{BrokerHandle, Events, HandleError, Within};
use crate::bounds::{HANDLE_PAGE, HANDLE_PAGES};
use crate::request::{Look, Request};

/// How a broker began.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Began {
    /// When: counters are 0 then.
    pub at: SystemTime,
    /// The run before was killed, or ended by a power cut. A broker that stores nothing does not
    /// know that.
    pub after_crash: bool,
}

/// Lanes, or a part of them. It is not a snapshot: a lane that exists throughout is in it once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneListing {
    /// Their epochs.
    pub entries: Vec<LaneInfo>,
    /// Where the next part begins; `None` after the last.
    pub next: Option<LaneCursor>,
}

/// Where a part of a listing of lanes begins; the default is the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LaneCursor {
    shard: u8,
    place: LanePlace,
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
        mut from: LaneCursor,
        within: Within,
    ) -> Result<LaneListing, HandleError> {
        let deadline = Instant::now() + within.timeout;
        let most = within.entries.max(1);
        let mut entries: Vec<LaneInfo> = Vec::new();
        for _ in 0..HANDLE_PAGES {
            if from.shard >= self.requests.shards() || entries.len() >= most {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let (filter, place, now) = (filter.clone(), from.place, Instant::now());
            let wanted = HANDLE_PAGE.min(most - entries.len());
            let page = self.requests.ask(ShardId(from.shard), left, |answer| {
                Request::Look(Look::new(answer, move |shard| {
                    shard.lanes(now, &filter, place, wanted)
                }))
            })?;
            entries.extend(page.entries);
            from = from.behind(page.next);
        }
        let next = (from.shard < self.requests.shards()).then_some(from);
        Ok(LaneListing { entries, next })
    }

    /// The epochs of one lane, the newest last.
    pub fn lane(&self, lane: u64, timeout: Duration) -> Result<Vec<LaneInfo>, HandleError> {
        let deadline = Instant::now() + timeout;
        let filter = LaneFilter {
            lane: Some(lane),
            text: None::<Arc<str>>,
        };
        let (mut found, mut from) = (Vec::new(), LaneCursor::default());
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

impl LaneCursor {
    /// As text, for a client that comes back with it.
    pub fn to_text(self) -> String {
        let place = match self.place {
            LanePlace::Stamped(None) => "l".to_owned(),
            LanePlace::Stamped(Some((lane, epoch))) => format!("l.{lane:x}.{epoch:x}"),
            LanePlace::Session(index) => format!("s.{index:x}"),
        };
        format!("{:x}.{place}", self.shard)
    }

    /// From such a text.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let parts: Vec<&str> = text.split('.').collect();
        let (shard, place) = parts.split_first()?;
        let place = match place {
            ["l"] => LanePlace::Stamped(None),
            ["l", lane, epoch] => {
                let epoch = u32::try_from(number(epoch)?).ok()?;
                LanePlace::Stamped(Some((number(lane)?, epoch)))
            }
            ["s", index] => LanePlace::Session(number(index)?),
            _ => return None,
        };
        let shard = u8::try_from(number(shard)?).ok()?;
        Some(Self { shard, place })
    }

    fn behind(self, place: Option<LanePlace>) -> Self {
        match place {
            Some(place) => Self { place, ..self },
            None => Self {
                shard: self.shard.saturating_add(1),
                place: LanePlace::default(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_the_same_from_its_text() {
        for text in ["0.l", "3.s.1f", "0.l.ab12.7"] {
            let cursor = LaneCursor::parse(text).expect("a cursor");
            assert_eq!(cursor.to_text(), text);
        }
        for text in ["", "0", "0.0", "0.s", "0.l.1", "x.l", "100.l", "0.s.1.2"] {
            assert_eq!(LaneCursor::parse(text), None, "{text}");
        }
    }
}
