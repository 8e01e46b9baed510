//! The disk of a broker: what its shards have asked for, what is on it, and what they have been
//! told.
//!
//! ```text
//! asked, in one order over all shards ---> committed ---> answered, to each shard in its order
//! ```
//!
//! What is behind the last commit is gone when the broker is. A commit that fails is the last one;
//! some of it may be on disk nevertheless.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use unbroken_broker_core::{ReadAnswer, ReadRequest, StoreId, StoreRequest};
use unbroken_durable::{Restored, Times, batch_of, read, restore};
use unbroken_store::session::{PartView, parse_key};
use unbroken_store::{Batch, Fault, Faulty, Kv, Memory, On, Space, Store};

use crate::oracle::{Oracle, Request};

pub(super) struct Storage {
    store: Faulty<Memory>,
    start: Instant,
    times: Times,
    /// Asked for and not committed.
    waiting: VecDeque<(Batch, Rc<Request>)>,
    /// How many requests are committed.
    committed: u64,
    /// By shard: what it has not been told of, each with its place among all requests.
    unanswered: Vec<VecDeque<(u64, StoreId, Rc<Request>)>>,
    /// By shard: what it wants to read, each behind so many requests.
    reads: Vec<VecDeque<(u64, ReadRequest)>>,
    /// What the next commit fails at.
    fails: Option<On>,
    /// It has: nothing is committed any more.
    dead: bool,
}

impl Storage {
    pub(super) fn new(shards: usize, start: Instant) -> Self {
        Self {
            store: Faulty::new(Memory::new()),
            start,
            times: Times::new(start, UNIX_EPOCH + BEGINS),
            waiting: VecDeque::new(),
            committed: 0,
            unanswered: (0..shards).map(|_| VecDeque::new()).collect(),
            reads: (0..shards).map(|_| VecDeque::new()).collect(),
            fails: None,
            dead: false,
        }
    }

    fn asked(&self) -> u64 {
        self.committed + self.waiting.len() as u64
    }

    pub(super) fn ask(
        &mut self,
        shard: usize,
        now: Instant,
        asked: &StoreRequest,
        oracle: &mut Oracle,
    ) {
        let request = Rc::new(oracle.ask(&asked.record));
        let batch = batch_of(&asked.record, now, &self.times);
        self.waiting.push_back((batch, Rc::clone(&request)));
        let number = self.asked();
        self.unanswered[shard].push_back((number, asked.id, request));
    }

    pub(super) fn ask_to_read(&mut self, shard: usize, request: ReadRequest) {
        let behind = self.asked();
        self.reads[shard].push_back((behind, request));
    }

    /// Shards that wait for the disk.
    pub(super) fn shards_waiting(&self) -> Vec<usize> {
        busy(&self.unanswered)
    }

    /// Shards that wait to read.
    pub(super) fn shards_reading(&self) -> Vec<usize> {
        busy(&self.reads)
    }

    /// How much a shard waits for.
    pub(super) fn unanswered(&self, shard: usize) -> usize {
        self.unanswered[shard].len()
    }

    /// Sees to it that the first `count` requests of a shard are on disk; what to tell it.
    pub(super) fn answer(
        &mut self,
        shard: usize,
        count: usize,
        oracle: &mut Oracle,
    ) -> Option<StoreId> {
        let (last, ..) = self.unanswered[shard].get(count.checked_sub(1)?)?;
        self.commit_to(*last, oracle);
        if self.dead {
            return None;
        }
        let mut answered = None;
        for (_, id, request) in self.unanswered[shard].drain(..count) {
            oracle.answered(&request);
            answered = Some(id);
        }
        answered
    }

    /// What a shard wants to read next, once all that was asked for before is on disk.
    pub(super) fn next_read(&mut self, shard: usize, oracle: &mut Oracle) -> Option<ReadRequest> {
        let (behind, _) = self.reads[shard].front()?;
        self.commit_to(*behind, oracle);
        if self.dead {
            return None;
        }
        let (_, request) = self.reads[shard].pop_front()?;
        Some(request)
    }

    pub(super) fn read(&self, request: &ReadRequest) -> ReadAnswer {
        read(&self.store, request, &self.times).expect("no fault of reading is planned")
    }

    /// Commits what was asked for up to this place.
    fn commit_to(&mut self, number: u64, oracle: &mut Oracle) {
        let wanted = number.saturating_sub(self.committed);
        let count = usize::try_from(wanted).map_or(0, |count| count.min(self.waiting.len()));
        if self.dead || count == 0 {
            return;
        }
        let (batches, requests): (Vec<_>, Vec<_>) = self.waiting.drain(..count).unzip();
        let written = if let Ok(results) = self.store.commit(&batches) {
            // One that is not the next of its log would be a conflict.
            assert!(results.iter().all(Result::is_ok), "{results:?}");
            self.committed += count as u64;
            count
        } else {
            self.dead = true;
            match self.fails {
                Some(On::Commit(written)) => written,
                _ => count,
            }
        };
        for request in requests.iter().take(written) {
            oracle.committed(request);
        }
    }

    /// The next commit fails, when so many of its batches are on disk.
    pub(super) fn fail(&mut self, on: On, kind: io::ErrorKind) {
        self.fails = Some(on);
        let after = 0;
        self.store.inject(Fault { on, after, kind });
    }

    /// How much is not committed.
    pub(super) fn uncommitted(&self) -> usize {
        self.waiting.len()
    }

    /// The broker is gone; of what it had asked for so much more is on disk.
    pub(super) fn crash(&mut self, now: Instant, commits: usize, oracle: &mut Oracle) {
        self.commit_to(self.committed + commits as u64, oracle);
        let shards = self.reads.len();
        let store = std::mem::replace(&mut self.store, Faulty::new(Memory::new()));
        *self = Self::new(shards, self.start);
        self.store = Faulty::new(store.into_inner());
        // The broker's clock begins anew with it; the time of day goes on.
        self.times = Times::new(now, UNIX_EPOCH + BEGINS + (now - self.start));
    }

    pub(super) fn restore(&self, now: Instant) -> Restored {
        restore(&self.store, now, &self.times).expect("what was written can be read")
    }

    /// Keys of sessions and of retained messages. What is left of a session that had no end is in
    /// nobody's way, and is no session.
    pub(super) fn keys(&self) -> Vec<String> {
        let is_whole = |space: Space, key: &[u8]| {
            let head = |key| parse_key(key).is_ok_and(|view| matches!(view.part, PartView::Head));
            space == Space::Retained || head(key)
        };
        let of_space = |space| {
            let page = self.store.scan(space, &[], None, usize::MAX);
            let pairs = page.into_iter().flat_map(|page| page.pairs);
            pairs.filter(move |pair| is_whole(space, &pair.key))
        };
        let pairs = [Space::Sessions, Space::Retained]
            .into_iter()
            .flat_map(of_space);
        pairs
            .map(|pair| pair.key.escape_ascii().to_string())
            .collect()
    }
}

fn busy<T>(queues: &[VecDeque<T>]) -> Vec<usize> {
    let queues = queues.iter().enumerate();
    let busy = queues.filter(|(_, queue)| !queue.is_empty());
    busy.map(|(shard, _)| shard).collect()
}

/// The time of day at which every run begins, since 1970.
const BEGINS: Duration = Duration::from_secs(1_790_000_000);
