//! A route with very many receivers, shared by the messages that are on their way to them: see
//! [`crate::delivery`].
//!
//! Invariant: it stays what it was when it was made, whatever becomes of the index.

use super::Receiver;
use crate::ids::SessionId;

/// The receivers of a route, and where in it each one is: 32 bytes a receiver and what its
/// identifiers take beyond the first, and 4 bytes a session of the shard.
#[derive(Debug)]
pub(crate) struct WideRoute {
    receivers: Box<[Receiver]>,
    /// By the number of the session: its place, or [`NOWHERE`].
    places: Box<[u32]>,
}

impl WideRoute {
    pub(super) fn of(receivers: &[Receiver]) -> Self {
        let sessions = receivers.iter().map(|receiver| receiver.session.index());
        let mut places = vec![NOWHERE; sessions.max().map_or(0, |most| most + 1)];
        for (place, receiver) in (0..).zip(receivers) {
            places[receiver.session.index()] = place;
        }
        Self {
            receivers: receivers.into(),
            places: places.into(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.receivers.len()
    }

    pub(crate) fn receiver(&self, place: usize) -> Option<&Receiver> {
        self.receivers.get(place)
    }

    /// Where this session is in it, if it is: `0..len()`.
    pub(crate) fn place_of(&self, session: SessionId) -> Option<usize> {
        let place = self.places.get(session.index())?;
        (*place != NOWHERE).then_some(*place as usize)
    }
}

/// Sessions are numbered with 32 bits, and each is in a route once.
const NOWHERE: u32 = u32::MAX;
