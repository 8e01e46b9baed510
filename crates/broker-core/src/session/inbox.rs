//! Messages of QoS 2 from the client, between their arrival and their PUBREL.

use unbroken_mqtt_proto::PacketId;

use super::Session;
use crate::connection::{Answer, HeldCopy, Outgoing, PendingPacket};
use crate::durability::{CommitGate, Record, WaitFor};
use crate::ids::{SessionId, StoreId};

impl Session {
    /// The exchange under this id is over: asks for the id to be free on disk.
    pub(crate) fn release(
        &mut self,
        id: SessionId,
        gate: &mut CommitGate,
        packet_id: PacketId,
    ) -> StoreId {
        self.unanswered.clear_if(|unanswered| {
            unanswered.retain(|(id, _)| *id != packet_id);
            unanswered.is_empty()
        });
        gate.qos2_pending_mut().release(id, packet_id);
        self.persist(gate, |client_id| Record::Released {
            client_id,
            packet_id,
        })
    }

    /// The connection has gone while PUBREC waited for this.
    pub(crate) fn defer_pubrec(&mut self, packet_id: PacketId, until: WaitFor) {
        let unanswered = self.unanswered.get_or_insert_default();
        unanswered.push((packet_id, until));
    }

    /// What PUBREC still waits for, of a message that came over an earlier connection.
    #[cold]
    pub(crate) fn deferred_pubrec(&mut self, gate: &CommitGate, packet_id: PacketId) -> WaitFor {
        let Some(unanswered) = self.unanswered.get_mut() else {
            return WaitFor::NOW;
        };
        let Some(at) = unanswered.iter().position(|(id, _)| *id == packet_id) else {
            return WaitFor::NOW;
        };
        let (_, until) = unanswered.swap_remove(at);
        self.unanswered.clear_if(|unanswered| unanswered.is_empty());
        gate.still_open(until)
    }

    /// The connection has gone with packets that had to wait. Answers the messages of QoS 0 among
    /// them.
    pub(crate) fn keep_unanswered(
        &mut self,
        held: impl IntoIterator<Item = PendingPacket>,
    ) -> Vec<HeldCopy> {
        let mut copies = Vec::new();
        for PendingPacket { until, what } in held {
            match what {
                Outgoing::Answer(Answer::PubRec(id, reason)) if reason.is_error() => {
                    self.inbound.acknowledged(id);
                }
                Outgoing::Answer(Answer::PubRec(id, _)) => self.defer_pubrec(id, until),
                Outgoing::Copy(copy) => copies.push(*copy),
                // What other answers are for comes again, as new, or is sent again by what is in
                // flight; of messages the session knows.
                Outgoing::Answer(_) | Outgoing::Publish(..) | Outgoing::Reserved => {}
            }
        }
        // They are sent with what is sent again.
        self.forget_held();
        copies
    }
}
