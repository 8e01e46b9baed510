//! Receipts: the outcome of each message of a lane that is watched.
//!
//! ```text
//! PUBLISH (numbered, tracked) -> routed here: so many expected, and these shards will report more
//!         each shard that has it -> Expected  each delivery's end -> Sent | Acknowledged | Dropped
//!                 \______________________ News ______________________/
//!                                          |
//!        the shard of the publisher: all expected have ended? the receipt is published
//! ```
//!
//! Nothing of this runs for a lane that is not watched.
//!
//! Invariants:
//! - A receipt that is published as finished accounts for every expected delivery.
//! - At most [`RECEIPTS_MAX`] messages of a lane are followed at a time; beyond it the oldest is
//!   published as it is, unfinished.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use unbroken_merkle_log::{Epoch, Hash};

use super::Audit;
use super::account::Counting;
use super::json::Object;
use super::lane::IngressLane;
use super::watch::{Report, Wants, Watch};
use crate::ids::ShardId;
use crate::limits::{DEPARTED_LANES_MAX, RECEIPTS_MAX};
use crate::message::Mark;
use crate::placement;
use crate::reason::DropReason;
use crate::telemetry::rfc3339;

/// What became known of a message that is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// It was routed where it came in: so many deliveries are expected there, and as many other
    /// shards will report how many more.
    Routed { expected: u32, shards: u32 },
    /// Another shard expects so many.
    Expected(u32),
    /// A delivery of QoS 0 was sent.
    Sent,
    /// A delivery was acknowledged, and perhaps processed.
    Acknowledged { processed: bool },
    /// A delivery was dropped.
    Dropped(DropReason),
    /// A delivery to a client that only verifies has ended: it is in no receipt.
    LeftOut,
    /// The message changed inside the broker.
    Altered,
}

impl News {
    /// As it is in the receipt, which leaves out clients that only verify. One that a group chose
    /// is not left out: another member could have had the message.
    pub(crate) fn of(self, counting: Counting, by_group: bool) -> Self {
        match counting {
            Counting::Watcher if !by_group => Self::LeftOut,
            _ => self,
        }
    }
}

/// What several deliveries came to.
#[derive(Clone, Debug, Default)]
struct Sums {
    expected: u64,
    sent: u64,
    acknowledged: u64,
    processed: u64,
    altered: u64,
    dropped: SmallVec<[(DropReason, u64); 1]>,
    left_out: u64,
    last_acknowledged: Option<Instant>,
}

/// One message.
#[derive(Debug)]
struct Receipt {
    topic: Box<str>,
    /// It is the audit's own, and in no sum.
    is_aside: bool,
    sums: Sums,
    routed: bool,
    /// Other shards that have not reported what they expect.
    shards: u32,
    is_published: bool,
}

/// The messages of a lane that are followed.
#[derive(Debug)]
pub(crate) struct Tracking {
    /// The number of the oldest one that is followed.
    first: u64,
    receipts: VecDeque<Receipt>,
    /// The first of this window that was followed, and what its messages came to.
    window_first: u64,
    window: Sums,
    /// Ends of windows that were reached, and the hash of the lane there.
    ends: VecDeque<(u64, Hash)>,
    /// Since the lane is followed.
    since: u64,
    total: Sums,
    changed: bool,
}

impl Sums {
    fn ended(&self) -> u64 {
        let dropped: u64 = self.dropped.iter().map(|(_, count)| count).sum();
        self.sent + self.acknowledged + dropped + self.left_out
    }

    /// Without those that are left out.
    fn shown_expected(&self) -> u64 {
        self.expected.saturating_sub(self.left_out)
    }

    fn open(&self) -> u64 {
        self.expected.saturating_sub(self.ended())
    }

    /// What a shard expects may be unknown when its end is known: at least that was expected.
    fn settle(&mut self) {
        self.expected = self.expected.max(self.ended());
    }

    fn drop(&mut self, reason: DropReason, count: u64) {
        match self.dropped.iter_mut().find(|(of, _)| *of == reason) {
            Some((_, dropped)) => *dropped += count,
            None => self.dropped.push((reason, count)),
        }
    }

    fn add(&mut self, other: &Self) {
        self.expected += other.expected;
        self.sent += other.sent;
        self.acknowledged += other.acknowledged;
        self.processed += other.processed;
        self.altered += other.altered;
        for (reason, count) in &other.dropped {
            self.drop(*reason, *count);
        }
        self.left_out += other.left_out;
        self.last_acknowledged = self.last_acknowledged.max(other.last_acknowledged);
    }

    fn state(&self) -> &'static str {
        match (self.altered, self.open()) {
            (1.., _) => "faulty",
            (0, 0) => "proven",
            (0, _) => "unproven",
        }
    }

    fn write(&self, object: Object) -> Object {
        let mut dropped = Object::new();
        for (reason, count) in &self.dropped {
            dropped = dropped.number(reason.name(), *count);
        }
        object
            .number("expected", self.shown_expected())
            .number("handed_to_network", self.sent)
            .number("acknowledged", self.acknowledged)
            .number("processed", self.processed)
            .raw("dropped", dropped.end())
            .number("open", self.open())
    }
}

impl Receipt {
    fn is_finished(&self) -> bool {
        self.routed && self.shards == 0 && self.sums.open() == 0
    }

    fn take(&mut self, news: News, now: Instant) {
        let sums = &mut self.sums;
        match news {
            News::Routed { expected, shards } => {
                self.routed = true;
                self.shards += shards;
                sums.expected += u64::from(expected);
            }
            News::Expected(expected) => {
                self.shards = self.shards.saturating_sub(1);
                sums.expected += u64::from(expected);
            }
            News::Sent => sums.sent += 1,
            News::Acknowledged { processed } => {
                sums.acknowledged += 1;
                sums.processed += u64::from(processed);
                sums.last_acknowledged = Some(now);
            }
            News::Dropped(reason) => sums.drop(reason, 1),
            News::LeftOut => sums.left_out += 1,
            News::Altered => sums.altered += 1,
        }
    }
}

impl Tracking {
    /// Follows what is published from this number on.
    pub(crate) fn from(number: u64) -> Self {
        Self {
            first: number,
            receipts: VecDeque::new(),
            window_first: number,
            window: Sums::default(),
            ends: VecDeque::new(),
            since: number,
            total: Sums::default(),
            changed: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.receipts.is_empty()
    }

    fn end(&self) -> u64 {
        self.first + self.receipts.len() as u64
    }
}

impl IngressLane {
    /// Follows the message that was just numbered.
    pub(super) fn follow(&mut self, mark: &Mark, topic: &str, watch: &mut Watch) {
        let root = mark
            .number
            .wrapping_add(1)
            .is_multiple_of(WINDOW)
            .then(|| self.root());
        if self
            .tracking
            .as_ref()
            .is_none_or(|old| old.end() != mark.number)
        {
            // It was not watched for a while: what is still open is published as it is.
            self.end_tracking(watch);
            self.tracking = None;
        }
        let tracking = self
            .tracking
            .get_or_insert_with(|| Box::new(Tracking::from(mark.number)));
        tracking.receipts.push_back(Receipt {
            topic: topic.into(),
            is_aside: watch.topics.is_aside(topic),
            sums: Sums::default(),
            routed: false,
            shards: 0,
            is_published: false,
        });
        tracking.changed = true;
        if let Some(root) = root {
            tracking.ends.push_back((mark.number + 1, root));
        }
        if tracking.receipts.len() > RECEIPTS_MAX {
            self.pass(watch);
        }
    }

    /// Takes what became known of one message, and publishes what is finished by it.
    pub(super) fn take_news(&mut self, now: Instant, number: u64, news: News, watch: &mut Watch) {
        let Some(tracking) = &mut self.tracking else {
            return;
        };
        let Some(at) = number.checked_sub(tracking.first) else {
            return; // published already, unfinished
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let Some(receipt) = tracking.receipts.get_mut(at) else {
            return;
        };
        tracking.changed = true;
        receipt.take(news, now);
        if !receipt.is_finished() {
            return;
        }
        self.report_receipt(at, watch);
        while let Some(Tracking { receipts, .. }) = self.tracking.as_deref()
            && receipts.front().is_some_and(|receipt| receipt.is_published)
        {
            self.pass(watch);
        }
    }

    /// Whether the receipt of a message is open.
    pub(crate) fn is_followed(&self) -> bool {
        let tracking = self.tracking.as_ref();
        tracking.is_some_and(|tracking| !tracking.is_empty())
    }

    /// What is still followed is published as it is.
    pub(super) fn end_tracking(&mut self, watch: &mut Watch) {
        while self.is_followed() {
            self.pass(watch);
        }
        self.report_state(watch);
    }

    /// The oldest message is not followed any more.
    fn pass(&mut self, watch: &mut Watch) {
        if self
            .tracking
            .as_ref()
            .is_some_and(|t| t.receipts.front().is_some_and(|r| !r.is_published))
        {
            self.report_receipt(0, watch);
        }
        let Some(tracking) = &mut self.tracking else {
            return;
        };
        let Some(receipt) = tracking.receipts.pop_front() else {
            return;
        };
        tracking.first += 1;
        if !receipt.is_aside {
            tracking.window.add(&receipt.sums);
            tracking.total.add(&receipt.sums);
        }
        let Some((end, root)) = tracking
            .ends
            .pop_front_if(|(end, _)| *end == tracking.first)
        else {
            return;
        };
        let window = std::mem::take(&mut tracking.window);
        let first = std::mem::replace(&mut tracking.window_first, end);
        if !self.wants.contains(Wants::WINDOWS) {
            return;
        }
        let object = self
            .head()
            .number("first", first)
            .number("size", end)
            .text("root", &root.to_string())
            .text("state", window.state());
        let text = window.write(object).end();
        watch.report(Report::about(self, "window", text));
    }

    fn report_receipt(&mut self, at: usize, watch: &mut Watch) {
        let Some(tracking) = &mut self.tracking else {
            return;
        };
        let number = tracking.first + at as u64;
        let Some(receipt) = tracking.receipts.get_mut(at) else {
            return;
        };
        receipt.is_published = true;
        receipt.sums.settle();
        if !self.wants.contains(Wants::RECEIPTS) {
            return;
        }
        let (finished, sums) = (receipt.is_finished(), receipt.sums.clone());
        let topic = receipt.topic.clone();
        let at = sums.last_acknowledged.map(|at| rfc3339(watch.time_us(at)));
        let last = at.as_ref().map(|at| format!(", last at {at}"));
        let network = match sums.sent {
            0 => String::new(),
            count => format!(", handed to the network for {count}"),
        };
        let (acknowledged, expected) = (sums.acknowledged, sums.shown_expected());
        let last = last.unwrap_or_default();
        let words = format!("acknowledged by {acknowledged} of {expected}{last}{network}");
        let mut object = self.head().number("number", number).text("topic", &topic);
        object = sums.write(object);
        if let Some(at) = &at {
            object = object.text("acknowledged_at", at);
        }
        let text = object
            .flag("finished", finished)
            .text("words", &words)
            .end();
        watch.report(Report::about(self, "receipt", text));
    }

    /// What the lane has come to, if that has changed.
    pub(super) fn report_state(&mut self, watch: &mut Watch) {
        let Some(tracking) = &mut self.tracking else {
            return;
        };
        if !std::mem::take(&mut tracking.changed) || !self.wants.contains(Wants::STATE) {
            return;
        }
        let mut sums = tracking.total.clone();
        for receipt in tracking.receipts.iter().filter(|of| !of.is_aside) {
            sums.add(&receipt.sums);
        }
        let (since, root) = (tracking.since, self.root());
        let object = self
            .head()
            .number("messages", self.size())
            .text("root", &root.to_string())
            .number("since", since)
            .text("state", sums.state());
        watch.report(Report::about(self, "state", sums.write(object).end()));
    }

    fn head(&self) -> Object {
        Object::new()
            .text("lane", &self.id.to_string())
            .number("epoch", self.epoch.0)
    }
}

impl Audit {
    /// The shard that follows the messages of this client.
    pub(crate) fn home_of(&self, publisher: &str) -> ShardId {
        placement::of_client(publisher, self.shards)
    }

    /// What became known of a message of a client of this shard. `lane`: that of its session.
    pub(crate) fn take_news(
        &mut self,
        now: Instant,
        lane: Option<&mut IngressLane>,
        publisher: &Arc<str>,
        epoch: Epoch,
        number: u64,
        news: News,
    ) {
        if let Some(lane) = lane.filter(|lane| lane.epoch == epoch) {
            return lane.take_news(now, number, news, &mut self.watch);
        }
        let key = (Arc::clone(publisher), epoch);
        if let Some(lane) = self.departed.get_mut(&key) {
            lane.take_news(now, number, news, &mut self.watch);
            if !lane.is_followed() {
                lane.report_state(&mut self.watch);
                self.departed.remove(&key);
            }
        }
    }

    /// A session has ended: what it published is followed to its end.
    pub(super) fn follow_to_the_end(&mut self, client_id: &Arc<str>, mut lane: Box<IngressLane>) {
        if lane.is_followed() && self.departed.len() < DEPARTED_LANES_MAX {
            let key = (Arc::clone(client_id), lane.epoch);
            self.departed.insert(key, lane);
        } else {
            lane.end_tracking(&mut self.watch);
        }
    }
}

/// Messages of a window.
const WINDOW: u64 = 1_024;
