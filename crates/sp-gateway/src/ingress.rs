//! Into the broker: a lane of numbered messages, and what the broker says to each.
//!
//! Invariant: a message that came is published, or waits, or is counted as dropped, wherever
//! [`Ingress::publish`] is cancelled; its request is acknowledged, or given back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use unbroken_client::audit::{
    AuditError, AuditedPublisher, OpenError, PublisherOptions, Spooled, Stamped, Unspooled,
};
use unbroken_client::{Acknowledged, Client, Message, PublishError, Received, TotalDuration};
use unbroken_merkle_log::LaneId;
use xxhash_rust::xxh3::xxh3_64;

use crate::counts::Drop;
use crate::error::GatewayError;
use crate::limits::{UNPUBLISHED_BYTES_MAX, UNPUBLISHED_MAX};
use crate::options::Options;
use crate::shared::Shared;
use crate::source::Held;
use crate::wire::Protocol;

/// Where messages enter.
#[derive(Debug)]
pub(crate) struct Ingress {
    shared: Arc<Shared>,
    lane: Lane,
    waiting: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
}

#[derive(Clone, Debug)]
enum Lane {
    Spooled(AuditedPublisher<Spooled>),
    Unspooled(AuditedPublisher<Unspooled>),
}

/// A message that is not in the lane yet. Dropped before it is, it is counted.
struct Entering<'a> {
    shared: &'a Shared,
    has_entered: bool,
}

/// A message that the broker has not acknowledged.
#[derive(Debug)]
struct Waiting {
    stamped: Stamped,
    /// Its bytes of [`UNPUBLISHED_BYTES_MAX`].
    _room: OwnedSemaphorePermit,
    /// What it is the reply to: done with it.
    request: Option<Received>,
}

impl Ingress {
    /// Opens the lane. The second value is the task that sees to acknowledgements; it ends after
    /// the ingress.
    pub(crate) async fn open(
        options: &Options,
        client: &Client,
        shared: &Arc<Shared>,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), GatewayError> {
        let id = xxh3_64(format!("sp/{}", options.name).as_bytes());
        // 0 is no lane.
        let id = LaneId::new(id).or(LaneId::new(1)).expect("1 is a lane");
        let publisher = PublisherOptions::new(id).prefix(&options.audit_prefix);
        let failed = |why: OpenError| GatewayError::Lane(why.to_string());
        let lane = match &options.spool {
            Some(directory) => publisher.open(client, directory).await.map(Lane::Spooled),
            None => publisher.open_unspooled(client).await.map(Lane::Unspooled),
        }
        .map_err(failed)?;
        let (waiting, answers) = mpsc::channel(UNPUBLISHED_MAX);
        let answering = see_to_answers(answers, Arc::clone(shared));
        let ingress = Self {
            shared: Arc::clone(shared),
            lane,
            waiting,
            room: Arc::new(Semaphore::new(UNPUBLISHED_BYTES_MAX)),
        };
        Ok((ingress, answering))
    }

    /// Numbers a message and sends it, when there is room for it. With `request` it is a reply.
    /// Cancelled before, or failed, it has counted the message and given back the request.
    pub(crate) async fn publish(
        &self,
        message: Message,
        request: Option<Held<'_>>,
    ) -> Result<(), GatewayError> {
        let mut entering = Entering {
            shared: &self.shared,
            has_entered: false,
        };
        let ended = || GatewayError::Broker("the gateway's client has ended".to_owned());
        let bytes = message.payload().len().min(UNPUBLISHED_BYTES_MAX);
        let bytes = u32::try_from(bytes).expect("the limit is a u32");
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await;
        let room = room.map_err(|_| ended())?;
        let place = self.waiting.reserve().await.map_err(|_| ended())?;
        let stamped = match &self.lane {
            Lane::Spooled(lane) => lane.send(message).await,
            Lane::Unspooled(lane) => lane.send(message).await,
        };
        let stamped = stamped.map_err(|why| GatewayError::Broker(why.to_string()))?;
        // Nothing is awaited between the lane and the end.
        place.send(Waiting {
            stamped,
            _room: room,
            request: request.map(Held::into_message),
        });
        entering.has_entered = true;
        Ok(())
    }

    /// Ends the lane: with a spool the next start continues it.
    pub(crate) async fn close(&self) -> Result<(), AuditError> {
        match self.lane.clone() {
            Lane::Spooled(lane) => lane.leave().await,
            Lane::Unspooled(lane) => lane.close(TotalDuration(Duration::ZERO)).await,
        }
    }
}

impl std::ops::Drop for Entering<'_> {
    fn drop(&mut self) {
        if !self.has_entered {
            let detail = "the peer or the gateway ended before the broker had room for it";
            self.shared.drop_message(Drop::Unpublished, &detail);
        }
    }
}

async fn see_to_answers(mut answers: mpsc::Receiver<Waiting>, shared: Arc<Shared>) {
    while let Some(Waiting {
        stamped,
        _room,
        request,
    }) = answers.recv().await
    {
        let answer = stamped.published().await;
        if let Err(AuditError::Publish(PublishError::Ended(_))) = answer {
            // The next start sends it again, or its receivers miss it. Its request stays open.
            continue;
        }
        if let Err(why) = &answer {
            shared.drop_message(Drop::Refused, why);
        }
        if let Ok(published) = &answer {
            shared.counts.add_published();
            let is_unheard = published.acknowledged == Acknowledged::NoSubscribers;
            if is_unheard && shared.protocol == Protocol::Rep {
                let detail = "no client subscribes to its topic";
                shared.drop_message(Drop::NoResponder, &detail);
            }
        }
        match request {
            Some(request) if answer.is_ok() => request.acknowledge_processed(),
            Some(request) => request.acknowledge(),
            None => {}
        }
    }
}
