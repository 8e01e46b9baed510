//! Out of the broker: messages that peers take one by one, whichever is ready first.
//!
//! Invariant: a message is acknowledged, or [given back](Source::give_back), or left open because
//! the gateway ends. Several peers wait in the order in which they came, so work goes around.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use tokio::sync::{Mutex, Notify};
use unbroken_client::{Acknowledging, Client, Filter, QoS, Received, Subscription};

use crate::counts::Drop;
use crate::error::GatewayError;
use crate::shared::Shared;
use crate::topics::Mapping;
use crate::wire::{self, ID_BYTES, Protocol};

#[derive(Debug)]
pub(crate) struct Source {
    shared: Arc<Shared>,
    mapping: Mapping,
    subscription: Mutex<Subscription>,
    /// Messages of peers that are gone; no more than the broker sends unacknowledged.
    returned: std::sync::Mutex<VecDeque<Received>>,
    has_returned: Notify,
}

/// A message that is given back unless it is taken out.
pub(crate) struct Held<'a> {
    source: &'a Source,
    message: Option<Received>,
}

impl Source {
    pub(crate) async fn open(
        client: &Client,
        filter: &str,
        mapping: Mapping,
        shared: &Arc<Shared>,
    ) -> Result<Self, GatewayError> {
        Ok(Self {
            shared: Arc::clone(shared),
            mapping,
            subscription: Mutex::new(subscribe(client, filter).await?),
            returned: std::sync::Mutex::default(),
            has_returned: Notify::new(),
        })
    }

    /// The next message that is not too large. Cancelling loses nothing.
    pub(crate) async fn take(&self) -> Result<Held<'_>, GatewayError> {
        let mut subscription = self.subscription.lock().await;
        loop {
            if let Some(message) = self.lock().pop_front() {
                return Ok(self.hold(message));
            }
            let message = tokio::select! {
                message = subscription.recv() => message,
                () = self.has_returned.notified() => continue,
            };
            let message = message.map_err(|why| GatewayError::Broker(why.to_string()))?;
            if fits(&self.shared, &self.mapping, &message) {
                return Ok(self.hold(message));
            }
            message.acknowledge();
        }
    }

    /// Gives the message back unless it is taken out.
    pub(crate) fn hold(&self, message: Received) -> Held<'_> {
        Held {
            source: self,
            message: Some(message),
        }
    }

    /// The frame of a message, behind these bytes.
    pub(crate) fn frame(&self, id: &[u8], message: &Received) -> Vec<u8> {
        frame(&self.mapping, id, message)
    }

    /// For the next peer.
    pub(crate) fn give_back(&self, message: Received) {
        self.lock().push_back(message);
        self.has_returned.notify_one();
    }

    /// No code that can panic runs under the lock.
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Received>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held<'_> {
    /// To be acknowledged elsewhere.
    pub(crate) fn into_message(mut self) -> Received {
        self.message.take().expect("it is there until it is taken")
    }

    pub(crate) fn message(&self) -> &Received {
        self.message
            .as_ref()
            .expect("it is there until it is taken")
    }
}

impl std::ops::Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.source.give_back(message);
        }
    }
}

/// Subscribes at QoS 1, with acknowledgements by hand.
pub(crate) async fn subscribe(client: &Client, filter: &str) -> Result<Subscription, GatewayError> {
    let failed = |why: String| GatewayError::Subscription(format!("{filter:?}: {why}"));
    let wanted = Filter::new(filter).map_err(|why| failed(why.to_string()))?;
    let wanted = vec![wanted.qos(QoS::AtLeastOnce)];
    let subscribed = client.subscribe_all(wanted, Acknowledging::ByHand).await;
    subscribed.map_err(|why| failed(why.to_string()))
}

/// Whether the body of a message is within the limit. If not, it is counted and logged.
pub(crate) fn fits(shared: &Shared, mapping: &Mapping, message: &Received) -> bool {
    let id = if shared.protocol == Protocol::Req {
        ID_BYTES
    } else {
        0
    };
    let bytes = id + mapping.head(message.topic()).len() + message.payload().len();
    let max = shared.message_bytes_max;
    if bytes > max {
        let topic = message.topic();
        let detail = format_args!("{bytes} bytes on {topic:?}; at most {max} are allowed");
        shared.drop_message(Drop::TooLarge, &detail);
    }
    bytes <= max
}

pub(crate) fn frame(mapping: &Mapping, id: &[u8], message: &Received) -> Vec<u8> {
    wire::frame(&[id, &mapping.head(message.topic()), message.payload()])
}
