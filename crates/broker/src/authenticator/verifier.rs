//! The threads that compute hashes and verify signatures, and the way of an answer to its shard.
//!
//! Invariants:
//! - Each login has one answer, from the thread that has decided it.
//! - A failure is charged before its client learns of it, and only one that the client has caused.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use unbroken_broker_core::{Admission, ConnectionId, ShardId};
use unbroken_mqtt_proto::ReasonCode;

use super::admission_of;
use super::chain::{Attempt, On, Step, refused};
use super::pending::{Pending, PendingLogins};
use super::recent_logins::RecentLogins;
use crate::bounds::VERIFIERS;
use crate::channel::{DriverEvent, EventSender};
use crate::source::Source;

/// A login that waits. No `Debug` of what is secret.
pub(super) struct Verification {
    pub(super) shard: ShardId,
    pub(super) connection: ConnectionId,
    /// Its client waits no longer.
    pub(super) deadline: Instant,
    pub(super) attempt: Attempt,
    pub(super) common: Arc<Common>,
}

/// What all logins share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) recent: RecentLogins,
    answers: Box<[Mutex<EventSender>]>,
}

/// One thread's work.
#[derive(Debug)]
pub(crate) struct Verifier(Arc<Pending<Verification>>);

/// Whether a client is refused for what it has shown.
pub(super) const fn is_fault(admission: &Admission) -> bool {
    matches!(
        admission,
        Admission::Refused {
            reason: ReasonCode::BadUserNameOrPassword | ReasonCode::NotAuthorized,
            ..
        }
    )
}

/// How many threads verify: one core is left to the shards.
pub(crate) fn verifier_threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (cores - 1).clamp(1, VERIFIERS)
}

impl Common {
    pub(super) fn new(recent: RecentLogins, answers: Vec<EventSender>) -> Self {
        let answers = answers.into_iter().map(Mutex::new).collect();
        Self { recent, answers }
    }
}

impl Verification {
    /// Asks on, where hashes may be computed.
    pub(super) fn proceed(&mut self) -> Step {
        let common = Arc::clone(&self.common);
        self.attempt
            .proceed(On::Thread, &common.recent, Instant::now())
    }

    /// Whether its client has shown what is wrong.
    pub(super) fn is_fault(step: &Step) -> bool {
        match step {
            Step::Decided(admission) => is_fault(admission),
            Step::AskHook(_) | Step::TakesLong => false,
        }
    }

    /// Answers the shard, or passes it on to a hook.
    pub(super) fn finish(self, source: Source, step: Step) {
        let admission = match step {
            Step::Decided(admission) => admission,
            // No thread leaves anything to another one but to a hook.
            Step::TakesLong => refused(ReasonCode::UnspecifiedError),
            Step::AskHook(hook) => {
                let (shard, connection) = (self.shard, self.connection);
                let common = Arc::clone(&self.common);
                match hook.push(Instant::now(), source, self) {
                    Ok(()) => return,
                    Err(refusal) => {
                        return common.answer(shard, connection, admission_of(refusal));
                    }
                }
            }
        };
        self.common.answer(self.shard, self.connection, admission);
    }
}

impl Common {
    fn answer(&self, shard: ShardId, connection: ConnectionId, admission: Admission) {
        if let Some(answers) = self.answers.get(usize::from(shard.0)) {
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.send(DriverEvent::Admission {
                connection,
                admission,
            });
        }
    }
}

impl Verifier {
    pub(super) fn new(pending: &PendingLogins<Verification>) -> Self {
        Self(pending.of_threads())
    }

    /// Verifies until all authenticators are dropped.
    pub(crate) fn run(self) {
        while let Some((source, login)) = self.0.next() {
            self.verify(source, login);
        }
    }

    /// Verifies what can be verified now; returns how many hashes that took.
    #[cfg(test)]
    pub(super) fn run_until_idle(&mut self) -> usize {
        let mut hashed = 0;
        while let Some((source, login)) = self.0.next_now() {
            hashed += usize::from(self.verify(source, login));
        }
        hashed
    }

    /// Returns whether that took long: a client with the same login may have come first.
    fn verify(&self, source: Source, mut login: Verification) -> bool {
        let began = Instant::now();
        let step = login.proceed();
        let has_hashed = login.attempt.has_hashed;
        let took = has_hashed.then(|| began.elapsed());
        self.0.finish(source, !Verification::is_fault(&step), took);
        login.finish(source, step);
        has_hashed
    }
}

impl fmt::Debug for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verification")
            .field("shard", &self.shard)
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
