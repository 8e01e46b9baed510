//! `unbroken audit` beside a lane that runs: over our broker, which keeps account itself, and over
//! somebody else's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use serde_json::Value;
use support::{Mosquitto, Running, broker, numbered, producer, until_there};

/// Publishes until a command has ended, and gives its end.
async fn beside_a_producer(port: &str, words: &[&str]) -> Output {
    let producer = producer(port).await;
    let mut command = Running::start(words);
    let mut number = 0;
    while command.0.try_wait().unwrap().is_none() {
        producer.publish(numbered("plant", number)).await.unwrap();
        number += 1;
    }
    command.output()
}

fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let rows = text.lines().map(serde_json::from_str);
    rows.collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn what_the_messages_prove_stands_beside_what_the_broker_says() {
    let (_broker, port) = broker();
    let mut reader =
        Running::start(&["sub", "-p", &port, "-t", "plant", "-q", "1", "-i", "reader"]);
    let _lines = reader.lines();
    until_there(&port, "plant").await;
    let words = [
        "audit", "status", "-p", &port, "-t", "plant", "-W", "3", "--json",
    ];
    let output = beside_a_producer(&port, &words).await;
    assert!(output.status.success(), "{output:?}");
    let rows = rows(&output);
    let lane = rows
        .iter()
        .find(|row| row["lane"] == "0000000000000001")
        .unwrap();
    assert_eq!(
        (&lane["faults"], &lane["broker"]["faults"]),
        (&0.into(), &0.into())
    );
    assert!(lane["arrived"].as_u64().unwrap() > 0);
    // The lane in which the broker numbers what the same client publishes.
    let ingress = rows
        .iter()
        .find(|row| row["broker"]["state"]["messages"].is_u64());
    assert!(ingress.is_some(), "{rows:?}");
    let accounts: Vec<_> = rows
        .iter()
        .filter(|row| row["client"].is_string())
        .collect();
    let levels = ["received", "stored", "sent", "acknowledged", "processed"];
    for (account, level) in accounts
        .iter()
        .flat_map(|of| levels.map(|level| (of, level)))
    {
        assert!(account[level].is_u64(), "{account}");
    }
    let reader = accounts
        .iter()
        .find(|row| row["client"] == "reader")
        .unwrap();
    let acknowledged = reader["acknowledged"].as_u64().unwrap();
    assert!(acknowledged > 0, "{reader}");
    assert_eq!(reader["dropped"], 0);
    let verdict = rows.last().unwrap()["broker"].as_str().unwrap();
    assert!(verdict.contains("received"), "{verdict}");
}

#[tokio::test]
async fn an_expected_lane_of_which_there_is_no_sign_is_a_fault_with_its_name() {
    let (_broker, port) = broker();
    let words = [
        "audit",
        "status",
        "-p",
        &port,
        "-t",
        "plant",
        "-W",
        "2",
        "--expect",
        "0000000000000001",
        "--expect",
        "0000000000000002",
    ];
    let output = beside_a_producer(&port, &words).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let unheard = "expected lane 0000000000000002: there was no sign of it";
    assert!(text.contains(unheard), "{text}");
    assert!(!text.contains("expected lane 0000000000000001"), "{text}");
}

#[tokio::test]
async fn of_an_expected_lane_with_another_algorithm_nothing_is_judged_and_it_is_not_said_to_be_absent()
 {
    let (_broker, port) = broker();
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "07".repeat(32)).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let words = ["audit", "status", "-p", &port, "-t", "plant", "-W", "2"];
    let key = ["--key-file", key.to_str().unwrap()];
    let words = [&words[..], &key, &["--expect", "0000000000000001"]].concat();
    let output = beside_a_producer(&port, &words).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!text.contains("no sign of it"), "{text}");
    assert!(text.contains("its algorithm is"), "{text}");
}

#[test]
fn a_broker_that_never_answers_is_waited_for_no_longer_than_asked() {
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let output = Running::start(&["audit", "status", "-p", &port, "-W", "1"]).output();
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("allow more time with -W"), "{text}");
}

#[tokio::test]
async fn over_somebody_elses_broker_there_is_what_the_messages_prove() {
    let Some(mosquitto) = Mosquitto::start() else {
        return;
    };
    let port = mosquitto.port.to_string();
    let words = ["audit", "status", "-p", &port, "-t", "plant", "-W", "2"];
    let output = beside_a_producer(&port, &words).await;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\n0000000000000001 "), "{text}");
    assert!(
        text.contains("the broker has no account of its own"),
        "{text}"
    );
}

#[tokio::test]
async fn a_proof_says_which_root_it_leads_to_and_is_checked_without_the_broker() {
    let (broker, port) = broker();
    // Whether it knows every window depends on who was first.
    let words = ["audit", "export", "-p", &port, "-t", "plant"];
    let output = beside_a_producer(&port, &words).await;
    assert!(output.status.success(), "{output:?}");
    drop(broker);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&output.stdout).unwrap();
    file.rewind().unwrap();
    let path = file.path().to_str().unwrap();
    let verify =
        |more: &[&str]| Running::start(&[&["audit", "verify", path], more].concat()).output();
    let verified = verify(&[]);
    assert!(verified.status.success(), "{verified:?}");
    let text = String::from_utf8(verified.stdout).unwrap();
    let of_window = text.contains("under the root of the window");
    assert!(
        of_window || text.contains("under the root of the lane"),
        "{text}"
    );
    let root = text
        .lines()
        .find_map(|line| line.strip_prefix("under the root of the "));
    let root = root.unwrap().split([' ', ',']).nth(1).unwrap();
    let kept = verify(&["--root", root]);
    assert!(kept.status.success(), "{kept:?}");
    let other = verify(&["--root", "00000000000000000000000000000000"]);
    assert_eq!(other.status.code(), Some(1), "{other:?}");
}
