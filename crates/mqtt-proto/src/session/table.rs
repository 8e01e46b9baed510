//! In-flight entries by packet id, in the order in which they were begun.
//!
//! ```text
//!   slots: a power of two, at least twice the entries     an id lives in slot `id % slots`
//!   +----+----+----+----+----+----+----+----+
//!   |    | 17 | 18 |    |  4 |    |  6 |    |             4 is old and not yet answered
//!   +----+----+----+----+----+----+----+----+             order: 4 -> 6 -> 17 -> 18, linked by id
//! ```
//!
//! Ids are given out in sequence. One whose slot is taken by an old entry is passed over, so a
//! look-up is one index and one comparison however long an entry stays, an id in flight is never
//! given out again `[MQTT-2.2.1-4]` `[MQTT-4.3.2-1]` `[MQTT-4.3.3-1]` `[MQTT311-2.3.1-3]`
//! `[MQTT311-2.3.1-4]`, and an id that was just freed is not reused at once, which makes a client
//! that acknowledges twice harmless. At least half of the slots are free, hence passing over costs
//! at most one step per entry begun, taken over a round of the table.
//!
//! Memory follows the entries in flight, not the distance between the oldest and the newest id: one
//! message that is never acknowledged does not make the table grow.

use crate::PacketId;

/// The most entries at a time: half of the ids, so that a free one is always near.
pub(super) const MAX_ENTRIES: u16 = 32_767;

/// Slots of the smallest table, which is kept when idle.
const MIN_SLOTS: usize = 8;

/// Slots of the largest table: one for each 16-bit number; the one for 0 stays empty.
const MAX_SLOTS: usize = 65_536;

/// How often a table runs empty, without having needed its size, before it gets smaller.
const LULL_MAX: u8 = 64;

#[derive(Clone, Debug)]
pub(super) struct Table<V> {
    /// Empty, or a power of two of them.
    slots: Vec<Option<Linked<V>>>,
    len: u32,
    /// The most entries since its size was last in use.
    peak: u32,
    /// How many times it has run empty since.
    lull: u8,
    oldest: Option<PacketId>,
    newest: Option<PacketId>,
    /// The id given out last; 0 before the first.
    last_id: u16,
}

#[derive(Clone, Debug)]
struct Linked<V> {
    id: PacketId,
    older: Option<PacketId>,
    newer: Option<PacketId>,
    value: V,
}

impl<V> Table<V> {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            len: 0,
            peak: 0,
            lull: 0,
            oldest: None,
            newest: None,
            last_id: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there may be one more.
    pub(super) fn has_room(&self) -> bool {
        self.len() < usize::from(MAX_ENTRIES)
    }

    /// The next free id, with room for its entry; none when the table is full.
    pub(super) fn vacant_id(&mut self) -> Option<PacketId> {
        if !self.has_room() {
            return None;
        }
        self.reserve_one();
        let mut number = self.last_id;
        // Ends within one round: half of the slots are free.
        loop {
            number = number.wrapping_add(1);
            if let Some(id) = PacketId::new(number)
                && self.slot(id).is_some_and(Option::is_none)
            {
                return Some(id);
            }
        }
    }

    /// Adds the newest entry, under what [`vacant_id`](Self::vacant_id) just gave.
    pub(super) fn push(&mut self, id: PacketId, value: V) {
        let older = self.newest.replace(id);
        match older.and_then(|older| self.linked_mut(older)) {
            Some(older) => older.newer = Some(id),
            None => self.oldest = Some(id),
        }
        if let Some(slot) = self.slot_mut(id) {
            debug_assert!(slot.is_none(), "the slot was found free");
            *slot = Some(Linked {
                id,
                older,
                newer: None,
                value,
            });
        }
        self.last_id = id.get();
        self.len += 1;
        self.peak = self.peak.max(self.len);
    }

    /// Adds the newest entry under an id that was given out in an earlier life. False: id in use.
    /// They may be more than [`MAX_ENTRIES`]: some had ended, and nobody had noted it.
    pub(super) fn push_with_id(&mut self, id: PacketId, value: V) -> bool {
        if self.get(id).is_some() {
            return false;
        }
        self.reserve_one();
        // Entries that were in one table together have a table of that size in which they fit.
        while self.slot(id).is_some_and(Option::is_some) {
            self.grow();
        }
        self.push(id, value);
        true
    }

    /// The next id to be given out is behind this number.
    pub(super) fn go_on_behind(&mut self, number: u16) {
        self.last_id = number;
    }

    pub(super) fn get(&self, id: PacketId) -> Option<&V> {
        self.linked(id).map(|linked| &linked.value)
    }

    pub(super) fn get_mut(&mut self, id: PacketId) -> Option<&mut V> {
        self.linked_mut(id).map(|linked| &mut linked.value)
    }

    pub(super) fn oldest(&self) -> Option<PacketId> {
        self.oldest
    }

    pub(super) fn newest(&self) -> Option<PacketId> {
        self.newest
    }

    /// The entry begun after `id`.
    pub(super) fn newer(&self, id: PacketId) -> Option<PacketId> {
        self.linked(id).and_then(|linked| linked.newer)
    }

    pub(super) fn remove(&mut self, id: PacketId) -> Option<V> {
        let linked = self.slot_mut(id)?.take_if(|linked| linked.id == id)?;
        match linked.older.and_then(|older| self.linked_mut(older)) {
            Some(older) => older.newer = linked.newer,
            None => self.oldest = linked.newer,
        }
        match linked.newer.and_then(|newer| self.linked_mut(newer)) {
            Some(newer) => newer.older = linked.older,
            None => self.newest = linked.older,
        }
        self.len -= 1;
        if self.len == 0 {
            self.ran_empty();
        }
        Some(linked.value)
    }

    /// Entries from the oldest to the newest.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PacketId, &V)> {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let linked = self.linked(next?)?;
            next = linked.newer;
            Some((linked.id, &linked.value))
        })
    }

    /// Room for one more entry while half of the slots stay free, or each id has its own.
    fn reserve_one(&mut self) {
        let is_largest = self.slots.len() == MAX_SLOTS;
        if self.slots.is_empty() || self.len() >= self.slots.len() / 2 && !is_largest {
            self.grow();
        }
    }

    /// Ids that had different slots have different ones in twice as many.
    #[cold]
    fn grow(&mut self) {
        let count = (self.slots.len() * 2).clamp(MIN_SLOTS, MAX_SLOTS);
        let old = std::mem::take(&mut self.slots);
        self.slots.resize_with(count, || None);
        for linked in old.into_iter().flatten() {
            if let Some(slot) = self.slot_mut(linked.id) {
                *slot = Some(linked);
            }
        }
    }

    /// The table is empty. Gives back the memory of a burst once the table has been filled and
    /// emptied often without needing it: between two bursts come many single messages, and what the
    /// next burst needs is not to be allocated again.
    fn ran_empty(&mut self) {
        let wanted = (self.peak as usize * 4).next_power_of_two();
        let wanted = wanted.max(MIN_SLOTS);
        if wanted < self.slots.len() {
            self.lull += 1;
            if self.lull < LULL_MAX {
                return;
            }
            self.slots.truncate(wanted);
            self.slots.shrink_to_fit();
        }
        self.lull = 0;
        self.peak = 0;
    }

    /// Gives back all memory if there are no entries.
    pub(super) fn shrink_idle(&mut self) {
        if self.len == 0 {
            self.slots = Vec::new();
        }
    }

    fn slot_index(&self, id: PacketId) -> usize {
        usize::from(id.get()) & self.slots.len().wrapping_sub(1)
    }

    fn slot(&self, id: PacketId) -> Option<&Option<Linked<V>>> {
        self.slots.get(self.slot_index(id))
    }

    fn slot_mut(&mut self, id: PacketId) -> Option<&mut Option<Linked<V>>> {
        let index = self.slot_index(id);
        self.slots.get_mut(index)
    }

    fn linked(&self, id: PacketId) -> Option<&Linked<V>> {
        self.slot(id)?.as_ref().filter(|linked| linked.id == id)
    }

    fn linked_mut(&mut self, id: PacketId) -> Option<&mut Linked<V>> {
        self.slot_mut(id)?.as_mut().filter(|linked| linked.id == id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids<V>(table: &Table<V>) -> Vec<u16> {
        table.iter().map(|(id, _)| id.get()).collect()
    }

    fn push<V>(table: &mut Table<V>, value: V) -> PacketId {
        let id = table.vacant_id().unwrap();
        table.push(id, value);
        id
    }

    #[test]
    fn ids_follow_each_other_and_wrap_past_zero() {
        let mut table = Table::new();
        for round in 0..2 {
            for number in 1..=u16::MAX {
                let id = push(&mut table, round);
                assert_eq!(id.get(), number);
                assert_eq!(table.remove(id), Some(round));
            }
        }
    }

    // [MQTT-2.2.1-3] [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1] [MQTT311-2.3.1-2]
    // [MQTT311-2.3.1-3] [MQTT311-2.3.1-4]
    #[test]
    fn an_id_that_is_never_answered_is_never_given_out_again() {
        let mut table = Table::new();
        let stuck = [
            push(&mut table, 0),
            push(&mut table, 0),
            push(&mut table, 0),
        ];
        for value in 1..=210_000 {
            let id = push(&mut table, value);
            assert!(!stuck.contains(&id));
            assert_eq!(table.remove(id), Some(value));
        }
        assert_eq!(ids(&table), [1, 2, 3]);
        assert_eq!(
            table.slots.len(),
            MIN_SLOTS,
            "the distance between ids costs no memory"
        );
    }

    #[test]
    fn a_full_table_gives_no_id_until_one_is_free() {
        let mut table = Table::new();
        for _ in 0..MAX_ENTRIES {
            push(&mut table, ());
        }
        assert_eq!(table.vacant_id(), None);
        assert_eq!(table.slots.len(), MAX_SLOTS);
        assert!(table.remove(PacketId::FIRST).is_some());
        let id = push(&mut table, ());
        assert_eq!(id.get(), MAX_ENTRIES + 1);
    }

    #[test]
    fn memory_of_a_burst_is_given_back_after_a_lull() {
        let mut table = Table::new();
        let burst = |table: &mut Table<()>, count| {
            let ids: Vec<_> = (0..count).map(|_| push(table, ())).collect();
            assert!(ids.into_iter().all(|id| table.remove(id).is_some()));
            table.slots.len()
        };
        let slots = burst(&mut table, 1_000);
        assert!(slots >= 2_000);
        assert_eq!(
            burst(&mut table, 1_000),
            slots,
            "the same again needs the same memory"
        );
        for _ in 1..LULL_MAX {
            assert_eq!(burst(&mut table, 1), slots, "another may come");
        }
        assert_eq!(burst(&mut table, 1), MIN_SLOTS);
        table.shrink_idle();
        assert_eq!(table.slots.capacity(), 0);
    }

    #[test]
    fn entries_of_an_earlier_life_keep_ids_and_order() {
        let mut table = Table::new();
        for number in [9, 1, 17, 65_535] {
            assert!(table.push_with_id(PacketId::new(number).unwrap(), number));
        }
        assert!(!table.push_with_id(PacketId::FIRST, 0));
        assert_eq!(ids(&table), [9, 1, 17, 65_535]);
        assert_eq!(push(&mut table, 0).get(), 2, "1 is in use");
    }

    #[test]
    fn entries_of_an_earlier_life_may_have_all_ids_there_are() {
        let mut table = Table::new();
        for number in 1..=u16::MAX {
            assert!(table.push_with_id(PacketId::new(number).unwrap(), number));
        }
        assert!(!table.push_with_id(PacketId::FIRST, 0));
        assert_eq!(table.slots.len(), MAX_SLOTS);
        for number in 1..=u16::MAX {
            let many = u16::MAX - number >= MAX_ENTRIES;
            assert_eq!(table.remove(PacketId::new(number).unwrap()), Some(number));
            assert_eq!(table.vacant_id().is_none(), many, "{number}");
        }
    }

    proptest! {
        /// The reference model is a list: what was pushed, in that order, without what was removed.
        #[test]
        fn a_table_is_a_list_with_fast_look_up(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..400),
        ) {
            let mut table = Table::new();
            let mut model: Vec<(PacketId, usize)> = Vec::new();
            for (step, (grow, which)) in steps.into_iter().enumerate() {
                if grow || model.is_empty() {
                    let id = push(&mut table, step);
                    prop_assert!(model.iter().all(|&(used, _)| used != id));
                    model.push((id, step));
                } else {
                    let (id, value) = model.remove(which.index(model.len()));
                    prop_assert_eq!(table.remove(id), Some(value));
                    prop_assert_eq!(table.remove(id), None);
                    prop_assert_eq!(table.get(id), None);
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.oldest(), model.first().map(|&(id, _)| id));
                prop_assert!(table.iter().eq(model.iter().map(|(id, value)| (*id, value))));
                for pair in model.windows(2) {
                    prop_assert_eq!(table.newer(pair[0].0), Some(pair[1].0));
                    prop_assert_eq!(table.get(pair[0].0), Some(&pair[0].1));
                }
            }
        }
    }
}
