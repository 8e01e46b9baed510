//! What must not happen inside the broker, by name.

use std::sync::Arc;

use super::json::Object;
use crate::clients::Clients;
use crate::ids::SessionId;
use crate::reason::{FaultKind, FaultPlace};
use crate::telemetry::Event;

impl Clients {
    /// Counts and tells faults of what is owed to a session.
    #[cold]
    pub(crate) fn fault_of_session(
        &mut self,
        id: SessionId,
        kind: FaultKind,
        first: u64,
        count: u64,
    ) {
        if let Some(session) = self.sessions.get_mut(id.index()) {
            session.account.note_fault();
            let place = FaultPlace::Session(Arc::clone(&session.client_id));
            self.fault(place, kind, first, count);
        }
    }

    fn tell_fault(&mut self, place: &FaultPlace, kind: FaultKind, first: u64, count: u64) {
        let (client, place) = match place {
            FaultPlace::Session(client) => (client, "among the messages for this client"),
            FaultPlace::Lane(client) => (client, "among the messages of this client"),
            FaultPlace::Letters(_) => return,
        };
        let object = Object::new()
            .text("kind", kind.name())
            .text("place", place)
            .text("client", client)
            .number("first", first)
            .number("count", count);
        self.home.tell_fault(client, object);
    }

    #[cold]
    pub(crate) fn fault(&mut self, place: FaultPlace, kind: FaultKind, first: u64, count: u64) {
        let totals = self.telemetry.audit();
        match kind {
            FaultKind::Lost => totals.lost += count,
            FaultKind::Duplicated => totals.duplicated += count,
            FaultKind::Reordered => {
                totals.reordered += count;
                totals.lost = totals.lost.saturating_sub(count);
            }
            FaultKind::Altered => totals.altered += count,
            FaultKind::Unbalanced
            | FaultKind::Repeated
            | FaultKind::Injected
            | FaultKind::Intruded
            | FaultKind::Forged
            | FaultKind::RootDiffers
            | FaultKind::Contradicted
            | FaultKind::EndContradicted
            | FaultKind::TwoProducers => totals.unbalanced += 1,
        }
        if self.home.watching > 0 {
            self.tell_fault(&place, kind, first, count);
        }
        self.telemetry.report(Event::Fault {
            place,
            kind,
            first,
            count,
        });
    }
}
