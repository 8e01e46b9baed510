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
//! shorter one may be worth a little less, for messages are sooner. Where one is worth more it is
//! measured once more, before the next. A first trial waits half as long as it might, 1 ms at
//! least; where it is lost the next one is shorter, and where it is won the climb begins below.
//! Until 2026-11-26 the wait was as long as the turn before, 1 ms at least. Since then (medians of
//! three alternating runs; CPU time of the broker for a delivery, and deliveries/s): 100,000
//! filters 1.68 µs and 363,000/s, now 1.26 µs and 597,000/s; 100 connections in pairs with 1 KiB
//! 1.51 and 390,000, now 1.26 and 592,000; fan-in at QoS 1 1.59 and 400,000, now 1.38 and 482,000,
//! at QoS 2 1.92 and 272,000, now 2.02 and 417,000; 100 connections in pairs 0.92 and 629,000, now
//! 0.88 and 756,000.
//!
//! The longest wait is as long as the turn before it, and how often waits are compared is counted
//! in epochs, which are longer where turns are; for what a turn takes is the machine's. Where a
//! read or a write took 1.5 µs (Xeon), a turn of 500 pairs took 2 to 3 ms; where it took 12 µs
//! (EPYC, a machine within a virtual machine), 12 to 15 ms, and a wait of 2 ms gathered next to
//! nothing. That was the longest until 2026-11-27. One that is longer has to let more through as
//! well, or it would only make messages late. There (medians of five alternating runs of 1.2 s) 500
//! connections in pairs took 5.4 µs and 136,000/s, and take 4.8 and 148,000; 1,000 8.7 and 103,000,
//! now 5.5 and 110,000; fan-in at QoS 1 5.9 and 138,000, now 4.0 and 149,000, at QoS 2 6.4 and
//! 141,000, now 4.6 and 148,000; 100,000 filters 4.9 and 169,000, now 3.9 and 181,000; 100
//! connections in pairs 2.6 and 175,000, now 3.2 and 165,000, which is within what runs differ by
//! there. With 60,000 messages/s on 1,000 connections a message took 14.6 µs, and the slowest
//! hundredth came 11 ms late; now 12.6, and 31 ms (FlashMQ with one thread 30, Mosquitto 2.1 46;
//! three runs of 6 s).
//!
//! While the loop waits for the disk instead ([`crate::shard_thread`]), the length of the wait is
//! the disk's, and nothing is compared.
//!
//! Invariants: no clock is read here; no wait that is longer than [`TURN_MIN`] is longer than the
//! turn before it would be with one shard, if all have equal parts, nor than 16 ms, with three
//! shards 8, and with five or more [`MANY_SHARDS_WAIT`]; and none follows a turn to which nothing
//! came. So with many connections, whose turns are long, a message is at most about twice as late
//! as one shard without waits would be, and one that goes to another shard waits there too. Time in
//! which the thread had no core lengthens no wait.
//!
//! With several shards each has a part of the connections, so that a turn is as much shorter as
//! fewer messages have come for it. With the turn itself as the bound, two shards took 2.01 µs for
//! a delivery between 500 connections in pairs where one took 1.10, and with this one 1.33; fan-in
//! 1.17 instead of 0.84, and 0.98 (medians of three alternating runs, two cores). With 1,000
//! connections in pairs, and 2 ms as the longest wait, two shards took 2.28 µs where one took 1.74,
//! and with a longer one 1.66 (medians of four).
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
//! - Half of the turn as the longest wait, where that is more than 2 ms, and calls take 12 µs: 6.9
//!   µs and 99,000/s with 500 connections in pairs, where the whole turn had 4.0 and 141,000 (three
//!   alternating runs); with 60,000 messages/s 12.8 µs and 8.9, the 99th percentile 29 ms late and
//!   35.
//! - To ask for a twentieth more through with a wait above 2 ms: 1.13 of the CPU time without such
//!   waits, and 0.80 of the rate, with 500 connections in pairs, where any more has 0.90 and 1.09.
//! - No more through to be asked for: with fan-in at QoS 0 0.80 of the rate, at QoS 1 0.90. Only
//!   above 8 ms: 4.6 µs with fan-in at QoS 0 where 2 ms had 4.8, and in the next series 5.8 and 3.9
//!   (seven and six alternating runs, EPYC); five other loads within what runs differ by.
//! - No wait above 2 ms that is longer than a turn was without waits, and no comparison with turns
//!   that become shorter or longer: 1.15 of the CPU time with 500 connections in pairs, 1.13 with
//!   fan-in at QoS 1, 1.24 at QoS 2, where as much went through; and with 60,000 messages/s the
//!   99th percentile 25 ms late and not 27 (FlashMQ 36; medians of five alternating runs).
//! - Epochs of one long turn: what one has gathered is missing in the next, so the wait wandered.
//! - Ending a wait when it gathers no more than the last epochs without it did: these often hold a
//!   burst, or what a slow start left behind, and then a good wait was given up.
//! - Ending a wait when something had come in it and nothing has since, with four or eight looks in
//!   it: better in one series of runs and worse in the next, as the machine was (ADR 47).
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
    /// The rung of the next trial, if one was held before.
    start: Option<usize>,
    /// Among which the clients are divided.
    shards: u32,
    /// Of the time that turns took, in the last epoch that this is known of, the part in which the
    /// thread had a core.
    served: f64,
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
    /// What it brought when it was last measured.
    flow: Flow,
    /// The rung that is waited for now.
    tried: usize,
    settled: bool,
    /// The next neighbour is the longer one.
    longer: bool,
    /// Neighbours that were worth less, since one was worth more.
    lost: u32,
    /// Epochs on the held rung before the next comparison, and how many the next rest will have.
    rest: u32,
    next_rest: u32,
    /// Epochs until waiting is compared with not waiting.
    left: u32,
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
            start: None,
            shards,
            served: 1.0,
            hold_off: Duration::ZERO,
            penalty: PENALTY_MIN,
        }
    }

    /// How long to wait before the next turn. `times` says what the thread has had of the cores, in
    /// all so far; it is asked once an epoch, but of a loop with next to nothing to do.
    pub(crate) fn turn_ended(&mut self, turn: &Turn, times: impl FnOnce() -> Times) -> Duration {
        self.epoch.add(turn);
        self.turns += 1;
        if self.epoch.length() >= EPOCH
            && (self.turns >= EPOCH_TURNS || self.turns >= 2 && self.epoch.calls() >= EPOCH_CALLS)
        {
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
                    self.served = epoch.served(spent.served);
                    self.epoch_ended(&epoch, turns, flow)
                }
                None => Mode::PROMPT,
            };
        }
        if turn.reads + turn.letters == 0 {
            return Duration::ZERO;
        }
        let longest = || self.longest(turn.busy);
        match self.mode {
            Mode::Prompt { .. } => Duration::ZERO,
            Mode::Trial { .. } => match self.start {
                Some(rung) => RUNGS[rung].min(longest()),
                None => (longest() / 2).max(TURN_MIN),
            },
            Mode::Waiting(climb) => RUNGS[climb.tried].min(longest()),
        }
    }

    /// The longest wait behind a turn of so much time: what it would be with one shard.
    fn longest(&self, busy: Duration) -> Duration {
        let turn = busy.mul_f64(self.served) * self.shards;
        turn.clamp(TURN_MIN, self.wait_max())
    }

    fn wait_max(&self) -> Duration {
        let others = self.shards.saturating_sub(1).max(1);
        (RUNGS[RUNGS.len() - 1] / others).max(MANY_SHARDS_WAIT)
    }

    /// The rung of the trial in such an epoch, or the one below its wait.
    fn trial(&self, epoch: &Turn, turns: u32) -> usize {
        let half = (self.longest(epoch.busy / turns) / 2).max(TURN_MIN);
        let below = RUNGS.iter().rposition(|rung| *rung <= half);
        self.start.or(below).unwrap_or(0)
    }

    /// Whether a wait gathers more, or is tried.
    pub(crate) fn is_waiting(&self) -> bool {
        !matches!(self.mode, Mode::Prompt { .. })
    }

    fn epoch_ended(&mut self, epoch: &Turn, turns: u32, flow: Flow) -> Mode {
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
                let rung = self.trial(epoch, turns);
                let is_won = flow.worth > prompt.worth * WORTH_IT
                    && flow.rate > rate_min
                    && flow.may_be_late_for(prompt, rung);
                if epoch.gathers() && is_won {
                    let mut climb = Climb::from(rung, flow, rate_min);
                    // A first trial waits somewhat longer than the rung below.
                    climb.settled = self.start.is_some();
                    Mode::Waiting(climb)
                } else {
                    // A shorter one may be won.
                    let shorter = rung.checked_sub(1);
                    self.start = shorter.filter(|rung| RUNGS[*rung] >= TURN_MIN);
                    self.hold_off();
                    Mode::PROMPT
                }
            }
            Mode::Waiting(mut climb) => {
                // What a shorter wait does not gather, the one that is held may.
                let is_shorter = climb.tried < climb.held && !epoch.for_disk;
                let gathers = epoch.gathers() || is_shorter && epoch.is_streaming();
                if !gathers || epoch.is_light() {
                    self.start = None;
                    // What ended at once was never worth it; a stream that pauses comes again.
                    if climb.left + SOON > COMPARE_AFTER {
                        self.hold_off();
                    } else {
                        self.penalty = PENALTY_MIN;
                    }
                    return Mode::PROMPT;
                }
                let Some(left) = climb.left.checked_sub(epoch.counts_for()) else {
                    self.start = Some(climb.held);
                    self.penalty = PENALTY_MIN;
                    return Mode::Prompt {
                        settled: false,
                        before: None,
                    };
                };
                climb.left = left;
                if !epoch.for_disk {
                    // The rungs above are no longer than this one behind such turns.
                    let longest = self.longest(epoch.busy / turns);
                    let last = RUNGS.iter().position(|rung| *rung >= longest);
                    climb.measured(flow, last.unwrap_or(RUNGS.len() - 1));
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
    /// Whether it is so much more than the other that a wait on this rung may be for it.
    fn may_be_late_for(self, other: Self, rung: usize) -> bool {
        RUNGS[rung] <= CHEAPER_MAX || self.rate > other.rate
    }

    fn lesser(self, other: Self) -> Self {
        Self {
            rate: self.rate.min(other.rate),
            worth: self.worth.min(other.worth),
        }
    }
}

impl Climb {
    /// From a wait that was worth so much, which it is measured to be once more at first.
    const fn from(held: usize, flow: Flow, rate_min: f64) -> Self {
        Self {
            held,
            flow,
            tried: held,
            settled: true,
            longer: true,
            lost: 0,
            rest: 0,
            next_rest: REST_MIN,
            left: COMPARE_AFTER,
            rate_min,
        }
    }

    /// What an epoch on the tried rung brought. Rungs end at `last`.
    fn measured(&mut self, flow: Flow, last: usize) {
        self.rest = self.rest.saturating_sub(1);
        if self.rest > 0 {
            return;
        }
        if !self.settled {
            self.settled = true;
            return;
        }
        self.settled = false;
        let is_better = match self.tried.cmp(&self.held) {
            Ordering::Equal => {
                // Behind shorter turns than before the rungs above are as long as this one.
                self.held = self.held.min(last);
                self.flow = flow;
                return self.try_neighbour(last);
            }
            Ordering::Greater => {
                flow.worth > self.flow.worth * LONGER
                    && flow.rate > self.rate_min
                    && flow.may_be_late_for(self.flow, self.tried)
            }
            Ordering::Less => {
                flow.worth > self.flow.worth * SHORTER
                    || !self.flow.may_be_late_for(flow, self.held)
            }
        };
        if is_better {
            self.held = self.tried;
            self.flow = flow;
            self.lost = 0;
            self.next_rest = REST_MIN;
            // It is measured once more: one epoch may have been lucky.
            self.settled = true;
            return;
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

    /// Epochs: a long one for several.
    fn counts_for(&self) -> u32 {
        let more = self.length().as_millis() / EPOCH_LONG.as_millis();
        u32::try_from(more).unwrap_or(u32::MAX).saturating_add(1)
    }

    fn calls(&self) -> u64 {
        self.reads + self.writes
    }

    fn length(&self) -> Duration {
        self.busy + self.idle + self.waited
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of some milliseconds")]
    fn frames_per_call(&self) -> f64 {
        self.frames as f64 / self.calls().max(1) as f64
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

    /// The part of its time in which it had a core, if it had one for so long.
    fn served(&self, served: Duration) -> f64 {
        if served.is_zero() || served >= self.busy {
            1.0
        } else {
            served.as_secs_f64() / self.busy.as_secs_f64()
        }
    }
}

/// Time over which turns are judged together, at least.
const EPOCH: Duration = Duration::from_millis(10);
/// The longest wait that only makes messages cheaper. With a longer one more of them have to get
/// through, so that they are late for a reason.
const CHEAPER_MAX: Duration = Duration::from_millis(2);
/// The longest wait of a shard is divided among the others, but may be so long with however many:
/// what asks one after the other waits at each.
const MANY_SHARDS_WAIT: Duration = Duration::from_millis(4);
/// An epoch has at least so many turns, however long they are; or two, with so many reads and
/// writes. Single ones differ: what one has gathered is missing in the next.
const EPOCH_TURNS: u32 = 4;
const EPOCH_CALLS: u64 = 1_000;
/// Behind a shorter turn a wait may be so long all the same.
const TURN_MIN: Duration = Duration::from_millis(1);
/// The waits. Each ends some 60 µs late, for that is a sleep's slack.
const RUNGS: [Duration; 8] = [
    Duration::from_micros(125),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(4),
    Duration::from_millis(8),
    Duration::from_millis(16),
];
/// A wait is won if it is worth so many times what not waiting is, and keeps this part of its rate.
/// Single epochs vary by a twentieth.
const WORTH_IT: f64 = 1.1;
const KEEPS_RATE: f64 = 0.8;
/// So many times what the held wait is worth, a longer one has to be, and a shorter one.
const LONGER: f64 = 1.05;
const SHORTER: f64 = 0.98;
/// Epochs without a comparison when both neighbours were worth less, doubled each time until one is
/// worth more. Comparing both takes four epochs on other rungs than the best, and three on it: of
/// all time a fifth at first, an eighth and then a fourteenth.
const REST_MIN: u32 = 12;
const REST_MAX: u32 = 48;
/// The loop had little to do if it was busy for less than this part of the time. A wait makes
/// messages four times as cheap at most, so it would not be pressed without.
const LIGHT: u32 = 8;
/// Where frames a call are below this number, waiting gathers nothing.
const GATHERS_MORE: f64 = 1.1;
/// Where a call has so many frames without waiting, its cost is little beside theirs, and a wait
/// only holds up whoever else is on the shard. A publisher with 32 messages a write seemed to
/// gather more by waiting in one trial of three, and then half as many went through: 1.5 to 2.3
/// million a second instead of 3.5 to 3.9. With 256 here it still did. With 32 it does not, but
/// beside somebody quiet, whose calls have one frame: then it did in 10 of 32 runs, and what was
/// quiet came 0.5 to 0.8 ms late at the 90th percentile and not 0.15 (EPYC). With 24, in none of
/// fourteen; nine loads of single messages took what they took, within what runs differ by.
const GATHERED: f64 = 24.0;
/// Time without a trial after a lost one, doubled by each further one.
const PENALTY_MIN: Duration = Duration::from_millis(100);
const PENALTY_MAX: Duration = Duration::from_secs(16);
/// Epochs after which waiting is compared again with not waiting: the stream may have become thin.
/// That takes three without a wait. A long epoch counts once more for each time that it has this
/// length, so that it is 5 s at most.
const COMPARE_AFTER: u32 = 200;
const EPOCH_LONG: Duration = Duration::from_millis(25);
/// What ends after fewer was never worth it.
const SOON: u32 = 10;
