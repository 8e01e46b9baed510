//! Figures with the bars that they have to reach, and the record of a run of them.

use std::{
    borrow::Cow,
    fmt, fs,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use serde::Serialize;

use crate::{
    error::BenchError,
    machine::Machine,
    outcome::{Because, Outcome, Quantity},
    record::{Described, Table},
    results::median,
};

/// What was measured, round by round, and what it has to reach.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    name: &'static str,
    title: Cow<'static, str>,
    unit: &'static str,
    values: Vec<f64>,
    bar: Option<Bar>,
    /// The load generator had no time left, and what that does to the figure.
    held_back: Option<Quantity>,
    /// The same for the one that it is divided by.
    other_held_back: Option<Quantity>,
    /// Of fewer rounds, or seconds, than the bar is about.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_short: bool,
    /// Missed by less than twice the spread between its rounds it counts as met.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allows_spread: bool,
}

/// What a figure has to reach.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    pub(crate) fn admits(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bar) => value >= bar,
            Self::AtMost(bar) => value <= bar,
        }
    }

    /// Zero or less if it is reached.
    fn missed_by(self, value: f64) -> f64 {
        match self {
            Self::AtLeast(bar) => bar - value,
            Self::AtMost(bar) => value - bar,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bar) => write!(f, "≥ {bar}"),
            Self::AtMost(bar) => write!(f, "≤ {bar}"),
        }
    }
}

/// All figures of a run, for people and for machines.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    #[serde(skip)]
    pub(crate) title: &'static str,
    /// What follows "medians of N rounds, least and most in brackets".
    #[serde(skip)]
    pub(crate) notes: String,
    /// What stands below the table.
    #[serde(skip)]
    pub(crate) below: &'static str,
    pub(crate) machine: Machine,
    pub(crate) rounds: usize,
    /// Who was compared; none where nobody else was.
    pub(crate) peers: Vec<Described>,
    pub(crate) figures: Vec<Figure>,
}

impl Figure {
    pub(crate) const fn new(
        name: &'static str,
        title: &'static str,
        unit: &'static str,
        bar: Option<Bar>,
    ) -> Self {
        Self {
            name,
            title: Cow::Borrowed(title),
            unit,
            values: Vec::new(),
            bar,
            held_back: None,
            other_held_back: None,
            is_short: false,
            allows_spread: false,
        }
    }

    pub(crate) fn with(mut self, value: f64) -> Self {
        self.values.push(value);
        self
    }

    /// As it is said with what was found.
    pub(crate) fn titled(mut self, title: String) -> Self {
        self.title = Cow::Owned(title);
        self
    }

    /// What there is to say beside the figure.
    pub(crate) fn with_remark(mut self, remark: &str) -> Self {
        self.title.to_mut().push_str(remark);
        self
    }

    /// Adds the value of a round.
    pub(crate) fn add(&mut self, value: f64) {
        self.values.push(value);
    }

    /// Says that the load generator was busy, and what the figure is about: see [`Outcome`].
    pub(crate) const fn held_back(mut self, what: Quantity) -> Self {
        self.held_back = Some(what);
        self
    }

    /// The same of the load of the one that the figure is divided by.
    pub(crate) const fn other_held_back(mut self, what: Quantity) -> Self {
        self.other_held_back = Some(what);
        self
    }

    /// Says that it is of less than its bar is about.
    pub(crate) const fn in_short(mut self) -> Self {
        self.is_short = true;
        self
    }

    /// Says that its bar counts as met if it is missed by less than twice the spread.
    pub(crate) const fn within_spread(mut self) -> Self {
        self.allows_spread = true;
        self
    }

    #[cfg(test)]
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    #[cfg(test)]
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    fn is_timed(&self) -> bool {
        ["ratio", "M/s", "/s", "s", "ms"].contains(&self.unit)
    }

    pub(crate) fn median(&self) -> f64 {
        median(self.values.clone()).unwrap_or(f64::NAN)
    }

    fn spread(&self) -> (f64, f64) {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self
            .values
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        (least, most)
    }

    /// By how much the median misses the bar, and the spread between the rounds.
    fn miss_and_spread(&self) -> Option<(f64, f64)> {
        let (least, most) = self.spread();
        Some((self.bar?.missed_by(self.median()), most - least))
    }

    fn is_within_spread(&self) -> bool {
        let found = self.miss_and_spread();
        self.allows_spread && found.is_some_and(|(miss, spread)| miss < 2.0 * spread)
    }

    /// The outcome for the table; of a bar that is missed by a little, or is judged by that, also
    /// by how much, and the spread.
    fn verdict(&self) -> String {
        let shown = self.outcome().map_or("", Outcome::shown);
        match self.miss_and_spread() {
            Some((miss, spread)) if self.allows_spread && miss > 0.0 => {
                format!("{shown} (by {miss:.3}, spread {spread:.3})")
            }
            _ => shown.to_owned(),
        }
    }

    /// None of a figure that has no bar.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        let value = Some(self.median()).filter(|value| value.is_finite());
        let outcome = match Outcome::of(self.bar?, value) {
            Outcome::Missed if self.is_within_spread() => Outcome::WithinSpread,
            outcome => outcome,
        };
        let by = Because::LoadGenerator;
        let outcome = match self.held_back {
            Some(what) => outcome.held_back(what, by),
            None => outcome,
        };
        let outcome = match self.other_held_back {
            Some(what) => outcome.other_held_back(what, by),
            None => outcome,
        };
        Some(if self.is_short {
            outcome.in_short()
        } else {
            outcome
        })
    }

    fn passed(&self) -> bool {
        self.outcome().is_none_or(Outcome::passed)
    }
}

impl Record {
    /// Fails if a size or a count misses its bar; rates of a short round say nothing.
    pub(crate) fn refuse_missed(&self) -> Result<(), BenchError> {
        let exact = |figure: &&Figure| figure.values.len() == 1 && !figure.is_timed();
        let mut missed = self.figures.iter().filter(exact);
        match missed.find(|figure| !figure.passed()) {
            Some(figure) => Err(BenchError::Missed {
                figure: figure.name,
            }),
            None => Ok(()),
        }
    }

    /// Writes `name.md` and `name.json` into a directory, and the table to standard output.
    /// A bar that was missed, or could not be judged, is a failure of the whole, when everything is
    /// written.
    pub(crate) fn write(&self, directory: &Path, name: &str) -> Result<ExitCode, BenchError> {
        let write = |ending: &str, text: String| {
            let path = directory.join(format!("{name}.{ending}"));
            fs::write(&path, text).map_err(|source| BenchError::Write { path, source })
        };
        write("md", format!("{self}"))?;
        let json = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        write("json", json + "\n")?;
        let shown = directory.display();
        write!(io::stdout().lock(), "{self}\nWritten to {shown}\n")?;
        let missed = self.figures.iter().filter(|figure| !figure.passed());
        let missed: Vec<_> = missed
            .map(|figure| {
                let why = figure.outcome().map_or("", Outcome::why);
                format!("{}{why}", figure.name)
            })
            .collect();
        if missed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        writeln!(io::stderr(), "bars not passed:\n  {}", missed.join("\n  "))?;
        Ok(ExitCode::FAILURE)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(f, "# {}\n", self.title)?;
        writeln!(f, "{machine}.\n")?;
        writeln!(f, "Repeat it with `{}`.\n", machine.command)?;
        if !self.peers.is_empty() {
            writeln!(f, "{}", Table(&self.peers))?;
        }
        writeln!(
            f,
            "Rates are medians of {} rounds, least and most in brackets, {}\n",
            self.rounds, self.notes
        )?;
        writeln!(f, "| figure | what | | bar | |\n|---|---|--:|--:|---|")?;
        for figure in &self.figures {
            let value = figure.median();
            let (least, most) = figure.spread();
            let spread = if figure.values.len() > 1 {
                format!(" ({least:.2}..{most:.2})")
            } else {
                String::new()
            };
            let bar = figure.bar.map_or_else(String::new, |bar| bar.to_string());
            let verdict = figure.verdict();
            writeln!(
                f,
                "| {} | {} | {} {}{spread} | {bar} | {verdict} |",
                figure.name,
                figure.title,
                number(value),
                figure.unit,
            )?;
        }
        write!(f, "\n{}", self.below)
    }
}

fn number(value: f64) -> String {
    if value.fract().abs() < 1e-9 {
        crate::grouped(value)
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_who_was_compared_and_in_which_version() {
        let mut record = Record {
            title: "",
            notes: String::new(),
            below: "",
            machine: Machine::here(),
            rounds: 1,
            peers: vec![Described {
                name: "mosquitto",
                version: "mosquitto version 2.0.11".to_owned(),
                instead_of: None,
                setup: "limits opened",
            }],
            figures: Vec::new(),
        };
        let line = "| mosquitto | mosquitto version 2.0.11 | limits opened |";
        assert!(record.to_string().contains(line), "{record}");
        record.peers.clear();
        assert!(!record.to_string().contains("| peer |"), "{record}");
    }

    #[test]
    fn what_the_load_generator_held_back_is_not_judged_and_not_passed() {
        let rate = |value| {
            let figure = Figure::new("any", "", "ratio", Some(Bar::AtLeast(1.6)));
            figure.with(value)
        };
        let (slow, quick) = (rate(1.5), rate(1.7));
        assert_eq!(slow.outcome(), Some(Outcome::Missed));
        let (slow, quick) = [slow, quick]
            .map(|figure| figure.held_back(Quantity::Rate))
            .into();
        assert_eq!(
            slow.outcome(),
            Some(Outcome::NotJudged(Because::LoadGenerator))
        );
        assert!(!slow.passed() && quick.passed());
        let nothing = Figure::new("any", "", "ratio", Some(Bar::AtLeast(1.6)));
        assert_eq!(nothing.outcome(), Some(Outcome::NotMeasured));
    }

    #[test]
    fn a_miss_of_less_than_twice_the_spread_passes_where_that_is_said_and_both_are_shown() {
        let figure = |values: &[f64], bar| {
            let figure = Figure::new("any", "", "ratio", Some(bar));
            values.iter().copied().fold(figure, Figure::with)
        };
        let most = |values| figure(values, Bar::AtMost(0.5));
        let close = || most(&[0.50, 0.52, 0.53]);
        assert_eq!(close().outcome(), Some(Outcome::Missed));
        assert_eq!(close().verdict(), "**missed**");
        let close = close().within_spread();
        assert_eq!(close.outcome(), Some(Outcome::WithinSpread));
        assert!(close.passed());
        let both = "passed within the spread (by 0.020, spread 0.030)";
        assert_eq!(close.verdict(), both);
        let not_judged = Outcome::NotJudged(Because::TooShort);
        assert_eq!(close.in_short().outcome(), Some(not_judged));

        let far = most(&[0.60, 0.61, 0.62]).within_spread();
        assert_eq!(far.verdict(), "**missed** (by 0.110, spread 0.020)");
        assert!(!far.passed());
        // One round has no spread.
        assert!(!most(&[0.51]).within_spread().passed());
        let least = figure(&[0.45, 0.49, 0.52], Bar::AtLeast(0.5)).within_spread();
        assert_eq!(least.outcome(), Some(Outcome::WithinSpread));
        let met = most(&[0.4, 0.49, 0.7]).within_spread();
        assert_eq!(met.verdict(), "passed");
        let nothing = most(&[]).within_spread();
        assert_eq!(nothing.outcome(), Some(Outcome::NotMeasured));
    }

    #[test]
    fn what_is_of_too_little_is_not_passed_and_what_is_missed_is_missed() {
        let [passes, fails] = [1.0, 3.0].map(|value| {
            let figure = Figure::new("any", "", "ms", Some(Bar::AtMost(2.0)));
            figure.with(value).in_short()
        });
        let not_judged = Outcome::NotJudged(Because::TooShort);
        assert_eq!(passes.outcome(), Some(not_judged));
        assert_eq!(fails.outcome(), Some(Outcome::Missed));
    }

    #[test]
    fn of_an_even_number_of_rounds_the_median_is_between_the_two_middle_ones() {
        let mut figure = Figure::new("any", "", "ratio", Some(Bar::AtMost(2.0)));
        for value in [4.0, 1.0, 2.0, 3.0] {
            figure.add(value);
        }
        assert!((figure.median() - 2.5).abs() < 1e-9);
        assert!(!figure.passed());
    }
}
