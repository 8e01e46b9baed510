//! The order of work, and a process for each run.
//!
//! In every round each peer has its turn in each row; odd rounds go through the peers backwards. A
//! run that fails is kept as a failure, and the others go on.

use crate::{
    error::ChannelBenchError,
    go::Go,
    peers::{self, GO},
    results::{Cell, RowResult},
    rows::{Row, Size},
    work::Measured,
};
use std::{
    io::{self, Write},
    process::Command,
};

/// A run that takes longer than this hangs.
pub(crate) const GIVE_UP_AFTER_S: u32 = 120;

/// Which of them take part, in the order of the table.
#[derive(Debug)]
pub(crate) struct Contestants {
    pub(crate) peers: Vec<peers::Peer>,
    pub(crate) go: Option<Go>,
}

impl Contestants {
    /// Those of these names, or all; without the Go tool all but Go, which is said.
    pub(crate) fn choose(names: &[String]) -> Result<Self, ChannelBenchError> {
        let mut peers = peers::all();
        let known: Vec<_> = peers.iter().map(|peer| peer.name).chain([GO]).collect();
        for name in names {
            if !known.contains(&name.as_str()) {
                return Err(ChannelBenchError::Unknown {
                    what: "peer",
                    name: name.clone(),
                    known: known.join(", "),
                });
            }
        }
        let is_wanted = |peer: &str| names.is_empty() || names.iter().any(|name| name == peer);
        peers.retain(|peer| is_wanted(peer.name));
        let go = if is_wanted(GO) { Go::build()? } else { None };
        if is_wanted(GO) && go.is_none() {
            writeln!(io::stderr(), "skipped: {GO} is not installed")?;
        }
        Ok(Self { peers, go })
    }

    /// Who can do the row.
    fn of(&self, row: &Row) -> Vec<&'static str> {
        let peers = self.peers.iter();
        let able = peers.filter(|peer| peer.program(row.work).is_some());
        let go = self.go.as_ref().filter(|_| Go::can(row)).map(|_| GO);
        able.map(|peer| peer.name).chain(go).collect()
    }

    fn command(&self, row: &Row, peer: &str) -> io::Result<Command> {
        if let Some(go) = self.go.as_ref().filter(|_| peer == GO) {
            return Ok(go.command(row));
        }
        let Size {
            parties, rounds, ..
        } = row.size;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["one", "--row", row.name, "--peer", peer])
            .args(["--parties", &parties.to_string()])
            .args(["--rounds", &rounds.to_string()]);
        Ok(command)
    }
}

/// Runs everything and tells `progress` a line for each run.
pub(crate) fn run(
    rows: &[Row],
    contestants: &Contestants,
    rounds: usize,
    progress: &mut dyn Write,
) -> Result<Vec<RowResult>, ChannelBenchError> {
    let new = |row: &Row| RowResult::new(row, contestants.of(row));
    let mut results: Vec<_> = rows.iter().map(new).collect();
    for round in 0..rounds {
        for (row, result) in rows.iter().zip(&mut results) {
            for cell in in_turn(round, &mut result.cells) {
                let outcome = measure(contestants.command(row, cell.peer)?, row);
                let line = match &outcome {
                    Ok(value) => format!("{value:>10.1} {}", row.unit.words()),
                    Err(why) => why.clone(),
                };
                cell.keep(outcome);
                writeln!(
                    progress,
                    "round {}/{rounds}  {:<17} {:<16} {line}",
                    round + 1,
                    row.name,
                    cell.peer
                )?;
            }
        }
    }
    Ok(results)
}

fn in_turn(round: usize, cells: &mut [Cell]) -> Vec<&mut Cell> {
    let mut turns: Vec<_> = cells.iter_mut().collect();
    if round % 2 == 1 {
        turns.reverse();
    }
    turns
}

/// The row's figure, or why there is none.
fn measure(mut command: Command, row: &Row) -> Result<f64, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, said.trim()));
    }
    let measured: Measured = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("its result cannot be read: {error}"))?;
    let expected = row.size.messages();
    if measured.messages != expected {
        return Err(format!(
            "received {} of {expected} messages in order and intact",
            measured.messages
        ));
    }
    #[expect(clippy::cast_precision_loss, reason = "both are far below 2^52")]
    Ok(match measured.bytes {
        Some(bytes) => bytes as f64 / row.size.parties as f64,
        None => measured.nanoseconds as f64 / expected as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;

    /// A process that prints this.
    fn saying(text: &str) -> Command {
        let mut command = Command::new("printf");
        command.args(["%s", text]);
        command
    }

    #[test]
    fn a_run_that_lost_a_message_is_a_failure_and_no_figure() {
        let row = &ROWS[0];
        let expected = row.size.messages();
        let line = |messages| {
            format!(r#"{{"messages":{messages},"nanoseconds":{expected},"bytes":null}}"#)
        };
        assert_eq!(measure(saying(&line(expected)), row), Ok(1.0));
        let problem = measure(saying(&line(expected - 1)), row).unwrap_err();
        assert!(
            problem.starts_with("received 499999 of 500000"),
            "{problem}"
        );
    }

    #[test]
    fn odd_rounds_go_backwards() {
        let order = |round| {
            let mut cells = RowResult::new(&ROWS[0], vec!["a", "b", "c"]).cells;
            let turns = in_turn(round, &mut cells);
            turns.into_iter().map(|cell| cell.peer).collect::<String>()
        };
        assert_eq!([order(0), order(1), order(2)], ["abc", "cba", "abc"]);
    }
}
