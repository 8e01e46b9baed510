//! The handle of a client.

use std::sync::Arc;

use tokio::sync::{Semaphore, TryAcquireError, broadcast, mpsc, oneshot, watch};
use unbroken_mqtt_proto::{Properties, PropertyBuf, QoS, ReasonCode};

use crate::engine::{Asked, Batch, Command, Engine, Outgoing, PublishRequest, Reply, Request};
use crate::event::Events;
use crate::inbox::{Inbox, Notice};
use crate::limits::{COMMANDS_SPARE, EVENTS_HELD};
use crate::{
    Acknowledging, ConnectError, Event, Filter, Limits, Message, Options, PublishError,
    SubscribeError, Subscription, TrySendError, Version, driver,
};

/// A client. Clones are handles of the same one; it ends with the last of them and of its
/// subscriptions.
#[derive(Clone, Debug)]
pub struct Client(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    commands: mpsc::Sender<Command>,
    notices: mpsc::UnboundedSender<Notice>,
    /// One for each message that may be unfinished.
    slots: Arc<Semaphore>,
    slots_max: usize,
    link: watch::Receiver<Link>,
    events: broadcast::Sender<Event>,
    limits: Limits,
    client_id: String,
    version: Version,
}

/// How the connection stands.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    /// A try is under way, or the pause before one.
    Connecting,
    /// For the nth time.
    Connected(u64),
    /// For good.
    Ended(ConnectError),
}

/// What the broker said to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    /// Nothing, as QoS 0 has it: it was given to the connection.
    Sent,
    /// It has the message.
    Taken,
    /// It has had the message, which nobody receives (5.0, if the broker says so).
    NoSubscribers,
}

/// The answer to come for a message that was sent. Dropping it changes nothing for the message.
#[derive(Debug)]
pub struct Receipt {
    answer: oneshot::Receiver<Result<Acknowledged, PublishError>>,
    link: watch::Receiver<Link>,
}

/// The answers to come for messages that were sent together.
#[derive(Debug)]
pub struct Receipts {
    answer: oneshot::Receiver<Vec<PublishError>>,
    link: watch::Receiver<Link>,
}

/// The broker's answer to a SUBSCRIBE or UNSUBSCRIBE in the application's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// One for each filter; none for UNSUBACK of 3.x.
    pub reasons: Vec<ReasonCode>,
    /// So many [unclaimed](crate::Unclaimed) messages had come before it and waited.
    pub unclaimed: usize,
}

impl Client {
    pub(crate) fn start(options: Options, unclaimed: Option<Arc<Inbox>>) -> Self {
        let (limits, client_id) = (options.limits.clone(), options.client_id.clone());
        let version = options.version;
        let slots = limits.unfinished_max.clamp(1, Semaphore::MAX_PERMITS / 2);
        let (commands, wishes) = mpsc::channel(slots + COMMANDS_SPARE);
        // What bounds it is said at `Notice`.
        let (notices, told) = mpsc::unbounded_channel();
        let (events, _) = broadcast::channel(EVENTS_HELD);
        let (link, link_seen) = watch::channel(Link::Connecting);
        let engine = Engine::new(options, notices.clone(), events.clone(), unclaimed);
        tokio::spawn(driver::run(engine, wishes, told, link));
        Self(Arc::new(Handle {
            commands,
            notices,
            slots: Arc::new(Semaphore::new(slots)),
            slots_max: slots,
            link: link_seen,
            events,
            limits,
            client_id,
            version,
        }))
    }

    /// Publishes a message and waits until the broker has acknowledged it as its QoS demands,
    /// through lost connections. Waits for its turn while
    /// [`unfinished_max`](Limits::unfinished_max) others are unfinished. Dropped while it does, the
    /// message is not sent; dropped later, it is.
    pub async fn publish(&self, message: Message) -> Result<Acknowledged, PublishError> {
        self.send(message).await?.acknowledged().await
    }

    /// Gives a message to the client and waits only for its turn. Messages leave in the order in
    /// which they are given.
    pub async fn send(&self, message: Message) -> Result<Receipt, PublishError> {
        let slots = Arc::clone(&self.0.slots);
        let Ok(slot) = slots.acquire_owned().await else {
            return Err(PublishError::Ended(self.why_ended()));
        };
        let (outgoing, receipt) = self.outgoing(message, slot);
        let sent = self.0.commands.send(Command::Publish(outgoing)).await;
        sent.map_err(|_| PublishError::Ended(self.why_ended()))?;
        Ok(receipt)
    }

    /// Gives many messages to the client at once, at a fraction of what each costs by itself, and
    /// waits only for their turn. More than [`unfinished_max`](Limits::unfinished_max) have it when
    /// no others are unfinished.
    pub async fn send_all(&self, messages: Vec<Message>) -> Result<Receipts, PublishError> {
        let places = messages.len().min(self.0.slots_max);
        let places = u32::try_from(places).unwrap_or(u32::MAX);
        let slots = Arc::clone(&self.0.slots);
        let Ok(slots) = slots.acquire_many_owned(places).await else {
            return Err(PublishError::Ended(self.why_ended()));
        };
        let (reply, answer) = oneshot::channel();
        let batch = Batch::new(messages.len(), reply, slots);
        let sent = self
            .0
            .commands
            .send(Command::PublishAll(messages, batch))
            .await;
        sent.map_err(|_| PublishError::Ended(self.why_ended()))?;
        let link = self.0.link.clone();
        Ok(Receipts { answer, link })
    }

    /// Gives a message to the client if there is room for it now, and never waits.
    pub fn try_send(&self, message: Message) -> Result<Receipt, TrySendError> {
        let full = |message| TrySendError::Full {
            unfinished_max: self.0.limits.unfinished_max,
            message: Box::new(message),
        };
        let ended = |message| TrySendError::Ended {
            why: self.why_ended(),
            message: Box::new(message),
        };
        if self.0.commands.is_closed() {
            return Err(ended(message));
        }
        let slot = match Arc::clone(&self.0.slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(TryAcquireError::NoPermits) => return Err(full(message)),
            Err(TryAcquireError::Closed) => return Err(ended(message)),
        };
        let (outgoing, receipt) = self.outgoing(message, slot);
        match self.0.commands.try_send(Command::Publish(outgoing)) {
            Ok(()) => Ok(receipt),
            Err(error) => {
                let is_full = matches!(error, mpsc::error::TrySendError::Full(_));
                match error.into_inner() {
                    Command::Publish(outgoing) if is_full => Err(full(outgoing.message)),
                    Command::Publish(outgoing) => Err(ended(outgoing.message)),
                    _ => unreachable!("what was sent comes back"),
                }
            }
        }
    }

    /// Subscribes to one filter; [`recv`](Subscription::recv) acknowledges.
    pub async fn subscribe(&self, filter: Filter) -> Result<Subscription, SubscribeError> {
        self.subscribe_all(vec![filter], Acknowledging::Automatic)
            .await
    }

    /// Subscribes to filters whose messages come in one stream: each once, also where filters
    /// overlap. Waits for the broker's answer, through lost connections.
    pub async fn subscribe_all(
        &self,
        filters: Vec<Filter>,
        acknowledging: Acknowledging,
    ) -> Result<Subscription, SubscribeError> {
        let inbox = Arc::new(Inbox::new(self.0.limits.qos0_waiting_max));
        let (reply, answer) = oneshot::channel();
        let wish = PublishRequest {
            filters,
            inbox: Arc::clone(&inbox),
            reply,
        };
        let ended = || SubscribeError::Ended(self.why_ended());
        let sent = self.0.commands.send(Command::Subscribe(wish)).await;
        sent.map_err(|_| ended())?;
        let (id, granted) = answer.await.map_err(|_| ended())??;
        Ok(Subscription {
            id,
            client: self.clone(),
            inbox,
            acknowledging,
            granted,
        })
    }

    /// Sends one SUBSCRIBE with these filters and properties (5.0), and waits for the answer. The
    /// client does not remember the filters: their messages are [unclaimed](crate::Unclaimed), and
    /// the next connection needs another SUBSCRIBE unless it resumes the session.
    pub async fn send_subscribe(
        &self,
        filters: Vec<Filter>,
        properties: Properties<'_>,
    ) -> Result<Answer, SubscribeError> {
        self.request(Asked::Subscribe(filters), properties).await
    }

    /// Sends one UNSUBSCRIBE for filters of [`send_subscribe`](Self::send_subscribe), and waits for
    /// the answer.
    pub async fn send_unsubscribe(
        &self,
        filters: Vec<Filter>,
        properties: Properties<'_>,
    ) -> Result<Answer, SubscribeError> {
        let filters = filters.into_iter().map(|filter| filter.text);
        self.request(Asked::Unsubscribe(filters.collect()), properties)
            .await
    }

    /// Asks the broker for a sign and waits for it: everything that it sent before has come.
    pub async fn ping(&self) -> Result<(), ConnectError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.commands.send(Command::Ping(reply)).await;
        sent.map_err(|_| self.why_ended())?;
        answer.await.map_err(|_| self.why_ended())
    }

    /// Waits until the client is connected, or has ended.
    pub async fn connected(&self) -> Result<(), ConnectError> {
        let mut link = self.0.link.clone();
        loop {
            match &*link.borrow_and_update() {
                Link::Connecting => {}
                Link::Connected(_) => return Ok(()),
                Link::Ended(why) => return Err(why.clone()),
            }
            if link.changed().await.is_err() {
                return Err(self.why_ended());
            }
        }
    }

    /// Why the client has ended; `None` while it has not.
    pub fn ended(&self) -> Option<ConnectError> {
        match &*self.0.link.borrow() {
            Link::Ended(why) => Some(why.clone()),
            Link::Connecting | Link::Connected(_) => None,
        }
    }

    /// The present connection, counted from 1; `None` while there is none.
    pub fn connection(&self) -> Option<u64> {
        match &*self.0.link.borrow() {
            Link::Connected(count) => Some(*count),
            Link::Connecting | Link::Ended(_) => None,
        }
    }

    /// What happens to the client from now on.
    pub fn events(&self) -> Events {
        Events(self.0.events.subscribe())
    }

    /// Says goodbye to the broker, which then publishes no will, and ends the client. What is not
    /// acknowledged fails with [`PublishError::Ended`].
    pub async fn disconnect(self) {
        // It ends one way or another.
        let _ = self.leave(None).await;
    }

    /// As [`disconnect`](Self::disconnect), with these properties of DISCONNECT (5.0), unless the
    /// broker takes no packet so large. Returns why the connection ended if the broker named a
    /// fault, or closed without having read everything.
    pub async fn disconnect_with(self, properties: Properties<'_>) -> Result<(), ConnectError> {
        let mut given = PropertyBuf::new();
        given.extend(properties);
        self.leave(Some(given)).await
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The id that it gives itself. Empty: the broker is to choose one.
    pub fn client_id(&self) -> &str {
        &self.0.client_id
    }

    pub(crate) fn version(&self) -> Version {
        self.0.version
    }

    pub(crate) fn notice(&self, notice: Notice) {
        // Nothing is left to be told when the client has ended.
        let _ = self.0.notices.send(notice);
    }

    async fn leave(self, properties: Option<PropertyBuf>) -> Result<(), ConnectError> {
        let (reply, answer) = oneshot::channel();
        let sent = self
            .0
            .commands
            .send(Command::Disconnect(properties, reply))
            .await;
        sent.map_err(|_| self.why_ended())?;
        answer.await.map_err(|_| self.why_ended())?
    }

    async fn request(&self, asked: Asked, given: Properties<'_>) -> Result<Answer, SubscribeError> {
        let mut properties = PropertyBuf::new();
        properties.extend(given);
        let (reply, answer) = oneshot::channel();
        let request = Request {
            asked,
            properties,
            reply,
        };
        let ended = || SubscribeError::Ended(self.why_ended());
        let sent = self.0.commands.send(Command::Request(request)).await;
        sent.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    pub(crate) async fn unsubscribe(&self, id: u64) -> Result<(), SubscribeError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.commands.send(Command::Unsubscribe(id, reply)).await;
        sent.map_err(|_| SubscribeError::Ended(self.why_ended()))?;
        answer
            .await
            .map_err(|_| SubscribeError::Ended(self.why_ended()))
    }

    fn outgoing(
        &self,
        message: Message,
        slot: tokio::sync::OwnedSemaphorePermit,
    ) -> (Outgoing, Receipt) {
        let (reply, answer) = oneshot::channel();
        let receipt = Receipt {
            answer,
            link: self.0.link.clone(),
        };
        (Outgoing::new(message, Reply::new(reply, slot)), receipt)
    }

    fn why_ended(&self) -> ConnectError {
        why_ended(&self.0.link)
    }
}

impl Receipt {
    /// As [`acknowledged`](Self::acknowledged), for a caller that may stop waiting and return.
    pub async fn answer(&mut self) -> Result<Acknowledged, PublishError> {
        let answer = (&mut self.answer).await;
        answer.unwrap_or_else(|_| Err(PublishError::Ended(why_ended(&self.link))))
    }

    /// Waits for what the broker says to the message.
    pub async fn acknowledged(mut self) -> Result<Acknowledged, PublishError> {
        self.answer().await
    }
}

impl Receipts {
    /// Waits until every message is acknowledged as its QoS demands, and gives the failures.
    pub async fn finished(&mut self) -> Vec<PublishError> {
        let answer = (&mut self.answer).await;
        answer.unwrap_or_else(|_| vec![PublishError::Ended(why_ended(&self.link))])
    }
}

impl Acknowledged {
    pub(crate) fn of(qos: QoS, has_subscribers: bool) -> Self {
        match qos {
            QoS::AtMostOnce => Self::Sent,
            _ if has_subscribers => Self::Taken,
            _ => Self::NoSubscribers,
        }
    }
}

fn why_ended(link: &watch::Receiver<Link>) -> ConnectError {
    match &*link.borrow() {
        Link::Ended(why) => why.clone(),
        // The runtime was shut down under the client's task.
        Link::Connecting | Link::Connected(_) => ConnectError::Ended,
    }
}
