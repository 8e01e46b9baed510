//! What lanes and accounts of one shard come to. Plain counters, part of [`crate::Stats`].

use std::ops::AddAssign;

/// What the audit has counted since the shard started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditTotals {
    /// Messages that were accepted from clients and numbered.
    pub received: u64,
    /// Of those that came with DUP: sent again over the connection that carried them before.
    pub retransmitted: u64,
    /// Of those that came with DUP: sent again after a reconnect.
    pub redelivered_in: u64,
    /// Expected deliveries: one for each session that is to have a message.
    pub expected: u64,
    /// Deliveries sent, each once.
    pub sent: u64,
    /// Of those sent, the ones of QoS 0, which nobody acknowledges.
    pub sent_qos0: u64,
    /// Deliveries acknowledged by PUBACK or PUBREC.
    pub acknowledged: u64,
    /// Of those acknowledged, the ones whose receiver said that it has processed them. Without the
    /// audit's own traffic.
    pub processed: u64,
    /// Of those of QoS 0 sent, the ones whose connection ended before they were written: dropped
    /// after all. Without the audit's own traffic.
    pub unsaid: u64,
    /// Deliveries sent again after their receiver came back. Not duplicates: they have DUP set.
    /// Without the audit's own traffic.
    pub redelivered: u64,
    /// Deliveries that were dropped before they were sent. The reasons are in
    /// [`Stats::dropped`](crate::Stats::dropped).
    pub dropped: u64,
    /// Of those dropped, the ones that were not accepted into a queue.
    pub refused: u64,
    /// Deliveries accepted for sessions that stay, which were not known to be on disk when the
    /// totals were last told. Without the audit's own traffic.
    pub unstored: u64,
    /// Deliveries that were sent and will never be acknowledged: refused, or the session ended.
    pub given_up: u64,
    /// Deliveries of shared groups that went on to another member, who is owed them instead.
    pub handed_on: u64,
    /// Deliveries accepted into a queue that are nowhere.
    pub lost: u64,
    /// Deliveries or messages between shards that left twice.
    pub duplicated: u64,
    /// Deliveries or messages between shards that left after later ones.
    pub reordered: u64,
    /// Messages that changed inside the broker.
    pub altered: u64,
    /// Accounts that did not balance when they were looked at.
    pub unbalanced: u64,
    /// Windows of 1,024 deliveries that balanced.
    pub windows_proven: u64,
    /// Windows in which a fault was named.
    pub windows_faulty: u64,
    /// Windows of sessions that ended with deliveries sent and not acknowledged.
    pub windows_unproven: u64,
    /// Of publishers that stamp themselves.
    pub publishers: PublishersTotals,
    /// Deliveries to clients that have announced that they only verify what they receive. Without
    /// the audit's own traffic.
    pub to_watchers: u64,
    /// What of the above is left out of what is shown.
    pub aside: Aside,
}

/// Messages and deliveries of the audit's own traffic and of `$SYS`, and deliveries to watchers.
/// They are counted with all others, since the law holds for them too, and here again, to be left
/// out of what is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Aside {
    /// Messages accepted from clients.
    pub received: u64,
    /// Messages that nobody subscribed to.
    pub unrouted: u64,
    /// As in [`AuditTotals`], and so are the next ones.
    pub expected: u64,
    /// Of any QoS.
    pub sent: u64,
    /// Of those sent.
    pub sent_qos0: u64,
    /// By PUBACK or PUBREC.
    pub acknowledged: u64,
    /// Before they were sent.
    pub dropped: u64,
    /// Of those dropped.
    pub refused: u64,
    /// Sent, and never to be acknowledged.
    pub given_up: u64,
    /// To another member of a group.
    pub handed_on: u64,
}

/// What was found in the lanes of publishers that stamp themselves, before the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishersTotals {
    /// Messages that were judged.
    pub verified: u64,
    /// Messages with a stamp that were not, of a lane too many or out of scope; checkpoints that
    /// were not used: damaged, of windows of another size, or of a lane of which no message of
    /// their client was judged here; and faults that were too many at once to be named.
    pub unaudited: u64,
    /// Messages and checkpoints of lanes whose algorithm needs a key: the broker does not have it.
    pub unverifiable: u64,
    /// Messages that were refused with a reason, which their publisher was told.
    pub refused: u64,
    /// Numbers that never came.
    pub lost: u64,
    /// Messages that came twice, the second time without DUP, the same in every byte.
    pub duplicated: u64,
    /// Messages whose number had come before, and whose content was not compared: the hash of the
    /// first is no longer held.
    pub repeated: u64,
    /// Messages out of their place.
    pub reordered: u64,
    /// Messages that do not fit their stamp.
    pub altered: u64,
    /// Messages with a stamp that is not their publisher's.
    pub injected: u64,
    /// Messages of a lane that is another client's.
    pub intruded: u64,
    /// Messages of lanes that were not opened, for want of room.
    pub lanes_refused: u64,
    /// Epochs of lanes that were under way before this broker first heard of them: what they issued
    /// before their next window is out of scope.
    pub lanes_joined_late: u64,
    /// Messages that fit their stamp and are not the ones their publisher stamped. Of several
    /// among which at least one is, one.
    pub forged: u64,
    /// Windows that are whole and have not the root that their checkpoint tells.
    pub roots_differing: u64,
    /// Checkpoints that contradict an earlier one.
    pub contradicted: u64,
    /// Windows that a checkpoint proved.
    pub windows_proven: u64,
    /// Windows in which a fault was named.
    pub windows_faulty: u64,
    /// Windows without a checkpoint.
    pub windows_unproven: u64,
}

impl Aside {
    /// Deliveries that were accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.expected.saturating_sub(self.sent_qos0 + self.refused)
    }

    /// Accepted and not sent.
    pub(crate) fn waiting(&self) -> u64 {
        let ended = self.sent + self.dropped + self.handed_on;
        self.expected.saturating_sub(ended)
    }

    /// Sent and not acknowledged.
    pub(crate) fn in_flight(&self) -> u64 {
        let ended = self.sent_qos0 + self.acknowledged + self.given_up;
        self.sent.saturating_sub(ended)
    }

    fn each_mut(&mut self) -> [&mut u64; 10] {
        let Self {
            received,
            unrouted,
            expected,
            sent,
            sent_qos0,
            acknowledged,
            dropped,
            refused,
            given_up,
            handed_on,
        } = self;
        [
            received,
            unrouted,
            expected,
            sent,
            sent_qos0,
            acknowledged,
            dropped,
            refused,
            given_up,
            handed_on,
        ]
    }
}

/// How a message came that its client had sent before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Again {
    /// Over the connection that carried it before.
    OnOneConnection,
    /// After a reconnect.
    AfterReconnect,
}

impl AuditTotals {
    /// Deliveries of QoS 1 and 2 that were accepted into the queue of a session, on the way through
    /// which they may have left at once.
    pub fn accepted(&self) -> u64 {
        let refused = self.sent_qos0 + self.refused;
        self.expected.saturating_sub(refused)
    }

    /// What is shown: of those accepted, the ones that are on disk where their session is one that
    /// stays.
    pub fn shown_stored(&self) -> u64 {
        let accepted = self.accepted().saturating_sub(self.aside.accepted());
        accepted.saturating_sub(self.unstored)
    }

    /// What is shown: deliveries of QoS 1 and 2 that were sent.
    pub fn shown_sent(&self) -> u64 {
        let aside = self.aside.sent - self.aside.sent_qos0;
        (self.sent - self.sent_qos0).saturating_sub(aside)
    }

    /// What is shown: deliveries of QoS 0 that were handed to the network. Whether their receivers
    /// have them nobody knows.
    pub fn shown_handed_to_network(&self) -> u64 {
        let left_out = self.aside.sent_qos0 + self.unsaid;
        self.sent_qos0.saturating_sub(left_out)
    }

    /// What is shown: accepted and not sent.
    pub fn shown_waiting(&self) -> u64 {
        self.waiting().saturating_sub(self.aside.waiting())
    }

    /// Deliveries accepted that have not been sent, of sessions that have not ended.
    pub fn waiting(&self) -> u64 {
        let ended = self.sent + self.dropped + self.handed_on;
        self.expected.saturating_sub(ended)
    }

    /// Faults of any kind.
    pub fn faults(&self) -> u64 {
        self.lost + self.duplicated + self.reordered + self.altered + self.unbalanced
    }

    fn each_mut(&mut self) -> [&mut u64; 43] {
        let Self {
            received,
            retransmitted,
            redelivered_in,
            expected,
            sent,
            sent_qos0,
            acknowledged,
            processed,
            unsaid,
            redelivered,
            dropped,
            refused,
            unstored,
            given_up,
            handed_on,
            lost,
            duplicated,
            reordered,
            altered,
            unbalanced,
            windows_proven,
            windows_faulty,
            windows_unproven,
            publishers,
            to_watchers,
            aside: _,
        } = self;
        [
            received,
            retransmitted,
            redelivered_in,
            expected,
            sent,
            sent_qos0,
            acknowledged,
            processed,
            unsaid,
            redelivered,
            dropped,
            refused,
            unstored,
            given_up,
            handed_on,
            lost,
            duplicated,
            reordered,
            altered,
            unbalanced,
            windows_proven,
            windows_faulty,
            windows_unproven,
            to_watchers,
            &mut publishers.verified,
            &mut publishers.unaudited,
            &mut publishers.unverifiable,
            &mut publishers.refused,
            &mut publishers.lost,
            &mut publishers.duplicated,
            &mut publishers.repeated,
            &mut publishers.reordered,
            &mut publishers.altered,
            &mut publishers.injected,
            &mut publishers.intruded,
            &mut publishers.lanes_refused,
            &mut publishers.lanes_joined_late,
            &mut publishers.forged,
            &mut publishers.roots_differing,
            &mut publishers.contradicted,
            &mut publishers.windows_proven,
            &mut publishers.windows_faulty,
            &mut publishers.windows_unproven,
        ]
    }
}

/// Adds another shard's.
impl AddAssign for AuditTotals {
    fn add_assign(&mut self, mut other: Self) {
        for (mine, theirs) in self.each_mut().into_iter().zip(other.each_mut()) {
            // A forged number may be close to 2^63.
            *mine = mine.saturating_add(*theirs);
        }
        let theirs = other.aside.each_mut();
        for (mine, theirs) in self.aside.each_mut().into_iter().zip(theirs) {
            *mine = mine.saturating_add(*theirs);
        }
    }
}
