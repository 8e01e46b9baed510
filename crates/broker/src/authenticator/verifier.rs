//! The threads that verify passwords, and what they share with the shards.
//!
//! Invariants:
//! - The lock of the queue is held only for a look; a hash is computed without it.
//! - A failure is charged before its client learns of it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use unbroken_broker_core::{Admission, ConnectionId, ShardId};
use unbroken_mqtt_proto::ReasonCode;

use super::chain::{Attempt, On, refused};
use super::failures::Source;
use super::login_queue::{LoginQueue, Next, Refusal};
use super::recent_logins::RecentLogins;
use crate::bounds::VERIFIERS;
use crate::channel::{DriverEvent, EventSender};

/// A login that waits. No `Debug` of what is secret.
pub(super) struct Verification {
    pub(super) shard: ShardId,
    pub(super) connection: ConnectionId,
    pub(super) attempt: Attempt,
}

impl fmt::Debug for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verification")
            .field("shard", &self.shard)
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}

/// One thread's work.
#[derive(Debug)]
pub(crate) struct Verifier {
    shared: Arc<Shared>,
    recent: Arc<RecentLogins>,
    answers: Arc<[Mutex<EventSender>]>,
}

/// The shards' side of the queue. When the last one is dropped, the verifiers end.
#[derive(Clone, Debug)]
pub(super) struct PendingLogins(Arc<ClosesQueue>);

#[derive(Debug)]
struct ClosesQueue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    queue: LoginQueue<Verification>,
    is_closed: bool,
}

/// How many threads verify: one core is left to the shards.
pub(crate) fn verifier_threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (cores - 1).clamp(1, VERIFIERS)
}

pub(super) fn verifiers(
    threads: usize,
    pending: &PendingLogins,
    answers: Vec<EventSender>,
    recent: &Arc<RecentLogins>,
) -> Vec<Verifier> {
    let answers: Arc<[_]> = answers.into_iter().map(Mutex::new).collect();
    let verifier = |_| Verifier {
        shared: Arc::clone(&pending.0.0),
        recent: Arc::clone(recent),
        answers: Arc::clone(&answers),
    };
    (0..threads).map(verifier).collect()
}

impl PendingLogins {
    pub(super) fn new(threads: usize) -> Self {
        let state = State {
            queue: LoginQueue::new(threads),
            is_closed: false,
        };
        Self(Arc::new(ClosesQueue(Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))))
    }

    /// Queues a login of so many bytes.
    pub(super) fn push(
        &self,
        now: Instant,
        source: Source,
        login: (Verification, usize),
        timeout: Duration,
    ) -> Result<(), Refusal> {
        let shared = &self.0.0;
        shared.lock().queue.push(now, source, login, timeout)?;
        shared.changed.notify_one();
        Ok(())
    }

    pub(super) fn remove(&self, source: Source, is_it: impl Fn(&Verification) -> bool) {
        self.0.0.lock().queue.remove(source, is_it);
    }
}

impl Drop for ClosesQueue {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next login; `None`: all shards have ended, and nothing waits that can be
    /// verified now.
    fn next(&self) -> Option<(Source, Verification)> {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let until = match state.queue.pop(now) {
                Next::Verify(source, verification) => return Some((source, verification)),
                Next::Wait(_) if state.is_closed => return None,
                Next::Wait(until) => until,
            };
            state = match until {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let timeout = until.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(state, timeout);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn finish(&self, source: Source, is_right: bool, took: Option<Duration>) {
        let now = Instant::now();
        self.lock().queue.finish(now, source, is_right, took);
        // A token that came back may let others go on; this thread takes the next login itself.
        self.changed.notify_one();
    }
}

impl Verifier {
    /// Verifies until all authenticators are dropped.
    pub(crate) fn run(self) {
        while let Some((source, verification)) = self.shared.next() {
            self.verify(source, verification);
        }
    }

    /// Verifies what can be verified now; returns how many hashes that took.
    #[cfg(test)]
    pub(super) fn run_until_idle(&mut self) -> usize {
        let mut hashed = 0;
        loop {
            let next = self.shared.lock().queue.pop(Instant::now());
            match next {
                Next::Verify(source, login) => hashed += usize::from(self.verify(source, login)),
                Next::Wait(_) => return hashed,
            }
        }
    }

    /// Returns whether that took a hash: a client with the same login may have come first.
    fn verify(&self, source: Source, login: Verification) -> bool {
        let began = Instant::now();
        let mut attempt = login.attempt;
        let admission = attempt.proceed(On::Thread, &self.recent, began);
        let admission = admission.unwrap_or_else(|| refused(ReasonCode::UnspecifiedError));
        // What the client is not at fault for costs its address nothing.
        let is_right = !matches!(
            admission,
            Admission::Refused {
                reason: ReasonCode::BadUserNameOrPassword | ReasonCode::NotAuthorized,
                ..
            }
        );
        let took = attempt.has_hashed.then(|| began.elapsed());
        self.shared.finish(source, is_right, took);
        if let Some(answers) = self.answers.get(usize::from(login.shard.0)) {
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.send(DriverEvent::Admission {
                connection: login.connection,
                admission,
            });
        }
        attempt.has_hashed
    }
}
