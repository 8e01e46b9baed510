//! Messages at many positions of the logs: those in flight to sessions, and pending group
//! deliveries.
//!
//! They are read together, in the order of the logs: so each message is read and built once,
//! however many sessions have it, and neighbours share a read.
//!
//! Deliberately absent: messages that are in no log. A session has them beside its entry.

use std::sync::Arc;

use unbroken_broker_core::Message;
use unbroken_store::{Log, MessageBytes, Position, StoreError};

use crate::message::message_of;
use crate::position::position_of;
use crate::times::Times;

/// Some of the messages of all logs.
#[derive(Debug, Default)]
pub(crate) struct InFlightMessages {
    /// In ascending order.
    found: Vec<(Position, Arc<Message>)>,
}

impl InFlightMessages {
    /// Reads the messages at these positions, in any order, possibly repeated.
    pub(crate) fn read<S: Log + ?Sized>(
        store: &S,
        mut wanted: Vec<Position>,
        times: &Times,
    ) -> Result<Self, StoreError> {
        wanted.sort_unstable();
        wanted.dedup();
        let mut found = Vec::with_capacity(wanted.len());
        read_each(store, &wanted, |at, message| {
            let position = position_of(at.log, at.sequence);
            found.push((at, Arc::new(message_of(message, position, times))));
            Ok(())
        })?;
        Ok(Self { found })
    }

    /// `None`: it is in no log any more, or was not requested.
    pub(crate) fn at(&self, at: Position) -> Option<Arc<Message>> {
        let place = self.found.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        let (_, message) = self.found.get(place)?;
        Some(Arc::clone(message))
    }
}

/// Passes on the messages at these ascending, distinct positions that are in the logs; only a few
/// are in memory at a time.
pub(crate) fn read_each<S: Log + ?Sized>(
    store: &S,
    wanted: &[Position],
    mut take: impl FnMut(Position, &MessageBytes) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    for run in wanted.chunk_by(are_near) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let log = first.log;
        let end = store.bounds(log)?.next.min(last.sequence.next());
        let mut from = first.sequence;
        let mut wanted = run.iter().peekable();
        while from < end {
            let chunk = store.read(log, from..end, READ_BYTES)?;
            for entry in &chunk.entries {
                let sequence = entry.sequence;
                while wanted.next_if(|at| at.sequence < sequence).is_some() {}
                if let Some(at) = wanted.next_if(|at| at.sequence == sequence) {
                    take(*at, &entry.message)?;
                }
            }
            from = chunk.next;
        }
    }
    Ok(())
}

/// Whether the messages between two positions are read too, and skipped.
fn are_near(one: &Position, next: &Position) -> bool {
    one.log == next.log && next.sequence.0 - one.sequence.0 <= NEAR
}

/// A separate read costs as much as reading and skipping so many messages.
const NEAR: u64 = 12;

/// Bytes of messages that are read at a time.
const READ_BYTES: usize = 256 * 1024;
