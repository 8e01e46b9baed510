//! A stage of a line: behind `unbroken pipe`, and B of the demonstration.
//!
//! With an output alone it is a producer, which stamps lines; with an input alone a consumer, which
//! checks and writes lines; with both a processor: what comes on one topic, checked, goes through a
//! transform to another, stamped.
//!
//! Invariants: an input is acknowledged when its output was, or is written; a consumer's state is
//! on the disk before what it covers is acknowledged; the first refusal of an output ends the
//! stage.

mod state;
mod transform;

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};
use unbroken_client::audit::{
    AuditError, AuditedMessage, AuditedPublisher, AuditedSubscriber, Delivery, Emitted, OpenError,
    ProcessError, Processor, PublisherOptions, Scope, Stamped, Step, SubscriberOptions,
};
use unbroken_client::{
    Client, ConnectError, Filter, Message, Options, QoS, Session, SubscribeError, TopicError,
    TotalDuration,
};
use unbroken_merkle_log::ledger::LedgerLimits;
use unbroken_merkle_log::{DropReason, Hasher, LaneId};

use self::state::StateFile;
use self::transform::{Line, Made, TooLong, Transform};
use crate::limits::{FAREWELL, LINGER, SAVE_EVERY, UNACKNOWLEDGED_MAX};
use crate::news::News;

pub use self::state::StateFileError;
pub use self::transform::Ends;

/// A stage.
#[derive(Clone, Debug)]
pub struct Stage {
    /// How to connect.
    pub options: Options,
    /// What the audit's topics begin with.
    pub prefix: String,
    /// The algorithm of the line, with its key.
    pub hasher: Hasher,
    /// Where messages come from.
    pub from: Option<String>,
    /// Where they go to.
    pub to: Option<String>,
    /// It is there before its producers, and wants everything from number 0 on.
    pub from_start: bool,
    /// It takes only some of its producers' topics: what it does not see is not missing.
    pub part: bool,
    /// Lanes that are to come to it, and are missed if nothing of them does.
    pub expect: Vec<LaneId>,
    /// The lane of what it sends.
    pub lane: LaneId,
    /// Where it remembers what it sends.
    pub spool: Option<PathBuf>,
    /// Where a consumer remembers what it has seen.
    pub state: Option<PathBuf>,
    /// How long the broker keeps what comes for a stage with a memory while it is away, in
    /// seconds.
    pub keep_s: u32,
}

/// Why a stage ended before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The broker sends nothing more.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// A filter, the spool, or what was saved.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A message was not published.
    #[error(transparent)]
    Publish(#[from] AuditError),
    /// The inputs make no output.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The topic for outputs is none.
    #[error("cannot publish to {0:?}: {1}")]
    Topic(String, TopicError),
    /// The consumer's state.
    #[error(transparent)]
    State(#[from] StateFileError),
    /// The transform, or standard input or output.
    #[error("the transform does not go on: {0}")]
    Transform(#[from] io::Error),
    /// Another client has connected under the same client id.
    #[error(
        "another client has connected as {client_id}, the client id of {of}: {who} use it, by the \
         same option or a copy of a file. Stop one of the two, or give it its own; while both are \
         restarted, they end each other's connections"
    )]
    TakenOver {
        /// The client id of both.
        client_id: String,
        /// The lane that it is made of, or the state that it is in.
        of: String,
        /// What the two are.
        who: &'static str,
    },
    /// The transform has ended.
    #[error("the transform has ended, with inputs still to come")]
    Ended,
}

/// Runs a stage until its input ends or it is interrupted. `tell` is given what its checks find.
pub async fn run(
    stage: Stage,
    ends: Ends,
    mut tell: impl FnMut(&News),
    interrupted: impl Future<Output = ()>,
) -> Result<(), StageError> {
    let transform = Transform::new(ends);
    let Some(to) = stage.to.clone() else {
        let (state, saved) = stage.open_state()?;
        let client = stage.connect(state.as_ref()).await?;
        let input = stage.subscribe(&client, saved).await?;
        tell(&News::Listening);
        let mut consumer = Consumer {
            input,
            transform,
            state,
            taken: Vec::new(),
        };
        let ran = consumer.run(&client, &mut tell, interrupted).await;
        let ran = ran.map_err(|error| stage.or_taken_over(error, &client));
        client.disconnect().await;
        return ran;
    };
    Message::new(&*to, &b""[..]).map_err(|error| StageError::Topic(to.clone(), error))?;
    let client = stage.connect(None).await?;
    let output = PublisherOptions::new(stage.lane)
        .prefix(&*stage.prefix)
        .hasher(stage.hasher.clone());
    let mut work = Work {
        stage: &stage,
        client: &client,
        to,
        transform,
        tell: &mut tell,
    };
    let ran = match &stage.spool {
        None => match output.open_unspooled(&client).await {
            Ok(output) => work.run(output, interrupted).await,
            Err(error) => Err(error.into()),
        },
        Some(directory) => match output.open(&client, directory).await {
            Ok(output) => work.run(output, interrupted).await,
            Err(error) => Err(error.into()),
        },
    };
    let ran = ran.map_err(|error| stage.or_taken_over(error, &client));
    // However it ended: a session that is for this run alone ends with it.
    client.disconnect().await;
    ran
}

impl Stage {
    /// The broker keeps what comes while a stage with a memory is away, and what it has not
    /// acknowledged.
    async fn connect(&self, state: Option<&StateFile>) -> Result<Client, ConnectError> {
        let options = self.options.clone();
        let name = match (state, &self.to) {
            (Some(state), _) => state.client_id.clone(),
            // A lane belongs to a client id at the broker: a stage that is started again at once is
            // the owner of its lane, and not an intruder.
            (None, Some(_)) => client_id(self.lane),
            (None, None) => return options.connect().await,
        };
        let options = options.client_id(name);
        let expiry_s = self.keep_s;
        let options = match self.from {
            Some(_) if state.is_some() || self.spool.is_some() => {
                options.session(Session::Kept { expiry_s })
            }
            _ => options,
        };
        options.connect().await
    }

    /// The error, or that another client took over the connection, where that is its cause.
    fn or_taken_over(&self, error: StageError, client: &Client) -> StageError {
        if !client.ended().is_some_and(|why| why.is_taken_over()) {
            return error;
        }
        let (of, who) = match (&self.to, &self.state) {
            (None, Some(state)) => (format!("the state {}", state.display()), "two consumers"),
            _ => (format!("lane {}", self.lane), "two producers"),
        };
        StageError::TakenOver {
            client_id: client.client_id().to_owned(),
            of,
            who,
        }
    }

    fn open_state(&self) -> Result<(Option<StateFile>, Option<Vec<u8>>), StateFileError> {
        let Some(path) = &self.state else {
            return Ok((None, None));
        };
        let (state, saved) = StateFile::open(path, client_id(self.lane))?;
        Ok((Some(state), saved))
    }

    async fn subscribe(
        &self,
        client: &Client,
        saved: Option<Vec<u8>>,
    ) -> Result<AuditedSubscriber, StageError> {
        let from = self.from.as_deref().expect("it is asked only with inputs");
        // What turns out to be forged is known one by one, so that nothing else is handed on again.
        let mut limits = LedgerLimits::default();
        limits.hold_leaves = true;
        let mut options = SubscriberOptions::new(vec![filter(from)?])
            .prefix(&*self.prefix)
            .hasher(self.hasher.clone())
            .limits(limits)
            .acknowledged_by_hand();
        if self.part {
            options = options.scope(Scope::Part);
        } else if self.from_start {
            options = options.scope(Scope::FromBeginning);
        }
        for lane in &self.expect {
            options = options.expect(*lane);
        }
        if let Some(saved) = saved {
            options = options.restore(saved);
        }
        Ok(options.open(client).await?)
    }
}

/// A stage with an output.
struct Work<'a, T> {
    stage: &'a Stage,
    client: &'a Client,
    to: String,
    transform: Transform,
    tell: &'a mut T,
}

impl<T: FnMut(&News)> Work<'_, T> {
    async fn run<Claim>(
        &mut self,
        output: AuditedPublisher<Claim>,
        interrupted: impl Future<Output = ()>,
    ) -> Result<(), StageError> {
        let interrupted = pin!(interrupted);
        if self.stage.from.is_none() {
            let has_ended = tokio::select! {
                ran = self.produce(&output) => ran.map(|()| true)?,
                () = interrupted => false,
            };
            match self.stage.spool {
                // Whoever misses something of it is answered.
                _ if has_ended => output.close(TotalDuration(LINGER)).await?,
                Some(_) => farewell(output.leave()).await?,
                None => farewell(output.close(AT_ONCE)).await?,
            }
        } else {
            let input = self.stage.subscribe(self.client, None).await?;
            (self.tell)(&News::Listening);
            let mut processor = Processor::new(input, output);
            tokio::select! {
                ran = self.process(&mut processor) => ran?,
                () = interrupted => {}
            }
            match self.stage.spool {
                Some(_) => farewell(processor.leave()).await?,
                None => farewell(processor.close(AT_ONCE)).await?,
            }
        }
        Ok(())
    }

    /// Every line is a message, except one that is too long, which is told.
    async fn produce<Claim>(&mut self, output: &AuditedPublisher<Claim>) -> Result<(), StageError> {
        let (sent, waiting) = mpsc::channel(UNACKNOWLEDGED_MAX);
        tokio::try_join!(
            self.send_lines(output, sent),
            settled(waiting, Stamped::published)
        )?;
        Ok(())
    }

    async fn send_lines<Claim>(
        &mut self,
        output: &AuditedPublisher<Claim>,
        sent: mpsc::Sender<Stamped>,
    ) -> Result<(), StageError> {
        while let Some(line) = self.transform.read().await? {
            let line = match line {
                Line::Whole(line) => line,
                Line::TooLong(why) => {
                    self.tell_dropped(&why);
                    continue;
                }
            };
            let stamped = output.send(message(&self.to, line)).await?;
            // The other side ends only with an error, which is then the result.
            let _ = sent.send(stamped).await;
        }
        Ok(())
    }

    /// Every message has an output or is said to have none. Ends with an error only.
    async fn process<Claim>(&mut self, processor: &mut Processor<Claim>) -> Result<(), StageError> {
        let (sent, waiting) = mpsc::channel(UNACKNOWLEDGED_MAX);
        tokio::try_join!(
            self.transform_all(processor, sent),
            settled(waiting, Emitted::published)
        )?;
        Ok(())
    }

    async fn transform_all<Claim>(
        &mut self,
        processor: &mut Processor<Claim>,
        sent: mpsc::Sender<Emitted>,
    ) -> Result<(), StageError> {
        loop {
            let input = match processor.next().await? {
                Step::Input(input) => input,
                Step::Other(delivery) => {
                    let news = News::of(&delivery, processor.input());
                    news.iter().for_each(&mut *self.tell);
                    continue;
                }
            };
            let news = News::of_message(input.message());
            news.iter().for_each(&mut *self.tell);
            match self.transform.apply(input.payload()).await? {
                Made::Output(payload) => {
                    let emitted = processor.emit(input, message(&self.to, payload)).await?;
                    // As above.
                    let _ = sent.send(emitted).await;
                }
                Made::Nothing(reason) => processor.filter_out(vec![input], reason).await?,
                Made::TooLong(why) => {
                    self.tell_dropped(&why);
                    let reason = DropReason::FAILED;
                    processor.filter_out(vec![input], reason).await?;
                }
                Made::End => return Err(StageError::Ended),
            }
        }
    }

    fn tell_dropped(&mut self, why: &TooLong) {
        (self.tell)(&News::Dropped {
            topic: self.to.clone(),
            why: why.to_string(),
        });
    }
}

/// A stage without an output.
struct Consumer {
    input: AuditedSubscriber,
    transform: Transform,
    state: Option<StateFile>,
    /// Written, and not acknowledged: the state does not cover them yet.
    taken: Vec<AuditedMessage>,
}

impl Consumer {
    async fn run(
        &mut self,
        client: &Client,
        tell: &mut impl FnMut(&News),
        interrupted: impl Future<Output = ()>,
    ) -> Result<(), StageError> {
        // The name at the broker is on the disk before the broker has kept anything under it, and
        // from now on nothing is acknowledged that is not saved.
        self.save()?;
        let mut interrupted = pin!(interrupted);
        let mut due = Instant::now() + SAVE_EVERY;
        loop {
            tokio::select! {
                delivery = self.input.next() => self.take(delivery?, tell).await?,
                () = sleep_until(due.into()), if self.has_unsettled() => {}
                () = &mut interrupted => break,
            }
            let is_due = Instant::now() >= due || self.taken.len() >= UNACKNOWLEDGED_MAX;
            if self.state.is_none() || is_due && self.has_unsettled() {
                self.settle(tell).await?;
                due = Instant::now() + SAVE_EVERY;
            }
        }
        self.settle(tell).await?;
        // Behind the answer the acknowledgements are at the broker. Whoever interrupts does not
        // wait for one that is away.
        let answered = timeout(FAREWELL, client.ping()).await;
        answered.unwrap_or(Ok(()))?;
        Ok(())
    }

    async fn take(
        &mut self,
        delivery: Delivery,
        tell: &mut impl FnMut(&News),
    ) -> Result<(), StageError> {
        News::of(&delivery, &self.input).iter().for_each(tell);
        if let Delivery::Message(message) = delivery {
            if message.is_new() {
                self.transform.write(message.payload()).await?;
            }
            self.taken.push(message);
        }
        Ok(())
    }

    /// Whether something has come that is not acknowledged: messages, or what is said of them.
    fn has_unsettled(&self) -> bool {
        !self.taken.is_empty() || self.input.has_unsaved()
    }

    /// Saves what is known, and then acknowledges what led to it.
    async fn settle(&mut self, tell: &mut impl FnMut(&News)) -> Result<(), StageError> {
        if self.state.is_some() {
            while let Some(delivery) = self.input.ready() {
                self.take(delivery, tell).await?;
            }
            self.save()?;
        }
        self.taken.drain(..).for_each(AuditedMessage::acknowledge);
        Ok(())
    }

    fn save(&mut self) -> Result<(), StateFileError> {
        if let Some(state) = &self.state {
            let saved = self.input.save(&[]);
            state.replace(saved.bytes())?;
            saved.stored();
        }
        Ok(())
    }
}

/// Leaves a lane: one that is to be continued as it is, another said to have ended. Whoever
/// interrupts does not wait for a broker that is away.
async fn farewell(leaving: impl Future<Output = Result<(), AuditError>>) -> Result<(), StageError> {
    match timeout(FAREWELL, leaving).await {
        Ok(left) => Ok(left?),
        Err(_) => Ok(()),
    }
}

const AT_ONCE: TotalDuration = TotalDuration(Duration::ZERO);

/// Sees to it that what was sent is acknowledged. The first that is not is the result.
pub(crate) async fn settled<S, R, E: From<AuditError>>(
    mut waiting: mpsc::Receiver<S>,
    published: impl AsyncFn(S) -> Result<R, AuditError>,
) -> Result<(), E> {
    while let Some(sent) = waiting.recv().await {
        published(sent).await?;
    }
    Ok(())
}

/// A filter of messages at QoS 1.
pub(crate) fn filter(text: &str) -> Result<Filter, SubscribeError> {
    let filter = Filter::new(text).map_err(|source| SubscribeError::Filter {
        filter: text.into(),
        source,
    })?;
    Ok(filter.qos(QoS::AtLeastOnce))
}

fn message(topic: &str, payload: Vec<u8>) -> Message {
    Message::new(topic, payload).expect("the topic was checked at the start")
}

/// One that is the same after a restart.
fn client_id(lane: LaneId) -> String {
    format!("unbroken-pipe-{lane}")
}
