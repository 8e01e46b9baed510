//! Messages of QoS 1 and 2 that came and are not answered yet, in the order in which they came.
//!
//! Invariants: answers leave in that order; a message of QoS 2 is answered only after its owner has
//! taken it, also when it is repeated on another connection meanwhile; one that its owner dropped
//! without a word gets no answer on this connection, which those behind it do not wait for: the
//! order that MQTT asks for is that of the answers there are. The broker counts it as under way
//! until the next connection, so somebody must see to it that there is one
//! ([`Arrivals::left_open`]).

use std::collections::{BTreeMap, VecDeque};

use unbroken_mqtt_proto::{PacketId, QoS};

use crate::inbox::Done;

#[derive(Debug, Default)]
pub(super) struct Arrivals {
    open: VecDeque<Open>,
    /// Messages of QoS 2 that an earlier connection brought, and how far their owner has come.
    carried: BTreeMap<PacketId, (u64, Option<Done>)>,
    /// Messages of this connection that will get no answer on it.
    left_open: usize,
    next_serial: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    serial: u64,
    id: PacketId,
    qos: QoS,
    done: Option<Done>,
}

impl Arrivals {
    /// A message came; it is known by the number returned.
    pub(super) fn arrived(&mut self, id: PacketId, qos: QoS) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.open.push_back(Open {
            serial,
            id,
            qos,
            done: None,
        });
        serial
    }

    /// A message of QoS 2 came again, which is here already. False: it is not any more, and counts
    /// as one that has not come.
    pub(super) fn repeated(&mut self, id: PacketId) -> bool {
        let known = self.carried.remove(&id);
        let (serial, done) = known.unwrap_or((u64::MAX, Some(Done::Taken)));
        if done == Some(Done::LeftOpen) {
            return false;
        }
        let qos = QoS::ExactlyOnce;
        self.open.push_back(Open {
            serial,
            id,
            qos,
            done,
        });
        true
    }

    /// Its owner is done. Not in the table: it came on an earlier connection and will come again.
    pub(super) fn done(&mut self, serial: u64, done: Done) {
        if let Some(open) = self.open.iter_mut().find(|open| open.serial == serial) {
            open.done = Some(done);
        } else if let Some((_, known)) =
            (self.carried.values_mut()).find(|(carried, _)| *carried == serial)
        {
            *known = Some(done);
        }
    }

    /// What may be answered now; [`Done::LeftOpen`] is not, and its id is free to come again.
    pub(super) fn next_answer(&mut self) -> Option<(PacketId, QoS, Done)> {
        let done = self.open.front()?.done?;
        self.left_open += usize::from(done == Done::LeftOpen);
        self.open.pop_front().map(|open| (open.id, open.qos, done))
    }

    /// Messages that keep their place among those that the broker may have under way, though nobody
    /// here has them.
    pub(super) fn left_open(&self) -> usize {
        self.left_open
    }

    /// What is not answered comes again.
    pub(super) fn handle_disconnected(&mut self) {
        self.left_open = 0;
        for open in self.open.drain(..) {
            if open.qos == QoS::ExactlyOnce {
                self.carried.insert(open.id, (open.serial, open.done));
            }
        }
    }

    /// The broker does not know the session any more.
    pub(super) fn forget(&mut self) {
        self.open.clear();
        self.carried.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Done::{LeftOpen, Taken};
    use QoS::{AtLeastOnce, ExactlyOnce};

    fn id(number: u16) -> PacketId {
        PacketId::new(number).unwrap()
    }

    #[test]
    fn answers_leave_in_the_order_of_the_messages() {
        let mut arrivals = Arrivals::default();
        let first = arrivals.arrived(id(7), AtLeastOnce);
        let second = arrivals.arrived(id(3), ExactlyOnce);
        arrivals.done(second, Taken);
        assert_eq!(arrivals.next_answer(), None);
        arrivals.done(first, Taken);
        assert_eq!(arrivals.next_answer(), Some((id(7), AtLeastOnce, Taken)));
        assert_eq!(arrivals.next_answer(), Some((id(3), ExactlyOnce, Taken)));
        assert_eq!(arrivals.next_answer(), None);
    }

    #[test]
    fn a_repeated_qos_2_message_is_answered_when_its_owner_has_it() {
        let mut arrivals = Arrivals::default();
        let taken_before = arrivals.arrived(id(1), ExactlyOnce);
        let taken_after = arrivals.arrived(id(2), ExactlyOnce);
        arrivals.handle_disconnected();
        arrivals.done(taken_before, Taken);
        arrivals.repeated(id(1));
        arrivals.repeated(id(2));
        assert_eq!(arrivals.next_answer(), Some((id(1), ExactlyOnce, Taken)));
        assert_eq!(arrivals.next_answer(), None);
        arrivals.done(taken_after, Taken);
        assert_eq!(arrivals.next_answer(), Some((id(2), ExactlyOnce, Taken)));
    }

    #[test]
    fn a_qos_1_message_of_an_earlier_connection_is_not_answered_on_this_one() {
        let mut arrivals = Arrivals::default();
        let old = arrivals.arrived(id(1), AtLeastOnce);
        arrivals.handle_disconnected();
        let again = arrivals.arrived(id(1), AtLeastOnce);
        arrivals.done(old, Taken);
        assert_eq!(arrivals.next_answer(), None);
        arrivals.done(again, Taken);
        assert_eq!(arrivals.next_answer(), Some((id(1), AtLeastOnce, Taken)));
    }

    #[test]
    fn those_behind_a_message_that_was_dropped_do_not_wait_for_it() {
        let mut arrivals = Arrivals::default();
        let all = [1, 2, 3].map(|number| arrivals.arrived(id(number), AtLeastOnce));
        arrivals.done(all[1], LeftOpen);
        arrivals.done(all[2], Taken);
        assert_eq!(arrivals.next_answer(), None);
        arrivals.done(all[0], Taken);
        let mut answers = std::iter::from_fn(|| arrivals.next_answer());
        assert_eq!(answers.next(), Some((id(1), AtLeastOnce, Taken)));
        assert_eq!(answers.next(), Some((id(2), AtLeastOnce, LeftOpen)));
        assert_eq!(answers.next(), Some((id(3), AtLeastOnce, Taken)));
        assert_eq!(answers.next(), None);
        assert_eq!(arrivals.left_open(), 1);
        arrivals.handle_disconnected();
        assert_eq!(arrivals.left_open(), 0);
    }

    #[test]
    fn a_repeated_qos_2_message_that_its_owner_dropped_is_a_new_one() {
        let mut arrivals = Arrivals::default();
        let dropped = arrivals.arrived(id(1), ExactlyOnce);
        arrivals.handle_disconnected();
        arrivals.done(dropped, LeftOpen);
        assert!(!arrivals.repeated(id(1)));
        assert_eq!(arrivals.next_answer(), None);
    }
}
