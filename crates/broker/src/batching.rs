//! The batching delay: how long the event loop waits before it looks for more, so that one read and
//! one write serve several messages. Group commit waits for the same time.
//!
//! The cost of a small message is the kernel's TCP path: a read, a write, a wake-up. A loop that
//! comes a moment later finds several messages in each socket. Where the loop is busy this makes
//! messages cheaper and lets more of them through; everywhere else it only makes them late.
//!
//! The algorithm is Linux's dynamic interrupt moderation (`lib/dim/net_dim.c`): a ladder of delays
//! ([`BATCHING_DELAYS`]), and a hill climb over samples of [`BATCHING_SAMPLE`]. A sample is better
//! than the one before if significantly more messages passed; with about as many, if they took
//! significantly less CPU time; with about as much, if its delay is shorter. While it gets better
//! the climb goes on in the same direction, else it turns; at the top it parks for a while.
//!
//! Invariants:
//! - A loop that is idle for more than half of the time never begins to wait, and one that becomes
//!   nearly idle stops.
//! - Requests and replies never wait: a single packet from a peer that was written to since its
//!   last one may be an answer. Where three of four reads are such, there is no delay.
//! - Where calls carry many packets without a delay, it cannot gain and is not tried.
//! - A delay above 1 ms is not longer than the turn before it, so a message is at most about twice
//!   as late as without.
//! - No clock is read here.

use std::time::Duration;

use crate::tuning::{
    BATCHING_ALWAYS, BATCHING_DELAYS, BATCHING_PACKETS, BATCHING_REST, BATCHING_SAMPLE,
    BATCHING_SIGNIFICANT, BATCHING_TURNS,
};

/// What one turn of the loop did; a sum where it is of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// Reads that brought bytes.
    pub(crate) reads: u64,
    /// Messages from other shards.
    pub(crate) messages: u64,
    /// Reads that brought a single packet from a peer that was written to since its last one.
    pub(crate) answers: u64,
    /// Writes of which the kernel took bytes.
    pub(crate) writes: u64,
    /// Packets received and packets given to connections.
    pub(crate) frames: u64,
    /// From its start to its end.
    pub(crate) busy: Duration,
    /// Waited in the kernel before it.
    pub(crate) idle: Duration,
    /// Delayed before it by this module.
    pub(crate) waited: Duration,
}

/// Chooses the delay, after each turn.
#[derive(Debug)]
pub(crate) struct Batching {
    is_adaptive: bool,
    /// The delay in use: an index of [`BATCHING_DELAYS`].
    delay: usize,
    climb: Climb,
    /// The sample to compare with, of the delay that was best.
    best: Option<Sample>,
    /// The next sample still contains what the last delay gathered.
    is_settling: bool,
    sum: Turn,
    turns: u32,
    /// CPU time of the thread when the sample began.
    cpu: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Climb {
    /// No change of the delay for so many samples.
    Parked(u32),
    /// The delay in use is one step longer (or shorter) than the best. `is_last`: the other
    /// direction was tried, or led here.
    Longer {
        is_last: bool,
    },
    Shorter {
        is_last: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Packets per second.
    rate: f64,
    /// CPU seconds per packet.
    cost: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Better,
    Same,
    Worse,
}

impl Batching {
    pub(crate) const fn new(is_adaptive: bool) -> Self {
        Self {
            is_adaptive,
            delay: 0,
            climb: Climb::Parked(0),
            best: None,
            is_settling: true,
            sum: Turn::ZERO,
            turns: 0,
            cpu: Duration::ZERO,
        }
    }

    /// The delay in use.
    pub(crate) const fn delay(&self) -> Duration {
        BATCHING_DELAYS[self.delay]
    }

    /// How long to wait before the next turn. `cpu` is the thread's CPU time so far; it is asked
    /// for once per sample of a busy loop.
    pub(crate) fn turn_ended(&mut self, turn: &Turn, cpu: impl FnOnce() -> Duration) -> Duration {
        if !self.is_adaptive {
            return Duration::ZERO;
        }
        self.sum.add(turn);
        self.turns += 1;
        let is_whole = self.sum.length() >= BATCHING_SAMPLE && self.turns >= BATCHING_TURNS;
        if is_whole || self.sum.length() >= BATCHING_SAMPLE * 10 {
            let sum = std::mem::replace(&mut self.sum, Turn::ZERO);
            self.turns = 0;
            if sum.may_gain(self.delay > 0) {
                self.sampled(&sum, cpu());
            } else {
                self.stop();
            }
        }
        if turn.reads + turn.messages == 0 {
            return Duration::ZERO;
        }
        self.delay().min(turn.busy.max(BATCHING_ALWAYS))
    }

    /// There is nothing to gain from a delay now.
    fn stop(&mut self) {
        if self.delay > 0 {
            self.climb = Climb::Parked(BATCHING_REST);
            self.delay = 0;
        }
        self.best = None;
        self.is_settling = true;
    }

    fn sampled(&mut self, sum: &Turn, cpu: Duration) {
        let spent = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
        if std::mem::take(&mut self.is_settling) {
            return;
        }
        let sample = sum.sample(spent);
        let best = *self.best.get_or_insert(sample);
        match self.climb {
            Climb::Parked(0) => {
                self.best = Some(sample);
                if !self.step(Climb::Longer { is_last: false }) {
                    self.step(Climb::Shorter { is_last: true });
                }
            }
            Climb::Parked(samples) => self.climb = Climb::Parked(samples - 1),
            Climb::Longer { is_last } => {
                if sample.compared_with(best) == Change::Better {
                    self.best = Some(sample);
                    self.step(Climb::Longer { is_last: true });
                } else {
                    self.delay -= 1;
                    self.turn_round(is_last, Climb::Shorter { is_last: true });
                }
            }
            Climb::Shorter { is_last } => match sample.compared_with(best) {
                Change::Better => {
                    self.best = Some(sample);
                    self.step(Climb::Shorter { is_last: true });
                }
                // What is compared with stays: small losses would add up.
                Change::Same => {
                    self.step(Climb::Shorter { is_last: true });
                }
                Change::Worse => {
                    self.delay += 1;
                    self.turn_round(is_last, Climb::Longer { is_last: true });
                }
            },
        }
    }

    fn turn_round(&mut self, is_last: bool, other: Climb) {
        self.is_settling = true;
        if is_last {
            self.climb = Climb::Parked(BATCHING_REST);
        } else {
            self.step(other);
        }
    }

    /// Goes one step on the ladder, or parks at its end; returns whether it went.
    fn step(&mut self, climb: Climb) -> bool {
        let next = match climb {
            Climb::Longer { .. } => Some(self.delay + 1).filter(|at| *at < BATCHING_DELAYS.len()),
            Climb::Shorter { .. } => self.delay.checked_sub(1),
            Climb::Parked(_) => None,
        };
        self.climb = next.map_or(Climb::Parked(BATCHING_REST), |_| climb);
        self.is_settling = true;
        self.delay = next.unwrap_or(self.delay);
        next.is_some()
    }
}

impl Sample {
    fn compared_with(self, other: Self) -> Change {
        let (more, less) = (1.0 + BATCHING_SIGNIFICANT, 1.0 - BATCHING_SIGNIFICANT);
        let is_more = |new: f64, old: f64| new > old * more;
        let is_less = |new: f64, old: f64| new < old * less;
        if is_more(self.rate, other.rate) {
            Change::Better
        } else if is_less(self.rate, other.rate) {
            Change::Worse
        } else if is_less(self.cost, other.cost) {
            Change::Better
        } else if is_more(self.cost, other.cost) {
            Change::Worse
        } else {
            Change::Same
        }
    }
}

impl Turn {
    const ZERO: Self = Self {
        reads: 0,
        messages: 0,
        answers: 0,
        writes: 0,
        frames: 0,
        busy: Duration::ZERO,
        idle: Duration::ZERO,
        waited: Duration::ZERO,
    };

    const fn add(&mut self, turn: &Self) {
        self.reads += turn.reads;
        self.messages += turn.messages;
        self.answers += turn.answers;
        self.writes += turn.writes;
        self.frames += turn.frames;
        self.busy = self.busy.saturating_add(turn.busy);
        self.idle = self.idle.saturating_add(turn.idle);
        self.waited = self.waited.saturating_add(turn.waited);
    }

    fn length(&self) -> Duration {
        self.busy + self.idle + self.waited
    }

    /// Whether a delay can be worth something, or still is.
    fn may_gain(&self, is_waiting: bool) -> bool {
        let is_stream = self.answers * 4 < (self.reads + self.messages) * 3;
        let calls = self.reads + self.writes;
        is_stream
            && if is_waiting {
                self.busy * 8 >= self.length() && self.frames > calls
            } else {
                self.busy >= self.idle && self.frames < calls * BATCHING_PACKETS
            }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of some milliseconds")]
    fn sample(&self, cpu: Duration) -> Sample {
        let cpu = if cpu.is_zero() { self.busy } else { cpu };
        let frames = self.frames.max(1) as f64;
        Sample {
            rate: frames / self.length().as_secs_f64(),
            cost: cpu.as_secs_f64() / frames,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop whose clients send as many packets as `rate` says for each delay, in packets per
    /// second, at so many µs of CPU time each.
    struct World {
        rate: [f64; BATCHING_DELAYS.len()],
        cost_us: [f64; BATCHING_DELAYS.len()],
        /// Of the time, what turns take.
        busy: f64,
        /// Of the reads, those that may be answers.
        answers: f64,
        /// Packets per read and per write.
        per_call: f64,
    }

    /// Where each longer delay up to 1 ms brings more.
    const STREAM: World = World {
        rate: [100e3, 150e3, 200e3, 100e3],
        cost_us: [4.0, 3.0, 2.0, 4.0],
        busy: 0.9,
        answers: 0.1,
        per_call: 2.0,
    };

    impl World {
        /// Lets the loop run for so many turns of 1 ms without delays; answers the delays.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small whole numbers"
        )]
        fn run(&self, batching: &mut Batching, turns: usize) -> Vec<Duration> {
            let mut waited = Duration::ZERO;
            let mut cpu = batching.cpu;
            let run = (0..turns).map(|_| {
                let length = Duration::from_millis(1) + waited;
                let working = Duration::from_millis(1);
                let frames = self.rate[batching.delay] * length.as_secs_f64();
                let reads = frames / self.per_call / 2.0;
                let turn = Turn {
                    reads: reads as u64,
                    writes: reads as u64,
                    answers: (reads * self.answers) as u64,
                    frames: frames as u64,
                    busy: working.mul_f64(self.busy),
                    idle: working.mul_f64(1.0 - self.busy),
                    waited,
                    ..Turn::ZERO
                };
                cpu += Duration::from_secs_f64(self.cost_us[batching.delay] * frames / 1e6);
                waited = batching.turn_ended(&turn, || cpu);
                waited
            });
            run.collect()
        }

        /// The share of the last half of many turns that each delay had.
        fn settles_on(&self, expected: usize) {
            let mut batching = Batching::new(true);
            let delays = self.run(&mut batching, 4_000);
            let late = &delays[2_000..];
            let expected = BATCHING_DELAYS[expected].min(BATCHING_ALWAYS);
            let as_expected = late.iter().filter(|delay| **delay == expected).count();
            assert!(as_expected * 10 > late.len() * 8, "{as_expected} of 2,000");
        }
    }

    #[test]
    fn the_climb_finds_the_delay_with_which_most_gets_through() {
        STREAM.settles_on(2);
        let rate = [100e3, 150e3, 120e3, 100e3];
        World { rate, ..STREAM }.settles_on(1);
        let rate = [100e3, 80e3, 60e3, 50e3];
        World { rate, ..STREAM }.settles_on(0);
    }

    #[test]
    fn with_as_many_packets_the_cheaper_delay_is_used_and_of_two_alike_the_shorter() {
        let rate = [100e3; 4];
        World { rate, ..STREAM }.settles_on(2);
        let cost_us = [4.0, 3.0, 2.9, 2.9];
        World {
            rate,
            cost_us,
            ..STREAM
        }
        .settles_on(1);
        let cost_us = [4.0, 3.9, 3.8, 3.7];
        World {
            rate,
            cost_us,
            ..STREAM
        }
        .settles_on(0);
    }

    #[test]
    fn a_loop_does_not_wait_where_nothing_can_be_gained() {
        for world in [
            World {
                busy: 0.4,
                ..STREAM
            },
            World {
                answers: 0.8,
                ..STREAM
            },
            World {
                per_call: 32.0,
                ..STREAM
            },
        ] {
            let delays = world.run(&mut Batching::new(true), 1_000);
            assert!(delays.iter().all(Duration::is_zero));
        }
        let delays = STREAM.run(&mut Batching::new(false), 1_000);
        assert!(delays.iter().all(Duration::is_zero), "it is off");
    }

    #[test]
    fn a_delay_ends_when_the_stream_does() {
        let mut batching = Batching::new(true);
        STREAM.run(&mut batching, 1_000);
        assert!(!batching.delay().is_zero());
        World {
            busy: 0.05,
            ..STREAM
        }
        .run(&mut batching, 50);
        assert!(batching.delay().is_zero());
    }

    #[test]
    fn a_delay_that_batches_many_messages_stays() {
        let turn = Turn {
            reads: 100,
            frames: 100 * BATCHING_PACKETS,
            busy: BATCHING_SAMPLE,
            ..Turn::ZERO
        };
        assert!(turn.may_gain(true) && !turn.may_gain(false));
    }

    #[test]
    fn a_delay_ends_soon_after_the_last_message() {
        let mut batching = Batching::new(true);
        batching.delay = 2;
        let turn = Turn {
            reads: 1,
            answers: 1,
            idle: 10 * BATCHING_SAMPLE,
            ..Turn::ZERO
        };
        assert!(batching.turn_ended(&turn, || Duration::ZERO).is_zero());
    }

    #[test]
    fn no_delay_above_a_millisecond_is_longer_than_the_turn_before() {
        let mut batching = Batching::new(true);
        batching.delay = BATCHING_DELAYS.len() - 1;
        for (busy_ms, expected_ms) in [(0, 1), (1, 1), (3, 3), (9, 4)] {
            let turn = Turn {
                reads: 1,
                busy: Duration::from_millis(busy_ms),
                ..Turn::ZERO
            };
            batching.sum = Turn::ZERO;
            let delay = batching.turn_ended(&turn, || Duration::ZERO);
            assert_eq!(delay, Duration::from_millis(expected_ms));
        }
    }

    #[test]
    fn after_a_turn_that_received_nothing_there_is_nothing_to_wait_for() {
        let mut batching = Batching::new(true);
        batching.delay = 1;
        let delay = batching.turn_ended(&Turn::ZERO, || Duration::ZERO);
        assert!(delay.is_zero());
    }
}
