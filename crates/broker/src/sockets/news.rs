//! What a shard learns of a connection from its transforms, beside bytes.

use unbroken_broker_core::{ConnectionId, Peer};

use super::Sockets;
use crate::bounds::TRANSPORT_STEP_BYTES;

/// One thing to learn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TransportNews {
    /// This is known of the other side by now.
    Identified(Peer),
    /// The transforms hold so many bytes of memory.
    Holds(usize),
}

/// What it is about; the news are what is true when they are taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Identified,
    Holds,
}

impl Sockets {
    /// Takes what there is to learn of a connection that is open. To be taken before its bytes are
    /// used.
    #[inline]
    pub(crate) fn take_news(&mut self) -> Option<(ConnectionId, TransportNews)> {
        loop {
            let (id, kind) = self.news.pop()?;
            if let Some(socket) = self.socket(id) {
                let news = match kind {
                    Kind::Identified => TransportNews::Identified(socket.peer.clone()),
                    Kind::Holds => TransportNews::Holds(socket.held),
                };
                return Some((id, news));
            }
        }
    }

    /// The transforms of a connection may hold more or less than the shard counts.
    pub(super) fn note_held(&mut self, index: u32) {
        let Some(socket) = self.table.get_mut(index as usize) else {
            return;
        };
        let held = socket.transport.held_bytes();
        if held.abs_diff(socket.held) >= TRANSPORT_STEP_BYTES {
            socket.held = held;
            let serial = socket.serial;
            self.news
                .push((ConnectionId { index, serial }, Kind::Holds));
        }
    }
}
