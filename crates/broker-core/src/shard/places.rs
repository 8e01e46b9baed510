//! The broker's places for connections: which have one, and what a connection without one may do.
//!
//! Invariants:
//! - A connection gets one of the broker's places when it is opened, if its address may have one
//!   more (`shares.rs`), or with its CONNECT, or takes over that of its client's connection before.
//!   Without a place it has a short CONNECT, little time, and no session. Whether its client id has
//!   a place decides only behind the password.
//! - Of connections that have sent no CONNECT the newest are read: silent ones keep no client out.
//!
//! Deliberately absent: how many connections there may be without a place. That is the driver's
//! limit; it passes it as [`Room`](crate::Room).

use std::borrow::Cow;
use std::time::Instant;

use unbroken_mqtt_proto::{ReasonCode, frame_length};

use crate::connection::{Caller, Connection};
use crate::ids::{ConnectionId, SessionId};
use crate::limits::{PATIENCE_WITHOUT_PLACE, SMALL_CONNECT_BYTES};
use crate::policy::Peer;
use crate::reason::Fault;
use crate::settings::NoPlace;
use crate::shard::Shard;
use crate::shares::Network;
use crate::timers::Timer;

impl Shard {
    /// The driver has accepted a connection.
    pub(super) fn open(&mut self, now: Instant, id: ConnectionId, peer: Peer) {
        let mut patience = self.options.limits.connect_timeout;
        let max = self.options.limits.connections_max;
        let held = self.connections.places_of(Network::of_peer(peer.address));
        let entered = self.options.totals.enter(peer.listener, max, held);
        let counted = entered.is_ok();
        if !counted {
            patience = patience.min(PATIENCE_WITHOUT_PLACE);
        }
        let until = now + patience;
        let connection = Connection::new(id, peer, now, until, counted);
        self.connections.open(Box::new(connection));
        self.timers.set(until, Timer::Connect(id));
        if !counted {
            self.wait_without_place(now, id);
        }
    }

    /// The transport knows more of the other side than the listener did.
    ///
    /// Its place is in the share of the address that is known now.
    pub(super) fn identify(&mut self, now: Instant, id: ConnectionId, peer: Peer) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let (had_place, listener) = (connection.has_place(), connection.peer().listener);
        self.connections.set_place(id, false);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.set_peer(peer);
        }
        if had_place {
            self.options.totals.leave(listener);
            if self.take_place(id).is_err() {
                self.wait_without_place(now, id);
            }
        }
    }

    /// Notes one more connection without a place. If too many of them say nothing, the one that has
    /// done so for longest ends: else they would keep out those that do.
    #[cold]
    pub(crate) fn wait_without_place(&mut self, now: Instant, id: ConnectionId) {
        let most = self.options.totals.silent_max(self.options.shards);
        if let Some(oldest) = self.connections.wait_without_place(id, most) {
            let detail = "no place is free, and it sent no CONNECT before many others came";
            let fault = Fault::new(ReasonCode::QuotaExceeded, detail);
            self.refuse(now, oldest, Caller::default(), fault);
        }
    }

    /// Why this connection may not send a CONNECT that begins so. `None`: it may. One that is too
    /// long for any connection is for `next_frame`.
    #[cold]
    pub(crate) fn is_too_long_without_place(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
    ) -> Option<Fault> {
        let most = self.options.limits.connect_bytes_max;
        let length = frame_length(bytes, most).ok()??;
        if length <= SMALL_CONNECT_BYTES as usize {
            return None;
        }
        let full = self.take_place(id).err()?;
        let Fault { reason, detail } = no_place(full);
        let detail = format!(
            "{detail}, and its CONNECT has {length} bytes: without a place it may have {SMALL_CONNECT_BYTES}"
        );
        Some(Fault {
            reason,
            detail: Cow::Owned(detail),
        })
    }

    /// Counts a connection that is not counted, if there is room.
    pub(crate) fn take_place(&mut self, id: ConnectionId) -> Result<(), NoPlace> {
        let max = self.options.limits.connections_max;
        if let Some(connection) = self.connections.get(id)
            && !connection.has_place()
        {
            let held = self.connections.places_of(connection.network());
            let listener = connection.peer().listener;
            self.options.totals.enter(listener, max, held)?;
            self.connections.set_place(id, true);
        }
        Ok(())
    }

    /// The same, in the place of the connection that it takes over from.
    pub(crate) fn inherit_place(
        &mut self,
        id: ConnectionId,
        old: Option<SessionId>,
    ) -> Result<(), NoPlace> {
        let Some(new) = self.connections.get(id) else {
            return Ok(());
        };
        let (counted, listener) = (new.has_place(), new.peer().listener);
        let totals = &self.options.totals;
        let old = old.and_then(|session| self.sessions.connection_of(session, &self.connections));
        if !counted
            && let Some(old) = old.and_then(|old| self.connections.get(old))
            && old.has_place()
            && totals.hand_on_place(old.peer().listener, listener)
        {
            let old = old.id();
            self.connections.set_place(old, false);
            self.connections.set_place(id, true);
        }
        self.take_place(id)
    }
}

/// Room may come again; this connection ends. [MQTT311-4.8.0-2]
pub(super) fn no_place(full: NoPlace) -> Fault {
    let detail = match full {
        NoPlace::Broker => "limits.connections_max is reached",
        NoPlace::Address => {
            "the share that the address has of all connections is used up (limits.connections_max)"
        }
        NoPlace::OpenFiles => {
            "the system's limit of open files is reached; raise it (ulimit -Hn, LimitNOFILE=)"
        }
        NoPlace::Listener => "max_connections of the listener is reached",
    };
    Fault::new(ReasonCode::QuotaExceeded, detail)
}
