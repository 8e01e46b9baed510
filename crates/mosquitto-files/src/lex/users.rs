//! Lines of a password file: `name:hash`.
//!
//! ```text
//! line ──▶ name ──▶ colon ──▶ hash ──▶ end ──▶ line
//! ```
//!
//! A comment begins in the first column. Blanks are parts of names and hashes, but for those at the
//! end of a line. Where a part is missing, so is its token.

use super::{Kind, Lexer, State};

pub(super) fn line(lexer: &mut Lexer<'_>) -> State {
    if !lexer.begin_line() {
        return State(line);
    }
    State(match lexer.rest().first() {
        None | Some(b'#') => line,
        Some(b':') => colon,
        Some(_) => name,
    })
}

fn name(lexer: &mut Lexer<'_>) -> State {
    let rest = lexer.rest();
    let found = memchr::memchr(b':', rest);
    lexer.emit(Kind::Key, found.unwrap_or(rest.len()));
    State(if found.is_some() { colon } else { end })
}

fn colon(lexer: &mut Lexer<'_>) -> State {
    lexer.emit(Kind::Colon, 1);
    State(if lexer.rest().is_empty() { end } else { hash })
}

fn hash(lexer: &mut Lexer<'_>) -> State {
    lexer.emit(Kind::Word, lexer.rest().len());
    State(end)
}

fn end(lexer: &mut Lexer<'_>) -> State {
    lexer.emit(Kind::End, 0);
    State(line)
}
