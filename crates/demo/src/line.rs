//! The line itself: producer A, the broker, processor B and consumer C, with a relay in front of
//! the broker and one between the broker and C.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use unbroken_client::{
    Acknowledging, Client, ConnectError, Filter, Options, PublishError, QoS, RetryDuration,
    SubscribeError,
};
use unbroken_merkle_log::LaneId;

use crate::checker::Checker;
use crate::limits::{NEWS_WAITING_MAX, STAGE_TICK};
use crate::news::News;
use crate::process::{Broker, ProcessError, Processor};
use crate::readings::Readings;
use crate::relay::{Relay, Towards};
use crate::sequence::Sequence;
use crate::stamper::{StampError, Stamper};

pub(crate) const PREFIX: &str = "audit";
const RAW: &str = "plant/raw";
const CLEAN: &str = "plant/clean";

/// The parts, all running. What is dropped with it ends.
pub(crate) struct Line {
    /// `None`: somebody else's.
    pub(crate) broker: Option<Broker>,
    pub(crate) b: Processor,
    /// Between A and the broker.
    pub(crate) before_b: Relay,
    /// Between the broker and C.
    pub(crate) behind_b: Relay,
    pub(crate) counts: Arc<Counts>,
    pub(crate) a: Client,
    pub(crate) c: Client,
    pub(crate) lane_of_a: LaneId,
    /// What C finds.
    pub(crate) news: mpsc::Receiver<News>,
    stages: [JoinHandle<Result<(), LineError>>; 2],
}

/// How far A and C are, and whether A may go on.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) is_stopped: AtomicBool,
    /// A sends no more than so many.
    pub(crate) limit: AtomicU64,
}

/// Why the line cannot be, or go on.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// A socket of a relay.
    #[error("a relay cannot listen: {0}")]
    Relay(#[from] io::Error),
    /// A process.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A or C is not connected.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A or C cannot subscribe.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// A cannot publish.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// A message cannot be stamped.
    #[error(transparent)]
    Stamp(#[from] StampError),
}

impl Line {
    /// Starts everything, the last ones first, so that nothing is sent to nobody. A waits until it
    /// is allowed to send.
    pub(crate) async fn start(
        program: &Path,
        directory: &Path,
        at: Option<SocketAddr>,
        readings: Readings,
        rate: u32,
    ) -> Result<Self, LineError> {
        let broker = match at {
            None => Some(Broker::start(program, directory).await?),
            Some(_) => None,
        };
        let own = broker.as_ref().map(|broker| broker.address);
        let address = at.or(own).expect("one of them is there");
        let before_b = Relay::start(address, Towards::Broker).await?;
        let behind_b = Relay::start(address, Towards::Clients).await?;
        let counts = Arc::new(Counts {
            sent: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            is_stopped: AtomicBool::new(true),
            limit: AtomicU64::new(u64::MAX),
        });
        let (sender, news) = mpsc::channel(NEWS_WAITING_MAX);

        let c = connect(behind_b.address()).await?;
        let checker = Checker::new(PREFIX, &random_lane().to_string());
        let mut filters = vec![filter(CLEAN)?];
        for topic in checker.topics() {
            filters.push(filter(&topic)?);
        }
        let messages = c.subscribe_all(filters, Acknowledging::Automatic).await?;
        let consuming = consume(c.clone(), messages, checker, Arc::clone(&counts), sender);

        let mut b = Processor::start(program, directory, address, (RAW, CLEAN))?;
        let a = connect(before_b.address()).await?;
        wait_for_b(&a, &mut b).await?;
        let lane_of_a = random_lane();
        let stamper = Stamper::new(lane_of_a, PREFIX, Duration::ZERO);
        let requests = a.subscribe(filter(&stamper.repair_topic())?).await?;
        let producing = produce(
            a.clone(),
            requests,
            stamper,
            readings,
            rate,
            Arc::clone(&counts),
        );
        Ok(Self {
            broker,
            b,
            before_b,
            behind_b,
            counts,
            a,
            c,
            lane_of_a,
            news,
            stages: [tokio::spawn(consuming), tokio::spawn(producing)],
        })
    }

    /// Whether A or C has ended, and why.
    pub(crate) fn has_ended(&self) -> bool {
        self.stages.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stages.iter().for_each(JoinHandle::abort);
    }
}

async fn produce(
    client: Client,
    mut requests: unbroken_client::Subscription,
    mut stamper: Stamper,
    mut readings: Readings,
    rate: u32,
    counts: Arc<Counts>,
) -> Result<(), LineError> {
    let begin = Instant::now();
    let mut ticks = interval(STAGE_TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut owed = 0.0;
    let mut paid = begin.elapsed();
    loop {
        tokio::select! {
            request = requests.recv() => for answer in stamper.answer(&request?)? {
                client.send(answer).await?;
            },
            _ = ticks.tick() => {
                let now = begin.elapsed();
                // What could not be sent while the line was broken is not made up for.
                let passed = now.saturating_sub(paid).min(STAGE_TICK * 3);
                paid = now;
                if !counts.is_stopped.load(Ordering::Relaxed) {
                    owed += passed.as_secs_f64() * f64::from(rate);
                }
                let limit = counts.limit.load(Ordering::Relaxed);
                while owed >= 1.0 && stamper.sent() < limit && client.connection().is_some() {
                    owed -= 1.0;
                    let message = stamper.stamp(RAW, readings.next_line(), Vec::new())?;
                    counts.sent.store(stamper.sent(), Ordering::Relaxed);
                    client.send(message).await?;
                }
                owed = owed.min(1.0);
                while let Some(checkpoint) = stamper.poll(begin.elapsed())? {
                    client.send(checkpoint).await?;
                }
            }
        }
    }
}

async fn consume(
    client: Client,
    mut messages: unbroken_client::Subscription,
    mut checker: Checker,
    counts: Arc<Counts>,
    news: mpsc::Sender<News>,
) -> Result<(), LineError> {
    let begin = Instant::now();
    let mut sequence = Sequence::new();
    let mut ticks = interval(STAGE_TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            received = messages.recv() => {
                if let Some(good) = checker.take(&received?, begin.elapsed()) {
                    let handed_on = sequence.take(good.first.sequence, good.payload).count();
                    counts.delivered.fetch_add(handed_on as u64, Ordering::Relaxed);
                }
            }
            _ = ticks.tick() => {
                let settled = messages.waiting() == 0 && client.connection().is_some();
                for request in checker.poll(settled, begin.elapsed())? {
                    client.send(request).await?;
                }
                for news_item in checker.take_news() {
                    if news.send(news_item).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// B is there when the broker has a subscriber for what A publishes. The question bears no stamp,
/// so B leaves it alone.
async fn wait_for_b(a: &Client, b: &mut Processor) -> Result<(), LineError> {
    use unbroken_client::{Acknowledged, Message};
    let mut ticks = interval(STAGE_TICK);
    loop {
        ticks.tick().await;
        if let Some(ended) = b.ended() {
            return Err(ProcessError::Silent(format!("B {ended}")).into());
        }
        let question = Message::new(RAW, &b""[..]).map_err(StampError::from)?;
        let question = question.qos(QoS::AtLeastOnce);
        if a.publish(question).await? == Acknowledged::Taken {
            return Ok(());
        }
    }
}

async fn connect(broker: SocketAddr) -> Result<Client, ConnectError> {
    let pause = |ms| RetryDuration(Duration::from_millis(ms));
    Options::new(broker.into())
        .pauses(pause(20), pause(200))
        .connect()
        .await
}

fn filter(text: &str) -> Result<Filter, SubscribeError> {
    let filter = Filter::new(text).map_err(|source| SubscribeError::Filter {
        filter: text.into(),
        source,
    })?;
    Ok(filter.qos(QoS::AtLeastOnce))
}

/// A lane of its own for each run, so that nothing kept from another is mistaken for this one's.
pub fn random_lane() -> LaneId {
    let mut bytes = [0; 8];
    // Without randomness the time does: what matters is that two runs differ.
    if getrandom::fill(&mut bytes).is_err() {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        bytes = time.map_or([1; 8], |time| {
            u64::try_from(time.as_nanos()).unwrap_or(1).to_be_bytes()
        });
    }
    LaneId::new(u64::from_be_bytes(bytes) >> 1 | 1).expect("its lowest bit is set")
}
