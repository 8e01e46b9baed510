//! The demonstration: a producer and a consumer inside this process, with a relay before the broker
//! that injects a fault on request.
//!
//! ```text
//! producer ─▶ relay (faults) ─▶ broker ─▶ consumer, which verifies and asks for repairs
//! ```
//!
//! Invariants:
//! - One at a time; it ends after [`DEMONSTRATION_TIME_MAX`], and nothing that it started outlives
//!   it. Its parts end in their order, so that no message is left. Its incidents are then noted as
//!   the demonstration's, also those that the broker names a little later.
//! - All its topics begin with [`PREFIX`].

mod line;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use unbroken_demo::Injection;
use utoipa::ToSchema;

use self::line::Line;
use crate::broker::Broker;
use crate::delivery::incident::State;
use crate::limits::DEMONSTRATION_FAULTS_MAX;
use crate::problem::Problem;
use crate::recorder::Recorder;
use crate::time::Moment;

/// What the topics begin with.
pub(crate) const PREFIX: &str = "unbroken/demonstration";
/// What the names of its clients begin with.
const CLIENT_PREFIX: &str = "unbroken-demonstration-";

/// A fault that can be injected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FaultKind {
    Drop,
    Duplicate,
    Reorder,
    Alter,
}

/// A fault from its injection to its repair.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// When it was asked for, and injected into the next message.
    #[schema(value_type = String)]
    pub(crate) asked_at: Moment,
    #[schema(value_type = Option<String>)]
    pub(crate) injected_at: Option<Moment>,
    pub(crate) lane: Option<String>,
    pub(crate) epoch: Option<u32>,
    /// Of the message.
    pub(crate) number: Option<u64>,
    /// By the consumer or the broker.
    #[schema(value_type = Option<String>)]
    pub(crate) named_at: Option<Moment>,
    /// What it was called.
    pub(crate) named: Option<String>,
    /// By the broker.
    pub(crate) incident: Option<u64>,
    /// The consumer has the message, once and in its place.
    #[schema(value_type = Option<String>)]
    pub(crate) repaired_at: Option<Moment>,
}

/// How far the demonstration is.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Progress {
    /// `none`, `running`, or `ended`.
    pub(crate) state: &'static str,
    #[schema(value_type = Option<String>)]
    pub(crate) started_at: Option<Moment>,
    #[schema(value_type = Option<String>)]
    pub(crate) ends_at: Option<Moment>,
    pub(crate) topic: String,
    pub(crate) lane: Option<String>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Messages that the consumer has verified, each once.
    pub(crate) verified: u64,
    pub(crate) faults: Vec<Fault>,
    /// Why it ended before its time.
    pub(crate) error: Option<String>,
}

/// The demonstration of this broker; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Demonstration {
    broker: Broker,
    recorder: Recorder,
    current: Arc<Mutex<Option<Current>>>,
    /// Held while one starts.
    starting: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Current {
    progress: Arc<Mutex<Progress>>,
    /// `None` once it is to end.
    orders: Option<mpsc::Sender<FaultKind>>,
    /// Closed when it has ended.
    ended: watch::Receiver<()>,
    task: JoinHandle<()>,
}

impl Demonstration {
    pub(crate) fn new(broker: Broker, recorder: Recorder) -> Self {
        Self {
            broker,
            recorder,
            current: Arc::default(),
            starting: Arc::default(),
        }
    }

    /// Starts it. One that runs goes on.
    pub(crate) async fn start(&self) -> Result<Progress, Problem> {
        let _one = self.starting.lock().await;
        if let Some(running) = self.running() {
            return Ok(running);
        }
        let (line, progress) = Line::start(&self.broker, self.recorder.clone()).await?;
        let mut current = held(&self.current);
        let started = held(&progress).clone();
        let (orders, ordered) = mpsc::channel(DEMONSTRATION_FAULTS_MAX);
        let (recorder, shared) = (self.recorder.clone(), Arc::clone(&progress));
        let (has_ended, ended) = watch::channel(());
        let task = tokio::spawn(async move {
            let result = line.run(ordered).await;
            let lane = {
                let mut progress = held(&shared);
                progress.state = "ended";
                progress.error = result.err();
                progress.lane.clone()
            };
            settle(&recorder, lane.as_deref());
            tokio::spawn(async move {
                sleep(SETTLES_AFTER).await;
                settle(&recorder, lane.as_deref());
            });
            drop(has_ended);
        });
        *current = Some(Current {
            progress,
            orders: Some(orders),
            ended,
            task,
        });
        Ok(started)
    }

    /// How far the last one is.
    pub(crate) fn progress(&self) -> Progress {
        let current = held(&self.current);
        let progress = current.as_ref().map(|it| held(&it.progress).clone());
        progress.unwrap_or_else(Progress::none)
    }

    /// Orders a fault for the next message.
    pub(crate) fn inject(&self, kind: FaultKind) -> Result<Progress, Problem> {
        let conflict = |why: &str| Problem::new(StatusCode::CONFLICT, why);
        let current = held(&self.current);
        let running = current
            .as_ref()
            .filter(|current| !current.task.is_finished());
        let running = running.ok_or_else(|| conflict("no demonstration runs: start it first"))?;
        let mut progress = held(&running.progress);
        if progress.faults.len() >= DEMONSTRATION_FAULTS_MAX {
            return Err(conflict(
                "as many faults were injected as one demonstration has",
            ));
        }
        let order = running.orders.as_ref().map(|it| it.try_send(kind));
        if !matches!(order, Some(Ok(()))) {
            return Err(conflict("the demonstration ends; start it again"));
        }
        progress.faults.push(Fault {
            kind,
            asked_at: Moment::now(),
            injected_at: None,
            lane: None,
            epoch: None,
            number: None,
            named_at: None,
            named: None,
            incident: None,
            repaired_at: None,
        });
        Ok(progress.clone())
    }

    /// Ends it, if it runs; `None` if there was none.
    pub(crate) async fn stop(&self) -> Option<Progress> {
        let mut ended = {
            let mut current = held(&self.current);
            let current = current.as_mut()?;
            current.orders = None;
            current.ended.clone()
        };
        while ended.changed().await.is_ok() {}
        Some(self.progress())
    }

    fn running(&self) -> Option<Progress> {
        let current = held(&self.current);
        let running = current
            .as_ref()
            .filter(|current| !current.task.is_finished())?;
        Some(held(&running.progress).clone())
    }
}

/// Its incidents were made on purpose.
fn settle(recorder: &Recorder, lane: Option<&str>) {
    let is_client = |client: &Option<String>| {
        let client = client.as_deref();
        client.is_some_and(|client| client.starts_with(CLIENT_PREFIX))
    };
    recorder.with_incidents(|all| {
        let own = all.newest_first(None).filter(|incident| {
            let is_own = lane.is_some() && incident.lane.as_deref() == lane
                || is_client(&incident.publisher)
                || is_client(&incident.subscriber);
            incident.state == State::Open && is_own
        });
        let own: Vec<u64> = own.map(|incident| incident.id).collect();
        let note = Some("made by the demonstration");
        for id in own {
            all.note(id, note, "demonstration", Some(true));
        }
    });
}

impl Progress {
    /// Before the first one.
    fn none() -> Self {
        Self {
            state: "none",
            started_at: None,
            ends_at: None,
            topic: String::new(),
            lane: None,
            sent: 0,
            received: 0,
            verified: 0,
            faults: Vec::new(),
            error: None,
        }
    }
}

impl FaultKind {
    fn injection(self) -> Injection {
        match self {
            Self::Drop => Injection::Lose,
            Self::Duplicate => Injection::Duplicate,
            Self::Reorder => Injection::Swap,
            Self::Alter => Injection::Alter,
        }
    }

    /// Whether a message is missing until it is sent again.
    fn needs_repair(self) -> bool {
        matches!(self, Self::Drop | Self::Alter)
    }
}

/// What the broker names of the end of its clients, it names within this time.
const SETTLES_AFTER: Duration = Duration::from_secs(3);

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
