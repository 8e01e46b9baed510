//! Directories and brokers of other users.

use super::*;
use crate::backup::mode;

/// A broker could open nothing of what is made there by somebody else.
#[test]
fn another_users_directory_is_left_as_it_is_and_reported_even_if_it_is_private() {
    let store = Filled::new();
    // Only root can give a directory to somebody else.
    if chown(store.path(), Some(OTHER), None).is_err() {
        return;
    }
    let lock = store.path().join("lock");
    fs::remove_file(&lock).unwrap();
    for words in [&["doctor"][..], &["doctor", "--deep"], &["sessions", "ls"]] {
        let refused = store.run(words);
        refused.badly(77, "belongs to user 12345, and this is user 0");
        assert!(!lock.exists(), "{words:?}");
    }

    assert_eq!(mode(&store.path()), 0o700);
    for words in [&["doctor"][..], &["sessions", "ls"], &["backup", "-"]] {
        let refused = by_nobody(&store, &store.path(), words);
        refused.badly(77, "belongs to user 12345, and this is user 65534");
    }
    let beyond = store.path().join("data");
    by_nobody(&store, &beyond, &["doctor"]).badly(77, "this user may not look at");
}

/// Stores of versions before this one could be looked into.
#[test]
fn a_broker_that_answers_only_another_user_is_reported_with_that_user() {
    let store = Filled::new();
    for directory in [store.path(), store.path().join("store")] {
        fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let socket = store.path().join("control");
    let _broker = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, PermissionsExt::from_mode(0o600)).unwrap();
    // Only root can give a socket to somebody else.
    if chown(&socket, Some(OTHER), None).is_err() {
        return;
    }
    for words in [
        &["doctor"][..],
        &["doctor", "--deep"],
        &["sessions", "ls"],
        &["sessions", "rm", "desk"],
        &["retained", "ls"],
        &["retained", "get", "plant/mode"],
        &["retained", "rm", "plant/mode"],
        &["db", "export"],
        &["backup", "-"],
    ] {
        let refused = by_nobody(&store, &store.path(), words);
        let told = "answers only its own user (12345) and root, not user 65534; run the command";
        refused.badly(77, told);
    }
}

/// Who owns nothing.
const NOBODY: u32 = 65_534;
/// Who owns what is another user's.
const OTHER: u32 = 12_345;

/// Runs a command on a directory of [`OTHER`] as somebody else, with a copy of the binary beside
/// the store.
fn by_nobody(store: &Filled, data: &Path, words: &[&str]) -> Ended {
    // Nobody need not reach the binary where it is. By another process: one that is being started
    // would have a file open that we write.
    let binary = store.temp.path().join("unbroken");
    if !binary.exists() {
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_unbroken")).arg(&binary);
        assert!(start(&mut copy).wait().unwrap().success());
        for path in [&binary, store.temp.path()] {
            fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
    let mut command = Command::new(&binary);
    command.args(words).arg("--data").arg(data);
    let command = command.uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
    start(command).wait_with_output().unwrap().into()
}
