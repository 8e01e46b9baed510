//! Who may come in: the decision for each CONNECT, at the door it came through.
//!
//! What needs no password is decided at once, on the shard's thread. A password is verified by a
//! thread of its own, because good password hashes are slow on purpose: a shard that computed one
//! would make all its clients wait. Its queue is bounded; beyond it a client is told that the
//! server is busy.
//!
//! Invariants:
//! - Each question has exactly one answer, at once or by [`Parcel::Admission`].
//! - A name that nobody verified is not a user: such a client is anonymous.
//! - A question is answered by the doors that stood when it was asked.
//!
//! Deliberately absent: rights (`broker-core` asks for them), enhanced authentication.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

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
}

/// The answering end, for its thread.
#[derive(Debug)]
pub(crate) struct Verifier {
    questions: Receiver<Question>,
    answers: Vec<Outside>,
}

#[derive(Debug)]
struct Question {
    shard: ShardId,
    connection: ConnectionId,
    credentials: Credentials,
    passwords: Arc<Passwords>,
}

/// A verifier and the ends that ask it; `answers` are the feeds to the shards.
pub(crate) fn authenticator(answers: Vec<Outside>) -> (Vec<Authenticator>, Verifier) {
    let (sender, questions) = sync_channel(VERIFICATIONS);
    let shards = u8::try_from(answers.len()).expect("a shard's number is a u8");
    let askers = (0..shards)
        .map(|shard| Authenticator {
            shard: ShardId(shard),
            questions: sender.clone(),
        })
        .collect();
    (askers, Verifier { questions, answers })
}

impl Authenticator {
    /// The answer if it can be given at once; else it comes as a parcel.
    pub(crate) fn ask(
        &self,
        doors: &Doors,
        connection: ConnectionId,
        credentials: Credentials,
    ) -> Option<Admission> {
        let Some(door) = doors.0.get(usize::from(credentials.peer.listener)) else {
            return Some(refused(ReasonCode::NotAuthorized)); // a listener that is gone since
        };
        match (&credentials.user_name, &door.passwords) {
            (Some(_), Some(passwords)) => {
                let passwords = Arc::clone(passwords);
                let shard = self.shard;
                let question = Question {
                    shard,
                    connection,
                    credentials,
                    passwords,
                };
                match self.questions.try_send(question) {
                    Ok(()) => None,
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
            self.answer(question);
        }
    }

    fn answer(&mut self, question: Question) {
        let Question {
            shard,
            connection,
            credentials,
            passwords,
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

fn refused(reason: ReasonCode) -> Admission {
    Admission::Refused { reason }
}
