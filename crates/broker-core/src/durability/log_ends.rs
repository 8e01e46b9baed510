//! How long the logs are, as this shard knows: which messages there are, and which are on disk.
//!
//! Invariant: one message of its own log is waited for at a time, so it is known in steps how far
//! that log is on disk.

use std::sync::Arc;

use crate::ids::{LogId, ShardId, StoreId};
use crate::position::{Frontier, Position};

#[derive(Debug)]
pub(crate) struct LogEnds {
    /// The log of what this shard takes in.
    own: LogId,
    /// The last message of each log that this shard has routed, or is routing.
    ends: Frontier,
    /// Where each log ended when publishers moved to other logs, the oldest first. Few, or none.
    moves: Arc<[Frontier]>,
    /// The last message of each log that is known to be on disk: of its own by the store, of others
    /// by their shards.
    on_disk: Frontier,
    /// Of its own log, the request that is waited for and the last one, each with the number of its
    /// message.
    appended: [(StoreId, u64); 2],
}

impl LogEnds {
    pub(super) fn new(shard: ShardId) -> Self {
        Self {
            own: LogId(shard.0.into()),
            ends: Frontier::new(),
            moves: Arc::default(),
            on_disk: Frontier::new(),
            appended: [(StoreId::NOTHING, 0); 2],
        }
    }

    /// The last message of each log.
    pub(crate) fn all(&self) -> &Frontier {
        &self.ends
    }

    /// The last message of each log that is known to be on disk.
    pub(crate) fn on_disk(&self) -> &Frontier {
        &self.on_disk
    }

    /// The last message of the log of this shard, and the last of it that is known to be on disk.
    pub(crate) fn own(&self) -> (u64, u64) {
        (self.ends.of(self.own), self.on_disk.of(self.own))
    }

    /// Where the logs ended at each move of publishers that is not within `read`, and where they
    /// end now.
    pub(crate) fn behind(&self, read: &Frontier) -> impl Iterator<Item = &Frontier> {
        // Each is within the next.
        let passed = self.moves.partition_point(|within| read.reaches(within));
        self.moves.iter().skip(passed).chain([&self.ends])
    }

    /// What is in each log when the broker starts.
    pub(super) fn restore(&mut self, ends: Frontier) {
        self.on_disk = ends.clone();
        self.ends = ends;
    }

    pub(super) fn restore_moves(&mut self, moves: Arc<[Frontier]>) {
        self.moves = moves;
    }

    /// The next place in the log of this shard.
    pub(super) fn append(&mut self) -> Position {
        let position = Position {
            log: self.own,
            number: self.ends.of(self.own) + 1,
        };
        self.ends.raise(position);
        position
    }

    /// The message at this place is asked to be stored.
    pub(super) fn note_asked(&mut self, request: StoreId, position: Position) {
        self.appended[1] = (request, position.number);
    }

    /// Everything up to this request is on disk.
    pub(super) fn on_stored(&mut self, stored: StoreId) {
        let [waited_for, last] = self.appended;
        if waited_for.0 > stored {
            return;
        }
        let (_, number) = if last.0 <= stored { last } else { waited_for };
        let log = self.own;
        self.on_disk.raise(Position { log, number });
        self.appended[0] = last;
    }

    /// There is a message at this place.
    pub(super) fn note(&mut self, position: Position) {
        self.ends.raise(position);
    }

    /// Another shard says that its log is on disk up to here.
    pub(super) fn note_on_disk(&mut self, position: Position) {
        self.on_disk.raise(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_on_disk_up_to_the_last_message_that_was_waited_for() {
        let mut ends = LogEnds::new(ShardId(0));
        let append = |ends: &mut LogEnds, request| {
            let position = ends.append();
            ends.note_asked(StoreId(request), position);
        };
        append(&mut ends, 1);
        ends.on_stored(StoreId(0));
        assert_eq!(ends.own(), (1, 0));
        append(&mut ends, 5);
        ends.on_stored(StoreId(4));
        assert_eq!(ends.own(), (2, 1));
        append(&mut ends, 6);
        ends.on_stored(StoreId(5));
        assert_eq!(ends.own(), (3, 2));
        ends.on_stored(StoreId(6));
        assert_eq!(ends.own(), (3, 3));
    }

    #[test]
    fn messages_of_other_logs_are_noted_by_their_shards() {
        let mut ends = LogEnds::new(ShardId(1));
        let (log, number) = (LogId(0), 7);
        ends.note(Position { log, number });
        ends.note_on_disk(Position { log, number: 5 });
        assert_eq!((ends.all().of(log), ends.on_disk().of(log)), (7, 5));
        assert_eq!(ends.own(), (0, 0));
    }
}
