//! The lexer: state functions that hand tokens to a channel.
//!
//! A state is a function: it looks at the text, emits at most one token, and returns the next
//! state. There is no table and no `match` over states; where the lexer is, is which function runs
//! next. Two drivers run the same functions:
//!
//! ```text
//! Iterator for Lexer   runs until one token is there           the pull lexer
//! send, send_blocking  gathers tokens into batches and sends   the lexer with a channel
//! ```
//!
//! Invariants: tokens come in the order of the text and do not overlap; a token is never empty but
//! for [`Kind::End`]; every line with a token ends with `End`. No input is a fault here: the reader
//! judges words.
//!
//! Deliberately absent: the meaning of words, and comments, which produce no token.

mod channel;
mod users;
mod words;

pub use channel::{Batch, each_batch, send, send_blocking};
pub(crate) use channel::{Line, each_line};

/// What a token is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The first word of a line; in a password file what is before the colon.
    Key,
    /// A further word; in a password file what is behind the colon.
    Word,
    /// The colon of a password file.
    Colon,
    /// The end of a line that has tokens; without bytes.
    #[default]
    End,
}

/// A part of the text, by its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Its line, from 1.
    pub line: u32,
    /// The offset of its first byte.
    pub start: u32,
    /// The offset behind its last byte.
    pub end: u32,
}

impl Token {
    /// Its bytes; `text` is the one that the lexer read.
    pub fn of<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        text.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }
}

/// Where a lexer is: the function that reads on.
#[derive(Clone, Copy)]
struct State(fn(&mut Lexer<'_>) -> Self);

/// Which blanks at the end of a line do not count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trim {
    /// Carriage returns only.
    Returns,
    /// Everything that C calls a space.
    Spaces,
}

/// Reads a text as tokens. As an iterator it is the pull lexer.
#[derive(Clone)]
pub struct Lexer<'t> {
    text: &'t [u8],
    trim: Trim,
    state: State,
    has_ended: bool,
    emitted: Option<Token>,
    /// Where reading goes on; at most `content_end` within a line.
    position: usize,
    /// Where the line ends, without the blanks at its end.
    content_end: usize,
    /// Where the next line starts.
    next_line: usize,
    line: u32,
}

impl<'t> Lexer<'t> {
    /// For `mosquitto.conf`: words between spaces. Of a text beyond 4 GiB only that much is read.
    pub fn conf(text: &'t [u8]) -> Self {
        Self::new(text, Trim::Returns, State(words::line))
    }

    /// For an ACL file: as a configuration, but blanks of all kinds at the end do not count.
    pub fn acl(text: &'t [u8]) -> Self {
        Self::new(text, Trim::Spaces, State(words::line))
    }

    /// For a password file: what is before the first colon of a line, and what is behind it; blanks
    /// at the end of a line do not count.
    pub fn users(text: &'t [u8]) -> Self {
        Self::new(text, Trim::Spaces, State(users::line))
    }

    fn new(text: &'t [u8], trim: Trim, first: State) -> Self {
        Self {
            text: &text[..text.len().min(u32::MAX as usize)],
            trim,
            state: first,
            has_ended: false,
            emitted: None,
            position: 0,
            content_end: 0,
            next_line: 0,
            line: 0,
        }
    }

    /// What of the line is left.
    fn rest(&self) -> &'t [u8] {
        &self.text[self.position..self.content_end]
    }

    /// Steps into the next line; `false` behind the last.
    fn begin_line(&mut self) -> bool {
        self.position = self.next_line;
        let left = &self.text[self.position..];
        if left.is_empty() {
            self.has_ended = true;
            return false;
        }
        let (length, next) = match memchr::memchr(b'\n', left) {
            Some(newline) => (newline, newline + 1),
            None => (left.len(), left.len()),
        };
        self.content_end = self.position + self.trim.length(&left[..length]);
        self.next_line = self.position + next;
        self.line += 1;
        true
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.position += rest.iter().take_while(|&&byte| byte == b' ').count();
    }

    /// Emits the next `length` bytes of the line.
    fn emit(&mut self, kind: Kind, length: usize) {
        let start = self.position;
        self.position += length;
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.emitted = Some(Token {
            kind,
            line: self.line,
            start: offset(start),
            end: offset(self.position),
        });
    }
}

impl Trim {
    /// The length of a line without the blanks at its end.
    fn length(self, line: &[u8]) -> usize {
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r');
        let is_return = |byte: &&u8| **byte == b'\r';
        let from_end = line.iter().rev();
        line.len()
            - match self {
                Self::Returns => from_end.take_while(is_return).count(),
                Self::Spaces => from_end.take_while(is_space).count(),
            }
    }
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        while !self.has_ended && self.emitted.is_none() {
            let State(run) = self.state;
            self.state = run(self);
        }
        self.emitted.take()
    }
}

impl std::fmt::Debug for Lexer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lexer")
            .field("line", &self.line)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lexer: Lexer<'_>, expect: &[&str]) {
        let text = lexer.text;
        let shown: Vec<_> = lexer
            .map(|token| {
                let kind = match token.kind {
                    Kind::Key => "key",
                    Kind::Word => "word",
                    Kind::Colon => "colon",
                    Kind::End => "end",
                };
                let bytes = String::from_utf8_lossy(token.of(text)).into_owned();
                format!("{}{kind} {bytes}", token.line)
                    .trim_end_matches(' ')
                    .to_owned()
            })
            .collect();
        assert_eq!(shown, expect);
    }

    #[test]
    fn lines_are_a_key_and_words() {
        let text = b"# nothing\n\nlistener  1883 ::1 \r\n user a\tb\n\rlistener 1\nlast";
        check(
            Lexer::conf(text),
            &[
                "3key listener",
                "3word 1883",
                "3word ::1",
                "3end",
                "4key user",
                "4word a\tb",
                "4end",
                "6key last",
                "6end",
            ],
        );
        check(Lexer::conf(b""), &[]);
        check(Lexer::conf(b"  \n"), &[]);
        check(Lexer::conf(b"\t\n"), &["1key \t", "1end"]);
    }

    #[test]
    fn blanks_at_the_end_of_a_line_of_an_acl_file_do_not_count() {
        check(
            Lexer::acl(b"user  a b \t\r\n \t \ntopic\tx\t\n"),
            &[
                "1key user",
                "1word a",
                "1word b",
                "1end",
                "3key topic\tx",
                "3end",
            ],
        );
    }

    #[test]
    fn a_password_line_is_split_at_its_first_colon() {
        check(
            Lexer::users(b"# c\n\na:b:c\r\n:x\na:\nplain\r\r\n"),
            &[
                "3key a",
                "3colon :",
                "3word b:c",
                "3end",
                "4colon :",
                "4word x",
                "4end",
                "5key a",
                "5colon :",
                "5end",
                "6key plain",
                "6end",
            ],
        );
    }
}
