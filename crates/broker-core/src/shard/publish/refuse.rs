//! A PUBLISH that is not taken in: what its client is answered, and whether its connection ends.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{PacketId, Publish, ReasonCode};

use super::Outcome;
use crate::connection::Connection;
use crate::delivery::Item;
use crate::ids::{ConnectionId, SessionId};
use crate::limits::DeniedPublish;
use crate::reason::{DropReason, Fault};
use crate::shard::{Shard, store};

impl Shard {
    /// A publisher before 5.0 cannot be told: without an acknowledgement it keeps its message, and
    /// sends it again when it has connected again [MQTT311-4.8.0-2].
    #[cold]
    pub(super) fn refuse_publish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        item: &Item<'_>,
        publish: &Publish<'_>,
        Refusal { why, full }: &Refusal,
    ) -> Result<Outcome, Fault> {
        let until = item.until;
        if *why == DropReason::NotAuthorized {
            // Answered before 5.0, too, since its client would send it again.
            self.auditor(now)
                .name_other_user(session_id, &item.publication);
            self.drop_denied(now, session_id, &item.publication);
            if let Some(fault) = self.above_announced(id, publish) {
                self.forget_arrival(session_id, publish.packet_id);
                return Err(fault);
            }
            return Ok(Outcome {
                reason: ReasonCode::NotAuthorized,
                until,
                is_last: self.options.limits.denied_publish == DeniedPublish::Disconnect,
            });
        }
        self.auditor(now)
            .note_refused(session_id, &item.publication, *why);
        self.deliverer(now)
            .drop_for(session_id, &item.publication, *why, full.as_ref());
        let (reason, detail) = refused(*why);
        if self.expressible(id, reason) == reason {
            return Ok(Outcome {
                reason,
                until,
                is_last: false,
            });
        }
        // It is not here: when it comes again it is new.
        self.forget_arrival(session_id, publish.packet_id);
        Err(Fault::new(reason, detail))
    }

    /// Whether this client will be disconnected for what it publishes, and is owed answers to what
    /// it published before. Without them it would send all of that again, be refused again, and
    /// everybody else would get it once more each time.
    pub(super) fn must_answer_first(
        &self,
        id: ConnectionId,
        publish: &Publish<'_>,
        why: DropReason,
    ) -> bool {
        let connection = self.connections.get(id);
        let ends = |connection: &Connection| match why {
            // Answers of a store that has failed never come.
            DropReason::StoreFailed => false,
            DropReason::NotAuthorized => {
                let ends = self.options.limits.denied_publish == DeniedPublish::Disconnect;
                (ends || self.above_announced(id, publish).is_some()) && !self.gate.has_failed()
            }
            _ => !connection.version().has_properties(),
        };
        connection.is_some_and(|connection| ends(connection) && !connection.holds_nothing())
    }

    /// The fault of a message that is above what its client was told in CONNACK, if it is
    /// [MQTT-3.2.2-11] [MQTT-3.2.2-14]. One that comes with DUP was sent before its client was told
    /// so, and has to be sent again [MQTT-4.4.0-1]: it is only refused.
    #[cold]
    fn above_announced(&self, id: ConnectionId, publish: &Publish<'_>) -> Option<Fault> {
        let announced = self.connections.get(id)?.announced();
        let denial = announced.denial(publish.qos, publish.retain)?;
        (!publish.dup).then(|| Fault::new(denial.code(), denial.detail()))
    }

    /// The packet is looked at again: then it is new.
    pub(super) fn forget_arrival(&mut self, session_id: SessionId, packet_id: Option<PacketId>) {
        if let Some(packet_id) = packet_id
            && let Some(session) = self.sessions.get_mut(session_id)
        {
            session.inbound.acknowledged(packet_id);
        }
    }

    /// The packet is looked at again when everything before it has been answered.
    #[cold]
    pub(super) fn put_back(
        &mut self,
        id: ConnectionId,
        session_id: SessionId,
        packet_id: Option<PacketId>,
    ) {
        self.forget_arrival(session_id, packet_id);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.answer_first();
        }
    }
}

/// Why a message is not taken in.
pub(super) struct Refusal {
    pub(super) why: DropReason,
    /// The session that is full, or the share that is used up, if it is that.
    pub(super) full: Option<Arc<str>>,
}

/// Why the connection of a client ends that has published what it may not.
#[cold]
pub(super) fn denied() -> Fault {
    let detail = "it published what it may not (mqtt.on_denied_publish = \"disconnect\")";
    Fault::new(ReasonCode::NotAuthorized, detail)
}

/// What a publisher is answered whose message is not taken in, and why in words.
fn refused(why: DropReason) -> (ReasonCode, &'static str) {
    match why {
        DropReason::StoreFailed => (store::REFUSED, store::DETAIL),
        DropReason::QueueFull => (
            ReasonCode::QuotaExceeded,
            "a session that would have to keep it is at limits.queue_messages_max or \
             queue_bytes_max",
        ),
        DropReason::RetainedFull => (
            ReasonCode::QuotaExceeded,
            "limits.retained_messages_max or retained_bytes_max is reached, or the share of its \
             client or address",
        ),
        _ => (
            ReasonCode::QuotaExceeded,
            "limits.store_bytes_max is reached, or the disk has no room for more",
        ),
    }
}
