//! The record of a run: `lexer.md` for people, `lexer.json` for machines, `lexer.svg`.

use std::fmt::{self, Write as _};
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use unbroken_bench::machine::{self, Machine};
use unbroken_bench::plot::{self, Group};

use super::Measured;
use crate::error::ChannelBenchError;
use crate::record::version_of;

/// Everything that is written down.
#[derive(Debug, Serialize)]
pub(super) struct Record {
    machine: Machine,
    load_after: String,
    rounds: usize,
    logos: String,
    regex: String,
    memchr: String,
    rows: Vec<Measured>,
}

impl Record {
    pub(super) fn new(machine: Machine, rounds: usize, rows: Vec<Measured>) -> Self {
        Self {
            machine,
            load_after: machine::load(),
            rounds,
            logos: version_of("logos"),
            regex: version_of("regex"),
            memchr: version_of("memchr"),
            rows,
        }
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), ChannelBenchError> {
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|source| ChannelBenchError::Write { path, source })
        };
        let failed = |source| ChannelBenchError::Write {
            path: dir.to_owned(),
            source,
        };
        fs::create_dir_all(dir).map_err(failed)?;
        let mut json = serde_json::to_string_pretty(&self).map_err(io::Error::from)?;
        json.push('\n');
        write("lexer.json", &json)?;
        let groups: Vec<_> = self.rows.iter().map(group).collect();
        let title = "Time of a token, ratio to the first of each row";
        write("lexer.svg", &plot::ratios(title, &groups))?;
        write("lexer.md", &self.to_string())
    }
}

fn group(row: &Measured) -> Group {
    let first = row
        .cells
        .first()
        .map_or(f64::NAN, |cell| Measured::of(cell).0);
    let bars = row.cells.iter();
    Group {
        row: row.row,
        bars: bars
            .map(|cell| (cell.peer, Measured::of(cell).0 / first))
            .collect(),
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Lexers and tokenizers beside each other\n")?;
        writeln!(f, "{}, after: {}.\n", self.machine, self.load_after)?;
        writeln!(f, "Repeat it with `{}`.\n", self.machine.command)?;
        writeln!(
            f,
            "Medians of {} rounds, least in brackets; less is better. All run in one process; in each round all peers take \
             turns of 60 ms, and every other round goes backwards. All peers of a row find the same tokens. logos {}, regex {}, \
             memchr {}. [What it means](../lexer.md).\n\n![Ratios](lexer.svg)",
            self.rounds, self.logos, self.regex, self.memchr
        )?;
        self.rows.iter().try_for_each(|row| detail(f, row))
    }
}

#[expect(clippy::cast_precision_loss, reason = "both are far below 2^52")]
fn detail(f: &mut fmt::Formatter<'_>, row: &Measured) -> fmt::Result {
    let (bytes, tokens) = (row.bytes as f64, row.tokens as f64);
    writeln!(
        f,
        "\n## {}: {}\n\n{} bytes, {} tokens.\n\n| peer | ns a token | MB/s | x | what it is |\n|---|--:|--:|--:|---|",
        row.row,
        row.title,
        unbroken_bench::grouped(bytes),
        unbroken_bench::grouped(tokens),
    )?;
    let first = row
        .cells
        .first()
        .map_or(f64::NAN, |cell| Measured::of(cell).0);
    for cell in &row.cells {
        let (median, least) = Measured::of(cell);
        let mut figure = String::new();
        write!(figure, "{median:.2} ({least:.2})")?;
        // Bytes a nanosecond are thousands of megabytes a second.
        let rate = unbroken_bench::grouped(1e3 * bytes / (median * tokens));
        let ratio = median / first;
        let (peer, note) = (cell.peer, cell.note);
        writeln!(f, "| {peer} | {figure} | {rate} | {ratio:.2} | {note} |")?;
    }
    Ok(())
}
