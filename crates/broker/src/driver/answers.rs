//! Answers to a shard's requests that need no other thread.

use std::time::Instant;

use unbroken_broker_core::{Admission, AuthExchange, ConnectionId, Input, Shard, StoreId};

use super::{Driver, carry_out, rates};
use crate::authenticator::Decision;

/// An answer, until the shard has it.
#[derive(Debug)]
pub(super) enum Answer {
    Admission {
        connection: ConnectionId,
        admission: Admission,
    },
    Challenge {
        connection: ConnectionId,
        data: Box<[u8]>,
        exchange: AuthExchange,
    },
    Stored(StoreId),
}

impl Answer {
    pub(super) fn of(connection: ConnectionId, decision: Decision) -> Self {
        match decision {
            Decision::Admission(admission) => Self::Admission {
                connection,
                admission,
            },
            Decision::Challenge(data, exchange) => Self::Challenge {
                connection,
                data,
                exchange,
            },
        }
    }

    pub(super) fn into_input(self) -> Input<'static> {
        match self {
            Self::Admission {
                connection,
                admission,
            } => Input::Authenticated {
                connection,
                admission,
            },
            Self::Challenge {
                connection,
                data,
                exchange,
            } => Input::Challenged {
                connection,
                data,
                exchange,
            },
            Self::Stored(id) => Input::Stored(id),
        }
    }
}

impl Driver {
    /// The last word about a client that a source of users has decided about.
    pub(crate) fn review(
        &self,
        now: Instant,
        connection: ConnectionId,
        admission: Admission,
    ) -> Admission {
        let address = self.sockets.peer(connection).and_then(|peer| peer.address);
        self.authenticator.review(admission, address, now)
    }
}

/// The answer about a client has come from another thread.
pub(crate) fn decided(
    shard: &mut Shard,
    driver: &mut Driver,
    now: Instant,
    connection: ConnectionId,
    admission: Admission,
) {
    let admission = driver.review(now, connection, admission);
    driver.answers.push_back(Answer::Admission {
        connection,
        admission,
    });
    answer_all(shard, driver, now);
}

/// Gives the shard all answers that are there; returns how many packets it has processed.
pub(super) fn answer_all(shard: &mut Shard, driver: &mut Driver, now: Instant) -> u64 {
    let mut packets = 0;
    while let Some(answer) = driver.answers.pop_front() {
        let answer = match answer {
            Answer::Admission {
                connection,
                admission,
            } => {
                driver.sockets.resume(connection);
                let admission = rates::admit(shard, driver, now, connection, admission);
                Answer::Admission {
                    connection,
                    admission,
                }
            }
            answer => answer,
        };
        packets += carry_out(shard, driver, now, answer.into_input());
    }
    packets
}
