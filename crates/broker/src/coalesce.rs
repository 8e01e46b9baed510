//! Adaptive coalescing: whether the loop waits a moment before it looks for more, so that one read
//! and one write serve several messages.
//!
//! ```text
//! prompt ── two epochs in a row pressed and streaming ──▶ trial: wait, for one epoch
//!    ▲ ▲                                                      │
//!    │ └── no more frames a call, or fewer a second ──────────┤
//!    │     (the next trial after twice as long)               ▼
//!    └── not streaming, lone frames, or time to compare ── waiting
//! ```
//!
//! Why: nearly all of a small message's cost is the kernel's TCP path, paid for each read, each
//! write and each waking of a peer. A loop that is fast enough to wake for every message pays it in
//! full for every message; one that comes 1 ms later finds several in each socket. So under a
//! stream that keeps the loop busy, waiting makes messages cheaper, and more of them go through.
//! Everywhere else it only makes them late:
//! - An idle or lightly loaded loop never waits: an epoch is *pressed* only if the loop was busy
//!   for at least half of it, without the time in which it was ready and had no core. Where threads
//!   are more than cores that looks like idleness: with two shards and their load on two cores the
//!   loops were idle for two thirds of the time, of which a third was waiting for a core.
//! - Requests and replies never wait: a lone frame from a peer that has been spoken to since its
//!   last one may be an answer, and where such reads are the most part, nothing is tried.
//! - A flood that fills its reads anyway never waits: what is quiet beside it would, for nothing.
//! - A sender that waits for its own messages to come out (a small window, on another connection)
//!   is recognised by the trial: its frames do not come faster, or the rate falls.
//!
//! How long: as long as the turn before it was busy, between [`WAIT_MIN`] and [`WAIT_MAX`]. So a
//! message waits for no longer than it waits anyway for the turn of all others, and a loop with
//! many connections, whose turns are long, still gathers.
//!
//! Invariants: no clock is read here; no wait is longer than [`WAIT_MAX`], and none follows a turn
//! to which nothing came.
//!
//! The wait is a plain sleep: a poll's timeout has whole milliseconds and ends at the first event.
//! Frames a call do not decide alone: a sender with ten messages under way shows ten of them in a
//! read, at a quarter of its rate. Calls are reads and writes, and frames those that come and those
//! that go: counted by reads alone, a few publishers to many receivers seemed to gather nothing,
//! though each wait halves the writes. With 10 of them and 500 receivers trials were won or lost by
//! chance; a delivery took 1.97 µs, and 1.62 since (medians of three interleaved runs).
//!
//! Tried and lost:
//! - 0.5 ms: with 500 publishers it gathered little; with 50 a message cost a third more than with
//!   1 ms.
//! - 1 ms under every stream: with 500 publishers a turn is busy for 3 ms, and 1 ms more gathers
//!   little; 2 ms took a quarter off the cost of a message there. Messages were no later, for more
//!   of them went through. 3 ms took off more still, but that is late for the few that do not.
//! - Ending a wait when it gathers no more than the last epochs without it did: these often hold a
//!   burst, or what a slow start left behind, and then a good wait was given up.
//! - Calling an epoch pressed only when busy for two thirds: where another program takes one of two
//!   cores, the clients' turn at the other looks like idleness, and a stream was not recognised.
//! - Being content with 0.7 of the rate: nothing beyond the noise with 100, 500 and 1,000
//!   connections in pairs, request and reply, and 200 publishers at QoS 1.
//! - One and a half times the turn, up to 3 ms: for 200 publishers at QoS 1, and for 1,000
//!   connections in pairs, a message took about as much, and a twelfth fewer went through; with 100
//!   a message took a quarter more. With 500 it took a tenth less.
//! - With 10 publishers, windows of 100 and 500 receivers, always 2 ms: as much a message. Always 3
//!   ms: an eighth more, and a seventh fewer went through. Always 0.5 ms: a quarter more went
//!   through, and no message was cheaper (medians of three interleaved runs).
//! - While waiting, to read only half of the readable connections in a turn, so that each had more:
//!   with the same publishers a message took a sixth more, and a quarter fewer went through.
//! - Epochs of 20 ms and half a second between trials: a stream that began with a burst lost its
//!   first trial and paid in full for its first second.

use std::time::Duration;

/// The shortest wait: less gathers little, and costs a waking all the same.
pub(crate) const WAIT_MIN: Duration = Duration::from_millis(1);
/// The longest wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(2);

/// What one turn of the loop was like; sums, when of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// Reads that brought bytes.
    pub(crate) reads: u64,
    /// Letters from other shards.
    pub(crate) letters: u64,
    /// Of the reads, lone frames from peers that were spoken to since they last sent something.
    pub(crate) answers: u64,
    /// Writes that the kernel took bytes of.
    pub(crate) writes: u64,
    /// Frames in all reads, and those given to connections meanwhile.
    pub(crate) frames: u64,
    /// From its start to its end.
    pub(crate) busy: Duration,
    /// Spent in the kernel before it, waiting for something to happen.
    pub(crate) idle: Duration,
    /// Waited before it because the coalescer said so.
    pub(crate) waited: Duration,
}

/// Decides after each turn.
#[derive(Debug)]
pub(crate) struct Coalescer {
    mode: Mode,
    /// The epoch under way.
    epoch: Turn,
    turns: u32,
    /// At the end of the last epoch.
    unserved: Duration,
    /// No trial before so much time has passed.
    hold_off: Duration,
    /// What the next lost trial costs.
    penalty: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Not waiting. `before`: the last epoch, if it was pressed and streaming.
    Prompt { before: Option<Flow> },
    /// Waiting, to see what it brings. `settled`: the first turns, which still work off what came
    /// before, are over.
    Trial { prompt: Flow, settled: bool },
    /// Waiting, for it was worth it, until it is compared again.
    Waiting { left: Duration },
}

/// How much came, and how well it was gathered.
#[derive(Clone, Copy, Debug)]
struct Flow {
    frames_per_call: f64,
    frames_per_s: f64,
}

impl Default for Coalescer {
    fn default() -> Self {
        Self {
            mode: Mode::Prompt { before: None },
            epoch: Turn::default(),
            turns: 0,
            unserved: Duration::ZERO,
            hold_off: Duration::ZERO,
            penalty: PENALTY_MIN,
        }
    }
}

impl Coalescer {
    /// How long to wait before the next turn. `unserved` says how long the thread has been ready
    /// and without a core, in all so far; it is asked once an epoch.
    pub(crate) fn turn_ended(
        &mut self,
        turn: &Turn,
        unserved: impl FnOnce() -> Duration,
    ) -> Duration {
        self.epoch.add(turn);
        self.turns += 1;
        let length = self.epoch.busy + self.epoch.idle + self.epoch.waited;
        if length >= EPOCH && self.turns >= EPOCH_TURNS {
            let mut epoch = std::mem::take(&mut self.epoch);
            self.turns = 0;
            let unserved = unserved();
            let before = std::mem::replace(&mut self.unserved, unserved);
            epoch.idle = epoch.idle.saturating_sub(unserved.saturating_sub(before));
            self.mode = self.epoch_ended(&epoch, length);
        }
        if self.is_waiting() && turn.reads + turn.letters > 0 {
            turn.busy.clamp(WAIT_MIN, WAIT_MAX)
        } else {
            Duration::ZERO
        }
    }

    /// Whether a wait gathers more, or is tried.
    pub(crate) fn is_waiting(&self) -> bool {
        !matches!(self.mode, Mode::Prompt { .. })
    }

    fn epoch_ended(&mut self, epoch: &Turn, length: Duration) -> Mode {
        self.hold_off = self.hold_off.saturating_sub(length);
        let flow = epoch.flow(length);
        let gathered = flow.frames_per_call >= GATHERED;
        let promising = epoch.is_pressed() && epoch.is_streaming() && !gathered;
        match self.mode {
            Mode::Prompt {
                before: Some(before),
            } if promising && self.hold_off.is_zero() => Mode::Trial {
                prompt: before.lesser(flow),
                settled: false,
            },
            Mode::Prompt { .. } => Mode::Prompt {
                before: promising.then_some(flow),
            },
            Mode::Trial {
                prompt,
                settled: false,
            } => Mode::Trial {
                prompt,
                settled: true,
            },
            Mode::Trial {
                prompt,
                settled: true,
            } => {
                if epoch.is_streaming() && flow.is_worth_waiting(prompt) {
                    self.penalty = PENALTY_MIN;
                    Mode::Waiting {
                        left: COMPARE_EVERY,
                    }
                } else {
                    self.hold_off = self.penalty;
                    self.penalty = (self.penalty * 2).min(PENALTY_MAX);
                    Mode::Prompt { before: None }
                }
            }
            Mode::Waiting { left } => match left.checked_sub(length) {
                Some(left) if epoch.is_streaming() && flow.frames_per_call >= GATHERS_MORE => {
                    Mode::Waiting { left }
                }
                _ => Mode::Prompt { before: None },
            },
        }
    }
}

impl Turn {
    fn add(&mut self, turn: &Self) {
        self.reads += turn.reads;
        self.letters += turn.letters;
        self.answers += turn.answers;
        self.writes += turn.writes;
        self.frames += turn.frames;
        self.busy += turn.busy;
        self.idle += turn.idle;
        self.waited += turn.waited;
    }

    /// The loop had something to do for at least half of the time.
    fn is_pressed(&self) -> bool {
        self.idle <= self.busy
    }

    /// Most reads were not answers.
    fn is_streaming(&self) -> bool {
        self.reads > 0 && self.answers * 2 < self.reads
    }

    fn flow(&self, length: Duration) -> Flow {
        #[expect(clippy::cast_precision_loss, reason = "counts of some milliseconds")]
        let (frames, calls) = (self.frames as f64, (self.reads + self.writes).max(1) as f64);
        Flow {
            frames_per_call: frames / calls,
            frames_per_s: frames / length.as_secs_f64(),
        }
    }
}

impl Flow {
    /// Of two epochs without waiting: what came in a burst, or while the loop was behind, is not
    /// the rule.
    fn lesser(self, other: Self) -> Self {
        Self {
            frames_per_call: self.frames_per_call.min(other.frames_per_call),
            frames_per_s: self.frames_per_s.min(other.frames_per_s),
        }
    }

    fn is_worth_waiting(self, prompt: Self) -> bool {
        self.frames_per_call >= prompt.frames_per_call * GATHERS_MORE
            && self.frames_per_s >= prompt.frames_per_s * KEEPS_RATE
    }
}

/// Time over which turns are judged together: long enough to hold several waits.
const EPOCH: Duration = Duration::from_millis(10);
/// An epoch has at least so many turns, however long they are.
const EPOCH_TURNS: u32 = 4;
/// A wait gathers more if frames a call are this many times what they were without; and when they
/// fall below this number, waiting gathers nothing any more.
const GATHERS_MORE: f64 = 1.1;
/// Where a call has so many frames without waiting, its cost is little beside theirs, and a wait
/// only holds up whoever else is on the shard. A publisher with 32 messages a write seemed to
/// gather more by waiting in one trial of three, and then half as many went through: 1.5 to 2.3
/// million a second instead of 3.5 to 3.9. With 256 here it still did; with 32 it does not.
const GATHERED: f64 = 32.0;
/// A wait costs no throughput if the rate stays above this part of what it was without; rates of
/// single epochs vary.
const KEEPS_RATE: f64 = 0.8;
/// Time without a trial after a lost one, doubled by each further one.
const PENALTY_MIN: Duration = Duration::from_millis(100);
const PENALTY_MAX: Duration = Duration::from_secs(16);
/// Time after which waiting is compared again with not waiting.
const COMPARE_EVERY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    /// A world in which each of `senders` has at most `window` frames under way and sends `rate`
    /// frames a second if it may; the loop needs `read_us` for a read and `frame_us` for a frame.
    struct World {
        senders: usize,
        window: f64,
        rate: f64,
        read_us: f64,
        frame_us: f64,
        /// Each frame comes from a peer that was just spoken to.
        conversation: bool,
    }

    #[derive(Debug, Default)]
    struct Seen {
        frames: f64,
        waits: u32,
        turns: u32,
        time: Duration,
    }

    impl World {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "small whole numbers"
        )]
        /// Lets the loop run for some time.
        fn run(&self, coalescer: &mut Coalescer, time: Duration) -> Seen {
            let mut seen = Seen::default();
            let mut pending = vec![0.0f64; self.senders];
            let (mut gap, mut wait) = (Duration::ZERO, Duration::ZERO);
            while seen.time < time {
                // What came during the time since the last look; a sender with a full window waits.
                let mut idle = Duration::ZERO;
                loop {
                    for frames in &mut pending {
                        *frames = (*frames + self.rate * gap.as_secs_f64()).min(self.window);
                    }
                    if pending.iter().any(|frames| *frames >= 1.0) {
                        break;
                    }
                    gap = Duration::from_micros(10);
                    idle += gap;
                    seen.time += gap;
                }
                let mut turn = Turn {
                    idle,
                    waited: wait,
                    ..Turn::default()
                };
                let mut busy_us = 2.0;
                for frames in pending.iter_mut().filter(|frames| **frames >= 1.0) {
                    let whole = frames.floor();
                    *frames -= whole;
                    busy_us += self.read_us + self.frame_us * whole;
                    turn.reads += 1;
                    turn.frames += whole as u64;
                    turn.answers += u64::from(self.conversation && whole < 2.0);
                }
                turn.busy = Duration::from_secs_f64(busy_us / 1e6);
                wait = coalescer.turn_ended(&turn, always);
                seen.waits += u32::from(!wait.is_zero());
                seen.turns += 1;
                seen.frames += turn.frames as f64;
                gap = turn.busy + wait;
                seen.time += gap;
            }
            seen
        }
    }

    const STREAM: World = World {
        senders: 50,
        window: 100.0,
        rate: 4_000.0,
        read_us: 5.0,
        frame_us: 0.5,
        conversation: false,
    };
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_stream_that_presses_the_loop_is_gathered() {
        let mut coalescer = Coalescer::default();
        STREAM.run(&mut coalescer, SECOND);
        let seen = STREAM.run(&mut coalescer, SECOND);
        assert!(seen.waits * 10 > seen.turns * 9, "{seen:?}");
        assert!(
            seen.frames > 195_000.0,
            "all that was sent came through: {seen:?}"
        );
    }

    #[test]
    fn a_wait_that_gathers_only_writes_is_worth_it() {
        let mut coalescer = Coalescer::default();
        let (mut waits, mut wait) = (0, Duration::ZERO);
        for _ in 0..1_000 {
            // Each publisher's window of 50 is in one read, however long it was left alone; each
            // message goes to two of 500 receivers.
            let readable = if wait.is_zero() { 1 } else { 10 };
            let writes = if wait.is_zero() { 100 } else { 500 };
            let turn = Turn {
                reads: readable,
                writes,
                frames: readable * 150,
                busy: Duration::from_micros(writes * 3),
                waited: wait,
                ..Turn::default()
            };
            wait = coalescer.turn_ended(&turn, always);
            waits += u32::from(!wait.is_zero());
        }
        assert!(waits > 800, "{waits}");
    }

    #[test]
    fn a_flood_that_fills_its_reads_never_waits() {
        let mut coalescer = Coalescer::default();
        let waits = (0..1_000).filter(|_| {
            let turn = Turn {
                reads: 1,
                writes: 1,
                frames: 1_000,
                busy: Duration::from_micros(300),
                ..Turn::default()
            };
            !coalescer.turn_ended(&turn, always).is_zero()
        });
        assert_eq!(waits.count(), 0);
    }

    #[test]
    fn a_light_load_never_waits() {
        let mut coalescer = Coalescer::default();
        let light = World {
            rate: 400.0,
            ..STREAM
        };
        assert_eq!(light.run(&mut coalescer, SECOND * 5).waits, 0);
    }

    #[test]
    fn requests_and_replies_never_wait_however_many_there_are() {
        let mut coalescer = Coalescer::default();
        let ping = World {
            window: 1.0,
            rate: 50_000.0,
            conversation: true,
            ..STREAM
        };
        assert_eq!(ping.run(&mut coalescer, SECOND * 5).waits, 0);
    }

    #[test]
    fn a_sender_with_a_small_window_is_hardly_ever_made_to_wait() {
        for window in [1.0, 10.0] {
            let mut coalescer = Coalescer::default();
            let narrow = World {
                senders: 1,
                window,
                rate: 150_000.0,
                ..STREAM
            };
            let seen = narrow.run(&mut coalescer, SECOND * 20);
            let waited = WAIT_MIN * seen.waits;
            assert!(waited < seen.time / 50, "{window}: {seen:?}");
        }
    }

    #[test]
    fn waiting_ends_soon_after_the_stream() {
        let mut coalescer = Coalescer::default();
        STREAM.run(&mut coalescer, SECOND);
        let light = World {
            rate: 400.0,
            ..STREAM
        };
        light.run(&mut coalescer, SECOND / 10);
        assert_eq!(light.run(&mut coalescer, SECOND).waits, 0);
    }

    #[test]
    fn a_wait_is_as_long_as_the_turn_within_its_bounds() {
        let mut coalescer = Coalescer::default();
        STREAM.run(&mut coalescer, SECOND);
        let mut after = |busy_us| {
            let busy = Duration::from_micros(busy_us);
            let turn = Turn {
                reads: 1,
                frames: 2,
                busy,
                ..Turn::default()
            };
            coalescer.turn_ended(&turn, always)
        };
        assert_eq!(after(10), WAIT_MIN);
        assert_eq!(after(1_500), Duration::from_micros(1_500));
        assert_eq!(after(5_000), WAIT_MAX);
    }

    /// Nothing but a core for the taking.
    const fn always() -> Duration {
        Duration::ZERO
    }

    /// Turns of two shards on one core: 0.3 ms of work in each, and then nothing for 0.7 ms, of
    /// which so much was waiting for the core.
    fn waits_on_a_shared_core(unserved_us: u64) -> u32 {
        let mut coalescer = Coalescer::default();
        let (mut waits, mut wait, mut unserved) = (0, Duration::ZERO, Duration::ZERO);
        for _ in 0..1_000 {
            let frames = if wait.is_zero() { 3 } else { 9 };
            let turn = Turn {
                reads: 100,
                writes: 100,
                frames: frames * 200,
                busy: Duration::from_micros(300 * frames / 3),
                idle: Duration::from_micros(700),
                waited: wait,
                ..Turn::default()
            };
            unserved += Duration::from_micros(unserved_us);
            wait = coalescer.turn_ended(&turn, || unserved);
            waits += u32::from(!wait.is_zero());
        }
        waits
    }

    #[test]
    fn waiting_for_a_core_is_not_idleness() {
        assert!(waits_on_a_shared_core(450) > 800);
        assert_eq!(waits_on_a_shared_core(200), 0);
    }

    #[test]
    fn letters_from_another_shard_are_gathered_too() {
        let mut coalescer = Coalescer::default();
        STREAM.run(&mut coalescer, SECOND);
        let turn = Turn {
            letters: 1,
            ..Turn::default()
        };
        assert_eq!(coalescer.turn_ended(&turn, always), WAIT_MIN);
    }

    #[test]
    fn nothing_read_is_nothing_to_wait_for() {
        let mut coalescer = Coalescer::default();
        STREAM.run(&mut coalescer, SECOND);
        assert!(coalescer.is_waiting());
        assert_eq!(
            coalescer.turn_ended(&Turn::default(), always),
            Duration::ZERO
        );
    }
}
