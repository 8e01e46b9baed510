//! What a relay was told to do, and what it has done.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

use crate::limits::ORDERS_MAX;
use unbroken_merkle_log::Property as Audit;

use crate::injection::{Injected, Injection};

/// A relay has as many orders as it can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the relay has {ORDERS_MAX} faults to inject already; let messages pass first")]
pub struct TooManyOrders;

/// Orders given, faults injected, and those undone. Each is bounded by [`ORDERS_MAX`].
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Audited messages that have passed, first copies only.
    seen: u64,
    scheduled: BTreeMap<u64, Injection>,
    next: VecDeque<Injection>,
    checkpoints: Option<Checkpoints>,
    done: VecDeque<Injected>,
    undone: VecDeque<Injected>,
    /// The latest that were lost: one whose acknowledgement got lost itself is sent again.
    lost: VecDeque<Injected>,
}

/// Which checkpoints are lost.
#[derive(Debug)]
struct Checkpoints {
    prefix: String,
    one_in: NonZeroU32,
    seen: u32,
}

impl Orders {
    pub(super) fn give(&mut self, injection: Injection) -> Result<(), TooManyOrders> {
        if self.pending() >= ORDERS_MAX {
            return Err(TooManyOrders);
        }
        self.next.push_back(injection);
        Ok(())
    }

    /// Two faults for one place: the earlier order stands, and the later one moves to the next free
    /// place.
    pub(super) fn schedule(
        &mut self,
        mut at: u64,
        injection: Injection,
    ) -> Result<(), TooManyOrders> {
        if self.pending() >= ORDERS_MAX {
            return Err(TooManyOrders);
        }
        while self.scheduled.contains_key(&at) {
            at += 1;
        }
        self.scheduled.insert(at, injection);
        Ok(())
    }

    pub(super) fn lose_checkpoints(&mut self, prefix: &str, one_in: Option<NonZeroU32>) {
        self.checkpoints = one_in.map(|one_in| Checkpoints {
            prefix: prefix.to_owned(),
            one_in,
            seen: 0,
        });
    }

    pub(super) fn pending(&self) -> usize {
        self.next.len() + self.scheduled.len()
    }

    pub(super) fn take_done(&mut self) -> Vec<Injected> {
        self.done.drain(..).collect()
    }

    pub(super) fn take_undone(&mut self) -> Vec<Injected> {
        self.undone.drain(..).collect()
    }

    /// The fault for the audited message that comes now, if it `can` have it.
    pub(super) fn due(&mut self, can: impl Fn(Injection) -> bool) -> Option<Injection> {
        let number = self.seen;
        self.seen += 1;
        if let Some(entry) = self.scheduled.first_entry()
            && *entry.key() <= number
            && can(*entry.get())
        {
            return Some(entry.remove());
        }
        let injection = *self.next.front()?;
        can(injection).then(|| self.next.pop_front()).flatten()
    }

    /// An order that was begun and could not be ended: it is the next one again.
    pub(super) fn give_back(&mut self, injection: Injection) {
        self.next.push_front(injection);
    }

    /// A message comes flagged as MQTT's own repetition. If it is one that was lost here, its
    /// sender has not had the relay's acknowledgement, and the injection is undone.
    pub(super) fn repeated(&mut self, message: &Audit) {
        let of = |lost: &Injected| lost.message.audit == *message;
        if let Some(lost) = self.lost.iter().position(of)
            && let Some(injected) = self.lost.remove(lost)
        {
            self.undo(injected);
        }
    }

    pub(super) fn note(&mut self, injected: Injected) {
        if injected.injection == Injection::Lose {
            if self.lost.len() == ORDERS_MAX {
                self.lost.pop_front();
            }
            self.lost.push_back(injected.clone());
        }
        if self.done.len() == ORDERS_MAX {
            self.done.pop_front();
        }
        self.done.push_back(injected);
    }

    /// What was done is undone, and ordered again.
    pub(super) fn undo(&mut self, injected: Injected) {
        self.give_back(injected.injection);
        if let Some(at) = self.done.iter().position(|done| *done == injected) {
            self.done.remove(at);
            return;
        }
        if self.undone.len() == ORDERS_MAX {
            self.undone.pop_front();
        }
        self.undone.push_back(injected);
    }

    /// Whether a message on this topic is a checkpoint to be lost.
    pub(super) fn loses_checkpoint(&mut self, topic: &str) -> bool {
        let Some(checkpoints) = &mut self.checkpoints else {
            return false;
        };
        if !topic.starts_with(&checkpoints.prefix) {
            return false;
        }
        checkpoints.seen = checkpoints.seen.wrapping_add(1);
        checkpoints.seen.is_multiple_of(checkpoints.one_in.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduled_fault_waits_for_its_place_and_an_ordered_one_does_not() {
        let mut orders = Orders::default();
        orders.schedule(2, Injection::Lose).unwrap();
        orders.schedule(2, Injection::Alter).unwrap();
        orders.give(Injection::Inject).unwrap();
        let given: Vec<_> = (0..5).map(|_| orders.due(|_| true)).collect();
        let expect = [
            Some(Injection::Inject),
            None,
            Some(Injection::Lose),
            Some(Injection::Alter),
            None,
        ];
        assert_eq!(given, expect);
    }

    #[test]
    fn a_fault_that_a_message_cannot_have_goes_to_the_next() {
        let mut orders = Orders::default();
        orders.give(Injection::Forge).unwrap();
        assert_eq!(orders.due(|_| false), None);
        assert_eq!(orders.due(|_| true), Some(Injection::Forge));
    }

    #[test]
    fn one_order_too_many_is_refused() {
        let mut orders = Orders::default();
        for at in 0..ORDERS_MAX as u64 {
            orders.schedule(at, Injection::Lose).unwrap();
        }
        assert_eq!(orders.give(Injection::Lose), Err(TooManyOrders));
        assert_eq!(orders.schedule(1, Injection::Lose), Err(TooManyOrders));
    }
}
