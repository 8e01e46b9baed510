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
//!   for at least half of it, without the time in which it was ready and had no core. What that
//!   was is not asked for where it was busy for less than an eighth of all time, and so the first
//!   epoch after such a one is none of the two. Where threads are more than cores waiting for one
//!   looks like idleness: with two shards and their load on two cores the loops were idle for two
//!   thirds of the time, of which a third was waiting for a core.
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
//! Invariants: no clock is read here; no wait that is longer than [`TURN_MIN`] is longer than the
//! turn before it would be with one shard (if all have equal parts), nor with that turn longer than
//! the turn of one shard and [`WAIT_MAX`]; and none follows a turn to which nothing came. So with
//! many connections, whose turns are long, a message waits for no longer than it would wait anyway
//! for the turn of all others.
//!
//! With several shards each has a part of the connections, so that a turn is as much shorter as
//! fewer messages have come for it. With the turn itself as the bound, two shards took 2.01 µs for
//! a delivery between 500 connections in pairs where one took 1.10, and with this one 1.33; fan-in
//! 1.17 instead of 0.84, and 0.98 (medians of three alternating runs, two cores). So a wait may be
//! longer, too, by as much as the turn is shorter: with 1,000 connections in pairs two shards took
//! 2.28 µs where one took 1.74, and 1.66 since (medians of four).
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

#[cfg(test)]
pub(crate) mod tests;

use std::cmp::Ordering;
use std::time::Duration;

use crate::core_time::Times;

/// The longest wait of one shard.
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
    /// At the end of the last epoch, unless the loop had next to nothing to do.
    times: Option<Times>,
    /// Where the next climb begins.
    start: usize,
    /// Among which the clients are divided.
    shards: u32,
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

impl Coalescer {
    pub(crate) fn new(shards: u32) -> Self {
        Self {
            mode: Mode::Prompt {
                settled: true,
                before: None,
            },
            epoch: Turn::default(),
            turns: 0,
            times: None,
            start: START,
            shards,
            hold_off: Duration::ZERO,
            penalty: PENALTY_MIN,
        }
    }

    /// How long to wait before the next turn. `times` says what the thread has had of the cores, in
    /// all so far; it is asked once an epoch, but of a loop with next to nothing to do.
    pub(crate) fn turn_ended(&mut self, turn: &Turn, times: impl FnOnce() -> Times) -> Duration {
        self.epoch.add(turn);
        self.turns += 1;
        if self.epoch.length() >= EPOCH && self.turns >= EPOCH_TURNS {
            let mut epoch = std::mem::take(&mut self.epoch);
            let turns = std::mem::take(&mut self.turns);
            let length = epoch.length();
            self.hold_off = self.hold_off.saturating_sub(length);
            let is_at_ease = epoch.is_light() && !self.is_waiting();
            let times = (!is_at_ease).then(times);
            let before = std::mem::replace(&mut self.times, times);
            self.mode = match times.zip(before) {
                Some((times, before)) => {
                    let spent = times.since(before);
                    let flow = epoch.flow(length, spent.served);
                    epoch.idle = epoch.idle.saturating_sub(spent.unserved);
                    self.epoch_ended(&epoch, turns, length, flow)
                }
                None => Mode::PROMPT,
            };
        }
        match self.rung() {
            Some(rung) if turn.reads + turn.letters > 0 => {
                let of_others = turn.busy * (self.shards - 1);
                rung.min((turn.busy + of_others).max(TURN_MIN))
                    .min(WAIT_MAX + of_others)
            }
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

    /// The longest wait is for several shards.
    fn last_rung(&self) -> usize {
        RUNGS.len() - 1 - usize::from(self.shards == 1)
    }

    fn epoch_ended(&mut self, epoch: &Turn, turns: u32, length: Duration, flow: Flow) -> Mode {
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
                    // What ended at once was never worth it; a stream that pauses comes again.
                    if climb.left + PENALTY_MIN > COMPARE_EVERY {
                        self.hold_off();
                    } else {
                        self.penalty = PENALTY_MIN;
                    }
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
                    let is_short = epoch.busy * self.shards < TURN_MIN * turns;
                    let last = self.last_rung() - usize::from(is_short);
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
const RUNGS: [Duration; 6] = [
    Duration::from_micros(125),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    WAIT_MAX,
    Duration::from_millis(4),
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
