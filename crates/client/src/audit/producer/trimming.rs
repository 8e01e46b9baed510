//! What a spool is relieved of: messages that are acknowledged.
//!
//! Those that the lane still holds stay as long as they take no more than half of the spool, so
//! that who misses one after a restart is answered. They give way to new messages, the oldest
//! first.
//!
//! Invariant: what is not acknowledged is never trimmed, drop records among it. While the lane does
//! not hold all of that, nothing is.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::error::{AuditError, SpoolError};
use super::super::spool::{Rest, Spool, message_bytes};
use super::{About, Job, Producer, Ready};
use crate::Message;

impl Producer {
    /// Sees to it that the spool has room for these messages; the inner error when it cannot have.
    /// `batch` has its numbers and is not sent yet.
    pub(super) async fn make_room(
        &mut self,
        jobs: &[Job],
        batch: &[Ready],
    ) -> Result<Result<(), SpoolError>, AuditError> {
        if self.room(jobs).is_err() {
            self.trim(self.kept_bytes_max(), batch).await?;
        }
        // One that is larger than half the spool.
        if self.room(jobs).is_err() {
            self.trim(0, batch).await?;
        }
        Ok(self.room(jobs))
    }

    pub(super) async fn trim_what_is_due(&mut self) -> Result<(), AuditError> {
        if self.spool.as_ref().is_some_and(Spool::is_worth_trimming) {
            self.trim(self.kept_bytes_max(), &[]).await?;
        }
        Ok(())
    }

    /// The lowest number whose message could be sent again.
    pub(super) fn oldest_held(&self) -> u64 {
        let size = self.lane.size();
        if size == 0 {
            return 0;
        }
        let all = self.lane.repair(std::slice::from_ref(&(0..size)));
        all.held.first().map_or(size, |held| held.start)
    }

    fn room(&self, jobs: &[Job]) -> Result<(), SpoolError> {
        let spool = self.spool.as_ref();
        let messages = jobs.iter().map(|job| &job.message);
        spool.map_or(Ok(()), |spool| spool.has_room(messages))
    }

    fn kept_bytes_max(&self) -> u64 {
        let spool = self.spool.as_ref();
        spool.map_or(0, |spool| spool.bytes_max() / 2)
    }

    /// Writes the spool anew, with acknowledged messages only as far as all take `kept_bytes_max`.
    async fn trim(&mut self, kept_bytes_max: u64, batch: &[Ready]) -> Result<(), AuditError> {
        let oldest_held = self.oldest_held();
        self.properties = self.properties.split_off(&oldest_held);
        if self.acknowledged < oldest_held {
            return Ok(());
        }
        // While the broker is away a full spool is not written anew for each message it refuses.
        let has_acknowledged = self.spooled_from < self.acknowledged;
        let is_of_use = |spool: &mut Spool| has_acknowledged || spool.has_grown();
        let Some(mut spool) = self.spool.take_if(is_of_use) else {
            return Ok(());
        };
        let messages = self.kept(oldest_held, kept_bytes_max);
        let from = messages
            .front()
            .map_or(self.lane.size(), |(first, _)| *first);
        self.spooled_from = from;
        let mut saved = Vec::new();
        self.lane.save(from, &self.hasher, &mut saved);
        let sent = self.sent.iter().map(|sent| &sent.about);
        let unsent = batch.iter().map(|ready| &ready.about);
        let unsaid = sent.chain(unsent).filter_map(|about| match about {
            About::Dropped(record) => Some(Arc::clone(record)),
            About::Number(..) | About::Other => None,
        });
        let rest = Rest {
            acknowledged: self.acknowledged,
            told: self.told,
            taken: self.taken.lock().save(),
            dropped: unsaid.collect(),
            start: self.start,
        };
        let trimming = tokio::task::spawn_blocking(move || {
            let messages = messages.iter().map(|(number, message)| (*number, message));
            let result = spool.rewrite(&saved, messages, &rest);
            (spool, result)
        });
        let (spool, result) = trimming.await.expect("writing a spool does not panic");
        self.spool = Some(spool);
        result.map_err(AuditError::from)
    }

    /// What the spool keeps: all that is not acknowledged, and before it what there is room for.
    fn kept(&self, oldest_held: u64, kept_bytes_max: u64) -> VecDeque<(u64, Message)> {
        let mut kept = VecDeque::new();
        let mut bytes = 0;
        for number in (oldest_held..self.lane.size()).rev() {
            let message = self
                .held(number)
                .expect("it is not older than the oldest held");
            bytes += message_bytes(&message);
            if number < self.acknowledged && bytes > kept_bytes_max {
                break;
            }
            kept.push_front((number, message));
        }
        kept
    }

    /// A message as it was before it was stamped.
    fn held(&self, number: u64) -> Option<Message> {
        let resend = self.lane.resend(number, &self.hasher)?;
        let topic = String::from_utf8_lossy(&resend.topic).into_owned();
        let mut message = Message::new(topic, resend.payload)
            .expect("it was published to this topic")
            .qos(self.qos);
        if let Some(kept) = self.properties.get(&number) {
            message.properties.extend(kept.properties.as_properties());
            message.retain = kept.retain;
        }
        Some(message)
    }
}
