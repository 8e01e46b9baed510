//! The thread that reads the logs for shards, and trims them.
//!
//! Invariants:
//! - A read for a client waits for the deletion of at most one generation. A background read waits
//!   for all other requests and for trimming, and delays each of them by at most one piece of a
//!   log.
//! - A log is trimmed by what shards needed long enough ago that their later requests are stored
//!   ([`Needs`]), or, with one shard, by what it needs once all its requests are stored.
//! - The store's size and the disk space are reported when nothing is left to trim. A log of a
//!   shard that no longer exists is trimmed completely.
//!
//! Deliberately absent: when shards report what they need ([`StoreHandle`](super::StoreHandle)).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use unbroken_broker_core::{
    CommitTimes, Frontier, Histogram, Position, ReadRequest, ShardId, StoreSize,
};
use unbroken_persist::{Needs, Times, behind, left_out, log_of, read};
use unbroken_store::{CommitStats, StoreError};

use super::answerer::{report_damaged, report_failed};
use super::space::DiskSpace;
use crate::broker_store::BrokerStore;
use crate::channel::{DriverEvent, EventSender};
use crate::notice::Notice;

/// Work for the log reader.
#[derive(Debug)]
pub(super) enum Job {
    Read(ShardId, ReadRequest),
    Needed(ShardId, Frontier),
    /// Messages that no shard needs.
    Released(Frontier),
    /// Continue trimming.
    Trim,
    /// See whether the store is still where it was opened, and how much space it has.
    CheckPlace,
    End,
}

/// The thread that reads and trims.
pub(super) struct LogReader {
    store: Arc<dyn BrokerStore>,
    directory: PathBuf,
    space: Arc<DiskSpace>,
    commits: Arc<CommitStats>,
    /// As of the last report.
    commits_reported: unbroken_store::CommitTimes,
    /// Whether the disk was full at the last look.
    disk_is_full: bool,
    shards: Vec<EventSender>,
    needs: Needs,
    /// Trimming in progress.
    trimming: Option<Trimming>,
    /// Reads for clients since the last trim.
    reads_since_trim: u32,
    /// When the store was last seen in its place.
    place_checked: Instant,
    /// Reads that no client waits for.
    background: VecDeque<(ShardId, ReadRequest)>,
    queue: Receiver<Job>,
    notify: Sender<Notice>,
}

/// Messages to remove, a generation at a time.
struct Trimming {
    /// What no shard needs.
    needed: Frontier,
    /// Logs that may have something to remove, and up to which message.
    logs: VecDeque<Position>,
}

impl Drop for LogReader {
    fn drop(&mut self) {
        if thread::panicking() {
            let reason = "the thread that reads the store panicked";
            report_failed(&self.notify, reason.to_owned());
        }
    }
}

impl LogReader {
    pub(super) fn new(
        store: Arc<dyn BrokerStore>,
        commits: Arc<CommitStats>,
        space: Arc<DiskSpace>,
        directory: PathBuf,
        shards: Vec<EventSender>,
        queue: Receiver<Job>,
        notify: Sender<Notice>,
    ) -> Self {
        Self {
            store,
            directory,
            space,
            commits_reported: commits.times(),
            commits,
            disk_is_full: false,
            needs: Needs::new(shards.len()),
            trimming: None,
            reads_since_trim: 0,
            place_checked: Instant::now(),
            background: VecDeque::new(),
            shards,
            queue,
            notify,
        }
    }

    /// Works until [`Job::End`], or until a read or trim fails, or the store is not in its place
    /// any more, which is reported.
    pub(super) fn run(mut self) {
        while let Some(job) = self.next_job() {
            if matches!(job, Job::End) {
                return;
            }
            if let Err(error) = self.carry_out(job) {
                self.report_error(&error);
                return;
            }
        }
    }

    fn carry_out(&mut self, job: Job) -> Result<(), StoreError> {
        match job {
            Job::Read(shard, request) => self.read(shard, &request),
            Job::Needed(shard, needed) => {
                self.needs.report(usize::from(shard.0), needed);
                self.begin_trimming();
                Ok(())
            }
            Job::Released(needed) => self.release(&needed),
            Job::Trim => self.trim(),
            Job::CheckPlace => self.check_place(),
            Job::End => Ok(()),
        }
    }

    fn check_place(&mut self) -> Result<(), StoreError> {
        self.place_checked = Instant::now();
        self.space.look(&*self.store);
        if self.space.is_lacking() {
            self.store.write_out()?;
        }
        self.store.check_place()
    }

    /// Reads for clients first, then trimming, then one background read. Endless reads do not
    /// prevent trimming.
    fn next_job(&mut self) -> Option<Job> {
        loop {
            let until_check = CHECK_PLACE_EVERY.saturating_sub(self.place_checked.elapsed());
            if until_check.is_zero() {
                return Some(Job::CheckPlace);
            }
            let may_trim = self.trimming.is_some();
            if may_trim && self.reads_since_trim >= READS_BEFORE_TRIM {
                return Some(Job::Trim);
            }
            let job = if !may_trim && self.background.is_empty() {
                match self.queue.recv_timeout(until_check) {
                    Ok(job) => job,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return None,
                }
            } else if let Ok(job) = self.queue.try_recv() {
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

    fn report_error(&self, error: &StoreError) {
        let reason = error.to_string();
        if matches!(error, StoreError::Damaged { .. }) {
            report_damaged(&self.notify, &self.directory, reason);
        } else {
            report_failed(&self.notify, reason);
        }
    }

    fn read(&mut self, shard: ShardId, request: &ReadRequest) -> Result<(), StoreError> {
        let times = Times::new(Instant::now(), SystemTime::now());
        let answer = read(&*self.store, request, &times)?;
        self.shards[usize::from(shard.0)].send(DriverEvent::Read(Box::new(answer)));
        self.reads_since_trim = self.reads_since_trim.saturating_add(1);
        Ok(())
    }

    /// Starts trimming once all shards have reported what they need. A log that is trimmed already
    /// costs one look.
    fn begin_trimming(&mut self) {
        if let Some(needed) = self.needs.end_round() {
            let logs = needed.iter();
            let logs = logs.map(|(log, number)| Position { log, number });
            let logs = logs.collect();
            self.trimming = Some(Trimming { needed, logs });
        }
    }

    /// Releases the newest messages, which the store may have in memory only. Disk space and size
    /// follow when all shards have reported.
    fn release(&self, needed: &Frontier) -> Result<(), StoreError> {
        for (log, number) in needed.iter() {
            self.store.release_below(log_of(log), behind(number));
        }
        // At most one generation, because reads wait here too.
        for (log, number) in needed.iter() {
            if self.store.trim(log_of(log), behind(number))? {
                break;
            }
        }
        Ok(())
    }

    /// Removes one generation that no shard needs. When there is none left, reports the size to the
    /// shards.
    fn trim(&mut self) -> Result<(), StoreError> {
        self.reads_since_trim = 0;
        let Some(trimming) = &mut self.trimming else {
            return Ok(());
        };
        while let Some(Position { log, number }) = trimming.logs.front().copied() {
            if self.store.trim(log_of(log), behind(number))? {
                return Ok(());
            }
            // No shard appends to this log, or may append, so its newest generation would not end.
            let is_left = usize::from(log.0) >= self.shards.len();
            let may_retire = is_left || self.space.is_lacking();
            if may_retire && self.store.retire(log_of(log))? {
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
            room: self.space.available(
                self.space.free_space(&*self.store),
                kept.sum(),
                self.store.size_bytes()?,
            ),
            needed,
            left_out: left_out(&*self.store)?,
            commits: self.commits_since_last(),
        };
        self.log_space(&size);
        for shard in &mut self.shards {
            shard.send(DriverEvent::StoreSize(size.clone()));
        }
        Ok(())
    }

    /// Commit times since the last report.
    fn commits_since_last(&mut self) -> Option<Box<CommitTimes>> {
        let now = self.commits.times();
        let took = now.since(&std::mem::replace(&mut self.commits_reported, now.clone()));
        let us = |share| u64::try_from(took.share(share)?.as_micros()).ok();
        us(0.5).zip(us(0.99)).map(|(p50_us, p99_us)| {
            Box::new(CommitTimes {
                p50_us,
                p99_us,
                all: Histogram::of(now.counts().iter().copied(), now.sum_us()),
            })
        })
    }

    /// Logs when the disk becomes the limit of the store, and when it is no longer.
    fn log_space(&mut self, size: &StoreSize) {
        let (kept, room) = (size.bytes, size.room);
        let is_full = kept >= room;
        if is_full && !self.disk_is_full {
            tracing::warn!(
                kept,
                room,
                directory = %self.directory.display(),
                "the disk is full: limits.store_full applies as at limits.store_bytes_max; free \
                 disk space"
            );
        } else if self.disk_is_full && !is_full {
            tracing::info!(kept, room, "the disk has space again");
        }
        self.disk_is_full = is_full;
    }
}

/// At most so many reads precede the deletion of a generation. A read takes some milliseconds, a
/// deletion about 100.
const READS_BEFORE_TRIM: u32 = 64;

/// A broker that writes nothing also notices that its data directory has gone, and that the disk
/// has space again.
const CHECK_PLACE_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;

    use unbroken_broker_core::SessionId;
    use unbroken_store::{
        Batch, Committer, Embedded, FreeSpace, Log, LogId, MessageRecord, Options, Sequence, Space,
        Store,
    };

    use super::*;
    use crate::channel::{EventReceiver, event_channel};

    const LOG: LogId = LogId(0);

    /// A log reader of one shard over a store whose only log has so many generations, of one
    /// message each; and the events that the shard gets.
    fn log_reader_of(
        directory: &Path,
        generations: u64,
    ) -> (LogReader, Sender<Job>, EventReceiver) {
        log_reader_with(LOG, directory, generations)
    }

    fn log_reader_with(
        log: LogId,
        directory: &Path,
        generations: u64,
    ) -> (LogReader, Sender<Job>, EventReceiver) {
        let mut options = Options::default();
        options.generation_bytes = 1;
        let store = Embedded::open(directory, options).unwrap();
        for number in 1..=generations {
            let mut batch = Batch::new();
            let message = MessageRecord::plain("t", 0, b"x");
            batch.append(log, Sequence(number), message.encode());
            assert!(store.commit(&[batch]).unwrap()[0].is_ok());
        }
        let (jobs, queue) = mpsc::channel();
        let (shard, events) = event_channel();
        let log_reader = LogReader::new(
            Arc::new(store),
            Arc::default(),
            Arc::new(DiskSpace::new(directory, 0)),
            directory.to_owned(),
            vec![shard],
            queue,
            mpsc::channel().0,
        );
        (log_reader, jobs, events)
    }

    /// No message up to here is needed, nor was for long enough.
    fn send_needed(jobs: &Sender<Job>, through: u64) {
        send_needed_of(LOG, jobs, through);
    }

    fn send_needed_of(log: LogId, jobs: &Sender<Job>, through: u64) {
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

    /// Carries out the next job; returns how many generations are left.
    fn turn(log_reader: &mut LogReader) -> usize {
        let job = log_reader.next_job().unwrap();
        log_reader.carry_out(job).unwrap();
        log_reader.store.generations(LOG).len()
    }

    #[test]
    fn a_read_for_a_client_waits_for_one_generation_to_be_deleted_and_no_more() {
        let temp = tempfile::tempdir().unwrap();
        let (mut log_reader, jobs, mut events) = log_reader_of(temp.path(), 5);
        send_needed(&jobs, 4);
        let left: Vec<_> = (0..3).map(|_| turn(&mut log_reader)).collect();
        assert_eq!(
            left,
            [5, 5, 5],
            "what is needed is heard before anything is trimmed"
        );
        assert_eq!(turn(&mut log_reader), 4);
        jobs.send(a_read(7)).unwrap();
        assert_eq!(turn(&mut log_reader), 4, "the read goes first");
        assert!(matches!(events.try_recv(), Ok(DriverEvent::Read(answer)) if answer.token == 7));
        let left: Vec<_> = (0..3).map(|_| turn(&mut log_reader)).collect();
        assert_eq!(left, [3, 2, 1]);
        assert!(events.try_recv().is_err(), "it is told when all is done");
        turn(&mut log_reader);
        assert!(matches!(events.try_recv(), Ok(DriverEvent::StoreSize(_))));
        assert!(log_reader.trimming.is_none());
    }

    #[test]
    fn of_released_messages_one_generation_is_deleted_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let (mut log_reader, jobs, mut events) = log_reader_of(temp.path(), 3);
        let log = unbroken_broker_core::LogId(LOG.0);
        jobs.send(Job::Released([(log, 2)].into_iter().collect()))
            .unwrap();
        assert_eq!(turn(&mut log_reader), 2);
        assert_eq!(log_reader.store.bounds(LOG).unwrap().first, Sequence(3));
        send_needed(&jobs, 2);
        while !matches!(events.try_recv(), Ok(DriverEvent::StoreSize(_))) {
            turn(&mut log_reader);
        }
        assert_eq!(log_reader.store.generations(LOG), [Sequence(3)]);
    }

    #[test]
    fn a_store_without_needed_messages_is_empty() {
        let temp = tempfile::tempdir().unwrap();
        let (mut log_reader, jobs, mut events) = log_reader_of(temp.path(), 1);
        for (needed, is_empty) in [(0, false), (1, true)] {
            send_needed(&jobs, needed);
            let kept = loop {
                turn(&mut log_reader);
                if let Ok(DriverEvent::StoreSize(size)) = events.try_recv() {
                    break size.bytes;
                }
            };
            assert_eq!(kept == 0, is_empty, "{kept}");
        }
    }

    #[test]
    fn commit_times_are_reported_once() {
        let temp = tempfile::tempdir().unwrap();
        let (mut log_reader, jobs, mut events) = log_reader_of(temp.path(), 1);
        let committer = Committer::start(Arc::clone(&log_reader.store), None, Vec::clear).unwrap();
        log_reader.commits = committer.stats();
        let mut batch = Batch::new();
        batch.put(Space::Control, b"key".to_vec(), b"value".to_vec());
        committer.submit(batch, ()).unwrap();
        committer.end().unwrap();
        for is_said in [true, false] {
            send_needed(&jobs, 0);
            let commits = loop {
                turn(&mut log_reader);
                if let Ok(DriverEvent::StoreSize(size)) = events.try_recv() {
                    break size.commits;
                }
            };
            assert_eq!(commits.is_some(), is_said);
            let commits = commits.unwrap_or_default();
            assert_eq!(commits.all.total(), u64::from(is_said));
            assert_eq!(commits.p50_us, commits.p99_us, "there was one");
        }
    }

    #[test]
    fn a_disk_filled_by_other_programs_limits_the_store_to_its_size() {
        let temp = tempfile::tempdir().unwrap();
        let (mut log_reader, jobs, mut events) = log_reader_of(temp.path(), 3);
        log_reader.space = Arc::new(DiskSpace::with_free(|_| {
            let (free, owed) = (0, 0);
            Some(FreeSpace { free, owed })
        }));
        send_needed(&jobs, 1);
        let size = loop {
            turn(&mut log_reader);
            if let Ok(DriverEvent::StoreSize(size)) = events.try_recv() {
                break size;
            }
        };
        assert!(size.bytes > 0);
        assert_eq!(size.room, size.bytes);
        assert!(log_reader.disk_is_full);
    }

    #[test]
    fn the_log_of_a_former_shard_is_trimmed_completely() {
        const LEFT: LogId = LogId(1);
        let temp = tempfile::tempdir().unwrap();
        let (mut log_reader, jobs, mut events) = log_reader_with(LEFT, temp.path(), 3);
        for (needed, left) in [(2, vec![3]), (3, vec![4])] {
            send_needed_of(LEFT, &jobs, needed);
            while !matches!(events.try_recv(), Ok(DriverEvent::StoreSize(_))) {
                turn(&mut log_reader);
            }
            let left: Vec<_> = left.into_iter().map(Sequence).collect();
            assert_eq!(log_reader.store.generations(LEFT), left);
        }
        // This persists, and a shard continues the log if there are as many shards again.
        drop(log_reader);
        let store = Embedded::open(temp.path(), Options::default()).unwrap();
        assert_eq!(store.bounds(LEFT).unwrap().next, Sequence(4));
        assert_eq!(store.generations(LEFT), [Sequence(4)]);
        assert_eq!(store.kept_bytes().unwrap().sum(), 0);
        assert!(!store.retire(LEFT).unwrap(), "there is nothing to gain");
    }

    #[test]
    fn reads_without_end_do_not_keep_a_log_from_being_trimmed() {
        let temp = tempfile::tempdir().unwrap();
        let (mut log_reader, jobs, _told) = log_reader_of(temp.path(), 3);
        send_needed(&jobs, 2);
        for _ in 0..3 {
            turn(&mut log_reader);
        }
        for token in 0..=u64::from(READS_BEFORE_TRIM) {
            jobs.send(a_read(token)).unwrap();
        }
        for _ in 0..READS_BEFORE_TRIM {
            assert_eq!(turn(&mut log_reader), 3);
        }
        assert_eq!(turn(&mut log_reader), 2);
    }
}
