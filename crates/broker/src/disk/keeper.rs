//! The thread that reads the logs for shards, and trims them.
//!
//! Invariants:
//! - A read that somebody waits for waits for no more than one generation to be deleted. A read in
//!   the background waits for all that others want of the store and for what is to be trimmed, and
//!   makes none of them wait for more than one piece of a log.
//! - A log is trimmed by what shards needed so long ago that what they have told since is stored,
//!   and by what they needed for some time before ([`Needs`]); or by what the only shard needs when
//!   all that it has told is stored.
//! - How large the store is, and what the disk has room for, is said when what nobody needs is
//!   gone: of a log that a shard has left, as when there are fewer than before, all of it.
//!
//! Deliberately absent: when shards say what they need, which is [`Desk`](super::Desk)'s.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Instant, SystemTime};

use unbroken_broker_core::{CommitTimes, Frontier, Position, ReadRequest, ShardId, StoreSize};
use unbroken_persist::{Needs, Times, behind, left_out, log_of, read};
use unbroken_store::{CommitStats, StoreError};

use super::room::Room;
use super::{tell_damaged, tell_failed};
use crate::broker_store::BrokerStore;
use crate::mailbox::{Outside, Parcel};
use crate::server::Notice;

/// Work for the keeper.
#[derive(Debug)]
pub(super) enum Job {
    Read(ShardId, ReadRequest),
    Needed(ShardId, Frontier),
    /// What is within is needed by nobody.
    LetGo(Frontier),
    /// Go on trimming.
    Trim,
    End,
}

/// The thread that reads and trims.
pub(super) struct Keeper {
    store: Arc<dyn BrokerStore>,
    directory: PathBuf,
    room: Room,
    commits: Arc<CommitStats>,
    /// As it was when it was last said.
    commits_said: unbroken_store::CommitTimes,
    /// It was when it was last looked at.
    disk_is_full: bool,
    shards: Vec<Outside>,
    needs: Needs,
    /// Trimming that is not at its end.
    trimming: Option<Trimming>,
    /// Reads for clients that went before it since something was trimmed.
    reads_since_trim: u32,
    /// Reads that nobody waits for.
    background: VecDeque<(ShardId, ReadRequest)>,
    waiting: Receiver<Job>,
    notify: Sender<Notice>,
}

/// What is to be let go of, a generation at a time.
struct Trimming {
    /// What no shard needs.
    needed: Frontier,
    /// Logs in which there may be something to free, and up to where.
    logs: VecDeque<Position>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if thread::panicking() {
            let reason = "the thread that reads the store panicked";
            tell_failed(&self.notify, reason.to_owned());
        }
    }
}

impl Keeper {
    pub(super) fn new(
        store: Arc<dyn BrokerStore>,
        commits: Arc<CommitStats>,
        room: Room,
        directory: PathBuf,
        shards: Vec<Outside>,
        waiting: Receiver<Job>,
        notify: Sender<Notice>,
    ) -> Self {
        Self {
            store,
            directory,
            room,
            commits_said: commits.times(),
            commits,
            disk_is_full: false,
            needs: Needs::new(shards.len()),
            trimming: None,
            reads_since_trim: 0,
            background: VecDeque::new(),
            shards,
            waiting,
            notify,
        }
    }

    /// Works until it is told to end, or something cannot be read or trimmed, which it tells.
    pub(super) fn run(mut self) {
        while let Some(job) = self.next_job() {
            if matches!(job, Job::End) {
                return;
            }
            if let Err(error) = self.carry_out(job) {
                self.tell(&error);
                return;
            }
        }
    }

    fn carry_out(&mut self, job: Job) -> Result<(), StoreError> {
        match job {
            Job::Read(shard, request) => self.read(shard, &request),
            Job::Needed(shard, needed) => {
                self.needs.say(usize::from(shard.0), needed);
                self.begin_trimming();
                Ok(())
            }
            Job::LetGo(needed) => self.let_go(&needed),
            Job::Trim => self.trim(),
            Job::End => Ok(()),
        }
    }

    /// What somebody waits for first, then trimming, and one read in the background when there is
    /// nothing else. Reads without end do not keep anything from being trimmed.
    fn next_job(&mut self) -> Option<Job> {
        loop {
            let may_trim = self.trimming.is_some();
            if may_trim && self.reads_since_trim >= READS_BEFORE_TRIM {
                return Some(Job::Trim);
            }
            let job = if !may_trim && self.background.is_empty() {
                self.waiting.recv().ok()?
            } else if let Ok(job) = self.waiting.try_recv() {
                job
            } else if may_trim {
                return Some(Job::Trim);
            } else {
                let (shard, request) = self.background.pop_front()?;
                return Some(Job::Read(shard, request));
            };
            match job {
                Job::Read(shard, request) if request.in_background => {
                    self.background.push_back((shard, request));
                }
                other => return Some(other),
            }
        }
    }

    fn tell(&self, error: &StoreError) {
        let reason = error.to_string();
        if matches!(error, StoreError::Damaged { .. }) {
            tell_damaged(&self.notify, &self.directory, reason);
        } else {
            tell_failed(&self.notify, reason);
        }
    }

    fn read(&mut self, shard: ShardId, request: &ReadRequest) -> Result<(), StoreError> {
        let times = Times::new(Instant::now(), SystemTime::now());
        let answer = read(&*self.store, request, &times)?;
        self.shards[usize::from(shard.0)].send(Parcel::Read(Box::new(answer)));
        self.reads_since_trim = self.reads_since_trim.saturating_add(1);
        Ok(())
    }

    /// Finds what no shard needs, once all have said what they do. What is trimmed already costs a
    /// look.
    fn begin_trimming(&mut self) {
        if let Some(needed) = self.needs.end_round() {
            let logs = needed.iter();
            let logs = logs.map(|(log, number)| Position { log, number });
            let logs = logs.collect();
            self.trimming = Some(Trimming { needed, logs });
        }
    }

    /// Tells the store, which has the newest of it in memory only. What is left on disk, and how
    /// large it is, is seen to when all shards are asked.
    fn let_go(&self, needed: &Frontier) -> Result<(), StoreError> {
        for (log, number) in needed.iter() {
            self.store.let_go(log_of(log), behind(number));
        }
        // One generation at the most, for which a read waits here as well.
        for (log, number) in needed.iter() {
            if self.store.trim(log_of(log), behind(number))? {
                break;
            }
        }
        Ok(())
    }

    /// Lets go one generation that no shard needs. When there is none tells the shards what is
    /// left.
    fn trim(&mut self) -> Result<(), StoreError> {
        self.reads_since_trim = 0;
        let Some(trimming) = &mut self.trimming else {
            return Ok(());
        };
        while let Some(Position { log, number }) = trimming.logs.front().copied() {
            if self.store.trim(log_of(log), behind(number))? {
                return Ok(());
            }
            // No shard appends to it any more, which alone would end its newest generation.
            let is_left = usize::from(log.0) >= self.shards.len();
            if is_left && self.store.retire(log_of(log))? {
                return Ok(());
            }
            trimming.logs.pop_front();
        }
        let Some(Trimming { needed, .. }) = self.trimming.take() else {
            return Ok(());
        };
        let kept = self.store.kept_bytes()?;
        let size = StoreSize {
            bytes: kept.sum(),
            values: kept.values,
            staying: kept.staying,
            room: self.room.of(kept.sum(), self.store.size_bytes()?),
            needed,
            left_out: left_out(&*self.store)?,
            commits: self.commits_since_last(),
        };
        self.tell_room(&size);
        for shard in &mut self.shards {
            shard.send(Parcel::StoreSize(size.clone()));
        }
        Ok(())
    }

    /// How long commits took since it was last said.
    fn commits_since_last(&mut self) -> Option<CommitTimes> {
        let now = self.commits.times();
        let took = now.since(&std::mem::replace(&mut self.commits_said, now.clone()));
        let us = |share| u64::try_from(took.share(share)?.as_micros()).ok();
        us(0.5)
            .zip(us(0.99))
            .map(|(p50_us, p99_us)| CommitTimes { p50_us, p99_us })
    }

    /// Says in the log when the disk begins and ceases to be what bounds the store.
    fn tell_room(&mut self, size: &StoreSize) {
        let (kept, room) = (size.bytes, size.room);
        let is_full = kept >= room;
        if is_full && !self.disk_is_full {
            tracing::warn!(
                kept,
                room,
                directory = %self.directory.display(),
                "the disk has no room for more: what limits.store_full says happens as at \
                 limits.store_bytes_max; make room on the disk"
            );
        } else if self.disk_is_full && !is_full {
            tracing::info!(kept, room, "the disk has room again");
        }
        self.disk_is_full = is_full;
    }
}

/// Reads that go before a generation is deleted at most: each takes some milliseconds, and that
/// about 100.
const READS_BEFORE_TRIM: u32 = 64;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;

    use unbroken_broker_core::SessionId;
    use unbroken_store::{
        Batch, Committer, Embedded, Log, LogId, MessageRecord, Options, Sequence, Space, Store,
    };

    use super::*;
    use crate::mailbox::{Incoming, outside_feed};

    const LOG: LogId = LogId(0);

    /// A keeper of one shard over a store whose only log has so many generations, of one message
    /// each; and what the shard is told.
    fn keeper_of(directory: &Path, generations: u64) -> (Keeper, Sender<Job>, Incoming) {
        keeper_with(LOG, directory, generations)
    }

    fn keeper_with(
        log: LogId,
        directory: &Path,
        generations: u64,
    ) -> (Keeper, Sender<Job>, Incoming) {
        let mut options = Options::default();
        options.generation_bytes = 1;
        let store = Embedded::open(directory, options).unwrap();
        for number in 1..=generations {
            let mut batch = Batch::new();
            let message = MessageRecord::plain("t", 0, b"x");
            batch.append(log, Sequence(number), message.encode());
            assert!(store.commit(&[batch]).unwrap()[0].is_ok());
        }
        let (jobs, waiting) = mpsc::channel();
        let (shard, told) = outside_feed();
        let keeper = Keeper::new(
            Arc::new(store),
            Arc::default(),
            Room::new(directory, 0),
            directory.to_owned(),
            vec![shard],
            waiting,
            mpsc::channel().0,
        );
        (keeper, jobs, told)
    }

    /// Nothing up to here is needed, and has not been for long enough.
    fn say_needed(jobs: &Sender<Job>, through: u64) {
        say_needed_of(LOG, jobs, through);
    }

    fn say_needed_of(log: LogId, jobs: &Sender<Job>, through: u64) {
        let log = unbroken_broker_core::LogId(log.0);
        let needed: Frontier = [(log, through)].into_iter().collect();
        for _ in 0..3 {
            jobs.send(Job::Needed(ShardId(0), needed.clone())).unwrap();
        }
    }

    fn a_read(token: u64) -> Job {
        let request = ReadRequest {
            session: SessionId(0),
            token,
            log: unbroken_broker_core::LogId(0),
            after: 0,
            last: u64::MAX,
            filters: Arc::new(["t".into()]),
            bytes_max: 1,
            in_background: false,
        };
        Job::Read(ShardId(0), request)
    }

    /// Carries out the next job; how many generations are left then.
    fn turn(keeper: &mut Keeper) -> usize {
        let job = keeper.next_job().unwrap();
        keeper.carry_out(job).unwrap();
        keeper.store.generations(LOG).len()
    }

    #[test]
    fn a_read_for_a_client_waits_for_one_generation_to_be_deleted_and_no_more() {
        let temp = tempfile::tempdir().unwrap();
        let (mut keeper, jobs, mut told) = keeper_of(temp.path(), 5);
        say_needed(&jobs, 4);
        let left: Vec<_> = (0..3).map(|_| turn(&mut keeper)).collect();
        assert_eq!(
            left,
            [5, 5, 5],
            "what is needed is heard before anything is trimmed"
        );
        assert_eq!(turn(&mut keeper), 4);
        jobs.send(a_read(7)).unwrap();
        assert_eq!(turn(&mut keeper), 4, "the read goes first");
        assert!(matches!(told.try_recv(), Ok(Parcel::Read(answer)) if answer.token == 7));
        let left: Vec<_> = (0..3).map(|_| turn(&mut keeper)).collect();
        assert_eq!(left, [3, 2, 1]);
        assert!(told.try_recv().is_err(), "it is told when all is done");
        turn(&mut keeper);
        assert!(matches!(told.try_recv(), Ok(Parcel::StoreSize(_))));
        assert!(keeper.trimming.is_none());
    }

    #[test]
    fn of_what_is_let_go_of_one_generation_is_deleted_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let (mut keeper, jobs, mut told) = keeper_of(temp.path(), 3);
        let log = unbroken_broker_core::LogId(LOG.0);
        jobs.send(Job::LetGo([(log, 2)].into_iter().collect()))
            .unwrap();
        assert_eq!(turn(&mut keeper), 2);
        assert_eq!(keeper.store.bounds(LOG).unwrap().first, Sequence(3));
        say_needed(&jobs, 2);
        while !matches!(told.try_recv(), Ok(Parcel::StoreSize(_))) {
            turn(&mut keeper);
        }
        assert_eq!(keeper.store.generations(LOG), [Sequence(3)]);
    }

    #[test]
    fn a_store_that_nobody_needs_anything_of_is_empty() {
        let temp = tempfile::tempdir().unwrap();
        let (mut keeper, jobs, mut told) = keeper_of(temp.path(), 1);
        for (needed, is_empty) in [(0, false), (1, true)] {
            say_needed(&jobs, needed);
            let kept = loop {
                turn(&mut keeper);
                if let Ok(Parcel::StoreSize(size)) = told.try_recv() {
                    break size.bytes;
                }
            };
            assert_eq!(kept == 0, is_empty, "{kept}");
        }
    }

    #[test]
    fn how_long_commits_took_is_said_once() {
        let temp = tempfile::tempdir().unwrap();
        let (mut keeper, jobs, mut told) = keeper_of(temp.path(), 1);
        let committer = Committer::start(Arc::clone(&keeper.store), None, Vec::clear).unwrap();
        keeper.commits = committer.stats();
        let mut batch = Batch::new();
        batch.put(Space::Control, b"key".to_vec(), b"value".to_vec());
        committer.submit(batch, ()).unwrap();
        committer.end().unwrap();
        for is_said in [true, false] {
            say_needed(&jobs, 0);
            let commits = loop {
                turn(&mut keeper);
                if let Ok(Parcel::StoreSize(size)) = told.try_recv() {
                    break size.commits;
                }
            };
            assert_eq!(commits.is_some(), is_said);
            let commits = commits.unwrap_or_default();
            assert_eq!(commits.p50_us, commits.p99_us, "there was one");
        }
    }

    #[test]
    fn a_disk_that_others_have_filled_has_room_for_what_is_kept_and_no_more() {
        let temp = tempfile::tempdir().unwrap();
        let (mut keeper, jobs, mut told) = keeper_of(temp.path(), 3);
        keeper.room = Room::with_free(|_| Some(0));
        say_needed(&jobs, 1);
        let size = loop {
            turn(&mut keeper);
            if let Ok(Parcel::StoreSize(size)) = told.try_recv() {
                break size;
            }
        };
        assert!(size.bytes > 0);
        assert_eq!(size.room, size.bytes);
        assert!(keeper.disk_is_full);
    }

    #[test]
    fn what_a_shard_has_left_goes_to_its_last_generation() {
        const LEFT: LogId = LogId(1);
        let temp = tempfile::tempdir().unwrap();
        let (mut keeper, jobs, mut told) = keeper_with(LEFT, temp.path(), 3);
        for (needed, left) in [(2, vec![3]), (3, vec![4])] {
            say_needed_of(LEFT, &jobs, needed);
            while !matches!(told.try_recv(), Ok(Parcel::StoreSize(_))) {
                turn(&mut keeper);
            }
            let left: Vec<_> = left.into_iter().map(Sequence).collect();
            assert_eq!(keeper.store.generations(LEFT), left);
        }
        // It stays so, and a shard goes on in it if there are as many again.
        drop(keeper);
        let store = Embedded::open(temp.path(), Options::default()).unwrap();
        assert_eq!(store.bounds(LEFT).unwrap().next, Sequence(4));
        assert_eq!(store.generations(LEFT), [Sequence(4)]);
        assert_eq!(store.kept_bytes().unwrap().sum(), 0);
        assert!(!store.retire(LEFT).unwrap(), "there is nothing to gain");
    }

    #[test]
    fn reads_without_end_do_not_keep_a_log_from_being_trimmed() {
        let temp = tempfile::tempdir().unwrap();
        let (mut keeper, jobs, _told) = keeper_of(temp.path(), 3);
        say_needed(&jobs, 2);
        for _ in 0..3 {
            turn(&mut keeper);
        }
        for token in 0..=u64::from(READS_BEFORE_TRIM) {
            jobs.send(a_read(token)).unwrap();
        }
        for _ in 0..READS_BEFORE_TRIM {
            assert_eq!(turn(&mut keeper), 3);
        }
        assert_eq!(turn(&mut keeper), 2);
    }
}
