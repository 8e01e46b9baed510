//! The broker, asked by requests: a few at a time, each on a thread that may wait.

use std::sync::Arc;
use std::time::SystemTime;

use axum::http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use unbroken_broker::BrokerHandle;
use unbroken_broker::handle::{HandleError, Stats};

use crate::limits::{ANSWER_TIMEOUT, ASKING_MAX, CHANGES_MAX, COUNTING_MAX};
use crate::problem::Problem;

/// What requests ask.
#[derive(Clone, Debug)]
pub(crate) struct Broker {
    handle: BrokerHandle,
    asking: Arc<Semaphore>,
    /// Probes, metrics and the recorder do not wait behind other requests.
    counting: Arc<Semaphore>,
    /// Changes may wait for a disk.
    changing: Arc<Semaphore>,
    pub(crate) version: Arc<str>,
    pub(crate) started: SystemTime,
}

impl Broker {
    pub(crate) fn new(handle: BrokerHandle, version: &str) -> Self {
        Self {
            handle,
            asking: Arc::new(Semaphore::new(ASKING_MAX)),
            counting: Arc::new(Semaphore::new(COUNTING_MAX)),
            changing: Arc::new(Semaphore::new(CHANGES_MAX)),
            version: version.into(),
            started: SystemTime::now(),
        }
    }

    /// For what needs no answer of a shard.
    pub(crate) fn handle(&self) -> &BrokerHandle {
        &self.handle
    }

    /// The counters of one moment; an error says why there are none.
    pub(crate) async fn counters(&self) -> Result<Stats, String> {
        let question = |handle: &BrokerHandle| handle.counters(ANSWER_TIMEOUT);
        let counters = self.ask_in(&self.counting, question).await?;
        counters.map_err(|error| error.to_string())
    }

    /// Asks on a thread that may wait; an error is a problem for the caller.
    pub(crate) async fn answer<T: Send + 'static>(
        &self,
        question: impl FnOnce(&BrokerHandle) -> Result<T, HandleError> + Send + 'static,
    ) -> Result<T, Problem> {
        answered(self.ask(question).await)
    }

    /// The same for what may wait for a disk.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&BrokerHandle) -> Result<T, HandleError> + Send + 'static,
    ) -> Result<T, Problem> {
        answered(self.ask_in(&self.changing, change).await)
    }

    /// Asks on a thread that may wait.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&BrokerHandle) -> T + Send + 'static,
    ) -> Result<T, String> {
        self.ask_in(&self.asking, question).await
    }

    async fn ask_in<T: Send + 'static>(
        &self,
        room: &Arc<Semaphore>,
        question: impl FnOnce(&BrokerHandle) -> T + Send + 'static,
    ) -> Result<T, String> {
        let permit = timeout(ANSWER_TIMEOUT, Arc::clone(room).acquire_owned());
        let permit = permit
            .await
            .map_err(|_| "too many requests wait for the broker; try again later".to_owned())?
            .map_err(|_| "the admin server ends".to_owned())?;
        let handle = self.handle.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let _held = permit;
            question(&handle)
        });
        asked
            .await
            .map_err(|error| format!("the request failed: {error}"))
    }
}

fn answered<T>(answer: Result<Result<T, HandleError>, String>) -> Result<T, Problem> {
    let unavailable = |why| Problem::new(StatusCode::SERVICE_UNAVAILABLE, why);
    answer.map_err(unavailable)?.map_err(|error| match error {
        HandleError::Message(_) => Problem::new(StatusCode::BAD_REQUEST, error.to_string()),
        HandleError::Refused(_) => Problem::new(StatusCode::CONFLICT, error.to_string()),
        _ => unavailable(error.to_string()),
    })
}
