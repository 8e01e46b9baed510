//! The sessions of one shard: by number, by client id, those with something to store, and those
//! at the limit of what may wait for them.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use slab::Slab;

use unbroken_mqtt_proto::{PacketId, QoS};

use super::queue_limits::QueueLimits;
use super::{Backlog, Delivery, Session};
use crate::connection::Connections;
use crate::durability::CommitGate;
use crate::ids::{ConnectionId, SessionId, StoreId, Want};

pub(crate) struct Sessions {
    pub(super) all: Slab<Session>,
    by_client_id: HashMap<Arc<str>, SessionId, FixedState>,
    /// Sessions with progress that is to be stored; some may have ended since.
    unsaved: Vec<SessionId>,
    pub(super) queue_limits: QueueLimits,
}

impl Sessions {
    /// The seed keeps clients from choosing ids that meet in the table.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            all: Slab::new(),
            by_client_id: HashMap::with_hasher(FixedState::with_seed(seed)),
            unsaved: Vec::new(),
            queue_limits: QueueLimits::default(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.at(id.index())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.all.get_mut(id.index())
    }

    /// The session with this index, which is below [`end`](Self::end).
    #[inline]
    pub(crate) fn at(&self, index: usize) -> Option<&Session> {
        self.all.get(index)
    }

    pub(crate) fn end(&self) -> usize {
        self.all.capacity()
    }

    pub(crate) fn find(&self, client_id: &str) -> Option<SessionId> {
        self.by_client_id.get(client_id).copied()
    }

    /// The session of this client.
    pub(crate) fn find_mut(&mut self, client_id: &str) -> Option<&mut Session> {
        self.get_mut(self.find(client_id)?)
    }

    /// The connection that a session has.
    pub(crate) fn connection_of(
        &self,
        id: SessionId,
        connections: &Connections,
    ) -> Option<ConnectionId> {
        Some(connections.at(self.get(id)?.connection?)?.id())
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.all.iter().map(|(key, session)| (id_of(key), session))
    }

    pub(crate) fn client_ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_client_id.keys()
    }

    pub(crate) fn insert(&mut self, session: Session) -> SessionId {
        let client_id = Arc::clone(&session.client_id);
        let id = id_of(self.all.insert(session));
        self.by_client_id.insert(client_id, id);
        id
    }

    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.all.try_remove(id.index())?;
        self.by_client_id.remove(&session.client_id);
        Some(session)
    }

    /// What a session's subscription is announced as. Nothing is kept of what is sent at QoS 0.
    pub(crate) fn want_of(&self, session: SessionId, granted: QoS) -> Want {
        match self.get(session) {
            Some(session) if session.stays && granted > QoS::AtMostOnce => Want::Staying,
            _ => Want::Passing,
        }
    }

    /// What waits for it on disk, if it is behind.
    pub(crate) fn backlog_mut(&mut self, id: SessionId) -> Option<&mut Backlog> {
        self.get_mut(id)?.backlog_mut()
    }

    pub(crate) fn unsaved(&self) -> usize {
        self.unsaved.len()
    }

    /// Looks at each session with progress that is to be stored.
    pub(crate) fn each_unsaved(&mut self, mut store: impl FnMut(&mut Session)) {
        for id in &self.unsaved {
            if let Some(session) = self.all.get_mut(id.index()) {
                store(session);
            }
        }
    }

    /// Nothing is left to store of any session.
    pub(crate) fn clear_unsaved(&mut self) {
        self.unsaved.clear();
    }

    /// Changes a session, and notes it if that is progress which is to be stored soon.
    #[inline]
    fn change(&mut self, id: SessionId, change: impl FnOnce(&mut Session) -> bool) {
        if let Some(session) = self.all.get_mut(id.index())
            && session.is_durable()
            && change(session)
            && let Some(kept) = session.kept.as_deref_mut()
            && !std::mem::replace(&mut kept.touched, true)
        {
            self.unsaved.push(id);
        }
    }

    /// It has progress that is to be stored soon.
    pub(crate) fn touch(&mut self, id: SessionId) {
        self.change(id, |_| true);
    }

    /// A connection of it has begun or ended.
    pub(crate) fn touch_presence(&mut self, id: SessionId) {
        self.change(id, Session::note_presence);
    }

    /// All that is retained for this subscription was sent.
    pub(crate) fn end_scan(&mut self, id: SessionId, filter: &str) {
        self.change(id, |session| session.end_scan(filter));
    }

    /// A message of QoS 1 has got this packet id.
    pub(crate) fn touch_sent(&mut self, id: SessionId, packet_id: PacketId) {
        self.change(id, |session| session.note_sent(packet_id));
    }

    /// What was sent under this id has come to its end.
    pub(crate) fn end_entry(&mut self, id: SessionId, packet_id: PacketId) {
        self.change(id, |session| session.end_entry(packet_id));
    }

    /// A delivery that never was sent is over: it was dropped, or is another's.
    pub(crate) fn end_waiting_entry(&mut self, id: SessionId, delivery: &Delivery) {
        self.change(id, |session| session.end_waiting_entry(delivery));
    }

    /// The client has ended its subscriptions with this filter.
    pub(crate) fn unsubscribe(
        &mut self,
        id: SessionId,
        gate: &mut CommitGate,
        filter: &str,
    ) -> StoreId {
        self.touch(id);
        let session = self.get_mut(id);
        session.map_or(StoreId::NOTHING, |session| {
            session.unsubscribe(gate, filter)
        })
    }
}

/// Keys are below `sessions_max`, a `u32`.
fn id_of(key: usize) -> SessionId {
    SessionId(u32::try_from(key).expect("a session's key is below sessions_max"))
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
