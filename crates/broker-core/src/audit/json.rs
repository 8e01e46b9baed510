//! The little JSON that verdicts are written in: one object to a message, keys in a fixed order.

use std::fmt::{Display, Write as _};

/// An object under construction.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    pub(crate) fn text(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        quote(&mut self.0, value);
        self
    }

    /// The member is left out where there is no value.
    pub(crate) fn text_if(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    pub(crate) fn number(self, key: &str, value: impl Into<u64>) -> Self {
        self.raw(key, value.into())
    }

    pub(crate) fn flag(self, key: &str, value: bool) -> Self {
        self.raw(key, value)
    }

    /// A value that is JSON already.
    pub(crate) fn raw(mut self, key: &str, value: impl Display) -> Self {
        self.key(key);
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{value}");
        self
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn key(&mut self, key: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        quote(&mut self.0, key);
        self.0.push(':');
    }
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_a_client_chose_stays_in_its_quotes() {
        let object = Object::new()
            .text("client", "a\"b\\c\nd")
            .number("n", 7_u64);
        assert_eq!(object.end(), r#"{"client":"a\"b\\c\u000ad","n":7}"#);
    }
}
