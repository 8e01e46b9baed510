//! Places of connections: a connection gets one when it is opened, if there is one, or with its
//! CONNECT, or takes over that of its client's connection before.
//!
//! Invariants:
//! - A connection without a place has a short CONNECT, little time, and no session.
//! - Of connections that have sent no CONNECT the newest are read: silent ones keep no client out.
//! - Whether a client id has a place decides only behind the password.
//!
//! Deliberately absent: how many connections there may be without a place. That is the driver's
//! bound; it passes it as [`Room`](crate::Room).

use std::borrow::Cow;
use std::time::Instant;

use unbroken_mqtt_proto::{ReasonCode, frame_length};

use crate::connection::Caller;
use crate::ids::{ConnectionId, SessionId};
use crate::limits::{CONNECT_BYTES_MAX, SMALL_CONNECT_BYTES};
use crate::reason::Fault;
use crate::settings::NoPlace;
use crate::shard::Shard;

impl Shard {
    /// Notes one more connection without a place. If too many of them say nothing, the one that has
    /// done so for longest ends: else they would keep out those that do.
    #[cold]
    pub(crate) fn wait_without_place(&mut self, now: Instant, id: ConnectionId) {
        let most = self.options.totals.silent_max(self.options.shards);
        if let Some(oldest) = self.clients.connections.wait_without_place(id, most) {
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
        let length = frame_length(bytes, CONNECT_BYTES_MAX).ok()??;
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
        let max = self.clients.limits.connections_max;
        if let Some(connection) = self.clients.connections.get_mut(id)
            && !connection.has_place()
        {
            self.options.totals.enter(connection.peer().listener, max)?;
            connection.set_place(true);
        }
        Ok(())
    }

    /// The same, in the place of the connection that it takes over from.
    pub(crate) fn inherit_place(
        &mut self,
        id: ConnectionId,
        old: Option<SessionId>,
    ) -> Result<(), NoPlace> {
        let Some(new) = self.clients.connections.get(id) else {
            return Ok(());
        };
        let (counted, listener) = (new.has_place(), new.peer().listener);
        let totals = &self.options.totals;
        let old = old.and_then(|session| self.clients.connection_of(session));
        if !counted
            && let Some(old) = old.and_then(|old| self.clients.connections.get_mut(old))
            && old.has_place()
            && totals.hand_on_place(old.peer().listener, listener)
        {
            old.set_place(false);
            if let Some(new) = self.clients.connections.get_mut(id) {
                new.set_place(true);
            }
        }
        self.take_place(id)
    }
}

/// Room may come again; this connection ends. [MQTT311-4.8.0-2]
pub(crate) fn no_place(full: NoPlace) -> Fault {
    let detail = match full {
        NoPlace::Broker => "limits.connections_max is reached",
        NoPlace::OpenFiles => {
            "the system's limit of open files is reached; raise it (ulimit -Hn, LimitNOFILE=)"
        }
        NoPlace::Listener => "max_connections of the listener is reached",
    };
    Fault::new(ReasonCode::QuotaExceeded, detail)
}
