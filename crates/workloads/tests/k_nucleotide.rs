//! k-nucleotide as a whole: on what `fasta` writes it puts out what an independent count finds, and
//! the commands do what their help says.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use unbroken_workloads::nucleotide::{fasta, pipeline};

fn written(count: u64) -> Vec<u8> {
    let mut text = Vec::new();
    fasta::write(count, &mut text).expect("memory takes everything");
    text
}

/// The game's output by cutting out words as text, without codes, blocks or threads.
fn naive(file: &[u8]) -> String {
    let file = String::from_utf8(file.to_vec()).expect("it is plain text");
    let (_, third) = file.split_once(">THREE").expect("it has three sequences");
    let bases: String = third.lines().skip(1).collect::<String>().to_uppercase();
    let count = |length: usize| {
        let mut counts = BTreeMap::new();
        for start in 0..(bases.len() + 1).saturating_sub(length) {
            *counts.entry(&bases[start..start + length]).or_insert(0_u32) += 1;
        }
        counts
    };
    let mut text = String::new();
    for length in [1, 2] {
        let counts = count(length);
        let all: u32 = counts.values().sum();
        let mut words: Vec<_> = counts.into_iter().collect();
        words.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (word, count) in words {
            let percent = f64::from(count) * 100.0 / f64::from(all);
            writeln!(text, "{word} {percent:.3}").expect("a string takes everything");
        }
        text.push('\n');
    }
    for word in [
        "GGT",
        "GGTA",
        "GGTATT",
        "GGTATTTTAATT",
        "GGTATTTTAATTTATAGT",
    ] {
        let count = count(word.len()).get(word).copied().unwrap_or(0);
        writeln!(text, "{count}\t{word}").expect("a string takes everything");
    }
    text
}

#[test]
fn the_output_is_that_of_a_naive_count_with_any_number_of_threads() {
    for count in [0, 1, 3, 4, 1_000, 20_000] {
        let file = written(count);
        let expect = naive(&file);
        for threads in [1, 2, 3, 7, 20] {
            assert_eq!(pipeline::run(&*file, threads).unwrap(), expect);
        }
    }
}

#[test]
fn the_sample_has_the_form_of_the_game() {
    let text = pipeline::run(&*written(1_000), 2).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4 + 1 + 16 + 1 + 5);
    // As the game publishes them for this file.
    assert_eq!(lines[..4], ["T 31.520", "A 29.600", "C 19.480", "G 19.400"]);
    assert_eq!(lines[5], "AT 9.922");
    assert_eq!(lines[22..25], ["54\tGGT", "24\tGGTA", "4\tGGTATT"]);
    assert!(lines[4].is_empty() && lines[21].is_empty());
    let percents = lines[5..21]
        .iter()
        .map(|line| line.split_once(' ').expect("word, percent").1);
    let sum: f64 = percents
        .map(|percent| percent.parse::<f64>().unwrap())
        .sum();
    assert!((sum - 100.0).abs() < 0.02, "{text}");
}

/// More blocks than the channel has room for, so that reader and workers wait for each other, and
/// blocks shorter than the longest word.
#[test]
fn the_size_of_blocks_makes_no_difference() {
    let file = written(3_000);
    let whole = pipeline::run(&*file, 2).unwrap();
    for block in [0, 1, 100, 1_000] {
        let blocks = pipeline::run_in_blocks(&*file, 2, block).unwrap();
        assert_eq!(blocks, whole);
    }
}

#[test]
fn a_bad_base_after_many_blocks_ends_all_threads_with_an_error() {
    let mut file = written(3_000);
    file.extend(b"acgtx\n");
    let error = pipeline::run_in_blocks(&*file, 3, 60).unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("expected one of ACGT, found 'x'"), "{text}");
}

fn k_nucleotide(arguments: &[&str], directory: &Path, stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_k-nucleotide"));
    command.args(arguments).current_dir(directory);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .expect("the command was built with this test");
    // A command that reads a file closes this.
    let _ = child.stdin.take().expect("it is piped").write_all(stdin);
    child.wait_with_output().expect("the command ends")
}

#[test]
fn the_commands_work_together() {
    let directory = tempfile::tempdir().unwrap();
    let mut fasta = Command::new(env!("CARGO_BIN_EXE_fasta"));
    let file = fasta.arg("2000").output().unwrap().stdout;
    assert_eq!(file, written(2_000));
    std::fs::write(directory.path().join("in.fasta"), &file).unwrap();
    let expect = naive(&file);
    let piped = k_nucleotide(&[], directory.path(), &file);
    let read = k_nucleotide(
        &["--read", "in.fasta", "--threads", "1"],
        directory.path(),
        b"",
    );
    for output in [piped, read] {
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expect);
    }
    let this = env!("CARGO_BIN_EXE_k-nucleotide");
    let peer = ["--read", "in.fasta", "--rounds", "2", "--peer", this];
    let compared = k_nucleotide(&peer, directory.path(), b"");
    let text = String::from_utf8_lossy(&compared.stdout);
    assert!(
        text.contains("\noutput identical; medians: time over peer "),
        "{compared:?}"
    );
}

#[test]
fn the_command_names_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("bad.fasta"), ">THREE\nacgt\nacgn\n").unwrap();
    for (arguments, expect) in [
        (
            &["--read", "bad.fasta"][..],
            "k-nucleotide: bad.fasta: line 3: expected one of ACGT, found 'n'\n",
        ),
        (&["--read", "none"], "k-nucleotide: none: No such file"),
        (
            &[],
            "k-nucleotide: standard input: no line begins with `>THREE`",
        ),
        (
            &["--read", "bad.fasta", "--peer", "true"],
            "k-nucleotide: ", // this program itself fails on the file
        ),
    ] {
        let output = k_nucleotide(arguments, directory.path(), b"acgt\n");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text.starts_with(expect), "{text}");
    }
}
