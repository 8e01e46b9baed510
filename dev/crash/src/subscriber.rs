//! Subscribers with persistent sessions: residents; travellers, which lose their connection again
//! and again and stay offline for a while, so that messages wait for them; and visitors, which are
//! killed themselves.
//!
//! A traveller keeps its half-received QoS 2 messages, as a client with a continuing session must,
//! so it gets no message twice. A visitor loses them, and takes a repeated message for a new one.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use unbroken_client::audit::{AuditedSubscriber, Delivery, Scope, SubscriberOptions};
use unbroken_client::{Filter, QoS};
use unbroken_merkle_log::ledger::LedgerLimits;

use crate::link::Link;
use crate::publisher::{ClientError, Progress, connect, prefix, word};
use crate::random::Random;
use crate::witness::Witness;

/// One subscriber, and what it finds.
#[derive(Clone, Debug)]
pub(crate) struct Subscriber {
    pub(crate) name: &'static str,
    pub(crate) qos: QoS,
    pub(crate) to: SocketAddr,
    pub(crate) progress: Progress,
    pub(crate) witness: watch::Sender<Witness>,
}

impl Subscriber {
    /// Subscribes, before the publishers begin, and gives what listens for ever.
    pub(crate) async fn stay(
        self,
    ) -> Result<impl Future<Output = Result<(), ClientError>>, ClientError> {
        let mut subscriber = self.open(None).await?;
        Ok(async move { self.listen(&mut subscriber, u64::MAX).await })
    }

    /// The same, but the way to the broker is closed again and again.
    pub(crate) async fn travel(
        mut self,
        seed: u64,
    ) -> Result<impl Future<Output = Result<(), ClientError>>, ClientError> {
        let mut random = Random::new(seed);
        let way = Link::to(self.to).await?;
        self.to = way.address();
        let mut subscriber = self.open(None).await?;
        Ok(async move {
            while !self.progress.now().is_done {
                let deliveries = random.below(VISIT_MAX);
                self.listen(&mut subscriber, deliveries).await?;
                way.close();
                self.stay_away(&mut random).await;
                way.open();
            }
            Ok(())
        })
    }

    /// The same, but it is killed again and again, and goes on from what it had saved.
    pub(crate) async fn come_and_go(
        self,
        seed: u64,
    ) -> Result<impl Future<Output = Result<(), ClientError>>, ClientError> {
        let mut random = Random::new(seed);
        let mut saved = self.clone().visit(None, 0).await?;
        Ok(async move {
            while !self.progress.now().is_done {
                self.stay_away(&mut random).await;
                let deliveries = random.below(VISIT_MAX);
                saved = self.clone().visit(Some(saved), deliveries).await?;
            }
            Ok(())
        })
    }

    /// While the others go on.
    async fn stay_away(&self, random: &mut Random) {
        let until = self.progress.now().steps + random.below(AWAY_MAX);
        self.progress
            .until(|point| point.is_over || point.steps >= until)
            .await;
    }

    /// Takes so many deliveries and is killed. Its task ends with a runtime of its own, because a
    /// subscription that is dropped is given up at the broker, too.
    async fn visit(self, saved: Option<Vec<u8>>, deliveries: u64) -> Result<Vec<u8>, ClientError> {
        let visit = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let mut subscriber = runtime.block_on(async {
                let mut subscriber = tokio::select! {
                    opened = self.open(saved) => opened?,
                    // The broker may be gone for good.
                    () = self.progress.until(|point| point.is_done) => return Err(ClientError::Over),
                };
                self.listen(&mut subscriber, deliveries).await?;
                Ok::<_, ClientError>(subscriber)
            })?;
            drop(runtime);
            Ok(subscriber.save(&[]).bytes().to_vec())
        };
        let visited = spawn_blocking(visit).await;
        visited.unwrap_or(Err(ClientError::Panic))
    }

    async fn open(&self, saved: Option<Vec<u8>>) -> Result<AuditedSubscriber, ClientError> {
        let client = connect(self.to, self.name).await?;
        let filter = Filter::new(format!("{}/+", word(self.qos)));
        let filter = filter.expect("a filter of the harness is one");
        let mut limits = LedgerLimits::default();
        limits.lateness = LATENESS;
        let mut options = SubscriberOptions::new(vec![filter.qos(self.qos)])
            .prefix(prefix(self.qos))
            .scope(Scope::FromBeginning)
            .one_way()
            .limits(limits);
        if let Some(saved) = saved {
            options = options.restore(saved);
        }
        Ok(options.open(&client).await?)
    }

    /// Takes so many deliveries, unless all is done before.
    async fn listen(
        &self,
        subscriber: &mut AuditedSubscriber,
        deliveries: u64,
    ) -> Result<(), ClientError> {
        for _ in 0..deliveries {
            tokio::select! {
                delivery = subscriber.next() => self.note(delivery?),
                () = self.progress.until(|point| point.is_done) => break,
            }
        }
        // What it says of itself must not be lost; it is not in what is saved.
        while let Some(delivery) = subscriber.ready() {
            self.note(delivery);
        }
        Ok(())
    }

    fn note(&self, delivery: Delivery) {
        let round = self.progress.now().round;
        let mut is_new = false;
        self.witness
            .send_modify(|witness| is_new = witness.take(delivery, round));
        if is_new {
            self.progress.step();
        }
    }
}

/// Deliveries that a traveller or a visitor is there for.
const VISIT_MAX: u64 = 2_000;
/// Steps that all together make while it is away.
const AWAY_MAX: u64 = 4_000;
/// How late a message may come before it is lost; the clock stands while the broker is away.
const LATENESS: Duration = Duration::from_secs(5);
