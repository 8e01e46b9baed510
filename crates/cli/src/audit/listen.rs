//! Listens to a broker for an observer: the lanes' messages by the client's audited subscriber, and
//! what the broker says of itself beside them.

use std::time::{Duration, Instant};

use tokio::time::{sleep_until, timeout, timeout_at};
use unbroken_client::audit::{AuditedSubscriber, OpenError, Scope, SubscriberOptions, WATCHER};
use unbroken_client::{
    Acknowledging, Client, ConnectError, Event, Events, Filter, QoS, Received, Session,
    SubscribeError, Subscription,
};
use unbroken_merkle_log::{Hasher, LaneId};

use super::broker_side::{BrokerSide, More};
use super::observer::Observer;
use super::wall::Wall;
use crate::broker_args::BrokerArgs;
use crate::runtime;

/// What to listen to, and for how long.
#[derive(Debug)]
pub(super) struct Listening<'a> {
    pub(super) broker: &'a BrokerArgs,
    pub(super) hasher: Hasher,
    pub(super) topics: &'a [String],
    /// They are not all that the lanes go to.
    pub(super) part: bool,
    /// Lanes that are to come.
    pub(super) expect: &'a [LaneId],
    /// Whatever a directory lists is to come.
    pub(super) all_lanes: bool,
    pub(super) mounts: bool,
    /// Until interrupted, if there is none.
    pub(super) total: Option<Duration>,
    pub(super) wanted: Wanted,
}

/// What is wanted beside the lanes as they come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// Producers are asked for what is missing.
    pub(super) asks: bool,
    /// What the broker is asked for beside lanes.
    pub(super) more: Option<More>,
    /// Its sentence is shown at the end, so it is asked for the one of that moment.
    pub(super) sums: bool,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    More,
    Enough,
}

/// Why it ended before its time.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListenError {
    #[error("cannot start: {0}")]
    Runtime(#[from] std::io::Error),
    #[error("{0}")]
    Flags(String),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(
        "the broker was unreachable or did not answer CONNECT and SUBSCRIBE in time: check the \
         address, or allow more time with -W"
    )]
    Late,
}

impl Listening<'_> {
    /// Listens until the time is over, an interrupt comes, or `each` has heard enough. It is asked
    /// after everything that is heard.
    pub(super) fn listen(
        self,
        each: impl FnMut(&mut Observer) -> Heard,
    ) -> Result<Observer, ListenError> {
        runtime::block_on(self.heard(each))?
    }

    async fn heard(
        self,
        mut each: impl FnMut(&mut Observer) -> Heard,
    ) -> Result<Observer, ListenError> {
        let (begin, wall) = (Instant::now(), Wall::start());
        // Without a time to end, a day that never comes.
        let end = begin + self.total.unwrap_or(Duration::from_hours(24 * 36_500));
        let started = timeout_at(end.into(), self.start()).await;
        let (client, mut broker, mut lanes, mut events) =
            started.map_err(|_| ListenError::Late)??;
        let mut observer = Observer::new(self.hasher);
        observer.wall = wall;
        observer.there_since = begin.elapsed();
        observer.broker = BrokerSide::told_to(client.client_id().to_owned());
        if !self.topics.iter().any(|topic| topic == "#") {
            observer.only_of(self.topics);
        }
        observer.expect(self.expect);
        if self.all_lanes {
            observer.expect_only_listed();
        }
        if self.part {
            observer.expect_part();
        }
        let interrupted = runtime::interrupted();
        tokio::pin!(interrupted);
        loop {
            tokio::select! {
                delivery = lanes.next() => {
                    let delivery = delivery?;
                    let absence = lanes.absence_behind(&delivery);
                    observer.take(&delivery, absence, begin.elapsed());
                }
                Some(event) = events.next() => match event {
                    Event::Connected { .. } => observer.connection(true, begin.elapsed()),
                    Event::Disconnected { .. } => observer.connection(false, begin.elapsed()),
                    Event::Dropped { .. } => observer.fell_behind(begin.elapsed()),
                    _ => {}
                },
                said = next(&mut broker) => {
                    let said = said?;
                    observer.broker.take(said.topic(), said.payload());
                }
                () = sleep_until(end.into()) => break,
                () = &mut interrupted => break,
            }
            if each(&mut observer) == Heard::Enough {
                break;
            }
        }
        observer.pass(begin.elapsed());
        for (lane, epoch, ledger) in lanes.ledger().lanes() {
            if let Some(numbers) = ledger.outstanding() {
                observer.outstanding((lane, epoch), numbers);
            }
        }
        if self.wanted.sums && observer.broker.verdict().is_some() {
            drop(broker);
            if let Ok(said) = timeout(VERDICT_WITHIN, verdict_now(&client)).await {
                let said = said?;
                observer.broker.take(said.topic(), said.payload());
            }
        }
        client.disconnect().await;
        Ok(observer)
    }

    async fn start(
        &self,
    ) -> Result<(Client, Option<Subscription>, AuditedSubscriber, Events), ListenError> {
        let (name, value) = WATCHER;
        let options = self.broker.options().map_err(ListenError::Flags)?;
        let options = options.session(Session::Temporary);
        let options = options.user_property(name, value);
        let client = options.map_err(ConnectError::Options)?.connect().await?;
        let events = client.events();
        let mut filters = Vec::new();
        for topic in self.topics {
            filters.push(filter(topic)?);
        }
        let broker = listen_to_broker(&client, self.wanted.more).await?;
        let mut lanes = SubscriberOptions::new(filters)
            .prefix(self.broker.prefix())
            .hasher(self.hasher.clone())
            .without_origins();
        if !self.wanted.asks {
            lanes = lanes.one_way();
        }
        if self.part {
            lanes = lanes.scope(Scope::Part);
        }
        if self.mounts {
            lanes = lanes.across_mounts();
        }
        if self.all_lanes {
            lanes = lanes.expect_listed();
        }
        for lane in self.expect {
            lanes = lanes.expect(*lane);
        }
        let lanes = lanes.open(&client).await?;
        Ok((client, broker, lanes, events))
    }
}

/// The broker's sentence as of now: it answers a subscription with it.
async fn verdict_now(client: &Client) -> Result<Received, SubscribeError> {
    let filters = vec![filter(BrokerSide::VERDICT)?];
    let mut verdict = client
        .subscribe_all(filters, Acknowledging::Automatic)
        .await?;
    verdict.recv().await
}

/// How long the broker may take for it; what it said before stands otherwise.
const VERDICT_WITHIN: Duration = Duration::from_secs(1);

/// `None` where the broker does not allow it.
async fn listen_to_broker(
    client: &Client,
    more: Option<More>,
) -> Result<Option<Subscription>, SubscribeError> {
    let topics = BrokerSide::topics(more);
    let filters = topics.into_iter().map(filter).collect::<Result<_, _>>()?;
    let subscribed = client
        .subscribe_all(filters, Acknowledging::Automatic)
        .await;
    match subscribed {
        Ok(subscription) => Ok(Some(subscription)),
        Err(SubscribeError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn next(broker: &mut Option<Subscription>) -> Result<Received, SubscribeError> {
    match broker {
        Some(broker) => broker.recv().await,
        None => std::future::pending().await,
    }
}

fn filter(topic: impl AsRef<str>) -> Result<Filter, SubscribeError> {
    let topic = topic.as_ref();
    let filter = Filter::new(topic).map_err(|source| SubscribeError::Filter {
        filter: topic.into(),
        source,
    })?;
    Ok(filter.qos(QoS::ExactlyOnce))
}
