//! The world of a scenario, as cucumber holds it.
//!
//! Steps block on sockets and processes, and cucumber polls all scenarios from one task; so each
//! step moves what it works on to a thread of its own and brings it back. A step that panics leaves
//! it there: its broker then ends and its log is shown.

use std::panic::resume_unwind;

use cucumber::World;

use crate::features::room::Room;
use crate::server::Server;

/// The world of one scenario.
#[derive(Debug, Default, World)]
pub(crate) struct Scene {
    room: Option<Box<Room>>,
    /// The broker of somebody else, if it is to be used.
    given: Option<Server>,
}

impl Scene {
    /// A scenario whose broker is this one, started by somebody else.
    pub(crate) fn with(given: Option<Server>) -> Self {
        Self { room: None, given }
    }

    /// Does what a step does.
    pub(crate) async fn act(&mut self, action: impl FnOnce(&mut Room) + Send + 'static) {
        let room = self.room.take();
        let mut room = room.unwrap_or_else(|| Box::new(Room::with(self.given.clone())));
        let acted = tokio::task::spawn_blocking(move || {
            action(&mut room);
            room
        });
        match acted.await {
            Ok(room) => self.room = Some(room),
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
}
