//! What an operator removes: a session that nobody will come for, a retained message that nobody
//! will replace.
//!
//! It is as if the client had done it: the session ends as by a Clean Start, with its will and with
//! a name for all that waited; the retained message as by one that is empty, but nobody is sent
//! that.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::ReasonCode;

use crate::connection::Connection;
use crate::input::Forget;
use crate::reason::{DropReason, Fault};
use crate::shard::Shard;

impl Shard {
    pub(crate) fn forget(&mut self, now: Instant, what: &Forget) {
        match what {
            Forget::Session { client_id } => self.forget_session(now, client_id),
            Forget::Retained { topic } => self.forget_retained(topic),
        }
    }

    fn forget_session(&mut self, now: Instant, client_id: &Arc<str>) {
        let session = |shard: &Self| shard.clients.by_client_id.get(client_id).copied();
        let connection = session(self)
            .and_then(|id| self.clients.sessions.get(id.index()))
            .and_then(|session| session.connection)
            .and_then(|index| self.clients.connections.at(index))
            .map(Connection::id);
        if let Some(id) = connection {
            let detail = "its session was removed";
            self.disconnect(
                now,
                id,
                Fault::new(ReasonCode::AdministrativeAction, detail),
            );
        }
        // Without its connection it may have ended.
        if let Some(id) = session(self) {
            self.end_session(now, id, DropReason::SessionEnded);
        }
    }
}
