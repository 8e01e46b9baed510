//! Commands that a scenario runs: ours and Mosquitto's.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::{DEADLINE, process};

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The command as it was written.
    pub(crate) line: String,
    /// Its exit code; absent after a signal.
    pub(crate) code: Option<i32>,
    /// What it printed.
    pub(crate) output: String,
    /// What it printed to standard error.
    pub(crate) errors: String,
}

/// A command that is still running.
#[derive(Debug)]
pub(crate) struct Running {
    line: String,
    child: Child,
    lines: Receiver<String>,
    errors: Errors,
}

/// What a command has said on standard error so far, and the thread that reads it.
#[derive(Debug)]
struct Errors {
    said: Arc<(Mutex<String>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts a command line: words separated by spaces, quoted with `'` where they contain some.
    /// `unbroken` is the binary under test.
    pub(crate) fn start(line: &str, directory: &Path, input: Option<&str>) -> Self {
        // Also where it is not the first word, as in `env NAME=value unbroken serve`.
        let mut words = split(line).into_iter().map(|word| match word.as_str() {
            "unbroken" => process::binary().into_os_string(),
            _ => word.into(),
        });
        let program = words.next().expect("a command line names a program");
        let mut child = Command::new(&program)
            .args(words)
            // With what it starts, so that all of it can be ended.
            .process_group(0)
            .current_dir(directory)
            .stdin(if input.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("`{line}` does not start: {error}"));
        if let Some(text) = input {
            let mut stdin = child.stdin.take().expect("stdin is piped");
            // A command that ends before it has read everything is judged by what it says.
            let _ = stdin.write_all(text.as_bytes());
        }
        let output = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(output);
            let mut bytes = Vec::new();
            while reader
                .read_until(b'\n', &mut bytes)
                .is_ok_and(|length| length > 0)
            {
                if sender
                    .send(String::from_utf8_lossy(&bytes).into_owned())
                    .is_err()
                {
                    return;
                }
                bytes.clear();
            }
        });
        let errors = Errors::read(child.stderr.take().expect("stderr is piped"));
        Self {
            line: line.to_owned(),
            child,
            lines,
            errors,
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line it prints, without its end.
    pub(crate) fn next_line(&mut self) -> String {
        let Ok(line) = self.lines.recv_timeout(DEADLINE) else {
            let errors = self.give_up();
            panic!("`{}` prints nothing more: {errors}", self.line)
        };
        line.trim_end_matches('\n').to_owned()
    }

    /// Skips what it prints up to a line with this part; gives that line.
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        loop {
            let line = self.next_line();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Waits until it has said this on standard error.
    pub(crate) fn warns(&self, part: &str) {
        let (said, more) = &*self.errors.said;
        let said = said.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = more.wait_timeout_while(said, DEADLINE, |said| !said.contains(part));
        let (said, _) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(said.contains(part), "`{}` says only: {said}", self.line);
    }

    /// Waits until it has ended. As long as it goes on printing it is given time.
    pub(crate) fn finish(mut self) -> Finished {
        let mut output = String::new();
        loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) => output.push_str(&line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let errors = self.give_up();
                    panic!("`{}` does not end; so far: {output}{errors}", self.line);
                }
            }
        }
        // Its output has ended, so it is about to end itself.
        let status: ExitStatus = self.child.wait().expect("a child can be waited for");
        Finished {
            line: self.line.clone(),
            code: status.code(),
            output,
            errors: self.errors.rest(),
        }
    }

    /// Ends it and gives what it said on standard error.
    fn give_up(&mut self) -> String {
        self.kill();
        self.errors.rest()
    }

    /// Ends it, and what it has started: a demonstration has a broker.
    fn kill(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return; // its group may be another's by now
        }
        let group = format!("-{}", self.child.id());
        let ended = Command::new("kill").args(["-KILL", "--", &group]).status();
        if !ended.is_ok_and(|status| status.success()) {
            // It may have ended meanwhile.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

impl Errors {
    fn read(stderr: ChildStderr) -> Self {
        let said = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let heard = Arc::clone(&said);
        let reader = thread::spawn(move || {
            let mut reader = BufReader::new(stderr);
            let mut bytes = Vec::new();
            while reader
                .read_until(b'\n', &mut bytes)
                .is_ok_and(|length| length > 0)
            {
                let (said, more) = &*heard;
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                said.push_str(&String::from_utf8_lossy(&bytes));
                more.notify_all();
                bytes.clear();
            }
        });
        Self {
            said,
            reader: Some(reader),
        }
    }

    /// All that it says until it ends.
    fn rest(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            // It reads and does nothing that panics.
            let _ = reader.join();
        }
        let said = self.said.0.lock();
        said.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().expect("never empty").push(other),
        }
    }
    assert!(!quoted, "a quote is not closed: {line}");
    words
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_command_that_is_given_up_takes_what_it_started_with_it() {
        let directory = tempfile::tempdir().unwrap();
        // Its output ends when all that may write to it have ended.
        let line = "sh -c 'tail -f /dev/null & echo started; wait'";
        let mut running = Running::start(line, directory.path(), None);
        assert_eq!(running.next_line(), "started");
        running.kill();
        let after = running.lines.recv_timeout(DEADLINE);
        assert_eq!(after, Err(RecvTimeoutError::Disconnected));
    }
}
