//! `testdata/*.cases`: what is answered to each file, by us and by a real Mosquitto.
//!
//! Mosquitto is asked without being started: behind each file stands an option that does not
//! exist, and only who reads as far as that complains about it.
//!
//! Without Mosquitto that half says so and counts as skipped, unless `UNBROKEN_REQUIRE_TOOLS` is 1.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use unbroken_mosquitto_files::Mistakes;
use unbroken_mosquitto_files::acl::Acl;
use unbroken_mosquitto_files::conf::{Conf, Directories};

const CONF: &str = include_str!("../testdata/conf.cases");
const ACL: &str = include_str!("../testdata/acl.cases");

/// The option that does not exist.
const BEHIND_ALL: &str = "unbroken_behind_all";

struct Case {
    title: String,
    text: Vec<u8>,
    /// Line and column, if the file is refused.
    refused_at: Option<(u32, u32)>,
    /// Whether Mosquitto 2.0 accepts it.
    accepted_by_2_0: bool,
    is_at_the_end: bool,
}

fn cases(text: &str) -> Vec<Case> {
    let parts = text.split("\n--- ").skip(1);
    let cases: Vec<_> = parts.map(case).collect();
    assert!(cases.len() > 20, "few cases: {}", cases.len());
    cases
}

fn case(part: &str) -> Case {
    let (head, body) = part.split_once('\n').unwrap_or((part, ""));
    let (verdict, title) = head.split_once(": ").unwrap();
    let mut words = verdict.split(' ');
    let refused_at = match words.next().unwrap() {
        "accept" => None,
        "refuse" => {
            let (line, column) = words.next().unwrap().split_once(':').unwrap();
            Some((line.parse().unwrap(), column.parse().unwrap()))
        }
        other => panic!("{other}: {title}"),
    };
    let accepted_by_2_0 = match (
        verdict.contains("(2.0 accepts)"),
        verdict.contains("(2.0 refuses)"),
    ) {
        (true, _) => true,
        (_, true) => false,
        _ => refused_at.is_none(),
    };
    let mut bytes = Vec::new();
    for (index, piece) in body.split("<FF>").enumerate() {
        if index > 0 {
            bytes.push(0xff);
        }
        bytes.extend(piece.replace("<TAB>", "\t").replace("<CR>", "\r").bytes());
    }
    bytes.push(b'\n');
    Case {
        title: title.to_owned(),
        text: bytes,
        refused_at,
        accepted_by_2_0,
        is_at_the_end: verdict.contains("(at the end)"),
    }
}

struct NoDirectories;

impl Directories for NoDirectories {
    fn list(&mut self, _: &str) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn read(&mut self, _: &str, _: &str) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

#[track_caller]
fn check(cases: &[Case], parse: impl Fn(&[u8]) -> Result<(), Mistakes>) {
    let mut wrong = Vec::new();
    for case in cases {
        let answer = parse(&case.text);
        let place = |mistakes: &Mistakes| {
            let place = &mistakes.listed()[0].place;
            (place.line, place.column)
        };
        let refused_at = answer.as_ref().err().map(place);
        if refused_at != case.refused_at {
            wrong.push(format!("{}: {answer:?}", case.title));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn configurations_are_accepted_and_refused() {
    check(&cases(CONF), |text| {
        Conf::parse("mosquitto.conf", text, &mut NoDirectories).map(|_| ())
    });
}

#[test]
fn access_control_lists_are_accepted_and_refused() {
    check(&cases(ACL), |text| Acl::parse("acl", text).map(|_| ()));
}

#[test]
fn mosquitto_answers_the_same_to_configurations() {
    let Some(is_2_0) = mosquitto_is_2_0() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mosquitto.conf");
    let mut wrong = Vec::new();
    for case in cases(CONF) {
        let ending = if case.is_at_the_end {
            "listener 0 /nonexistent/socket"
        } else {
            BEHIND_ALL
        };
        let text = [case.text.as_slice(), ending.as_bytes(), b"\n"].concat();
        std::fs::write(&path, text).unwrap();
        let said = mosquitto(&path);
        let is_accepted = said.contains(BEHIND_ALL) || said.contains("Opening unix listen socket");
        wrong.extend(judge(&case, is_2_0, is_accepted, &said));
        let names_line = |line: u32| said.contains(&format!("{}:{line}.", path.display()));
        if let (Some((line, _)), false, false) = (case.refused_at, is_accepted, case.is_at_the_end)
            && !names_line(line)
        {
            wrong.push(format!("{}: another line: {said}", case.title));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn mosquitto_answers_the_same_to_access_control_lists() {
    let Some(is_2_0) = mosquitto_is_2_0() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (conf, acl) = (directory.path().join("conf"), directory.path().join("acl"));
    let settings = format!(
        "user root\nlistener 0 /nonexistent/socket\nacl_file {}\n",
        acl.display()
    );
    std::fs::write(&conf, settings).unwrap();
    let mut wrong = Vec::new();
    for case in cases(ACL) {
        let text = [case.text.as_slice(), BEHIND_ALL.as_bytes(), b"\n"].concat();
        std::fs::write(&acl, text).unwrap();
        let said = mosquitto(&conf);
        assert!(said.contains("acl_file"), "{}: {said}", case.title);
        wrong.extend(judge(&case, is_2_0, said.contains(BEHIND_ALL), &said));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The case, if Mosquitto's answer is not the expected one.
fn judge(case: &Case, is_2_0: bool, is_accepted: bool, said: &str) -> Option<String> {
    let expected = if is_2_0 {
        case.accepted_by_2_0
    } else {
        case.refused_at.is_none()
    };
    (is_accepted != expected).then(|| format!("{}: {said}", case.title))
}

/// What Mosquitto writes about a configuration that it cannot start with.
fn mosquitto(conf: &Path) -> String {
    let mut command = program();
    let output = command.arg("-v").arg("-c").arg(conf).output().unwrap();
    assert!(!output.status.success(), "it must not have started");
    let said = [output.stderr, output.stdout].concat();
    String::from_utf8_lossy(&said).into_owned()
}

/// Whether the Mosquitto of this machine is of 2.0; `None` without one.
fn mosquitto_is_2_0() -> Option<bool> {
    match program().arg("-h").output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            Some(said.contains("version 2.0."))
        }
        Err(error) => {
            let is_required =
                std::env::var("UNBROKEN_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
            assert!(!is_required, "mosquitto: {error}");
            let _ = writeln!(io::stdout(), "\n1 test (1 skipped)");
            let _ = writeln!(io::stderr(), "skipped: mosquitto is not installed");
            None
        }
    }
}

/// Debian installs it where only root looks.
fn program() -> Command {
    let debian = "/usr/sbin/mosquitto";
    Command::new(if Path::new(debian).exists() {
        debian
    } else {
        "mosquitto"
    })
}
