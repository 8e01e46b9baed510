//! Our messages, from the wish to the acknowledgement, over any number of connections.
//!
//! Invariants: messages of QoS 1 and 2 leave in the order of the wishes, those that were under way
//! first; each wish is answered once; while there is no connection every message waits, while there
//! is one only those that the broker's window does not admit.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use unbroken_mqtt_proto::session::{AckError, Outbound, PubRec, Resend};
use unbroken_mqtt_proto::{Ack, PacketId, QoS, ReasonCode};

use super::wire::Wire;
use crate::{Acknowledged, ConnectError, Message, PublishError};

/// A message, and who waits for its acknowledgement.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    reply: Reply,
    /// A broker may have had it.
    begun: bool,
}

/// The place of an unfinished message, and where its end is reported.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Its own.
    Own {
        answer: oneshot::Sender<Result<Acknowledged, PublishError>>,
        _slot: OwnedSemaphorePermit,
    },
    /// It is one of a batch.
    OfBatch(Arc<Batch>),
}

/// Messages with one answer: their failures, when the last of them is finished.
#[derive(Debug)]
pub(crate) struct Batch {
    messages: usize,
    finished: AtomicUsize,
    failures: Mutex<Vec<PublishError>>,
    /// Given when the last message has gone.
    answer: Option<oneshot::Sender<Vec<PublishError>>>,
    _slots: OwnedSemaphorePermit,
}

pub(super) struct Sending {
    outbound: Outbound<Outgoing>,
    /// Messages that the window does not admit yet. No other packet waits for it [MQTT-3.3.4-8].
    waiting: VecDeque<Outgoing>,
    /// Messages of QoS 2 that the broker has taken over, until PUBCOMP.
    completing: HashMap<PacketId, (Reply, Acknowledged)>,
    last_id: PacketId,
}

impl Outgoing {
    pub(crate) fn new(message: Message, reply: Reply) -> Self {
        Self {
            message,
            reply,
            begun: false,
        }
    }

    pub(crate) fn fail(self, why: PublishError) {
        self.reply.give(Err(why));
    }
}

impl Reply {
    pub(crate) fn new(
        answer: oneshot::Sender<Result<Acknowledged, PublishError>>,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        Self::Own {
            answer,
            _slot: slot,
        }
    }

    fn give(self, result: Result<Acknowledged, PublishError>) {
        match self {
            Self::Own { answer, .. } => {
                // The application may have stopped waiting.
                let _ = answer.send(result);
            }
            Self::OfBatch(batch) => batch.finish(1, result.err()),
        }
    }
}

impl Batch {
    pub(crate) fn new(
        messages: usize,
        answer: oneshot::Sender<Vec<PublishError>>,
        slots: OwnedSemaphorePermit,
    ) -> Arc<Self> {
        Arc::new(Self {
            messages,
            finished: AtomicUsize::new(0),
            failures: Mutex::default(),
            answer: Some(answer),
            _slots: slots,
        })
    }

    /// All of its messages came too late.
    pub(crate) fn fail(&self, why: &ConnectError) {
        self.finish(self.messages, Some(PublishError::Ended(why.clone())));
    }

    fn finish(&self, messages: usize, failure: Option<PublishError>) {
        self.finished.fetch_add(messages, Ordering::Relaxed);
        if let Some(failure) = failure {
            // Only `push` runs under the lock.
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.push(failure);
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // Otherwise the client's task was ended under it, and nothing is known.
        if *self.finished.get_mut() == self.messages
            && let Some(answer) = self.answer.take()
        {
            let failures = self
                .failures
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            // The application may have stopped waiting.
            let _ = answer.send(std::mem::take(failures));
        }
    }
}

impl Sending {
    pub(super) fn new() -> Self {
        Self {
            outbound: Outbound::new(),
            waiting: VecDeque::new(),
            completing: HashMap::new(),
            last_id: PacketId::FIRST,
        }
    }

    /// A new message; `wire` is the connection, if there is one.
    pub(super) fn handle_publish_request(&mut self, outgoing: Outgoing, wire: Option<&mut Wire>) {
        match wire {
            Some(wire) if outgoing.message.qos == QoS::AtMostOnce => send_once(outgoing, wire),
            Some(wire) => {
                self.waiting.push_back(outgoing);
                self.send_waiting(wire);
            }
            None => self.waiting.push_back(outgoing),
        }
    }

    /// New messages, in their order.
    pub(super) fn handle_batch(
        &mut self,
        messages: Vec<Message>,
        batch: &Arc<Batch>,
        mut wire: Option<&mut Wire>,
    ) {
        let mut sent = 0;
        for message in messages {
            match &mut wire {
                Some(wire) if message.qos == QoS::AtMostOnce => {
                    match wire.publish(&message, None, false, false) {
                        Ok(()) => sent += 1,
                        Err(why) => batch.finish(1, Some(why)),
                    }
                }
                _ => {
                    let reply = Reply::OfBatch(Arc::clone(batch));
                    self.waiting.push_back(Outgoing::new(message, reply));
                }
            }
        }
        batch.finish(sent, None);
        if let Some(wire) = wire {
            self.send_waiting(wire);
        }
    }

    /// CONNACK said yes: what was unfinished is sent again, as new if the broker has lost the
    /// session.
    ///
    /// [MQTT-3.2.2-5, MQTT-4.4.0-1, MQTT311-4.4.0-1]
    pub(super) fn handle_connected(
        &mut self,
        session_present: bool,
        receive_maximum: u16,
        wire: &mut Wire,
    ) {
        self.outbound.set_receive_maximum(receive_maximum);
        if !session_present {
            let left: Vec<_> = self.outbound.drain().collect();
            for drained in left.into_iter().rev() {
                let mut outgoing = drained.message;
                outgoing.begun |= drained.sent;
                self.waiting.push_front(outgoing);
            }
            // The broker had taken them over.
            for (_, (reply, acknowledged)) in self.completing.drain() {
                reply.give(Ok(acknowledged));
            }
        }
        let (once, rest): (VecDeque<_>, _) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|outgoing| outgoing.message.qos == QoS::AtMostOnce);
        self.waiting = rest;
        self.send_waiting(wire);
        for outgoing in once {
            send_once(outgoing, wire);
        }
    }

    pub(super) fn handle_disconnected(&mut self) {
        self.outbound.handle_disconnected();
    }

    pub(super) fn handle_puback(&mut self, ack: &Ack<'_>, wire: &mut Wire) -> Result<(), AckError> {
        match self.outbound.handle_puback(ack.packet_id) {
            Ok(outgoing) => finish(outgoing, ack),
            // An answer to what an earlier connection carried.
            Err(AckError::Unknown) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.send_waiting(wire);
        Ok(())
    }

    pub(super) fn handle_pubrec(&mut self, ack: &Ack<'_>, wire: &mut Wire) -> Result<(), AckError> {
        let id = ack.packet_id;
        match self.outbound.handle_pubrec(id, ack.reason.is_error()) {
            Ok(PubRec::SendPubRel(taken)) => {
                if let Some(outgoing) = taken {
                    let acknowledged = Acknowledged::of(QoS::ExactlyOnce, has_subscribers(ack));
                    self.completing.insert(id, (outgoing.reply, acknowledged));
                }
                wire.release(id, ReasonCode::Success);
            }
            Ok(PubRec::Ended(outgoing)) => {
                finish(outgoing, ack);
                self.send_waiting(wire);
            }
            // [MQTT-4.3.3-4] as the standard asks for an id that is not known.
            Err(AckError::Unknown) => wire.release(id, ReasonCode::PacketIdentifierNotFound),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(super) fn handle_pubcomp(
        &mut self,
        ack: &Ack<'_>,
        wire: &mut Wire,
    ) -> Result<(), AckError> {
        match self.outbound.handle_pubcomp(ack.packet_id) {
            Ok(()) | Err(AckError::Unknown) => {}
            Err(error) => return Err(error),
        }
        if let Some((reply, acknowledged)) = self.completing.remove(&ack.packet_id) {
            reply.give(Ok(acknowledged));
        }
        self.send_waiting(wire);
        Ok(())
    }

    pub(super) fn end(&mut self, why: &ConnectError) {
        let unfinished = self.outbound.drain().map(|drained| drained.message);
        let unfinished: Vec<_> = unfinished.chain(self.waiting.drain(..)).collect();
        for outgoing in unfinished {
            outgoing.fail(PublishError::Ended(why.clone()));
        }
        for (_, (reply, acknowledged)) in self.completing.drain() {
            reply.give(Ok(acknowledged));
        }
    }

    /// A packet id for SUBSCRIBE or UNSUBSCRIBE: down from the top of the half that messages do not
    /// come to soon, and none that is in use, here or in `others`.
    ///
    /// [MQTT-2.2.1-3, MQTT311-2.3.1-2]
    pub(super) fn control_id(&self, others: impl Fn(PacketId) -> bool) -> PacketId {
        use unbroken_mqtt_proto::session::Entry;
        let is_used = |id: PacketId| {
            let mut entries = self.outbound.iter();
            others(id)
                || entries.any(|entry| match entry {
                    Entry::Publish { id: used, .. } | Entry::PubRel { id: used } => used == id,
                })
        };
        let top = if self.last_id.get() < 1 << 15 {
            u16::MAX
        } else {
            (1 << 15) - 1
        };
        let mut ids = (1..=top).rev().filter_map(PacketId::new);
        let free = ids.find(|id| !is_used(*id));
        free.unwrap_or(PacketId::FIRST)
    }

    fn send_waiting(&mut self, wire: &mut Wire) {
        let mut given_up = Vec::new();
        while let Some(resend) = self.outbound.poll_resend() {
            match resend {
                Resend::Publish {
                    id, dup, message, ..
                } => {
                    let again = dup || message.begun;
                    if let Err(why) = wire.publish(&message.message, Some(id), dup, again) {
                        given_up.push((id, dup, why));
                    }
                }
                Resend::PubRel { id } => wire.release(id, ReasonCode::Success),
            }
        }
        while self.outbound.window_open() {
            let Some(outgoing) = self.waiting.pop_front() else {
                break;
            };
            match self.outbound.begin(outgoing.message.qos, outgoing) {
                Ok(id) => {
                    self.last_id = id;
                    let begun = self.outbound.message(id);
                    let outgoing = begun.expect("it was begun with this id just now");
                    let sent = wire.publish(&outgoing.message, Some(id), false, outgoing.begun);
                    if let Err(why) = sent
                        && let Some(outgoing) = self.outbound.forget(id)
                    {
                        outgoing.fail(why);
                    }
                }
                Err(outgoing) => {
                    self.waiting.push_front(outgoing);
                    break;
                }
            }
        }
        if given_up.is_empty() {
            return;
        }
        for (id, was_sent, why) in given_up {
            // The server may have one of QoS 2, and would take another with its id for that.
            let let_go = was_sent.then(|| self.outbound.let_go(id)).flatten();
            if let_go.is_some() {
                wire.release(id, ReasonCode::Success);
            }
            if let Some(outgoing) = let_go.or_else(|| self.outbound.forget(id)) {
                outgoing.fail(why);
            }
        }
        // There may be room again. Each round gives up at least one message.
        self.send_waiting(wire);
    }
}

fn send_once(outgoing: Outgoing, wire: &mut Wire) {
    let sent = wire.publish(&outgoing.message, None, false, false);
    outgoing.reply.give(sent.map(|()| Acknowledged::Sent));
}

fn finish(outgoing: Outgoing, ack: &Ack<'_>) {
    let qos = outgoing.message.qos;
    let result = if ack.reason.is_error() {
        Err(PublishError::Refused {
            topic: Arc::clone(&outgoing.message.topic),
            packet_id: ack.packet_id,
            reason: ack.reason,
            text: ack.properties.reason_string().map(Arc::from),
        })
    } else {
        Ok(Acknowledged::of(qos, has_subscribers(ack)))
    };
    outgoing.reply.give(result);
}

fn has_subscribers(ack: &Ack<'_>) -> bool {
    ack.reason != ReasonCode::NoMatchingSubscribers
}
