//! The world of a scenario, as cucumber holds it.
//!
//! Steps block on sockets and processes, and cucumber polls all scenarios from one task; so each
//! step moves what it works on to a thread of its own and brings it back. A step that panics leaves
//! it there: its broker then ends and its log is shown.

use std::panic::resume_unwind;

use cucumber::World;

use crate::room::Room;

/// The world of one scenario.
#[derive(Debug, Default, World)]
pub(crate) struct Scene {
    room: Option<Box<Room>>,
}

impl Scene {
    /// Does what a step does.
    pub(crate) async fn act(&mut self, action: impl FnOnce(&mut Room) + Send + 'static) {
        let mut room = self.room.take().unwrap_or_default();
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
