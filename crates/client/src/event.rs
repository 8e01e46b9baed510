//! What happens to a client beside its messages, for whoever wants to watch.

use std::sync::Arc;

use tokio::sync::broadcast;
use unbroken_mqtt_proto::ReasonCode;

use crate::{ConnectError, RetryDuration};

/// Something that happened to a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// CONNACK said yes.
    Connected {
        /// The broker still had the session. If not, the client has subscribed again.
        session_present: bool,
    },
    /// The connection ended.
    Disconnected {
        /// Why.
        why: ConnectError,
    },
    /// A try to connect failed; the next one follows a pause.
    Retrying {
        /// Failed tries in a row.
        failed: u32,
        /// How long the pause is.
        pause: RetryDuration,
        /// Why the try failed.
        why: ConnectError,
    },
    /// The client has ended for good.
    Ended {
        /// Why.
        why: ConnectError,
    },
    /// A message of QoS 0 came, and its subscription's owner was too far behind.
    Dropped {
        /// Its topic.
        topic: Arc<str>,
    },
    /// A message came for a subscription that has ended, and is acknowledged and dropped. In a
    /// session that the broker [keeps](crate::Session::Kept) a message can also come for a
    /// subscription that was only dropped; it is left open, and comes again on the next connection
    /// if its QoS is 1 or 2.
    Unclaimed {
        /// Its topic.
        topic: Arc<str>,
    },
    /// The broker did not take a filter again after it had lost the session. The subscription has
    /// ended.
    SubscriptionLost {
        /// Which.
        filter: Arc<str>,
        /// Why.
        reason: ReasonCode,
    },
    /// The observer was too far behind and missed this many events.
    Missed(u64),
}

/// The events of a client from now on.
#[derive(Debug)]
pub struct Events(pub(crate) broadcast::Receiver<Event>);

impl Events {
    /// One that has happened already. Those that were missed are passed over.
    pub(crate) fn take(&mut self) -> Option<Event> {
        loop {
            match self.0.try_recv() {
                Ok(event) => return Some(event),
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => return None,
            }
        }
    }

    /// The next event; `None` once the client has ended and all was seen.
    pub async fn next(&mut self) -> Option<Event> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Event::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
