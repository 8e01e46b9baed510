//! A trial of the audit itself: faults at random places of a long run, and what was named compared
//! with what was done.
//!
//! Half of the faults are injected in front of B and half behind it, of every kind in turn, to
//! different messages, old ones replayed among them; and one checkpoint in eight is lost on the
//! way. C is restarted at random moments while A sends, with what it had saved. The relays write
//! down what they did, the receivers what they found; neither knows of the other.

use std::io::{self, Write};
use std::iter::Peekable;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::board::{What, grouped};
use crate::injection::{Injected, Injection};
use crate::line::PREFIX;
use crate::run::{Demo, Outcome, RunError, ticks};

/// How many messages to send, and how many faults to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Messages that A sends.
    pub messages: u64,
    /// Injections.
    pub injections: u64,
    /// The same number gives the same places.
    pub seed: u64,
}

/// Messages that an injected fault has for itself.
const ROOM: u64 = 16;
/// Times that C is restarted, spread over the messages.
const RESTARTS: u64 = 20;
/// One checkpoint in so many is lost: 12.5 %.
const CHECKPOINTS_LOST: NonZeroU32 = NonZeroU32::new(8).expect("8 is not 0");
/// A trial in which nothing happens for so long is over.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a trial says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(2);
const HOLD: Duration = Duration::from_millis(20);

const KINDS: [Injection; 8] = [
    Injection::Lose,
    Injection::Duplicate,
    Injection::Swap,
    Injection::Alter,
    Injection::Forge,
    Injection::Inject,
    Injection::Replay,
    Injection::Hold(HOLD),
];

impl Demo {
    /// Sends, injects, waits until all is named and repaired or nothing happens any more, and says
    /// what came out.
    pub(crate) async fn hold(&mut self, trial: &Trial) -> Result<Outcome, RunError> {
        self.prepare(trial)?;
        let mut restarts = restarts(trial);
        self.let_send(true);
        let mut ticks = ticks();
        let mut told = Instant::now();
        let (mut latest, mut moved) = (self.progress(), Instant::now());
        while !self.is_over(trial) && moved.elapsed() < PATIENCE {
            ticks.tick().await;
            self.look()?;
            let (sent, delivered) = (self.board.sent, self.board.delivered);
            // A fault that a restart undoes is injected into one of the messages that are still to
            // come.
            let some_are_to_come = sent < trial.messages;
            if some_are_to_come && restarts.next_if(|at| *at <= delivered).is_some() {
                self.line.counts.restarts_c.store(true, Ordering::Relaxed);
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                writeln!(io::stdout(), "{}", self.board.sentence())?;
            }
            if self.progress() != latest {
                (latest, moved) = (self.progress(), Instant::now());
            }
        }
        self.report(trial)
    }

    fn prepare(&self, trial: &Trial) -> Result<(), RunError> {
        let Trial {
            messages,
            injections,
            ..
        } = *trial;
        let needed = (injections + 2) * ROOM;
        if messages < needed {
            return Err(RunError::TooManyFaults { injections, needed });
        }
        self.line.counts.limit.store(messages, Ordering::Relaxed);
        let relays = [&self.line.behind_b, &self.line.before_b];
        for (relay, script) in relays.into_iter().zip(scripts(trial)) {
            for (place, kind) in script {
                // A trial has fewer faults than a relay can keep, or is short by those refused.
                let _ = relay.script(place, kind);
            }
            let checkpoints = format!("{PREFIX}/checkpoint/");
            relay.lose_checkpoints(&checkpoints, Some(CHECKPOINTS_LOST));
        }
        Ok(())
    }

    fn is_over(&self, trial: &Trial) -> bool {
        let pending = self.line.before_b.pending() + self.line.behind_b.pending();
        pending == 0 && self.board.delivered >= trial.messages && self.board.is_green()
    }

    /// What changes as long as something happens.
    fn progress(&self) -> [u64; 3] {
        let incidents = self.board.incidents.iter();
        let steps = incidents.map(|incident| {
            u64::from(incident.named.is_some()) + u64::from(incident.repaired.is_some())
        });
        [self.board.sent, self.board.delivered, steps.sum()]
    }

    fn report(&self, trial: &Trial) -> Result<Outcome, RunError> {
        let board = &self.board;
        let mut out = io::stdout();
        let given = board.incidents.len() as u64;
        let named = board
            .incidents
            .iter()
            .filter(|incident| incident.named.is_some());
        let missing = trial.injections.max(given) - named.count() as u64;
        let false_ones = (board.unexplained.len() + board.secondary.len()) as u64;
        let repaired = board
            .incidents
            .iter()
            .filter(|incident| incident.repaired.is_some());
        for incident in board
            .incidents
            .iter()
            .filter(|incident| incident.named.is_none())
        {
            writeln!(out, "{}: NOT NAMED", incident.what)?;
        }
        for fault in &board.unexplained {
            writeln!(out, "{fault}: named, though not injected")?;
        }
        for fault in &board.secondary {
            let by = board
                .injection_of(fault)
                .map(|incident| incident.what.to_string());
            writeln!(out, "{fault}: another name for {}", by.unwrap_or_default())?;
        }
        let kinds = KINDS.map(|kind| {
            let of_kind = board
                .incidents
                .iter()
                .filter(|incident| match &incident.what {
                    What::Message(injected) => injected.injection == kind,
                    What::Part(_) => false,
                });
            let count = grouped(of_kind.count() as u64);
            format!("{count} {}", kind.participle())
        });
        let slowest = |is_one: fn(&Injected) -> bool| {
            let incidents = board
                .incidents
                .iter()
                .filter_map(|incident| match &incident.what {
                    What::Message(injected) if is_one(injected) => {
                        let (at, _) = incident.named.as_ref()?;
                        Some(at.saturating_sub(incident.given))
                    }
                    _ => None,
                });
            incidents.max().unwrap_or_default().as_secs_f64()
        };
        writeln!(
            out,
            "faults injected: {} ({})\nC restarted: {}\nnamed: {}, missing: {missing}, \
             false: {false_ones}, repaired: {}; the last loss after {:.2} s, the last name after \
             {:.2} s\n{}",
            grouped(given),
            kinds.join(", "),
            self.line.counts.restarts.load(Ordering::Relaxed),
            grouped(trial.injections.max(given) - missing),
            grouped(repaired.count() as u64),
            slowest(|injected| injected.injection == Injection::Lose),
            slowest(|_| true),
            board.sentence(),
        )?;
        // A fault that was named and undone afterwards is injected once more.
        let is_exact = missing == 0 && false_ones == 0 && given >= trial.injections;
        Ok(if is_exact {
            self.outcome()
        } else {
            Outcome::Red
        })
    }
}

/// Which messages have a fault injected, and which: behind B and in front of it. The kinds take
/// turns through both, so that as many faults as there are kinds are one of each.
fn scripts(trial: &Trial) -> [Vec<(u64, Injection)>; 2] {
    let behind = trial.injections.div_ceil(2);
    let (mut kinds, mut random) = (KINDS.iter().cycle(), Random(trial.seed | 1));
    [behind, trial.injections - behind].map(|count| {
        let room = trial.messages / (count + 2);
        let places = (1..=count).map(|at| at * room + random.next() % (room / 2));
        places.zip(kinds.by_ref().copied()).collect()
    })
}

/// How many messages are delivered when C is restarted, ascending: once in each of as many parts
/// of the trial, at a random place of it.
fn restarts(trial: &Trial) -> Peekable<impl Iterator<Item = u64> + use<>> {
    let (part, mut random) = (trial.messages / (RESTARTS + 1), Random(!trial.seed | 1));
    let places = (0..RESTARTS).map(move |at| at * part + random.next() % part.max(1));
    places.peekable()
}

/// xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_faults_are_of_every_kind() {
        for injections in 8..=11 {
            let trial = Trial {
                messages: 10_000,
                injections,
                seed: 1,
            };
            let scripts = scripts(&trial).concat();
            assert_eq!(scripts.len() as u64, injections);
            for kind in KINDS {
                assert!(scripts.iter().any(|(_, its)| *its == kind), "{kind:?}");
            }
        }
    }
}
