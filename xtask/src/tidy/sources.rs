//! Rules about Rust sources.

use super::{File, lines, rust};

const COLUMNS: usize = 100;

/// Comments alone: the formatter sees to the code, and leaves texts in quotes as they are.
pub(super) fn long_comments(files: &[File]) -> Vec<String> {
    lines(rust(files), |line| {
        let columns = line.chars().count();
        let comment = line.trim_start().starts_with("//");
        (comment && columns > COLUMNS).then(|| format!("{columns} columns"))
    })
}

/// Marks of unfinished work. They are put together here, so that this file does not break the rule.
const LEFTOVERS: [&str; 5] = [
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!("),
    concat!("db", "g!("),
    concat!("unimplemen", "ted!("),
];

pub(super) fn leftovers(files: &[File]) -> Vec<String> {
    lines(rust(files), |line| {
        let found = LEFTOVERS.iter().find(|mark| contains_word(line, mark))?;
        Some(format!("{found} is left over"))
    })
}

/// Whether the text contains this where no longer word does.
fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
        let ends_open = word.ends_with('(');
        !text[..at].ends_with(part_of_name)
            && (ends_open || !text[at + word.len()..].starts_with(part_of_name))
    })
}

pub(super) fn ignored_without_reason(files: &[File]) -> Vec<String> {
    lines(rust(files), |line| {
        (line.trim() == concat!("#[ig", "nore]")).then(|| "say why: = \"…\"".to_owned())
    })
}

/// A helper lives with its only user; a module that says nothing about its content attracts
/// anything.
pub(super) fn catch_alls(files: &[File]) -> Vec<String> {
    const NAMES: [&str; 5] = ["utils", "util", "common", "helpers", "misc"];
    rust(files)
        .filter_map(|file| {
            let parts = file.path.trim_end_matches(".rs").split('/');
            let name = parts.into_iter().find(|part| NAMES.contains(part))?;
            Some(format!("{}: {name} is no subject", file.path))
        })
        .collect()
}

/// Sources begin with a header that says what they are. A module's own tests need none.
pub(super) fn headless(files: &[File]) -> Vec<String> {
    rust(files)
        .filter(|file| !file.path.ends_with("/tests.rs"))
        .filter(|file| !file.text.starts_with("//! ") && !file.text.starts_with("#!"))
        .map(|file| format!("{} does not begin with a `//!` header", file.path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check;

    fn source(text: &str) -> File {
        File::new("crates/broker/src/a.rs", text)
    }

    #[test]
    fn a_comment_of_101_columns_is_found() {
        check(
            long_comments,
            source(&format!("//{}", "é".repeat(98))),
            source(&format!("//{}", "é".repeat(99))),
        );
    }

    #[test]
    fn a_mark_of_unfinished_work_is_found() {
        let mark = LEFTOVERS[0];
        check(
            leftovers,
            source(&format!("{mark}S")),
            source(&format!("// {mark}: later")),
        );
        let mark = LEFTOVERS[3];
        check(
            leftovers,
            source(&format!("my_{mark}x)")),
            source(&format!("{mark}x)")),
        );
    }

    #[test]
    fn an_ignored_test_without_a_reason_is_found() {
        let bare = concat!("#[ig", "nore]");
        check(
            ignored_without_reason,
            source("#[ignore = \"takes an hour\"]"),
            source(bare),
        );
    }

    #[test]
    fn a_module_called_common_is_found() {
        let bad = File::new("crates/broker/src/common/mod.rs", "");
        check(catch_alls, source(""), bad);
    }

    #[test]
    fn a_source_without_header_is_found() {
        check(
            headless,
            source("//! What it is.\n"),
            source("use std::io;\n"),
        );
    }
}
