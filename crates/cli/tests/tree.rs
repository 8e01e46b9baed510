//! `unbroken audit tree` as a user types it, against output of the heritage and published Tiger
//! tree roots.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::Value;
use sha2::Digest as _;

fn tree(directory: &Path, words: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_unbroken"))
        .args(["audit", "tree"])
        .args(words)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // A command that is wrong does not read.
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().unwrap()
    })
}

/// Its standard output, where it ends with this code.
#[track_caller]
fn ends(output: Output, code: i32) -> Vec<u8> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    output.stdout
}

#[track_caller]
fn text(output: Output, code: i32) -> String {
    String::from_utf8(ends(output, code)).unwrap()
}

#[track_caller]
fn fails(output: Output, code: i32, why: &str) {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.contains(why), "{errors}");
}

fn vectors(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../merkle-log/testdata");
    serde_json::from_str(&fs::read_to_string(path.join(name)).unwrap()).unwrap()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").unwrap();
        digits
    })
}

fn bytes(digits: &Value) -> Vec<u8> {
    let digits = digits.as_str().unwrap().as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

#[test]
fn a_heritage_tree_is_built_of_texts_byte_for_byte() {
    let directory = tempfile::tempdir().unwrap();
    let run = |words: &[&str], input: &[u8]| tree(directory.path(), words, input);
    let mut checked = 0;
    for vector in list(&vectors("quux00-merkle.json"), "vectors") {
        let (Some(leaves), Some(expect)) = (
            vector["leaves"].as_array(),
            vector["serialized_hex"].as_str(),
        ) else {
            continue;
        };
        let lines = leaves.iter().fold(String::new(), |lines, leaf| {
            lines + leaf.as_str().unwrap() + "\n"
        });
        let built = ends(run(&["build"], lines.as_bytes()), 0);
        assert_eq!(hexadecimal(&built), expect, "{}", vector["name"]);
        let shown = text(run(&["show", "--json"], &built), 0);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["format"], "heritage");
        assert_eq!(shown["leaves"], vector["n_leaves"]);
        assert_eq!(shown["height"], vector["height"]);
        assert_eq!(shown["bytes"], vector["serialized_len"]);
        assert_eq!(shown["root"], vector["root_sig_hex"]);
        assert_eq!(shown["first_leaves"][0]["text"], leaves[0]);
        let read_again = text(run(&["convert", "--to", "text"], &built), 0);
        assert_eq!(read_again, lines);
        checked += 1;
    }
    assert!(checked >= 11, "{checked}");
}

#[test]
fn lines_are_hashed_for_a_heritage_tree_as_its_users_do() {
    let directory = tempfile::tempdir().unwrap();
    let run = |words: &[&str], input: &[u8]| tree(directory.path(), words, input);
    let mut checked = 0;
    for vector in list(&vectors("quux00-merkle.json"), "vectors") {
        let from = vector["leaves_from"].as_str().unwrap_or_default();
        let Some(count) = vector["n_leaves"]
            .as_u64()
            .filter(|_| from.starts_with("event-0"))
        else {
            continue;
        };
        let lines: Vec<_> = (0..count).map(|i| format!("event-{i}\n")).collect();
        let lines = lines.concat();
        let root = text(run(&["build", "--lines", "--root"], lines.as_bytes()), 0);
        assert_eq!(root.trim(), vector["root_sig_hex"], "{}", vector["name"]);
        let built = ends(run(&["build", "--lines", "-"], lines.as_bytes()), 0);
        assert_eq!(Some(built.len() as u64), vector["serialized_len"].as_u64());
        let sha256 = hexadecimal(&sha2::Sha256::digest(&built));
        assert_eq!(vector["serialized_sha256"], sha256);
        if let Some(expect) = vector["serialized_hex"].as_str() {
            assert_eq!(hexadecimal(&built), expect, "{}", vector["name"]);
        }
        checked += 1;
    }
    assert!(checked >= 8, "{checked}");
}

#[test]
fn a_damaged_heritage_tree_is_refused_with_the_file_and_the_byte() {
    let directory = tempfile::tempdir().unwrap();
    let run = |words: &[&str], input: &[u8]| tree(directory.path(), words, input);
    let good = bytes(&vectors("quux00-merkle.json")["bad_input_base_hex"]);
    let damaged = |at: usize, byte: u8, why: &str| {
        let mut bad = good.clone();
        bad[at] ^= byte;
        fs::write(directory.path().join("bad.tree"), &bad).unwrap();
        fails(run(&["show", "bad.tree"], b""), 65, why);
    };
    let signature = "bad.tree: this heritage tree is damaged: the signature of the node at byte 8 ";
    damaged(20, 1, signature);
    damaged(
        7,
        15,
        "bytes 4 to 7: no tree of 2 to 16777216 leaves has 8 nodes",
    );
    damaged(0, 1, "bad.tree: this is no heritage tree");
    let cut = run(&["show"], &good[..good.len() - 1]);
    fails(
        cut,
        65,
        "standard input: this heritage tree is damaged: the input ends within what begins at byte 182",
    );
}

#[test]
fn tiger_trees_have_the_published_roots() {
    let directory = tempfile::tempdir().unwrap();
    let run = |words: &[&str], input: &[u8]| tree(directory.path(), words, input);
    for vector in list(&vectors("thex-tth.json"), "tth") {
        let input = tiger_input(vector["input"].as_str().unwrap());
        let built = ends(run(&["build", "--format", "thex"], &input), 0);
        if let Some(levels) = vector["levels_top_down_hex"].as_array() {
            let levels = levels.iter().map(|level| level.as_str().unwrap());
            assert_eq!(hexadecimal(&built), levels.collect::<String>());
        }
        let shown = text(run(&["show", "--json"], &built), 0);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["format"], "THEX");
        assert_eq!(shown["leaves"], vector["leaves"]);
        assert_eq!(shown["root"], vector["root_base32"]);
        for words in [
            &["build", "--format", "thex", "--root"][..],
            &["build", "--format", "thex", "--root", "--block", "1024"],
        ] {
            let root = text(run(words, &input), 0);
            assert_eq!(root.trim(), vector["root_base32"]);
        }
        if vector["leaves"] == 1 {
            let refused = run(&["convert", "--to", "heritage"], &built);
            fails(refused, 65, "1 leaves; a heritage tree has 2");
            continue;
        }
        // There and back it is the same.
        let heritage = ends(run(&["convert", "--to", "heritage"], &built), 0);
        assert_eq!(heritage[..4], [0xcd, 0xaa, 0xce, 0x99]);
        assert_eq!(ends(run(&["convert", "--to", "thex"], &heritage), 0), built);
        let lines = ends(run(&["convert", "--to", "text"], &built), 0);
        let again = ends(run(&["build", "--texts", "--format", "thex"], &lines), 0);
        assert_eq!(again, built);
    }
}

/// What the description of a vector stands for.
fn tiger_input(description: &str) -> Vec<u8> {
    if let Some((count, byte)) = description.split_once(" x ") {
        let byte = match byte {
            "00" => 0,
            quoted => quoted.as_bytes()[1],
        };
        return vec![byte; count.parse().unwrap()];
    }
    if let Some((count, _)) = description.split_once(" bytes, byte i = i mod 251") {
        return (0_u8..251).cycle().take(count.parse().unwrap()).collect();
    }
    match description {
        "empty" => Vec::new(),
        "one zero byte" => vec![0],
        text => text.trim_matches('\'').as_bytes().to_vec(),
    }
}

#[test]
fn the_first_difference_of_two_ends_is_named_with_both_signatures() {
    let directory = tempfile::tempdir().unwrap();
    let run = |words: &[&str], input: &[u8]| tree(directory.path(), words, input);
    let sent: Vec<String> = (0..1000).map(|i| format!("event-{i}\n")).collect();
    let mut lost = sent.clone();
    lost.remove(41);
    for format in ["heritage", "thex"] {
        let build = ["build", "--lines", "--format", format, "-o"];
        for (name, lines) in [
            ("sent", &sent[..]),
            ("lost", &lost),
            ("short", &sent[..999]),
        ] {
            let words = [&build[..], &[name]].concat();
            ends(run(&words, lines.concat().as_bytes()), 0);
        }
        let same = text(run(&["compare", "sent", "sent"], b""), 0);
        assert!(same.starts_with("the same 1000 leaves"), "{same}");
        let leaves = text(run(&["convert", "sent", "--to", "text"], b""), 0);
        let leaf = |index| leaves.lines().nth(index).unwrap();
        let differs = text(run(&["compare", "sent", "lost"], b""), 1);
        let expect = format!(
            "leaf 41 is the first that differs\n  sent, 1000 leaves: {}\n  lost, 999 leaves: {}\n",
            leaf(41),
            leaf(42)
        );
        assert_eq!(differs, expect);
        let more = text(run(&["compare", "--json", "short", "sent"], b""), 1);
        let more: Value = serde_json::from_str(&more).unwrap();
        assert_eq!(more["same"], false);
        assert_eq!(more["first_difference"], 999);
        assert_eq!(more["trees"][0]["leaf"], Value::Null);
        assert_eq!(more["trees"][1]["leaf"]["text"], leaf(999));
        let built = fs::read(directory.path().join("sent")).unwrap();
        let more = text(run(&["compare", "-", "short"], &built), 1);
        let expect =
            "leaf 999 is the first that only standard input has; short is the beginning of it";
        assert!(more.starts_with(expect), "{more}");
    }
}

#[test]
fn a_difference_that_the_roots_do_not_show_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let run = |words: &[&str], input: &[u8]| tree(directory.path(), words, input);
    ends(run(&["build", "-o", "a"], b"ad\nbc\n"), 0);
    ends(run(&["build", "-o", "b"], b"bc\nad\n"), 0);
    let differs = text(run(&["compare", "a", "b"], b""), 1);
    assert!(
        differs.starts_with("leaf 0 is the first that differs"),
        "{differs}"
    );
    assert!(
        differs.contains("The roots are equal all the same"),
        "{differs}"
    );
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let run = |words: &[&str], input: &[u8]| tree(directory.path(), words, input);
    fails(run(&["show", "absent"], b""), 66, "cannot read absent");
    fails(
        run(&["compare", "-", "-"], b""),
        2,
        "standard input can be one of the trees",
    );
    fails(run(&["build", "--block", "0"], b""), 2, "--block");
    fails(
        run(&["build", "--lines", "--block", "9"], b""),
        2,
        "cannot be used with",
    );
    fails(
        run(&["build"], b"one\n"),
        65,
        "standard input: 1 leaves; a heritage tree has 2",
    );
    let absent = run(&["build", "-o", "absent/tree"], b"one\ntwo\n");
    fails(absent, 73, "cannot write absent/tree");
    let digest = run(&["build", "--texts", "--format", "thex"], b"one\n");
    fails(
        digest,
        65,
        "line 1, at byte 0: a Tiger tree root has 39 characters",
    );
    ends(run(&["build", "-o", "h"], b"one\ntwo\n"), 0);
    ends(
        run(&["build", "--format", "thex", "-o", "t"], b"one\ntwo\n"),
        0,
    );
    fails(
        run(&["compare", "h", "t"], b""),
        2,
        "h is a heritage tree and t a THEX tree",
    );
    fails(
        run(&["convert", "--to", "thex", "h"], b""),
        65,
        "h: leaf 0: a Tiger tree root has 39",
    );
    fails(
        run(&["show"], &[0; 25]),
        65,
        "25 bytes; a THEX tree is digests of 24 bytes each",
    );
    fails(
        run(&["show"], &[0; 72]),
        65,
        "the digest at byte 0 is not that of its children",
    );
}
