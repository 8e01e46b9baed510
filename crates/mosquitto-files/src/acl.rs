//! Access control lists: `topic`, `user` and `pattern`.
//!
//! A `topic` line belongs to the last `user` line above it, or to clients without a name; a
//! `pattern` line to every client, with `%u` and `%c` in its topic standing for the client's user
//! name and client id.
//!
//! What the rules decide is Mosquitto's: a denial stands before all permissions of the same list,
//! and what no rule names is denied. Mosquitto grants every SUBSCRIBE and filters what it delivers;
//! `subscribe`, which it does not know, is a right of its own.

use crate::filter;
use crate::lex::{Lexer, Line, Token, each_line};
use crate::mistake::{Findings, Mistake, Mistakes, Place, Remark, Source};

/// An access control list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// The rules, in the order of the file.
    pub rules: Vec<Rule>,
    /// Hints about lines that may not mean what they seem to.
    pub remarks: Vec<Remark>,
}

/// One `topic` or `pattern` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whom it is about.
    pub who: Who,
    /// What it allows or denies.
    pub access: Access,
    /// The topic filter as it is written.
    pub filter: String,
    /// Where the line is.
    pub place: Place,
}

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Clients without a user name.
    Anonymous,
    /// The clients of one user.
    User(String),
    /// Every client, with its names in place of `%u` and `%c`.
    Everyone,
}

/// What a rule allows or denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To receive.
    Read,
    /// To publish.
    Write,
    /// Both.
    ReadWrite,
    /// Neither, whatever other rules say.
    Deny,
    /// To subscribe. With such a rule no other filters are granted to its clients.
    Subscribe,
}

/// A part of the filter of a `pattern` line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// These characters.
    Text(&'a str),
    /// The client's user name.
    User,
    /// The client id.
    Client,
}

impl Rule {
    /// The filter in parts. Only a rule about [`Who::Everyone`] has placeholders.
    pub fn parts(&self) -> Vec<Part<'_>> {
        match self.who {
            Who::Everyone => parts(&self.filter),
            _ => vec![Part::Text(&self.filter)],
        }
    }
}

impl Access {
    /// The word in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "readwrite",
            Self::Deny => "deny",
            Self::Subscribe => "subscribe",
        }
    }
}

impl Acl {
    /// Reads a file; `name` is what its places are called by.
    pub fn parse(name: &str, text: &[u8]) -> Result<Self, Mistakes> {
        let mut reader = Reader {
            source: Source::new(name, text),
            who: Who::Anonymous,
            rules: Vec::new(),
            findings: Findings::default(),
        };
        if let Some(mistake) = reader.source.unreadable() {
            reader.findings.mistake(mistake);
        } else {
            each_line(Lexer::acl(text), |line| reader.line(line));
        }
        Ok(Self {
            remarks: reader.findings.finish()?,
            rules: reader.rules,
        })
    }
}

struct Reader<'t> {
    source: Source<'t>,
    /// The user of the lines that follow; after a mistaken `user` line the one before.
    who: Who,
    rules: Vec<Rule>,
    findings: Findings,
}

impl Reader<'_> {
    fn line(&mut self, line: &Line) {
        let [key, words @ ..] = line.tokens.as_slice() else {
            return;
        };
        let keys = ["user", "topic", "pattern"];
        let known = |name: &str| keys.into_iter().find(|key| *key == name);
        let is_pattern = match key.of(self.source.text) {
            b"user" => return self.user(*key, words),
            b"topic" => false,
            b"pattern" => true,
            _ => {
                let expected = match self.source.key_with_tab(*key, known) {
                    Some(expected) => expected,
                    None => "`user`, `topic`, `pattern`, or `#` in the first column".to_owned(),
                };
                return self.findings.mistake(self.source.wrong(*key, expected));
            }
        };
        match self.rule(*key, words, is_pattern) {
            Ok(rule) => self.rules.push(rule),
            Err(mistake) => self.findings.mistake(*mistake),
        }
    }

    fn user(&mut self, key: Token, words: &[Token]) {
        let Some(name) = self.source.joined(words) else {
            return self.findings.mistake(self.source.ends(key, "a user name"));
        };
        match self.source.utf8(name, "a user name") {
            Ok(name) => self.who = Who::User(name.to_owned()),
            Err(mistake) => self.findings.mistake(*mistake),
        }
    }

    fn rule(
        &mut self,
        key: Token,
        words: &[Token],
        is_pattern: bool,
    ) -> Result<Rule, Box<Mistake>> {
        let (access, topic) = match words {
            [] => {
                let expected =
                    "`read`, `write`, `readwrite`, `deny`, `subscribe`, or a topic filter";
                return Err(Box::new(self.source.ends(key, expected)));
            }
            [topic] => (Access::ReadWrite, *topic),
            [access, topic @ ..] => {
                let topic = self.source.joined(topic).unwrap_or(*access);
                (self.access(*access)?, topic)
            }
        };
        let filter = self.source.utf8(topic, "a topic filter")?.to_owned();
        if let Some((at, expected)) = filter::problem(topic.of(self.source.text)) {
            return Err(Box::new(self.source.wrong_at(topic, at, expected)));
        }
        let place = self.source.place(key.line, key.start as usize);
        for text in self.doubts(access, &filter, is_pattern) {
            let place = place.clone();
            self.findings.remark(Remark { place, text });
        }
        let who = if is_pattern {
            Who::Everyone
        } else {
            self.who.clone()
        };
        Ok(Rule {
            who,
            access,
            filter,
            place,
        })
    }

    /// What such a rule may not mean.
    fn doubts(&self, access: Access, filter: &str, is_pattern: bool) -> Vec<String> {
        let mut doubts = Vec::new();
        if access == Access::Subscribe {
            doubts.push(format!(
                "Mosquitto does not know the access `subscribe` of `{filter}`"
            ));
        }
        let has_placeholder = parts(filter)
            .iter()
            .any(|part| !matches!(part, Part::Text(_)));
        match (&self.who, is_pattern) {
            (Who::User(user), true) => doubts.push(format!(
                "`pattern {filter}` stands below `user {user}`, but it is for every client; \
                 `topic` is for this user alone"
            )),
            (_, true) if !has_placeholder => doubts.push(format!(
                "`pattern {filter}` has neither %u nor %c; it is for every client"
            )),
            (_, false) if has_placeholder => doubts.push(format!(
                "`topic {filter}` means the characters %u and %c as they are; only `pattern` \
                 puts the client's names there"
            )),
            _ => {}
        }
        doubts
    }

    fn access(&self, word: Token) -> Result<Access, Box<Mistake>> {
        Ok(match word.of(self.source.text) {
            b"read" => Access::Read,
            b"write" => Access::Write,
            b"readwrite" => Access::ReadWrite,
            b"deny" => Access::Deny,
            b"subscribe" => Access::Subscribe,
            _ => {
                let expected = "`read`, `write`, `readwrite`, `deny` or `subscribe` before a \
                                topic filter that has spaces";
                return Err(Box::new(self.source.wrong(word, expected)));
            }
        })
    }
}

fn parts(filter: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut left = filter;
    while let Some(at) = left.find("%u").into_iter().chain(left.find("%c")).min() {
        let (text, rest) = left.split_at(at);
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        let (placeholder, rest) = rest.split_at(2);
        parts.push(if placeholder == "%u" {
            Part::User
        } else {
            Part::Client
        });
        left = rest;
    }
    if !left.is_empty() {
        parts.push(Part::Text(left));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{TEXT_BYTES_MAX, TOPIC_SLASHES_MAX};

    /// Each rule as `who access filter`, or the mistakes.
    fn read(text: &str) -> Result<Vec<String>, String> {
        let acl = Acl::parse("acl", text.as_bytes()).map_err(|mistakes| mistakes.to_string())?;
        let shown = acl.rules.iter().map(|rule| {
            let who = match &rule.who {
                Who::Anonymous => "-".to_owned(),
                Who::User(name) => format!("<{name}>"),
                Who::Everyone => "*".to_owned(),
            };
            format!("{who} {} {}", rule.access.word(), rule.filter)
        });
        Ok(shown.collect())
    }

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        assert_eq!(read(text).unwrap(), expect);
    }

    #[track_caller]
    fn check_wrong(text: &str, expect: &str) {
        assert_eq!(read(text).unwrap_err(), expect);
    }

    #[test]
    fn a_rule_belongs_to_the_user_above_it() {
        check(
            "topic read $SYS/#\n# c\nuser  ann of x \ntopic a/b\ntopic deny  secret x/#\n\
             pattern write c/%c/%u\nuser bob\r\ntopic readwrite +/x\n",
            &[
                "- read $SYS/#",
                "<ann of x> readwrite a/b",
                "<ann of x> deny secret x/#",
                "* write c/%c/%u",
                "<bob> readwrite +/x",
            ],
        );
        check("topic read", &["- readwrite read"]);
        check("pattern subscribe a/%c", &["* subscribe a/%c"]);
    }

    #[test]
    fn a_mistake_names_its_column_and_what_was_expected() {
        for (text, expect) in [
            (
                "user\n",
                "acl:1:5: expected a user name, found the end of the line",
            ),
            (
                "user a\ntopic rw a/b",
                "acl:2:7: expected `read`, `write`, `readwrite`, `deny` or `subscribe` before a \
                 topic filter that has spaces, found `rw`",
            ),
            (
                "topic  \n",
                "acl:1:6: expected `read`, `write`, `readwrite`, `deny`, `subscribe`, or a topic \
                 filter, found the end of the line",
            ),
            (
                "topic read ä/b#\n",
                "acl:1:15: expected `#` as the last level, found `ä/b#`",
            ),
            (
                "topic a/+b\n",
                "acl:1:9: expected `+` as a level of its own, found `a/+b`",
            ),
            (
                " # c\n",
                "acl:1:2: expected `user`, `topic`, `pattern`, or `#` in the first column, \
                 found `#`",
            ),
            (
                "topic\ta\n",
                "acl:1:1: expected `topic` with a space behind it, found `topic\\ta`",
            ),
        ] {
            check_wrong(text, expect);
        }
        check_wrong(
            "user\ntopc a\n",
            "acl:1:5: expected a user name, found the end of the line\n\
             acl:2:1: expected `user`, `topic`, `pattern`, or `#` in the first column, \
             found `topc`",
        );
    }

    #[test]
    fn topics_have_limits() {
        let deep = |slashes: usize| format!("topic {}x", "a/".repeat(slashes));
        assert!(read(&deep(TOPIC_SLASHES_MAX)).is_ok());
        assert!(read(&deep(TOPIC_SLASHES_MAX + 1)).is_err());
        let long = |bytes: usize| format!("topic {}", "a".repeat(bytes));
        assert!(read(&long(TEXT_BYTES_MAX)).is_ok());
        assert!(read(&long(TEXT_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn bytes_that_no_topic_has_are_mistakes() {
        let wrong = |text: &[u8]| Acl::parse("acl", text).unwrap_err().to_string();
        assert_eq!(
            wrong(b"topic a\xff\n"),
            "acl:1:8: expected a topic filter in UTF-8, found `a\u{fffd}`"
        );
        assert_eq!(
            wrong(b"topic a\n#\0\n"),
            "acl:2:2: expected a text without NUL bytes, found a NUL byte"
        );
    }

    #[test]
    fn a_pattern_has_placeholders() {
        let acl = Acl::parse("acl", b"pattern a/%u/%cx%u\npattern b\ntopic %u").unwrap();
        assert_eq!(
            acl.rules[0].parts(),
            [
                Part::Text("a/"),
                Part::User,
                Part::Text("/"),
                Part::Client,
                Part::Text("x"),
                Part::User
            ]
        );
        assert_eq!(acl.rules[2].parts(), [Part::Text("%u")]);
    }

    #[test]
    fn a_line_that_may_not_mean_what_it_seems_to_gets_a_remark() {
        let literal = "means the characters %u and %c as they are";
        for (text, expect) in [
            ("topic a\nuser ann\ntopic a/#\n", &[][..]),
            ("pattern a/%u\npattern b/%c\n", &[]),
            (
                "pattern b\n",
                &[(1, "has neither %u nor %c; it is for every client")],
            ),
            (
                "user ann\npattern read b/%u\npattern c\n",
                &[
                    (
                        2,
                        "`pattern b/%u` stands below `user ann`, but it is for every client",
                    ),
                    (
                        3,
                        "`pattern c` stands below `user ann`, but it is for every client",
                    ),
                ],
            ),
            (
                "topic x/%c\nuser ann\ntopic read a/%u\n",
                &[(1, literal), (3, literal)],
            ),
            (
                "topic subscribe a\n",
                &[(1, "Mosquitto does not know the access `subscribe`")],
            ),
        ] {
            let remarks = Acl::parse("acl", text.as_bytes()).unwrap().remarks;
            assert_eq!(remarks.len(), expect.len(), "{text}: {remarks:?}");
            for (remark, (line, words)) in remarks.iter().zip(expect) {
                assert_eq!(remark.place.line, *line, "{text}");
                assert!(remark.text.contains(words), "{remark}");
            }
        }
    }
}
