//! A shard's handle to the store: its requests, and which of them are stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use unbroken_broker_core::{Frontier, ReadRequest, Shard, ShardId, StoreId, StoreRequest};
use unbroken_persist::{Times, batch_of};
use unbroken_store::{Batch, COMMIT_BYTES_MAX, Committer};

use super::space::DiskSpace;

/// One shard's handle to the store.
#[derive(Debug)]
pub(crate) struct StoreHandle {
    shard: ShardId,
    pub(super) committer: Arc<Committer<Token>>,
    space: Arc<DiskSpace>,
    /// The shard knows that the disk lacks space.
    knows_lack: bool,
    /// The clocks of the turn that last made a request.
    times: Times,
    /// The requests in response to one input, and the last of them.
    gathered: Option<(Batch, StoreId)>,
    /// Messages that no shard needs once the requests are stored.
    released: Option<Frontier>,
    /// The last request that was submitted, and the last one that is stored.
    submitted: StoreId,
    stored: StoreId,
    /// Submitted when the turn has read its clients, so that a commit begins with all requests of a
    /// turn and not with the first. Also requests for which the committer had no room.
    unsubmitted: VecDeque<(Batch, Token)>,
    unsubmitted_bytes: usize,
    /// The committer had no room.
    is_behind: bool,
    /// The messages that the shard needed at the last report, and when to report again.
    needed: Option<Frontier>,
    report_at: Instant,
    /// Reports that are still to follow each other quickly.
    early_reports: u32,
    /// See [`Committer::submit_all`].
    pub(crate) commit_delay: Duration,
}

/// The purpose of a batch.
#[derive(Debug)]
pub(super) enum Token {
    Stored(ShardId, StoreId),
    Read(ShardId, ReadRequest),
    /// The messages that a shard needed at the report before the last; the last one is stored.
    Needed(ShardId, Frontier),
    /// Messages that no shard needs.
    Released(Frontier),
    /// Report that everything before it is stored.
    Notify(Sender<()>),
}

impl StoreHandle {
    pub(super) fn new(
        shard: ShardId,
        committer: Arc<Committer<Token>>,
        space: Arc<DiskSpace>,
        times: Times,
    ) -> Self {
        Self {
            shard,
            committer,
            space,
            knows_lack: false,
            times,
            gathered: None,
            released: None,
            submitted: StoreId::default(),
            stored: StoreId::default(),
            unsubmitted: VecDeque::new(),
            unsubmitted_bytes: 0,
            is_behind: false,
            needed: None,
            report_at: Instant::now() + REPORT_EARLY_EVERY,
            early_reports: EARLY_REPORTS,
            commit_delay: Duration::ZERO,
        }
    }

    /// Adds a request to those of the current input, which are stored together or not at all.
    pub(crate) fn store(&mut self, now: Instant, request: &StoreRequest) {
        if !self.times.is_of(now) {
            self.times = Times::new(now, SystemTime::now());
        }
        let batch = batch_of(&request.record, now, &self.times);
        match &mut self.gathered {
            Some((gathered, last)) => {
                gathered.extend(batch);
                *last = request.id;
            }
            None => self.gathered = Some((batch, request.id)),
        }
    }

    /// Submits the requests of an input that is over.
    pub(crate) fn submit_gathered(&mut self) {
        if let Some((batch, last)) = self.gathered.take() {
            self.submitted = last;
            self.submit(batch, Token::Stored(self.shard, last));
        }
        if let Some(needed) = self.released.take() {
            self.submit(Batch::new(), Token::Released(needed));
        }
    }

    /// Reports `needed`, up to where no shard needs the logs, once all requests so far are stored.
    pub(crate) fn release_when_stored(&mut self, needed: Frontier) {
        self.released = Some(needed);
    }

    pub(crate) fn read(&mut self, request: ReadRequest) {
        self.submit_gathered();
        self.submit(Batch::new(), Token::Read(self.shard, request));
    }

    /// Reports on `done` when all requests so far are stored.
    pub(crate) fn notify_when_stored(&mut self, done: Sender<()>) {
        self.submit_gathered();
        self.submit(Batch::new(), Token::Notify(done));
    }

    /// The committer's answer: all requests up to this one are stored.
    pub(crate) fn stored(&mut self, id: StoreId) {
        // `failed` may have been called before.
        self.stored = self.stored.max(id);
    }

    /// The last request that is known to be stored.
    pub(crate) const fn last_stored(&self) -> StoreId {
        self.stored
    }

    /// The committer answers no more requests.
    pub(crate) fn failed(&mut self) {
        self.stored = self.submitted;
    }

    /// Whether the disk will answer a request.
    pub(crate) fn has_pending(&self) -> bool {
        self.submitted > self.stored
    }

    /// Whether the committer had no room for all requests.
    pub(crate) const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Whether a request is not in the committer's queue.
    pub(crate) fn has_unsubmitted(&self) -> bool {
        !self.unsubmitted.is_empty()
    }

    /// Whether the disk lacks space, if that is news for the shard.
    pub(crate) fn take_lack(&mut self) -> Option<bool> {
        let lacks = self.space.would_lack(self.unsubmitted_bytes as u64);
        let knew = std::mem::replace(&mut self.knows_lack, lacks);
        (lacks != knew).then_some(lacks)
    }

    /// Submits the queued requests as far as there is room.
    pub(crate) fn submit_all(&mut self) {
        self.space.request(self.unsubmitted_bytes as u64);
        self.committer
            .submit_all(&mut self.unsubmitted, self.commit_delay);
        self.is_behind = !self.unsubmitted.is_empty();
        self.unsubmitted_bytes = 0;
    }

    /// Reports from time to time which messages the shard needs, and submits the queued requests.
    pub(crate) fn turn(&mut self, now: Instant, shard: &Shard) {
        if self.report_at <= now {
            self.early_reports = self.early_reports.saturating_sub(1);
            self.report_at = now
                + match self.early_reports {
                    0 if !self.knows_lack => REPORT_NEEDED_EVERY,
                    _ => REPORT_EARLY_EVERY,
                };
            let needed = shard.needed();
            if let Some(before) = self.needed.replace(needed) {
                self.submit(Batch::new(), Token::Needed(self.shard, before));
            }
        }
        self.submit_all();
    }

    /// When [`turn`](Self::turn) is due.
    pub(crate) fn next_turn(&self, now: Instant) -> Instant {
        if self.is_behind() {
            now + RETRY_AFTER
        } else {
            self.report_at
        }
    }

    fn submit(&mut self, batch: Batch, token: Token) {
        self.unsubmitted_bytes += batch.bytes();
        self.unsubmitted.push_back((batch, token));
        if self.unsubmitted_bytes >= SUBMIT_BYTES && !self.is_behind {
            self.submit_all();
        }
    }
}

/// Interval of the shards' reports of needed messages.
const REPORT_NEEDED_EVERY: Duration = Duration::from_secs(5);
/// The same while the disk lacks space; and right after the start, for so many reports: after them
/// it is known which messages are needed, and so whether the store is full. The first report counts
/// then.
const REPORT_EARLY_EVERY: Duration = Duration::from_secs(1);
const EARLY_REPORTS: u32 = 4;
/// Bytes that are submitted before the turn has read all clients: half of a commit.
const SUBMIT_BYTES: usize = COMMIT_BYTES_MAX / 2;
/// Retry interval while the committer has no room: about the end of its next commit.
const RETRY_AFTER: Duration = Duration::from_millis(1);
