//! `cargo xtask spec`: which normative statements of MQTT are enforced and tested.
//!
//! The lists in `spec/*.toml` say what the statements are; where each is enforced and which tests
//! show it is read from the code (`citations.rs`), so nobody keeps it by hand. The result is
//! committed as `spec/coverage-*.md`, which works as a ratchet: what it shows as enforced or tested
//! must stay so.
//!
//! Deliberately absent: judging whether a test is any good. A citation is a claim; review decides.

mod citations;
mod statements;
mod table;

use std::collections::BTreeMap;
use std::fs;

use citations::Citations;
pub(crate) use citations::scenario_name;
use statements::{Id, Standard, Statement};

use crate::tree::File;
use crate::{Outcome, tree};

#[derive(clap::Args, Debug, Default)]
pub(crate) struct Arguments {
    /// Writes the coverage files anew
    #[arg(long)]
    write: bool,
    /// With --write: lets statements lose their enforcement or their tests
    #[arg(long, requires = "write")]
    accept_loss: bool,
    /// Lists the applicable statements that nothing enforces, or no test cites
    #[arg(long)]
    gaps: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let standards = [Standard::V5, Standard::V3_1_1];
    let files = tree::read()?;
    let mut citations = citations::collect(&files)?;
    let mut problems = Vec::new();
    let mut known = Vec::new();
    for standard in standards {
        let statements = statements::read(standard)?;
        known.extend(statements.iter().map(|statement| statement.id.clone()));
        citations.add_listed(&statements);
        problems.extend(missing_files(&statements, &files));
        println!("{}", Coverage::of(&statements, &citations).line(standard));
        if arguments.gaps {
            print_gaps(&statements, &citations);
        }
        problems.extend(contradictions(&statements, &citations));

        let path = tree::root().join(standard.coverage_path());
        let committed = fs::read_to_string(&path).unwrap_or_default();
        let lost = losses(&table::parse(&committed), &statements, &citations);
        let table = table::write(standard, &statements, &citations);
        if arguments.write && (lost.is_empty() || arguments.accept_loss) {
            fs::write(&path, table)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        } else if !lost.is_empty() {
            problems.extend(lost);
        } else if table != committed {
            problems.push(format!(
                "{} is out of date: run `cargo xtask spec --write` and commit it",
                standard.coverage_path()
            ));
        }
    }
    for (id, place) in citations.unknown(&known) {
        problems.push(format!(
            "{place} cites {id}, which the standard does not have"
        ));
    }
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => Ok(()),
        1 => Err("one problem with the statements".to_owned()),
        many => Err(format!("{many} problems with the statements")),
    }
}

/// The figures of one standard.
#[derive(Debug, Default, PartialEq, Eq)]
struct Coverage {
    applicable: usize,
    enforced: usize,
    tested: usize,
    not_applicable: usize,
}

impl Coverage {
    fn of(statements: &[Statement], citations: &Citations) -> Self {
        let mut coverage = Self::default();
        for statement in statements {
            if statement.not_applicable.is_some() {
                coverage.not_applicable += 1;
                continue;
            }
            coverage.applicable += 1;
            coverage.enforced += usize::from(citations.enforced(&statement.id).is_some());
            coverage.tested += usize::from(citations.tested(&statement.id).is_some());
        }
        coverage
    }

    fn line(&self, standard: Standard) -> String {
        let Self {
            applicable,
            enforced,
            tested,
            not_applicable,
        } = self;
        let total = applicable + not_applicable;
        let name = standard.name();
        format!(
            "{name}: {total} statements, {applicable} apply, {enforced} enforced, {tested} tested, \
             {not_applicable} not applicable"
        )
    }
}

fn print_gaps(statements: &[Statement], citations: &Citations) {
    let applicable = |s: &&Statement| s.not_applicable.is_none();
    for statement in statements.iter().filter(applicable) {
        let id = &statement.id;
        let gap = match (citations.enforced(id), citations.tested(id)) {
            (None, None) => "nothing cites it",
            (None, Some(_)) => "not enforced",
            (Some(_), None) => "not tested",
            (Some(_), Some(_)) => continue,
        };
        println!("  {gap:<16} {id:<18} {}", statement.says);
    }
}

/// Files that a list names and the repository does not have.
fn missing_files(statements: &[Statement], files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for statement in statements {
        for path in &statement.enforced {
            if !files.iter().any(|file| file.path == *path) {
                problems.push(format!("{} names {path}, which is not there", statement.id));
            }
        }
    }
    problems
}

/// Statements that are said not to concern us, and have a test.
fn contradictions(statements: &[Statement], citations: &Citations) -> Vec<String> {
    let mut problems = Vec::new();
    for statement in statements.iter().filter(|s| s.not_applicable.is_some()) {
        let id = &statement.id;
        if let Some(tests) = citations.tested(id).and_then(|tests| tests.first()) {
            problems.push(format!(
                "{id} is declared not applicable, but `{tests}` tests it: one of the two is wrong"
            ));
        }
    }
    problems
}

/// What the committed table shows and the code does not have any more.
fn losses(
    committed: &BTreeMap<Id, table::Shown>,
    statements: &[Statement],
    citations: &Citations,
) -> Vec<String> {
    let mut problems = Vec::new();
    for statement in statements.iter().filter(|s| s.not_applicable.is_none()) {
        let id = &statement.id;
        let Some(shown) = committed.get(id) else {
            continue;
        };
        if shown.enforced && citations.enforced(id).is_none() {
            problems.push(format!(
                "{id} was enforced and is cited by no code any more"
            ));
        }
        if shown.tested && citations.tested(id).is_none() {
            problems.push(format!("{id} was tested and is cited by no test any more"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements() -> Vec<Statement> {
        statements::parse(
            r#"
            ["MQTT-3.1.0-2"]
            says = "A second CONNECT ends the connection."
            ["MQTT-3.3.4-5"]
            says = "Copies carry their identifier."
            not_applicable = "one copy only"
            "#,
        )
        .expect("the list is well-formed")
    }

    fn citations(path: &str, text: &str) -> Citations {
        citations::collect(&[File::new(path, text)]).expect("the file can be scanned")
    }

    const TEST: &str = "/// [MQTT-3.1.0-2]\n#[test]\nfn second_connect_closes() {\n}\n";

    #[test]
    fn figures_count_each_statement_once() {
        let citations = citations("crates/broker/tests/a.rs", TEST);
        let expect = Coverage {
            applicable: 1,
            enforced: 0,
            tested: 1,
            not_applicable: 1,
        };
        assert_eq!(Coverage::of(&statements(), &citations), expect);
    }

    #[test]
    fn what_enforces_a_statement_enforces_its_like_in_the_other_standard() {
        let mut citations = citations("crates/broker/src/a.rs", "// [MQTT-3.1.0-2]\n");
        let list = "[\"MQTT311-3.1.0-2\"]\nsays = \"x\"\nsame_as = [\"MQTT-3.1.0-2\"]\n\
                    [\"MQTT311-3.1.0-3\"]\nsays = \"y\"\nenforced = [\"crates/b.rs\"]\n";
        let list = statements::parse(list).expect("the list is well-formed");
        citations.add_listed(&list);
        let enforced = |at: usize| citations.enforced(&list[at].id).and_then(|set| set.first());
        assert_eq!(
            enforced(0).map(String::as_str),
            Some("crates/broker/src/a.rs")
        );
        assert_eq!(enforced(1).map(String::as_str), Some("crates/b.rs"));
        let files = [File::new("crates/c.rs", "")];
        assert_eq!(missing_files(&list, &files).len(), 1);
    }

    #[test]
    fn a_test_that_disappears_is_a_loss() {
        let before = citations("crates/broker/tests/a.rs", TEST);
        let committed = table::parse(&table::write(Standard::V5, &statements(), &before));
        assert_eq!(
            losses(&committed, &statements(), &before),
            Vec::<String>::new()
        );
        let after = Citations::default();
        assert_eq!(losses(&committed, &statements(), &after).len(), 1);
    }

    #[test]
    fn a_test_for_a_statement_declared_not_applicable_is_a_contradiction() {
        let text = TEST.replace("3.1.0-2", "3.3.4-5");
        let citations = citations("crates/broker/tests/a.rs", &text);
        assert_eq!(contradictions(&statements(), &citations).len(), 1);
    }

    #[test]
    fn a_citation_of_a_number_that_no_list_has_is_found() {
        let citations = citations("crates/broker/src/a.rs", "// [MQTT-3.1.0-9]\n");
        let known: Vec<_> = statements().into_iter().map(|s| s.id).collect();
        let unknown = citations.unknown(&known);
        assert_eq!(unknown.len(), 1);
        assert_eq!(unknown[0].1, "crates/broker/src/a.rs");
    }
}
