//! A stage of a line: behind `unbroken pipe`, and B of the demonstration.
//!
//! With both ends it is a processor: what comes on one topic, checked, goes through a transform to
//! another, stamped; an input is acknowledged when its output was. With an output alone it stamps
//! lines, with an input alone it checks and writes lines.
//!
//! **Absent:** a lane that outlives the process. Each start begins a new one, so a message that was
//! lost with the process is not named.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use unbroken_client::{
    Acknowledging, Client, ConnectError, Filter, Options, PublishError, QoS, Receipt, Received,
    SubscribeError, Subscription,
};
use unbroken_merkle_log::{DropReason, LaneId};

use crate::checker::{Checker, Good, News};
use crate::limits::{LINGER, STAGE_TICK, UNACKNOWLEDGED_MAX};
use crate::stamper::{StampError, Stamper};

/// Both ends of a stage's transform, as far as it has them: where inputs are written, and where
/// outputs are read, a line each.
#[allow(missing_debug_implementations, reason = "what is inside has none")]
pub struct Ends {
    /// Takes each input as a line.
    pub inputs: Option<Box<dyn AsyncWrite + Unpin>>,
    /// Gives each output as a line.
    pub outputs: Option<Box<dyn AsyncRead + Unpin>>,
}

/// A stage.
#[derive(Clone, Debug)]
pub struct Stage {
    /// How to connect.
    pub options: Options,
    /// What the audit's topics begin with.
    pub prefix: String,
    /// Where messages come from.
    pub from: Option<String>,
    /// Where they go to.
    pub to: Option<String>,
    /// The lane of what it sends.
    pub lane: LaneId,
}

/// Why a stage ended before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The broker did not take a filter.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// The broker did not take a message.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// A message cannot be stamped.
    #[error(transparent)]
    Stamp(#[from] StampError),
    /// The transform, or standard input or output.
    #[error("the transform does not go on: {0}")]
    Transform(#[from] io::Error),
    /// The transform has ended.
    #[error("the transform has ended, with inputs still to come")]
    Ended,
}

/// Runs a stage until its input ends. `tell` is given what its checks find.
pub async fn run(stage: Stage, ends: Ends, mut tell: impl FnMut(&News)) -> Result<(), StageError> {
    let client = stage.options.clone().connect().await?;
    let begin = Instant::now();
    let mut running = Running {
        checker: None,
        stamper: None,
        inputs: None,
        requests: None,
        settling: settle(),
        to: stage.to.clone().unwrap_or_default(),
        client,
        begin,
    };
    if stage.to.is_some() {
        let stamper = Stamper::new(stage.lane, &stage.prefix, Duration::ZERO);
        let filter = filter(&stamper.repair_topic())?;
        running.requests = Some(running.client.subscribe(filter).await?);
        running.stamper = Some(stamper);
    }
    if let Some(from) = &stage.from {
        let checker = Checker::new(&stage.prefix, &format!("{}", stage.lane));
        let mut filters = vec![filter(from)?];
        for topic in checker.topics() {
            filters.push(filter(&topic)?);
        }
        let inputs = running
            .client
            .subscribe_all(filters, Acknowledging::ByHand)
            .await?;
        running.inputs = Some(inputs);
        running.checker = Some(checker);
    }
    running.run(ends, &mut tell).await
}

struct Running {
    client: Client,
    begin: Instant,
    to: String,
    checker: Option<Checker>,
    stamper: Option<Stamper>,
    inputs: Option<Subscription>,
    requests: Option<Subscription>,
    settling: mpsc::Sender<(Received, Receipt)>,
}

impl Running {
    async fn run(mut self, ends: Ends, tell: &mut impl FnMut(&News)) -> Result<(), StageError> {
        let mut transform = Transform {
            inputs: ends.inputs,
            outputs: ends.outputs.map(|outputs| BufReader::new(outputs).lines()),
        };
        let is_source = self.inputs.is_none();
        let mut ticks = interval(STAGE_TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                received = next(&mut self.inputs) => {
                    self.input(received?, &mut transform).await?;
                }
                request = next(&mut self.requests) => self.answer(&request?).await?,
                line = transform.line(), if is_source => match line? {
                    Some(line) => self.output(line.as_bytes(), Vec::new()).await.map(drop)?,
                    None => break,
                },
                _ = ticks.tick() => {}
            }
            self.pass_time(tell).await?;
        }
        self.linger(&mut ticks).await
    }

    /// Takes whatever came. What may be used goes through the transform.
    async fn input(
        &mut self,
        received: Received,
        transform: &mut Transform,
    ) -> Result<(), StageError> {
        let now = self.begin.elapsed();
        let good = self
            .checker
            .as_mut()
            .and_then(|checker| checker.take(&received, now));
        let Some(good) = good else {
            received.acknowledge();
            return Ok(());
        };
        match transform.apply(&good, self.stamper.is_some()).await? {
            Made::Output(payload) => {
                let receipt = self.output(&payload, good.stamps).await?;
                // It waits only when as many are unacknowledged as may be.
                let _ = self.settling.send((received, receipt)).await;
            }
            Made::Dropped(reason) => {
                if let Some(stamper) = &self.stamper {
                    let record = stamper.drop_record(reason, &good.audit)?;
                    let receipt = self.client.send(record).await?;
                    let _ = self.settling.send((received, receipt)).await;
                }
            }
            Made::Written => received.acknowledge(),
        }
        Ok(())
    }

    async fn output(
        &mut self,
        payload: &[u8],
        origins: Vec<String>,
    ) -> Result<Receipt, StageError> {
        let stamper = self.stamper.as_mut();
        let stamper = stamper.expect("an output is made only where it can go");
        let message = stamper.stamp(&self.to, payload, origins)?;
        Ok(self.client.send(message).await?)
    }

    async fn answer(&mut self, request: &Received) -> Result<(), StageError> {
        if let Some(stamper) = &self.stamper {
            for answer in stamper.answer(request)? {
                self.client.send(answer).await?;
            }
        }
        Ok(())
    }

    async fn pass_time(&mut self, tell: &mut impl FnMut(&News)) -> Result<(), StageError> {
        let now = self.begin.elapsed();
        if let Some(stamper) = &mut self.stamper {
            while let Some(checkpoint) = stamper.poll(now)? {
                self.client.send(checkpoint).await?;
            }
        }
        if let Some(checker) = &mut self.checker {
            let drained = self
                .inputs
                .as_ref()
                .is_none_or(|inputs| inputs.waiting() == 0);
            let settled = drained && self.client.connection().is_some();
            let requests = checker.poll(settled, now)?;
            checker.take_news().iter().for_each(tell);
            for request in requests {
                self.client.send(request).await?;
            }
        }
        Ok(())
    }

    /// The input is over: says how it ended, and answers those who miss something of it.
    async fn linger(mut self, ticks: &mut tokio::time::Interval) -> Result<(), StageError> {
        if let Some(last) = self
            .stamper
            .as_ref()
            .map(Stamper::close)
            .transpose()?
            .flatten()
        {
            self.client.publish(last).await?;
        }
        let end = Instant::now() + LINGER;
        while Instant::now() < end {
            tokio::select! {
                request = next(&mut self.requests) => self.answer(&request?).await?,
                _ = ticks.tick() => {}
            }
        }
        self.client.disconnect().await;
        Ok(())
    }
}

/// What became of an input.
enum Made {
    Output(Vec<u8>),
    Dropped(DropReason),
    /// It goes nowhere else.
    Written,
}

struct Transform {
    inputs: Option<Box<dyn AsyncWrite + Unpin>>,
    outputs: Option<Lines<BufReader<Box<dyn AsyncRead + Unpin>>>>,
}

impl Transform {
    /// One line in, one line out; an empty one drops the message. A payload of several lines cannot
    /// go through.
    async fn apply(&mut self, good: &Good, passes_on: bool) -> Result<Made, StageError> {
        let Some(inputs) = &mut self.inputs else {
            return Ok(Made::Output(good.payload.clone()));
        };
        if passes_on && good.payload.contains(&b'\n') {
            return Ok(Made::Dropped(DropReason::FAILED));
        }
        inputs.write_all(&good.payload).await?;
        inputs.write_all(b"\n").await?;
        inputs.flush().await?;
        if !passes_on {
            return Ok(Made::Written);
        }
        match self.line().await? {
            None => Err(StageError::Ended),
            Some(line) if line.is_empty() => Ok(Made::Dropped(DropReason::FILTERED)),
            Some(line) => Ok(Made::Output(line.into_bytes())),
        }
    }

    async fn line(&mut self) -> io::Result<Option<String>> {
        match &mut self.outputs {
            Some(outputs) => outputs.next_line().await,
            None => std::future::pending().await,
        }
    }
}

async fn next(subscription: &mut Option<Subscription>) -> Result<Received, SubscribeError> {
    match subscription {
        Some(subscription) => subscription.recv().await,
        None => std::future::pending().await,
    }
}

/// Acknowledges each input when its output was acknowledged. One whose output was refused is left
/// open: the broker will send it again.
fn settle() -> mpsc::Sender<(Received, Receipt)> {
    let (sender, mut receiver) = mpsc::channel::<(Received, Receipt)>(UNACKNOWLEDGED_MAX);
    tokio::spawn(async move {
        while let Some((input, output)) = receiver.recv().await {
            if output.acknowledged().await.is_ok() {
                input.acknowledge();
            }
        }
    });
    sender
}

fn filter(text: &str) -> Result<Filter, SubscribeError> {
    let filter = Filter::new(text).map_err(|source| SubscribeError::Filter {
        filter: text.into(),
        source,
    })?;
    Ok(filter.qos(QoS::AtLeastOnce))
}
