//! Who may come in: the decision for each CONNECT, at the door it came through.
//!
//! What needs no password is decided at once, on the shard's thread. A password is verified by a
//! thread of its own, because good password hashes are slow on purpose: a shard that computed one
//! would make all its clients wait. Its queue is bounded, by number and by what can be verified in
//! the time that a client waits, going by the last few; beyond it one is told that the server is
//! busy. So however many come at once, those that are taken have their answer in time, unless
//! verifying has become slower meanwhile.
//!
//! Nothing is verified for a client whose time is over, nor does anybody wait for it. One that has
//! closed its connection before is not noticed: nothing is read from it until it has its answer.
//!
//! Invariants:
//! - Each question has exactly one answer, at once or by [`Parcel::Admission`], or none if nobody
//!   waits for it any more.
//! - A name that nobody verified is not a user: such a client is anonymous.
//! - A question is answered by the doors that stood when it was asked.
//!
//! Deliberately absent: rights (`broker-core` asks for them), enhanced authentication.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unbroken_broker_core::{Admission, ConnectionId, Credentials, ShardId};
use unbroken_mqtt_proto::ReasonCode;

use crate::bounds::VERIFICATIONS;
use crate::mailbox::{Outside, Parcel};
use crate::passwords::Passwords;

/// The rules of all listeners, by their position in the configuration.
#[derive(Debug, Default)]
pub(crate) struct Doors(pub(crate) Vec<Door>);

/// The rules of one listener.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) allow_anonymous: bool,
    pub(crate) passwords: Option<Arc<Passwords>>,
}

/// The asking end, one for each shard.
#[derive(Clone, Debug)]
pub(crate) struct Authenticator {
    shard: ShardId,
    questions: SyncSender<Question>,
    load: Arc<Load>,
}

/// The answering end, for its thread.
#[derive(Debug)]
pub(crate) struct Verifier {
    questions: Receiver<Question>,
    answers: Vec<Outside>,
    load: Arc<Load>,
}

/// How long a question waits. Nobody has it for longer than it takes to look.
#[derive(Debug, Default)]
struct Load(Mutex<Questions>);

#[derive(Debug, Default)]
struct Questions {
    /// Of those without an answer, in their order, how long somebody waits for it.
    until: VecDeque<Instant>,
    /// What one takes; none before the first.
    each: Option<Duration>,
}

#[derive(Debug)]
struct Question {
    shard: ShardId,
    connection: ConnectionId,
    credentials: Credentials,
    passwords: Arc<Passwords>,
    /// Nobody waits for the answer after that.
    until: Instant,
}

/// A verifier and the ends that ask it; `answers` are the feeds to the shards.
pub(crate) fn authenticator(answers: Vec<Outside>) -> (Vec<Authenticator>, Verifier) {
    let (sender, questions) = sync_channel(VERIFICATIONS);
    let load = Arc::new(Load::default());
    let shards = u8::try_from(answers.len()).expect("a shard's number is a u8");
    let askers = (0..shards)
        .map(|shard| Authenticator {
            shard: ShardId(shard),
            questions: sender.clone(),
            load: Arc::clone(&load),
        })
        .collect();
    let verifier = Verifier {
        questions,
        answers,
        load,
    };
    (askers, verifier)
}

impl Authenticator {
    /// The answer if it can be given at once; else it comes as a parcel, if it comes within
    /// `patience`.
    pub(crate) fn ask(
        &self,
        doors: &Doors,
        (connection, credentials): (ConnectionId, Credentials),
        now: Instant,
        patience: Duration,
    ) -> Option<Admission> {
        let Some(door) = doors.0.get(usize::from(credentials.peer.listener)) else {
            return Some(refused(ReasonCode::NotAuthorized)); // a listener that is gone since
        };
        match (&credentials.user_name, &door.passwords) {
            (Some(_), Some(passwords)) => {
                let until = now + patience;
                let question = Question {
                    shard: self.shard,
                    connection,
                    credentials,
                    passwords: Arc::clone(passwords),
                    until,
                };
                // Nobody else asks meanwhile, so that the order is one.
                let mut load = self.load.look();
                if load.wait(now) > patience {
                    return Some(refused(ReasonCode::ServerBusy));
                }
                match self.questions.try_send(question) {
                    Ok(()) => {
                        load.until.push_back(until);
                        None
                    }
                    Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                        Some(refused(ReasonCode::ServerBusy))
                    }
                }
            }
            (None | Some(_), _) if door.allow_anonymous => Some(Admission::Granted { user: None }),
            _ => Some(refused(ReasonCode::NotAuthorized)),
        }
    }
}

impl Verifier {
    /// Answers until nobody can ask any more.
    pub(crate) fn run(mut self) {
        while let Ok(question) = self.questions.recv() {
            let began = Instant::now();
            let is_awaited = began < question.until;
            if is_awaited {
                self.answer(question);
            }
            let mut load = self.load.look();
            if is_awaited {
                load.took(began.elapsed());
            }
            load.until.pop_front();
        }
    }

    fn answer(&mut self, question: Question) {
        let Question {
            shard,
            connection,
            credentials,
            passwords,
            until: _,
        } = question;
        let user = credentials.user_name.unwrap_or_default();
        let password = credentials.password.unwrap_or_default();
        let admission = if passwords.verify(&user, &password) {
            Admission::Granted {
                user: Some(Arc::from(user)),
            }
        } else {
            refused(ReasonCode::BadUserNameOrPassword)
        };
        if let Some(feed) = self.answers.get_mut(usize::from(shard.0)) {
            feed.send(Parcel::Admission {
                connection,
                admission,
            });
        }
    }
}

impl Load {
    fn look(&self) -> MutexGuard<'_, Questions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Questions {
    /// Until those that somebody still waits for are verified. Nothing while there are none, so
    /// that what one takes is always found out anew.
    fn wait(&self, now: Instant) -> Duration {
        let waiting = self.until.iter().filter(|until| **until > now).count();
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        self.each.unwrap_or_default().saturating_mul(waiting)
    }

    /// One took so long. Hashes differ, and the thread may have waited for a core: a mean of the
    /// last few.
    fn took(&mut self, time: Duration) {
        let before = self.each.unwrap_or(time);
        self.each = Some((before * (MEAN_OF - 1) + time) / MEAN_OF);
    }
}

/// Of so many verifications is what one takes the mean, roughly.
const MEAN_OF: u32 = 8;

fn refused(reason: ReasonCode) -> Admission {
    Admission::Refused { reason }
}

#[cfg(test)]
mod tests {
    use unbroken_broker_core::Peer;

    use super::*;
    use crate::mailbox::{Incoming, outside_feed};

    /// One who asks, with the doors that it stands before.
    struct Asker {
        authenticator: Authenticator,
        doors: Doors,
        now: Instant,
    }

    impl Asker {
        fn ask(&self, serial: u32, patience: Duration) -> Option<Admission> {
            let connection = ConnectionId { index: 0, serial };
            let credentials = Credentials {
                client_id: "c".into(),
                user_name: Some("alice".into()),
                password: Some(b"secret".as_slice().into()),
                peer: Peer {
                    address: None,
                    listener: 0,
                },
            };
            let question = (connection, credentials);
            self.authenticator
                .ask(&self.doors, question, self.now, patience)
        }
    }

    fn before_the_door() -> (Asker, Verifier, Incoming) {
        let users = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/users");
        let door = Door {
            allow_anonymous: false,
            passwords: Some(Arc::new(Passwords::read(users.as_ref()).unwrap())),
        };
        let (outside, incoming) = outside_feed();
        let (mut askers, verifier) = authenticator(vec![outside]);
        let asker = Asker {
            authenticator: askers.remove(0),
            doors: Doors(vec![door]),
            now: Instant::now(),
        };
        (asker, verifier, incoming)
    }

    #[test]
    fn a_password_for_which_nobody_waits_is_not_verified() {
        let (asker, verifier, mut incoming) = before_the_door();
        assert_eq!(asker.ask(1, Duration::ZERO), None);
        assert_eq!(asker.ask(2, Duration::from_hours(1)), None);
        let load = Arc::clone(&verifier.load);
        drop(asker);
        verifier.run();
        let answered = |parcel| match parcel {
            Parcel::Admission { connection, .. } => connection.serial,
            other => panic!("{other:?}"),
        };
        assert_eq!(incoming.try_recv().map(answered).ok(), Some(2));
        assert!(incoming.is_empty());
        assert!(load.look().until.is_empty());
    }

    #[test]
    fn who_would_wait_for_too_long_is_told_so_at_once() {
        let (asker, verifier, _incoming) = before_the_door();
        verifier.load.look().took(Duration::from_secs(3));
        let busy = Some(refused(ReasonCode::ServerBusy));
        let patience = Duration::from_secs(10);
        // One that is asked when nobody waits is always taken.
        let answers: Vec<_> = (0..6).map(|n| asker.ask(n, patience)).collect();
        assert_eq!(answers[..4], [None, None, None, None]);
        assert_eq!(answers[4..], [busy.clone(), busy]);
        assert_eq!(asker.ask(7, 2 * patience), None);
    }

    #[test]
    fn those_who_have_gone_are_not_waited_for() {
        let (mut asker, verifier, _incoming) = before_the_door();
        verifier.load.look().took(Duration::from_secs(3));
        let patience = Duration::from_secs(10);
        let answers: Vec<_> = (0..4).map(|n| asker.ask(n, patience)).collect();
        assert_eq!(answers, [None, None, None, None]);
        asker.now += Duration::from_secs(9);
        let busy = Some(refused(ReasonCode::ServerBusy));
        assert_eq!(asker.ask(4, patience), busy);
        asker.now += Duration::from_secs(1);
        assert_eq!(asker.ask(5, patience), None);
    }

    #[test]
    fn one_verification_that_took_long_is_soon_forgotten() {
        for each in [Duration::from_millis(1), Duration::from_micros(1)] {
            let (asker, verifier, _incoming) = before_the_door();
            assert_eq!(asker.ask(0, Duration::from_hours(1)), None);
            let mut load = verifier.load.look();
            load.took(Duration::from_mins(1));
            for _ in 0..250 {
                load.took(each);
            }
            assert!(load.wait(asker.now) < 2 * each, "{load:?}");
        }
    }
}
