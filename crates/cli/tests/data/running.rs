//! Commands that ask the broker that has the directory, and what they say when its store has
//! failed.

use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use unbroken_broker::control::{self, Forget, Operator};
use unbroken_broker::stored_access::Change;
use unbroken_store::Embedded;

use crate::backup::without_store_health;
use crate::{Filled, open, options, run};

#[test]
fn of_a_store_that_has_failed_whatever_is_read_is_as_it_is_on_disk() {
    let store = Filled::new();
    let file = store.temp.path().join("monday.backup");
    let backup = ["backup", file.to_str().unwrap()];
    let commands = [
        &["sessions", "ls"][..],
        &["retained", "ls"],
        &["retained", "get", "plant/mode"],
        &["db", "export"],
        &backup,
    ];
    let all_say = |words: &str| {
        for command in commands {
            let told = store.run(command).well().errors;
            assert_eq!(told.contains("Warning: "), !words.is_empty(), "{told}");
            assert!(told.contains(words), "{command:?}: {told}");
        }
        fs::remove_file(&file).unwrap();
    };
    all_say("");
    let failed = store.path().join("failed");
    fs::write(&failed, "unbroken-failed 1\nno space\n").unwrap();
    all_say("Warning: the store failed in the last run: no space; this is what is on disk\n");
    let report = store.run(&["doctor"]);
    assert!(
        report
            .text
            .contains("wrong: the store failed in the last run: no space\n")
    );
    assert_eq!(report.errors, "", "once");

    fs::remove_file(failed).unwrap();
    let opened = Arc::new(open(&store.path(), options()));
    let running = Arc::clone(&opened);
    let control = control::start(running, &store.path(), Box::new(Failed)).unwrap();
    all_say("Warning: the store has failed: no space; this is what is on disk\n");
    let text = store.run(&["sessions", "ls"]).well().text;
    assert!(text.contains(" connected when the store failed "), "{text}");
    drop(control);
}

/// Of a broker that goes on without its store.
#[derive(Debug)]
struct Failed;

impl Operator for Failed {
    fn forget(&self, _: Forget) -> Result<(), String> {
        Err("the store has failed".to_owned())
    }

    fn reload(&self) -> Result<Vec<String>, String> {
        Err("there is no configuration".to_owned())
    }

    fn change(&self, _: &Change) -> Result<(), String> {
        Err("no user can be changed here".to_owned())
    }

    fn automatic_bans(&self) -> Vec<(IpAddr, u64)> {
        Vec::new()
    }

    fn failure(&self) -> Option<&str> {
        Some("no space")
    }
}

/// Says what it was asked.
#[derive(Debug)]
struct Refuses;

impl Operator for Refuses {
    fn forget(&self, what: Forget) -> Result<(), String> {
        Err(format!("{what:?}"))
    }

    fn reload(&self) -> Result<Vec<String>, String> {
        Err("there is no configuration".to_owned())
    }

    fn change(&self, _: &Change) -> Result<(), String> {
        Err("no user can be changed here".to_owned())
    }

    fn automatic_bans(&self) -> Vec<(IpAddr, u64)> {
        Vec::new()
    }

    fn failure(&self) -> Option<&str> {
        None
    }
}

#[test]
fn commands_look_into_the_directory_of_a_running_broker() {
    let store = Filled::new();
    let at = |name: &str| store.temp.path().join(name);
    let offline = store.run(&["db", "export"]).well().text;
    let sessions = store.run(&["sessions", "ls", "--json"]).well().text;
    let opened = Arc::new(open(&store.path(), options()));
    let control = control::start(
        Arc::<Embedded>::clone(&opened),
        &store.path(),
        Box::new(Refuses),
    )
    .unwrap();
    assert_eq!(store.run(&["db", "export"]).well().text, offline);
    assert_eq!(
        store.run(&["sessions", "ls", "--json"]).well().text,
        sessions
    );
    assert_eq!(
        store.run(&["retained", "get", "plant/mode"]).well().text,
        "auto\n"
    );
    let file = at("monday.backup");
    store.run(&["backup", file.to_str().unwrap()]).well();
    let report = store.run(&["doctor", "--deep"]);
    report.badly(69, "a broker has the directory");
    let report = &store.run(&["doctor", "--json"]).objects()[0];
    assert_eq!(report["broker"]["process"], std::process::id());
    let table = store.run(&["sessions", "ls"]).well().text;
    assert!(table.contains(" connected  "), "{table}");
    store
        .run(&["retained", "rm", "--dry-run", "plant/mode"])
        .well();
    // What is removed goes to the broker, and its answer to whoever asked.
    let asked = store.run(&["sessions", "rm", "desk"]);
    asked.badly(74, "Session { client_id: \"desk\" }");
    let asked = store.run(&["retained", "rm", "plant/mode"]);
    asked.badly(74, "Retained { topic: \"plant/mode\" }");
    drop(control);
    drop(opened);
    assert_eq!(store.run(&["db", "export"]).well().text, offline);
    run(&at("copy"), &["restore", file.to_str().unwrap()]).well();
    let copy = run(&at("copy"), &["db", "export"]).well().text;
    assert_eq!(without_store_health(&copy), offline);
}
