//! Wills over the end of a broker: a will whose client was let in is on disk until it was
//! published, cancelled or replaced, and goes from there only with the message that it became.
//!
//! When a will is published after a restart is told by the broker's event, and looked at here: not
//! before its time, and not forgotten.

use std::time::{Duration, Instant};

use unbroken_mqtt_proto::QoS;
use unbroken_persist::Restored;

use super::{GRACE, Oracle, ROUNDED, Will};
use crate::message::{MessageId, identify};

/// The will that a client's last CONNECT left with the broker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Left {
    message: Option<MessageId>,
    /// Somebody can get it after a restart.
    outlives_broker: bool,
    /// CONNACK has left.
    is_told: bool,
    /// It was published, or cancelled by DISCONNECT.
    is_over: bool,
}

/// A will that a restart has found, and that is not yet published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revived {
    message: MessageId,
    /// Not before this, unless its session is replaced by a new one.
    not_before: Instant,
}

impl Left {
    pub(super) fn new(will: Option<Will>, expiry_s: u32, oracle: &Oracle) -> Self {
        let outlives = |will: Will| {
            let message = &oracle.messages[will.message];
            message.retain || message.qos > QoS::AtMostOnce || will.delay_s > 0 && expiry_s > 0
        };
        Self {
            message: will.map(|will| will.message),
            outlives_broker: will.is_some_and(outlives),
            ..Self::default()
        }
    }
}

impl Oracle {
    /// CONNACK is about to leave, over the client's present connection.
    pub(super) fn will_is_told(&mut self, client: usize) {
        let left = &mut self.left[client];
        left.is_told = true;
        let Some(message) = left.message.filter(|_| left.outlives_broker) else {
            return;
        };
        // Which will a receiver got is told by its payload.
        if left.is_over || self.messages[message].clear {
            return;
        }
        assert_eq!(
            self.disk.will(client),
            Some(message),
            "client {client} was about to be let in, and its will is not on disk"
        );
        self.messages[message].promised = true;
    }

    pub(super) fn will_is_over(&mut self, client: usize) {
        self.left[client].is_over = true;
    }

    /// Whether the broker leaves it on disk, now that its store has failed.
    pub(super) fn will_stays_on_disk(&self, client: usize) -> bool {
        self.left[client].outlives_broker
    }

    /// The broker begins again with this: before anything else is made of it.
    pub(super) fn wills_restarted(&mut self, now: Instant, restored: &Restored) {
        for client in 0..self.sessions.len() {
            let id = format!("c{client}");
            let of_session = restored.sessions.iter().find(|s| *s.client_id == *id);
            let alone = restored
                .wills
                .iter()
                .find(|(client_id, _)| **client_id == *id);
            let will = match (of_session.and_then(|s| s.will.as_ref()), alone) {
                (Some(_), Some(_)) => panic!("client {client} has two wills"),
                (one, other) => one.or(other.map(|(_, will)| will)),
            };
            let found = will.map(|will| {
                let payload = will.message.payload();
                identify(payload).unwrap_or_else(|| panic!("nobody left the will {will:?}"))
            });
            assert_eq!(
                found,
                self.disk.will(client),
                "the will of client {client} on disk, and as it is found"
            );
            let left = self.left[client];
            let promised = left
                .message
                .filter(|_| left.outlives_broker && !left.is_over);
            assert!(
                !left.is_told || promised.is_none() || found == promised,
                "the will of client {client} is {promised:?}, and {found:?} is found"
            );
            // One that another shard had to retain may be published again.
            let again = found.is_none_or(|id| self.messages[id].accepts > 0);
            assert!(
                !left.is_told || again || found == left.message,
                "client {client} has the will {found:?} again, and left {:?} since",
                left.message
            );
            self.left[client] = Left {
                message: found,
                outlives_broker: true,
                is_told: true,
                is_over: false,
            };
            let delay_s = will.map_or(0, |will| will.delay_s);
            let not_before = match of_session {
                Some(session) => {
                    // Or its session ends before.
                    let delay = Duration::from_secs(delay_s.min(session.expiry_s).into());
                    let away = session.away.unwrap_or_default();
                    now + delay.saturating_sub(away).max(delay.min(GRACE))
                }
                None => now,
            };
            self.revived[client] = found.map(|message| Revived {
                message,
                not_before: not_before.checked_sub(ROUNDED).unwrap_or(not_before),
            });
        }
    }

    /// The power is cut: what clients were told of their wills may be lost, and what has become of
    /// those on disk, so they may be published again.
    pub(super) fn wills_are_as_on_disk(&mut self) {
        for client in 0..self.sessions.len() {
            let message = self.disk.will(client);
            if let Some(message) = message {
                self.messages[message].promised = true;
            }
            self.left[client] = Left {
                message,
                outlives_broker: true,
                is_told: true,
                is_over: false,
            };
        }
    }

    /// The broker publishes a will. `replaced`: a client is being let in that wants no session.
    pub(crate) fn will_was_published(&mut self, client: usize, replaced: bool, now: Instant) {
        // The others are expected when their time comes.
        let Some(revived) = self.revived[client].take() else {
            return;
        };
        assert!(
            replaced || revived.not_before <= now,
            "the will of client {client} was published too early after a restart"
        );
        self.will_is_over(client);
        self.accepted(client, revived.message, now);
    }

    /// A session has ended that this client had before the restart, or only its will.
    pub(super) fn check_no_revived(&self, client: usize) {
        assert!(
            self.revived[client].is_none(),
            "the session of client {client} has ended, and its will was not published"
        );
    }

    /// Nobody waits for a will whose client has no session.
    pub(crate) fn check_revived(&self) {
        for (client, session) in self.sessions.iter().enumerate() {
            if !session.exists {
                self.check_no_revived(client);
            }
        }
    }

    /// A will that is not on disk any more is there as the message that it became, for those who
    /// wait for it.
    pub(super) fn is_settled_will(&self, id: MessageId) -> bool {
        let message = &self.messages[id];
        let publisher = message.publisher;
        message.promised && message.accepts > 0 && self.disk.will(publisher) != Some(id)
    }
}
