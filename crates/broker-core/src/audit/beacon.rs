//! Checkpoints of a client's ingress lane, for receivers who get its stamps.
//!
//! A lane whose stamps are forwarded (`forward_stamp`) speaks like that of any publisher: on
//! `<prefix>/checkpoint/<lane>`, for each full window at once, else a second after something was
//! numbered, once more a second later, and then every ten, to whoever is there; and when the
//! session ends, that it is over. So a receiver of all that the client publishes proves the lane
//! from the broker to itself. What is told after a crash says [`super::crash_recovery`].
//! Who gets a part of it can prove nothing, and must say that it takes a part.
//!
//! **Absent:** repair. The broker keeps no message that it has delivered, so what a receiver misses
//! is named and cannot be sent again.

use std::time::Instant;

use unbroken_merkle_log::ledger::limits::{WINDOW, WINDOW_LOG2};
use unbroken_merkle_log::{Checkpoint, CompactRange, Detail, EpochEnd, Hash, Xxh3};

use super::lane::IngressLane;
use super::watch::{Report, Watch};
use crate::durability::LaneTold;

/// What a lane has told of itself. About 60 bytes.
#[derive(Debug, Default)]
pub(crate) struct Beacon {
    /// Checkpoints told.
    told: u32,
    /// Messages in the last one.
    told_of: u64,
    /// Ticks since the last one.
    silent: u32,
    /// The last one told nothing new.
    repeated: bool,
    /// Of the last full window. As soon as it is full it is lost in the hashes of the lane.
    full_root: Option<Hash>,
}

impl Beacon {
    pub(super) fn told(&self) -> LaneTold {
        let root = self.full_root.as_ref();
        LaneTold {
            checkpoints: self.told,
            size: self.told_of,
            full_root: root
                .map(|root| root.as_bytes().to_vec())
                .unwrap_or_default(),
        }
    }

    /// As it was on disk. Who gets its stamps is told soon.
    pub(super) fn restore(told: &LaneTold) -> Self {
        Self {
            told: told.checkpoints,
            told_of: told.size,
            silent: 0,
            repeated: false,
            full_root: told.root(),
        }
    }
}

impl IngressLane {
    /// Its stamps are forwarded from now on. True: that is new.
    pub(super) fn begin_telling(&mut self) -> bool {
        let is_new = self.beacon.is_none();
        self.beacon.get_or_insert_default();
        is_new
    }

    /// This leaf fills a window.
    #[cold]
    pub(super) fn note_full_window(&mut self, leaf: Hash) {
        let mut window = self.open_window();
        window.append(&Xxh3, leaf);
        if let Some(beacon) = &mut self.beacon {
            beacon.full_root = window.root(&Xxh3);
        }
    }

    /// Tells a window that has just become full.
    pub(super) fn tell_full_window(&mut self, now: Instant, watch: &mut Watch) {
        if self.beacon.is_some() && self.size().is_multiple_of(WINDOW) {
            self.tell_checkpoint(now, EpochEnd::Open, watch);
        }
    }

    /// A second has passed.
    pub(super) fn tick_beacon(&mut self, now: Instant, end: EpochEnd, watch: &mut Watch) {
        let size = self.size();
        let Some(beacon) = &mut self.beacon else {
            return;
        };
        beacon.silent += 1;
        if beacon.told_of != size || !beacon.repeated || beacon.silent >= IDLE_TICKS {
            self.tell_checkpoint(now, end, watch);
        }
    }

    /// The session is over, and the lane with it.
    pub(super) fn tell_last_checkpoint(&mut self, now: Instant, watch: &mut Watch) {
        self.tell_checkpoint(now, EpochEnd::Closed, watch);
    }

    fn tell_checkpoint(&mut self, now: Instant, end: EpochEnd, watch: &mut Watch) {
        let (size, lane_root) = (self.size(), self.root());
        let window_root = self.open_window().root(&Xxh3);
        let Some(beacon) = &mut self.beacon else {
            return;
        };
        let is_full = size.is_multiple_of(WINDOW);
        // Of a window that was full before anybody was told of the lane nothing is known.
        let Some(window_root) = (if is_full {
            beacon.full_root
        } else {
            window_root
        }) else {
            return;
        };
        let checkpoint = Checkpoint {
            lane: self.id,
            epoch: self.epoch,
            number: beacon.told,
            window_log2: WINDOW_LOG2,
            first: (size - 1) / WINDOW * WINDOW,
            size,
            time_us: watch.time_us(now),
            window_root,
            lane_root,
            end,
            detail: Detail::None,
        };
        beacon.told = beacon.told.saturating_add(1);
        let is_new = beacon.told_of != size || !beacon.repeated || end == EpochEnd::Closed;
        beacon.repeated = beacon.told_of == size;
        beacon.told_of = size;
        beacon.silent = 0;
        let mut payload = Vec::new();
        checkpoint.encode(&Xxh3, &mut payload);
        let report = Report::checkpoint(self.id, is_new, watch, payload);
        watch.report(report);
    }

    /// The leaves behind the last full window.
    fn open_window(&self) -> CompactRange {
        let first = self.size() / WINDOW * WINDOW;
        let mut window = CompactRange::new(first);
        for (level, index, hash) in self.leaves.subtrees() {
            if index << level >= first {
                let taken = window.append_subtree(&Xxh3, level, hash);
                debug_assert!(taken.is_ok(), "subtrees follow each other");
            }
        }
        window
    }
}

/// Ticks between two checkpoints of a lane that says nothing new.
const IDLE_TICKS: u32 = 10;
