//! Messages that have been used, so that steady traffic asks the allocator for nothing.
//!
//! HOT: `message` runs for each message that a session must remember, `lend` for each that another
//! shard gets and not in a [bundle](crate::mesh).
//!
//! ```text
//! message:  one is free? refill it : the longest lent is back? refill it : ask the allocator
//! release:  the last reference? free : the holder of the last one will release it
//! lend:     behind those lent before; it is back when our reference is the only one left
//! ```
//!
//! Other shards use up what this one makes. They give nothing back: they drop it, and the reference
//! that stays here finds itself alone. So a stream in one direction goes round without a message in
//! the other.
//!
//! What is held for long (a queue of a client that is away) is given up once it is the oldest of
//! [`LENT_MAX`]; until it is, what was lent after it is not looked at, and the allocator is
//! asked. A retained message is not lent, because it stays.
//!
//! What was tried and lost: `docs/notes/message-pool.md`.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Message, Publication};
use crate::limits::{LENT_MAX, MESSAGE_POOL_BYTES, MESSAGE_POOL_EACH_MAX};
use crate::memory::Budget;

/// Used messages of one shard.
#[derive(Debug, Default)]
pub(crate) struct MessagePool {
    /// There is no other reference to these.
    free: Vec<Arc<Message>>,
    /// What they take together.
    free_bytes: usize,
    /// Longest lent in front. Others may have references.
    lent: VecDeque<Arc<Message>>,
    /// What counts the messages that are made here.
    budget: Arc<Budget>,
}

impl MessagePool {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            ..Self::default()
        }
    }

    pub(crate) fn message(
        &mut self,
        publication: &Publication<'_>,
        publisher: Option<&Arc<str>>,
    ) -> Arc<Message> {
        let refill = |used: &mut Arc<Message>| match Arc::get_mut(used) {
            Some(message) => {
                message.clear();
                message.fill(publication, publisher);
                message.charge.set(message.memory());
                true
            }
            None => false,
        };
        // There is no other reference to it.
        if let Some(mut used) = self.free.pop() {
            self.free_bytes -= used.memory();
            if refill(&mut used) {
                return used;
            }
        }
        if let Some(used) = self.lent.pop_front_if(refill) {
            return used;
        }
        let mut message = Message::new(publication, publisher);
        message.count(&self.budget);
        Arc::new(message)
    }

    /// Gives a reference back; the last one out leaves the buffers for the next message.
    pub(crate) fn release(&mut self, mut message: Arc<Message>) {
        let Some(used) = Arc::get_mut(&mut message) else {
            return;
        };
        let memory = used.memory();
        if memory <= MESSAGE_POOL_EACH_MAX && self.free_bytes + memory <= MESSAGE_POOL_BYTES {
            used.clear();
            self.free_bytes += memory;
            self.free.push(message);
        }
    }

    /// Keeps a reference to a message that was made here and sent to another shard.
    pub(crate) fn lend(&mut self, message: Arc<Message>) {
        if message.memory() > MESSAGE_POOL_EACH_MAX {
            return;
        }
        if self.lent.len() >= LENT_MAX {
            self.lent.pop_front();
        }
        self.lent.push_back(message);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use unbroken_mqtt_proto::{Properties, QoS};

    use super::*;

    /// Makes messages, and says where each lies.
    struct Maker {
        pool: MessagePool,
        now: Instant,
    }

    impl Maker {
        #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
        fn new() -> Self {
            Self {
                pool: MessagePool::default(),
                now: Instant::now(),
            }
        }

        fn make(&mut self, payload: &[u8]) -> Arc<Message> {
            let publication = Publication {
                topic: "topic",
                properties: Properties::EMPTY,
                payload,
                qos: QoS::AtLeastOnce,
                retain: false,
                expires: None,
                stamp: self.now,
                mark: None,
            };
            let made = self.pool.message(&publication, None);
            assert_eq!((made.topic(), made.payload()), ("topic", payload));
            made
        }

        /// A message as the shard that it was sent to holds it.
        fn send(&mut self, payload: &[u8]) -> Arc<Message> {
            let made = self.make(payload);
            let sent = Arc::clone(&made);
            self.pool.lend(made);
            sent
        }
    }

    #[test]
    fn a_lent_message_is_refilled_when_its_last_user_has_dropped_it() {
        let mut maker = Maker::new();
        let first = maker.send(b"first");
        let lies_at = Arc::as_ptr(&first);
        drop(first);
        assert_eq!(Arc::as_ptr(&maker.send(b"2nd")), lies_at);
    }

    #[test]
    fn a_message_that_somebody_still_holds_is_never_refilled() {
        let mut maker = Maker::new();
        let held: Vec<_> = (0..10).map(|n| maker.send(&[n])).collect();
        let another_user = Arc::clone(&held[0]);
        let timer = Arc::downgrade(&held[1]);
        drop(held);
        for n in 10..20 {
            drop(maker.send(&[n]));
        }
        assert_eq!(another_user.payload(), [0]);
        drop(another_user);
        drop(maker.send(&[20]));
        drop(maker.send(&[21]));
        let payload = timer.upgrade().map(|message| message.payload().to_vec());
        assert_eq!(payload.as_deref(), Some(&[1][..]), "a timer may look at it");
    }

    #[test]
    fn what_is_held_for_long_is_given_up_when_the_ring_is_full() {
        let mut maker = Maker::new();
        let held = maker.send(b"held");
        let next = Arc::as_ptr(&maker.send(b"next"));
        for _ in 2..LENT_MAX {
            drop(maker.send(b"more"));
        }
        assert_eq!(maker.pool.lent.len(), LENT_MAX);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(maker.send(b"one too many"));
        assert_eq!(maker.pool.lent.len(), LENT_MAX);
        assert_eq!(Arc::strong_count(&held), 1, "nothing but its user holds it");
        assert_eq!(Arc::as_ptr(&maker.send(b"the next is back")), next);
    }

    #[test]
    fn a_large_message_is_not_kept() {
        let large = vec![0; MESSAGE_POOL_EACH_MAX];
        let mut maker = Maker::new();
        let sent = maker.send(&large);
        assert_eq!(Arc::strong_count(&sent), 1);
        let made = maker.make(&large);
        maker.pool.release(made);
        assert_eq!(maker.pool.free.len(), 0);
    }

    #[test]
    fn what_is_free_takes_no_more_than_the_pool_may() {
        let mut maker = Maker::new();
        let payload = [0; 1_024];
        let made: Vec<_> = (0..=MESSAGE_POOL_BYTES / payload.len())
            .map(|_| maker.make(&payload))
            .collect();
        for message in made {
            maker.pool.release(message);
        }
        let of_all = |pool: &MessagePool| pool.free.iter().map(|free| free.memory()).sum::<usize>();
        assert_eq!(maker.pool.free_bytes, of_all(&maker.pool));
        assert!(maker.pool.free_bytes <= MESSAGE_POOL_BYTES);
        assert!(maker.pool.free_bytes > MESSAGE_POOL_BYTES - MESSAGE_POOL_EACH_MAX);
        let again = maker.make(&payload);
        assert_eq!(maker.pool.free_bytes, of_all(&maker.pool));
        assert_eq!(again.payload(), payload);
    }

    #[test]
    fn the_last_reference_that_is_released_makes_a_message_free() {
        let mut maker = Maker::new();
        let first = maker.make(b"first");
        let lies_at = Arc::as_ptr(&first);
        maker.pool.release(Arc::clone(&first));
        assert_ne!(Arc::as_ptr(&maker.make(b"still in use")), lies_at);
        maker.pool.release(first);
        assert_eq!(Arc::as_ptr(&maker.make(b"2nd")), lies_at);
    }
}
