//! The proof over somebody else's broker: the demonstration's line runs over Mosquitto as it is.
//!
//! Without Mosquitto the test says so and passes, unless `UNBROKEN_REQUIRE_TOOLS` is 1.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::{env, fs, thread};

/// A broker that ends with the test.
struct Mosquitto {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Mosquitto {
    /// `None` where it is not installed.
    fn start() -> Option<Self> {
        let path = env::var_os("PATH")?;
        let mut directories = env::split_paths(&path).chain(["/usr/sbin".into()]);
        let program: PathBuf = directories.find_map(|directory| {
            let program = directory.join("mosquitto");
            program.is_file().then_some(program)
        })?;
        let directory = tempfile::tempdir().unwrap();
        // It cannot choose a port itself: one that was free a moment ago.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let config = directory.path().join("mosquitto.conf");
        let text = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\nlog_dest stderr\nlog_type all\n\
             max_queued_messages 100000\nuser root\n"
        );
        fs::write(&config, text).unwrap();
        let mut child = Command::new(program)
            .arg("-c")
            .arg(config)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_running = log.any(|line| line.unwrap().ends_with(" running"));
        assert!(is_running, "mosquitto ended before it listened");
        // Read to its end, so that it never waits for a reader.
        thread::spawn(move || log.for_each(drop));
        Some(Self {
            child,
            port,
            _directory: directory,
        })
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_wound_is_named_and_repaired_over_mosquitto_too() {
    let Some(mosquitto) = Mosquitto::start() else {
        let required = env::var("UNBROKEN_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
        assert!(!required, "mosquitto is required and not installed");
        let _ = writeln!(io::stderr(), "skipped: mosquitto is not installed");
        return;
    };
    let broker = format!("127.0.0.1:{}", mosquitto.port);
    let demo = |arguments: &str| {
        let mut words = vec!["demo", "--broker", &broker];
        words.extend(arguments.split(' '));
        let output = Command::new(env!("CARGO_BIN_EXE_unbroken"))
            .args(words)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}\n{said}");
        text
    };
    // Another run on the same broker finds nothing of the one before.
    for _ in 0..2 {
        let text = demo("--plain");
        for wound in [
            "lost: number",
            "duplicated: number",
            "swapped: number",
            "altered: number",
            "forged: number",
            "injected: number",
            "held: number",
            "network cut between the broker and C: repaired",
        ] {
            assert!(text.contains(wound), "{wound} in\n{text}");
        }
    }
    let text = demo("--messages 5000 --wounds 50 --rate 2000");
    let expect = "named: 50, missing: 0, false: 0, repaired: 50";
    assert!(text.contains(expect), "{text}");
}
