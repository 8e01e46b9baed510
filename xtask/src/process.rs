//! Running other programs: shown as they run, read while they do, ended when we are done with them.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::{Outcome, tree};

/// Cargo, in the workspace, the one that runs us.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(tree::root());
    command
}

/// A program of ours, in the workspace.
pub(crate) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.current_dir(tree::root());
    command
}

/// The same command, for the cores that others leave it.
pub(crate) fn yielding(command: &Command) -> Command {
    let mut yielding = Command::new("nice");
    yielding.args(["-n", "10"]).arg(command.get_program());
    yielding.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => yielding.env(name, value),
            None => yielding.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        yielding.current_dir(directory);
    }
    yielding
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let _ = write!(
                text,
                "{}={} ",
                name.display(),
                quoted(&value.to_string_lossy())
            );
        }
    }
    // Cargo gives its own full path; the short name does the same.
    let program = Path::new(command.get_program());
    let program = match program.file_name() {
        Some(name) if name == "cargo" => "cargo".into(),
        _ => program.to_string_lossy(),
    };
    text.push_str(&program);
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&quoted(&argument.to_string_lossy()));
    }
    text
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Runs it with its output shown, gives each line of standard output to `line`, and fails as it
/// fails.
pub(crate) fn stream(command: &mut Command, line: impl FnMut(&str)) -> Outcome {
    stream_marked("", command, line)
}

/// The same, with this before each line that is shown.
pub(crate) fn stream_marked(
    mark: &str,
    command: &mut Command,
    mut line: impl FnMut(&str),
) -> Outcome {
    let name = shown(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{name} does not start: {error}"))?;
    if let Some(output) = child.stdout.take() {
        for bytes in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&bytes);
            println!("{mark}{text}");
            line(&text);
        }
    }
    let status = child
        .wait()
        .map_err(|error| format!("cannot wait for {name}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name} failed: {status}"))
    }
}

/// Runs it silently; what it printed is shown only when it fails.
pub(crate) fn quiet(command: &mut Command) -> Outcome<String> {
    let name = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name} does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name} failed: {}\n{text}{errors}", output.status))
}

/// A process that ends with this value.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    /// Whether it has ended, and how, within the time given.
    pub(crate) fn ended_within(&mut self, limit: Duration) -> io::Result<Option<bool>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status.success()));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            // std has no wait with a deadline; the processes waited for run for seconds.
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn start(command: &mut Command) -> Outcome<Self> {
        let name = shown(command);
        command
            .stdin(Stdio::null())
            .spawn()
            .map(Self)
            .map_err(|error| format!("{name} does not start: {error}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Our broker, listening on a loopback port of its own choice.
pub(crate) fn serve(binary: &Path, directory: &Path) -> Outcome<(Running, SocketAddr)> {
    const ANNOUNCES: &str = "listening on 127.0.0.1:";
    let log = directory.join("broker.log");
    let file = std::fs::File::create(&log).map_err(|error| error.to_string())?;
    let errors = file.try_clone().map_err(|error| error.to_string())?;
    let mut command = Command::new(binary);
    command
        .args([
            "serve",
            "--admin",
            "off",
            "--in-memory",
            "-p",
            "0",
            "--bind",
            "127.0.0.1",
        ])
        .current_dir(directory)
        .stdout(file)
        .stderr(errors);
    let mut broker = Running::start(&mut command)?;
    for _ in 0..200 {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if let Some((_, rest)) = text.split_once(ANNOUNCES)
            && let Some((port, _)) = rest.split_once(|c: char| !c.is_ascii_digit())
            && let Ok(port) = port.parse()
        {
            return Ok((broker, SocketAddr::from(([127, 0, 0, 1], port))));
        }
        if let Ok(Some(_)) = broker.ended_within(Duration::from_millis(50)) {
            return Err(format!("the broker ended at once:\n{text}"));
        }
    }
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    Err(format!("the broker does not say where it listens:\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_so_that_it_can_be_pasted() {
        let mut command = Command::new("/opt/rust/bin/cargo");
        command.args(["test", "--", "a name"]).env("SHARDS", "3");
        assert_eq!(shown(&command), "SHARDS=3 cargo test -- 'a name'");
    }

    #[test]
    #[cfg(target_os = "linux")] // elsewhere `nice` alone does not say the number
    fn what_yields_is_the_same_command() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $(nice) $SHARDS $HOME $PWD"]);
        command
            .env("SHARDS", "3")
            .env_remove("HOME")
            .current_dir("/");
        let own = quiet(&mut Command::new("nice")).expect("it is a part of the system");
        let own: u8 = own.trim().parse().expect("we do not run ahead of others");
        let [as_is, yielding] = [own, (own + 10).min(19)].map(|nice| format!("{nice} 3 /\n"));
        assert_eq!(quiet(&mut command), Ok(as_is));
        assert_eq!(quiet(&mut super::yielding(&command)), Ok(yielding));
    }

    #[test]
    fn a_failing_program_is_an_error_with_its_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo told; echo complained >&2; exit 3"]);
        let problem = quiet(&mut command).expect_err("exit code 3 is a failure");
        assert!(
            problem.contains("told") && problem.contains("complained"),
            "{problem}"
        );
    }
}
