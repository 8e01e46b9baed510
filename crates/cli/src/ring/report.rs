//! What an experiment found: numbers as JSON, a page of Markdown, figures, and bars held or missed.

use std::fmt::{Display, Write};
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::figure::Figure;
use crate::exit::{self, Failure};

#[derive(Debug)]
pub(super) struct Report {
    name: &'static str,
    json: Map<String, Value>,
    page: String,
    bars: Vec<Bar>,
    figures: Vec<(String, Figure)>,
}

/// A claim with a number, and the range in which it must be.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) claim: String,
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Of this machine at this moment, so that a miss is no failure.
    pub(super) is_time: bool,
}

impl Bar {
    fn is_met(&self) -> bool {
        (self.low..=self.high).contains(&self.value)
    }

    fn range(&self) -> String {
        match (self.low > f64::MIN, self.high < f64::MAX) {
            (true, true) => format!("{} to {}", digits(self.low), digits(self.high)),
            (true, false) => format!("at least {}", digits(self.low)),
            _ => format!("at most {}", digits(self.high)),
        }
    }
}

impl Report {
    pub(super) fn new(name: &'static str, title: &str, seed: u64) -> Self {
        let mut json = Map::new();
        json.insert("experiment".to_owned(), json!(name));
        json.insert("version".to_owned(), json!(env!("UNBROKEN_VERSION")));
        json.insert("seed".to_owned(), json!(seed));
        let words = std::env::args_os().skip(1);
        let words: Vec<_> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        Self {
            name,
            json,
            page: format!(
                "# {title}\n\n`unbroken {}`, seed {seed}\n\n",
                words.join(" ")
            ),
            bars: Vec::new(),
            figures: Vec::new(),
        }
    }

    pub(super) fn number(&mut self, name: &str, value: Value) {
        self.json.insert(name.to_owned(), value);
    }

    pub(super) fn section(&mut self, title: &str) {
        self.write(format_args!("\n## {title}\n\n"));
    }

    pub(super) fn paragraph(&mut self, text: impl Display) {
        self.write(format_args!("{text}\n\n"));
    }

    pub(super) fn table(&mut self, heads: &[&str], rows: &[Vec<String>]) {
        self.write(format_args!(
            "| {} |\n|{}\n",
            heads.join(" | "),
            "--:|".repeat(heads.len())
        ));
        for row in rows {
            self.write(format_args!("| {} |\n", row.join(" | ")));
        }
        self.page.push('\n');
    }

    pub(super) fn figure(&mut self, name: impl Into<String>, caption: &str, figure: Figure) {
        let name = name.into();
        self.write(format_args!("![{caption}]({name}.svg)\n\n"));
        self.figures.push((name, figure));
    }

    /// A figure that the page does not show, because another contains it.
    pub(super) fn part(&mut self, name: String, figure: Figure) {
        self.figures.push((name, figure));
    }

    pub(super) fn bar(&mut self, claim: impl Into<String>, value: f64, low: f64, high: f64) {
        self.bars.push(Bar {
            claim: claim.into(),
            value,
            low,
            high,
            is_time: false,
        });
    }

    pub(super) fn at_most(&mut self, claim: impl Into<String>, value: f64, high: f64) {
        self.bar(claim, value, f64::MIN, high);
    }

    pub(super) fn at_least(&mut self, claim: impl Into<String>, value: f64, low: f64) {
        self.bar(claim, value, low, f64::MAX);
    }

    pub(super) fn time(&mut self, claim: impl Into<String>, value: f64, high: f64) {
        self.bars.push(Bar {
            claim: claim.into(),
            value,
            low: f64::MIN,
            high,
            is_time: true,
        });
    }

    /// Writes everything to a directory, and returns one line for each missed bar, and whether one
    /// of them is a failure.
    pub(super) fn write_to(mut self, directory: &Path) -> Result<(Vec<String>, bool), Failure> {
        let missed: Vec<_> = self.bars.iter().filter(|bar| !bar.is_met()).collect();
        let has_failed = missed.iter().any(|bar| !bar.is_time);
        let lines = missed.iter().map(|bar| {
            format!(
                "missed: {}: {}, bar {}",
                bar.claim,
                digits(bar.value),
                bar.range()
            )
        });
        let lines: Vec<_> = lines.collect();
        self.judge();
        let create = |name: &str, bytes: &[u8]| {
            let path = directory.join(name);
            fs::write(&path, bytes).map_err(|error| cannot_write(&path, &error))
        };
        fs::create_dir_all(directory).map_err(|error| cannot_write(directory, &error))?;
        let json = Value::Object(self.json).to_string();
        create("report.json", (json + "\n").as_bytes())?;
        create("report.md", self.page.as_bytes())?;
        for (name, figure) in &self.figures {
            create(&format!("{name}.svg"), figure.svg().as_bytes())?;
            let png = figure.png().ok_or_else(|| {
                let place = format!("{}/{name}.png", directory.display());
                Failure::new(
                    exit::INTERNAL,
                    format!("cannot draw {place}: it is too large"),
                )
            })?;
            create(&format!("{name}.png"), &png)?;
        }
        Ok((lines, has_failed))
    }

    /// The bars, as the last part of the page.
    fn judge(&mut self) {
        if self.bars.is_empty() {
            return;
        }
        let bars = std::mem::take(&mut self.bars);
        self.section("Bars");
        let met = bars.iter().filter(|bar| bar.is_met()).count();
        self.paragraph(format_args!("{met} of {} are met.", bars.len()));
        let row = |bar: &Bar| {
            let verdict = if bar.is_met() { "met" } else { "**missed**" };
            vec![
                bar.claim.clone(),
                digits(bar.value),
                bar.range(),
                verdict.to_owned(),
            ]
        };
        let rows: Vec<_> = bars.iter().map(row).collect();
        self.table(&["claim", "value", "bar", ""], &rows);
        let bar = |bar: &Bar| json!({ "claim": bar.claim, "value": bar.value, "bar": bar.range(), "met": bar.is_met() });
        self.number("bars", bars.iter().map(bar).collect());
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.page.write_fmt(text);
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }
}

/// Four digits, or as a power of ten.
pub(super) fn digits(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if size < 1e-3 {
        format!("{value:.1e}")
    } else if size < 10.0 {
        format!("{value:.3}")
    } else if size < 100.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    let message = format!("cannot write {}: {error}", path.display());
    Failure::new(exit::CANNOT_CREATE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_written_with_its_bars() {
        let directory = tempfile::tempdir().unwrap();
        let mut report = Report::new("spans", "Spans", 7);
        report.at_most("good", 1.0, 2.0);
        report.bar("bad", 1.0, 2.0, 3.0);
        report.time("slow", 3.0, 2.0);
        report.figure("one", "One", Figure::new(10.0, 10.0));
        let (missed, has_failed) = report.write_to(directory.path()).unwrap();
        assert_eq!((missed.len(), has_failed), (2, true));
        assert_eq!(missed[0], "missed: bad: 1.000, bar 2.000 to 3.000");
        let read = |name| fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(read("report.md").contains("1 of 3 are met"));
        let json: Value = serde_json::from_str(&read("report.json")).unwrap();
        assert_eq!(
            (&json["seed"], &json["bars"][0]["met"]),
            (&json!(7), &json!(true))
        );
        assert!(read("one.svg").starts_with("<svg") && directory.path().join("one.png").is_file());
        let mut slow = Report::new("spans", "Spans", 7);
        slow.time("slow", 3.0, 2.0);
        assert!(!slow.write_to(directory.path()).unwrap().1);
    }
}
