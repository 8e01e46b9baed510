//! The parties on record and the ends they hold, and the circles among them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::{End, Party, Wait};
use crate::closed::At;

/// Who holds an end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    party: Party,
    /// Tells the ends apart that have been at one address.
    since: u64,
}

/// A party on record, in words and by what it waits for.
struct Waiting {
    name: String,
    waits: Vec<Wait>,
}

#[derive(Default)]
pub(super) struct Table {
    holders: HashMap<End, Holder>,
    /// How often an end has come into somebody's hands.
    hands: u64,
    parties: HashMap<Party, Waiting>,
}

impl Table {
    /// An end belongs to this party from now on.
    pub(super) fn hold(&mut self, end: End, party: Party) -> Holder {
        let before = self.holders.get(&end).copied();
        if let Some(holder) = before.filter(|before| before.party == party) {
            return holder;
        }
        self.forget(end);
        self.hands += 1;
        let since = self.hands;
        let holder = Holder { party, since };
        self.holders.insert(end, holder);
        holder
    }

    pub(super) fn holder(&self, end: End) -> Option<Holder> {
        self.holders.get(&end).copied()
    }

    /// An end is left.
    pub(super) fn forget(&mut self, end: End) {
        let Some(Holder { party, .. }) = self.holders.remove(&end) else {
            return;
        };
        let waits = |waiting: &Waiting| waiting.waits.iter().any(|wait| wait.end == end);
        if self.parties.get(&party).is_some_and(waits) {
            self.get_up(party);
        }
    }

    /// Whatever comes now is not mistaken for what was there.
    pub(super) fn clear(&mut self) {
        self.holders.clear();
        self.parties.clear();
    }

    /// Puts a party on record, and says what circle it closes by that.
    pub(super) fn lie_down(
        &mut self,
        party: Party,
        name: String,
        waits: Vec<Wait>,
    ) -> Option<String> {
        self.parties.insert(party, Waiting { name, waits });
        self.circle(party)
    }

    pub(super) fn get_up(&mut self, party: Party) {
        self.parties.remove(&party);
    }

    /// Whom this wait waits for.
    fn awaited(&self, wait: &Wait) -> Option<Party> {
        Some(self.holder(wait.end.other())?.party)
    }

    /// The circle that the wait of this party closes, in words.
    fn circle(&self, begin: Party) -> Option<String> {
        if !self.stuck_with(begin).contains(&begin) {
            return None;
        }
        // The shortest way back. All on it are stuck, because whoever waits for one that is not
        // is not stuck.
        let mut came_from: HashMap<Party, (Party, usize)> = HashMap::new();
        let mut next = VecDeque::from([begin]);
        while let Some(party) = next.pop_front() {
            for (index, wait) in self.parties.get(&party)?.waits.iter().enumerate() {
                let other = self.awaited(wait)?;
                if came_from.contains_key(&other) {
                    continue;
                }
                came_from.insert(other, (party, index));
                if other == begin {
                    return self.words(begin, &came_from);
                }
                next.push_back(other);
            }
        }
        None
    }

    /// Of those that this party waits for, directly or not, those who can do nothing.
    fn stuck_with(&self, begin: Party) -> HashSet<Party> {
        let mut stuck = HashSet::new();
        let mut next = vec![begin];
        while let Some(party) = next.pop() {
            if let Some(waiting) = self.parties.get(&party)
                && !waiting.waits.iter().any(|wait| wait.what.is_there())
                && stuck.insert(party)
            {
                next.extend(waiting.waits.iter().filter_map(|wait| self.awaited(wait)));
            }
        }
        // Whoever waits for one that is not stuck is not stuck either.
        let goes_on = |party: &Party, stuck: &HashSet<Party>| {
            let mut waits = self.parties[party].waits.iter();
            waits.any(|wait| {
                !self
                    .awaited(wait)
                    .is_some_and(|other| stuck.contains(&other))
            })
        };
        while let Some(free) = stuck.iter().copied().find(|party| goes_on(party, &stuck)) {
            stuck.remove(&free);
        }
        stuck
    }

    fn words(&self, begin: Party, came_from: &HashMap<Party, (Party, usize)>) -> Option<String> {
        let mut parts = VecDeque::new();
        let mut party = begin;
        loop {
            let (before, index) = *came_from.get(&party)?;
            let waiting = self.parties.get(&before)?;
            let At { protocol, state } = waiting.waits[index].at;
            let others = match waiting.waits.len() {
                1 => String::new(),
                count => format!(", one of {count},"),
            };
            let name = &self.parties.get(&party)?.name;
            parts.push_front(format!("waits in `{protocol}.{state}`{others} for {name}"));
            party = before;
            if party == begin {
                break;
            }
        }
        let words = Vec::from(parts).join(", which ");
        Some(format!("{} {words}", self.parties.get(&begin)?.name))
    }
}

pub(super) fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    let table = TABLE.get_or_init(Mutex::default);
    // Nothing panics under the lock.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
