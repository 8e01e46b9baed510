//! Letters between shards are numbered, so that one which is lost, comes twice or late on its way
//! is named and not only promised away.

use crate::clients::Clients;
use crate::ids::ShardId;
use crate::item::Item;
use crate::limits::SHARDS_MAX;
use crate::mail::{Letter, Mail};
use crate::mesh::is_plain;
use crate::output::Output;
use crate::reason::{FaultKind, FaultPlace};

/// The next number to and from each shard.
#[derive(Debug)]
pub(crate) struct LetterNumbers {
    to: [u64; SHARDS_MAX],
    from: [u64; SHARDS_MAX],
}

impl Default for LetterNumbers {
    fn default() -> Self {
        Self {
            to: [0; SHARDS_MAX],
            from: [0; SHARDS_MAX],
        }
    }
}

impl Clients {
    pub(crate) fn mail(&mut self, to: ShardId, letter: Letter) {
        self.close_bundle(to);
        self.number(to, letter);
    }

    /// Sends a letter as the next one.
    pub(crate) fn number(&mut self, to: ShardId, letter: Letter) {
        let next = &mut self.letters.to[usize::from(to.0)];
        let number = *next;
        *next += 1;
        let mail = Mail { letter, number };
        self.outputs.push_back(Output::Mail { to, mail });
    }

    /// Looks at the number of a letter that came.
    pub(crate) fn note_letter(&mut self, from: ShardId, number: u64) {
        let due = &mut self.letters.from[usize::from(from.0)];
        if number == *due {
            *due += 1;
            return;
        }
        let expected = *due;
        *due = expected.max(number + 1);
        let (kind, first) = if number > expected {
            (FaultKind::Lost, expected)
        } else {
            (FaultKind::Duplicated, number)
        };
        let count = number.saturating_sub(expected).max(1);
        self.fault(FaultPlace::Letters(from), kind, first, count);
    }
}

impl Clients {
    /// Sends a message to another shard with others, if it is one of those; answers whether it is.
    pub(crate) fn bundle(&mut self, to: ShardId, item: &Item<'_>) -> bool {
        if !is_plain(&item.publication) {
            return false;
        }
        if let Some(full) = self.bundles.add(to, &item.publication, item.publisher) {
            self.number(to, Letter::Bundle(full));
        }
        true
    }

    /// Puts what is bundled for this shard into the mail.
    #[inline]
    pub(crate) fn close_bundle(&mut self, to: ShardId) {
        if let Some(bundle) = self.bundles.take(to) {
            self.number(to, Letter::Bundle(bundle));
        }
    }

    /// The same for every shard.
    #[inline]
    pub(crate) fn close_bundles(&mut self) {
        while let Some(to) = self.bundles.first_begun() {
            self.close_bundle(to);
        }
    }
}
