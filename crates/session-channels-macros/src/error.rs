//! What is wrong with the input, as the user will read it.
//!
//! A text names the user's state or message and ends with what to do. Several problems are reported
//! in one run of the compiler.

use crate::tree::At;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The first and the last token that it is about.
    pub(crate) from: At,
    pub(crate) to: At,
    pub(crate) text: String,
}

impl Problem {
    pub(crate) fn at(at: At, text: impl Into<String>) -> Self {
        Self {
            from: at,
            to: at,
            text: text.into(),
        }
    }
}

/// Names as a list for a sentence: `` `a`, `b` ``.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}
