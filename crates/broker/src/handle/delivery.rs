//! What an operator asks about deliveries: since when they are counted, lanes, and events that name
//! messages.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use unbroken_broker_core::{Event, LaneFilter, LaneInfo, Stats};

use super::{BrokerHandle, Cursor, Events, HandleError, Listing, Within};
use crate::bounds::HANDLE_PAGE;
use crate::request::Request;

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
        from: Cursor,
        within: Within,
    ) -> Result<Listing<LaneInfo>, HandleError> {
        let (filter, now) = (filter.clone(), Instant::now());
        self.list(from, within, move |shard, place, most| {
            shard.lanes(now, &filter, place, most)
        })
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
