//! Plain counters of one shard. Sums over shards make the `$SYS` tree.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use unbroken_mqtt_proto::ReasonCode;

use crate::reason::DropReason;
use crate::telemetry::{AuditTotals, Histogram, Latencies, audit_values};

/// What a shard has counted since it started, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes of packets received.
    pub bytes_received: u64,
    /// Bytes of packets given to the driver.
    pub bytes_sent: u64,
    /// Packets of any kind received.
    pub packets_received: u64,
    /// Packets of any kind given to the driver.
    pub packets_sent: u64,
    /// PUBLISH packets received.
    pub publishes_received: u64,
    /// PUBLISH packets given to the driver.
    pub publishes_sent: u64,
    /// Payload bytes of PUBLISH packets received.
    pub publish_bytes_received: u64,
    /// Payload bytes of the PUBLISH packets sent.
    pub publish_bytes_sent: u64,
    /// Of the PUBLISH packets sent, messages of QoS 0 whose connection ended before they were
    /// written: they are dropped.
    pub publishes_unsaid: u64,
    /// Payload bytes of those.
    pub publish_bytes_unsaid: u64,
    /// Messages nobody subscribed to.
    pub publishes_unrouted: u64,
    /// Connections that sent a valid CONNECT and were let in, ever.
    pub connects_admitted: u64,
    /// Connections refused, ever.
    pub connects_refused: u64,
    /// Times that a client was not read for a while because it was over its rate.
    pub rate_pauses: u64,
    /// Sessions that ended by expiry.
    pub sessions_expired: u64,
    /// Clients connected now.
    pub clients_connected: u64,
    /// Sessions without a connection now.
    pub clients_disconnected: u64,
    /// Most clients connected at once to one shard.
    pub clients_maximum: u64,
    /// Subscriptions now.
    pub subscriptions: u64,
    /// Shared subscriptions now.
    pub shared_subscriptions: u64,
    /// Retained messages now.
    pub retained_messages: u64,
    /// Bytes of retained messages now.
    pub retained_bytes: u64,
    /// Messages waiting in queues or in flight now.
    pub messages_waiting: u64,
    /// Bytes of messages waiting in queues now.
    pub messages_waiting_bytes: u64,
    /// Sessions without a connection that hold messages: all of them together, as they were when
    /// `$SYS` was last due.
    pub sleeping: SleepingTotals,
    /// Bytes of the store, as the driver last said; the same for all shards.
    pub store_bytes: u64,
    /// 1 while the disk lacks the space that the store needs; the same for all shards.
    pub disk_lacks_space: u64,
    /// 1 if the store has failed; the same for all shards.
    pub store_failed: u64,
    /// How long commits took when there last were any, as the driver last said; the same for all
    /// shards.
    pub commits: CommitTimes,
    /// Bytes of memory that the process has, and has had at most, as the driver last said; the same
    /// for all shards, and 0 where it is not known.
    pub heap: [u64; 2],
    /// How long messages and turns take.
    pub latencies: Box<Latencies>,
    /// What clients were refused (a connection, its continuation, a subscription), by the reason
    /// they were told, or would have been told if their protocol had words for it.
    pub refused: BTreeMap<ReasonCode, u64>,
    /// Messages not delivered, by reason.
    pub dropped: [u64; DropReason::ALL.len()],
    /// Of those, the ones of the audit's own traffic and of `$SYS`.
    pub dropped_aside: [u64; DropReason::ALL.len()],
    /// What came in, who was owed it, and what became of it.
    pub audit: AuditTotals,
}

/// Packets that an input has come to.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Work {
    /// Received and dealt with.
    pub received: u64,
    /// Given to the driver.
    pub sent: u64,
}

impl Work {
    /// What was done since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            received: self.received - before.received,
            sent: self.sent - before.sent,
        }
    }
}

impl Stats {
    /// Packets since the shard started.
    pub(crate) fn work(&self) -> Work {
        Work {
            received: self.packets_received,
            sent: self.packets_sent,
        }
    }

    /// Packets of any kind that were sent and not dropped after all.
    pub fn packets_written(&self) -> u64 {
        self.packets_sent - self.publishes_unsaid
    }

    /// PUBLISH packets that were.
    pub fn publishes_written(&self) -> u64 {
        self.publishes_sent - self.publishes_unsaid
    }

    /// Payload bytes of those.
    pub fn publish_bytes_written(&self) -> u64 {
        self.publish_bytes_sent - self.publish_bytes_unsaid
    }

    /// Messages not delivered, all reasons together.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Counts messages that were not delivered.
    #[inline]
    pub(super) fn drop(&mut self, reason: DropReason, count: u64, is_aside: bool) {
        self.dropped[reason as usize] += count;
        if is_aside {
            self.dropped_aside[reason as usize] += count;
        }
    }

    /// Messages not delivered for this reason, as it is shown: without the audit's own traffic.
    pub fn dropped_shown(&self, reason: DropReason) -> u64 {
        let at = reason as usize;
        self.dropped[at].saturating_sub(self.dropped_aside[at])
    }

    /// The audit's counts by their names below `$SYS/audit/`, but those by reason.
    pub fn audit_figures(&self) -> impl IntoIterator<Item = (&'static str, u64)> {
        audit_values::figures(self)
    }

    /// Adds another shard's counters.
    pub fn add(&mut self, other: &Self) {
        let Self {
            bytes_received,
            bytes_sent,
            packets_received,
            packets_sent,
            publishes_received,
            publishes_sent,
            publish_bytes_received,
            publish_bytes_sent,
            publishes_unsaid,
            publish_bytes_unsaid,
            publishes_unrouted,
            connects_admitted,
            connects_refused,
            rate_pauses,
            sessions_expired,
            clients_connected,
            clients_disconnected,
            clients_maximum,
            subscriptions,
            shared_subscriptions,
            retained_messages,
            retained_bytes,
            messages_waiting,
            messages_waiting_bytes,
            sleeping,
            store_bytes,
            disk_lacks_space,
            store_failed,
            commits,
            heap,
            latencies,
            refused,
            dropped,
            dropped_aside,
            audit,
        } = other;
        self.bytes_received += bytes_received;
        self.bytes_sent += bytes_sent;
        self.packets_received += packets_received;
        self.packets_sent += packets_sent;
        self.publishes_received += publishes_received;
        self.publishes_sent += publishes_sent;
        self.publish_bytes_received += publish_bytes_received;
        self.publish_bytes_sent += publish_bytes_sent;
        self.publishes_unsaid += publishes_unsaid;
        self.publish_bytes_unsaid += publish_bytes_unsaid;
        self.publishes_unrouted += publishes_unrouted;
        self.connects_admitted += connects_admitted;
        self.connects_refused += connects_refused;
        self.rate_pauses += rate_pauses;
        self.sessions_expired += sessions_expired;
        self.clients_connected += clients_connected;
        self.clients_disconnected += clients_disconnected;
        self.clients_maximum = self.clients_maximum.max(*clients_maximum);
        self.subscriptions += subscriptions;
        self.shared_subscriptions += shared_subscriptions;
        self.retained_messages += retained_messages;
        self.retained_bytes += retained_bytes;
        self.messages_waiting += messages_waiting;
        self.messages_waiting_bytes += messages_waiting_bytes;
        self.sleeping += *sleeping;
        self.store_bytes = self.store_bytes.max(*store_bytes);
        self.disk_lacks_space = self.disk_lacks_space.max(*disk_lacks_space);
        self.store_failed = self.store_failed.max(*store_failed);
        self.commits.add(commits);
        self.heap = [0, 1].map(|at| self.heap[at].max(heap[at]));
        self.latencies.add(latencies);
        for (reason, count) in refused {
            *self.refused.entry(*reason).or_default() += count;
        }
        self.audit += *audit;
        for (mine, theirs) in self.dropped.iter_mut().zip(dropped) {
            *mine += theirs;
        }
        for (mine, theirs) in self.dropped_aside.iter_mut().zip(dropped_aside) {
            *mine += theirs;
        }
    }
}

/// What all sleeping sessions hold together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SleepingTotals {
    /// Sessions that outlive their connection, asleep or not.
    pub persistent: u64,
    /// Sleeping sessions for which something waits.
    pub holding: u64,
    /// Messages that wait for them.
    pub messages: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Seconds for which the oldest of all has waited.
    pub oldest_s: u64,
}

impl AddAssign for SleepingTotals {
    fn add_assign(&mut self, other: Self) {
        self.persistent += other.persistent;
        self.holding += other.holding;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.oldest_s = self.oldest_s.max(other.oldest_s);
    }
}

impl CommitTimes {
    /// As another shard knows them.
    fn add(&mut self, other: &Self) {
        self.p50_us = self.p50_us.max(other.p50_us);
        self.p99_us = self.p99_us.max(other.p99_us);
        if other.all.total() > self.all.total() {
            self.all = other.all;
        }
    }
}

/// How long commits took, until what is in them was as safe as the store was opened to make it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CommitTimes {
    /// Half of them took less, in microseconds.
    pub p50_us: u64,
    /// 99 of 100 took less, in microseconds.
    pub p99_us: u64,
    /// All since the start, in microseconds.
    pub all: Histogram,
}
