//! Messages on their way to one session.

use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;
use unbroken_mqtt_proto::session::{Drained, Start};
use unbroken_mqtt_proto::{PacketId, QoS};

use super::Session;
use crate::audit::account::Counting;
use crate::audit::finding::Findings;
use crate::audit::receipt::News;
use crate::durability::Entry;
use crate::ids::StoreId;
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

impl Session {
    /// Gives a message its packet id, which is to be sent later. Says whether the window has no
    /// place for it yet. The message comes back if there is no id.
    pub(crate) fn begin_held(
        &mut self,
        qos: QoS,
        delivery: Delivery,
    ) -> Result<(PacketId, bool), (QoS, Delivery)> {
        let cost = delivery.message.publication().cost();
        let is_ahead = self.is_durable() && !self.outbound.window_open();
        let begun = if is_ahead {
            self.outbound.begin_ahead(qos, delivery)
        } else {
            self.outbound.begin_unsent(qos, delivery)
        };
        let packet_id = begun.map_err(|delivery| (qos, delivery))?;
        self.unsent += u32::from(!is_ahead);
        self.inflight_bytes += cost;
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
            let start = self.outbound.start(packet_id);
            if start == Start::Wait {
                return None;
            }
            ahead.pop_front();
            if start == Start::Send {
                self.unsent += 1;
                return Some((packet_id, stored));
            }
        }
        kept.ahead = OptionBox::default();
        None
    }

    /// Takes everything that still waits, and whether it was sent: the session has ended.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (QoS, bool, Delivery)> + '_ {
        let in_flight = self.outbound.drain();
        let in_flight = in_flight.map(|Drained { qos, sent, message }| (qos, sent, message));
        let waiting = self.queue.drain(..);
        in_flight.chain(waiting.map(|(qos, delivery)| (qos, false, delivery)))
    }

    /// Its connection has gone with what was to be sent over it.
    pub(crate) fn forget_held(&mut self) {
        self.unsent = 0;
        if let Some(kept) = self.kept.as_deref_mut() {
            kept.ahead = OptionBox::default();
        }
    }
}
