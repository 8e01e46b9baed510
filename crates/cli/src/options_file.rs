//! `-o FILE` of `pub` and `sub`, as Mosquitto's commands have it from 2.1 on: options in a file.
//!
//! A line is one option and, behind a blank, its value, which may have blanks itself; the words of
//! `-D` are several values. Empty lines and lines that begin with `#` say nothing. The command line
//! comes behind the file, so what it says wins.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// The words of a command line, with those of the file that `-o` names in front of its own.
pub(crate) fn expand(
    cli: clap::Command,
    mut words: Vec<OsString>,
) -> Result<Vec<OsString>, Failure> {
    if !words
        .get(1)
        .is_some_and(|name| name == "pub" || name == "sub")
        || !words.iter().any(begins_like_it)
    {
        return Ok(words);
    }
    // What is missing on the command line may be in the file, so mistakes are not told before both
    // are known.
    let matches = cli.ignore_errors(true).try_get_matches_from(&words).ok();
    let matches = matches.as_ref().and_then(|matches| matches.subcommand());
    let path =
        matches.and_then(|(_, given)| given.try_get_one::<PathBuf>("options_file").ok().flatten());
    if let Some(path) = path {
        words.splice(2..2, read(path)?);
    }
    Ok(words)
}

/// `-o FILE` and `-oFILE`, also behind letters without a value: `-vo`.
fn begins_like_it(word: &OsString) -> bool {
    let bytes = OsStr::as_encoded_bytes(word);
    bytes.starts_with(b"-") && !bytes.starts_with(b"--") && bytes.contains(&b'o')
}

fn read(path: &Path) -> Result<Vec<OsString>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        let what = format_args!("cannot read the options in {}: {error}", path.display());
        // As Mosquitto's commands end then.
        Failure::new(1, what)
    })?;
    Ok(text
        .lines()
        .flat_map(words_of)
        .map(OsString::from)
        .collect())
}

fn words_of(line: &str) -> Vec<&str> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Vec::new();
    }
    match line.split_once([' ', '\t']) {
        Some(("-D" | "--property", _)) => line.split_whitespace().collect(),
        Some((option, value)) => vec![option, value.trim_start()],
        None => vec![line],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_option_and_its_value() {
        for (line, words) in [
            ("-t a/b", &["-t", "a/b"][..]),
            ("-m  two words ", &["-m", "two words"]),
            ("-v", &["-v"]),
            ("", &[]),
            ("  # -v", &[]),
            (
                "-D connect user-property a b",
                &["-D", "connect", "user-property", "a", "b"],
            ),
        ] {
            assert_eq!(words_of(line), words, "{line}");
        }
    }
}
