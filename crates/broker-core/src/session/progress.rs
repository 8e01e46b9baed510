//! What of a session is asked to be stored.
//!
//! What a restart must not repeat has a record of its own ([`crate::durability`]). The rest is
//! asked for late and together, in a [`Progress`], because a restart without it only repeats what
//! the client recognizes.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use unbroken_mqtt_proto::{PacketId, QoS, SubscriptionOptions};

use super::stored::UnstoredEntry;
use super::{Delivery, Kept, Session};
use crate::durability::{
    CommitGate, Presence, Progress, ReceivedEntry, Record, StoredSubscription,
};
use crate::ids::StoreId;

/// What of a session changes its progress: each answers whether that is to be stored soon.
impl Session {
    pub(super) fn note_presence(&mut self) -> bool {
        let kept = self.kept.as_deref_mut();
        kept.map(|kept| kept.presence = true).is_some()
    }

    pub(super) fn end_scan(&mut self, filter: &str) -> bool {
        let kept = self.kept.as_deref_mut();
        kept.is_some_and(|kept| kept.end_scan(filter))
    }

    pub(super) fn note_sent(&mut self, packet_id: PacketId) -> bool {
        let Some((kept, delivery)) = self.kept.as_deref_mut().zip(self.outbox.message(packet_id))
        else {
            return false;
        };
        let waited = NonZeroU64::new(delivery.entry);
        let number = kept.entry();
        let under_way = kept.under_way();
        let unstored = UnstoredEntry { number, waited };
        under_way.unstored.insert(packet_id, unstored);
        under_way.sent_what_waited |= waited.is_some();
        true
    }

    pub(crate) fn end_entry(&mut self, packet_id: PacketId) -> bool {
        let kept = self.kept.as_deref_mut();
        kept.map(|kept| kept.end_entry(packet_id)).is_some()
    }

    pub(crate) fn end_waiting_entry(&mut self, delivery: &Delivery) -> bool {
        if delivery.entry > 0
            && let Some(kept) = self.kept.as_deref_mut()
        {
            kept.under_way().ended.push(delivery.entry);
        }
        delivery.entry > 0
    }
}

impl Session {
    /// Asks for a record of this session, if it is persistent.
    pub(crate) fn persist(
        &mut self,
        gate: &mut CommitGate,
        record: impl FnOnce(Arc<str>) -> Record,
    ) -> StoreId {
        if self.kept.is_none() {
            return StoreId::NOTHING;
        }
        self.asked = gate.ask(record(Arc::clone(&self.client_id)));
        self.asked
    }

    /// The session ends, or will end with its connection: on disk it does so now.
    pub(crate) fn persist_end(&mut self, gate: &mut CommitGate) {
        self.persist(gate, |client_id| Record::SessionEnded { client_id });
        if self.kept.take().is_some() {
            self.will_on_disk = false;
            gate.end_client(Arc::clone(&self.client_id));
        }
    }

    /// A message is about to be sent for the first time under this id. At QoS 1 what waited as an
    /// entry and was sent before is stored too: a restart sends what has an id first, and messages
    /// of one QoS are to come in their order.
    pub(crate) fn persist_sent(
        &mut self,
        gate: &mut CommitGate,
        packet_id: PacketId,
        qos: QoS,
    ) -> StoreId {
        let kept = self.kept.as_deref();
        if qos == QoS::AtLeastOnce && kept.is_some_and(Kept::sent_what_waited) {
            self.persist_progress(gate);
        }
        let Some(kept) = self.kept.as_deref_mut() else {
            return StoreId::NOTHING;
        };
        let Some(delivery) = self.outbox.message(packet_id) else {
            return StoreId::NOTHING;
        };
        let waited = NonZeroU64::new(delivery.entry);
        let number = kept.entry();
        kept.under_way().recorded.insert(packet_id, number);
        let entry = delivery.to_entry(number, Some(packet_id), qos);
        self.persist(gate, |client_id| Record::Given {
            client_id,
            entry,
            waited,
        })
    }

    /// PUBREC came.
    pub(crate) fn persist_received(
        &mut self,
        gate: &mut CommitGate,
        packet_id: PacketId,
        delivery: &Delivery,
    ) -> StoreId {
        let kept = self.kept.as_deref();
        let Some(number) = kept.and_then(|kept| kept.entry_of(packet_id)) else {
            return StoreId::NOTHING;
        };
        let received = ReceivedEntry {
            number,
            packet_id,
            position: delivery.message.position(),
            by_group: delivery.group.is_some() || delivery.entry > 0,
        };
        self.persist(gate, |client_id| Record::Received {
            client_id,
            received,
        })
    }

    /// A group has given a message to this session, which waits in it.
    pub(crate) fn persist_waiting(
        &mut self,
        gate: &mut CommitGate,
        qos: QoS,
        delivery: &mut Delivery,
    ) -> StoreId {
        let Some(kept) = self.kept.as_deref_mut() else {
            return StoreId::NOTHING;
        };
        delivery.entry = kept.entry();
        let entry = delivery.to_entry(delivery.entry, None, qos);
        self.persist(gate, |client_id| Record::Given {
            client_id,
            entry,
            waited: None,
        })
    }

    /// Whether as many past subscriptions are stored as may be, and this would be another one.
    pub(crate) fn is_full_of_past(
        &self,
        filter: &str,
        options: SubscriptionOptions,
        identifier: Option<NonZeroU32>,
        past_max: usize,
    ) -> bool {
        let kept = self.kept.as_deref();
        kept.is_some_and(|kept| kept.is_full_of_past(filter, options, identifier, past_max))
    }

    /// A subscription with this filter begins, in place of another.
    pub(crate) fn persist_subscription(
        &mut self,
        gate: &mut CommitGate,
        filter: &str,
        replaced: Option<StoredSubscription>,
    ) -> StoreId {
        let kept = self.kept.as_deref();
        let Some(subscription) = kept.and_then(|kept| kept.subscription(filter)).cloned() else {
            return StoreId::NOTHING;
        };
        self.persist(gate, |client_id| Record::Subscribed {
            client_id,
            subscription,
            replaced,
        })
    }

    /// A subscription is over.
    pub(crate) fn persist_unsubscription(
        &mut self,
        gate: &mut CommitGate,
        subscription: StoredSubscription,
    ) -> StoreId {
        self.persist(gate, |client_id| Record::Unsubscribed {
            client_id,
            subscription,
        })
    }

    /// The client has ended its subscriptions with this filter.
    pub(super) fn unsubscribe(&mut self, gate: &mut CommitGate, filter: &str) -> StoreId {
        let Some(kept) = self.kept.as_deref_mut() else {
            return StoreId::NOTHING;
        };
        let ends = gate.log_ends().all();
        let ended = [
            kept.stop_yielding(filter, ends),
            kept.unsubscribe(filter, ends),
        ];
        let mut asked = StoreId::NOTHING;
        for subscription in ended.into_iter().flatten() {
            asked = self.persist_unsubscription(gate, subscription);
        }
        asked
    }

    /// The session needs of the logs only what is in flight and what comes behind it, and no
    /// entries. That is little to write, and all that is to be known to trim a log where a session
    /// gets messages of QoS 1 and acknowledges them. Of any other session as much is stored as
    /// [`persist_progress`](Self::persist_progress) does.
    pub(crate) fn persist_cursor(&mut self, gate: &mut CommitGate) {
        let mut through = self.through(gate.log_ends().all());
        let Some(kept) = self.kept.as_deref_mut().filter(|kept| kept.touched) else {
            return;
        };
        for (id, _, delivery) in self.outbox.in_flight() {
            if kept.entry_of(id).is_none()
                && let Some(position) = delivery.message.position()
            {
                through.lower(position);
            }
        }
        if !kept.is_plain() || !through.reaches(&kept.through) {
            self.persist_progress(gate);
            return;
        }
        let (ended, done) = kept.take_ended(&through);
        if ended.is_empty() && through == kept.through {
            return;
        }
        kept.through = through.clone();
        self.persist(gate, |client_id| Record::Progress {
            client_id,
            progress: Box::new(Progress {
                ended,
                done,
                ..Progress::of(through)
            }),
        });
    }

    /// How far the session is, if that has changed.
    pub(crate) fn persist_progress(&mut self, gate: &mut CommitGate) {
        let through = self.through(gate.log_ends().all());
        let is_here = self.connection.is_some();
        let (expiry_s, user) = (self.expiry_s, self.user.clone());
        let mount = self.mount.as_ref().map(|mount| mount.as_str().into());
        let Self { kept, outbox, .. } = self;
        let Some(kept) = kept.as_deref_mut() else {
            return;
        };
        if !std::mem::take(&mut kept.touched) {
            return;
        }
        let mut given = Vec::new();
        for (id, qos, delivery) in outbox.in_flight() {
            if kept.entry_of(id).is_none() {
                // All that were begun have one.
                let under_way = kept.under_way();
                let Some(UnstoredEntry { number, waited }) = under_way.unstored.remove(&id) else {
                    continue;
                };
                under_way.ended.extend(waited.map(NonZeroU64::get));
                under_way.recorded.insert(id, number);
                given.push(delivery.to_entry(number, Some(id), qos));
            }
        }
        if let Some(under_way) = &mut kept.under_way {
            under_way.sent_what_waited = false;
        }
        let presence = std::mem::take(&mut kept.presence).then_some(Presence {
            is_here,
            expiry_s,
            user,
            mount,
        });
        let scanned = kept.take_scanned();
        let (ended, done) = kept.take_ended(&through);
        let past = kept.take_past(&through);
        let waiting = outbox.queued().map(|delivery| delivery.entry);
        let maybe_sent = kept.redelivery.take_news(&through, waiting);
        kept.through = through.clone();
        kept.reported_entries = kept.entries;
        self.persist(gate, |client_id| Record::Progress {
            client_id,
            progress: Box::new(Progress {
                through,
                given,
                ended,
                done,
                scanned,
                past,
                presence,
                maybe_sent,
            }),
        });
    }
}
