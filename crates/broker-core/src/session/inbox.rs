//! Messages of QoS 2 from the client, between their arrival and their PUBREL.

use unbroken_mqtt_proto::PacketId;

use super::Session;
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
}
