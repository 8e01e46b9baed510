//! The disk of a broker: what its shards have asked for, what is on it, and what they have been
//! told.
//!
//! ```text
//! asked, in one order over all shards ---> committed ---> answered, to each shard in its order
//! ```
//!
//! What a shard asks for in answer to one input is one commit, whole or not at all.
//! What is behind the last commit is gone when the broker is. A commit that fails is the last one;
//! some of it may be on disk nevertheless. What is behind the last sync may be gone when the
//! machine is, if commits do not sync.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use unbroken_broker_core::{Frontier, ReadAnswer, ReadRequest, StoreId, StoreRequest};
use unbroken_persist::{Needs, Restored, Times, batch_of, behind, log_of, read, restore};
use unbroken_store::hand_over;
use unbroken_store::session::{PartView, parse_key};
use unbroken_store::{
    Batch, Durability, Fault, Faulty, Kv, LogId, Memory, On, Sequence, Space, Store, StoreError,
    backup, store_health,
};

use crate::oracle::{Oracle, Request};

pub(super) struct Storage {
    store: Faulty<Memory>,
    durability: Durability,
    /// The store as it was at the last sync, and what was done since.
    synced: Memory,
    unsynced: Vec<Change>,
    start: Instant,
    times: Times,
    /// Asked for and not committed, an input's each.
    waiting: VecDeque<(Batch, Vec<Rc<Request>>)>,
    /// The last of them is of the present input.
    gathers: bool,
    /// How many are committed.
    committed: u64,
    /// By shard: what it has not been told of, each with the place among all inputs' of what it is
    /// committed with.
    unanswered: Vec<VecDeque<(u64, StoreId, Rc<Request>)>>,
    /// By shard: what it wants to read, each behind so many inputs'.
    reads: Vec<VecDeque<(u64, ReadRequest)>>,
    /// What shards have said they do not need, by shard: lately, and before that behind so many
    /// inputs'. By what is committed of the latter logs are trimmed.
    needed: Vec<Option<Frontier>>,
    needed_before: VecDeque<(u64, usize, Frontier)>,
    /// What nobody needs, once all up to this place is on disk.
    let_go: VecDeque<(u64, Frontier)>,
    needed_on_disk: Needs,
    /// What the next commit fails at.
    fails: Option<On>,
    /// It has: nothing is committed any more.
    dead: bool,
}

/// What the end of the machine may take back, if nothing was synced since.
#[derive(Clone)]
enum Change {
    Commit(Batch, Vec<Rc<Request>>),
    Trim(LogId, Sequence),
}

impl Storage {
    pub(super) fn new(shards: usize, durability: Durability, start: Instant) -> Self {
        let [store, synced] = [(), ()].map(|()| Memory::new());
        for begun in [&store, &synced] {
            let begun = store_health::begin(begun, durability == Durability::Strict);
            begun.expect("it is in memory");
        }
        Self {
            store: Faulty::new(store),
            durability,
            synced,
            unsynced: Vec::new(),
            start,
            times: Times::new(start, UNIX_EPOCH + BEGINS),
            waiting: VecDeque::new(),
            gathers: false,
            committed: 0,
            unanswered: (0..shards).map(|_| VecDeque::new()).collect(),
            reads: (0..shards).map(|_| VecDeque::new()).collect(),
            needed: vec![None; shards],
            needed_before: VecDeque::new(),
            let_go: VecDeque::new(),
            needed_on_disk: Needs::new(shards),
            fails: None,
            dead: false,
        }
    }

    /// Nothing can be stored any more.
    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    fn asked(&self) -> u64 {
        self.committed + self.waiting.len() as u64
    }

    /// What is asked for from now on is of another input.
    pub(super) fn begin_input(&mut self) {
        self.gathers = false;
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
        match self.waiting.back_mut().filter(|_| self.gathers) {
            Some((gathered, requests)) => {
                gathered.extend(batch);
                requests.push(Rc::clone(&request));
            }
            None => self.waiting.push_back((batch, vec![Rc::clone(&request)])),
        }
        self.gathers = true;
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

    /// Nothing if it fails: whoever reads the store takes that for its end.
    pub(super) fn read(&mut self, request: &ReadRequest) -> Option<ReadAnswer> {
        let answer = read(&self.store, request, &self.times);
        if answer.is_err() {
            assert_eq!(self.fails, Some(On::Read), "{answer:?}");
            self.dead = true;
        }
        answer.ok()
    }

    /// A shard says what it needs. What it needed before is meanwhile on its way to the disk.
    pub(super) fn needs(&mut self, shard: usize, needed: Frontier) {
        if let Some(before) = self.needed[shard].replace(needed) {
            let behind = self.asked();
            self.needed_before.push_back((behind, shard, before));
        }
    }

    /// Trims what nobody needs, once all have said so; up to where that is, and how much is left.
    pub(super) fn trim(&mut self) -> Option<(u64, Frontier)> {
        while let Some((behind, shard, needed)) = self.needed_before.pop_front() {
            if behind > self.committed {
                self.needed_before.push_front((behind, shard, needed));
                break;
            }
            self.needed_on_disk.report(shard, needed);
        }
        if self.dead {
            return None;
        }
        let lowest = self.needed_on_disk.end_round()?;
        self.trim_to(&lowest);
        let bytes = self.store.size_bytes().expect("it is in memory");
        Some((bytes, lowest))
    }

    /// What is within is needed by nobody, once all is on disk that was asked for so far.
    pub(super) fn let_go_when_stored(&mut self, needed: Frontier) {
        self.let_go.push_back((self.asked(), needed));
        self.let_go();
    }

    fn let_go(&mut self) {
        while !self.dead
            && let Some((_, needed)) = self
                .let_go
                .pop_front_if(|(behind, _)| *behind <= self.committed)
        {
            self.trim_to(&needed);
        }
    }

    fn trim_to(&mut self, needed: &Frontier) {
        for (log, number) in needed.iter() {
            let (log, below) = (log_of(log), behind(number));
            let trimmed = self.store.trim(log, below);
            trimmed.expect("no fault of trimming is planned");
            if self.durability != Durability::Strict {
                self.unsynced.push(Change::Trim(log, below));
            }
        }
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
        for (batch, requests) in batches.into_iter().zip(requests).take(written) {
            for request in &requests {
                oracle.committed(request);
            }
            if self.durability != Durability::Strict {
                self.unsynced.push(Change::Commit(batch, requests));
            }
        }
        self.let_go();
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

    /// The broker is gone; of what it had asked for so much more is on disk. The next one has so
    /// many shards.
    pub(super) fn crash(
        &mut self,
        now: Instant,
        commits: usize,
        shards: usize,
        oracle: &mut Oracle,
    ) {
        self.commit_to(self.committed + commits as u64, oracle);
        let store = std::mem::replace(&mut self.store, Faulty::new(Memory::new()));
        let synced = std::mem::take(&mut self.synced);
        let unsynced = std::mem::take(&mut self.unsynced);
        *self = Self::new(shards, self.durability, self.start);
        (self.synced, self.unsynced) = (synced, unsynced);
        self.store = Faulty::new(store.into_inner());
        // The broker's clock begins anew with it; the time of day goes on.
        self.times = Times::new(now, UNIX_EPOCH + BEGINS + (now - self.start));
    }

    /// Begins while something fails; whether it did begin. What it has done of it stays done.
    pub(super) fn restore_with(&mut self, fault: Fault, now: Instant) -> bool {
        self.store.inject(fault);
        let begun = self.begin(now).is_ok();
        let store = std::mem::replace(&mut self.store, Faulty::new(Memory::new()));
        self.store = Faulty::new(store.into_inner());
        begun
    }

    pub(super) fn restore(&mut self, now: Instant, oracle: &mut Oracle) -> Restored {
        let restored = self.begin(now);
        // Some of it was written now.
        if self.durability != Durability::Strict {
            self.synced = copy(&self.store);
            self.unsynced.clear();
            oracle.synced();
        }
        restored.expect("what was written can be read")
    }

    fn begin(&self, now: Instant) -> Result<Restored, StoreError> {
        store_health::begin(&self.store, self.durability == Durability::Strict)?;
        let shards = u8::try_from(self.reads.len()).expect("few shards");
        restore(&self.store, shards, now, &self.times)
    }

    /// What is committed is safe from now on. False if there is nothing to be done.
    pub(super) fn sync(&mut self, oracle: &mut Oracle) -> bool {
        if self.dead || self.unsynced.is_empty() {
            return false;
        }
        for change in self.unsynced.drain(..) {
            change.apply(&self.synced);
        }
        oracle.synced();
        true
    }

    /// How much a power cut may take back.
    pub(super) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// The machine is gone: what was synced is there, and the first `kept` changes since. The next
    /// broker has so many shards.
    pub(super) fn lose_power(
        &mut self,
        now: Instant,
        kept: usize,
        shards: usize,
        oracle: &mut Oracle,
    ) {
        self.crash(now, 0, shards, oracle);
        oracle.lose_unsynced();
        let synced = std::mem::take(&mut self.synced);
        for change in self.unsynced.drain(..).take(kept) {
            change.apply(&synced);
            if let Change::Commit(_, requests) = change {
                for request in &requests {
                    oracle.committed_before_cut(request);
                }
            }
        }
        self.store = Faulty::new(synced);
    }

    /// Keys of sessions, of retained messages, and of what sessions have left to groups. What is
    /// left of a session that had no end is in nobody's way, and is no session.
    pub(super) fn keys(&self) -> Vec<String> {
        let is_whole = |space: Space, key: &[u8]| {
            let head = |key| parse_key(key).is_ok_and(|view| matches!(view.part, PartView::Head));
            match space {
                Space::Sessions => head(key),
                Space::Control => key.starts_with(hand_over::PREFIX),
                _ => true,
            }
        };
        let of_space = |space| {
            let page = self.store.scan(space, &[], None, usize::MAX);
            let pairs = page.into_iter().flat_map(|page| page.pairs);
            pairs.filter(move |pair| is_whole(space, &pair.key))
        };
        let pairs = [Space::Sessions, Space::Retained, Space::Control]
            .into_iter()
            .flat_map(of_space);
        pairs
            .map(|pair| pair.key.escape_ascii().to_string())
            .collect()
    }
}

impl Change {
    fn apply(&self, store: &Memory) {
        match self {
            Self::Commit(batch, _) => {
                let done = store.commit(std::slice::from_ref(batch));
                assert!(done.is_ok_and(|results| results.iter().all(Result::is_ok)));
            }
            Self::Trim(log, below) => {
                store.trim(*log, *below).expect("it is in memory");
            }
        }
    }
}

fn copy(store: &Faulty<Memory>) -> Memory {
    let (mut file, copy) = (Vec::new(), Memory::new());
    let view = store.snapshot().expect("no fault is planned");
    backup::write(&*view, &mut file).expect("it is in memory");
    backup::read(&mut &*file, &copy).expect("a backup can be read");
    copy
}

fn busy<T>(queues: &[VecDeque<T>]) -> Vec<usize> {
    let queues = queues.iter().enumerate();
    let busy = queues.filter(|(_, queue)| !queue.is_empty());
    busy.map(|(shard, _)| shard).collect()
}

/// The time of day at which every run begins, since 1970.
const BEGINS: Duration = Duration::from_secs(1_790_000_000);
