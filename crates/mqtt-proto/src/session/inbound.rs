//! Messages that the other side has begun to send here: what counts against our Receive Maximum,
//! and which QoS 2 messages are here already.
//!
//! ```text
//!             PUBLISH QoS 1            acknowledged (PUBACK sent)
//!   (unknown) -------------> AtLeastOnce --------------------------------> (unknown)
//!             PUBLISH QoS 2          received (PUBREC sent)      PUBREL
//!   (unknown) -------------> Arrived ----------------> Received ---------> (unknown)
//!                               |  acknowledged (refused: PUBREC >= 0x80)      ^
//!                               +----------------------------------------------+
//! ```
//!
//! Invariants:
//! - From its arrival until PUBREL a QoS 2 id is remembered, also over reconnects: repetitions are
//!   answered and not delivered again `[MQTT-4.3.3-10]` `[MQTT311-4.3.3-2]`. Afterwards the same id
//!   is a new message `[MQTT-4.3.3-12]`, as it is after PUBACK `[MQTT-4.3.2-5]` `[MQTT311-4.3.2-2]`
//!   or a PUBREC that refuses `[MQTT-4.3.3-9]`.
//! - On one connection at most Receive Maximum messages are unfinished `[MQTT-3.3.4-7]`. Ids of
//!   earlier connections count when their PUBLISH is repeated: a client that lost its own state and
//!   never sends their PUBREL is not locked out by them. What they cost is bounded by the id space,
//!   at 4 bytes an id.
//!
//! Deliberately absent: the order of the answers. They go in the order of the messages
//! `[MQTT-4.6.0-2]` `[MQTT-4.6.0-3]` because the owner's storage finishes in that order.

use std::collections::VecDeque;

use thiserror::Error;

use crate::{PacketId, QoS};

/// The packet ids in use by the other side in one session.
///
/// What a durable session must have on disk before something leaves:
///
/// | leaves              | on disk before it                             |
/// |---------------------|-----------------------------------------------|
/// | PUBREC              | the id of the QoS 2 message, with the message |
/// | PUBREC that refuses | that the id is not in use                     |
/// | PUBCOMP             | that the id is not in use                     |
///
/// Otherwise a restart takes the next message with this id for a repetition. For the same reason
/// an id that a new message shows to be free ([`Arrival::Instead`],
/// [`settle_doubt`](Self::settle_doubt)) leaves the disk first: that message may be refused.
/// [`iter`](Self::iter) gives the ids, [`restore`](Self::restore) takes them back.
///
/// A store that lost its latest changes may contain an id that is free by now
/// ([`restore_doubted`](Self::restore_doubted)). The next PUBLISH with that id decides: a
/// repetition has DUP `[MQTT-3.3.1-1]` `[MQTT311-3.3.1-1]`, so one without is a new message. One
/// with DUP may repeat a new message that was lost on its way; this cannot be distinguished, and it
/// counts as a repetition of the old one.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// Sorted by id. Clients count upwards, so entries come at the back and leave at the front.
    entries: VecDeque<Entry>,
    /// Entries that count for the present connection.
    here: u32,
    receive_maximum: u16,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: PacketId,
    stage: Stage,
    /// Its PUBLISH came on the present connection.
    here: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    AtLeastOnce,
    Arrived,
    Received,
    /// Received, or released since.
    Doubted,
}

impl Inbound {
    /// For a new session.
    pub const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            here: 0,
            receive_maximum: u16::MAX,
        }
    }

    /// For a session read from disk: the QoS 2 ids whose PUBREL has not come, in any order.
    pub fn restore(ids: impl IntoIterator<Item = PacketId>) -> Self {
        Self::restore_as(Stage::Received, ids)
    }

    /// As [`restore`](Self::restore), from a disk that may have lost that some are released.
    pub fn restore_doubted(ids: impl IntoIterator<Item = PacketId>) -> Self {
        Self::restore_as(Stage::Doubted, ids)
    }

    fn restore_as(stage: Stage, ids: impl IntoIterator<Item = PacketId>) -> Self {
        let mut ids: Vec<_> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        let entries: VecDeque<_> = ids
            .into_iter()
            .map(|id| Entry {
                id,
                stage,
                here: false,
            })
            .collect();
        Self {
            entries,
            ..Self::new()
        }
    }

    /// What we announced for this connection; 65,535 if nothing, and for 3.x.
    pub fn set_receive_maximum(&mut self, receive_maximum: u16) {
        self.receive_maximum = receive_maximum;
    }

    /// Messages that are not finished.
    pub fn inflight(&self) -> usize {
        self.entries.len()
    }

    /// PUBLISH of any QoS; the id is only looked at for QoS 1 and 2.
    pub fn handle_publish(
        &mut self,
        qos: QoS,
        id: PacketId,
    ) -> Result<Arrival, ReceiveMaximumExceeded> {
        let stage = match qos {
            QoS::AtMostOnce => return Ok(Arrival::New),
            QoS::AtLeastOnce => Stage::AtLeastOnce,
            QoS::ExactlyOnce => Stage::Arrived,
        };
        let position = self.position(id);
        let known = position.ok().and_then(|at| self.entries.get_mut(at));
        let counted = known.as_ref().is_some_and(|entry| entry.here);
        if !counted {
            if self.here >= u32::from(self.receive_maximum) {
                let receive_maximum = self.receive_maximum;
                return Err(ReceiveMaximumExceeded { receive_maximum });
            }
            self.here += 1;
        }
        let Some(entry) = known else {
            let at = position.unwrap_or_else(|at| at);
            self.entries.insert(
                at,
                Entry {
                    id,
                    stage,
                    here: true,
                },
            );
            return Ok(Arrival::New);
        };
        entry.here = true;
        Ok(match (entry.stage, stage) {
            (Stage::Received | Stage::Doubted, Stage::Arrived) => Arrival::Duplicate,
            (Stage::Arrived, Stage::Arrived) => Arrival::InProgress,
            // QoS 1 may arrive any number of times. Another QoS than before breaks [MQTT-2.2.1-3]:
            // the sender has given up the older message, as it has no id of its own any more.
            (before, _) => {
                entry.stage = stage;
                match before {
                    Stage::Received | Stage::Doubted => Arrival::Instead,
                    Stage::AtLeastOnce | Stage::Arrived => Arrival::New,
                }
            }
        })
    }

    /// A PUBLISH that was taken for a [`Duplicate`](Arrival::Duplicate) has DUP or has not. True:
    /// it is there [`Instead`](Arrival::Instead) of an older one, as the id is one of
    /// [`restore_doubted`](Self::restore_doubted) and was not repeated before.
    pub fn settle_doubt(&mut self, id: PacketId, dup: bool) -> bool {
        let at = self.position(id).ok();
        let entry = at.and_then(|at| self.entries.get_mut(at));
        let Some(entry) = entry.filter(|entry| entry.stage == Stage::Doubted) else {
            return false;
        };
        entry.stage = if dup { Stage::Received } else { Stage::Arrived };
        !dup
    }

    /// PUBREC without an error was sent; from now on a repetition gets one at once.
    pub fn received(&mut self, id: PacketId) {
        if let Ok(at) = self.position(id)
            && let Some(entry) = self.entries.get_mut(at)
            && entry.stage == Stage::Arrived
        {
            entry.stage = Stage::Received;
        }
    }

    /// PUBACK was sent, or the message is refused and PUBREC with an error is due: the id is free.
    pub fn acknowledged(&mut self, id: PacketId) {
        if let Ok(at) = self.position(id) {
            self.forget(at);
        }
    }

    /// PUBREL: the id is free, PUBCOMP is due `[MQTT-4.3.3-11]`. False: it was not in use, PUBCOMP
    /// is due all the same and says so (0x92 in 5.0).
    pub fn handle_pubrel(&mut self, id: PacketId) -> bool {
        let Ok(at) = self.position(id) else {
            return false;
        };
        let known = self
            .entries
            .get(at)
            .is_some_and(|entry| entry.stage != Stage::AtLeastOnce);
        if known {
            self.forget(at);
        }
        known
    }

    /// The connection ended. QoS 1 messages without an answer will come again as new ones; QoS 2
    /// messages are here, and will be answered when they come again.
    pub fn handle_disconnected(&mut self) {
        self.entries.retain_mut(|entry| {
            let keep = entry.stage != Stage::AtLeastOnce;
            if entry.stage == Stage::Arrived {
                entry.stage = Stage::Received;
            }
            entry.here = false;
            keep
        });
        self.entries.shrink_to_fit();
        self.here = 0;
    }

    /// The QoS 2 ids whose PUBREL has not come.
    pub fn iter(&self) -> impl Iterator<Item = PacketId> {
        let mut entries = self.entries.iter();
        std::iter::from_fn(move || {
            entries
                .find(|entry| entry.stage != Stage::AtLeastOnce)
                .map(|entry| entry.id)
        })
    }

    fn forget(&mut self, at: usize) {
        if let Some(entry) = self.entries.remove(at) {
            self.here -= u32::from(entry.here);
        }
    }

    /// Where the id is, or would be.
    fn position(&self, id: PacketId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.id)
    }
}

impl Default for Inbound {
    fn default() -> Self {
        Self::new()
    }
}

/// What to do with a PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Deliver it, answer it, and say so: [`Inbound::received`] after PUBREC,
    /// [`Inbound::acknowledged`] after PUBACK or a PUBREC that refuses.
    New,
    /// As [`New`](Self::New), under the id of a QoS 2 message that was answered, and that the
    /// sender has done with without a PUBREL that is known here. Where that id is on disk, it is to
    /// be forgotten there before this message is answered.
    Instead,
    /// It is here and was answered: answer again with PUBREC, do not deliver.
    Duplicate,
    /// It is here and its answer is still to come: do nothing.
    InProgress,
}

impl Arrival {
    /// Whether it is to be delivered.
    pub const fn is_new(self) -> bool {
        matches!(self, Self::New | Self::Instead)
    }
}

/// The other side has more messages unfinished than we said we take: DISCONNECT with 0x93.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("more than {receive_maximum} messages without an acknowledgement")]
pub struct ReceiveMaximumExceeded {
    /// What we announced.
    pub receive_maximum: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    use Arrival::{Duplicate, InProgress, New};
    use QoS::{AtLeastOnce, AtMostOnce, ExactlyOnce};

    fn id(number: u16) -> PacketId {
        PacketId::new(number).unwrap()
    }

    fn publish(
        inbound: &mut Inbound,
        qos: QoS,
        number: u16,
        expect: Result<Arrival, ReceiveMaximumExceeded>,
    ) {
        assert_eq!(
            inbound.handle_publish(qos, id(number)),
            expect,
            "{qos} {number}"
        );
    }

    // [MQTT-4.3.3-10] [MQTT-4.3.3-12] [MQTT311-4.3.3-2]
    #[test]
    fn qos2_repetitions_are_not_delivered_until_pubrel() {
        let mut inbound = Inbound::new();
        publish(&mut inbound, ExactlyOnce, 7, Ok(New));
        publish(&mut inbound, ExactlyOnce, 7, Ok(InProgress));
        inbound.received(id(7));
        publish(&mut inbound, ExactlyOnce, 7, Ok(Duplicate));
        assert!(inbound.handle_pubrel(id(7)));
        publish(&mut inbound, ExactlyOnce, 7, Ok(New));
    }

    // [MQTT-4.3.3-11]
    #[test]
    fn pubrel_of_an_unknown_id_is_distinguished() {
        let mut inbound = Inbound::new();
        assert!(!inbound.handle_pubrel(id(1)));
        publish(&mut inbound, AtLeastOnce, 1, Ok(New));
        assert!(!inbound.handle_pubrel(id(1)));
        assert_eq!(inbound.inflight(), 1);
    }

    // [MQTT-4.3.3-9]
    #[test]
    fn a_refused_qos2_message_frees_its_id() {
        let mut inbound = Inbound::new();
        publish(&mut inbound, ExactlyOnce, 1, Ok(New));
        inbound.acknowledged(id(1));
        publish(&mut inbound, ExactlyOnce, 1, Ok(New));
    }

    // [MQTT-4.3.2-5] [MQTT311-4.3.2-2]
    #[test]
    fn qos1_is_delivered_each_time_it_arrives() {
        let mut inbound = Inbound::new();
        publish(&mut inbound, AtLeastOnce, 1, Ok(New));
        publish(&mut inbound, AtLeastOnce, 1, Ok(New));
        assert_eq!(inbound.inflight(), 1);
        inbound.acknowledged(id(1));
        inbound.acknowledged(id(1));
        assert_eq!(inbound.inflight(), 0);
    }

    #[test]
    fn a_reconnect_forgets_qos1_and_keeps_qos2() {
        let mut inbound = Inbound::new();
        publish(&mut inbound, AtLeastOnce, 1, Ok(New));
        publish(&mut inbound, ExactlyOnce, 2, Ok(New));
        publish(&mut inbound, ExactlyOnce, 3, Ok(New));
        inbound.received(id(3));
        inbound.handle_disconnected();
        assert_eq!(inbound.iter().collect::<Vec<_>>(), [id(2), id(3)]);
        // The answer to 2 that was under way went to the old connection.
        for known in [2, 3] {
            publish(&mut inbound, ExactlyOnce, known, Ok(Duplicate));
        }
        publish(&mut inbound, AtLeastOnce, 1, Ok(New));
    }

    // [MQTT-3.3.4-7]
    #[test]
    fn one_message_more_than_announced_is_refused() {
        let mut inbound = Inbound::new();
        inbound.set_receive_maximum(2);
        let refused = Err(ReceiveMaximumExceeded { receive_maximum: 2 });
        publish(&mut inbound, AtLeastOnce, 1, Ok(New));
        publish(&mut inbound, ExactlyOnce, 2, Ok(New));
        publish(&mut inbound, AtLeastOnce, 3, refused);
        publish(&mut inbound, AtMostOnce, 3, Ok(New));
        publish(&mut inbound, ExactlyOnce, 2, Ok(InProgress));
        inbound.acknowledged(id(1));
        publish(&mut inbound, AtLeastOnce, 3, Ok(New));
        inbound.received(id(2));
        publish(&mut inbound, AtLeastOnce, 4, refused);
        assert!(inbound.handle_pubrel(id(2)));
        publish(&mut inbound, AtLeastOnce, 4, Ok(New));
    }

    #[test]
    fn a_smaller_maximum_after_a_reconnect_does_not_refuse_what_is_sent_again() {
        let mut inbound = Inbound::new();
        inbound.set_receive_maximum(4);
        for number in [2, 3, 4] {
            publish(&mut inbound, ExactlyOnce, number, Ok(New));
        }
        inbound.handle_disconnected();
        inbound.set_receive_maximum(2);
        publish(&mut inbound, AtLeastOnce, 1, Ok(New));
        publish(&mut inbound, ExactlyOnce, 2, Ok(Duplicate));
        let refused = Err(ReceiveMaximumExceeded { receive_maximum: 2 });
        publish(&mut inbound, ExactlyOnce, 3, refused);
        inbound.acknowledged(id(1));
        publish(&mut inbound, ExactlyOnce, 3, Ok(Duplicate));
    }

    #[test]
    fn ids_that_a_client_abandoned_do_not_lock_it_out() {
        let mut inbound = Inbound::new();
        inbound.set_receive_maximum(1);
        for number in 1..=10 {
            publish(&mut inbound, ExactlyOnce, number, Ok(New));
            inbound.handle_disconnected();
        }
        assert_eq!(inbound.inflight(), 10);
    }

    #[test]
    fn restoring_knows_the_ids_and_nothing_else() {
        let mut inbound = Inbound::restore([id(9), id(4), id(9)]);
        assert_eq!(inbound.iter().collect::<Vec<_>>(), [id(4), id(9)]);
        publish(&mut inbound, ExactlyOnce, 9, Ok(Duplicate));
        publish(&mut inbound, ExactlyOnce, 5, Ok(New));
        assert!(!inbound.settle_doubt(id(9), false));
    }

    // [MQTT-3.3.1-1] [MQTT311-3.3.1-1]
    #[test]
    fn of_an_id_that_may_be_released_dup_tells_whether_a_message_is_new() {
        let mut inbound = Inbound::restore_doubted([id(4), id(9)]);
        publish(&mut inbound, ExactlyOnce, 4, Ok(Duplicate));
        assert!(!inbound.settle_doubt(id(4), true));
        // Now it is known that it was not.
        publish(&mut inbound, ExactlyOnce, 4, Ok(Duplicate));
        assert!(!inbound.settle_doubt(id(4), false));
        inbound.handle_disconnected();
        publish(&mut inbound, ExactlyOnce, 9, Ok(Duplicate));
        assert!(inbound.settle_doubt(id(9), false));
        publish(&mut inbound, ExactlyOnce, 9, Ok(InProgress));
        inbound.received(id(9));
        publish(&mut inbound, ExactlyOnce, 9, Ok(Duplicate));
        assert!(!inbound.settle_doubt(id(9), false));
        assert!(inbound.handle_pubrel(id(9)));
    }
}
