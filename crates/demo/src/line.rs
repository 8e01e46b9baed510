//! The line itself: producer A, the broker, processor B and consumer C, each behind a relay to the
//! broker. Those of A and C inject faults.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use unbroken_client::audit::{
    AuditError, AuditedMessage, AuditedPublisher, AuditedSubscriber, Delivery, OpenError,
    PublisherOptions, Scope, Spooled, Stamped, SubscriberOptions,
};
use unbroken_client::{
    Client, ConnectError, Message, Options, RetryDuration, Session, SubscribeError, TotalDuration,
};
use unbroken_merkle_log::{LaneId, Property};

use crate::handed_on::{HandedOn, Passed};
use crate::limits::{NEWS_WAITING_MAX, STAGE_TICK, UNACKNOWLEDGED_MAX};
use crate::news::News;
use crate::pipe::{filter, settled};
use crate::process::{Broker, Keeping, ProcessError, Processor};
use crate::readings::Readings;
use crate::relay::{Relay, Towards};
use crate::remote::{Remote, User};
use crate::sequence::Sequence;

pub(crate) const PREFIX: &str = "audit";
const RAW: &str = "plant/raw";
const CLEAN: &str = "plant/clean";

/// The parts, all running. What is dropped with it ends.
pub(crate) struct Line {
    /// `None`: it ran already.
    pub(crate) broker: Option<Broker>,
    pub(crate) b: Processor,
    /// Between A and the broker.
    pub(crate) before_b: Relay,
    /// Between the broker and C.
    pub(crate) behind_b: Relay,
    /// Between the broker and B, without faults.
    _around_b: Relay,
    pub(crate) counts: Arc<Counts>,
    pub(crate) a: Client,
    /// Another one after each restart.
    pub(crate) c: watch::Receiver<Client>,
    pub(crate) lane_of_a: LaneId,
    /// What C finds.
    pub(crate) news: mpsc::Receiver<News>,
    stages: [Stage; 2],
    /// Where the broker, B and A keep what they have.
    _directory: TempDir,
}

/// How far A and C are, and whether A may go on.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    /// Handed on by C, each in its place.
    pub(crate) delivered: AtomicU64,
    /// Handed on by C again.
    pub(crate) duplicated: AtomicU64,
    /// Handed on by C behind a later one.
    pub(crate) reordered: AtomicU64,
    pub(crate) is_stopped: AtomicBool,
    /// A sends no more than so many.
    pub(crate) limit: AtomicU64,
    /// C is to end, and to begin again with what it has saved.
    pub(crate) restarts_c: AtomicBool,
    /// How often it has.
    pub(crate) restarts: AtomicU64,
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
    /// The broker that is to be used does not serve.
    #[error(
        "{why}. Start the broker of --broker first, or leave --broker out: then the demonstration \
         starts its own"
    )]
    Unavailable {
        /// The result of the only try.
        why: ConnectError,
    },
    /// A or C cannot subscribe.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// A or C cannot begin.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A cannot go on.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// There is no place for what the parts keep.
    #[error("cannot make a temporary directory: {0}")]
    Directory(io::Error),
}

impl Line {
    /// Starts everything, the last ones first, so that nothing is sent to nobody. A waits until it
    /// is allowed to send.
    pub(crate) async fn start(
        program: &Path,
        at: Option<&Remote>,
        keeping: Keeping,
        readings: Readings,
        rate: u32,
    ) -> Result<Self, LineError> {
        if let Some(remote) = at {
            try_once(remote).await?;
        }
        let directory = tempfile::tempdir().map_err(LineError::Directory)?;
        let broker = match at {
            None => Some(Broker::start(program, directory.path(), keeping).await?),
            Some(_) => None,
        };
        let own = broker.as_ref().map(|broker| broker.address.into());
        let to = at.map(Remote::options).or(own);
        let to = to.expect("one of them is there");
        let user = at.map(|remote| remote.user.clone()).unwrap_or_default();
        let before_b = Relay::start(to.clone(), Towards::Broker).await?;
        let behind_b = Relay::start(to.clone(), Towards::Clients).await?;
        let around_b = Relay::start(to, Towards::Broker).await?;
        let counts = Arc::new(Counts {
            sent: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            duplicated: AtomicU64::new(0),
            reordered: AtomicU64::new(0),
            is_stopped: AtomicBool::new(true),
            limit: AtomicU64::new(u64::MAX),
            restarts_c: AtomicBool::new(false),
            restarts: AtomicU64::new(0),
        });
        let (sender, news) = mpsc::channel(NEWS_WAITING_MAX);

        let consumer =
            Consumer::start(behind_b.address(), &user, Arc::clone(&counts), sender).await?;
        let c = consumer.client.subscribe();
        let consuming = consumer.run();

        let b = Processor::start(
            program,
            directory.path(),
            around_b.address(),
            &user,
            (RAW, CLEAN),
        )
        .await?;
        let a = user.identify(options(before_b.address())).connect().await?;
        let lane_of_a = random_lane();
        let output = PublisherOptions::new(lane_of_a).prefix(PREFIX);
        let output = output.open(&a, directory.path().join("a")).await?;
        let producing = produce(a.clone(), output, readings, rate, Arc::clone(&counts));
        Ok(Self {
            broker,
            b,
            before_b,
            behind_b,
            _around_b: around_b,
            counts,
            a,
            c,
            lane_of_a,
            news,
            stages: [spawn("C", consuming), spawn("A", producing)],
            _directory: directory,
        })
    }

    /// The connections of A and C, numbered from the first of each.
    pub(crate) fn connections(&self) -> [Option<u64>; 2] {
        [self.a.connection(), self.c.borrow().connection()]
    }

    /// A, B or C if it has ended, and why.
    pub(crate) fn ended(&mut self) -> Option<(&'static str, String)> {
        let b = self.b.ended().map(|why| ("B", why));
        b.or_else(|| self.stages.iter_mut().find_map(Stage::ended))
    }
}

/// A or C, which are tasks of this process.
struct Stage {
    name: &'static str,
    task: JoinHandle<()>,
    why: oneshot::Receiver<String>,
}

fn spawn(
    name: &'static str,
    stage: impl Future<Output = Result<(), LineError>> + Send + 'static,
) -> Stage {
    let (ended, why) = oneshot::channel();
    let task = tokio::spawn(async move {
        let said = match stage.await {
            Ok(()) => "it has no listener any more".to_owned(),
            Err(error) => error.to_string(),
        };
        // Nobody asks when the line is gone as well.
        let _ = ended.send(said);
    });
    Stage { name, task, why }
}

impl Stage {
    fn ended(&mut self) -> Option<(&'static str, String)> {
        match self.why.try_recv() {
            Ok(why) => Some((self.name, why)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => Some((self.name, "it panicked".to_owned())),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A: plays the readings, as fast as it is to.
async fn produce(
    client: Client,
    output: AuditedPublisher<Spooled>,
    readings: Readings,
    rate: u32,
    counts: Arc<Counts>,
) -> Result<(), LineError> {
    let (sent, waiting) = mpsc::channel(UNACKNOWLEDGED_MAX);
    tokio::try_join!(
        play(client, output, readings, rate, counts, sent),
        settled(waiting, Stamped::published)
    )?;
    Ok(())
}

async fn play(
    client: Client,
    output: AuditedPublisher<Spooled>,
    mut readings: Readings,
    rate: u32,
    counts: Arc<Counts>,
    sent: mpsc::Sender<Stamped>,
) -> Result<(), LineError> {
    let mut ticks = interval(STAGE_TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut owed = 0.0;
    let mut paid = Instant::now();
    loop {
        ticks.tick().await;
        // What could not be sent while the line was broken is not made up for.
        let passed = paid.elapsed().min(STAGE_TICK * 3);
        paid = Instant::now();
        if !counts.is_stopped.load(Ordering::Relaxed) {
            owed += passed.as_secs_f64() * f64::from(rate);
        }
        let limit = counts.limit.load(Ordering::Relaxed);
        while owed >= 1.0
            && counts.sent.load(Ordering::Relaxed) < limit
            && client.connection().is_some()
        {
            owed -= 1.0;
            let reading = Message::new(RAW, readings.next_line()).expect("it is a topic");
            let stamped = output.send(reading).await?;
            counts.sent.fetch_add(1, Ordering::Relaxed);
            // The other side ends only with an error, which is then the result.
            let _ = sent.send(stamped).await;
        }
        owed = owed.min(1.0);
    }
}

/// C: hands messages on in A's order, and tells what it finds.
struct Consumer {
    broker: SocketAddr,
    user: User,
    /// The name under which the broker keeps what it has not acknowledged.
    name: String,
    client: watch::Sender<Client>,
    input: AuditedSubscriber,
    /// Of A's numbers. What becomes of a message behind it is nobody's business here.
    sequence: Sequence<u64>,
    handed_on: HandedOn,
    counts: Arc<Counts>,
    news: mpsc::Sender<News>,
}

impl Consumer {
    async fn start(
        broker: SocketAddr,
        user: &User,
        counts: Arc<Counts>,
        news: mpsc::Sender<News>,
    ) -> Result<Self, LineError> {
        let name = format!("c-{}", random_lane());
        let client = connect_as(broker, user, &name).await?;
        let input = everything()?.open(&client).await?;
        Ok(Self {
            broker,
            user: user.clone(),
            name,
            client: watch::Sender::new(client),
            input,
            sequence: Sequence::new(),
            handed_on: HandedOn::default(),
            counts,
            news,
        })
    }

    async fn run(mut self) -> Result<(), LineError> {
        loop {
            let delivery = self.input.next().await?;
            if !self.take(delivery).await {
                return Ok(());
            }
            if self.counts.restarts_c.swap(false, Ordering::Relaxed) && !self.restart().await? {
                return Ok(());
            }
        }
    }

    /// False if nobody listens any more.
    async fn take(&mut self, delivery: Delivery) -> bool {
        for item in News::of(&delivery, &self.input) {
            if self.news.send(item).await.is_err() {
                return false;
            }
        }
        let Delivery::Message(message) = delivery else {
            return true;
        };
        if message.is_new()
            && let Some(first) = first_stamp(&message)
        {
            for number in self.sequence.take(first.sequence, first.sequence) {
                let count = match self.handed_on.pass(number) {
                    Passed::InOrder => &self.counts.delivered,
                    Passed::Reordered => &self.counts.reordered,
                    Passed::Duplicated => &self.counts.duplicated,
                };
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        message.acknowledge();
        true
    }

    /// Ends the client, with whatever it has not read yet, and begins another with what the ledger
    /// knew. What was handed on stays with whom it was handed to. False as for [`Self::take`].
    async fn restart(&mut self) -> Result<bool, LineError> {
        while let Some(delivery) = self.input.ready() {
            if !self.take(delivery).await {
                return Ok(false);
            }
        }
        let saved = self.input.save(&[]).bytes().to_vec();
        let client = self.client.borrow().clone();
        client.disconnect().await;
        let client = connect_as(self.broker, &self.user, &self.name).await?;
        self.input = everything()?.restore(saved).open(&client).await?;
        self.client.send_replace(client);
        self.counts.restarts.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}

fn everything() -> Result<SubscriberOptions, LineError> {
    let options = SubscriberOptions::new(vec![filter(CLEAN)?]).prefix(PREFIX);
    Ok(options.scope(Scope::FromBeginning).acknowledged_by_hand())
}

/// That of the producer at the head of the line.
fn first_stamp(message: &AuditedMessage) -> Option<&Property> {
    let first = message.origins().first();
    first.map(|(origin, _)| origin).or(message.property())
}

/// A broker that is to be there already is not waited for.
async fn try_once(remote: &Remote) -> Result<(), LineError> {
    let options = remote.user.identify(remote.options());
    let tried = options.patience(TotalDuration(Duration::ZERO));
    let client = tried.connect().await.map_err(|why| match why {
        ConnectError::GaveUp { last, .. } => LineError::Unavailable {
            why: ConnectError::clone(&last),
        },
        why => LineError::Unavailable { why },
    })?;
    client.disconnect().await;
    Ok(())
}

/// With a session that stays while this line does.
async fn connect_as(broker: SocketAddr, user: &User, name: &str) -> Result<Client, ConnectError> {
    let kept = Session::Kept { expiry_s: KEPT_S };
    let options = user.identify(options(broker));
    options.client_id(name).session(kept).connect().await
}

fn options(relay: SocketAddr) -> Options {
    let pause = |ms| RetryDuration(Duration::from_millis(ms));
    Options::from(relay).pauses(pause(20), pause(200))
}

/// Seconds that the broker keeps C's session without it.
const KEPT_S: u32 = 300;

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
