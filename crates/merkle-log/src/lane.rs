//! A producer's lane: it numbers messages, says how many there are and what their root is, and
//! answers receivers that miss some.
//!
//! The caller keeps number and message before the first send; what cannot be continued after a
//! restart begins a new epoch. The lane holds the leaves of the last windows and, within a number
//! of bytes, the messages themselves. Beyond it the answer is *no longer held*: the fault stays
//! named at the receiver.
//!
//! **Invariants.** Numbers are dense from 0. Every full window gets one checkpoint of its own;
//! partial ones are heartbeats. **Absent:** sending, and the clock: time is an argument, counted
//! from any fixed moment.

mod restart;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::limits::{FANOUT, WINDOW, WINDOW_LOG2};
use crate::ledger::{Answer, Peaks, Request};
use crate::{
    Checkpoint, Detail, DetailLevel, Digest, Epoch, EpochEnd, Flags, Hash, LaneId, Property,
};

/// What a lane keeps for those who ask, and how often it speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneLimits {
    /// Full windows whose leaves are held; about 33 KiB each. At least one.
    pub windows_held_max: usize,
    /// Bytes of topics and payloads held for repair; each message costs 64 bytes more.
    pub message_bytes_max: usize,
    /// Time between two checkpoints while messages are issued.
    pub heartbeat: Duration,
    /// Time between two checkpoints while none is.
    pub idle_heartbeat: Duration,
    /// What checkpoints of full windows tell of single leaves.
    pub detail: DetailLevel,
}

impl Default for LaneLimits {
    fn default() -> Self {
        Self {
            windows_held_max: 64,
            message_bytes_max: 16 << 20,
            heartbeat: Duration::from_secs(1),
            idle_heartbeat: Duration::from_secs(10),
            detail: DetailLevel::None,
        }
    }
}

/// One epoch of a lane, at its producer.
#[derive(Clone, Debug)]
pub struct Lane {
    id: LaneId,
    epoch: Epoch,
    limits: LaneLimits,
    next: u64,
    /// From the first number of the oldest window held.
    leaves: VecDeque<Hash>,
    /// Over the windows before those.
    base: Peaks,
    /// Of the full windows among those.
    roots: VecDeque<Hash>,
    /// Over all full windows.
    trunk: Peaks,
    messages: VecDeque<Message>,
    message_bytes: usize,
    /// Of full windows, not taken yet. At most as many as windows are held.
    ready: VecDeque<Checkpoint>,
    checkpoints: u32,
    spoke: Duration,
    spoke_of: u64,
    repeated: bool,
}

#[derive(Clone, Debug)]
struct Message {
    topic: Arc<[u8]>,
    payload: Arc<[u8]>,
}

/// A message to send once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resend {
    /// As it was, and flagged re-sent.
    pub property: Property,
    /// Its topic.
    pub topic: Arc<[u8]>,
    /// Its payload.
    pub payload: Arc<[u8]>,
}

/// What a producer can do about missing numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// To be sent again: [`Lane::resend`].
    pub held: Vec<Range<u64>>,
    /// No longer held, or never issued.
    pub not_held: Vec<Range<u64>>,
}

impl Lane {
    /// A new epoch, of which nothing was issued.
    pub fn new(id: LaneId, epoch: Epoch, limits: LaneLimits, now: Duration) -> Self {
        Self {
            id,
            epoch,
            limits,
            next: 0,
            leaves: VecDeque::new(),
            base: Peaks::default(),
            roots: VecDeque::new(),
            trunk: Peaks::default(),
            messages: VecDeque::new(),
            message_bytes: 0,
            ready: VecDeque::new(),
            checkpoints: 0,
            spoke: now,
            spoke_of: 0,
            repeated: false,
        }
    }

    /// Numbers a message. What it returns travels with the message.
    pub fn issue(
        &mut self,
        topic: impl Into<Arc<[u8]>>,
        payload: impl Into<Arc<[u8]>>,
        digest: &impl Digest,
    ) -> Property {
        let (topic, payload) = (topic.into(), payload.into());
        let property = Property::stamp(digest, self.id, self.epoch, self.next, &topic, &payload);
        self.next += 1;
        self.leaves.push_back(property.digest);
        self.message_bytes += topic.len() + payload.len();
        self.messages.push_back(Message { topic, payload });
        if self.next.is_multiple_of(WINDOW) {
            self.end_window(digest);
        }
        self.let_messages_go();
        property
    }

    /// Which lane.
    pub fn id(&self) -> LaneId {
        self.id
    }

    /// Which epoch of it.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How many messages were issued, and the number of the next one.
    pub fn size(&self) -> u64 {
        self.next
    }

    /// When the next checkpoint is due: at once for a full window.
    pub fn checkpoint_due(&self) -> Duration {
        if !self.ready.is_empty() {
            return self.spoke;
        }
        let idle = self.next == self.spoke_of && self.repeated;
        self.spoke
            + if idle {
                self.limits.idle_heartbeat
            } else {
                self.limits.heartbeat
            }
    }

    /// The checkpoint that is due, if one is. `time_us` is wall time, µs since 1970.
    pub fn poll_checkpoint(
        &mut self,
        now: Duration,
        time_us: u64,
        digest: &impl Digest,
    ) -> Option<Checkpoint> {
        if now < self.checkpoint_due() {
            return None;
        }
        let checkpoint = match self.ready.pop_front() {
            Some(full) => full,
            None => self.state(digest)?,
        };
        self.repeated = checkpoint.size == self.spoke_of;
        self.spoke = now;
        self.spoke_of = checkpoint.size;
        Some(self.numbered(checkpoint, time_us))
    }

    /// Ends the epoch: nothing more may be issued in it. `None` if nothing ever was.
    pub fn close(mut self, time_us: u64, digest: &impl Digest) -> Option<Checkpoint> {
        let checkpoint = Checkpoint {
            end: EpochEnd::Closed,
            ..self.state(digest)?
        };
        let checkpoint = self.detailed(checkpoint);
        Some(self.numbered(checkpoint, time_us))
    }

    /// Which of these numbers can be sent again.
    pub fn repair(&self, missing: &[Range<u64>]) -> Repair {
        let oldest = self.next - self.messages.len() as u64;
        let mut repair = Repair::default();
        for numbers in missing {
            let held = numbers.start.max(oldest)..numbers.end.min(self.next);
            if held.is_empty() {
                repair.not_held.push(numbers.clone());
                continue;
            }
            let parts = [numbers.start..held.start, held.end..numbers.end];
            repair
                .not_held
                .extend(parts.into_iter().filter(|part| !part.is_empty()));
            repair.held.push(held);
        }
        repair
    }

    /// A message once more, while it is held.
    pub fn resend(&self, number: u64, digest: &impl Digest) -> Option<Resend> {
        let oldest = self.next - self.messages.len() as u64;
        let at = usize::try_from(number.checked_sub(oldest)?).ok()?;
        let message = self.messages.get(at)?;
        Some(Resend {
            property: Property {
                algorithm: digest.algorithm(),
                flags: Flags {
                    resent: true,
                    ..Flags::default()
                },
                part: None,
                epoch: self.epoch,
                lane: self.id,
                sequence: number,
                digest: *self.leaf(number)?,
            },
            topic: Arc::clone(&message.topic),
            payload: Arc::clone(&message.payload),
        })
    }

    /// The hashes asked for; `None` when they are no longer held, or for numbers.
    pub fn answer(&self, request: &Request, digest: &impl Digest) -> Option<Answer> {
        match *request {
            Request::Numbers(_) => None,
            Request::Groups { window, size } => {
                let first = window.checked_mul(WINDOW)?;
                let end = first + u64::from(size);
                let groups = (first..end).step_by(usize::try_from(FANOUT).ok()?);
                let hashes =
                    groups.map(|from| self.root_of(from..(from + FANOUT).min(end), digest));
                Some(Answer::Groups {
                    window,
                    size,
                    hashes: hashes.collect::<Option<_>>()?,
                })
            }
            Request::Leaves {
                window,
                group,
                size,
            } => {
                let first = window.checked_mul(WINDOW)?;
                let from = first + u64::from(group) * FANOUT;
                let leaves = (from..(from + FANOUT).min(first + u64::from(size)))
                    .map(|number| self.leaf(number).copied());
                Some(Answer::Leaves {
                    window,
                    size,
                    group,
                    leaves: leaves.collect::<Option<_>>()?,
                })
            }
        }
    }

    /// Keeps as many messages as there is room for, and none whose leaf is gone: what
    /// [`Self::repair`] calls held, [`Self::resend`] has.
    fn let_messages_go(&mut self) {
        while self.message_bytes > self.limits.message_bytes_max
            || self.messages.len() > self.leaves.len()
        {
            let Some(oldest) = self.messages.pop_front() else {
                break;
            };
            self.message_bytes -= oldest.topic.len() + oldest.payload.len();
        }
    }

    fn end_window(&mut self, digest: &impl Digest) {
        let full = self.state(digest).map(|full| self.detailed(full));
        self.ready.extend(full);
        if let Some(root) = self.root_of(self.next - WINDOW..self.next, digest) {
            self.trunk.push(WINDOW_LOG2, root, digest);
            self.roots.push_back(root);
        }
        let windows_held = self.limits.windows_held_max.max(1);
        if self.ready.len() > windows_held {
            self.ready.pop_front();
        }
        let window = usize::try_from(WINDOW).expect("1,024 fits");
        if self.leaves.len() > windows_held * window {
            self.leaves.drain(..window);
            if let Some(root) = self.roots.pop_front() {
                self.base.push(WINDOW_LOG2, root, digest);
            }
        }
    }

    /// A checkpoint of everything issued so far, without number and time.
    fn state(&self, digest: &impl Digest) -> Option<Checkpoint> {
        let first = self.next.checked_sub(1)? / WINDOW * WINDOW;
        let window_root = self.root_of(first..self.next, digest)?;
        // After a window's end the trunk holds that window already.
        let before = self.trunk.size() == first;
        let lane_root = self
            .trunk
            .root_with(before.then_some(window_root), digest)?;
        Some(Checkpoint {
            lane: self.id,
            epoch: self.epoch,
            number: 0,
            window_log2: WINDOW_LOG2,
            first,
            size: self.next,
            time_us: 0,
            window_root,
            lane_root,
            end: EpochEnd::Open,
            detail: Detail::None,
        })
    }

    /// With what is told of single leaves.
    fn detailed(&self, checkpoint: Checkpoint) -> Checkpoint {
        let leaves = (checkpoint.first..checkpoint.size).filter_map(|number| self.leaf(number));
        let detail = match self.limits.detail {
            DetailLevel::None => Detail::None,
            DetailLevel::Fingerprints => {
                Detail::Fingerprints(leaves.map(Hash::fingerprint).collect())
            }
            DetailLevel::Leaves => Detail::Leaves(leaves.copied().collect()),
        };
        Checkpoint {
            detail,
            ..checkpoint
        }
    }

    fn numbered(&mut self, checkpoint: Checkpoint, time_us: u64) -> Checkpoint {
        let number = self.checkpoints;
        self.checkpoints += 1;
        Checkpoint {
            number,
            time_us,
            ..checkpoint
        }
    }

    fn root_of(&self, numbers: Range<u64>, digest: &impl Digest) -> Option<Hash> {
        let mut peaks = Peaks::default();
        for number in numbers {
            peaks.push(0, *self.leaf(number)?, digest);
        }
        peaks.root(digest)
    }

    /// The number of the oldest leaf held, the first of a window.
    fn oldest_leaf(&self) -> u64 {
        self.next - self.leaves.len() as u64
    }

    fn leaf(&self, number: u64) -> Option<&Hash> {
        let at = number.checked_sub(self.oldest_leaf())?;
        self.leaves.get(usize::try_from(at).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hasher, Tree};

    fn lane(limits: LaneLimits) -> Lane {
        let id = LaneId::new(7).expect("7 is a lane");
        Lane::new(id, Epoch(0), limits, Duration::ZERO)
    }

    fn issue(lane: &mut Lane) -> Property {
        let payload = lane.size().to_be_bytes();
        lane.issue(*b"t", payload, &Hasher::xxh3())
    }

    #[test]
    fn a_lane_says_which_it_is_and_in_which_epoch() {
        let id = LaneId::new(7).expect("7 is a lane");
        let lane = Lane::new(id, Epoch(3), LaneLimits::default(), Duration::ZERO);
        assert_eq!((lane.id(), lane.epoch()), (id, Epoch(3)));
    }

    #[test]
    fn the_first_message_is_held_and_its_checkpoint_bears_the_time() {
        let hasher = Hasher::xxh3();
        let mut lane = lane(LaneLimits::default());
        issue(&mut lane);
        assert_eq!(
            lane.resend(0, &hasher)
                .map(|resend| resend.property.sequence),
            Some(0)
        );
        let checkpoint = lane.poll_checkpoint(Duration::from_secs(1), 42, &hasher);
        assert_eq!(checkpoint.map(|checkpoint| checkpoint.time_us), Some(42));
    }

    #[test]
    fn as_many_windows_are_held_as_the_limit_says() {
        let hasher = Hasher::xxh3();
        let limits = LaneLimits {
            windows_held_max: 2,
            ..LaneLimits::default()
        };
        let mut lane = lane(limits);
        for windows in 1..5 {
            (0..WINDOW).for_each(|_| {
                issue(&mut lane);
            });
            let full = u16::try_from(WINDOW).expect("1,024 fits");
            let held = |window| {
                let request = Request::Groups { window, size: full };
                lane.answer(&request, &hasher).is_some()
            };
            let held: Vec<_> = (0..windows).filter(|window| held(*window)).collect();
            let expect: Vec<_> = (windows.saturating_sub(2)..windows).collect();
            assert_eq!(held, expect);
        }
        let mut due = || lane.poll_checkpoint(Duration::ZERO, 0, &hasher);
        let sizes = [due(), due(), due()].map(|due| due.map(|checkpoint| checkpoint.size));
        assert_eq!(sizes, [Some(3 * WINDOW), Some(4 * WINDOW), None]);
    }

    #[test]
    fn what_is_called_held_can_be_sent_again_at_the_end_of_a_window_too() {
        let hasher = Hasher::xxh3();
        let limits = LaneLimits {
            windows_held_max: 1,
            ..LaneLimits::default()
        };
        let mut lane = lane(limits);
        for _ in 0..WINDOW * 3 {
            issue(&mut lane);
            let every = 0..lane.size();
            let held = lane.repair(std::slice::from_ref(&every)).held;
            let mut numbers = held.into_iter().flatten();
            assert!(numbers.all(|number| lane.resend(number, &hasher).is_some()));
        }
    }

    #[test]
    fn checkpoints_carry_the_roots_of_the_plain_tree() {
        let hasher = Hasher::xxh3();
        let (mut lane, mut tree) = (lane(LaneLimits::default()), Tree::default());
        let mut now = Duration::ZERO;
        let mut sizes = Vec::new();
        for number in 1..=5_000_u64 {
            tree.append(&hasher, issue(&mut lane).digest);
            now += Duration::from_millis(u64::from(number % 700 == 0) * 1_000);
            while let Some(checkpoint) = lane.poll_checkpoint(now, 0, &hasher) {
                assert_eq!(
                    Some(checkpoint.lane_root),
                    tree.root_at(&hasher, checkpoint.size)
                );
                let root = tree.window_root(&hasher, checkpoint.first, checkpoint.size);
                assert_eq!(Some(checkpoint.window_root), root);
                assert_eq!(usize::try_from(checkpoint.number), Ok(sizes.len()));
                sizes.push(checkpoint.size);
            }
        }
        assert_eq!(
            sizes,
            [
                700, 1024, 1400, 2048, 2100, 2800, 3072, 3500, 4096, 4200, 4900
            ]
        );
        let last = lane.close(0, &hasher).expect("messages were issued");
        assert_eq!(last.end, EpochEnd::Closed);
        assert_eq!(Some(last.lane_root), tree.root_at(&hasher, 5_000));
    }

    #[test]
    fn an_idle_lane_repeats_itself_once_and_then_slows_down() {
        let hasher = Hasher::xxh3();
        let mut lane = lane(LaneLimits::default());
        issue(&mut lane);
        let spoke: Vec<u64> = (0..30)
            .filter(|second| {
                lane.poll_checkpoint(Duration::from_secs(*second), 0, &hasher)
                    .is_some()
            })
            .collect();
        assert_eq!(spoke, [1, 2, 12, 22]);
    }

    #[test]
    fn what_is_beyond_the_bytes_held_is_said_to_be_no_longer_held() {
        let hasher = Hasher::xxh3();
        let mut lane = lane(LaneLimits {
            message_bytes_max: 90,
            ..LaneLimits::default()
        });
        (0..20).for_each(|_| {
            issue(&mut lane);
        });
        let repair = lane.repair(&[3..5, 8..12, 15..16, 19..25]);
        assert_eq!(repair.held, [10..12, 15..16, 19..20]);
        assert_eq!(repair.not_held, [3..5, 8..10, 20..25]);
        assert_eq!(lane.resend(9, &hasher), None);
        let resend = lane.resend(10, &hasher).expect("it is held");
        assert!(resend.property.flags.resent);
        assert!(
            resend
                .property
                .fits(&hasher, &resend.topic, &resend.payload)
        );
    }
}
