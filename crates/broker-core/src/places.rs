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
    pub(crate) fn wait_without_place(&mut self, id: ConnectionId) {
        self.silent.push_back(id);
        let max = self.options.totals.silent_max(self.options.shards);
        if self.silent.len() <= max {
            return;
        }
        let clients = &self.clients;
        self.silent.retain(|id| {
            let connection = clients.connection(id.index);
            connection.is_some_and(|it| it.id == *id && it.is_silent_without_place())
        });
        if self.silent.len() > max
            && let Some(oldest) = self.silent.pop_front()
        {
            let detail = "no place is free, and it sent no CONNECT before many others came";
            let fault = Fault::new(ReasonCode::QuotaExceeded, detail);
            self.refuse(oldest, Caller::default(), fault);
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
        if let Some(connection) = self.clients.named(id)
            && !connection.counted
        {
            let listener = connection.peer.listener;
            self.options.totals.enter(listener, max)?;
            if let Some(connection) = self.clients.named(id) {
                connection.counted = true;
            }
        }
        Ok(())
    }

    /// The same, in the place of the connection that it takes over from.
    pub(crate) fn inherit_place(
        &mut self,
        id: ConnectionId,
        old: Option<SessionId>,
    ) -> Result<(), NoPlace> {
        let Some(new) = self.clients.named(id) else {
            return Ok(());
        };
        let (counted, listener) = (new.counted, new.peer.listener);
        let totals = &self.options.totals;
        let old = old.and_then(|session| self.clients.connection_of(session));
        if !counted
            && let Some(old) = old.and_then(|old| self.clients.named(old))
            && old.counted
            && totals.hand_on_place(old.peer.listener, listener)
        {
            old.counted = false;
            if let Some(new) = self.clients.named(id) {
                new.counted = true;
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
