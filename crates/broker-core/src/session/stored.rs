//! What is kept on disk of a session that stays, as its shard knows it.
//!
//! ```text
//! of each log:  ... given a packet id | waits in memory | waits on disk only ...
//!                                     ^ through
//! entries:      messages that have a packet id, or were given to this session by a group
//! ```
//!
//! What the session is owed is what its subscriptions match above *through*, and its entries:
//! nothing else. Both are told to the disk together, in a
//! [`Record::Progress`](crate::Record::Progress), so that a message is never in both or in neither.
//! When it is written: [`crate::shard`]; and what: [`super::progress`].
//!
//! Invariants:
//! - An entry's number is given once. A packet id may be another message's before the end of the
//!   first is on disk; an entry is not.
//! - Numbers of entries with a packet id are in the order of the packet ids: what a group gave, and
//!   waited as an entry, gets another number with its id.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;

use unbroken_mqtt_proto::PacketId;

use super::redelivery::Redelivery;
use crate::durability::MaybeSent;
use crate::ids::{LogId, StoreId};
use crate::option_box::OptionBox;
use crate::position::{Frontier, Position};
use crate::session::{Backlog, Session, StoredSubscriptions};

/// A session's part of the disk.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// What waits on disk and not here; the session is *behind*.
    pub(crate) backlog: Option<Box<Backlog>>,
    /// Subscriptions, past ones while they may be needed.
    pub(crate) subscriptions: StoredSubscriptions,
    /// Messages of QoS 2 that have their packet ids before the window has places for them, in
    /// order, each with the request that stores it.
    pub(crate) ahead: OptionBox<VecDeque<(PacketId, StoreId)>>,
    /// What is under way, if anything is: a session that sleeps has nothing, and sleepers are many.
    pub(crate) under_way: Option<Box<UnderWay>>,
    /// Entries of an earlier run of the broker, if there are any.
    earlier: Option<Box<Earlier>>,
    /// Entries ever, and those up to which the disk was told [progress](crate::Progress) of all.
    pub(crate) entries: u64,
    pub(crate) reported_entries: u64,
    /// What the client may have been sent before the broker was started.
    pub(crate) redelivery: Redelivery,
    /// The disk is to be told of progress.
    pub(crate) touched: bool,
    /// Whether it is connected is to be told.
    pub(crate) presence: bool,
    /// As the disk knows it.
    pub(crate) through: Frontier,
}

/// Entries between their packet id and the moment when the disk knows their end.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// Entries on disk, by the packet id that they have.
    pub(crate) recorded: BTreeMap<PacketId, u64>,
    /// Entries that the disk is to be told of, by their packet id.
    pub(crate) unstored: BTreeMap<PacketId, UnstoredEntry>,
    /// Among those are some that waited as entries.
    pub(crate) sent_what_waited: bool,
    /// Entries on disk that have come to their end.
    pub(crate) ended: Vec<u64>,
    /// Subscriptions for which all that is retained was sent, and the disk does not know.
    pub(crate) scanned: Vec<Box<str>>,
}

/// An entry that got its packet id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnstoredEntry {
    pub(crate) number: u64,
    /// The entry as which it waited: on disk, and over with this one.
    pub(crate) waited: Option<NonZeroU64>,
}

/// Entries of an earlier run of the broker: they may lie above *through*, where the log is still to
/// be read.
#[derive(Debug, Default)]
struct Earlier {
    /// Of which message each is.
    entries: BTreeMap<u64, Position>,
    /// Those that are over, and are to be known on disk until the log is read.
    done: Vec<(u64, Position)>,
}

impl Kept {
    /// Of a session that begins, or of one as the disk had it.
    pub(crate) fn new(through: Frontier) -> Self {
        Self {
            through,
            ..Self::default()
        }
    }

    /// The disk has an entry with this number.
    pub(crate) fn restore_entry(
        &mut self,
        number: u64,
        packet_id: Option<PacketId>,
        position: Option<Position>,
    ) {
        self.entries = self.entries.max(number);
        if let Some(position) = position {
            let earlier = self.earlier.get_or_insert_default();
            earlier.entries.insert(number, position);
        }
        if let Some(id) = packet_id {
            self.under_way().recorded.insert(id, number);
        }
    }

    /// The disk has an entry that is over.
    pub(crate) fn restore_done(&mut self, number: u64, position: Position) {
        self.entries = self.entries.max(number);
        let earlier = self.earlier.get_or_insert_default();
        earlier.done.push((number, position));
    }

    /// The disk has an entry whose end was on its way there.
    pub(crate) fn restore_over(&mut self, number: u64, position: Option<Position>) {
        self.restore_entry(number, None, position);
        self.under_way().ended.push(number);
    }

    /// What the client may have been sent; if it was connected all that there is, up to here in the
    /// logs.
    pub(crate) fn restore_redelivery(&mut self, stored: MaybeSent, connected: Option<&Frontier>) {
        self.redelivery = match connected {
            Some(through) => Redelivery::unstored(MaybeSent {
                through: through.clone(),
                entries: self.entries,
            }),
            None if stored == MaybeSent::default() => Redelivery::default(),
            None => Redelivery::stored(stored),
        };
    }

    /// Takes out the entries that have come to their end: what can be forgotten, and what must be
    /// known until the log is read up to `through` and beyond it.
    pub(crate) fn take_ended(&mut self, through: &Frontier) -> (Vec<u64>, Vec<(u64, Position)>) {
        let mut over = self.take_over();
        let mut done = Vec::new();
        let Some(earlier) = &mut self.earlier else {
            return (over, done);
        };
        let read = |(_, position): &mut (u64, Position)| through.covers(*position);
        let read = earlier.done.extract_if(.., read);
        over.extend(read.map(|(number, _)| number));
        over.retain(|number| match earlier.entries.remove(number) {
            Some(position) if !through.covers(position) => {
                done.push((*number, position));
                false
            }
            _ => true,
        });
        earlier.done.extend(&done);
        if earlier.entries.is_empty() && earlier.done.is_empty() {
            self.earlier = None;
        }
        (over, done)
    }

    pub(crate) fn under_way(&mut self) -> &mut UnderWay {
        self.under_way.get_or_insert_default()
    }

    /// The entries that have come to their end since it was last asked.
    fn take_over(&mut self) -> Vec<u64> {
        let Some(under_way) = &mut self.under_way else {
            return Vec::new();
        };
        let over = std::mem::take(&mut under_way.ended);
        if under_way.recorded.is_empty() && under_way.unstored.is_empty() {
            self.under_way = None;
        }
        over
    }

    /// No entry of an earlier run is left, and all that have come to their end since the disk was
    /// told of all were told then: what they were lies below what it was told.
    pub(crate) fn is_plain(&self) -> bool {
        let is_reported = |number: &u64| *number <= self.reported_entries;
        let under_way = self.under_way.as_ref();
        self.earlier.is_none()
            && under_way.is_none_or(|it| !it.sent_what_waited && it.ended.iter().all(is_reported))
    }

    /// An entry that waited has a packet id, and the disk does not know.
    pub(crate) fn sent_what_waited(&self) -> bool {
        let under_way = self.under_way.as_ref();
        under_way.is_some_and(|under_way| under_way.sent_what_waited)
    }

    /// A number for another entry.
    pub(crate) fn entry(&mut self) -> u64 {
        self.entries += 1;
        self.entries
    }

    /// The entry on disk of a message under this id.
    pub(crate) fn entry_of(&self, id: PacketId) -> Option<u64> {
        self.under_way.as_ref()?.recorded.get(&id).copied()
    }

    /// What was sent under this id has come to its end.
    pub(crate) fn end_entry(&mut self, id: PacketId) {
        let Some(under_way) = self.under_way.as_deref_mut() else {
            return;
        };
        let ended = under_way.recorded.remove(&id);
        let unstored = under_way.unstored.remove(&id);
        let waited = unstored.and_then(|unstored| unstored.waited);
        under_way.ended.extend(ended);
        under_way.ended.extend(waited.map(NonZeroU64::get));
    }
}

impl Session {
    /// It outlives its connection, and is on disk.
    pub(crate) fn is_durable(&self) -> bool {
        self.kept.is_some()
    }

    /// What it is owed is in part on disk only.
    pub(crate) fn is_behind(&self) -> bool {
        self.kept
            .as_ref()
            .is_some_and(|kept| kept.backlog.is_some())
    }

    /// All up to here was given a packet id, is among the entries, or is not for this session.
    pub(crate) fn through(&self, tails: &Frontier) -> Frontier {
        let behind = self.kept.as_ref().and_then(|kept| kept.backlog.as_ref());
        let mut through = behind.map_or_else(|| tails.clone(), |backlog| backlog.read.clone());
        // In the order of each log: the first of each is the lowest, and few logs are many.
        let mut logs: Vec<LogId> = Vec::new();
        for delivery in self.outbox.queued() {
            if let Some(position) = delivery.message.position()
                && delivery.entry == 0
                && !logs.contains(&position.log)
            {
                logs.push(position.log);
                through.lower(position);
            }
        }
        through
    }
}

impl Session {
    /// It holds on to all of the logs that is not within.
    pub(crate) fn holds_from(&self, tails: &Frontier) -> Frontier {
        let mut needed = tails.clone();
        self.lower_to_needs(&mut needed, tails);
        needed
    }

    pub(crate) fn lower_to_needs(&self, needed: &mut Frontier, tails: &Frontier) {
        let Some(kept) = self.kept.as_deref() else {
            return;
        };
        let own = match &kept.backlog {
            Some(backlog) => backlog.needs(tails),
            None => tails,
        };
        for (log, number) in tails.iter() {
            if own.of(log) < number {
                needed.lower(Position {
                    log,
                    number: own.of(log) + 1,
                });
            }
        }
        for position in self.positions_here() {
            needed.lower(position);
        }
    }

    /// Of what waits in memory or is under way.
    fn positions_here(&self) -> impl Iterator<Item = Position> + '_ {
        let deliveries = self.outbox.iter();
        deliveries.filter_map(|delivery| delivery.message.position())
    }
}
