//! What must not happen inside the broker, by name.

use std::sync::Arc;

use super::json::Object;
use crate::clients::Clients;
use crate::ids::{SessionId, ShardId};
use crate::output::{Event, Output};

/// What went wrong with a message, or a letter, inside the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultKind {
    /// It was owed and is nowhere.
    Lost,
    /// It left a second time.
    Duplicated,
    /// Its number had come before, and the content of the first is not known any more, so the two
    /// may differ. Said of publishers' own lanes only.
    Repeated,
    /// It left after one that came behind it.
    Reordered,
    /// Its topic or payload is not the one that was accepted.
    Altered,
    /// It bears a stamp that is not its publisher's: of a number that was another message's, or
    /// none that can be read. Said of publishers' own lanes only.
    Injected,
    /// It fits its stamp, and its publisher gave the number to another: one of these numbers, at
    /// least. Said of publishers' own lanes only, as are the next two.
    Forged,
    /// All of a window has come, and a checkpoint has another root over it: one of these numbers,
    /// at least, is forged. Which one only its publisher could tell, who is not asked.
    RootDiffers,
    /// Two checkpoints cannot both be true. The number is that of the later one.
    Contradicted,
    /// A message came beyond the end of its lane that a checkpoint told.
    EndContradicted,
    /// Several contradictions in one lane: two producers use it, or one of them is forged.
    TwoProducers,
    /// A client published it in a lane that is another's. Said of publishers' own lanes only.
    Intruded,
    /// What was owed is not what was sent, waits and was dropped together. The number is by how
    /// much.
    Unbalanced,
}

impl FaultKind {
    /// The kind as a word for topics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Duplicated => "duplicated",
            Self::Repeated => "repeated",
            Self::Reordered => "reordered",
            Self::Altered => "altered",
            Self::Injected => "injected",
            Self::Forged => "forged",
            Self::RootDiffers => "root-differs",
            Self::Contradicted => "contradicted",
            Self::EndContradicted => "end-contradicted",
            Self::TwoProducers => "two-producers",
            Self::Intruded => "intruded",
            Self::Unbalanced => "unbalanced",
        }
    }
}

/// Where a fault was found.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultPlace {
    /// In what is owed to this client. The number is that of the delivery.
    Session(Arc<str>),
    /// Between this shard and the one that found it. The number is that of the letter.
    Letters(ShardId),
    /// In what this client published. The number is that of its lane.
    Lane(Arc<str>),
}

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
            session.account.faults += 1;
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
        let totals = &mut self.stats.audit;
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
        self.outputs.push_back(Output::Event(Event::Fault {
            place,
            kind,
            first,
            count,
        }));
    }
}
