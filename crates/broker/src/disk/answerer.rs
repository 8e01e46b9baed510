//! Passes the committer's answers on, and reports failures of the store.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use unbroken_broker_core::StoreId;
use unbroken_store::{Batch, Refusal, quarantine};

use super::log_reader::Job;
use super::space::DiskSpace;
use super::store_handle::Token;
use crate::broker_store::BrokerStore;
use crate::channel::{DriverEvent, EventSender};
use crate::notice::Notice;

/// Passes the committer's answers to shards and to the log reader.
pub(super) struct Answerer {
    pub(super) store: Arc<dyn BrokerStore>,
    pub(super) space: Arc<DiskSpace>,
    pub(super) directory: PathBuf,
    pub(super) shards: Vec<EventSender>,
    /// The last answer of each shard in one commit, which stands for all its answers.
    pub(super) latest: Vec<Option<(StoreId, Vec<Batch>)>>,
    pub(super) jobs: Sender<Job>,
    /// `None` once a failure was reported: nothing is answered after it.
    pub(super) notify: Option<Sender<Notice>>,
}

impl Answerer {
    pub(super) fn answer(&mut self, answers: impl Iterator<Item = unbroken_store::Answer<Token>>) {
        if self.notify.is_none() {
            // The answer of a later request would also acknowledge the failed one.
            return answers.for_each(drop);
        }
        let mut bytes = 0;
        for answer in answers {
            bytes += answer.batch.bytes() as u64;
            if let Err(refusal) = answer.result {
                self.fail(&refusal);
                break;
            }
            match answer.token {
                Token::Stored(shard, id) => {
                    let latest = &mut self.latest[usize::from(shard.0)];
                    let (latest, batches) = latest.get_or_insert_default();
                    *latest = id;
                    batches.push(answer.batch);
                }
                // The log reader outlives this, unless it has failed and reported so.
                Token::Read(shard, request) => drop(self.jobs.send(Job::Read(shard, request))),
                Token::Needed(shard, needed) => drop(self.jobs.send(Job::Needed(shard, needed))),
                Token::Released(needed) => drop(self.jobs.send(Job::Released(needed))),
                // The receiver may have gone.
                Token::Notify(done) => drop(done.send(())),
            }
        }
        self.space.commit(bytes);
        // Before the shards go on: they read no client until they know.
        self.space.look(&*self.store);
        for (shard, latest) in self.shards.iter_mut().zip(&mut self.latest) {
            if let Some((id, batches)) = latest.take() {
                shard.send(DriverEvent::Stored(id, batches));
            }
        }
    }

    fn fail(&mut self, refusal: &Refusal) {
        let Some(notify) = self.notify.take() else {
            return;
        };
        if let Refusal::Damaged(damage) = refusal {
            report_damaged(&notify, &self.directory, damage.to_string());
        } else {
            report_failed(&notify, refusal.to_string());
        }
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        if let Some(notify) = self.notify.take().filter(|_| thread::panicking()) {
            report_failed(
                &notify,
                "the thread that writes to the store panicked".to_owned(),
            );
        }
    }
}

pub(super) fn report_failed(notify: &Sender<Notice>, reason: String) {
    let _ = notify.send(Notice::StoreFailed { reason }); // without a receiver the broker is ending
}

/// The next start handles the damage: it sets the store aside or refuses it.
pub(super) fn report_damaged(notify: &Sender<Notice>, directory: &Path, mut reason: String) {
    if let Err(unmarked) = quarantine::mark(directory, &reason) {
        write!(reason, "; cannot mark it for the next start: {unmarked}")
            .expect("a string takes everything");
    }
    let _ = notify.send(Notice::StoreDamaged { reason }); // without a receiver the broker is ending
}
