//! Every program of every peer runs, and receives every message that was sent.

use std::process::Command;

#[test]
fn every_row_of_every_peer_receives_all_its_messages() {
    let output = Command::new(env!("CARGO_BIN_EXE_unbroken-channel-bench"))
        .args(["channels", "--smoke"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for row in ["ping-pong-1", "whispers-2", "msgsend-10000", "idle-pipe"] {
        assert!(said.contains(row), "{row} did not run:\n{said}");
    }
}

#[test]
fn every_lexer_and_tokenizer_finds_the_same_tokens() {
    let output = Command::new(env!("CARGO_BIN_EXE_unbroken-channel-bench"))
        .args(["lexer", "--smoke"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
