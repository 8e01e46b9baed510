//! Where something is wrong, what was expected there, and what was found.

use std::fmt;
use std::sync::Arc;

use crate::bounds::{FILE_BYTES_MAX, FOUND_CHARS_MAX, MISTAKES_MAX};
use crate::lex::Token;

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's name, as the caller gave it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: expected {expected}, found {found}")]
pub struct Mistake {
    /// Where it is.
    pub place: Place,
    /// What would be right there.
    pub expected: String,
    /// What is there instead: a shortened word in backquotes, or a description.
    pub found: String,
}

/// A hint about a line that is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Which line.
    pub place: Place,
    /// The hint.
    pub text: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// The mistakes of one file and of those that it includes; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    listed: Vec<Mistake>,
    unlisted: usize,
}

impl Mistakes {
    /// The first of them, in the order of the lines.
    pub fn listed(&self) -> &[Mistake] {
        &self.listed
    }

    /// How many more there are.
    pub fn unlisted(&self) -> usize {
        self.unlisted
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.listed.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{mistake}")?;
        }
        match self.unlisted {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Mistakes {}

/// Gathers mistakes and remarks while files are read.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    listed: Vec<Mistake>,
    unlisted: usize,
    remarks: Vec<Remark>,
}

impl Findings {
    pub(crate) fn mistake(&mut self, mistake: Mistake) {
        if self.listed.len() < MISTAKES_MAX {
            self.listed.push(mistake);
        } else {
            self.unlisted += 1;
        }
    }

    pub(crate) fn has_mistakes(&self) -> bool {
        !self.listed.is_empty()
    }

    pub(crate) fn remark(&mut self, remark: Remark) {
        self.remarks.push(remark);
    }

    /// The remarks, if there is no mistake.
    pub(crate) fn finish(self) -> Result<Vec<Remark>, Mistakes> {
        if self.listed.is_empty() {
            return Ok(self.remarks);
        }
        Err(Mistakes {
            listed: self.listed,
            unlisted: self.unlisted,
        })
    }
}

/// A file that is being read: its name and its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Source<'t> {
    pub(crate) name: Arc<str>,
    pub(crate) text: &'t [u8],
}

impl<'t> Source<'t> {
    pub(crate) fn new(name: &str, text: &'t [u8]) -> Self {
        Self {
            name: name.into(),
            text,
        }
    }

    /// Why no line of the file is read, if none is.
    pub(crate) fn unreadable(&self) -> Option<Mistake> {
        let wrong = |offset: usize, line: usize, expected: String, found: &str| Mistake {
            place: self.place(u32::try_from(line).unwrap_or(u32::MAX), offset),
            expected,
            found: found.to_owned(),
        };
        if self.text.len() > FILE_BYTES_MAX {
            let expected = format!("a file of at most {FILE_BYTES_MAX} bytes");
            return Some(wrong(0, 1, expected, "more"));
        }
        let nul = memchr::memchr(0, self.text)?;
        let line = memchr::memchr_iter(b'\n', &self.text[..nul]).count() + 1;
        let expected = "a text without NUL bytes".to_owned();
        Some(wrong(nul, line, expected, "a NUL byte"))
    }

    /// These words with what is between them, without blanks of any kind at the ends.
    pub(crate) fn joined(&self, words: &[Token]) -> Option<Token> {
        let (first, last) = (words.first()?, words.last()?);
        let mut whole = Token {
            end: last.end,
            ..*first
        };
        let bytes = whole.of(self.text);
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r');
        let count = |blanks: usize| u32::try_from(blanks).unwrap_or(u32::MAX);
        let before = count(bytes.iter().take_while(is_blank).count());
        if before as usize == bytes.len() {
            return None;
        }
        whole.start += before;
        whole.end -= count(bytes.iter().rev().take_while(is_blank).count());
        Some(whole)
    }

    /// A token as a string, `what` it is being said if it cannot be one.
    pub(crate) fn utf8(&self, token: Token, what: &str) -> Result<&'t str, Box<Mistake>> {
        std::str::from_utf8(token.of(self.text)).map_err(|error| {
            let expected = format!("{what} in UTF-8");
            Box::new(self.wrong_at(token, error.valid_up_to(), expected))
        })
    }

    /// What is expected instead of a key that a tab has made unknown.
    pub(crate) fn key_with_tab<'a>(
        &self,
        key: Token,
        is_known: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<String> {
        let text = std::str::from_utf8(key.of(self.text)).ok()?;
        let (name, _) = text.split_once('\t')?;
        is_known(name).map(|name| format!("`{name}` with a space behind it"))
    }

    /// The place of an offset in a line.
    pub(crate) fn place(&self, line: u32, offset: usize) -> Place {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
        let is_start_of_char = |byte: &&u8| **byte & 0xc0 != 0x80;
        let chars = before[start..].iter().filter(is_start_of_char).count();
        Place {
            file: Arc::clone(&self.name),
            line,
            column: u32::try_from(chars + 1).unwrap_or(u32::MAX),
        }
    }

    /// A mistake at a token.
    pub(crate) fn wrong(&self, token: Token, expected: impl Into<String>) -> Mistake {
        self.wrong_at(token, 0, expected)
    }

    /// A mistake some bytes behind the start of a token. The whole token is shown.
    pub(crate) fn wrong_at(
        &self,
        token: Token,
        behind: usize,
        expected: impl Into<String>,
    ) -> Mistake {
        Mistake {
            place: self.place(token.line, token.start as usize + behind),
            expected: expected.into(),
            found: shown(token.of(self.text)),
        }
    }

    /// The line ends behind `last`, and something was expected.
    pub(crate) fn ends(&self, last: Token, expected: impl Into<String>) -> Mistake {
        Mistake {
            place: self.place(last.line, last.end as usize),
            expected: expected.into(),
            found: "the end of the line".to_owned(),
        }
    }
}

/// A word in backquotes, shortened, without characters that do not print.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut chars = text.chars();
    let mut out = String::from("`");
    for c in chars.by_ref().take(FOUND_CHARS_MAX) {
        match c {
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    if chars.next().is_some() {
        out.push('…');
    }
    out.push('`');
    out
}
