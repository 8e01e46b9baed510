//! The table of what each piece takes, and what may become of it.
//!
//! Without a reason a number in the table never rises, so that many small rises do not pass where
//! one large one would not; a reason is one for pieces that rose by more than is allowed, and for
//! no other. Only where compiler or processor are others than the table was made with, a reason
//! takes all counts as they are: the old ones are of something else.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use toml::{Table as Toml, Value};

use super::profile::Counts;
use crate::Outcome;

/// By how much a count may be above the table.
pub(super) const RISE_PERCENT: f64 = 3.0;

/// What stands in the file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Table {
    /// Compiler and processor.
    pub(super) counted_with: String,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    name: String,
    counts: Counts,
    /// Why it rose when it last did.
    why: Option<String>,
}

impl Table {
    /// What the table has and what was counted, for a person.
    pub(super) fn beside(&self, counted: &[(String, Counts)]) -> String {
        let mut text = format!(
            "  {:<14}{:>12}{:>12}{:>10}{:>14}{:>8}\n",
            "", "instructions", "now", "", "allocations", "now"
        );
        for (name, now) in counted {
            let was = self.of(name).unwrap_or_default();
            let percent = percent(was.instructions, now.instructions);
            let _ = writeln!(
                text,
                "  {name:<14}{:>12.1}{:>12.1}{percent:>+8.1} %{:>14.3}{:>8.3}",
                was.instructions, now.instructions, was.allocations, now.allocations
            );
        }
        text
    }

    /// Fails with every piece that takes too much more than the table has, or is not in it.
    pub(super) fn check(&self, counted: &[(String, Counts)]) -> Outcome {
        let mut problems = Vec::new();
        for (name, now) in counted {
            match self.of(name) {
                Some(was) => problems.extend(rise(name, was, *now)),
                None => problems.push(format!("{name} is not in the table")),
            }
        }
        for Entry { name, .. } in &self.entries {
            if !counted.iter().any(|(counted, _)| counted == name) {
                problems.push(format!("{name} is in the table and was not counted"));
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("\n"))
        }
    }

    /// The table with these counts. Fails if one of them needs a reason and there is none.
    pub(super) fn updated(
        self,
        counted_with: String,
        counted: &[(String, Counts)],
        why: Option<&str>,
    ) -> Outcome<Self> {
        let (mut entries, mut unexplained) = (Vec::new(), Vec::new());
        let is_made_anew = self.counted_with != counted_with && why.is_some();
        for (name, now) in counted {
            let old = self.entries.iter().find(|entry| entry.name == *name);
            let mut entry = Entry {
                name: name.clone(),
                counts: *now,
                why: old.and_then(|old| old.why.clone()),
            };
            if let Some(was) = old.map(|old| old.counts) {
                match (rise(name, was, *now), why) {
                    (None, _) if is_made_anew => {}
                    (None, _) => entry.counts = was.lower(*now),
                    (Some(_), Some(why)) => entry.why = Some(why.to_owned()),
                    (Some(problem), None) => unexplained.push(problem),
                }
            }
            entries.push(entry);
        }
        if unexplained.is_empty() {
            Ok(Self {
                counted_with,
                entries,
            })
        } else {
            let problems = unexplained.join("\n");
            Err(format!("{problems}\nsay why with --why '…'"))
        }
    }

    fn of(&self, name: &str) -> Option<Counts> {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        entry.map(|entry| entry.counts)
    }
}

impl Counts {
    fn lower(self, other: Self) -> Self {
        Self {
            instructions: self.instructions.min(other.instructions),
            allocations: self.allocations.min(other.allocations),
        }
    }
}

/// How a count is more than the table allows, in words, if it is.
fn rise(name: &str, was: Counts, now: Counts) -> Option<String> {
    // A table may double its room in one run and not in the next.
    const FEW_ALLOCATIONS: f64 = 0.01;
    let allowed = 1.0 + RISE_PERCENT / 100.0;
    if now.instructions > was.instructions * allowed {
        let percent = percent(was.instructions, now.instructions);
        Some(format!(
            "{name}: {:.1} instructions, and {:.1} in the table: {percent:+.1} %, \
             where {RISE_PERCENT} % are allowed",
            now.instructions, was.instructions
        ))
    } else if now.allocations > was.allocations * allowed + FEW_ALLOCATIONS {
        Some(format!(
            "{name}: {:.3} allocations, and {:.3} in the table",
            now.allocations, was.allocations
        ))
    } else {
        None
    }
}

fn percent(was: f64, now: f64) -> f64 {
    if was > 0.0 {
        (now / was - 1.0) * 100.0
    } else {
        0.0
    }
}

impl FromStr for Table {
    type Err = String;

    fn from_str(text: &str) -> Outcome<Self> {
        let file: Toml = text.parse().map_err(|error| format!("{error}"))?;
        let counted_with = file.get("counted_with").and_then(Value::as_str);
        let counted_with = counted_with.ok_or("the table does not say `counted_with`")?;
        let pieces = file.get("piece").and_then(Value::as_array);
        Ok(Self {
            counted_with: counted_with.to_owned(),
            entries: pieces
                .into_iter()
                .flatten()
                .map(entry)
                .collect::<Outcome<_>>()?,
        })
    }
}

fn entry(value: &Value) -> Outcome<Entry> {
    let number = |key| {
        let number = value.get(key).and_then(Value::as_float);
        number.ok_or_else(|| format!("a piece in the table has no {key}: {value}"))
    };
    let text = |key| value.get(key).and_then(Value::as_str).map(str::to_owned);
    Ok(Entry {
        name: text("name").ok_or_else(|| format!("a piece in the table has no name: {value}"))?,
        counts: Counts {
            instructions: number("instructions")?,
            allocations: number("allocations")?,
        },
        why: text("why"),
    })
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# What the hot path takes, for each packet, message or delivery: instructions of our own code, and\n\
             # calls of the allocator. `cargo xtask instructions` counts and compares; with `--write` it writes\n\
             # this file. `why` is the reason of the last rise by more than {RISE_PERCENT} %.\n"
        )?;
        let quoted = |text: &str| Value::from(text).to_string();
        writeln!(f, "counted_with = {}", quoted(&self.counted_with))?;
        for Entry { name, counts, why } in &self.entries {
            writeln!(f, "\n[[piece]]\nname = {}", quoted(name))?;
            writeln!(f, "instructions = {:.1}", counts.instructions)?;
            writeln!(f, "allocations = {:.3}", counts.allocations)?;
            if let Some(why) = why {
                writeln!(f, "why = {}", quoted(why))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(pieces: &[(&str, f64, f64)]) -> Vec<(String, Counts)> {
        let counts = |&(name, instructions, allocations): &(&str, f64, f64)| {
            let counts = Counts {
                instructions,
                allocations,
            };
            (name.to_owned(), counts)
        };
        pieces.iter().map(counts).collect()
    }

    fn table(pieces: &[(&str, f64, f64)]) -> Table {
        let table = Table::default().updated("rustc".to_owned(), &counted(pieces), None);
        table.unwrap()
    }

    #[track_caller]
    fn check(was: (f64, f64), now: (f64, f64), expected: Option<&str>) {
        let table = table(&[("match", was.0, was.1)]);
        let outcome = table.check(&counted(&[("match", now.0, now.1)]));
        match (outcome, expected) {
            (Ok(()), None) => {}
            (Err(problem), Some(part)) => assert!(problem.contains(part), "{problem}"),
            (outcome, _) => panic!("{was:?} {now:?}: {outcome:?}"),
        }
    }

    #[test]
    fn more_than_the_allowed_percent_fails_and_names_old_new_and_percent() {
        check((1000.0, 2.0), (1029.0, 2.0), None);
        check((1000.0, 2.0), (500.0, 1.0), None);
        let words = "match: 1031.0 instructions, and 1000.0 in the table: +3.1 %";
        check((1000.0, 2.0), (1031.0, 2.0), Some(words));
    }

    #[test]
    fn an_allocation_more_fails_where_instructions_hardly_rise() {
        check((1000.0, 0.0), (1001.0, 0.009), None);
        let words = "match: 1.000 allocations, and 0.000 in the table";
        check((1000.0, 0.0), (1001.0, 1.0), Some(words));
    }

    #[test]
    fn a_piece_that_only_one_of_both_has_fails() {
        let table = table(&[("match", 1.0, 0.0)]);
        let problem = table.check(&counted(&[("decode", 1.0, 0.0)])).unwrap_err();
        assert!(problem.contains("decode is not in the table"), "{problem}");
        assert!(problem.contains("match is in the table"), "{problem}");
    }

    #[test]
    fn without_a_reason_no_number_rises() {
        let rustc = || "rustc".to_owned();
        let was = || table(&[("match", 1000.0, 1.0), ("encode", 100.0, 0.0)]);
        let slightly = counted(&[("match", 1020.0, 0.5), ("encode", 90.0, 0.0)]);
        let now = was().updated(rustc(), &slightly, None).unwrap();
        assert_eq!(now, table(&[("match", 1000.0, 0.5), ("encode", 90.0, 0.0)]));

        let much = counted(&[("match", 1100.0, 1.0), ("encode", 101.0, 0.0)]);
        let problem = was().updated(rustc(), &much, None).unwrap_err();
        assert!(problem.contains("match") && problem.contains("--why"));
        assert!(!problem.contains("encode"), "{problem}");
    }

    #[test]
    fn a_reason_stands_where_the_number_rose_and_is_read_again() {
        let was = table(&[("match", 1000.0, 1.0), ("encode", 100.0, 0.0)]);
        let now = counted(&[("match", 1100.0, 1.0), ("encode", 101.0, 0.0)]);
        let why = "it says \"more\"";
        let now = was.updated("rustc".to_owned(), &now, Some(why)).unwrap();
        let text = now.to_string();
        assert_eq!(text.matches("why = ").count(), 1, "{text}");
        assert_eq!(text.parse::<Table>().unwrap(), now);
        assert_eq!(now.entries[0].why.as_deref(), Some(why));
    }

    #[test]
    fn the_reason_of_one_piece_lets_no_other_rise() {
        let was = || table(&[("match", 1000.0, 1.0), ("encode", 100.0, 0.0)]);
        let now = counted(&[("match", 1100.0, 1.0), ("encode", 102.0, 0.0)]);
        let updated = |with: &str| was().updated(with.to_owned(), &now, Some("why")).unwrap();
        let encode = |table: &Table| table.of("encode").unwrap().instructions;
        assert!((encode(&updated("rustc")) - 100.0).abs() < 1e-9);
        // With another compiler all are of something else.
        assert!((encode(&updated("other rustc")) - 102.0).abs() < 1e-9);
    }

    #[test]
    fn a_table_that_lacks_something_is_refused_with_what_it_lacks() {
        for (text, part) in [
            ("", "counted_with"),
            ("counted_with = 'x'\n[[piece]]\nname = 'a'", "instructions"),
            ("counted_with = 'x'\n[[piece]]\ninstructions = 1.0", "name"),
        ] {
            let problem = text.parse::<Table>().unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
