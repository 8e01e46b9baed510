//! What the ledger says: a verdict for each message at once, events for what is known later.

use std::ops::Range;
use std::time::Duration;

use super::limits::EVENTS_MAX;
use super::order::Moved;

/// What a message is, at the moment it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The number that was due.
    InOrder,
    /// A number above the one that was due. What lies between is suspected lost.
    Ahead,
    /// It fills a gap, or a drop record had named it ([`Event::DropContradicted`]).
    Late,
    /// It fills a gap that was reported lost already: late beyond the bound.
    Found,
    /// It fills a gap and is flagged re-sent.
    Repaired,
    /// A part of a split message whose other parts are still to come.
    Part,
    /// The number was seen, with the same leaf.
    Duplicate,
    /// The number was seen. The leaf of the first copy is no longer held, so whether this one has
    /// the same content is not known.
    Repeated,
    /// The number was seen, and the message is flagged re-sent.
    Replayed,
    /// The number was seen with other content, and both fit their digests: two producers use the
    /// lane, or one of the two is forged. Known only while the leaf of the first is held
    /// ([`super::LedgerLimits::hold_leaves`]). A root decides which one is real:
    /// [`Event::Decided`].
    Conflict,
    /// It does not fit its digest, and its number has not been seen. A good copy that is not a
    /// repair revises this to injected: [`Event::Injected`].
    Altered,
    /// It does not fit its digest, and its number was seen or is beyond the end of the epoch.
    Injected,
    /// Issued before the first window that began after the receiver joined: nothing is claimed.
    OutOfScope,
    /// There is no room for its lane, or nothing is known of its epoch: nothing is claimed.
    NotAudited,
}

/// What a window has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Its leaves are the producer's.
    Proven,
    /// A checkpoint covers it, and messages are missing, altered or forged; they are named.
    Faulty,
    /// No checkpoint that covers it was seen, or it was no longer held. It may be whole.
    Unproven,
}

/// What the messages of a window came to. The law: `issued` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Numbers that the producer gave, as its checkpoint says.
    pub issued: u64,
    /// Arrived. In a proven window, proven.
    pub arrived: u64,
    /// Declared dropped by a processor or a broker.
    pub dropped: u64,
    /// Not arrived, not declared, and given up.
    pub lost: u64,
    /// Arrived with content that does not fit the digest, and no good copy since.
    pub altered: u64,
    /// Arrived with a digest that fits and is not the producer's, and no good copy since.
    pub forged: u64,
    /// Not arrived, and may still come or have come to another member. Only in unproven windows.
    pub open: u64,
}

impl Account {
    /// Whether issued = arrived + declared drops + named faults, and what is open in an unproven
    /// window. Anything else is a defect of the audit itself.
    pub fn is_lawful(&self) -> bool {
        self.issued == self.accounted() + self.open
    }

    /// What is known of.
    pub(super) fn accounted(&self) -> u64 {
        self.arrived + self.dropped + self.lost + self.altered + self.forged
    }
}

/// What became known after the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Missing, as a later number or a checkpoint shows. They may only be late.
    Suspected(Range<u64>),
    /// What was suspected has come, was declared dropped, or is lost: nothing is any more.
    Settled,
    /// Missing, covered by a checkpoint, and later than the lateness bound.
    Lost {
        /// Which.
        numbers: Range<u64>,
        /// Nothing behind them came either: only the checkpoint tells of them.
        tail: bool,
    },
    /// Late, while others are still missing. It, or what has overtaken it, moved; which of them, as
    /// few as explain the disorder, is told when the disorder ends: [`Event::Moved`].
    Overtaken {
        /// Its number.
        number: u64,
        /// Numbers above it that have come before it.
        by: u64,
    },
    /// Out of their place.
    Moved(Moved),
    /// Copies taken for an altered message were not the producer's: the real one came.
    Injected {
        /// The number they bore.
        number: u64,
        /// How many.
        copies: u32,
    },
    /// Each fits its digest, but the producer issued another. The slots wait for the real ones.
    Forged(Range<u64>),
    /// At least one of these is forged, and which is not known: a subtree of a batch, or leaves
    /// that were folded, of which more than one is. All of their slots wait for the real ones.
    ForgedAmong(Range<u64>),
    /// Which of two copies is real; the other is injected.
    Decided {
        /// Their number.
        number: u64,
        /// Otherwise it is the first.
        second_is_real: bool,
    },
    /// A window ended, or ended differently than it had been reported.
    Window {
        /// Its numbers, as far as they were issued.
        numbers: Range<u64>,
        /// What it came to.
        state: State,
        /// What its messages came to.
        account: Account,
    },
    /// At least one of them fits its digest, and the producer issued another: the root of the
    /// window differs, or the fingerprints of a group do. A descent finds which:
    /// [`super::Request`].
    RootDiffers(Range<u64>),
    /// Checkpoints of the lane that did not come. Harmless when a later one proves the windows.
    CheckpointsMissed(Range<u32>),
    /// This checkpoint contradicts one before it. Which of the two is the producer's is not known.
    /// The larger of their sizes counts, and of two roots of one window the one that came first.
    CheckpointContradicts(u32),
    /// A checkpoint says that the epoch ended at this size, and a message with this number came
    /// and fits: one of the two is not the producer's. The epoch is taken as open, and the message
    /// is judged like any other.
    EndContradicted {
        /// What the checkpoint said.
        size: u64,
        /// The number beyond it.
        number: u64,
    },
    /// A drop record named this number, and the message came and fits: one of the two is not what
    /// it says. The message is judged like any other that comes late. Numbers that follow in turn
    /// are not named one by one.
    DropContradicted(u64),
    /// Twice or more, a message or a checkpoint contradicted another one of this epoch, and all of
    /// them fit: two producers use the lane, such as two copies of one machine, or one of them is
    /// forged. Named once for an epoch.
    TwoProducers,
    /// Numbers below this one are out of scope: the first sign of the epoch showed that it was
    /// under way. Nothing is claimed of them.
    OutOfScope(u64),
    /// A checkpoint with this number counts in windows of another size than this ledger, so it
    /// is not used.
    OtherWindows(u32),
    /// Two heartbeats without a checkpoint: so long ago was the last one, on the lane's clock.
    Silent(Duration),
    /// A checkpoint came to a lane that was silent: so long after the one before it.
    Heard(Duration),
    /// Lost long ago and no longer remembered: a copy that still comes will be called a duplicate.
    Forgotten(Range<u64>),
    /// The producer's directory no longer lists it, although nothing has closed it.
    Unlisted,
    /// So many events more came up while nobody took them, and are not named one by one. What is
    /// missing stands in the requests all the same.
    Unnamed(u64),
}

/// Events until they are taken, as many as there is room for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Events {
    list: Vec<Event>,
    unnamed: u64,
}

impl Events {
    pub(super) fn push(&mut self, event: Event) {
        if self.list.len() < EVENTS_MAX {
            self.list.push(event);
        } else {
            self.unnamed += 1;
        }
    }

    pub(super) fn extend(&mut self, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| self.push(event));
    }

    pub(super) fn take(&mut self) -> Vec<Event> {
        let Self { mut list, unnamed } = std::mem::take(self);
        list.extend((unnamed > 0).then_some(Event::Unnamed(unnamed)));
        list
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_lawful_if_its_parts_are_all_that_was_issued() {
        let account = Account {
            issued: 1 + 2 + 4 + 8 + 16 + 32,
            arrived: 1,
            dropped: 2,
            lost: 4,
            altered: 8,
            forged: 16,
            open: 32,
        };
        assert_eq!(account.accounted(), 31);
        assert!(account.is_lawful());
        let missing = Account {
            open: 31,
            ..account
        };
        assert!(!missing.is_lawful());
    }

    #[test]
    fn events_for_which_there_is_no_room_are_counted() {
        let event = |number: u64| Event::Suspected(number..number + 1);
        let most = u64::try_from(EVENTS_MAX).expect("it is small");
        let mut events = Events::default();
        events.extend((0..most).map(event));
        assert_eq!(
            events.clone().take(),
            (0..most).map(event).collect::<Vec<_>>()
        );
        events.extend([event(most), event(most + 1)]);
        let all = events.take();
        assert_eq!(all.len(), EVENTS_MAX + 1);
        assert_eq!(all.last(), Some(&Event::Unnamed(2)));
        assert_eq!(events.take(), []);
        events.push(event(0));
        events.clear();
        assert_eq!(events.take(), []);
    }
}
