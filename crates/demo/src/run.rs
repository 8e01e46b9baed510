//! Runs the demonstration: injects faults when asked to, and keeps the board.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, timeout_at};
use unbroken_merkle_log::LaneId;

use crate::board::{Board, Strip, What, grouped};
use crate::fault::{Fault, Kind, Place};
use crate::injection::Injection;
use crate::line::{Line, LineError};
use crate::news::{News, SINGLY_MAX};
use crate::process::Keeping;
use crate::readings::{Readings, ReadingsError};
use crate::remote::Remote;
use crate::trial::Trial;
use crate::view::lines::Lines;
use crate::view::screen::Screen;

/// How often the board is brought up to date.
const TICK: Duration = Duration::from_millis(50);
/// How long the network stays cut.
const CUT_FOR: Duration = Duration::from_millis(600);
/// Before a plain run must have ended its parts are let go, whatever has happened.
const ENDING_TAKES: Duration = Duration::from_secs(2);
/// Between two injected faults of a plain run, which it does not wait for.
const PLAIN_PAUSE: Duration = Duration::from_millis(150);

const A_TO_B: &str = "A to B";
const B_TO_C: &str = "B to C";
const A_TO_C: &str = "A to C";

/// How to run the demonstration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This program, which is also the broker and B.
    pub program: PathBuf,
    /// A file to play instead of the shipped recording.
    pub input: Option<PathBuf>,
    /// Messages A sends each second.
    pub rate: u32,
    /// Lines instead of a live view, every fault once, and an end.
    pub is_plain: bool,
    /// A plain run ends within this time; more than two seconds.
    pub within: Duration,
    /// Keys to press at the start.
    pub keys: String,
    /// A broker that runs already, which cannot be killed, instead of one of its own.
    pub broker: Option<Remote>,
    /// So many messages and faults at random places, compared with what was named.
    pub trial: Option<Trial>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Each injected fault was named and repaired, and nothing else was.
    Green,
    /// Not so.
    Red,
}

/// Why there was no demonstration.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The input.
    #[error(transparent)]
    Readings(#[from] ReadingsError),
    /// The line.
    #[error(transparent)]
    Line(#[from] LineError),
    /// A plain run was over before it began.
    #[error("the pipeline was not ready after {0:?}: allow more time with --within")]
    Late(Duration),
    /// A part of it ended by itself.
    #[error("{part} has ended by itself: {why}")]
    Ended {
        /// A, B or C.
        part: &'static str,
        /// What it said of it.
        why: String,
    },
    /// The terminal, or standard output.
    #[error("cannot show it: {0}; --plain needs no terminal")]
    Show(#[from] io::Error),
    /// A key that means nothing.
    #[error(
        "--inject {0:?}: no fault has this letter; there are l d s a f i h, the same in capitals, k and n"
    )]
    Key(char),
    /// More faults than places for them.
    #[error(
        "{injections} faults need {needed} messages or more, so that each is in a message of its own"
    )]
    TooManyFaults {
        /// So many were asked for.
        injections: u64,
        /// So many messages give room.
        needed: u64,
    },
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// To inject a fault in front of B, or behind it.
    Injection {
        injection: Injection,
        before_b: bool,
    },
    /// To kill the broker and start it again.
    Kill,
    /// To cut the network between the broker and C.
    Cut,
    /// To end.
    Quit,
}

impl Key {
    /// Within the lateness bound, so that it is late and not lost.
    const HOLD: Duration = Duration::from_millis(300);

    pub(crate) fn of(letter: char) -> Option<Self> {
        let injection = match letter.to_ascii_lowercase() {
            'l' => Injection::Lose,
            'd' => Injection::Duplicate,
            's' => Injection::Swap,
            'a' => Injection::Alter,
            'f' => Injection::Forge,
            'i' => Injection::Inject,
            'h' => Injection::Hold(Self::HOLD),
            'k' => return Some(Self::Kill),
            'n' => return Some(Self::Cut),
            'q' => return Some(Self::Quit),
            _ => return None,
        };
        let before_b = letter.is_ascii_uppercase();
        Some(Self::Injection {
            injection,
            before_b,
        })
    }
}

/// Runs until the user ends it or, plain, until all is shown.
pub async fn run(
    settings: Settings,
    interrupted: impl Future<Output = ()>,
) -> Result<Outcome, RunError> {
    let readings = match &settings.input {
        Some(path) => Readings::of_file(path)?,
        None => Readings::shipped(),
    };
    let mut keys = Vec::new();
    for letter in settings.keys.chars() {
        keys.push(Key::of(letter).ok_or(RunError::Key(letter))?);
    }
    let limit = Limit {
        begin: Instant::now(),
        within: settings.within,
    };
    // A trial is of the audit, and nobody kills its broker.
    let keeping = match settings.trial {
        None => Keeping::Everything,
        Some(_) => Keeping::Nothing,
    };
    let (program, broker) = (&settings.program, settings.broker.as_ref());
    let starting = Line::start(program, broker, keeping, readings, settings.rate);
    let shown = async {
        if let Some(trial) = &settings.trial {
            Demo::new(starting.await?).hold(trial).await
        } else if settings.is_plain {
            let started = timeout_at(limit.ends(), starting).await;
            let line = started.map_err(|_| RunError::Late(settings.within))??;
            Demo::new(line).plain(keys, &limit).await
        } else {
            Demo::new(starting.await?).live(keys).await
        }
    };
    tokio::select! {
        shown = shown => shown,
        // Whoever looks at it ends it so; who runs it for its result has none.
        () = interrupted => {
            let has_no_result = settings.is_plain || settings.trial.is_some();
            Ok(if has_no_result { Outcome::Red } else { Outcome::Green })
        }
    }
}

pub(crate) struct Demo {
    pub(crate) line: Line,
    pub(crate) board: Board,
    pub(crate) begin: Instant,
    /// Delivered at the last rate, and when that was.
    counted: (u64, Duration),
    mending: Option<Mending>,
}

/// How long a plain run may take.
struct Limit {
    begin: Instant,
    within: Duration,
}

impl Limit {
    fn ends(&self) -> tokio::time::Instant {
        (self.begin + self.within.saturating_sub(ENDING_TAKES)).into()
    }
}

/// A broken part on its way back.
struct Mending {
    /// When the network comes back. The broker is back when this exists.
    at: Option<Duration>,
    /// How many C must have handed on. First one that was sent when A and C were back, which shows
    /// that B is, too; then, for a second time, all that were sent by then.
    target: Option<(u64, bool)>,
    /// The connections of A and C that were there before.
    before: Connections,
}

/// Which connections A and C have, counted from the first.
type Connections = [Option<u64>; 2];

impl Demo {
    fn new(line: Line) -> Self {
        let mut board = Board::default();
        board
            .strips
            .extend([A_TO_B, B_TO_C, A_TO_C].map(Strip::new));
        Self {
            line,
            board,
            begin: Instant::now(),
            counted: (0, Duration::ZERO),
            mending: None,
        }
    }

    async fn live(&mut self, keys: Vec<Key>) -> Result<Outcome, RunError> {
        let mut screen = Screen::open()?;
        self.let_send(true);
        let mut ticks = ticks();
        let mut keys = keys;
        loop {
            ticks.tick().await;
            for key in keys.drain(..) {
                if key == Key::Quit {
                    return Ok(self.outcome());
                }
                self.inject(key).await?;
            }
            self.look()?;
            screen.show(&self.board, self.begin.elapsed());
            keys = screen.keys();
        }
    }

    /// Every fault once: those of messages one after the other, then the network, then the broker.
    async fn plain(&mut self, keys: Vec<Key>, limit: &Limit) -> Result<Outcome, RunError> {
        let mut lines = Lines::new(io::stdout());
        let (broker, b) = (self.broker(), self.line.b.pid);
        lines.say(&format!("A → broker ({broker}) → B (pid {b}) → broker → C"))?;
        self.let_send(true);
        let all = || {
            let keys = "ldsafihLDSAFIHnk".chars().filter_map(Key::of);
            let has_own = self.line.broker.is_some();
            keys.filter(|key| has_own || *key != Key::Kill).collect()
        };
        let mut keys: VecDeque<Key> = match keys.len() {
            0 => all(),
            _ => keys.into(),
        };
        let shown = timeout_at(limit.ends(), self.give(&mut keys, &mut lines)).await;
        let is_whole = shown.is_ok();
        shown.unwrap_or(Ok(()))?;
        lines.end(&self.board)?;
        if !is_whole {
            let left = self.left(keys.len());
            let within = limit.within.as_secs();
            lines.say(&format!("ended, because {within} s are the limit: {left}"))?;
        }
        let took = limit.begin.elapsed().as_secs_f64();
        lines.say(&format!("ended after {took:.1} s"))?;
        lines.say(&self.board.sentence().to_string())?;
        Ok(if is_whole {
            self.outcome()
        } else {
            Outcome::Red
        })
    }

    /// Injects the faults, and ends when all is reported and delivered.
    async fn give<W: io::Write>(
        &mut self,
        keys: &mut VecDeque<Key>,
        lines: &mut Lines<W>,
    ) -> Result<(), RunError> {
        let mut ticks = ticks();
        let mut next = Duration::from_secs(1);
        loop {
            ticks.tick().await;
            self.look()?;
            let now = self.begin.elapsed();
            lines.tell(&self.board, now)?;
            if now < next || !self.is_ready_for(keys.front().copied()) {
                continue;
            }
            next = now + PLAIN_PAUSE;
            if let Some(key) = keys.pop_front() {
                self.inject(key).await?;
                continue;
            }
            self.let_send(false);
            if self.board.sent == self.board.delivered {
                return Ok(());
            }
        }
    }

    /// What a plain run did not come to.
    fn left(&self, keys: usize) -> String {
        let incidents = || self.board.incidents.iter();
        let given = keys + self.pending();
        let named = incidents()
            .filter(|incident| incident.named.is_none())
            .count();
        let repaired = incidents()
            .filter(|incident| incident.repaired.is_none())
            .count();
        let delivered = self.board.sent.saturating_sub(self.board.delivered);
        format!(
            "{given} faults not injected, {named} not named, {repaired} not repaired, {delivered} \
             messages not delivered"
        )
    }

    /// Injections that wait for a message.
    fn pending(&self) -> usize {
        self.line.before_b.pending() + self.line.behind_b.pending()
    }

    fn has_given_all(&self) -> bool {
        self.pending() == 0
    }

    /// A part is broken only when all is well, so that it is clear what it costs. At the end
    /// everything must be.
    fn is_ready_for(&self, key: Option<Key>) -> bool {
        let is_quiet = self.board.is_green() && self.has_given_all();
        match key {
            Some(Key::Injection { .. }) => true,
            _ => is_quiet,
        }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        if self.board.is_exact() {
            Outcome::Green
        } else {
            Outcome::Red
        }
    }

    async fn inject(&mut self, key: Key) -> Result<(), RunError> {
        let now = self.begin.elapsed();
        let before = self.connections();
        match key {
            Key::Injection {
                injection,
                before_b,
            } => {
                let relay = if before_b {
                    &self.line.before_b
                } else {
                    &self.line.behind_b
                };
                // With too many to give already one more makes no difference to the user.
                let _ = relay.inject(injection);
            }
            // One broken part at a time.
            Key::Cut | Key::Kill if self.mending.is_some() => {}
            Key::Cut => {
                let text = "network cut between the broker and C".to_owned();
                self.board.begin_incident(What::Part(text), now);
                self.line.behind_b.cut();
                self.mending = Some(Mending {
                    at: Some(now + CUT_FOR),
                    target: None,
                    before,
                });
            }
            Key::Kill => {
                // Somebody else's is not ours to kill.
                let Some(broker) = &mut self.line.broker else {
                    return Ok(());
                };
                let text = format!("broker killed (process {})", broker.pid);
                self.board.begin_incident(What::Part(text), now);
                broker.kill().await.map_err(LineError::from)?;
                broker.start_again().await.map_err(LineError::from)?;
                self.mending = Some(Mending {
                    at: None,
                    target: None,
                    before,
                });
            }
            Key::Quit => {}
        }
        Ok(())
    }

    /// Brings the board up to date.
    pub(crate) fn look(&mut self) -> Result<(), RunError> {
        let now = self.begin.elapsed();
        if let Some((part, why)) = self.line.ended() {
            return Err(RunError::Ended { part, why });
        }
        let counts = &self.line.counts;
        self.board.delivered = counts.delivered.load(Ordering::Relaxed);
        self.board.duplicated = counts.duplicated.load(Ordering::Relaxed);
        self.board.reordered = counts.reordered.load(Ordering::Relaxed);
        self.board.sent = counts.sent.load(Ordering::Relaxed);
        for relay in [&self.line.before_b, &self.line.behind_b] {
            for healed in relay.take_undone() {
                self.board.unchanged(&healed);
            }
            for injected in relay.take_injected() {
                let given = injected.at.saturating_duration_since(self.begin);
                self.board
                    .begin_incident(What::Message(Box::new(injected)), given);
            }
        }
        while let Ok(news) = self.line.b.news.try_recv() {
            self.note(news, true, now);
        }
        while let Ok(news) = self.line.news.try_recv() {
            self.note(news, false, now);
        }
        self.mend(now);
        self.parts(now);
        Ok(())
    }

    fn note(&mut self, news: News, by_b: bool, now: Duration) {
        match news {
            News::Fault { fault, own: true } => self.board.fault(fault, now),
            News::Fault { fault, own: false } => self.board.echo(fault, now),
            News::ManyFaults {
                kind,
                first,
                end,
                own: true,
                ..
            } => {
                let end = end.min(first.number.saturating_add(SINGLY_MAX));
                for number in first.number..end {
                    let place = Place { number, ..first };
                    self.board.fault(Fault { kind, place }, now);
                }
            }
            // Of the two the injector's is the second.
            News::Conflict(place) => {
                let kind = Kind::Injected;
                self.board.fault(Fault { kind, place }, now);
            }
            News::Overtaken {
                place,
                by,
                own: true,
            } => self.board.overtaken(place, by, now),
            News::Repaired(place) => self.board.repaired(place, now),
            News::Doubt {
                lane,
                doubt,
                own: true,
            } => self.board.doubt(self.way(lane, by_b), &doubt, now),
            News::Window {
                lane,
                numbers,
                state,
            } => self.board.window(self.way(lane, by_b), &numbers, state),
            // What was overtaken or is in doubt elsewhere is told there; others may publish on our
            // topics, in lanes of theirs; nobody is told what to expect; of what is forgotten the
            // loss was told; and B has no command whose lines could be too long.
            News::Overtaken { own: false, .. }
            | News::Doubt { own: false, .. }
            | News::Listening
            | News::ManyFaults { own: false, .. }
            | News::Undelivered { .. }
            | News::RootDiffers { .. }
            | News::Decided { .. }
            | News::Away(_)
            | News::Contradiction { .. }
            | News::Expected { .. }
            | News::Forgotten { .. }
            | News::LeftAlone { .. }
            | News::Dropped { .. }
            | News::NoRoom { .. }
            | News::OtherKey { .. } => {}
        }
    }

    /// The way that a lane takes to B or to C.
    fn way(&self, lane: LaneId, to_b: bool) -> &'static str {
        match lane {
            _ if to_b => A_TO_B,
            lane if lane == self.line.lane_of_a => A_TO_C,
            _ => B_TO_C,
        }
    }

    /// A broken part comes back, and is well once all that A had sent by then is at C.
    fn mend(&mut self, now: Duration) {
        let connections = self.connections();
        let Some(mending) = &mut self.mending else {
            return;
        };
        let lost = std::iter::zip(connections, mending.before)
            .zip(["A", "C"])
            .find(|((is, was), _)| is != was);
        if let Some((_, who)) = lost {
            let how = format!("{who} lost its connection");
            self.board.part_named(&how, now);
        }
        if mending.at.is_some_and(|at| at <= now) {
            self.line.behind_b.mend();
            mending.at = None;
        }
        // Both are there again, or were never gone.
        if mending.at.is_none() && connections.iter().all(Option::is_some) {
            let sent = self.board.sent;
            let (target, whole) = mending.target.get_or_insert((sent + 1, false));
            if self.board.delivered >= *target {
                if *whole {
                    self.board.part_repaired(now);
                } else {
                    (*target, *whole) = (sent, true);
                }
            }
        }
        if !self.board.has_open_part() {
            self.mending = None;
        }
    }

    fn broker(&self) -> String {
        match &self.line.broker {
            Some(broker) => format!("pid {}", broker.pid),
            None => "external".to_owned(),
        }
    }

    pub(crate) fn let_send(&self, may: bool) {
        self.line.counts.is_stopped.store(!may, Ordering::Relaxed);
    }

    fn connections(&self) -> Connections {
        self.line.connections()
    }

    fn parts(&mut self, now: Duration) {
        let (delivered, then) = self.counted;
        let passed = now.saturating_sub(then);
        if passed >= Duration::from_millis(500) {
            let more = self.board.delivered.saturating_sub(delivered);
            let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
            self.board.rate(more.saturating_mul(1_000) / passed_ms);
            self.counted = (self.board.delivered, now);
        }
        let connected = |is_connected| if is_connected { "connected" } else { "cut off" };
        let [a, c] = self.connections().map(|connection| connection.is_some());
        let (broker, b) = (self.broker(), self.line.b.pid);
        self.board.part("A", connected(a), a);
        self.board.part("broker", broker, true);
        self.board.part("B", format!("pid {b}"), true);
        let state = format!("{}, {}", connected(c), grouped(self.board.delivered));
        self.board.part("C", state, c);
    }
}

pub(crate) fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
