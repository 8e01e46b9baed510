//! Commands that a scenario runs: ours and Mosquitto's.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};

use unbroken_acceptance::{DEADLINE, process};

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
    errors: Option<JoinHandle<String>>,
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
        let mut stderr = child.stderr.take().expect("stderr is piped");
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self {
            line: line.to_owned(),
            child,
            lines,
            errors: Some(errors),
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
        let errors = self
            .errors
            .take()
            .map(JoinHandle::join)
            .and_then(Result::ok);
        Finished {
            line: self.line.clone(),
            code: status.code(),
            output,
            errors: errors.unwrap_or_default(),
        }
    }

    /// Ends it and gives what it said on standard error.
    fn give_up(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.errors
            .take()
            .map(JoinHandle::join)
            .and_then(Result::ok)
            .unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
