//! SUBSCRIBE and UNSUBSCRIBE in the application's own words. They belong to one connection, and are
//! forgotten with their answer.

use std::sync::Arc;

use tokio::sync::oneshot;
use unbroken_mqtt_proto::{
    Packet, PacketId, PropertyBuf, ReasonCode, Subscribe, Subscriptions, TopicFilters, Unsubscribe,
};

use super::wire::Wire;
use crate::{Answer, Filter, SubscribeError};

/// A packet to be sent, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) asked: Asked,
    pub(crate) properties: PropertyBuf,
    pub(crate) reply: Answering,
}

/// What is asked of the broker.
#[derive(Debug)]
pub(crate) enum Asked {
    Subscribe(Vec<Filter>),
    Unsubscribe(Vec<Arc<str>>),
}

type Answering = oneshot::Sender<Result<Answer, SubscribeError>>;

/// The packets without an answer.
#[derive(Debug, Default)]
pub(super) struct Requests(Vec<(PacketId, Answering)>);

impl Requests {
    pub(super) fn is_used(&self, id: PacketId) -> bool {
        self.0.iter().any(|(used, _)| *used == id)
    }

    /// Sends a request with this packet id.
    pub(super) fn send(&mut self, id: PacketId, request: Request, wire: &mut Wire) {
        let properties = request.properties.as_properties();
        let sent = match &request.asked {
            Asked::Subscribe(filters) => {
                let filters: Vec<_> = filters
                    .iter()
                    .map(|filter| (&*filter.text, filter.options))
                    .collect();
                wire.put_if_taken(&Packet::Subscribe(Subscribe {
                    packet_id: id,
                    properties,
                    filters: Subscriptions::new(&filters),
                }))
            }
            Asked::Unsubscribe(filters) => {
                let filters: Vec<_> = filters.iter().map(|filter| &**filter).collect();
                wire.put_if_taken(&Packet::Unsubscribe(Unsubscribe {
                    packet_id: id,
                    properties,
                    filters: TopicFilters::new(&filters),
                }))
            }
        };
        match sent {
            Ok(()) => self.0.push((id, request.reply)),
            Err(why) => request.fail(why),
        }
    }

    /// Takes SUBACK or UNSUBACK; false: it answers something else. `unclaimed` messages came before
    /// it and wait.
    pub(super) fn handle_answer(&mut self, id: PacketId, reasons: &[u8], unclaimed: usize) -> bool {
        let Some(at) = self.0.iter().position(|(used, _)| *used == id) else {
            return false;
        };
        let (_, reply) = self.0.swap_remove(at);
        let reason =
            |code: &u8| ReasonCode::try_from(*code).unwrap_or(ReasonCode::UnspecifiedError);
        // The application may have stopped waiting.
        let _ = reply.send(Ok(Answer {
            reasons: reasons.iter().map(reason).collect(),
            unclaimed,
        }));
        true
    }

    pub(super) fn handle_disconnected(&mut self) {
        for (_, reply) in self.0.drain(..) {
            // The application may have stopped waiting.
            let _ = reply.send(Err(SubscribeError::NotAnswered));
        }
    }

    /// The client has ended. An application that waits takes the end of the channel for that.
    pub(super) fn end(&mut self) {
        self.0.clear();
    }
}

impl Request {
    pub(crate) fn fail(self, why: SubscribeError) {
        // The application may have stopped waiting.
        let _ = self.reply.send(Err(why));
    }
}
