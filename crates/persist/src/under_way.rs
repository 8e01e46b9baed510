//! Messages at many places of the logs: what sessions were given and have not done with, and what
//! groups owe.
//!
//! They are read together, in the order of the logs: so a message is read and built once, however
//! many sessions were given it, and neighbours share a read.
//!
//! Deliberately absent: what is in no log. A session has that beside its entry.

use std::sync::Arc;

use unbroken_broker_core::Message;
use unbroken_store::{Log, MessageBytes, Position, StoreError};

use crate::message::message_of;
use crate::position::position_of;
use crate::times::Times;

/// Some of the messages of all logs.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// In ascending order.
    found: Vec<(Position, Arc<Message>)>,
}

impl UnderWay {
    /// Reads the messages at these places, in any order, and any number of times each.
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

    /// `None`: it is in a log no more, or was not among those to be read.
    pub(crate) fn at(&self, at: Position) -> Option<Arc<Message>> {
        let place = self.found.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        let (_, message) = self.found.get(place)?;
        Some(Arc::clone(message))
    }
}

/// Takes the messages at these places, ascending and each once, that are in the logs: a few at a
/// time are in memory.
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

/// Whether the messages between two are read with them, and left out.
fn are_near(one: &Position, next: &Position) -> bool {
    one.log == next.log && next.sequence.0 - one.sequence.0 <= NEAR
}

/// A read of its own costs as much as so many messages that are read and left out.
const NEAR: u64 = 12;

/// Bytes of messages that are read at a time.
const READ_BYTES: usize = 256 * 1024;
