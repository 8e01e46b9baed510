//! Writes the examples of `docs/audit.md` as seeds for the fuzz target `audit`, one file each, into
//! the folder given or `dev/fuzz/corpus/audit`.

#![allow(clippy::print_stdout, reason = "a tool that says what it did")]

use std::{env, fs, io, path::PathBuf};

const DOCUMENT: &str = include_str!("../../../docs/audit.md");

/// Examples by the beginning of their name, with the form that the target reads them as.
const FORMS: [(&str, u8); 11] = [
    ("property-text", 1),
    ("property", 0),
    ("checkpoint", 3),
    ("directory", 4),
    ("drop", 8),
    ("parents", 9),
    ("gaps", 10),
    ("request", 11),
    ("answer", 12),
    ("leaf", 6),
    ("node", 7),
];

fn main() -> io::Result<()> {
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dev/fuzz/corpus/audit");
    let folder = env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from(usual), PathBuf::from);
    fs::create_dir_all(&folder)?;
    let mut seeds = 0;
    for block in DOCUMENT.split("\n```").skip(1) {
        let Some((kind, body)) = block.split_once('\n') else {
            continue;
        };
        let Some((_, name)) = kind.split_once(' ') else {
            continue;
        };
        let Some((_, form)) = FORMS.iter().find(|(begin, _)| name.starts_with(begin)) else {
            continue;
        };
        let text: String = body.split_whitespace().collect();
        // Algorithm 1 is the first.
        let mut seed = vec![*form, 0];
        seed.extend(if kind.starts_with("text") {
            text.into_bytes()
        } else {
            bytes(&text)
        });
        fs::write(folder.join(name), seed)?;
        seeds += 1;
    }
    println!("{seeds} seeds in {}", folder.canonicalize()?.display());
    Ok(())
}

fn bytes(hex: &str) -> Vec<u8> {
    let (pairs, _) = hex.as_bytes().as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0);
    let byte = |pair: &[u8; 2]| u8::try_from(digit(pair[0]) << 4 | digit(pair[1])).unwrap_or(0);
    pairs.iter().map(byte).collect()
}
