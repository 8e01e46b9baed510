//! What a client wants to receive, and the stream of it.

use std::sync::Arc;

use unbroken_mqtt_proto::{
    QoS, RetainHandling, SubscriptionFilter, SubscriptionOptions, TopicError, TopicName,
};

use crate::inbox::{Inbox, Notice};
use crate::{Client, Received, SubscribeError};

/// A filter and how its messages are to be sent. `$share/<group>/<filter>` shares them among the
/// members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    pub(crate) text: Arc<str>,
    pub(crate) options: SubscriptionOptions,
}

impl Filter {
    /// At QoS 2 at most, which means: as published.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, TopicError> {
        let text = text.into();
        SubscriptionFilter::parse(&text)?;
        Ok(Self {
            text,
            options: SubscriptionOptions::at(QoS::ExactlyOnce),
        })
    }

    /// At this QoS at most.
    #[must_use]
    pub fn qos(mut self, qos: QoS) -> Self {
        self.options.qos = qos;
        self
    }

    /// Whether a message on this topic is for it.
    pub(crate) fn matches(&self, topic: &str) -> bool {
        let filter = SubscriptionFilter::parse(&self.text);
        let topic = TopicName::parse(topic);
        matches!((filter, topic), (Ok(filter), Ok(topic)) if filter.filter().matches(topic))
    }

    /// Whether it shares what comes with other members of a group.
    pub fn is_shared(&self) -> bool {
        self.text.starts_with("$share/")
    }

    /// Without what this client publishes itself (5.0).
    #[must_use]
    pub fn no_local(mut self) -> Self {
        self.options.no_local = true;
        self
    }

    /// Whether retained messages come at once (5.0).
    #[must_use]
    pub fn retained(mut self, handling: RetainHandling) -> Self {
        self.options.retain_handling = handling;
        self
    }

    /// Whether the retain flag of a message is the publisher's (5.0).
    #[must_use]
    pub fn retain_as_published(mut self) -> Self {
        self.options.retain_as_published = true;
        self
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Who tells the broker that a message is safe here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledging {
    /// [`Subscription::recv`] does, as it returns the message.
    #[default]
    Automatic,
    /// The owner does: [`Received::acknowledge`]. Acknowledgements leave in the order in which
    /// messages came to the client, so one that is held holds those behind it, of the client's
    /// other subscriptions too; at [`receive_maximum`](crate::Limits::receive_maximum) the
    /// broker sends nothing more.
    ///
    /// One that is dropped instead is left open: those behind it are acknowledged, and it comes
    /// again on the next connection, if the session has one. When half of `receive_maximum` are
    /// left open (of 20 on 3.x, as [`inflight_max_3x`](crate::Limits::inflight_max_3x) says)
    /// the client takes a new connection for them:
    /// [`ConnectError::LeftOpen`](crate::ConnectError::LeftOpen).
    ByHand,
}

impl Acknowledging {
    /// A message on its way out of an inbox.
    pub(crate) fn taken(
        self,
        received: Result<Received, SubscribeError>,
    ) -> Result<Received, SubscribeError> {
        let mut message = received?;
        if self == Self::Automatic {
            message.acknowledge_now();
        }
        Ok(message)
    }
}

/// The messages that match some filters.
///
/// It is to be read as long as it is held: messages that wait in it are not acknowledged, and
/// acknowledgements of one client leave in the order of its messages. So a subscription that nobody
/// reads holds back those of every other one, and once
/// [`receive_maximum`](crate::Limits::receive_maximum) messages wait, the broker sends this client
/// none of QoS 1 and 2. What is read at a pace of its own, or not at all for some time, belongs to
/// a client of its own.
///
/// Dropping it ends the subscription at the broker, except in a session that the broker
/// [keeps](crate::Session::Kept): there the broker goes on collecting messages for the client's
/// next start, and only [`unsubscribe`](Self::unsubscribe) ends the subscription. A client that
/// goes on running without its messages should call it: a message that comes meanwhile is left
/// open, or dropped if its QoS is 0.
///
/// Messages that wait in a dropped subscription are left open, as if each had been [dropped by
/// hand](Acknowledging::ByHand): no other subscription waits for them, and on the next connection
/// they go to the subscriptions that match them by then, or are
/// [unclaimed](crate::Event::Unclaimed).
#[derive(Debug)]
pub struct Subscription {
    pub(crate) id: u64,
    pub(crate) client: Client,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) acknowledging: Acknowledging,
    pub(crate) granted: Vec<QoS>,
}

impl Subscription {
    /// The next message. An error says why there will be none. Cancelling loses nothing.
    pub async fn recv(&mut self) -> Result<Received, SubscribeError> {
        self.acknowledging.taken(self.inbox.recv().await)
    }

    /// The next message, if one waits here.
    pub fn try_recv(&mut self) -> Option<Result<Received, SubscribeError>> {
        Some(self.acknowledging.taken(self.inbox.try_recv()?))
    }

    /// Whether nothing waits here. The broker may still have something.
    pub fn is_drained(&self) -> bool {
        self.waiting() == 0
    }

    /// How many messages wait here. The broker may still have some.
    pub fn waiting(&self) -> usize {
        self.inbox.len()
    }

    /// The highest QoS at which the broker sends, for each filter.
    pub fn granted(&self) -> &[QoS] {
        &self.granted
    }

    /// Ends the subscription at the broker, in every kind of session, and waits for the broker's
    /// answer.
    pub async fn unsubscribe(self) -> Result<(), SubscribeError> {
        self.client.unsubscribe(self.id).await
    }

    /// As [`unsubscribe`](Self::unsubscribe), without waiting for the answer.
    pub(crate) fn end(self) {
        self.client.notice(Notice::Ended(self.id));
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.client.notice(Notice::Dropped(self.id));
    }
}

/// The messages that come for no [`Subscription`] of a client, each copy as
/// the broker sends it: what [`Client::send_subscribe`](crate::Client::send_subscribe) asked for,
/// and what a resumed session still has.
///
/// It is to be read as long as it is held, as a subscription is. Dropped, it leaves open what waits
/// in it, and what comes after that is [unclaimed](crate::Event::Unclaimed).
#[derive(Debug)]
pub struct Unclaimed {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) acknowledging: Acknowledging,
}

impl Unclaimed {
    /// The next message. An error says why there will be none. Cancelling loses nothing.
    pub async fn recv(&mut self) -> Result<Received, SubscribeError> {
        self.acknowledging.taken(self.inbox.recv().await)
    }

    /// The next message, if one waits here.
    pub fn try_recv(&mut self) -> Option<Result<Received, SubscribeError>> {
        Some(self.acknowledging.taken(self.inbox.try_recv()?))
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        self.inbox.leave_open();
    }
}
