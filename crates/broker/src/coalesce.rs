//! Adaptive coalescing: whether the loop waits a moment before it looks for more, so that one read
//! and one write serve several messages, and how long.
//!
//! ```text
//! prompt ── two epochs in a row pressed and streaming ──▶ trial: a wait, for two epochs
//!    ▲ ▲                                                      │
//!    │ └── hardly worth more than not waiting ────────────────┤
//!    │     (the next trial after twice as long)               ▼
//!    └── not streaming, lone frames, next to nothing ── waiting: up and down the rungs,
//!        to do, or time to compare                      to where it is worth most
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
//!   last one may be an answer, and where three reads of four are such, nothing is tried.
//! - A flood that fills its reads anyway never waits: what is quiet beside it would, for nothing.
//! - A sender that waits for its own messages to come out (a small window, on another connection)
//!   is recognised by the trial: the rate falls.
//!
//! What a wait is *worth*: frames each second, times frames for each second of CPU time. So a wait
//! that makes messages a tenth cheaper may take a tenth of the rate; but none takes more than a
//! fifth of what the rate is without.
//!
//! How long: publishers who have sent all that they may send no more however long the loop waits,
//! and nobody but they know when that is. So the loop tries: each [rung](RUNGS) of the ladder is
//! twice the one below, and the wait moves to a neighbour that is worth more, one epoch after it
//! was moved there and one more to measure it. A longer one has to be worth a twentieth more; a
//! shorter one may be worth a little less, for messages are sooner. Until 2026-11-26 the wait was
//! as long as the turn before, 1 ms at least. Since then (medians of three alternating runs; CPU
//! time of the broker for a delivery, and deliveries/s): 100,000 filters 1.68 µs and 363,000/s,
//! now 1.26 µs and 597,000/s; 100 connections in pairs with 1 KiB 1.51 and 390,000, now 1.26 and
//! 592,000; fan-in at QoS 1 1.59 and 400,000, now 1.38 and 482,000, at QoS 2 1.92 and 272,000, now
//! 2.02 and 417,000; 100 connections in pairs 0.92 and 629,000, now 0.88 and 756,000. With 500 and
//! 1,000 connections it climbs to 2 ms, as before.
//!
//! While the loop waits for the disk instead ([`crate::shard_thread`]), the length of the wait is
//! the disk's, and nothing is compared.
//!
//! Invariants: no clock is read here; no wait is longer than [`WAIT_MAX`], or than [`TURN_MIN`] and
//! the turn before it, and none follows a turn to which nothing came. So with many connections,
//! whose turns are long, a message waits for no longer than it waits anyway for the turn of all
//! others.
//!
//! The wait is a plain sleep: a poll's timeout has whole milliseconds and ends at the first event.
//! Calls are reads and writes, and frames those that come and those that go: counted by reads
//! alone, a few publishers to many receivers seemed to gather nothing, though each wait halves the
//! writes.
//!
//! Tried and lost:
//! - A fixed wait: each length is the best for some load and far from it for another. In runs with
//!   0.1, 0.3, 0.7 and 1.5 ms, 100,000 filters did best with 0.3 (578,000/s; 445,000 with 1.5), 100
//!   connections with 0.7 (804,000; 435,000 with 0.1), 500 with 1.5 (421,000; 331,000 with 0.3).
//! - No wait as the lowest rung: what waits have gathered stays together for some epochs without
//!   them, so for so long it looks best, and then a message costs three times as much.
//! - CPU time out of `/proc/thread-self/schedstat`: it is as of the last tick, so that epochs of 10
//!   ms differed by a third, and the wait wandered.
//! - Rate and frames a call each with a bound of its own (0.8 and 1.1 times those without a wait):
//!   that tells whether waiting is worth it, and not which wait.
//! - 3 ms: cheaper still with 500 publishers, but that is late for the few that do not send much.
//! - Ending a wait when it gathers no more than the last epochs without it did: these often hold a
//!   burst, or what a slow start left behind, and then a good wait was given up.
//! - Calling an epoch pressed only when busy for two thirds: where another program takes one of two
//!   cores, the clients' turn at the other looks like idleness, and a stream was not recognised.
//! - While waiting, to read only half of the readable connections in a turn, so that each had more:
//!   with 10 publishers and 500 receivers a message took a sixth more, and a quarter fewer went
//!   through.
//! - Epochs of 20 ms and half a second between trials: a stream that began with a burst lost its
//!   first trial and paid in full for its first second.

use std::cmp::Ordering;
use std::time::Duration;

use crate::core_time::Times;

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
    /// The disk said when that wait was over.
    pub(crate) for_disk: bool,
}

/// Decides after each turn.
#[derive(Debug)]
pub(crate) struct Coalescer {
    mode: Mode,
    /// The epoch under way.
    epoch: Turn,
    turns: u32,
    /// At the end of the last epoch.
    times: Times,
    /// Where the next climb begins.
    start: usize,
    /// No trial before so much time has passed.
    hold_off: Duration,
    /// What the next lost trial costs.
    penalty: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Not waiting. `settled`: the first turns, which still work off what came before, are over.
    /// `before`: the last epoch, if it was pressed and streaming.
    Prompt { settled: bool, before: Option<Flow> },
    /// Waiting, to see whether that is worth more than not waiting was.
    Trial { prompt: Flow, settled: bool },
    /// Waiting, for it was worth more, and looking for the wait that is worth most.
    Waiting(Climb),
}

/// What came through in some time, and what it is worth.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Frames each second.
    rate: f64,
    /// That, times frames for each second of CPU time.
    worth: f64,
}

/// Compares the wait that was worth most with its neighbours, one after the other.
#[derive(Clone, Copy, Debug)]
struct Climb {
    /// The rung that was worth most so far.
    held: usize,
    /// What it was worth when it was last measured.
    worth: f64,
    /// The rung that is waited for now.
    tried: usize,
    settled: bool,
    /// The next neighbour is the longer one.
    longer: bool,
    /// Neighbours that were worth less, since one was worth more.
    lost: u32,
    /// Time on the held rung before the next comparison, and how much the next rest will be.
    rest: Duration,
    next_rest: Duration,
    /// Time until waiting is compared with not waiting.
    left: Duration,
    /// No longer wait may have less.
    rate_min: f64,
}

impl Default for Coalescer {
    fn default() -> Self {
        Self {
            mode: Mode::Prompt {
                settled: true,
                before: None,
            },
            epoch: Turn::default(),
            turns: 0,
            times: Times::default(),
            start: START,
            hold_off: Duration::ZERO,
            penalty: PENALTY_MIN,
        }
    }
}

impl Coalescer {
    /// How long to wait before the next turn. `times` says what the thread has had of the cores, in
    /// all so far; it is asked once an epoch.
    pub(crate) fn turn_ended(&mut self, turn: &Turn, times: impl FnOnce() -> Times) -> Duration {
        self.epoch.add(turn);
        self.turns += 1;
        if self.epoch.length() >= EPOCH && self.turns >= EPOCH_TURNS {
            let mut epoch = std::mem::take(&mut self.epoch);
            let turns = std::mem::take(&mut self.turns);
            let times = times();
            let spent = times.since(std::mem::replace(&mut self.times, times));
            let length = epoch.length();
            let flow = epoch.flow(length, spent.served);
            epoch.idle = epoch.idle.saturating_sub(spent.unserved);
            self.mode = self.epoch_ended(&epoch, turns, length, flow);
        }
        match self.rung() {
            Some(rung) if turn.reads + turn.letters > 0 => rung.min(turn.busy.max(TURN_MIN)),
            _ => Duration::ZERO,
        }
    }

    /// Whether a wait gathers more, or is tried.
    pub(crate) fn is_waiting(&self) -> bool {
        self.rung().is_some()
    }

    fn rung(&self) -> Option<Duration> {
        match self.mode {
            Mode::Prompt { .. } => None,
            Mode::Trial { .. } => Some(RUNGS[self.start]),
            Mode::Waiting(climb) => Some(RUNGS[climb.tried]),
        }
    }

    fn epoch_ended(&mut self, epoch: &Turn, turns: u32, length: Duration, flow: Flow) -> Mode {
        self.hold_off = self.hold_off.saturating_sub(length);
        match self.mode {
            Mode::Prompt { settled: false, .. } => Mode::PROMPT,
            Mode::Prompt { before, .. } => {
                let promising = epoch.is_pressed()
                    && epoch.is_streaming()
                    && epoch.frames_per_call() < GATHERED;
                match before.filter(|_| promising && self.hold_off.is_zero()) {
                    // Of two epochs the lesser: what came in a burst, or while the loop was behind,
                    // is not the rule.
                    Some(before) => Mode::Trial {
                        prompt: before.lesser(flow),
                        settled: false,
                    },
                    None => Mode::Prompt {
                        settled: true,
                        before: promising.then_some(flow),
                    },
                }
            }
            Mode::Trial {
                prompt,
                settled: false,
            } => Mode::Trial {
                prompt,
                settled: true,
            },
            Mode::Trial { prompt, .. } => {
                let rate_min = prompt.rate * KEEPS_RATE;
                if epoch.gathers() && flow.worth > prompt.worth * WORTH_IT && flow.rate > rate_min {
                    Mode::Waiting(Climb::from(self.start, flow.worth, rate_min))
                } else {
                    self.start = START;
                    self.hold_off();
                    Mode::PROMPT
                }
            }
            Mode::Waiting(mut climb) => {
                if !epoch.gathers() || epoch.is_light() {
                    self.start = START;
                    self.hold_off();
                    return Mode::PROMPT;
                }
                let Some(left) = climb.left.checked_sub(length) else {
                    self.start = climb.held;
                    self.penalty = PENALTY_MIN;
                    return Mode::Prompt {
                        settled: false,
                        before: None,
                    };
                };
                climb.left = left;
                if !epoch.for_disk {
                    // Behind short turns the longest wait is no longer than the one below.
                    let is_short = epoch.busy < TURN_MIN * turns;
                    let last = RUNGS.len() - 1 - usize::from(is_short);
                    climb.measured(length, flow, last);
                }
                Mode::Waiting(climb)
            }
        }
    }

    fn hold_off(&mut self) {
        self.hold_off = self.penalty;
        self.penalty = (self.penalty * 2).min(PENALTY_MAX);
    }
}

impl Mode {
    const PROMPT: Self = Self::Prompt {
        settled: true,
        before: None,
    };
}

impl Flow {
    fn lesser(self, other: Self) -> Self {
        Self {
            rate: self.rate.min(other.rate),
            worth: self.worth.min(other.worth),
        }
    }
}

impl Climb {
    /// From a wait that was worth so much, which it is measured to be once more at first.
    const fn from(held: usize, worth: f64, rate_min: f64) -> Self {
        Self {
            held,
            worth,
            tried: held,
            settled: true,
            longer: true,
            lost: 0,
            rest: Duration::ZERO,
            next_rest: REST_MIN,
            left: COMPARE_EVERY,
            rate_min,
        }
    }

    /// What an epoch of so much time on the tried rung brought. Rungs end at `last`.
    fn measured(&mut self, length: Duration, flow: Flow, last: usize) {
        self.rest = self.rest.saturating_sub(length);
        if !self.rest.is_zero() {
            return;
        }
        if !self.settled {
            self.settled = true;
            return;
        }
        self.settled = false;
        let is_better = match self.tried.cmp(&self.held) {
            Ordering::Equal => {
                self.worth = flow.worth;
                return self.try_neighbour(last);
            }
            Ordering::Greater => flow.worth > self.worth * LONGER && flow.rate > self.rate_min,
            Ordering::Less => flow.worth > self.worth * SHORTER,
        };
        if is_better {
            self.held = self.tried;
            self.worth = flow.worth;
            self.lost = 0;
            self.next_rest = REST_MIN;
            return self.try_neighbour(last);
        }
        self.tried = self.held;
        self.longer = !self.longer;
        self.lost += 1;
        if self.lost == 2 {
            self.lost = 0;
            self.rest = self.next_rest;
            self.next_rest = (self.next_rest * 2).min(REST_MAX);
        }
    }

    fn try_neighbour(&mut self, last: usize) {
        self.longer = (self.longer || self.held == 0) && self.held < last;
        self.tried = if self.longer {
            self.held + 1
        } else {
            self.held - 1
        };
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
        self.for_disk |= turn.for_disk;
    }

    /// The loop had something to do for at least half of the time.
    fn is_pressed(&self) -> bool {
        self.idle <= self.busy
    }

    /// A good part of the reads were no answers. Of requests and replies nine tenths are and more;
    /// of publishers at QoS 1 that have ten messages under way half, for they send the next one
    /// when they have an acknowledgement.
    fn is_streaming(&self) -> bool {
        self.reads > 0 && self.answers * 4 < self.reads * 3
    }

    /// It streams, and a call has more than a lone frame.
    fn gathers(&self) -> bool {
        self.is_streaming() && self.frames_per_call() >= GATHERS_MORE
    }

    /// So little to do that not waiting, however much dearer, would not press the loop either.
    fn is_light(&self) -> bool {
        self.busy * LIGHT < self.length()
    }

    fn length(&self) -> Duration {
        self.busy + self.idle + self.waited
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of some milliseconds")]
    fn frames_per_call(&self) -> f64 {
        self.frames as f64 / (self.reads + self.writes).max(1) as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of some milliseconds")]
    fn flow(&self, length: Duration, served: Duration) -> Flow {
        // Of a system that does not tell: as if nobody had taken the core meanwhile.
        let served = if served.is_zero() { self.busy } else { served };
        let frames = self.frames as f64;
        let rate = frames / length.as_secs_f64();
        Flow {
            rate,
            worth: rate * (frames / served.as_secs_f64()),
        }
    }
}

/// Time over which turns are judged together: long enough to hold several waits.
const EPOCH: Duration = Duration::from_millis(10);
/// An epoch has at least so many turns, however long they are.
const EPOCH_TURNS: u32 = 4;
/// Behind a shorter turn a wait may be so long all the same.
const TURN_MIN: Duration = Duration::from_millis(1);
/// The waits. Each ends some 60 µs late, for that is a sleep's slack.
const RUNGS: [Duration; 5] = [
    Duration::from_micros(125),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    WAIT_MAX,
];
/// The rung of the first trial; of a later one it is the one that was held before.
const START: usize = 3;
/// A wait is won if it is worth so many times what not waiting is, and keeps this part of its rate.
/// Single epochs vary by a twentieth.
const WORTH_IT: f64 = 1.1;
const KEEPS_RATE: f64 = 0.8;
/// So many times what the held wait is worth, a longer one has to be, and a shorter one.
const LONGER: f64 = 1.05;
const SHORTER: f64 = 0.98;
/// Time without a comparison when both neighbours were worth less, doubled each time until one is
/// worth more. Comparing both takes four epochs on other rungs than the best, which is a tenth of
/// the time and later a thirtieth.
const REST_MIN: Duration = Duration::from_millis(250);
const REST_MAX: Duration = Duration::from_secs(1);
/// The loop had little to do if it was busy for less than this part of the time. A wait makes
/// messages four times as cheap at most, so it would not be pressed without.
const LIGHT: u32 = 8;
/// Where frames a call are below this number, waiting gathers nothing.
const GATHERS_MORE: f64 = 1.1;
/// Where a call has so many frames without waiting, its cost is little beside theirs, and a wait
/// only holds up whoever else is on the shard. A publisher with 32 messages a write seemed to
/// gather more by waiting in one trial of three, and then half as many went through: 1.5 to 2.3
/// million a second instead of 3.5 to 3.9. With 256 here it still did; with 32 it does not.
const GATHERED: f64 = 32.0;
/// Time without a trial after a lost one, doubled by each further one.
const PENALTY_MIN: Duration = Duration::from_millis(100);
const PENALTY_MAX: Duration = Duration::from_secs(16);
/// Time after which waiting is compared again with not waiting: the stream may have become thin.
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
            let waited = WAIT_MAX * seen.waits;
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
    fn no_wait_is_longer_than_the_turn_before_it_beyond_a_moment() {
        let mut coalescer = waiting(RUNGS.len() - 1);
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
        assert_eq!(after(10), TURN_MIN);
        assert_eq!(after(1_500), Duration::from_micros(1_500));
        assert_eq!(after(5_000), WAIT_MAX);
    }

    /// Waits on this rung.
    fn waiting(rung: usize) -> Coalescer {
        Coalescer {
            mode: Mode::Waiting(Climb::from(rung, 1.0, 0.0)),
            ..Coalescer::default()
        }
    }

    /// Clients of a closed loop: they have sent all that they may after so much time, and read all
    /// that was written meanwhile. What a call takes is most of what a message costs, and no wait
    /// makes it cheaper when all is there.
    fn closed_loop(coalescer: &mut Coalescer, full_after: Duration, seconds: u64) -> Vec<Duration> {
        let (mut time, mut wait, mut waits) = (Duration::ZERO, Duration::ZERO, Vec::new());
        while time < SECOND * u32::try_from(seconds).unwrap() {
            let full = wait.as_secs_f64() / full_after.as_secs_f64();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a small whole number"
            )]
            let frames = 200 + (800.0 * full.min(1.0)) as u64;
            let turn = Turn {
                reads: 200,
                frames,
                busy: Duration::from_millis(1) + Duration::from_nanos(300 * frames),
                waited: wait,
                ..Turn::default()
            };
            time += turn.length();
            wait = coalescer.turn_ended(&turn, always);
            waits.push(wait);
        }
        waits
    }

    /// The wait after most turns.
    fn usual(mut waits: Vec<Duration>) -> Duration {
        waits.sort();
        waits[waits.len() / 2]
    }

    #[test]
    fn a_wait_lasts_until_clients_have_sent_what_they_may_and_no_longer() {
        for full_after_us in [100, 200, 450, 900] {
            let mut coalescer = Coalescer::default();
            let full_after = Duration::from_micros(full_after_us);
            let waits = closed_loop(&mut coalescer, full_after, 3);
            let usual = usual(waits);
            assert!(
                full_after <= usual && usual <= full_after * 3 / 2,
                "{usual:?} where {full_after:?} is enough"
            );
        }
    }

    #[test]
    fn a_wait_follows_what_clients_need() {
        let mut coalescer = Coalescer::default();
        for full_after_us in [900, 100, 450, 200] {
            let full_after = Duration::from_micros(full_after_us);
            closed_loop(&mut coalescer, full_after, 3);
            let usual = usual(closed_loop(&mut coalescer, full_after, 3));
            assert!(
                full_after <= usual && usual <= full_after * 3 / 2,
                "{usual:?} where {full_after:?} is enough"
            );
        }
    }

    #[test]
    fn looking_for_a_better_wait_takes_little() {
        let mut coalescer = Coalescer::default();
        let full_after = Duration::from_micros(450);
        closed_loop(&mut coalescer, full_after, 3);
        let waits = closed_loop(&mut coalescer, full_after, 20);
        let best = RUNGS[2];
        let others = waits.iter().filter(|&&wait| wait != best).count();
        assert!(others * 8 < waits.len(), "{others} of {}", waits.len());
    }

    #[test]
    fn a_core_that_others_take_does_not_make_a_wait_look_dear() {
        let mut coalescer = Coalescer::default();
        let (mut served, mut wait, mut waits) = (Duration::ZERO, Duration::ZERO, 0);
        for _ in 0..1_000 {
            // A turn works for half a millisecond, and behind a wait others take the core for 4.5.
            let busy = if wait.is_zero() { 500 } else { 5_000 };
            served += Duration::from_micros(500);
            let turn = Turn {
                reads: 100,
                frames: if wait.is_zero() { 300 } else { 3_000 },
                busy: Duration::from_micros(busy),
                waited: wait,
                ..Turn::default()
            };
            let unserved = Duration::ZERO;
            wait = coalescer.turn_ended(&turn, || Times { served, unserved });
            waits += u32::from(!wait.is_zero());
        }
        assert!(waits > 800, "{waits}");
    }

    /// Turns of one kind without a wait and of another behind one; how many waited.
    fn waits_of(turns: u32, prompt: Turn, waited: Turn) -> u32 {
        let mut coalescer = Coalescer::default();
        waits_on(&mut coalescer, turns, prompt, waited)
    }

    fn waits_on(coalescer: &mut Coalescer, turns: u32, prompt: Turn, waited: Turn) -> u32 {
        let (mut wait, mut waits) = (Duration::ZERO, 0);
        for _ in 0..turns {
            let mut turn = if wait.is_zero() { prompt } else { waited };
            turn.waited = wait;
            wait = coalescer.turn_ended(&turn, always);
            waits += u32::from(!wait.is_zero());
        }
        waits
    }

    /// 200 reads with some answers among them, and four times as many messages behind a wait.
    fn stream(answers: u64) -> (Turn, Turn) {
        let prompt = Turn {
            reads: 200,
            writes: 200,
            answers,
            frames: 800,
            busy: Duration::from_millis(1),
            ..Turn::default()
        };
        let waited = Turn {
            frames: 3_200,
            busy: Duration::from_millis(2),
            ..prompt
        };
        (prompt, waited)
    }

    #[test]
    fn three_answers_in_four_reads_are_a_conversation() {
        let (prompt, waited) = stream(149);
        assert!(waits_of(1_000, prompt, waited) > 900);
        let (prompt, waited) = stream(150);
        assert_eq!(waits_of(1_000, prompt, waited), 0);
    }

    #[test]
    fn where_each_call_has_a_lone_frame_a_wait_is_not_worth_it() {
        let prompt = Turn {
            reads: 1,
            writes: 1,
            frames: 2,
            busy: Duration::from_micros(8),
            idle: Duration::from_micros(6),
            ..Turn::default()
        };
        let waited = Turn {
            reads: 70,
            writes: 70,
            frames: 140,
            busy: Duration::from_micros(420),
            ..Turn::default()
        };
        let turns = 1_000_000; // 14 s
        let waits = waits_of(turns, prompt, waited);
        assert!(waits < turns / 1_000, "{waits}");
    }

    #[test]
    fn a_wait_that_takes_a_third_of_the_rate_is_not_worth_it_however_cheap_it_is() {
        let (prompt, waited) = stream(0);
        let cheap = Turn {
            busy: Duration::from_micros(200),
            // Behind a wait of 1 ms: 0.67 of the rate.
            frames: 640,
            ..waited
        };
        let waits = waits_of(10_000, prompt, cheap);
        assert!(waits < 500, "{waits}");
    }

    #[test]
    fn a_stream_that_becomes_thin_is_not_made_to_wait_though_it_gathers() {
        let (prompt, waited) = stream(0);
        let mut coalescer = Coalescer::default();
        assert!(waits_on(&mut coalescer, 1_000, prompt, waited) > 900);
        // A twelfth of the time, which without waits would be a third at most.
        let thin = |frames, busy_us, idle_us| Turn {
            reads: 20,
            writes: 20,
            frames,
            busy: Duration::from_micros(busy_us),
            idle: Duration::from_micros(idle_us),
            ..Turn::default()
        };
        let (prompt, waited) = (thin(20, 100, 200), thin(100, 150, 1_000));
        waits_on(&mut coalescer, 100, prompt, waited);
        assert_eq!(waits_on(&mut coalescer, 10_000, prompt, waited), 0);
    }

    #[test]
    fn what_a_burst_brought_is_not_what_waiting_has_to_beat() {
        let (prompt, waited) = stream(0);
        let mut coalescer = Coalescer::default();
        let burst = Turn {
            frames: 4_000,
            ..prompt
        };
        // Ten turns of it are an epoch.
        assert_eq!(waits_on(&mut coalescer, 10, burst, burst), 0);
        let waits = waits_on(&mut coalescer, 100, prompt, waited);
        assert!(waits > 80, "{waits}");
    }

    #[test]
    fn the_disk_says_how_long_a_wait_is_and_nothing_is_compared() {
        let (prompt, waited) = stream(0);
        let mut coalescer = Coalescer::default();
        let waited = Turn {
            for_disk: true,
            ..waited
        };
        for _ in 0..10 {
            waits_on(&mut coalescer, 100, prompt, waited);
            assert!(coalescer.rung().is_none_or(|rung| rung == RUNGS[START]));
        }
    }

    #[test]
    fn after_a_comparison_it_waits_as_it_did_before() {
        let mut coalescer = Coalescer::default();
        let full_after = Duration::from_micros(100);
        closed_loop(&mut coalescer, full_after, 3);
        let waits = closed_loop(&mut coalescer, full_after, 10);
        let longer = waits.iter().filter(|&&wait| wait > RUNGS[1]).count();
        assert_eq!(longer, 0);
    }

    /// Nothing but a core for the taking.
    fn always() -> Times {
        Times::default()
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
            let served = Duration::ZERO;
            wait = coalescer.turn_ended(&turn, || Times { served, unserved });
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
        let mut coalescer = waiting(2);
        let turn = Turn {
            letters: 1,
            ..Turn::default()
        };
        assert_eq!(coalescer.turn_ended(&turn, always), RUNGS[2]);
    }

    #[test]
    fn nothing_read_is_nothing_to_wait_for() {
        let mut coalescer = waiting(2);
        assert!(coalescer.is_waiting());
        assert_eq!(
            coalescer.turn_ended(&Turn::default(), always),
            Duration::ZERO
        );
    }
}
