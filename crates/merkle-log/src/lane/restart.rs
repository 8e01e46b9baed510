//! A lane that goes on after a restart.
//!
//! What is saved is small: the lane as it was when it had issued some number of messages, which is
//! the peaks of its tree and at most one window's leaves. The messages from that number on are the
//! caller's to keep, each stored before it is first sent; issued again in order, they get the same
//! numbers and leaves. So a spool is one saved lane, then messages and the checkpoints told since.
//!
//! **Invariant.** A lane that was restored and caught up says what the lane would have said that
//! never stopped. **Absent:** the leaves of the windows before the saved one. Whoever asks for them
//! after a restart is told that they are no longer held.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Lane, LaneLimits};
use crate::ledger::Peaks;
use crate::ledger::limits::{WINDOW, WINDOW_LOG2};
use crate::limits::MAX_SIZE;
use crate::saved::{Fields, StateError, Writer, check, seal};
use crate::{Checkpoint, Digest, Epoch, LaneId};

const VERSION: u8 = 1;

impl Lane {
    /// Appends the lane to `out` as it was when it had issued `size` messages, or the nearest to
    /// that whose leaves are held. Returns that number: the message with this number is the first
    /// to be issued again. At most 18 KiB, and 1 KiB where the number is a multiple of 1,024.
    pub fn save(&self, size: u64, digest: &impl Digest, out: &mut Vec<u8>) -> u64 {
        let oldest = self.oldest_leaf();
        let size = size.clamp(oldest, self.next);
        let first = size / WINDOW * WINDOW;
        let mut peaks = self.base.clone();
        let windows = usize::try_from((first - oldest) / WINDOW).expect("they are held");
        for root in self.roots.range(..windows) {
            peaks.push(WINDOW_LOG2, *root, digest);
        }
        let leaves = (first..size).filter_map(|number| self.leaf(number));
        let from = out.len();
        let mut write = Writer(out);
        write.u8(VERSION);
        write.u64(self.id.value());
        write.u32(self.epoch.0);
        write.u64(size);
        write.u32(self.checkpoints);
        write.u64(self.spoke_of);
        write.list(peaks.peaks.iter(), |write, (level, hash)| {
            write.u8(*level);
            write.hash(hash);
        });
        write.list(leaves, Writer::hash);
        seal(digest, from, out);
        size
    }

    /// Reads what [`Lane::save`] wrote. The lane then issues from the saved number on.
    pub fn restore(
        bytes: &[u8],
        limits: LaneLimits,
        now: Duration,
        digest: &impl Digest,
    ) -> Result<Self, StateError> {
        let mut read = Fields::new(check(digest, bytes)?);
        let version = read.u8("version")?;
        if version != VERSION {
            return Err(StateError::Version(version));
        }
        let id = LaneId::new(read.u64("lane")?).ok_or_else(|| read.refuse("lane"))?;
        let mut lane = Self::new(id, Epoch(read.u32("epoch")?), limits, now);
        lane.next = read.u64("size")?;
        lane.checkpoints = read.u32("count of checkpoints")?;
        lane.spoke_of = read.u64("size last told")?;
        let peaks = read.list(|read| Ok((read.u8("level")?, read.hash("peak")?)))?;
        lane.leaves = VecDeque::from(read.list(|read| read.hash("leaf"))?);
        read.end()?;
        let first = lane.next / WINDOW * WINDOW;
        let levels = (0..64_u8).rev().filter(|level| first >> level & 1 == 1);
        if lane.next >= MAX_SIZE
            || !peaks.iter().map(|(level, _)| *level).eq(levels)
            || lane.leaves.len() as u64 != lane.next - first
        {
            return Err(read.refuse("peaks and leaves of that size"));
        }
        lane.base = Peaks { peaks };
        lane.trunk = lane.base.clone();
        Ok(lane)
    }

    /// Notes a checkpoint that was told before the restart, so that no other gets its number and
    /// none of a full window is told again. In the order in which they were told, among the
    /// messages issued again.
    pub fn told(&mut self, checkpoint: u32, size: u64) {
        self.checkpoints = self.checkpoints.max(checkpoint.saturating_add(1));
        self.spoke_of = self.spoke_of.max(size);
        let told = |ready: &Checkpoint| ready.size <= size;
        while self.ready.front().is_some_and(told) {
            self.ready.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Request;
    use crate::{Hasher, Property};

    fn limits() -> LaneLimits {
        LaneLimits {
            windows_held_max: 3,
            ..LaneLimits::default()
        }
    }

    fn issue(lane: &mut Lane, hasher: &Hasher) -> Property {
        lane.issue(*b"t", lane.size().to_be_bytes(), hasher)
    }

    fn lane(size: u64, hasher: &Hasher) -> Lane {
        let id = LaneId::new(7).expect("7 is a lane");
        let mut lane = Lane::new(id, Epoch(2), limits(), Duration::ZERO);
        (0..size).for_each(|_| {
            issue(&mut lane, hasher);
        });
        lane
    }

    #[test]
    fn a_restored_lane_goes_on_as_if_it_had_never_stopped() {
        let hasher = Hasher::xxh3();
        for size in [0, 1, 1_023, 1_024, 1_025, 5_000, 6_144] {
            let whole = lane(size, &hasher);
            for from in [0, size / 2, size.saturating_sub(1), size, size + 9] {
                let mut saved = Vec::new();
                let from = whole.save(from, &hasher, &mut saved);
                assert!(saved.len() <= 18 << 10);
                let mut restored = Lane::restore(&saved, limits(), Duration::ZERO, &hasher)
                    .expect("it was just written");
                assert_eq!(restored.size(), from);
                for _ in from..size {
                    issue(&mut restored, &hasher);
                }
                let mut whole = whole.clone();
                assert_eq!(issue(&mut restored, &hasher), issue(&mut whole, &hasher));
                assert_eq!(
                    restored.state(&hasher).map(|state| state.lane_root),
                    whole.state(&hasher).map(|state| state.lane_root)
                );
                let window = size / WINDOW;
                let request = Request::Groups { window, size: 1 };
                let answer = restored.answer(&request, &hasher);
                assert!(answer.is_some());
                assert_eq!(answer, whole.answer(&request, &hasher));
            }
        }
    }

    #[test]
    fn a_checkpoint_told_before_the_restart_is_not_told_again() {
        let hasher = Hasher::xxh3();
        let mut first = lane(0, &hasher);
        let mut saved = Vec::new();
        first.save(0, &hasher, &mut saved);
        let mut told = Vec::new();
        for _ in 0..2_100 {
            issue(&mut first, &hasher);
            let due = first.poll_checkpoint(Duration::ZERO, 0, &hasher);
            told.extend(due.map(|checkpoint| (checkpoint.number, checkpoint.size)));
        }
        assert_eq!(told, [(0, 1_024), (1, 2_048)]);
        let mut restored =
            Lane::restore(&saved, limits(), Duration::ZERO, &hasher).expect("it was just written");
        (0..2_100).for_each(|_| {
            issue(&mut restored, &hasher);
        });
        for (number, size) in told {
            restored.told(number, size);
        }
        let second = Duration::from_secs(1);
        let next = restored.poll_checkpoint(second, 0, &hasher);
        let next = next.expect("a heartbeat is due");
        assert_eq!((next.number, next.size), (2, 2_100));
    }

    #[test]
    fn a_damaged_lane_is_refused() {
        let hasher = Hasher::xxh3();
        let mut saved = Vec::new();
        lane(1_500, &hasher).save(1_500, &hasher, &mut saved);
        for at in (0..saved.len()).step_by(61) {
            let mut damaged = saved.clone();
            damaged[at] ^= 1;
            let restored = Lane::restore(&damaged, limits(), Duration::ZERO, &hasher);
            assert_eq!(restored.err(), Some(StateError::Tag));
        }
        // Sealed, but with a peak missing.
        let mut write = Writer(&mut saved);
        write.0.clear();
        write.u8(VERSION);
        write.u64(7);
        write.u32(0);
        write.u64(1_024);
        write.u32(0);
        write.u64(0);
        write.u32(0);
        write.u32(0);
        seal(&hasher, 0, &mut saved);
        let restored = Lane::restore(&saved, limits(), Duration::ZERO, &hasher);
        let what = "peaks and leaves of that size";
        let at = saved.len() - 16;
        assert_eq!(restored.err(), Some(StateError::Field { what, at }));
    }
}
