//! A message on its way to one session.

use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;
use unbroken_mqtt_proto::{PacketId, QoS};

use crate::audit::account::Counting;
use crate::audit::finding::Findings;
use crate::audit::receipt::News;
use crate::durability::Entry;
use crate::message::Message;

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
