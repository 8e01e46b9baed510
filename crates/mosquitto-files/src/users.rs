//! Password files: a line `name:hash` for each user.
//!
//! What a hash is worth is not looked at here, and a mistake never shows one.

use crate::lex::{Kind, Lexer, Line, Token, each_line};
use crate::mistake::{Findings, Mistakes, Place, Source};

/// One user.
#[derive(Clone, PartialEq, Eq)]
pub struct User<'t> {
    /// The name, not empty.
    pub name: &'t str,
    /// What stands behind the colon: the hash, or a password that is not hashed yet.
    pub hash: &'t str,
    /// Where the name is.
    pub place: Place,
    /// Where the hash is.
    pub hash_place: Place,
}

impl std::fmt::Debug for User<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Reads a file; `name` is what its places are called by. A name may occur twice.
pub fn users<'t>(name: &str, text: &'t str) -> Result<Vec<User<'t>>, Mistakes> {
    let source = Source::new(name, text.as_bytes());
    let mut findings = Findings::default();
    let mut users = Vec::new();
    match source.unreadable() {
        Some(mistake) => findings.mistake(mistake),
        None => each_line(Lexer::users(source.text), |line| {
            let place = |token: Token| source.place(token.line, token.start as usize);
            match parts(text, line) {
                (Some((key, name)), Some(colon), hash) => users.push(User {
                    name,
                    hash: hash.map_or("", |(_, hash)| hash),
                    place: place(key),
                    hash_place: source.place(colon.line, colon.end as usize),
                }),
                (Some((key, _)), None, _) => {
                    findings.mistake(source.ends(key, "`:` and a hash"));
                }
                (None, Some(colon), _) => {
                    let found = Token {
                        end: colon.start + 1,
                        ..colon
                    };
                    findings.mistake(source.wrong(found, "a user name"));
                }
                (None, None, _) => {}
            }
        }),
    }
    findings.finish()?;
    Ok(users)
}

/// The name and the hash of one line; `None` if it has none, or is no line of a user.
pub fn user_of(line: &str) -> Option<(&str, &str)> {
    let mut name = None;
    let mut hash = None;
    for token in Lexer::users(line.as_bytes()) {
        let text = line.get(token.start as usize..token.end as usize);
        match token.kind {
            Kind::Key => name = text,
            Kind::Colon => hash = Some(""),
            Kind::Word => hash = text,
            Kind::End => break,
        }
    }
    name.zip(hash)
}

type Part<'t> = Option<(Token, &'t str)>;

/// The name, the colon and the hash of a line. They are cut at ASCII characters.
fn parts<'t>(text: &'t str, line: &Line) -> (Part<'t>, Option<Token>, Part<'t>) {
    let find = |kind: Kind| line.tokens.iter().find(|token| token.kind == kind).copied();
    let part = |kind: Kind| {
        let token = find(kind)?;
        Some((token, text.get(token.start as usize..token.end as usize)?))
    };
    (part(Kind::Key), find(Kind::Colon), part(Kind::Word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_a_name_and_a_hash() {
        let text = "# c\n\nann:$7$x:y \r\nbob of x:\n";
        let users = users("users", text).unwrap();
        let shown: Vec<_> = users.iter().map(|user| (user.name, user.hash)).collect();
        assert_eq!(shown, [("ann", "$7$x:y"), ("bob of x", "")]);
        assert_eq!(users[0].hash_place.to_string(), "users:3:5");
        assert_eq!(format!("{:?}", users[0]), "User { name: \"ann\", .. }");
        assert_eq!(user_of("ann:h\n"), Some(("ann", "h")));
        assert_eq!(user_of("ann:"), Some(("ann", "")));
        for line in ["# ann:h", "", "ann", ":h"] {
            assert_eq!(user_of(line), None, "{line:?}");
        }
    }

    #[test]
    fn mistakes_name_their_column_and_show_no_secret() {
        let mistakes = users("users", "ann secret\nbob:x\n:secret\n").unwrap_err();
        assert_eq!(
            mistakes.to_string(),
            "users:1:11: expected `:` and a hash, found the end of the line\n\
             users:3:1: expected a user name, found `:`"
        );
    }
}
