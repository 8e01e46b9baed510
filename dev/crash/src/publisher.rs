//! Publishers that survive all ends of the broker, each with a lane and a spool, and what all
//! clients have in common.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use unbroken_client::audit::{AuditError, OpenError, PublisherOptions, Stamped};
use unbroken_client::{
    Client, ConnectError, Message, Options, PublishError, QoS, RetryDuration, Session,
    SubscribeError, TotalDuration,
};
use unbroken_merkle_log::{LaneId, LaneLimits};

use crate::random::Random;

/// Why a line cannot go on; never because the broker is away.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("a client cannot connect: {0}")]
    Connect(#[from] ConnectError),
    #[error("a publisher or subscriber cannot begin: {0}")]
    Open(#[from] OpenError),
    #[error("a message was not published: {0}")]
    Publish(#[from] AuditError),
    #[error("a subscriber hears nothing more: {0}")]
    Subscribe(#[from] SubscribeError),
    #[error("a message was not published: {0}")]
    Send(#[from] PublishError),
    #[error("a visitor or traveller cannot begin, or a mortal not connect: {0}")]
    Runtime(#[from] std::io::Error),
    #[error("a mortal was refused with {0:#04x}")]
    Refused(u8),
    #[error("everything is over")]
    Over,
    #[error("a visitor has failed")]
    Panic,
}

/// How far everything is, and in which round.
#[derive(Clone, Debug)]
pub(crate) struct Progress(watch::Sender<Point>);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Point {
    /// Messages acknowledged, and received for the first time.
    pub(crate) steps: u64,
    /// Times that the broker was ended.
    pub(crate) round: u64,
    /// Whether publishers are to end.
    pub(crate) is_over: bool,
    /// Whether subscribers are to end.
    pub(crate) is_done: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self(watch::channel(Point::default()).0)
    }

    pub(crate) fn now(&self) -> Point {
        *self.0.borrow()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Point)) {
        self.0.send_modify(change);
    }

    /// Waits until it is so.
    pub(crate) async fn until(&self, is_so: impl Fn(&Point) -> bool) {
        // The sender is ours, so it lives.
        let _ = self.0.subscribe().wait_for(is_so).await;
    }

    pub(crate) fn step(&self) {
        self.change(|point| point.steps += 1);
    }
}

/// One publisher.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    pub(crate) lane: LaneId,
    pub(crate) qos: QoS,
    pub(crate) spools: PathBuf,
    pub(crate) seed: u64,
    pub(crate) load: Load,
}

/// What messages are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Mostly short; now and then as long as several blocks of the store.
    Light,
    /// Up to this number of bytes that cannot be compressed: journals and generations come and go.
    Heavy(u64),
}

impl Publisher {
    /// Publishes until it is over; then says how much it was.
    pub(crate) async fn run(self, to: SocketAddr, progress: Progress) -> Result<(), ClientError> {
        let client = connect(to, &format!("publisher-{}", self.lane)).await?;
        let mut limits = LaneLimits::default();
        limits.heartbeat = Duration::from_millis(200);
        let options = PublisherOptions::new(self.lane)
            .qos(self.qos)
            .prefix(prefix(self.qos))
            .lane_limits(limits);
        let publisher = options.open(&client, &*self.spools).await?;
        let topic = format!("{}/{}", word(self.qos), self.lane);
        let mut random = Random::new(self.seed);
        let mut under_way: VecDeque<Stamped> = VecDeque::new();
        while !progress.now().is_over {
            let message = Message::new(&*topic, self.load.payload(&mut random));
            let message = message.expect("a topic of the harness is one");
            under_way.push_back(publisher.send(message).await?);
            if under_way.len() >= UNDER_WAY {
                let oldest = under_way.pop_front().expect("it is full");
                oldest.published().await?;
                progress.step();
            }
        }
        for stamped in under_way {
            stamped.published().await?;
            progress.step();
        }
        publisher.close(TotalDuration(Duration::ZERO)).await?;
        Ok(())
    }
}

/// Connects as one whose session stays, and comes back at once whenever the broker is there.
pub(crate) async fn connect(to: SocketAddr, name: &str) -> Result<Client, ClientError> {
    let client = Options::new(to.into())
        .client_id(name)
        .session(Session::Kept {
            expiry_s: Session::NEVER,
        })
        .pauses(
            RetryDuration(Duration::from_millis(2)),
            RetryDuration(Duration::from_millis(20)),
        )
        .connect()
        .await?;
    Ok(client)
}

/// Each quality has topics of its own, also for what the audit says.
pub(crate) fn word(qos: QoS) -> &'static str {
    match qos {
        QoS::AtMostOnce => "zero",
        QoS::AtLeastOnce => "one",
        QoS::ExactlyOnce => "two",
    }
}

/// Where the audit is spoken of. The broker listens on one of them, and judges those lanes whole.
pub(crate) fn prefix(qos: QoS) -> String {
    match qos {
        QoS::AtLeastOnce => "audit".to_owned(),
        _ => format!("audit-{}", word(qos)),
    }
}

impl Load {
    fn payload(self, random: &mut Random) -> Vec<u8> {
        match self {
            Self::Light => {
                let length = if random.one_in(64) {
                    random.below(40_000)
                } else {
                    random.below(200)
                };
                let byte = u8::try_from(random.below(256)).unwrap_or_default();
                vec![byte; usize::try_from(length).unwrap_or_default()]
            }
            Self::Heavy(max) => {
                let words = random.below(max + 1) / 8;
                let words = (0..words).map(|_| random.below(u64::MAX).to_le_bytes());
                words.flatten().collect()
            }
        }
    }
}

/// Messages of a publisher that the broker has not acknowledged.
const UNDER_WAY: usize = 32;
