//! Any bytes: no panic, and places within the file; lines made of likely pieces reach further.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;

use proptest::collection::vec;
use proptest::prelude::*;
use unbroken_mosquitto_files::acl::Acl;
use unbroken_mosquitto_files::conf::{Conf, Directories, options};
use unbroken_mosquitto_files::lex::{Kind, Lexer, Token};
use unbroken_mosquitto_files::{Mistakes, Place};

/// One directory with one file, which is the including file itself.
struct Itself(Vec<u8>);

impl Directories for Itself {
    fn list(&mut self, _: &str) -> io::Result<Vec<String>> {
        Ok(vec!["again.conf".to_owned(), "other".to_owned()])
    }

    fn read(&mut self, _: &str, _: &str) -> io::Result<Vec<u8>> {
        Ok(self.0.clone())
    }
}

/// Pieces that lines are made of.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &[&str] = &[
        " ", "  ", "\n", "\r\n", "\t", "#", "\"", "\"\"", ":", "user", "topic", "pattern", "read",
        "deny", "%u", "%c", "+", "/", "true", "0", "1883", "-1", "0x10", "14d", "a", "ä", "\0",
    ];
    prop_oneof![
        4 => proptest::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        3 => (0..options().len()).prop_map(|index| format!("\n{} ", options()[index].name).into()),
        1 => vec(any::<u8>(), 0..4),
    ]
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(piece(), 0..60).prop_map(|pieces| pieces.concat())
}

fn check_places(text: &[u8], mistakes: &Mistakes) {
    let lines = text.split(|byte| *byte == b'\n').count();
    for mistake in mistakes.listed() {
        let Place { line, column, .. } = mistake.place;
        assert!((1..=lines).contains(&(line as usize)), "{mistake}");
        let line = text
            .split(|byte| *byte == b'\n')
            .nth(line as usize - 1)
            .unwrap();
        assert!(
            (1..=line.len() + 1).contains(&(column as usize)),
            "{mistake}"
        );
        assert!(!mistake.expected.is_empty(), "{mistake}");
    }
}

/// Lines in words, read in the plainest way.
fn plain(text: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut lines = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        if line.first().is_some_and(|first| b"#\r".contains(first)) {
            continue;
        }
        let returns = line.iter().rev().take_while(|byte| **byte == b'\r').count();
        let words = line[..line.len() - returns].split(|byte| *byte == b' ');
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        if !words.is_empty() {
            lines.push(words);
        }
    }
    lines
}

proptest! {
    #[test]
    fn tokens_are_the_words_of_the_lines(text in text()) {
        let mut lines = vec![Vec::new()];
        let mut end_of_last = 0;
        for token in Lexer::conf(&text) {
            let Token { kind, line, start, end } = token;
            assert!(end_of_last <= start && start <= end);
            assert_eq!(kind == Kind::End, start == end);
            let newlines = text[..start as usize].iter().filter(|byte| **byte == b'\n');
            assert_eq!(line as usize, newlines.count() + 1);
            end_of_last = end;
            match kind {
                Kind::End => lines.push(Vec::new()),
                _ => lines.last_mut().unwrap().push(token.of(&text)),
            }
        }
        assert_eq!(lines.pop(), Some(Vec::new()));
        assert_eq!(lines, plain(&text));
    }

    #[test]
    fn whatever_is_read_has_an_answer(text in text()) {
        if let Err(mistakes) = Acl::parse("acl", &text) {
            check_places(&text, &mistakes);
        }
        if let Err(mistakes) = Conf::parse("conf", &text, &mut Itself(text.clone())) {
            check_places(&text, &mistakes);
        }
        assert!(Lexer::users(&text).count() <= 4 * text.len());
    }
}
