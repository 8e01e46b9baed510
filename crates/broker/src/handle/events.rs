//! Events for other threads: bounded, and counted where there is no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use unbroken_broker_core::Event;

use crate::request::{Permit, Watch};

/// Events of a broker, in order for each shard, until it is dropped.
#[derive(Debug)]
pub struct Events {
    receiver: Receiver<Event>,
    missed: Arc<AtomicU64>,
    _permit: Arc<Permit>,
}

/// Why there is no event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EventsError {
    /// None came in time.
    #[error("nothing happened in time")]
    Timeout,
    /// The broker has ended, and all its events were received.
    #[error("the broker has stopped")]
    Stopped,
}

impl Events {
    /// The next event; waits for at most `timeout`.
    pub fn next(&self, timeout: Duration) -> Result<Event, EventsError> {
        let received = self.receiver.recv_timeout(timeout);
        received.map_err(|error| match error {
            RecvTimeoutError::Timeout => EventsError::Timeout,
            RecvTimeoutError::Disconnected => EventsError::Stopped,
        })
    }

    /// Events missed for lack of room since the last call.
    pub fn take_missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

/// A channel for so many wanted events.
pub(super) fn watch(waiting: usize, wanted: fn(&Event) -> bool, permit: Permit) -> (Watch, Events) {
    let (sender, receiver) = sync_channel(waiting);
    let missed = Arc::<AtomicU64>::default();
    let permit = Arc::new(permit);
    let watch = Watch::new(sender, wanted, Arc::clone(&missed), Arc::downgrade(&permit));
    let events = Events {
        receiver,
        missed,
        _permit: permit,
    };
    (watch, events)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn ended(client_id: &str) -> Event {
        Event::SessionEnded {
            client_id: client_id.into(),
            undelivered: 0,
            uncounted_of: 0,
        }
    }

    #[test]
    fn what_is_not_wanted_is_not_sent_and_the_end_of_the_receiver_is_known_all_the_same() {
        let permit = Permit::new(Arc::new(AtomicUsize::new(1)));
        let (watch, events) = watch(1, |event| *event == ended("wanted"), permit);
        assert!(watch.offer(&ended("other")) && watch.offer(&ended("wanted")));
        assert!(watch.offer(&ended("other")) && watch.offer(&ended("wanted")));
        assert_eq!(events.next(Duration::ZERO), Ok(ended("wanted")));
        assert_eq!(events.next(Duration::ZERO), Err(EventsError::Timeout));
        assert_eq!(events.take_missed(), 1);
        drop(events);
        assert!(!watch.offer(&ended("other")) && !watch.offer(&ended("wanted")));
    }
}
