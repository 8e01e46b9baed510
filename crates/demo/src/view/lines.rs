//! Plain lines, for pipes and tests: an incident has one line when it is named and one when all is
//! well, and so has a doubt that lasts from one look at the board to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use crate::board::{Board, Incident};
use crate::limits::NAMED_WITHIN;

/// Writes what is new on a board to any writer.
#[derive(Debug)]
pub(crate) struct Lines<W> {
    out: W,
    /// How far each incident was reported, by its id.
    told: BTreeMap<u64, Told>,
    /// The ways on which something is in doubt, as was told.
    in_doubt: BTreeSet<&'static str>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    named: bool,
    repaired: bool,
}

impl<W: Write> Lines<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            told: BTreeMap::new(),
            in_doubt: BTreeSet::new(),
        }
    }

    /// A line of its own.
    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// What was named or repaired since the last call.
    pub(crate) fn tell(&mut self, board: &Board, now: Duration) -> io::Result<()> {
        self.tell_doubts(board, now)?;
        for incident in &board.incidents {
            let told = self.told.entry(incident.id).or_default();
            if let Some((at, how)) = &incident.named
                && !told.named
            {
                told.named = true;
                let after = after(incident, *at);
                writeln!(self.out, "{}: named after {after}: {how}", incident.what)?;
            }
            if let Some(at) = incident.repaired
                && !told.repaired
            {
                told.repaired = true;
                writeln!(
                    self.out,
                    "{}: repaired after {}",
                    incident.what,
                    after(incident, at)
                )?;
            }
        }
        self.out.flush()
    }

    fn tell_doubts(&mut self, board: &Board, now: Duration) -> io::Result<()> {
        let present: BTreeMap<_, _> = board.in_doubt(now).collect();
        for (way, sentence) in &present {
            if self.in_doubt.insert(way) {
                writeln!(self.out, "{way}: {sentence}")?;
            }
        }
        let ended = self
            .in_doubt
            .extract_if(.., |way| !present.contains_key(way));
        for way in ended {
            writeln!(self.out, "{way}: nothing is in doubt any more")?;
        }
        Ok(())
    }

    /// What stayed open, how much was named in all, and which name took longest.
    pub(crate) fn end(&mut self, board: &Board) -> io::Result<()> {
        for incident in &board.incidents {
            match (&incident.named, incident.repaired) {
                (None, _) => writeln!(self.out, "{}: NOT NAMED", incident.what)?,
                (Some(_), None) => writeln!(self.out, "{}: NOT REPAIRED", incident.what)?,
                (Some(_), Some(_)) => {}
            }
        }
        for fault in &board.unexplained {
            writeln!(self.out, "{fault}: named, though not injected")?;
        }
        for fault in &board.secondary {
            let by = board
                .injection_of(fault)
                .map(|incident| incident.what.to_string());
            let by = by.unwrap_or_default();
            writeln!(self.out, "{fault}: another name for {by}")?;
        }
        writeln!(self.out, "named: {}", board.all_named())?;
        if let Some((incident, time)) = board.slowest() {
            let kept = if time <= NAMED_WITHIN {
                ""
            } else {
                ", NOT KEPT"
            };
            writeln!(
                self.out,
                "slowest named after {:.2} s (promise: {} s{kept}): {}",
                time.as_secs_f64(),
                NAMED_WITHIN.as_secs(),
                incident.what
            )?;
        }
        self.out.flush()
    }
}

/// "0.42 s".
pub(super) fn after(incident: &Incident, at: Duration) -> String {
    let seconds = at.saturating_sub(incident.given).as_secs_f64();
    format!("{seconds:.2} s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::What;
    use crate::doubt::Doubt;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_step_of_an_incident_is_printed_once() {
        let mut board = Board::default();
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        board.begin_incident(What::Part("network cut".to_owned()), SECOND);
        lines.tell(&board, SECOND).unwrap();
        board.part_named("C lost its connection", SECOND * 2);
        lines.tell(&board, SECOND * 2).unwrap();
        lines.tell(&board, SECOND * 2).unwrap();
        board.part_repaired(SECOND * 5 / 2);
        lines.tell(&board, SECOND * 3).unwrap();
        lines.end(&board).unwrap();
        let expect = "network cut: named after 1.00 s: C lost its connection\n\
                      network cut: repaired after 1.50 s\n\
                      named: 0 lost, 0 duplicated, 0 reordered\n\
                      slowest named after 1.00 s (promise: 2 s): network cut\n";
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn a_doubt_has_a_line_at_its_beginning_and_one_at_its_end() {
        let mut board = Board::default();
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        board.doubt("A to B", &Doubt::Suspected(17..18), SECOND);
        lines.tell(&board, SECOND).unwrap();
        board.doubt("A to B", &Doubt::Silent(SECOND * 2), SECOND * 2);
        lines.tell(&board, SECOND * 2).unwrap();
        board.doubt("A to B", &Doubt::Settled, SECOND * 3);
        lines.tell(&board, SECOND * 3).unwrap();
        board.doubt("A to B", &Doubt::Heard(SECOND * 4), SECOND * 4);
        lines.tell(&board, SECOND * 4).unwrap();
        let expect = "A to B: number 17 may be missing\n\
                      A to B: nothing is in doubt any more\n";
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn a_name_that_came_later_than_promised_is_said_to() {
        let mut board = Board::default();
        board.begin_incident(What::Part("network cut".to_owned()), SECOND);
        let late = SECOND * 3 + Duration::from_millis(10);
        board.part_named("C lost its connection", late);
        let mut out = Vec::new();
        Lines::new(&mut out).end(&board).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expect = "slowest named after 2.01 s (promise: 2 s, NOT KEPT): network cut\n";
        assert!(text.ends_with(expect), "{text}");
    }

    #[test]
    fn what_stayed_open_is_printed_at_the_end() {
        let mut board = Board::default();
        board.begin_incident(What::Part("network cut".to_owned()), SECOND);
        let mut out = Vec::new();
        Lines::new(&mut out).end(&board).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("network cut: NOT NAMED\n"), "{text}");
    }
}
