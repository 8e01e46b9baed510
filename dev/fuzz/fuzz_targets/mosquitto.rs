//! Any bytes as a `mosquitto.conf`, an ACL file or a password file.
//!
//! Input: one byte for the kind of file, then its text. What a configuration includes is itself.

#![no_main]

use std::io;

use libfuzzer_sys::fuzz_target;
use unbroken_mosquitto_files::acl::Acl;
use unbroken_mosquitto_files::conf::{Conf, Directories};
use unbroken_mosquitto_files::lex::{Lexer, Token, each_batch};
use unbroken_mosquitto_files::{Mistakes, users};

fuzz_target!(|input: &[u8]| {
    let Some((kind, text)) = input.split_first() else {
        return;
    };
    match kind % 3 {
        0 => check_places(text, Conf::parse("conf", text, &mut Itself(text)).err()),
        1 => check_places(text, Acl::parse("acl", text).err()),
        _ => {
            let text = String::from_utf8_lossy(text);
            check_places(text.as_bytes(), users::users("users", &text).err());
        }
    }
    for lexer in [Lexer::conf(text), Lexer::acl(text), Lexer::users(text)] {
        check_tokens(text, lexer);
    }
});

struct Itself<'t>(&'t [u8]);

impl Directories for Itself<'_> {
    fn list(&mut self, _: &str) -> io::Result<Vec<String>> {
        Ok(vec!["again.conf".to_owned()])
    }

    fn read(&mut self, _: &str, _: &str) -> io::Result<Vec<u8>> {
        Ok(self.0.to_owned())
    }
}

/// Every mistake is within the file.
fn check_places(text: &[u8], mistakes: Option<Mistakes>) {
    let lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
    for mistake in mistakes.iter().flat_map(Mistakes::listed) {
        let line = lines[mistake.place.line as usize - 1];
        assert!((1..=line.len() + 1).contains(&(mistake.place.column as usize)), "{mistake}");
    }
}

/// What crosses the channel is what is pulled, in order and without overlap.
fn check_tokens(text: &[u8], lexer: Lexer<'_>) {
    let pulled: Vec<_> = lexer.clone().collect();
    let mut sent: Vec<Token> = Vec::new();
    each_batch(lexer, |tokens| sent.extend_from_slice(tokens));
    assert_eq!(sent, pulled);
    assert!(pulled.is_sorted_by(|one, other| one.end <= other.start));
    assert!(pulled.iter().all(|token| token.end as usize <= text.len()));
}
