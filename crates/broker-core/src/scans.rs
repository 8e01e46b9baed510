//! Walks of a session's subscriptions through what is retained.
//!
//! Most sessions subscribe when they begin and never again: between scans there is no room for any.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::ids::ShardId;
use crate::message::Message;
use crate::seldom::Seldom;
use crate::subscriptions::Grant;

/// Retained messages still to be sent for subscriptions, in the order these were made: so the
/// tokens of the scans are in order.
#[derive(Debug, Default)]
pub(crate) struct Scans(Seldom<VecDeque<RetainedScan>>);

/// A subscription's walk through the retained messages of all shards, in slices, as the connection
/// takes them.
#[derive(Debug)]
pub(crate) struct RetainedScan {
    /// Names it in mail.
    pub(crate) token: u64,
    pub(crate) filter: Box<str>,
    pub(crate) grant: Grant,
    /// The shard being asked.
    pub(crate) shard: ShardId,
    /// The last shard to ask.
    pub(crate) last: ShardId,
    /// Where in that shard's topics to go on.
    pub(crate) after: Option<Box<str>>,
    /// What was found and is still to be sent, in the order of the topics.
    pub(crate) found: VecDeque<Arc<Message>>,
    /// `after` is set: this shard has more behind what was found.
    pub(crate) more: bool,
    /// For its SUBACK, or for the answer to a question that is on its way.
    pub(crate) waits: bool,
    /// Live messages delivered meanwhile, by topic: an older retained copy is left out.
    pub(crate) overtaken: HashMap<Box<str>, Overtaken, foldhash::fast::FixedState>,
}

/// The stamps of the newest live messages of a topic.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overtaken {
    /// Of all.
    pub(crate) newest: Option<Instant>,
    /// Of those at QoS 1 and 2, which a lost connection does not take along.
    pub(crate) newest_kept: Option<Instant>,
}

impl Scans {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.get().map_or(0, VecDeque::len)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RetainedScan> {
        self.0.get().into_iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut RetainedScan> {
        self.0.get_mut().into_iter().flatten()
    }

    /// Those with these tokens.
    pub(crate) fn range_mut(
        &mut self,
        tokens: Range<u64>,
    ) -> impl Iterator<Item = &mut RetainedScan> {
        self.0.get_mut().into_iter().flat_map(move |scans| {
            let first = scans.partition_point(|scan| scan.token < tokens.start);
            let scans = scans.range_mut(first..);
            scans.take_while(move |scan| scan.token < tokens.end)
        })
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut RetainedScan> {
        self.0.get_mut()?.front_mut()
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut RetainedScan> {
        self.0.get_mut()?.back_mut()
    }

    pub(crate) fn push_back(&mut self, scan: RetainedScan) {
        self.0.get_or_insert_default().push_back(scan);
    }

    pub(crate) fn pop_front(&mut self) -> Option<RetainedScan> {
        let scan = self.0.get_mut()?.pop_front();
        self.0.clear_if(|scans| scans.is_empty());
        scan
    }

    /// Leaves out those for this filter.
    pub(crate) fn remove(&mut self, filter: &str) {
        self.0.clear_if(|scans| {
            scans.retain(|scan| *scan.filter != *filter);
            scans.is_empty()
        });
    }
}
