//! A message on its way to one session.

use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;
use unbroken_mqtt_proto::{PacketId, QoS};

use super::Session;
use crate::audit::account::Counting;
use crate::audit::watch::Topics;
use crate::durability::Entry;
use crate::message::Message;
use crate::telemetry::AuditTotals;

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

impl Session {
    /// Accepts a delivery, which gets the next number.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        topics: &Topics,
        totals: &mut AuditTotals,
        delivery: &mut Delivery,
    ) {
        delivery.counting = self.account.counting_of(topics, delivery.message.topic());
        delivery.number = self.account.accept(totals, delivery.counting);
    }
}

impl Session {
    /// The same of a delivery that may have been sent, by an earlier run.
    pub(crate) fn accept_sent(
        &mut self,
        topics: &Topics,
        totals: &mut AuditTotals,
        delivery: &mut Delivery,
    ) {
        self.accept(topics, totals, delivery);
        self.account.sent_before(totals, delivery.counting);
    }
}

impl Delivery {
    /// Whether its receiver is left out of the receipt of its message. One that a group chose is
    /// not: another member could have had the message.
    pub(crate) fn is_in_receipt(&self) -> bool {
        self.counting != Counting::Watcher || self.group.is_some()
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
