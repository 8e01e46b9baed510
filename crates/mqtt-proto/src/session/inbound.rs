//! Messages that the other side has begun to send here: who counts against our Receive Maximum, and
//! which QoS 2 messages are here already.
//!
//! ```text
//!             PUBLISH QoS 1         acknowledged (PUBACK sent)
//!   (unknown) -----------> AtLeastOnce ---------------------------------------> (unknown)
//!             PUBLISH QoS 2         received (PUBREC sent)             PUBREL
//!   (unknown) -----------> Arrived ---------------------> Received -----------> (unknown)
//!                             |     acknowledged (PUBREC >= 0x80 sent)             ^
//!                             +----------------------------------------------------+
//! ```
//!
//! Invariants:
//! - From its arrival until PUBREL, a QoS 2 id is remembered: its repetitions are answered and not
//!   delivered again `[MQTT-4.3.3-10]`, also over reconnects. After PUBREL the same id is a new message
//!   `[MQTT-4.3.3-11]`.
//! - At most Receive Maximum ids are remembered `[MQTT-3.3.4-7]`, so memory is bounded by what we announced.
//!
//! What a durable session must have on disk before something leaves: the id of a QoS 2 message, with
//! the message, before PUBREC; that the id is forgotten, before PUBCOMP. [`iter`](Inbound::iter) gives
//! the ids, [`restore`](Inbound::restore) takes them back.

use std::collections::VecDeque;
use std::fmt;

use crate::{PacketId, QoS};

/// The packet ids in use by the other side in one session.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// Sorted by id. Clients count upwards, so entries come at the back and leave at the front.
    entries: VecDeque<(PacketId, Stage)>,
    receive_maximum: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    AtLeastOnce,
    Arrived,
    Received,
}

impl Inbound {
    /// For a new session.
    pub const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            receive_maximum: u16::MAX,
        }
    }

    /// For a session read from disk: the QoS 2 ids whose PUBREL has not come, in any order.
    pub fn restore(ids: impl IntoIterator<Item = PacketId>) -> Self {
        let mut entries: Vec<_> = ids.into_iter().map(|id| (id, Stage::Received)).collect();
        entries.sort_unstable_by_key(|&(id, _)| id);
        entries.dedup();
        Self {
            entries: entries.into(),
            ..Self::new()
        }
    }

    /// What we announced for this connection; the default otherwise, and for 3.x.
    pub fn set_receive_maximum(&mut self, receive_maximum: u16) {
        self.receive_maximum = receive_maximum;
    }

    /// Messages that are not acknowledged.
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
        match self.position(id) {
            Ok(at) => Ok(self.repeated(at, stage)),
            Err(_) if self.entries.len() >= usize::from(self.receive_maximum) => {
                Err(ReceiveMaximumExceeded {
                    receive_maximum: self.receive_maximum,
                })
            }
            Err(at) => {
                self.entries.insert(at, (id, stage));
                Ok(Arrival::New)
            }
        }
    }

    /// PUBREC without an error was sent; from now on a repetition gets one at once.
    pub fn received(&mut self, id: PacketId) {
        if let Ok(at) = self.position(id)
            && let Some((_, stage @ Stage::Arrived)) = self.entries.get_mut(at)
        {
            *stage = Stage::Received;
        }
    }

    /// PUBACK, or PUBREC with an error, was sent: the id is free.
    pub fn acknowledged(&mut self, id: PacketId) {
        self.forget(id);
    }

    /// PUBREL: the id is free, PUBCOMP is due. False: it was not in use (0x92 in 5.0); PUBCOMP is due all the same.
    pub fn handle_pubrel(&mut self, id: PacketId) -> bool {
        match self.position(id).ok().and_then(|at| self.entries.get(at)) {
            Some((_, Stage::Arrived | Stage::Received)) => {
                self.forget(id);
                true
            }
            Some((_, Stage::AtLeastOnce)) | None => false,
        }
    }

    /// The connection ended. QoS 1 messages without an answer will come again as new ones; QoS 2
    /// messages are here, and will be answered when they come again.
    pub fn handle_disconnected(&mut self) {
        self.entries.retain_mut(|(_, stage)| match stage {
            Stage::AtLeastOnce => false,
            Stage::Arrived | Stage::Received => {
                *stage = Stage::Received;
                true
            }
        });
        self.entries.shrink_to_fit();
    }

    /// The QoS 2 ids whose PUBREL has not come.
    pub fn iter(&self) -> impl Iterator<Item = PacketId> {
        self.entries
            .iter()
            .filter(|(_, stage)| !matches!(stage, Stage::AtLeastOnce))
            .map(|&(id, _)| id)
    }

    /// A PUBLISH with an id that is in use.
    fn repeated(&mut self, at: usize, stage: Stage) -> Arrival {
        let Some((_, known)) = self.entries.get_mut(at) else {
            return Arrival::New;
        };
        match (*known, stage) {
            (Stage::Received, Stage::Arrived) => Arrival::Duplicate,
            (Stage::Arrived, Stage::Arrived) => Arrival::InProgress,
            // QoS 1 may arrive any number of times. Another QoS than before breaks [MQTT-2.2.1-3];
            // the sender has given up the older message, as it has no id of its own any more.
            _ => {
                *known = stage;
                Arrival::New
            }
        }
    }

    fn forget(&mut self, id: PacketId) {
        if let Ok(at) = self.position(id) {
            self.entries.remove(at);
        }
    }

    fn position(&self, id: PacketId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |&(known, _)| known)
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
    /// Deliver it, then answer: [`Inbound::acknowledged`] or [`Inbound::received`].
    New,
    /// It is here and was answered: answer again with PUBREC, do not deliver.
    Duplicate,
    /// It is here and its answer is still to come: do nothing.
    InProgress,
}

/// The other side has more messages unacknowledged than we said we take: DISCONNECT with 0x93.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveMaximumExceeded {
    /// What we announced.
    pub receive_maximum: u16,
}

impl fmt::Display for ReceiveMaximumExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "more than {} messages without an acknowledgement",
            self.receive_maximum
        )
    }
}

impl std::error::Error for ReceiveMaximumExceeded {}
