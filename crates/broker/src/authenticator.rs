//! Authentication: decides each CONNECT by the rules of the listener that it came to.
//!
//! A CONNECT that needs no password is decided at once, on the shard's thread. A separate thread
//! verifies passwords: good password hashes are slow on purpose, and a shard that computed one
//! would delay all its clients. The verifier's queue is bounded, in number and in the time that its
//! entries are expected to take. Beyond the bounds a client is refused with "server busy". So every
//! client whose request is queued gets its answer in time, unless verification becomes slower
//! meanwhile.
//!
//! A request whose client no longer waits is not verified. A client that has closed its connection
//! is not noticed: the broker does not read from it until the decision.
//!
//! Invariants:
//! - Each request has exactly one answer: at once, or by [`DriverEvent::Admission`], or none if its
//!   client no longer waits.
//! - A user name that was not verified is not a user: the client is anonymous.
//! - A request is decided by the rules in force when it was made.
//!
//! Deliberately absent: rights (`broker-core` asks for them), enhanced authentication.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unbroken_broker_core::{Admission, ConnectionId, Credentials, ShardId};
use unbroken_mqtt_proto::ReasonCode;

use crate::bounds::VERIFICATIONS;
use crate::channel::{DriverEvent, EventSender};
use crate::passwords::Passwords;

/// The rules of all listeners, by their position in the configuration.
#[derive(Debug, Default)]
pub(crate) struct AuthRules(pub(crate) Vec<ListenerAuth>);

/// The rules of one listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerAuth {
    pub(crate) allow_anonymous: bool,
    pub(crate) passwords: Option<Arc<Passwords>>,
}

/// Requests authentication; one for each shard.
#[derive(Clone, Debug)]
pub(crate) struct Authenticator {
    shard: ShardId,
    verifications: SyncSender<Verification>,
    load: Arc<SharedLoad>,
}

/// Verifies passwords, on its own thread.
#[derive(Debug)]
pub(crate) struct Verifier {
    verifications: Receiver<Verification>,
    answers: Vec<EventSender>,
    load: Arc<SharedLoad>,
}

/// The verifier's queue as the shards see it. The lock is held only for a look.
#[derive(Debug, Default)]
struct SharedLoad(Mutex<VerifierLoad>);

#[derive(Debug, Default)]
struct VerifierLoad {
    /// The deadline of each queued request, in order.
    deadline: VecDeque<Instant>,
    /// Mean time of one verification; none before the first.
    mean: Option<Duration>,
}

#[derive(Debug)]
struct Verification {
    shard: ShardId,
    connection: ConnectionId,
    credentials: Credentials,
    passwords: Arc<Passwords>,
    /// The client does not wait longer.
    deadline: Instant,
}

/// A verifier, and an authenticator for each shard; `answers` are channels to the shards.
pub(crate) fn authenticator(answers: Vec<EventSender>) -> (Vec<Authenticator>, Verifier) {
    let (sender, verifications) = sync_channel(VERIFICATIONS);
    let load = Arc::new(SharedLoad::default());
    let shards = u8::try_from(answers.len()).expect("a shard's number is a u8");
    let authenticators = (0..shards)
        .map(|shard| Authenticator {
            shard: ShardId(shard),
            verifications: sender.clone(),
            load: Arc::clone(&load),
        })
        .collect();
    let verifier = Verifier {
        verifications,
        answers,
        load,
    };
    (authenticators, verifier)
}

impl Authenticator {
    /// The decision if no password is needed; otherwise it comes as an event, if it comes within
    /// `timeout`.
    pub(crate) fn authenticate(
        &self,
        auth_rules: &AuthRules,
        (connection, credentials): (ConnectionId, Credentials),
        now: Instant,
        timeout: Duration,
    ) -> Option<Admission> {
        let Some(listener_auth) = auth_rules.0.get(usize::from(credentials.peer.listener)) else {
            return Some(refused(ReasonCode::NotAuthorized)); // a listener that is gone since
        };
        match (&credentials.user_name, &listener_auth.passwords) {
            (Some(_), Some(passwords)) => {
                let deadline = now + timeout;
                let verification = Verification {
                    shard: self.shard,
                    connection,
                    credentials,
                    passwords: Arc::clone(passwords),
                    deadline,
                };
                // The lock keeps the two queues in the same order.
                let mut load = self.load.lock();
                if load.wait(now) > timeout {
                    return Some(refused(ReasonCode::ServerBusy));
                }
                match self.verifications.try_send(verification) {
                    Ok(()) => {
                        load.deadline.push_back(deadline);
                        None
                    }
                    Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                        Some(refused(ReasonCode::ServerBusy))
                    }
                }
            }
            (None | Some(_), _) if listener_auth.allow_anonymous => {
                Some(Admission::Granted { user: None })
            }
            _ => Some(refused(ReasonCode::NotAuthorized)),
        }
    }
}

impl Verifier {
    /// Verifies until all authenticators are dropped.
    pub(crate) fn run(mut self) {
        while let Ok(verification) = self.verifications.recv() {
            let began = Instant::now();
            let has_pending = began < verification.deadline;
            if has_pending {
                self.answer(verification);
            }
            let mut load = self.load.lock();
            if has_pending {
                load.record(began.elapsed());
            }
            load.deadline.pop_front();
        }
    }

    fn answer(&mut self, verification: Verification) {
        let Verification {
            shard,
            connection,
            credentials,
            passwords,
            deadline: _,
        } = verification;
        let user = credentials.user_name.unwrap_or_default();
        let password = credentials.password.unwrap_or_default();
        let admission = if passwords.verify(&user, &password) {
            Admission::Granted {
                user: Some(Arc::from(user)),
            }
        } else {
            refused(ReasonCode::BadUserNameOrPassword)
        };
        if let Some(sender) = self.answers.get_mut(usize::from(shard.0)) {
            sender.send(DriverEvent::Admission {
                connection,
                admission,
            });
        }
    }
}

impl SharedLoad {
    fn lock(&self) -> MutexGuard<'_, VerifierLoad> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VerifierLoad {
    /// Time until all queued requests in time are verified. Zero for an empty queue, so that the
    /// mean is always measured anew.
    fn wait(&self, now: Instant) -> Duration {
        let waiting = self
            .deadline
            .iter()
            .filter(|deadline| **deadline > now)
            .count();
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        self.mean.unwrap_or_default().saturating_mul(waiting)
    }

    /// Adds a measurement. Hashes differ, and the thread may have waited for a core, so a mean is
    /// kept.
    fn record(&mut self, time: Duration) {
        let before = self.mean.unwrap_or(time);
        self.mean = Some((before * (MEAN_SAMPLES - 1) + time) / MEAN_SAMPLES);
    }
}

/// The mean is roughly of so many verifications.
const MEAN_SAMPLES: u32 = 8;

fn refused(reason: ReasonCode) -> Admission {
    Admission::Refused { reason }
}

#[cfg(test)]
mod tests {
    use unbroken_broker_core::Peer;

    use super::*;
    use crate::channel::{EventReceiver, event_channel};

    /// A client with the rules of its listener.
    struct TestClient {
        authenticator: Authenticator,
        auth_rules: AuthRules,
        now: Instant,
    }

    impl TestClient {
        fn authenticate(&self, serial: u32, timeout: Duration) -> Option<Admission> {
            let connection = ConnectionId { index: 0, serial };
            let credentials = Credentials {
                client_id: "c".into(),
                user_name: Some("alice".into()),
                password: Some(b"secret".as_slice().into()),
                peer: Peer::default(),
            };
            let verification = (connection, credentials);
            self.authenticator
                .authenticate(&self.auth_rules, verification, self.now, timeout)
        }
    }

    fn one_listener() -> (TestClient, Verifier, EventReceiver) {
        let users = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/users");
        let listener_auth = ListenerAuth {
            allow_anonymous: false,
            passwords: Some(Arc::new(Passwords::read(users.as_ref()).unwrap())),
        };
        let (outside, receiver) = event_channel();
        let (mut authenticators, verifier) = authenticator(vec![outside]);
        let client = TestClient {
            authenticator: authenticators.remove(0),
            auth_rules: AuthRules(vec![listener_auth]),
            now: Instant::now(),
        };
        (client, verifier, receiver)
    }

    #[test]
    fn a_password_of_a_client_past_its_deadline_is_not_verified() {
        let (client, verifier, mut receiver) = one_listener();
        assert_eq!(client.authenticate(1, Duration::ZERO), None);
        assert_eq!(client.authenticate(2, Duration::from_hours(1)), None);
        let load = Arc::clone(&verifier.load);
        drop(client);
        verifier.run();
        let answered = |event| match event {
            DriverEvent::Admission { connection, .. } => connection.serial,
            other => panic!("{other:?}"),
        };
        assert_eq!(receiver.try_recv().map(answered).ok(), Some(2));
        assert!(receiver.is_empty());
        assert!(load.lock().deadline.is_empty());
    }

    #[test]
    fn a_client_that_would_wait_too_long_is_refused_at_once() {
        let (client, verifier, _incoming) = one_listener();
        verifier.load.lock().record(Duration::from_secs(3));
        let busy = Some(refused(ReasonCode::ServerBusy));
        let timeout = Duration::from_secs(10);
        // With an empty queue a request is always accepted.
        let answers: Vec<_> = (0..6).map(|n| client.authenticate(n, timeout)).collect();
        assert_eq!(answers[..4], [None, None, None, None]);
        assert_eq!(answers[4..], [busy.clone(), busy]);
        assert_eq!(client.authenticate(7, 2 * timeout), None);
    }

    #[test]
    fn clients_past_their_deadline_do_not_count_as_load() {
        let (mut client, verifier, _incoming) = one_listener();
        verifier.load.lock().record(Duration::from_secs(3));
        let timeout = Duration::from_secs(10);
        let answers: Vec<_> = (0..4).map(|n| client.authenticate(n, timeout)).collect();
        assert_eq!(answers, [None, None, None, None]);
        client.now += Duration::from_secs(9);
        let busy = Some(refused(ReasonCode::ServerBusy));
        assert_eq!(client.authenticate(4, timeout), busy);
        client.now += Duration::from_secs(1);
        assert_eq!(client.authenticate(5, timeout), None);
    }

    #[test]
    fn one_verification_that_took_long_is_soon_forgotten() {
        for mean in [Duration::from_millis(1), Duration::from_micros(1)] {
            let (client, verifier, _incoming) = one_listener();
            assert_eq!(client.authenticate(0, Duration::from_hours(1)), None);
            let mut load = verifier.load.lock();
            load.record(Duration::from_mins(1));
            for _ in 0..250 {
                load.record(mean);
            }
            assert!(load.wait(client.now) < 2 * mean, "{load:?}");
        }
    }
}
