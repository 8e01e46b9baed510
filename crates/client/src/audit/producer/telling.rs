//! What a producer says of its lane beside the messages: checkpoints, directories, and its end.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use unbroken_merkle_log::{Checkpoint, Directory, Epoch, OpenLane};

use super::{Producer, first_answer};
use crate::audit::Clock;
use crate::audit::error::AuditError;
use crate::client::Receipt;
use crate::{Message, Subscription, TotalDuration};

impl Producer {
    pub(super) fn due(&self) -> Instant {
        // Nothing is said that the broker could not hear.
        if self.client.connection().is_none() {
            return Instant::now() + CONNECTING_STEP;
        }
        let checkpoint = (self.lane.size() > 0).then(|| self.lane.checkpoint_due());
        let others = checkpoint.into_iter().chain(self.gathered.due());
        let due = others.fold(self.directory_due, Duration::min);
        self.clock.instant(due)
    }

    pub(super) async fn tell_what_is_due(&mut self) -> Result<(), AuditError> {
        if self.client.connection().is_none() {
            return Ok(());
        }
        if self
            .gathered
            .due()
            .is_some_and(|due| due <= self.clock.now())
        {
            self.say_left_out().await?;
        }
        loop {
            let now = self.clock.now();
            let time_us = Clock::time_us();
            let Some(checkpoint) = self.lane.poll_checkpoint(now, time_us, &self.hasher) else {
                break;
            };
            self.tell_checkpoint(&checkpoint).await?;
        }
        if self.clock.now() >= self.directory_due {
            self.tell_directory(true).await?;
        }
        self.trim_what_is_due().await?;
        Ok(())
    }

    async fn tell_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<Receipt, AuditError> {
        // Two checkpoints with one number would contradict each other.
        self.told = Some((checkpoint.number, checkpoint.size));
        if let Some(spool) = &mut self.spool {
            spool.put_told(checkpoint.number, checkpoint.size);
        }
        self.commit().await?;
        let mut payload = Vec::new();
        checkpoint.encode(&self.hasher, &mut payload);
        self.say(self.names.checkpoint(checkpoint.lane), payload)
            .await
    }

    pub(super) async fn tell_directory(&mut self, is_open: bool) -> Result<(), AuditError> {
        let open = OpenLane {
            lane: self.lane.id(),
            epoch: self.lane.epoch(),
            size: self.lane.size(),
        };
        let directory = Directory {
            producer: self.lane.id().value(),
            epoch: Epoch(self.start),
            number: self.directories,
            time_us: Clock::time_us(),
            lanes: if is_open { vec![open] } else { Vec::new() },
        };
        self.directories += 1;
        self.directory_due = self.clock.now() + DIRECTORY_STEP;
        let mut payload = Vec::new();
        directory
            .encode(&self.hasher, &mut payload)
            .expect("one lane or none is in order");
        let topic = self.names.directory(directory.producer);
        self.say(topic, payload).await?;
        Ok(())
    }

    async fn say(&self, topic: String, payload: Vec<u8>) -> Result<Receipt, AuditError> {
        let message = Message::new(topic, payload).expect("an audit topic is a topic");
        Ok(self.client.send(message.qos(self.qos)).await?)
    }

    /// Waits until everything is acknowledged; then ends the epoch, if it is to end.
    pub(super) async fn finish(
        &mut self,
        closing: Option<TotalDuration>,
        requests: &mut Subscription,
    ) -> Result<(), AuditError> {
        self.say_left_out().await?;
        while !self.sent.is_empty() {
            let answer = first_answer(&mut self.sent).await;
            self.handle_answer(answer)?;
        }
        let Some(answering) = closing else {
            if let Some(spool) = &mut self.spool {
                spool.put_acknowledged(self.acknowledged);
            }
            return self.commit().await;
        };
        let lane = self.lane.clone();
        if let Some(last) = lane.close(Clock::time_us(), &self.hasher) {
            let receipt = self.tell_checkpoint(&last).await?;
            receipt.acknowledged().await?;
        }
        self.tell_directory(false).await?;
        let until = Instant::now() + answering.0;
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Ok(request) => self.handle_request(&request).await?,
                    Err(_) => break,
                },
                () = std::future::ready(()), if !self.repairs.is_empty() => self.repair().await?,
                () = sleep_until(until) => break,
            }
        }
        self.note_end(self.lane.epoch()).await
    }

    async fn note_end(&mut self, epoch: Epoch) -> Result<(), AuditError> {
        if let Some(spool) = &mut self.spool {
            spool.put_closed(epoch);
        }
        self.commit().await
    }
}

/// How often to look for a connection.
const CONNECTING_STEP: Duration = Duration::from_millis(100);
/// Time between two directories.
const DIRECTORY_STEP: Duration = Duration::from_secs(10);
