//! Packets of one connection that must not leave yet.
//!
//! ```text
//! hold(until, what) ---> packet ... packet ---> pop_ready ---> output
//!                        front: leaves when its own promise is true   back: asked last
//! ```
//!
//! They stand in the order in which they must leave: PUBACK and PUBREC [MQTT-4.6.0-2]
//! [MQTT-4.6.0-3], PUBREL [MQTT-4.6.0-4], PUBLISH [MQTT-4.6.0-5] [MQTT-4.6.0-6], and beside them
//! PUBCOMP and UNSUBACK, which need no order but lose nothing by one. A publisher's own copy of a
//! message stands behind its acknowledgement, whose place is reserved before the message is routed:
//! many client libraries expect that.
//!
//! In front of all stands a gate. CONNACK is written at once, and the whole output of its
//! connection stays behind the gate until its record is stored: what is sent again to a session
//! leaves after all that was asked for that session before.
//!
//! Deliberately absent: whether a promise is true, which is asked of [`CommitGate`]; SUBACK, which
//! waits for other shards as well and is here only with its bytes.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;
use unbroken_mqtt_proto::{Ack, Packet, PacketId, Properties, QoS, ReasonCode, UnsubAck};

use crate::durability::{CommitGate, WaitFor};
use crate::ids::StoreId;
use crate::message::Message;

#[derive(Debug)]
pub(crate) struct Pending {
    /// Nothing of the output leaves before this request is stored.
    gate: StoreId,
    /// In the order in which they must leave [MQTT-4.6.0-2, MQTT311-4.6.0-2]
    /// [MQTT-4.6.0-3, MQTT311-4.6.0-3].
    packets: VecDeque<PendingPacket>,
    /// Memory of these, and of the SUBACKs that wait.
    bytes: usize,
    /// What the client has sent is not looked at before these have left.
    answers_first: bool,
}

/// A packet that waits for something.
#[derive(Debug)]
pub(crate) struct PendingPacket {
    pub(crate) until: WaitFor,
    pub(crate) what: Outgoing,
}

#[derive(Debug)]
pub(crate) enum Outgoing {
    Answer(Answer),
    /// The place of an answer to a message that is being routed.
    Reserved,
    /// The message that was begun with this id and has not left.
    Publish(QoS, PacketId),
    /// A message of QoS 0. Its account has it when it leaves.
    Copy(Box<HeldCopy>),
}

/// A packet that answers one of the client's.
#[derive(Debug)]
pub(crate) enum Answer {
    PubAck(PacketId, ReasonCode),
    PubRec(PacketId, ReasonCode),
    PubRel(PacketId, ReasonCode),
    PubComp(PacketId, ReasonCode),
    UnsubAck(PacketId, Box<[u8]>),
}

/// One receiver's part of a message of QoS 0.
#[derive(Debug)]
pub(crate) struct HeldCopy {
    pub(crate) message: Arc<Message>,
    pub(crate) retain: bool,
    pub(crate) identifiers: SmallVec<[NonZeroU32; 1]>,
    /// The group that chose this session, as its filter is written.
    pub(crate) group: Option<Arc<str>>,
}

impl Pending {
    pub(super) const fn new() -> Self {
        Self {
            gate: StoreId::NOTHING,
            packets: VecDeque::new(),
            bytes: 0,
            answers_first: false,
        }
    }

    /// Memory of all that waits.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no packet waits.
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Lets nothing out before this request is stored.
    pub(super) fn close_gate(&mut self, until: StoreId) {
        self.gate = until;
    }

    pub(super) fn gate_open(&self, stored: StoreId) -> bool {
        self.gate <= stored
    }

    /// Whether all must leave before the client is read again.
    pub(super) const fn answers_first(&self) -> bool {
        self.answers_first
    }

    pub(super) fn answer_first(&mut self) {
        self.answers_first = true;
    }

    /// Whether the first packet waits for something that is not true.
    pub(super) fn front_waits(&self, gate: &CommitGate) -> bool {
        let front = self.packets.front();
        front.is_some_and(|held| !gate.is_met(held.until))
    }

    /// Whether any packet waits for something that is not true.
    pub(super) fn any_waits(&self, gate: &CommitGate) -> bool {
        let mut packets = self.packets.iter();
        packets.any(|held| !gate.is_met(held.until))
    }

    /// Puts a packet behind all others.
    pub(super) fn hold(&mut self, until: WaitFor, what: Outgoing) {
        let held = PendingPacket { until, what };
        self.bytes += held.cost();
        self.packets.push_back(held);
    }

    /// Keeps a place for the answer to a message that is about to be routed: what the routing
    /// brings to its own publisher stands behind it.
    pub(super) fn reserve(&mut self) {
        self.hold(WaitFor::stored(StoreId::NEVER), Outgoing::Reserved);
    }

    /// Puts the answer in the place that was reserved. Says whether it is the first of all; gives
    /// the answer back if no place was.
    pub(super) fn answer_reserved(
        &mut self,
        until: WaitFor,
        answer: Answer,
    ) -> Result<bool, Answer> {
        let is_reserved = |held: &PendingPacket| matches!(held.what, Outgoing::Reserved);
        // Few stand behind it: its own copies.
        let Some(at) = self.packets.iter().rposition(is_reserved) else {
            return Err(answer);
        };
        let what = Outgoing::Answer(answer);
        let held = PendingPacket { until, what };
        self.bytes += held.cost();
        let reserved = std::mem::replace(&mut self.packets[at], held);
        self.bytes -= reserved.cost();
        Ok(at == 0)
    }

    /// Takes the first packet if what it waits for is true. A message waits for room in the output
    /// as well.
    pub(super) fn pop_ready(
        &mut self,
        gate: &CommitGate,
        takes_messages: bool,
    ) -> Option<Outgoing> {
        let is_ready = |held: &mut PendingPacket| {
            gate.is_met(held.until) && (takes_messages || matches!(held.what, Outgoing::Answer(_)))
        };
        let held = self.packets.pop_front_if(is_ready)?;
        self.bytes -= held.cost();
        if self.packets.is_empty() {
            self.answers_first = false;
            if self.packets.capacity() > KEPT {
                self.packets = VecDeque::new();
            }
        }
        Some(held.what)
    }

    /// Takes all of them: the connection has gone.
    pub(super) fn take_all(&mut self) -> VecDeque<PendingPacket> {
        std::mem::take(&mut self.packets)
    }

    /// A SUBACK of so many bytes is about to wait.
    pub(super) fn burden(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// It waits no more.
    pub(super) fn unburden(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }
}

impl Answer {
    /// The message that it acknowledges, if it is the first answer to one.
    #[inline]
    pub(crate) fn acknowledged(&self) -> Option<PacketId> {
        match self {
            Self::PubAck(id, _) | Self::PubRec(id, _) => Some(*id),
            _ => None,
        }
    }

    pub(crate) fn packet(&self) -> Packet<'_> {
        // Under the id of what they answer [MQTT-2.2.1-5, MQTT311-2.3.1-6]
        // [MQTT-2.2.1-6, MQTT311-2.3.1-7], and without properties, so that none makes them too long
        // or is there although the client wants none [MQTT-3.1.2-29]:
        // [MQTT-3.4.2-2, MQTT-3.4.2-3, MQTT-3.5.2-2, MQTT-3.5.2-3]
        // [MQTT-3.6.2-2, MQTT-3.6.2-3, MQTT-3.7.2-2, MQTT-3.7.2-3]
        // [MQTT-3.11.2-1, MQTT-3.11.2-2]
        match self {
            Self::PubAck(id, reason) => Packet::PubAck(Ack::new(*id, *reason)),
            Self::PubRec(id, reason) => Packet::PubRec(Ack::new(*id, *reason)),
            Self::PubRel(id, reason) => Packet::PubRel(Ack::new(*id, *reason)),
            Self::PubComp(id, reason) => Packet::PubComp(Ack::new(*id, *reason)),
            Self::UnsubAck(id, codes) => Packet::UnsubAck(UnsubAck {
                packet_id: *id,
                properties: Properties::EMPTY,
                reasons: codes,
            }),
        }
    }
}

impl PendingPacket {
    /// What it counts towards `output_bytes_max` while it waits.
    fn cost(&self) -> usize {
        let beside = match &self.what {
            Outgoing::Answer(Answer::UnsubAck(_, codes)) => codes.len(),
            Outgoing::Copy(copy) => {
                let bytes = copy.message.publication().cost();
                size_of::<HeldCopy>() + usize::try_from(bytes).unwrap_or(usize::MAX)
            }
            _ => 0,
        };
        size_of::<Self>() + beside
    }
}

/// Room for so many packets stays with a connection for which nothing waits any more.
const KEPT: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShardId;
    use crate::limits::Limits;

    fn puback(id: PacketId) -> Answer {
        Answer::PubAck(id, ReasonCode::Success)
    }

    #[test]
    fn an_answer_leaves_in_the_place_that_was_reserved() {
        let gate = CommitGate::new(ShardId(0));
        let mut pending = Pending::new();
        pending.reserve();
        pending.hold(
            WaitFor::NOW,
            Outgoing::Publish(QoS::AtLeastOnce, PacketId::FIRST),
        );
        assert!(pending.pop_ready(&gate, true).is_none(), "it has no answer");
        assert!(pending.front_waits(&gate));
        let is_first = pending.answer_reserved(WaitFor::NOW, puback(PacketId::FIRST));
        assert!(is_first.is_ok_and(|is_first| is_first));
        let first = pending.pop_ready(&gate, true);
        assert!(matches!(first, Some(Outgoing::Answer(_))), "{first:?}");
        let second = pending.pop_ready(&gate, true);
        assert!(matches!(second, Some(Outgoing::Publish(..))), "{second:?}");
        assert_eq!(pending.bytes(), 0);
    }

    #[test]
    fn there_is_room_for_an_answer_to_each_packet_id_and_each_message_in_flight() {
        let limits = Limits::default();
        let packets = usize::from(u16::MAX) + usize::from(limits.inflight_max);
        assert!(packets * size_of::<PendingPacket>() < limits.output_bytes_max as usize);
    }

    #[test]
    fn a_message_waits_for_room_and_an_answer_does_not() {
        let gate = CommitGate::new(ShardId(0));
        let mut pending = Pending::new();
        pending.hold(WaitFor::NOW, Outgoing::Answer(puback(PacketId::FIRST)));
        let publish = Outgoing::Publish(QoS::AtLeastOnce, PacketId::FIRST);
        pending.hold(WaitFor::NOW, publish);
        assert!(pending.pop_ready(&gate, false).is_some());
        assert!(pending.pop_ready(&gate, false).is_none());
        assert!(pending.pop_ready(&gate, true).is_some());
    }

    #[test]
    fn without_a_place_an_answer_comes_back() {
        let mut pending = Pending::new();
        let answer = pending.answer_reserved(WaitFor::NOW, puback(PacketId::FIRST));
        assert!(matches!(answer, Err(Answer::PubAck(..))), "{answer:?}");
    }

    #[test]
    fn answers_come_first_until_nothing_waits() {
        let gate = CommitGate::new(ShardId(0));
        let mut pending = Pending::new();
        for _ in 0..2 {
            pending.hold(WaitFor::NOW, Outgoing::Answer(puback(PacketId::FIRST)));
        }
        pending.answer_first();
        assert!(pending.pop_ready(&gate, true).is_some());
        assert!(pending.answers_first());
        assert!(pending.pop_ready(&gate, true).is_some());
        assert!(!pending.answers_first());
    }
}
