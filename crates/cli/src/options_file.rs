//! `-o FILE` of `pub` and `sub`, as Mosquitto's commands have it from 2.1 on: options in a file.
//!
//! A line is one option and, behind a blank, its value, which may have blanks itself; the words of
//! `-D` are several values. Empty lines and lines that begin with `#` say nothing. The command line
//! comes behind the file, so what it says wins; of several files the later one wins. A file names
//! no other file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// The words of a command line, with those of the files that `-o` names in front of its own.
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
    let cli = cli.ignore_errors(true);
    let mut added = Vec::new();
    for path in named(&cli, &words) {
        added.extend(read(&cli, &words[..2], &path)?);
    }
    words.splice(2..2, added);
    Ok(words)
}

/// The files that `-o` names in these words. What is missing there may be in a file, so mistakes
/// are reported after both are known.
fn named(cli: &clap::Command, words: &[OsString]) -> Vec<PathBuf> {
    let matches = cli.clone().try_get_matches_from(words).ok();
    let given = matches.as_ref().and_then(|matches| matches.subcommand());
    let paths =
        given.and_then(|(_, given)| given.try_get_many::<PathBuf>("options_file").ok().flatten());
    paths.into_iter().flatten().cloned().collect()
}

/// `-o FILE` and `-oFILE`, also behind letters without a value: `-vo`.
fn begins_like_it(word: &OsString) -> bool {
    let bytes = OsStr::as_encoded_bytes(word);
    bytes.starts_with(b"-") && !bytes.starts_with(b"--") && bytes.contains(&b'o')
}

/// The words of a file, for the command that `begin` names. A file names no other one.
fn read(cli: &clap::Command, begin: &[OsString], path: &Path) -> Result<Vec<OsString>, Failure> {
    // As Mosquitto's commands end then.
    let failure = |what: std::fmt::Arguments<'_>| Failure::new(1, what);
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| failure(format_args!("cannot read the options in {shown}: {error}")))?;
    let mut words = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let added: Vec<OsString> = words_of(line).into_iter().map(OsString::from).collect();
        // The word behind is a value for an `-o` that ends the line.
        let checked = [begin, &added, &["value".into()]].concat();
        if added.first().is_some_and(begins_like_it) && !named(cli, &checked).is_empty() {
            return Err(failure(format_args!(
                "line {number} of the options in {shown} is `{}`: -o works on the command line only; \
                 give -o there for each file",
                line.trim()
            )));
        }
        words.extend(added);
    }
    Ok(words)
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
