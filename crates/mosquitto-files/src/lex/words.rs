//! Lines of words between spaces: `mosquitto.conf` and ACL files.
//!
//! ```text
//! line ──▶ key ──▶ spaces ──▶ word ──▶ spaces … ──▶ end ──▶ line
//!   └─ a comment or an empty line ─▶ line
//! ```
//!
//! A comment begins in the first column, and only a space separates words: Mosquitto takes a tab
//! as a part of a word.

use super::{Kind, Lexer, State, Trim};

pub(super) fn line(lexer: &mut Lexer<'_>) -> State {
    if !lexer.begin_line() {
        return State(line);
    }
    let first = lexer.text[lexer.position..].first();
    let is_skipped = match first {
        Some(b'#') => true,
        Some(b'\r') => lexer.trim == Trim::Returns,
        _ => false,
    };
    State(if is_skipped { line } else { key })
}

fn key(lexer: &mut Lexer<'_>) -> State {
    lexer.skip_spaces();
    match word_length(lexer) {
        0 => State(line),
        length => {
            lexer.emit(Kind::Key, length);
            State(spaces)
        }
    }
}

fn spaces(lexer: &mut Lexer<'_>) -> State {
    lexer.skip_spaces();
    State(if lexer.rest().is_empty() { end } else { word })
}

fn word(lexer: &mut Lexer<'_>) -> State {
    lexer.emit(Kind::Word, word_length(lexer));
    State(spaces)
}

fn end(lexer: &mut Lexer<'_>) -> State {
    lexer.emit(Kind::End, 0);
    State(line)
}

fn word_length(lexer: &Lexer<'_>) -> usize {
    let rest = lexer.rest();
    memchr::memchr(b' ', rest).unwrap_or(rest.len())
}
