//! The queues of requests, one for each shard.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unbroken_broker_core::{Forget, ShardId};

use super::HandleError;
use crate::bounds::{HANDLE_BYTES, HANDLE_WATCHES};
use crate::mailbox::{Outside, Parcel, TryFeedError};
use crate::request::{Answer, Charge, Permit, Request};

/// The queues of a handle, one for each shard.
#[derive(Clone, Debug)]
pub(crate) struct Requests(Arc<Queues>);

#[derive(Debug)]
struct Queues {
    /// No thread waits while it holds this.
    feeds: Mutex<Vec<Outside>>,
    shards: u8,
    /// Bytes of messages that wait to be published.
    bytes: Arc<AtomicU64>,
    /// Receivers of events.
    watches: Arc<AtomicUsize>,
}

impl Requests {
    pub(crate) fn new(feeds: Vec<Outside>) -> Self {
        let shards = u8::try_from(feeds.len()).expect("a shard's number is a u8");
        Self(Arc::new(Queues {
            feeds: Mutex::new(feeds),
            shards,
            bytes: Arc::default(),
            watches: Arc::default(),
        }))
    }

    pub(super) fn shards(&self) -> u8 {
        self.0.shards
    }

    /// Asks one shard.
    pub(super) fn ask<T>(
        &self,
        shard: ShardId,
        timeout: Duration,
        request: impl FnOnce(Answer<T>) -> Request,
    ) -> Result<T, HandleError> {
        let (answer, answered) = sync_channel(1);
        let parcel = Parcel::Request(Box::new(request(answer)));
        let mut feeds = self.feeds();
        let feed = feeds.get_mut(usize::from(shard.0));
        send(feed.ok_or(HandleError::Stopped)?, parcel)?;
        drop(feeds);
        receive(&answered, Instant::now() + timeout, timeout)
    }

    /// Asks all shards, at once.
    pub(super) fn ask_all<T>(
        &self,
        timeout: Duration,
        request: impl Fn(Answer<T>) -> Request,
    ) -> Result<Vec<T>, HandleError> {
        let count = usize::from(self.0.shards);
        let (answer, answered) = sync_channel(count);
        self.tell_all(|| request(answer.clone()))?;
        drop(answer);
        let deadline = Instant::now() + timeout;
        let answers = (0..count).map(|_| receive(&answered, deadline, timeout));
        answers.collect()
    }

    /// Gives all shards a request, or none of them.
    pub(super) fn tell_all(&self, request: impl Fn() -> Request) -> Result<(), HandleError> {
        self.send_all(|| Parcel::Request(Box::new(request())))
    }

    pub(super) fn send_all(&self, parcel: impl Fn() -> Parcel) -> Result<(), HandleError> {
        let mut feeds = self.feeds();
        // Nothing else fills them, so what has room now has it for this.
        if !feeds.iter().all(Outside::has_room) {
            return Err(FULL);
        }
        feeds.iter_mut().try_for_each(|feed| send(feed, parcel()))
    }

    /// Removes what an operator names. Returns when it is gone, on disk too.
    pub(crate) fn forget(&self, what: &Forget, timeout: Duration) -> Result<(), HandleError> {
        let (done, told) = channel();
        self.tell_all(|| Request::Forget {
            what: what.clone(),
            done: Sender::clone(&done),
        })?;
        drop(done);
        let deadline = Instant::now() + timeout;
        (0..self.0.shards).try_for_each(|_| receive(&told, deadline, timeout))
    }

    /// Counts bytes of a message that is to be published.
    pub(super) fn charge(&self, bytes: u64) -> Result<Charge, HandleError> {
        let sum = Arc::clone(&self.0.bytes);
        let before = sum.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge::new(bytes, sum);
        if before + bytes > HANDLE_BYTES {
            return Err(HandleError::Busy("the messages that wait have 4 MiB"));
        }
        Ok(charge)
    }

    pub(super) fn permit_events(&self) -> Result<Permit, HandleError> {
        let watches = Arc::clone(&self.0.watches);
        let before = watches.fetch_add(1, Ordering::Relaxed);
        let permit = Permit::new(watches);
        if before >= HANDLE_WATCHES {
            return Err(HandleError::Busy("16 receivers of events are open"));
        }
        Ok(permit)
    }

    fn feeds(&self) -> MutexGuard<'_, Vec<Outside>> {
        self.0.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const FULL: HandleError = HandleError::Busy("64 requests to a shard wait");

fn send(feed: &mut Outside, parcel: Parcel) -> Result<(), HandleError> {
    feed.try_send(parcel).map_err(|error| match error {
        TryFeedError::Full => FULL,
        TryFeedError::Ended => HandleError::Stopped,
    })
}

pub(super) fn receive<T>(
    answered: &Receiver<T>,
    deadline: Instant,
    timeout: Duration,
) -> Result<T, HandleError> {
    let left = deadline.saturating_duration_since(Instant::now());
    answered.recv_timeout(left).map_err(|error| match error {
        RecvTimeoutError::Timeout => HandleError::Timeout(timeout),
        RecvTimeoutError::Disconnected => HandleError::Stopped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::outside_feed_for;

    #[test]
    fn a_full_queue_is_an_error_and_no_shard_gets_what_one_has_no_room_for() {
        let (first, mut of_first) = outside_feed_for(2);
        let (second, of_second) = outside_feed_for(1);
        let requests = Requests::new(vec![first, second]);
        let none = Duration::ZERO;
        let ask = || requests.ask_all(none, Request::Counters).map(drop);
        assert_eq!(ask(), Err(HandleError::Timeout(none)));
        assert_eq!(ask(), Err(FULL));
        assert_eq!((of_first.len(), of_second.len()), (1, 1));
        let one = |shard| requests.ask(ShardId(shard), none, Request::Counters);
        assert_eq!(one(0).map(drop), Err(HandleError::Timeout(none)));
        assert_eq!(one(0).map(drop), Err(FULL));
        assert!(of_first.try_recv().is_ok());
        drop((of_first, of_second));
        assert_eq!(ask(), Err(HandleError::Stopped));
        assert_eq!(one(1).map(drop), Err(HandleError::Stopped));
    }

    #[test]
    fn a_request_that_is_dropped_says_so_to_whoever_waits() {
        let (feed, mut shard) = outside_feed_for(1);
        let requests = Requests::new(vec![feed]);
        let minute = Duration::from_mins(1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| requests.ask_all(minute, Request::Counters).map(drop));
            while shard.try_recv().is_err() {
                std::thread::yield_now();
            }
            assert_eq!(waits.join().unwrap(), Err(HandleError::Stopped));
        });
    }

    #[test]
    fn messages_that_wait_count_until_they_are_published() {
        let requests = Requests::new(Vec::new());
        let half = requests.charge(HANDLE_BYTES / 2 + 1).unwrap();
        assert!(requests.charge(HANDLE_BYTES / 2).is_err());
        drop(half);
        assert!(requests.charge(HANDLE_BYTES).is_ok());
    }
}
