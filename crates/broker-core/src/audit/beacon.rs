//! Checkpoints of a client's ingress lane, for receivers that get its stamps.
//!
//! A lane whose stamps are forwarded (`forward_stamp`) has checkpoints like that of any publisher,
//! on `<prefix>/checkpoint/<lane>`: at once for each full window, else a second after a message was
//! numbered, once more a second later, and then every ten seconds to receivers that are connected;
//! and a last one when the session ends. So a receiver of all that the client publishes proves the
//! lane from the broker to itself. What follows a crash is in [`super::crash_recovery`]. A receiver
//! of a part of the lane can prove nothing, and must state that it takes a part.
//!
//! **Absent:** repair. The broker keeps no message that it has delivered. What a receiver misses is
//! named and cannot be sent again.

use std::time::Instant;

use unbroken_merkle_log::ledger::limits::{WINDOW, WINDOW_LOG2};
use unbroken_merkle_log::{Checkpoint, CompactRange, Detail, EpochEnd, Hash, Xxh3};

use super::lane::IngressLane;
use super::watch::{Report, Watch};
use crate::durability::LaneTold;

/// The checkpoints of a lane so far. About 60 bytes.
#[derive(Debug, Default)]
pub(crate) struct Beacon {
    /// Checkpoints sent.
    sent: u32,
    /// Messages in the last one.
    sent_size: u64,
    /// Ticks since the last one.
    silent: u32,
    /// The last one had nothing new.
    repeated: bool,
    /// Of the last full window. As soon as it is full it is lost in the hashes of the lane.
    full_root: Option<Hash>,
}

impl Beacon {
    pub(super) fn told(&self) -> LaneTold {
        let root = self.full_root.as_ref();
        LaneTold {
            checkpoints: self.sent,
            size: self.sent_size,
            full_root: root
                .map(|root| root.as_bytes().to_vec())
                .unwrap_or_default(),
        }
    }

    /// As it was on disk. Receivers of its stamps soon get a checkpoint.
    pub(super) fn restore(told: &LaneTold) -> Self {
        Self {
            sent: told.checkpoints,
            sent_size: told.size,
            silent: 0,
            repeated: false,
            full_root: told.root(),
        }
    }
}

impl IngressLane {
    /// Its stamps are forwarded from now on. True: that is new.
    pub(super) fn begin_sending(&mut self) -> bool {
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
    pub(super) fn send_full_window(&mut self, now: Instant, watch: &mut Watch) {
        if self.beacon.is_some() && self.size().is_multiple_of(WINDOW) {
            self.send_checkpoint(now, EpochEnd::Open, watch);
        }
    }

    /// A second has passed.
    pub(super) fn tick_beacon(&mut self, now: Instant, end: EpochEnd, watch: &mut Watch) {
        let size = self.size();
        let Some(beacon) = &mut self.beacon else {
            return;
        };
        beacon.silent += 1;
        if beacon.sent_size != size || !beacon.repeated || beacon.silent >= IDLE_TICKS {
            self.send_checkpoint(now, end, watch);
        }
    }

    /// The session is over, and the lane with it.
    pub(super) fn send_last_checkpoint(&mut self, now: Instant, watch: &mut Watch) {
        self.send_checkpoint(now, EpochEnd::Closed, watch);
    }

    fn send_checkpoint(&mut self, now: Instant, end: EpochEnd, watch: &mut Watch) {
        let (size, lane_root) = (self.size(), self.root());
        let window_root = self.open_window().root(&Xxh3);
        let Some(beacon) = &mut self.beacon else {
            return;
        };
        let is_full = size.is_multiple_of(WINDOW);
        // Nothing is known of a window that was full before the first checkpoint.
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
            number: beacon.sent,
            window_log2: WINDOW_LOG2,
            first: (size - 1) / WINDOW * WINDOW,
            size,
            time_us: watch.time_us(now),
            window_root,
            lane_root,
            end,
            detail: Detail::None,
        };
        beacon.sent = beacon.sent.saturating_add(1);
        let is_new = beacon.sent_size != size || !beacon.repeated || end == EpochEnd::Closed;
        beacon.repeated = beacon.sent_size == size;
        beacon.sent_size = size;
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

/// Ticks between two checkpoints of a lane without new messages.
const IDLE_TICKS: u32 = 10;
