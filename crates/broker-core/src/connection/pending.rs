//! Packets of a connection that must not leave yet.

use unbroken_mqtt_proto::{PacketId, QoS, ReasonCode};

use crate::durability::Until;
use crate::option_box::OptionBox;
use crate::session::{Delivery, Session};

/// A packet that waits for something.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) until: Until,
    pub(crate) what: Leaving,
}

#[derive(Debug)]
pub(crate) enum Leaving {
    Answer(Answer),
    /// The place of an answer to a message that is being routed.
    Reserved,
    /// The message that was begun with this id and has not left.
    Publish(QoS, PacketId),
    /// A message of QoS 0. Its account has it when it leaves.
    Copy(Box<Delivery>),
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

impl Held {
    pub(crate) fn until(&self) -> Until {
        self.until
    }

    /// What it counts towards `output_bytes_max` while it waits.
    pub(crate) fn cost(&self) -> usize {
        let beside = match &self.what {
            Leaving::Answer(Answer::UnsubAck(_, codes)) => codes.len(),
            Leaving::Copy(delivery) => {
                let bytes = delivery.message.publication().cost();
                size_of::<Delivery>() + usize::try_from(bytes).unwrap_or(usize::MAX)
            }
            _ => 0,
        };
        size_of::<Self>() + beside
    }
}

/// The connection of a session has gone with packets that had to wait. Answers the messages of QoS 0
/// among them.
pub(crate) fn keep_unanswered(
    held: impl IntoIterator<Item = Held>,
    session: &mut Session,
) -> Vec<Delivery> {
    let mut copies = Vec::new();
    for Held { until, what } in held {
        match what {
            Leaving::Answer(Answer::PubRec(id, reason)) if reason.is_error() => {
                session.inbound.acknowledged(id);
            }
            Leaving::Answer(Answer::PubRec(id, _)) => {
                session.unanswered.get_or_insert_default().push((id, until));
            }
            Leaving::Copy(delivery) => copies.push(*delivery),
            // What other answers are for comes again, as new, or is sent again by what is in
            // flight; of messages the session knows.
            Leaving::Answer(_) | Leaving::Publish(..) | Leaving::Reserved => {}
        }
    }
    session.unsent = 0;
    // They are sent with what is sent again.
    if let Some(kept) = session.kept.as_deref_mut() {
        kept.ahead = OptionBox::default();
    }
    copies
}
