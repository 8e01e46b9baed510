//! The proof over somebody else's broker: the demonstration's line runs over Mosquitto as it is.
//!
//! Without Mosquitto the test says so and counts as skipped, unless `UNBROKEN_REQUIRE_TOOLS` is 1.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::Instant;

use support::{DEADLINE, Mosquitto};

/// Mosquitto or not.
#[test]
fn a_broker_that_is_not_there_is_not_waited_for() {
    // A port that was free a moment ago.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    for mode in [
        &["--plain", "--within", "600"][..],
        &["--messages", "100", "--faults", "1"],
        &[],
    ] {
        let begin = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_unbroken"))
            .args(["demo", "--broker", &address])
            .args(mode)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(69), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        for part in [&*address, "Connection refused", "leave --broker out"] {
            assert!(said.contains(part), "{part} in {said}");
        }
        assert!(!said.contains("--within"), "{said}");
        assert!(begin.elapsed() < DEADLINE, "{:?}", begin.elapsed());
    }
}

#[test]
fn every_fault_is_named_and_repaired_over_mosquitto_too() {
    let Some(mosquitto) = Mosquitto::start() else {
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
        for injection in [
            "lost: number",
            "duplicated: number",
            "swapped: number",
            "altered: number",
            "forged: number",
            "injected: number",
            "held: number",
            "network cut between the broker and C: repaired",
        ] {
            assert!(text.contains(injection), "{injection} in\n{text}");
        }
    }
    let text = demo("--messages 5000 --faults 50 --rate 2000");
    let expect = "named: 50, missing: 0, false: 0, repaired: 50";
    assert!(text.contains(expect), "{text}");
}
