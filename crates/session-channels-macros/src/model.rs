//! A protocol as it is written: states, messages, and where they lead.
//!
//! What is read here is grammatical, no more; `check` decides whether it makes sense and finds out
//! which states the steps mean ([`Graph`]).

use crate::tree::{At, Tree};

#[derive(Debug)]
pub(crate) struct Protocol {
    pub(crate) notes: Notes,
    pub(crate) visibility: Vec<Tree>,
    pub(crate) name: Name,
    /// In scope in every state, before the state's own.
    pub(crate) parameters: Vec<Parameter>,
    /// The first is the start.
    pub(crate) states: Vec<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) notes: Notes,
    pub(crate) name: Name,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) direction: Direction,
    pub(crate) capacity: Option<Capacity>,
    pub(crate) messages: Vec<Message>,
}

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) notes: Notes,
    pub(crate) name: Name,
    /// Types, one each.
    pub(crate) arguments: Vec<Vec<Tree>>,
    /// `None` is `!`: the session is over.
    pub(crate) step: Option<Step>,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: Name,
    /// Types for the state's own parameters.
    pub(crate) arguments: Vec<Vec<Tree>>,
}

/// The attributes that may stand before a protocol, a state or a message.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Whole `#[doc ..]` attributes, without the `#`.
    pub(crate) documentation: Vec<Tree>,
    /// `#[forever]`: that no end is in reach is meant.
    pub(crate) forever: Option<At>,
}

#[derive(Debug, Clone)]
pub(crate) struct Name {
    /// Without `r#`.
    pub(crate) text: String,
    pub(crate) at: At,
}

#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) name: Name,
    /// What stands after the colon.
    pub(crate) bounds: Vec<Tree>,
}

#[derive(Debug)]
pub(crate) struct Capacity {
    pub(crate) messages: u32,
    pub(crate) at: At,
}

/// Who sends, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Send,
    Receive,
}

impl Direction {
    /// As it is written in the protocol.
    pub(crate) fn keyword(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "recv",
        }
    }
}

impl Protocol {
    /// The parameters that a state has, the protocol's first.
    pub(crate) fn parameters_of<'a>(
        &'a self,
        state: &'a State,
    ) -> impl Iterator<Item = &'a Parameter> + Clone {
        self.parameters.iter().chain(&state.parameters)
    }
}

/// Which states the steps mean.
#[derive(Debug)]
pub(crate) struct Graph {
    /// For each state, for each of its messages, the index of the next state.
    pub(crate) next: Vec<Vec<Option<usize>>>,
}

impl Graph {
    pub(crate) fn successors(&self, state: usize) -> impl Iterator<Item = usize> {
        self.next[state].iter().flatten().copied()
    }

    /// The states that can be reached from this one, itself included.
    pub(crate) fn reached_from(&self, state: usize) -> Vec<bool> {
        let mut reached = vec![false; self.next.len()];
        let mut waiting = vec![state];
        while let Some(state) = waiting.pop() {
            if !std::mem::replace(&mut reached[state], true) {
                waiting.extend(self.successors(state));
            }
        }
        reached
    }
}

impl Name {
    /// `login_response` as the name of a type: `LoginResponse`.
    pub(crate) fn as_type(&self) -> String {
        let mut name = String::new();
        for part in self.text.split('_') {
            let mut characters = part.chars();
            name.extend(characters.next().into_iter().flat_map(char::to_uppercase));
            name.push_str(characters.as_str());
        }
        if name == "Self" {
            name.push('_');
        }
        name
    }

    /// `InsufficientFunds` as the name of a method: `insufficient_funds`, with nothing done to
    /// keywords.
    pub(crate) fn as_method(&self) -> String {
        let characters: Vec<char> = self.text.chars().collect();
        let mut name = String::new();
        for (index, character) in characters.iter().enumerate() {
            let after = index.checked_sub(1).map(|before| characters[before]);
            let before_lower = characters
                .get(index + 1)
                .is_some_and(|next| next.is_lowercase());
            let begins_word = character.is_uppercase()
                && after
                    .is_some_and(|after| after != '_' && (!after.is_uppercase() || before_lower));
            if begins_word {
                name.push('_');
            }
            name.extend(character.to_lowercase());
        }
        name
    }
}

/// A name that can stand in the code: raw where it is a keyword.
pub(crate) fn identifier(name: &str) -> String {
    const NEVER_RAW: [&str; 4] = ["self", "Self", "super", "crate"];
    const KEYWORDS: [&str; 47] = [
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do",
        "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in",
        "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
        "return", "static", "struct", "trait", "true", "try", "type", "typeof", "unsafe",
        "unsized", "use", "virtual", "where", "while",
    ];
    if NEVER_RAW.contains(&name) {
        format!("{name}_")
    } else if KEYWORDS.contains(&name) || name == "yield" {
        format!("r#{name}")
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name {
            text: text.to_owned(),
            at: At(0),
        }
    }

    #[test]
    fn states_become_types() {
        for (state, expected) in [
            ("login", "Login"),
            ("login_response", "LoginResponse"),
            ("http2_open", "Http2Open"),
            ("loginResponse", "LoginResponse"),
            ("move", "Move"),
            ("_a__b", "AB"),
            ("self", "Self_"),
        ] {
            assert_eq!(name(state).as_type(), expected, "{state}");
        }
    }

    #[test]
    fn messages_become_methods() {
        for (message, expected) in [
            ("Deposit", "deposit"),
            ("InsufficientFunds", "insufficient_funds"),
            ("HTTPGet", "http_get"),
            ("Item2", "item2"),
            ("ok", "ok"),
            ("Move", "move"),
            ("A", "a"),
            ("Seen_Once", "seen_once"),
        ] {
            assert_eq!(name(message).as_method(), expected, "{message}");
        }
    }

    #[test]
    fn keywords_become_raw_where_they_can() {
        assert_eq!(identifier("move"), "r#move");
        assert_eq!(identifier("yield"), "r#yield");
        assert_eq!(identifier("super"), "super_");
        assert_eq!(identifier("deposit"), "deposit");
    }
}
