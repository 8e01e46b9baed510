//! The queues of requests, one for each shard.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unbroken_broker_core::{Forget, ShardId};

use super::HandleError;
use crate::bounds::{HANDLE_BYTES, HANDLE_WATCHES, TRACES};
use crate::channel::{DriverEvent, EventSender, SendError};
use crate::request::{Answer, Charge, Permit, Request};

/// The queues of a handle, one for each shard.
#[derive(Clone, Debug)]
pub(crate) struct Requests(Arc<Queues>);

#[derive(Debug)]
struct Queues {
    /// Never held across a wait.
    senders: Mutex<Vec<EventSender>>,
    shards: u8,
    /// Bytes of messages that wait to be published.
    bytes: Arc<AtomicU64>,
    /// Receivers of events.
    watches: Arc<AtomicUsize>,
    traces: Arc<AtomicUsize>,
    /// The number of the next trace.
    next_trace: AtomicU64,
}

impl Requests {
    pub(crate) fn new(senders: Vec<EventSender>) -> Self {
        let shards = u8::try_from(senders.len()).expect("a shard's number is a u8");
        Self(Arc::new(Queues {
            senders: Mutex::new(senders),
            shards,
            bytes: Arc::default(),
            watches: Arc::default(),
            traces: Arc::default(),
            next_trace: AtomicU64::new(1),
        }))
    }

    pub(super) fn shards(&self) -> u8 {
        self.0.shards
    }

    /// Sends a request to one shard and waits for the answer.
    pub(super) fn ask<T>(
        &self,
        shard: ShardId,
        timeout: Duration,
        request: impl FnOnce(Answer<T>) -> Request,
    ) -> Result<T, HandleError> {
        let (answer, answered) = sync_channel(1);
        let event = DriverEvent::Request(Box::new(request(answer)));
        let mut senders = self.senders();
        let sender = senders.get_mut(usize::from(shard.0));
        send(sender.ok_or(HandleError::Stopped)?, event)?;
        drop(senders);
        receive(&answered, Instant::now() + timeout, timeout)
    }

    /// Sends a request to all shards at once and waits for the answers.
    pub(super) fn ask_all<T>(
        &self,
        timeout: Duration,
        request: impl Fn(Answer<T>) -> Request,
    ) -> Result<Vec<T>, HandleError> {
        let count = usize::from(self.0.shards);
        let (answer, answered) = sync_channel(count);
        self.send_request_to_all(|| request(answer.clone()))?;
        drop(answer);
        let deadline = Instant::now() + timeout;
        let answers = (0..count).map(|_| receive(&answered, deadline, timeout));
        answers.collect()
    }

    /// Sends a request to all shards, or to none of them.
    pub(super) fn send_request_to_all(
        &self,
        request: impl Fn() -> Request,
    ) -> Result<(), HandleError> {
        self.send_all(|| DriverEvent::Request(Box::new(request())))
    }

    pub(super) fn send_all(&self, event: impl Fn() -> DriverEvent) -> Result<(), HandleError> {
        let mut senders = self.senders();
        // Nothing else fills the channels, so the room remains.
        if !senders.iter().all(EventSender::has_room) {
            return Err(FULL);
        }
        senders
            .iter_mut()
            .try_for_each(|sender| send(sender, event()))
    }

    /// Removes a session or a retained message. Returns when it is removed, on disk too.
    pub(crate) fn forget(&self, what: &Forget, timeout: Duration) -> Result<(), HandleError> {
        let (done, removed) = channel();
        self.send_request_to_all(|| Request::Forget {
            what: what.clone(),
            done: Sender::clone(&done),
        })?;
        drop(done);
        let deadline = Instant::now() + timeout;
        (0..self.0.shards).try_for_each(|_| receive(&removed, deadline, timeout))
    }

    /// Reserves bytes for a message that is to be published.
    pub(super) fn charge(&self, bytes: u64) -> Result<Charge, HandleError> {
        let sum = Arc::clone(&self.0.bytes);
        let before = sum.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge::new(bytes, sum);
        if before + bytes > HANDLE_BYTES {
            return Err(HandleError::Busy("4 MiB of messages wait to be published"));
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

    /// A number for a trace, and its place.
    pub(super) fn permit_trace(&self) -> Result<(u64, Permit), HandleError> {
        let traces = Arc::clone(&self.0.traces);
        let before = traces.fetch_add(1, Ordering::Relaxed);
        let permit = Permit::new(traces);
        if before >= TRACES {
            return Err(HandleError::Busy("8 traces are going on"));
        }
        Ok((self.0.next_trace.fetch_add(1, Ordering::Relaxed), permit))
    }

    fn senders(&self) -> MutexGuard<'_, Vec<EventSender>> {
        self.0
            .senders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

const FULL: HandleError = HandleError::Busy("64 requests wait for a shard");

fn send(sender: &mut EventSender, event: DriverEvent) -> Result<(), HandleError> {
    sender.try_send(event).map_err(|error| match error {
        SendError::Full => FULL,
        SendError::Ended => HandleError::Stopped,
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
    use crate::channel::event_channel_of;

    #[test]
    fn a_full_queue_is_an_error_and_no_shard_gets_what_one_has_no_room_for() {
        let (first, mut of_first) = event_channel_of(2);
        let (second, of_second) = event_channel_of(1);
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
    fn a_dropped_request_ends_the_wait_for_its_answer() {
        let (sender, mut shard) = event_channel_of(1);
        let requests = Requests::new(vec![sender]);
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
