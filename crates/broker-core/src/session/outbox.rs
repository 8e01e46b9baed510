//! Messages on their way to one session: in flight, and those that wait behind them.
//!
//! ```text
//! push ---> queue ---> pop ---> begin:      in flight, sent
//!                               begin_held: in flight, held until its id is stored ---> mark_sent
//! ```
//!
//! Invariants:
//! - The bytes in flight and in the queue are the sums of what the messages there cost. A message
//!   that PUBREC has ended is none in flight.
//! - `unsent` counts what is held for the connection, with a place in the window.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;
use unbroken_mqtt_proto::session::{
    AckError, Drained, DuplicateId, Entry as InFlight, Outbound, PubRec, Resend, Start,
};
use unbroken_mqtt_proto::{PacketId, QoS};

use super::Session;
use crate::audit::account::Counting;
use crate::audit::finding::Findings;
use crate::audit::receipt::News;
use crate::durability::Entry;
use crate::ids::StoreId;
use crate::limits::Limits;
use crate::message::Message;
use crate::option_box::OptionBox;

/// A message on its way to one session.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) message: Arc<Message>,
    /// The flag to send.
    pub(crate) retain: bool,
    pub(crate) identifiers: Identifiers,
    /// The group that chose this session, if one did, as its filter is written: it gets the message
    /// back if the session ends first.
    pub(crate) group: Option<Arc<str>>,
    /// Among those that its session has accepted.
    pub(crate) number: u64,
    pub(crate) counting: Counting,
    /// What becomes of it is to be told.
    pub(crate) tracked: bool,
    /// It may have been sent before the broker was started, and the disk was not yet told.
    pub(crate) again: bool,
    /// Its number among the session's entries on disk while it has no packet id; 0 if it is none.
    pub(crate) entry: u64,
}

/// The subscription identifiers a copy carries.
pub(crate) type Identifiers = SmallVec<[NonZeroU32; 1]>;

impl Delivery {
    /// What it costs a queue.
    #[inline]
    pub(crate) fn cost(&self) -> u64 {
        self.message.publication().cost()
    }

    /// What became known of it, if its message is followed.
    #[inline]
    pub(crate) fn news(&self, news: News, findings: &mut Findings) {
        if self.tracked
            && let Some(mark) = self.message.publication().mark
            && let Some(publisher) = self.message.publisher()
        {
            findings.news(
                &mark,
                publisher,
                news.of(self.counting, self.group.is_some()),
            );
        }
    }

    /// As the disk has it.
    pub(crate) fn restore(entry: &Entry) -> Self {
        Self {
            message: Arc::clone(&entry.message),
            retain: entry.retain,
            identifiers: Identifiers::from_slice(&entry.identifiers),
            group: entry.group.clone(),
            number: 0,
            counting: Counting::Shown,
            tracked: false,
            again: false,
            entry: if entry.by_group { entry.number } else { 0 },
        }
    }

    /// As it is put on disk.
    pub(crate) fn to_entry(&self, number: u64, packet_id: Option<PacketId>, qos: QoS) -> Entry {
        Entry {
            number,
            packet_id,
            qos,
            message: Arc::clone(&self.message),
            retain: self.retain,
            identifiers: self.identifiers.to_vec(),
            by_group: self.group.is_some() || self.entry > 0,
            group: self.group.clone(),
        }
    }
}

/// What is on its way to one client.
#[derive(Debug)]
pub(crate) struct Outbox {
    in_flight: Outbound<Delivery>,
    /// Of the messages in flight, those that are held: until their id is stored, or behind answers.
    unsent: u32,
    inflight_bytes: u64,
    /// QoS 1 and 2 messages that the window or a slow connection does not let out yet. In order.
    queue: VecDeque<(QoS, Delivery)>,
    queue_bytes: u64,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            in_flight: Outbound::new(),
            unsent: 0,
            inflight_bytes: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
        }
    }

    /// What an earlier run had in flight; what waited is in the queue already.
    pub(crate) fn restore(
        &mut self,
        in_flight: Vec<InFlight<Delivery>>,
    ) -> Result<(), DuplicateId> {
        let bytes = in_flight.iter().map(|entry| match entry {
            InFlight::Publish { message, .. } => message.cost(),
            InFlight::PubRel { .. } => 0,
        });
        self.inflight_bytes = bytes.sum();
        self.in_flight = Outbound::restore(in_flight)?;
        Ok(())
    }

    /// The packet id that was given last, of those in use.
    pub(crate) fn newest(&self) -> Option<PacketId> {
        self.in_flight.newest()
    }

    /// Packet ids go on behind this number.
    pub(crate) fn go_on_behind(&mut self, number: u16) {
        self.in_flight.go_on_behind(number);
    }

    /// Takes everything, and whether it was sent: the session has ended.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (QoS, bool, Delivery)> + '_ {
        (self.inflight_bytes, self.queue_bytes) = (0, 0);
        let in_flight = self.in_flight.drain();
        let in_flight = in_flight.map(|Drained { qos, sent, message }| (qos, sent, message));
        let waiting = self.queue.drain(..);
        in_flight.chain(waiting.map(|(qos, delivery)| (qos, false, delivery)))
    }

    /// All deliveries, those in flight first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Delivery> {
        let in_flight = self.in_flight().map(|(_, _, delivery)| delivery);
        in_flight.chain(self.queued())
    }
}

/// The window.
impl Outbox {
    /// Whether another message may be in flight [MQTT-3.3.4-9]. They may have as many bytes as the
    /// queue: a large window for small messages is not one for large ones.
    #[inline]
    pub(crate) fn window_open(&self, limits: &Limits) -> bool {
        self.in_flight.window_open() && self.has_room_in_flight(limits)
    }

    /// Whether the bytes in flight let another message be there.
    pub(super) fn has_room_in_flight(&self, limits: &Limits) -> bool {
        self.inflight_bytes < limits.queue_bytes_max
    }

    /// As the client says.
    pub(crate) fn set_receive_maximum(&mut self, receive_maximum: u16) {
        self.in_flight.set_receive_maximum(receive_maximum);
    }

    /// So many messages may be in flight now.
    pub(super) fn window(&self) -> u16 {
        self.in_flight.window()
    }

    /// A connection begins with a window of so many, at most, which grows.
    pub(crate) fn begin_narrow(&mut self, window: u16) {
        self.in_flight.begin_narrow(window);
    }

    /// Whether the window may still grow.
    #[inline]
    pub(super) fn is_narrow(&self) -> bool {
        self.in_flight.is_narrow()
    }

    /// One more may be in flight.
    pub(super) fn widen(&mut self) {
        self.in_flight.widen();
    }

    /// Its connection has gone: what was sent is sent again over the next.
    pub(crate) fn handle_disconnected(&mut self) {
        self.in_flight.handle_disconnected();
    }

    /// Whether something is still to be sent again.
    #[inline]
    pub(crate) fn resending(&self) -> bool {
        self.in_flight.resending()
    }

    /// The next that is to be sent again.
    pub(crate) fn poll_resend(&mut self) -> Option<Resend<'_, Delivery>> {
        self.in_flight.poll_resend()
    }
}

/// In flight.
impl Outbox {
    /// Gives a message its packet id; it is sent at once. It comes back if there is no id.
    #[inline]
    pub(crate) fn begin(&mut self, qos: QoS, delivery: Delivery) -> Result<PacketId, Delivery> {
        let cost = delivery.cost();
        let packet_id = self.in_flight.begin(qos, delivery)?;
        self.inflight_bytes += cost;
        Ok(packet_id)
    }

    /// The same of one that is to be sent later. `is_ahead`: when the window has a place.
    fn begin_held(
        &mut self,
        qos: QoS,
        delivery: Delivery,
        is_ahead: bool,
    ) -> Result<PacketId, Delivery> {
        let cost = delivery.cost();
        let packet_id = if is_ahead {
            self.in_flight.begin_ahead(qos, delivery)
        } else {
            self.in_flight.begin_unsent(qos, delivery)
        }?;
        self.unsent += u32::from(!is_ahead);
        self.inflight_bytes += cost;
        Ok(packet_id)
    }

    /// Gives a place in the window to a message that has its packet id already, if there is one.
    fn start(&mut self, packet_id: PacketId) -> Start {
        let start = self.in_flight.start(packet_id);
        self.unsent += u32::from(start == Start::Send);
        start
    }

    /// A message that was held leaves now, if it is still to.
    pub(crate) fn mark_sent(&mut self, packet_id: PacketId) -> Option<&Delivery> {
        self.unsent -= 1;
        self.in_flight.mark_sent(packet_id)
    }

    /// Whether some of what is in flight is held.
    #[inline]
    pub(crate) fn holds_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// What was held for the connection has gone with it.
    fn forget_held(&mut self) {
        self.unsent = 0;
    }

    /// PUBACK, whatever its reason: the message comes back.
    #[inline]
    pub(crate) fn handle_puback(&mut self, packet_id: PacketId) -> Result<Delivery, AckError> {
        let delivery = self.in_flight.handle_puback(packet_id)?;
        self.end_flight(&delivery);
        Ok(delivery)
    }

    /// PUBREC: the message comes back, the first time.
    pub(crate) fn handle_pubrec(
        &mut self,
        packet_id: PacketId,
        is_error: bool,
    ) -> Result<PubRec<Delivery>, AckError> {
        let found = self.in_flight.handle_pubrec(packet_id, is_error)?;
        match &found {
            PubRec::SendPubRel(None) => {}
            PubRec::SendPubRel(Some(delivery)) | PubRec::Ended(delivery) => {
                self.end_flight(delivery);
            }
        }
        Ok(found)
    }

    /// PUBCOMP: the packet id is free.
    pub(crate) fn handle_pubcomp(&mut self, packet_id: PacketId) -> Result<(), AckError> {
        self.in_flight.handle_pubcomp(packet_id)
    }

    /// Gives up a message, and its packet id.
    pub(crate) fn forget(&mut self, packet_id: PacketId) -> Option<Delivery> {
        let delivery = self.in_flight.forget(packet_id)?;
        self.end_flight(&delivery);
        Some(delivery)
    }

    /// Gives up a message of QoS 2 that was sent; its packet id stays until the client frees it.
    /// None: this is no such message.
    pub(crate) fn let_go(&mut self, packet_id: PacketId) -> Option<Delivery> {
        let delivery = self.in_flight.let_go(packet_id)?;
        self.end_flight(&delivery);
        Some(delivery)
    }

    pub(crate) fn was_sent(&self, packet_id: PacketId) -> bool {
        self.in_flight.was_sent(packet_id)
    }

    pub(super) fn message(&self, packet_id: PacketId) -> Option<&Delivery> {
        self.in_flight.message(packet_id)
    }

    /// Messages that have packet ids and that the client has not taken over, in order.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (PacketId, QoS, &Delivery)> {
        self.in_flight.iter().filter_map(|entry| match entry {
            InFlight::Publish { id, qos, message } => Some((id, qos, message)),
            InFlight::PubRel { .. } => None,
        })
    }

    /// Messages that have packet ids and are not done with.
    pub(crate) fn in_flight_len(&self) -> usize {
        self.in_flight.inflight()
    }

    #[inline]
    fn end_flight(&mut self, delivery: &Delivery) {
        let cost = delivery.cost();
        debug_assert!(
            self.inflight_bytes >= cost,
            "more has ended than was in flight"
        );
        self.inflight_bytes = self.inflight_bytes.saturating_sub(cost);
    }
}

/// The queue.
impl Outbox {
    /// Whether nothing waits in the queue.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Messages in the queue.
    #[inline]
    pub(crate) fn queue_len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    pub(crate) fn queue_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// Bytes of messages that wait for the client, or for its acknowledgement.
    pub(crate) const fn memory(&self) -> u64 {
        self.queue_bytes + self.inflight_bytes
    }

    /// The message that is next.
    pub(crate) fn front(&self) -> Option<&(QoS, Delivery)> {
        self.queue.front()
    }

    pub(crate) fn queued(&self) -> impl Iterator<Item = &Delivery> {
        self.queue.iter().map(|(_, delivery)| delivery)
    }

    /// Puts a message behind the others.
    #[inline]
    pub(crate) fn push(&mut self, qos: QoS, delivery: Delivery) {
        self.queue_bytes += delivery.cost();
        self.queue.push_back((qos, delivery));
    }

    /// Takes the message that is next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(QoS, Delivery)> {
        let (qos, delivery) = self.queue.pop_front()?;
        self.leave_queue(&delivery);
        Some((qos, delivery))
    }

    /// Puts back what was taken last.
    #[cold]
    pub(crate) fn put_back(&mut self, qos: QoS, delivery: Delivery) {
        self.queue_bytes += delivery.cost();
        self.queue.push_front((qos, delivery));
    }

    /// Takes the messages out of the queue for which there is a reason.
    pub(crate) fn take_queued<T>(
        &mut self,
        mut reason: impl FnMut(QoS, &Delivery) -> Option<T>,
    ) -> Vec<(Delivery, T)> {
        let mut taken = Vec::new();
        for (qos, delivery) in std::mem::take(&mut self.queue) {
            match reason(qos, &delivery) {
                Some(why) => {
                    self.leave_queue(&delivery);
                    taken.push((delivery, why));
                }
                None => self.queue.push_back((qos, delivery)),
            }
        }
        taken
    }

    #[inline]
    fn leave_queue(&mut self, delivery: &Delivery) {
        self.queue_bytes = self.queue_bytes.saturating_sub(delivery.cost());
    }
}

impl Session {
    /// Gives a message its packet id, which is to be sent later. Says whether the window has no
    /// place for it yet. The message comes back if there is no id.
    pub(crate) fn begin_held(
        &mut self,
        qos: QoS,
        delivery: Delivery,
    ) -> Result<(PacketId, bool), (QoS, Delivery)> {
        let is_ahead = self.is_durable() && !self.outbox.in_flight.window_open();
        let begun = self.outbox.begin_held(qos, delivery, is_ahead);
        let packet_id = begun.map_err(|delivery| (qos, delivery))?;
        Ok((packet_id, is_ahead))
    }

    /// This message has its packet id, stored with that request, before the window has a place for
    /// it.
    pub(crate) fn note_ahead(&mut self, packet_id: PacketId, stored: StoreId) {
        if let Some(kept) = self.kept.as_deref_mut() {
            let ahead = kept.ahead.get_or_insert_default();
            ahead.push_back((packet_id, stored));
        }
    }

    /// Gives a place in the window to the next message that has its packet id already, if there is
    /// a place.
    pub(crate) fn start_ahead(&mut self) -> Option<(PacketId, StoreId)> {
        let kept = self.kept.as_deref_mut()?;
        let ahead = kept.ahead.get_mut()?;
        while let Some(&(packet_id, stored)) = ahead.front() {
            let start = self.outbox.start(packet_id);
            if start == Start::Wait {
                return None;
            }
            ahead.pop_front();
            if start == Start::Send {
                return Some((packet_id, stored));
            }
        }
        kept.ahead = OptionBox::default();
        None
    }

    /// Its connection has gone with what was to be sent over it.
    pub(crate) fn forget_held(&mut self) {
        self.outbox.forget_held();
        if let Some(kept) = self.kept.as_deref_mut() {
            kept.ahead = OptionBox::default();
        }
    }
}

#[cfg(test)]
mod tests;
