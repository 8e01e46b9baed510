//! Listens to a broker for an observer.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};
use unbroken_client::{Acknowledging, ConnectError, Filter, QoS, Session, SubscribeError};
use unbroken_merkle_log::Property;

use super::observer::Observer;
use crate::broker_args::BrokerArgs;
use crate::runtime;

/// How often time passes for the observer. Lateness is counted in tenths of a second anyway.
const TICK: Duration = Duration::from_millis(50);

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
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
}

/// Listens until the time is over, an interrupt comes, or `each` has heard enough. It is asked
/// after every message and every tick.
pub(super) fn listen(
    broker: &BrokerArgs,
    topics: &[String],
    total: Option<Duration>,
    each: impl FnMut(&mut Observer) -> Heard,
) -> Result<Observer, ListenError> {
    runtime::block_on(heard(broker, topics, total, each))?
}

async fn heard(
    broker: &BrokerArgs,
    topics: &[String],
    total: Option<Duration>,
    mut each: impl FnMut(&mut Observer) -> Heard,
) -> Result<Observer, ListenError> {
    let client = broker
        .options()
        .session(Session::Temporary)
        .connect()
        .await?;
    let prefix = broker.prefix();
    let mut filters = Vec::new();
    let own = [format!("{prefix}/checkpoint/+"), format!("{prefix}/drop/+")];
    for topic in topics.iter().chain(&own) {
        let filter = Filter::new(topic.as_str()).map_err(|source| SubscribeError::Filter {
            filter: topic.as_str().into(),
            source,
        })?;
        filters.push(filter.qos(QoS::ExactlyOnce));
    }
    let mut messages = client
        .subscribe_all(filters, Acknowledging::Automatic)
        .await?;
    let mut observer = Observer::new(prefix);
    let begin = Instant::now();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let interrupted = runtime::interrupted();
    tokio::pin!(interrupted);
    while total.is_none_or(|total| begin.elapsed() < total) {
        tokio::select! {
            received = messages.recv() => {
                let received = received?;
                let stamps: Vec<&str> = received.user_properties(Property::NAME).collect();
                let now = begin.elapsed();
                observer.take(received.topic(), received.payload(), &stamps, now);
            }
            _ = ticks.tick() => {
                let now = begin.elapsed();
                if client.connection().is_some() && messages.waiting() == 0 {
                    observer.resume(now);
                } else {
                    observer.pause(now);
                }
                observer.poll(now);
            }
            () = &mut interrupted => break,
        }
        if each(&mut observer) == Heard::Enough {
            break;
        }
    }
    client.disconnect().await;
    Ok(observer)
}
