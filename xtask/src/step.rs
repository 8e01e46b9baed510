//! The steps of `cargo xtask ci` that are commands, one after the other or in two rows beside one
//! another.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::tally::Tally;
use crate::{Outcome, process};

/// A command with a name.
pub(crate) struct Step {
    name: String,
    command: Command,
    repeat: String,
    tells: bool,
}

impl Step {
    /// Passes or fails as a whole.
    pub(crate) fn check(name: impl Into<String>, command: Command) -> Self {
        Self {
            name: name.into(),
            repeat: process::shown(&command),
            command,
            tells: false,
        }
    }

    /// Prints how many tests it ran.
    pub(crate) fn tests(name: impl Into<String>, command: Command) -> Self {
        Self {
            tells: true,
            ..Self::check(name, command)
        }
    }

    /// It prints how many tests it ran.
    pub(crate) fn telling(self) -> Self {
        Self {
            tells: true,
            ..self
        }
    }

    /// Who fails is told another command to repeat it with: one that builds first.
    pub(crate) fn repeated_with(self, repeat: impl Into<String>) -> Self {
        Self {
            repeat: repeat.into(),
            ..self
        }
    }

    /// Runs it; what has a `mark` before its lines leaves the cores to others.
    fn run(mut self, mark: &str) -> (Tally, Outcome) {
        let mut tally = Tally::default();
        if !mark.is_empty() {
            self.command = process::yielding(&self.command);
        }
        let outcome = timed(&self.name, mark, &self.repeat, || {
            process::stream_marked(mark, &mut self.command, |line| {
                if let Some(more) = Tally::from_line(line).filter(|_| self.tells) {
                    tally += more;
                }
            })
        });
        match outcome {
            Ok(()) if !self.tells => tally = Tally::PASSED,
            Err(_) if tally.failed == 0 => tally += Tally::FAILED,
            _ => {}
        }
        (tally, outcome)
    }
}

/// Does the work of a step: says its name before, and behind it how long it took. Who fails says
/// how to `repeat` it.
pub(crate) fn timed<T>(
    name: &str,
    mark: &str,
    repeat: &str,
    work: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    println!("{mark}\n{mark}── {name}");
    let begin = Instant::now();
    let outcome = work();
    let seconds = begin.elapsed().as_secs_f64();
    match outcome {
        Ok(done) => {
            println!("{mark}── {name}: {seconds:.1} s");
            Ok(done)
        }
        Err(problem) => Err(format!(
            "{name} failed after {seconds:.1} s\n{problem}\nrepeat it with: {repeat}"
        )),
    }
}

/// Runs these in order, up to the first that fails.
pub(crate) fn in_order(steps: Vec<Step>) -> (Tally, Outcome) {
    row(steps, "", &AtomicBool::new(false))
}

/// Runs two rows of steps, each in order, beside one another: those that mostly wait, and those
/// that compute whenever the others leave them a core, whose standard output is marked. When a step
/// fails, that is said at once, and neither row begins another.
pub(crate) fn beside(waiting: Vec<Step>, computing: Vec<Step>) -> (Tally, Outcome) {
    let has_failed = AtomicBool::new(false);
    let told = |steps, mark| {
        let (tally, outcome) = row(steps, mark, &has_failed);
        (
            tally,
            outcome.inspect_err(|problem| println!("{mark}── {problem}")),
        )
    };
    let [first, second] = thread::scope(|scope| {
        let others = scope.spawn(|| told(computing, "· "));
        let own = told(waiting, "");
        let panicked = || {
            (
                Tally::FAILED,
                Err("the row that computes panicked".to_owned()),
            )
        };
        [own, others.join().unwrap_or_else(|_| panicked())]
    });
    let mut tally = first.0;
    tally += second.0;
    let problems = [first.1, second.1].into_iter().filter_map(Outcome::err);
    (tally, all_of(&problems.collect::<Vec<_>>()))
}

/// Fails with all of these problems, if there are any.
pub(crate) fn all_of(problems: &[String]) -> Outcome {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("\n"))
    }
}

fn row(steps: Vec<Step>, mark: &str, has_failed: &AtomicBool) -> (Tally, Outcome) {
    let mut sum = Tally::default();
    for step in steps {
        if has_failed.load(Ordering::Relaxed) {
            break;
        }
        let (tally, outcome) = step.run(mark);
        sum += tally;
        if outcome.is_err() {
            has_failed.store(true, Ordering::Relaxed);
            return (sum, outcome);
        }
    }
    (sum, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(name: &str, text: impl AsRef<str>) -> Step {
        let mut command = Command::new("sh");
        command.args(["-c", text.as_ref()]);
        Step::tests(name, command)
    }

    #[test]
    fn rows_run_beside_one_another_and_are_added_up() {
        let directory = tempfile::tempdir().expect("a directory for a pipe");
        let pipe = directory.path().join("pipe");
        let make = format!("mkfifo '{}'", pipe.display());
        // Each waits for the other.
        let write = format!(
            "timeout 60 sh -c \"echo '2 scenarios (2 passed)' > '{}'\"",
            pipe.display()
        );
        let read = format!("timeout 60 cat '{}'", pipe.display());
        assert_eq!(in_order(vec![script("pipe", make)]).1, Ok(()));
        let (tally, outcome) = beside(
            vec![
                script("reads", read),
                script("skips", "echo '1 test (1 skipped)'"),
            ],
            vec![
                script("writes", write),
                Step::check("true", Command::new("true")),
            ],
        );
        assert_eq!(outcome, Ok(()));
        let expected = Tally {
            passed: 3,
            failed: 0,
            skipped: 1,
        };
        assert_eq!(tally, expected);
    }

    #[test]
    fn each_row_names_what_failed_and_how_to_repeat_it() {
        let failing = "echo '3 scenarios (2 passed, 1 failed)'; exit 1";
        let (tally, outcome) = beside(
            vec![script("one", failing)],
            vec![Step::check("two", Command::new("true"))],
        );
        let problem = outcome.expect_err("one of them fails");
        assert!(
            problem.contains("one failed") && !problem.contains("two"),
            "{problem}"
        );
        assert!(problem.contains("repeat it with: sh -c"), "{problem}");
        assert_eq!(tally.failed, 1);
        let failing = script("two", "exit 1").repeated_with("cargo run two");
        let (tally, outcome) = beside(Vec::new(), vec![failing]);
        let problem = outcome.expect_err("it fails");
        assert!(problem.contains("two failed"), "{problem}");
        assert!(
            problem.ends_with("repeat it with: cargo run two"),
            "{problem}"
        );
        assert_eq!(tally, Tally::FAILED, "it told of none");
    }

    #[test]
    fn behind_what_failed_nothing_is_begun() {
        let steps = || {
            let other = script("other", "echo '1 test (1 passed)'");
            vec![script("fails", "exit 1"), other]
        };
        assert_eq!(in_order(steps()).0, Tally::FAILED);
        let (tally, outcome) = row(steps(), "", &AtomicBool::new(true));
        assert_eq!(
            (tally, outcome),
            (Tally::default(), Ok(())),
            "the other row has failed"
        );
    }
}
