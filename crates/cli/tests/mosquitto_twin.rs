//! `unbroken pub` and `sub` beside `mosquitto_pub` and `mosquitto_sub`: the same arguments, against
//! the same broker (ours), must give the same output and the same exit code. Differences that are
//! wanted have their own test.
//!
//! Without Mosquitto's clients the comparisons say so and count as skipped, unless
//! `UNBROKEN_REQUIRE_TOOLS` is 1.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

/// A broker of ours with two listeners: one for everybody, one for the user alice with the password
/// secret.
struct Broker {
    child: Child,
    open: String,
    guarded: String,
    directory: tempfile::TempDir,
}

impl Broker {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let done = unbroken(&["passwd", &path("users"), "alice", "-b", "secret"], "");
        assert!(done.status.success(), "{done:?}");
        let config =
            "[[listeners]]\nport = 0\n[[listeners]]\nport = 0\npassword_file = \"users\"\n";
        std::fs::write(path("broker.toml"), config).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_unbroken"))
            .args([
                "serve",
                "--admin",
                "off",
                "--in-memory",
                "-c",
                &path("broker.toml"),
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut port = || {
            let line = lines.next().unwrap().unwrap();
            let address = line.strip_prefix("listening on ").unwrap();
            let address = address.split(' ').next().unwrap();
            address.rsplit(':').next().unwrap().to_owned()
        };
        let (open, guarded) = (port(), port());
        Self {
            child,
            open,
            guarded,
            directory,
        }
    }

    /// Words of `line`, with OPEN and GUARDED replaced by ports.
    fn words(&self, line: &str) -> Vec<String> {
        let replaced = |word: &str| {
            word.replace("OPEN", &self.open)
                .replace("GUARDED", &self.guarded)
        };
        line.split(' ').map(replaced).collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(command: &mut Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have closed it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn unbroken<T: AsRef<std::ffi::OsStr>>(words: &[T], input: &str) -> Output {
    run(
        Command::new(env!("CARGO_BIN_EXE_unbroken")).args(words),
        input,
    )
}

/// Whether Mosquitto's clients are there; says so if not, and counts as skipped.
fn has_mosquitto() -> bool {
    let there = Command::new("mosquitto_pub").arg("--help").output().is_ok();
    if !there {
        let required = std::env::var("UNBROKEN_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
        assert!(!required, "mosquitto_pub is required and not installed");
        let _ = writeln!(io::stdout(), "\n1 test (1 skipped)");
        let _ = writeln!(io::stderr(), "skipped: mosquitto_pub is not installed");
    }
    there
}

/// Each line is a command without the name of the program in front: `pub …` or `sub …`.
fn check(lines: &[&str], input: &str) {
    if !has_mosquitto() {
        return;
    }
    let broker = Broker::start();
    for line in lines {
        let words = broker.words(line);
        let theirs = run(
            Command::new(format!("mosquitto_{}", words[0])).args(&words[1..]),
            input,
        );
        let ours = unbroken(&words, input);
        let (a, b) = (
            String::from_utf8_lossy(&theirs.stdout),
            String::from_utf8_lossy(&ours.stdout),
        );
        assert_eq!(a, b, "output of {line}");
        assert_eq!(
            theirs.status.code(),
            ours.status.code(),
            "exit code of {line}\n{ours:?}"
        );
        let told = |output: &Output| !output.stderr.is_empty();
        assert_eq!(
            told(&theirs),
            told(&ours),
            "an error message of {line}\n{theirs:?}\n{ours:?}"
        );
    }
}

#[test]
fn messages_are_published_and_printed_alike() {
    check(
        &[
            "pub -p OPEN -t a -m hi -q 1 -r -d",
            "pub -p OPEN -t a -m hi -q 2 -r -d",
            "sub -p OPEN -t a -C 1",
            "sub -p OPEN -t a -C 1 -v",
            "sub -p OPEN -t a -C 1 -v -N",
            "sub -p OPEN -t a -C 1 -V mqttv31",
            "sub -p OPEN -t a -C 1 -V 5 -q 2",
            "pub -p OPEN -t five -r -m x -D publish content-type text/x \
             -D publish user-property k v -D publish user-property l w",
            "sub -p OPEN -t five -V 5 -C 1 -F %t|%p|%x|%l|%q|%r|%C|%P|%10t|%-10t|%.2t|",
            "sub -p OPEN -t five -V 5 -C 1 -F %05l|%-5l|%5S|%05E|",
            "sub -p OPEN -t a -C 1 -F %t|%5C|%E|\\t\\\\|@@|%%|%x|%X",
            "pub -L mqtt://alice:secret@127.0.0.1:GUARDED/x/y -m y -q 1 -d",
            "pub -p OPEN -t x -m y --repeat 3 --repeat-delay 0.01 -d -q 2",
            "pub -p OPEN -t x -m -5 -V 31",
            "pub -p OPEN -t a -n -r",
            "sub -p OPEN -t a -W 1",
        ],
        "",
    );
}

#[test]
fn payloads_are_printed_alike_in_every_width() {
    let formats = [
        "%x", "%.1x", "%.2X", "%.0x", "%.x", "%1x", "%2x", "%3x", "%5x", "%012x", "%12X", "%-12x",
        "%-012x", "%20.3x", "%-x", "%0x", "%p", "%.1p", "%3p", "%10p", "%010p", "%-10p", "%-p",
        "%20.2p", "%.1t", "%5.1t", "%-5.1t", "%05.1t", "%.1l", "%5l", "%05l", "%.1q", "%.3m",
        "%.4C", "%--5t", "%0-5t", "%-05t",
    ];
    let mut lines = vec!["pub -p OPEN -t text -r -m hällo".to_owned()];
    lines.push("pub -p OPEN -t abc -r -m abc".to_owned());
    for format in formats {
        lines.push(format!("sub -p OPEN -t text -C 1 -F {format}|"));
        lines.push(format!("sub -p OPEN -t abc -C 1 -F {format}|"));
    }
    check(&lines.iter().map(String::as_str).collect::<Vec<_>>(), "");
}

#[test]
fn an_empty_payload_is_printed_alike() {
    for flags in ["", "-v", "-v -N", "-F [%p]", "-F [%x]", "-F [%5x]", "-F %l"] {
        let broker = Broker::start();
        let line = format!("sub -p OPEN -t empty -C 1 {flags}");
        let printed = |mosquitto: bool| {
            let words = broker.words(line.trim_end());
            let mut command = if mosquitto {
                let mut command = Command::new("mosquitto_sub");
                command.args(&words[1..]);
                command
            } else {
                let mut command = Command::new(env!("CARGO_BIN_EXE_unbroken"));
                command.args(&words);
                command
            };
            let reader = command.stdout(Stdio::piped()).spawn().unwrap();
            // Until somebody has taken it: 0x10 is No matching subscribers.
            loop {
                let sent = unbroken(&broker.words("pub -p OPEN -t empty -n -q 1 -V 5 -d"), "");
                if !String::from_utf8_lossy(&sent.stdout).contains("RC:16") {
                    break;
                }
            }
            String::from_utf8(reader.wait_with_output().unwrap().stdout).unwrap()
        };
        let ours = printed(false);
        let expected = match flags {
            "" | "-v -N" => "",
            "-v" => "empty (null)\n",
            "-F [%5x]" => "[     ]\n",
            "-F %l" => "0\n",
            _ => "[]\n",
        };
        assert_eq!(ours, expected, "{flags}");
        if Command::new("mosquitto_sub").arg("--help").output().is_ok() {
            assert_eq!(printed(true), ours, "{flags}");
        }
    }
}

/// Mosquitto's have it from 2.1 on.
#[test]
fn options_are_read_from_a_file() {
    let broker = Broker::start();
    let path = |name: &str| broker.directory.path().join(name).display().to_string();
    let (all, port) = (path("all"), &broker.open);
    let text = format!("# of a test\n-p {port}\n\n-t from/file\n-m two  words\n-r\n-q 1\n");
    std::fs::write(&all, text).unwrap();
    let done = unbroken(&["pub", "-o", &all], "");
    assert!(done.status.success(), "{done:?}");
    // What the command line says wins.
    let done = unbroken(&["pub", "-m", "mine", "-t", "from/line", "-o", &all], "");
    assert!(done.status.success(), "{done:?}");
    let reading = path("reading");
    std::fs::write(&reading, format!("-p {port}\n-C 1\n-v\n")).unwrap();
    for (topic, expected) in [("from/file", "two  words"), ("from/line", "mine")] {
        let read = unbroken(&["sub", "-t", topic, "-o", &reading], "");
        assert_eq!(
            String::from_utf8_lossy(&read.stdout),
            format!("{topic} {expected}\n"),
            "{read:?}"
        );
    }
    // `-o` behind a flag that takes it is a value.
    let done = unbroken(
        &[
            "pub", "-p", port, "-t", "letter", "-m", "-o", "-r", "-q", "1",
        ],
        "",
    );
    assert!(done.status.success(), "{done:?}");
    for (words, why) in [
        (&["sub", "-o"][..], "a value is required"),
        (
            &["sub", "-o", "/nowhere/at-all"],
            "cannot read the options in /nowhere/at-all",
        ),
    ] {
        let told = unbroken(words, "");
        assert_eq!(told.status.code(), Some(1), "{told:?}");
        assert!(
            String::from_utf8_lossy(&told.stderr).contains(why),
            "{told:?}"
        );
    }
}

#[test]
fn an_options_file_names_no_other_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (outer, inner) = (path("outer"), path("inner"));
    std::fs::write(&inner, "-t inner\n").unwrap();
    for line in [
        format!("-o {inner}"),
        format!("-o{inner}"),
        format!("-vo {inner}"),
        "-o".to_owned(),
    ] {
        std::fs::write(&outer, format!("-t outer\n{line}\n-W 1\n")).unwrap();
        let refused = unbroken(&["sub", "-p", "1", "-o", &outer], "");
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let expected = format!(
            "Error: line 2 of the options in {outer} is `{line}`: -o works on the command line only; \
             give -o there for each file\n"
        );
        assert_eq!(stderr, expected);
    }
}

#[test]
fn several_options_files_are_read_and_the_later_wins() {
    let broker = Broker::start();
    let path = |name: &str| broker.directory.path().join(name).display().to_string();
    let (one, other) = (path("one"), path("other"));
    std::fs::write(&one, format!("-p {}\n-t one\n-m 1\n", broker.open)).unwrap();
    std::fs::write(&other, "-t other\n-r\n-q 1\n").unwrap();
    let sent = unbroken(&["pub", "-o", &one, "-o", &other], "");
    assert!(sent.status.success(), "{sent:?}");
    let read = unbroken(&["sub", "-p", &broker.open, "-t", "#", "-C", "1", "-v"], "");
    assert_eq!(String::from_utf8_lossy(&read.stdout), "other 1\n");
}

/// Every command takes the same address. Of `localhost` the IPv6 address may come first, where no
/// broker listens.
#[test]
fn a_broker_is_named_by_its_host_and_port() {
    let broker = Broker::start();
    let address = format!("localhost:{}", broker.open);
    let sent = unbroken(&["pub", "-h", &address, "-t", "a", "-m", "m", "-r"], "");
    assert!(sent.status.success(), "{sent:?}");
    let read = unbroken(&["sub", "-h", &address, "-t", "a", "-C", "1"], "");
    assert_eq!(String::from_utf8_lossy(&read.stdout), "m\n", "{read:?}");
    for words in [
        &[
            "bench", "-h", &address, "pairs", "--conns", "2", "--secs", "1",
        ][..],
        &["audit", "status", "-h", &address, "-W", "1"],
        &[
            "demo", "--plain", "--within", "120", "--inject", "l", "--broker", &address,
        ],
    ] {
        let ended = unbroken(words, "");
        // 3: `audit` has reached the broker, and heard nothing that it can judge.
        let expected = if words[0] == "audit" { 3 } else { 0 };
        assert_eq!(ended.status.code(), Some(expected), "{words:?}: {ended:?}");
    }
    let twice = unbroken(&["sub", "-h", &address, "-p", "1", "-t", "a"], "");
    assert_eq!(twice.status.code(), Some(1), "{twice:?}");
    let stderr = String::from_utf8_lossy(&twice.stderr);
    assert!(stderr.contains("leave one of them out"), "{stderr}");
}

#[test]
fn standard_input_is_published_alike() {
    check(
        &[
            "pub -p OPEN -t last -l -q 1 -r",
            "sub -p OPEN -t last -C 1",
            "pub -p OPEN -t whole -s -q 1 -r -d",
            "sub -p OPEN -t whole -C 1",
        ],
        "one\n\nthree",
    );
}

#[test]
fn refusals_and_timeouts_end_alike() {
    check(
        &[
            "pub -p GUARDED -t a -m hi",
            "pub -p GUARDED -t a -m hi -V 5",
            "sub -p GUARDED -t a -V 5 -u alice -P wrong",
            "pub -p 1 -t a -m hi",
            "sub -p 1 -t a --quiet",
            "pub -h nosuchhost.invalid -t a -m hi",
            "sub -p OPEN -t nothing -W 1",
            "sub -p OPEN -t nothing -W 1 --quiet",
            "sub -p OPEN -t nothing -E",
            "sub -p OPEN -t nothing -W 1 --retained-only",
        ],
        "",
    );
}

#[test]
fn mistakes_in_the_arguments_end_alike() {
    check(
        &[
            "pub -p OPEN -t a/# -m hi",
            "pub -p OPEN -t x -m y -q 3",
            "pub -p OPEN -t x -m y --nonsense",
            "pub -p OPEN -t x -m y -f z",
            "pub -p OPEN -t x -f /nowhere",
            "pub -p 99999 -t x -m y",
            "pub -p OPEN -t x -m y -P pw",
            "pub -p OPEN -t x -m y -i id -I pre",
            "pub -p OPEN -t x -n -V 4",
            "pub -p OPEN -t x -m y --will-payload gone",
            "pub -p OPEN -t x -m y -x -1 -V 5",
            "pub -p OPEN -t x -m y -D publish nonsense text",
            "pub -p OPEN -t x -m y -D publish will-delay-interval 3",
            "pub -p OPEN -t x -m y -D publish user-property a",
            "pub -L http://127.0.0.1:OPEN/x/y -m y",
            "sub -p OPEN -t a#",
            "sub -p OPEN -c -t a",
            "sub -p OPEN -t a -F %Z",
            "sub -p OPEN -t a -F a\\q",
            "sub -p OPEN -U y",
            "sub -p OPEN -t a -k 4 -W 1",
            "pub -p OPEN -t a -m x -k 0",
            "pub -p OPEN -t a -s",
            "pub -p OPEN -t a -m x --repeat 0",
            "pub -p OPEN -t a -m x -M 0",
            "sub -p OPEN -t a -C 0",
            "sub -p OPEN -t a -W 0",
            "pub -p OPEN -t a -l",
        ],
        "",
    );
}

#[test]
fn h_without_a_host_names_the_flag_for_help() {
    for (words, code, help) in [
        (&["serve", "-h"][..], 2, "`unbroken serve --help`"),
        (&["check", "-h"], 2, "`unbroken check --help`"),
        (&["-h"], 2, "`unbroken --help`"),
        (&["pub", "-h"], 1, "`unbroken pub --help`"),
        (&["sub", "-h"], 1, "`unbroken sub --help`"),
        (&["bench", "-h"], 2, "`unbroken bench --help`"),
        (&["pipe", "-h"], 2, "`unbroken pipe --help`"),
        (
            &["audit", "watch", "-h"],
            2,
            "`unbroken audit watch --help`",
        ),
        (
            &["audit", "status", "-h"],
            2,
            "`unbroken audit status --help`",
        ),
    ] {
        let told = unbroken(words, "");
        assert_eq!(told.status.code(), Some(code), "{words:?}");
        let told = String::from_utf8_lossy(&told.stderr);
        assert!(
            told.contains("-h is the host") && told.contains(help),
            "{words:?}: {told}"
        );
    }
}

#[test]
fn a_wrong_password_and_a_missing_right_differ_before_version_5() {
    let broker = Broker::start();
    // Mosquitto's broker says 5 for both; the code for a wrong password is 4. [MQTT311-3.2.2-4]
    let ours = unbroken(
        &broker.words("pub -p GUARDED -t a -m hi -u alice -P wrong"),
        "",
    );
    assert_eq!(ours.status.code(), Some(4));
}

/// A DISCONNECT would end `mosquitto_sub -V 5` with exit code 0.
#[test]
fn mosquitto_sub_connects_again_when_the_broker_is_stopped_and_started() {
    if !has_mosquitto() {
        return;
    }
    for version in ["311", "5"] {
        let mut broker = Broker::start();
        let port = broker.open.clone();
        let mut subscriber = Command::new("mosquitto_sub")
            .args(["-V", version, "-p", &port, "-t", "first", "-t", "second"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(subscriber.stdout.take().unwrap()).lines();
        let retained = |topic: &str, text: &str| {
            let words = ["pub", "-p", &port, "-t", topic, "-m", text, "-q", "1", "-r"];
            let done = unbroken(&words, "");
            assert!(done.status.success(), "{done:?}");
        };
        retained("first", "before");
        assert_eq!(lines.next().unwrap().unwrap(), "before", "{version}");
        let pid = nix::unistd::Pid::from_raw(broker.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(broker.child.wait().unwrap().success(), "{version}");
        let mut again = Command::new(env!("CARGO_BIN_EXE_unbroken"))
            .args(["serve", "--admin", "off", "--in-memory", "-p", &port])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut listening = BufReader::new(again.stdout.take().unwrap()).lines();
        assert!(
            listening
                .next()
                .unwrap()
                .unwrap()
                .starts_with("listening on")
        );
        broker.child = again;
        retained("second", "after");
        assert_eq!(lines.next().unwrap().unwrap(), "after", "{version}");
        subscriber.kill().unwrap();
        subscriber.wait().unwrap();
    }
}

#[test]
fn json_keeps_every_byte() {
    let broker = Broker::start();
    let path = broker.directory.path().join("payload");
    std::fs::write(&path, b"\xff\0\n").unwrap();
    let file = path.display().to_string();
    let line = format!("pub -p OPEN -t bytes -r -q 1 -f {file}");
    assert!(unbroken(&broker.words(&line), "").status.success());
    let printed = unbroken(&broker.words("sub -p OPEN -t bytes -C 1 --json"), "");
    let object: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(object["payload_base64"], "/wAK");
    assert_eq!(
        (&object["topic"], &object["payloadlen"]),
        (&"bytes".into(), &3.into())
    );
}
