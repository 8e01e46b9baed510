//! Messages of QoS 1 and 2 that came and are not answered yet, in the order in which they came.
//!
//! Invariants: answers leave in that order; a message of QoS 2 is answered only after its owner has
//! taken it, also when it is repeated on another connection meanwhile.

use std::collections::{BTreeMap, VecDeque};

use unbroken_mqtt_proto::{PacketId, QoS};

use crate::inbox::Done;

#[derive(Debug, Default)]
pub(super) struct Arrivals {
    open: VecDeque<Open>,
    /// Messages of QoS 2 that an earlier connection brought, and how far their owner has come.
    carried: BTreeMap<PacketId, (u64, Option<Done>)>,
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

    /// A message of QoS 2 came again, which is here already.
    pub(super) fn repeated(&mut self, id: PacketId) {
        let known = self.carried.remove(&id);
        let (serial, done) = known.unwrap_or((u64::MAX, Some(Done::Taken)));
        let qos = QoS::ExactlyOnce;
        self.open.push_back(Open {
            serial,
            id,
            qos,
            done,
        });
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

    /// What may be answered now.
    pub(super) fn next_answer(&mut self) -> Option<(PacketId, QoS, Done)> {
        let done = self.open.front()?.done?;
        self.open.pop_front().map(|open| (open.id, open.qos, done))
    }

    /// What is not answered comes again.
    pub(super) fn handle_disconnected(&mut self) {
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
    use Done::Taken;
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
}
