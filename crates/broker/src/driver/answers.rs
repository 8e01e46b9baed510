//! Answers to a shard's requests that need no other thread.

use std::time::Instant;

use unbroken_broker_core::{Admission, AuthExchange, ConnectionId, Input, StoreId};

use super::Driver;
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
