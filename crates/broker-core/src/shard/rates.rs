//! Rates of clients: what is not taken of a client that is over its rate, and for how long.
//!
//! ```text
//! over its rate ──▶ nothing of it is used or read ──▶ its turn comes: goes on
//!                                     └──▶ no patience left: DISCONNECT
//! ```
//!
//! A client that waits for its rate is not silent: its keep alive goes on when it is read again.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{Frame, Publish, Version};

use crate::connection::Connection;
use crate::ids::{ConnectionId, SessionId};
use crate::policy::{Grant, Identity};
use crate::rates::{PauseEnd, Rates};
use crate::reason::{Fault, Flow};
use crate::shard::Shard;
use crate::telemetry::Event;
use crate::timers::Timer;

/// What the driver asks to decide about rates.
impl Shard {
    /// What is known of a client whose CONNECT the driver has decided about, if it is let in like
    /// this. Its id is empty if it has none yet.
    pub fn identity_with(&self, connection: ConnectionId, grant: &Grant) -> Option<Identity> {
        let connection = self.connections.get(connection)?;
        Some(Identity {
            user: grant.user.clone(),
            claims: grant.claims.clone(),
            client_id: Arc::clone(&connection.request()?.client_id),
            peer: connection.peer().clone(),
        })
    }

    /// Every client that is connected, and what is known of it.
    pub fn identities(&self) -> Vec<(ConnectionId, Identity)> {
        let all = self.connections.iter().filter_map(|connection| {
            let session = self.sessions.get(connection.session()?)?;
            let identity = self.identity(connection.id(), &session.client_id);
            Some((connection.id(), identity))
        });
        all.collect()
    }

    /// Names of the roles that a client has by the policy in force.
    pub fn roles_of(&self, identity: &Identity) -> Vec<Arc<str>> {
        self.access.roles_of(identity)
    }

    /// The rates of a client's connection.
    pub fn rates(&self, connection: ConnectionId) -> Option<&Rates> {
        self.connections.get(connection)?.rates()
    }

    /// The rates of the connection that a client with this id would take over from.
    pub fn rates_of_client(&self, client_id: &str) -> Option<&Rates> {
        let session = self.sessions.find(client_id)?;
        self.rates(self.sessions.connection_of(session, &self.connections)?)
    }
}

impl Shard {
    /// A client has other rates from now on. One that waits goes on, and is held to the new ones.
    pub(super) fn set_rates(&mut self, now: Instant, id: ConnectionId, rates: Option<Box<Rates>>) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let was_over = connection.is_over_rate();
        connection.set_rates(rates);
        // What came together with its CONNECT has not been counted.
        if connection.session().is_none() && connection.take_bytes(now, connection.unread_bytes()) {
            self.begin_pause(id);
        } else if was_over {
            self.read_again(now, id);
        }
    }

    /// A PUBLISH of a client with rates: it waits where it was received until it is its turn.
    pub(super) fn handle_rated_publish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        (frame, version): (Frame<'_>, Version),
    ) -> Result<Flow, Fault> {
        let publish = Publish::decode(frame, version)?;
        let rates = self.connections.get_mut(id).and_then(Connection::rates_mut);
        if rates.is_some_and(|rates| !rates.take_message(now)) {
            self.begin_pause(id);
            return Ok(Flow::Requeue);
        }
        let flow = self.handle_publish(now, id, session, publish);
        if matches!(flow, Ok(Flow::Requeue))
            && let Some(rates) = self.connections.get_mut(id).and_then(Connection::rates_mut)
        {
            rates.give_back_message();
        }
        flow
    }

    /// A client is over its rate: it is looked at again when it has room, or no patience left.
    #[cold]
    pub(super) fn begin_pause(&mut self, id: ConnectionId) {
        let patience = self.options.limits.rate_patience;
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let Some(at) = connection
            .rates()
            .and_then(|rates| rates.next_look(patience))
        else {
            return;
        };
        let first = connection.rates().and_then(Rates::first_pause);
        let session = connection.session().and_then(|id| self.sessions.get(id));
        if let (Some(rate), Some(session)) = (first, session) {
            let client_id = Arc::clone(&session.client_id);
            self.event(Event::Slowed { client_id, rate });
        }
        self.timers.set(at, Timer::Rate(id));
        self.telemetry.paused_for_rate();
    }

    /// The time has come to look at a client that is over its rate.
    pub(super) fn check_rate(&mut self, now: Instant, id: ConnectionId) {
        let patience = self.options.limits.rate_patience;
        let Some(rates) = self.connections.get_mut(id).and_then(Connection::rates_mut) else {
            return;
        };
        match rates.end_pause(now, patience) {
            PauseEnd::None => {}
            PauseEnd::Later(at) => self.timers.set(at, Timer::Rate(id)),
            PauseEnd::Over => self.read_again(now, id),
            PauseEnd::Impatient(fault) => self.disconnect(now, id, fault),
        }
    }

    /// The patience may have become shorter: looks at all that wait.
    pub(super) fn recheck_rates(&mut self, now: Instant) {
        let all = self.connections.iter();
        for connection in all.filter(|connection| connection.is_over_rate()) {
            self.timers.set(now, Timer::Rate(connection.id()));
        }
    }

    fn read_again(&mut self, now: Instant, id: ConnectionId) {
        self.connections.relieve(now, id);
        self.consume_unread(now, id);
    }
}
