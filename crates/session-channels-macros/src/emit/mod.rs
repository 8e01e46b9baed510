//! From a checked protocol to Rust.
//!
//! ```text
//! pub mod bank {
//!     use super::*;
//!     pub mod client { .. }        one endpoint per state             endpoints
//!     pub mod server { .. }
//!     pub enum LoginResponse { .. } one enum of messages per state    messages
//!     pub fn init() -> (client::Login, server::Login) { .. }
//!     mod states { .. }            what the runtime knows of a state  states
//!     mod wire { .. }              the messages as they travel
//!     union __Slots { .. }         how large a message can be
//! }
//! ```
//!
//! The code is written as text in which the user's own tokens are placeholders, so that what it
//! says about them points at them. It contains no `unsafe`: everything goes through
//! `::session_channels::rt`.
//!
//! All code that names a type of the user stands in the module itself, where `use super::*` makes
//! it mean what it means outside. Where a name of ours would hide it (state `request` has the enum
//! `Request`, and so may the user), the type goes by an alias from a module with nothing of ours.

mod docs;
mod endpoints;
mod messages;
mod states;

use crate::check::{endless, endless_text};
use crate::closure::{Form, closure};
use crate::model::{Direction, Graph, Message, Name, Parameter, Protocol, State, identifier};
use crate::shape::{Shape, shape};
use crate::tree::{At, Tree, path_heads, text};
use std::collections::HashMap;

const RT: &str = "::session_channels::rt";

/// Rust with placeholders: the word `__token_7` stands for `tokens[7]`.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) text: String,
    pub(crate) tokens: Vec<Vec<Tree>>,
}

impl Code {
    pub(crate) const PLACEHOLDER: &str = "__token_";

    /// A placeholder for these tokens.
    pub(crate) fn place(&mut self, tokens: &[Tree]) -> String {
        self.tokens.push(tokens.to_vec());
        format!("{}{}", Self::PLACEHOLDER, self.tokens.len() - 1)
    }

    /// A name of ours that points at the user's.
    pub(crate) fn name(&mut self, name: &str, at: At) -> String {
        self.place(&[Tree::Word(name.to_owned(), at)])
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }
}

/// The code for a protocol that has passed its checks.
pub(crate) fn emit(protocol: &Protocol, graph: &Graph) -> Code {
    let mut emitter = Emitter {
        protocol,
        graph,
        shape: shape(protocol, graph),
        forms: closure(protocol, graph).unwrap_or_default(),
        code: Code::default(),
        aliases: HashMap::new(),
        alias_code: Vec::new(),
    };
    emitter.protocol();
    emitter.code
}

struct Emitter<'a> {
    protocol: &'a Protocol,
    graph: &'a Graph,
    shape: Shape,
    forms: Vec<Form>,
    code: Code,
    /// The aliases of types, by the text of the type and the parameters in it.
    aliases: HashMap<String, String>,
    alias_code: Vec<String>,
}

/// A side of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Client, Self::Server];

    fn module(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    fn marker(self) -> String {
        match self {
            Self::Client => format!("{RT}::Client"),
            Self::Server => format!("{RT}::Server"),
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    fn sends_in(self, state: &State) -> bool {
        (self == Self::Client) == (state.direction == Direction::Send)
    }
}

impl Emitter<'_> {
    fn protocol(&mut self) {
        self.warnings();
        let documentation = self.documentation_of_protocol();
        let visibility = self.code.place(&self.protocol.visibility);
        let name = &self.protocol.name;
        let name = self.code.name(&identifier(&name.text), name.at);
        self.code.push(&format!(
            "{documentation}
            #[allow(dead_code, unused_imports, unused_qualifications, unreachable_pub, unnameable_types, clippy::all,
                clippy::pedantic, clippy::nursery, reason = \"it is generated\")]
            {visibility} mod {name} {{
            use super::*;"
        ));
        for side in Side::BOTH {
            self.endpoint_module(side);
        }
        for index in 0..self.protocol.states.len() {
            self.message_enum(index);
            for side in Side::BOTH {
                self.endpoint(index, side);
            }
        }
        self.states();
        if !self.alias_code.is_empty() {
            let aliases = std::mem::take(&mut self.alias_code).concat();
            self.code.push(&format!(
                "#[doc(hidden)] #[allow(type_alias_bounds, missing_docs, reason = \"generated\")]
                pub mod payload {{ use super::super::*; {aliases} }}"
            ));
        }
        self.code.push("}");
    }

    /// A warning that stable Rust lets a macro give: the use of something deprecated, placed on the
    /// state.
    fn warnings(&mut self) {
        for state in endless(self.protocol, self.graph) {
            let words = endless_text(state);
            let name = self.code.name(&identifier(&state.name.text), state.name.at);
            self.code.push(&format!(
                "const _: () = {{
                    #[deprecated(note = {words:?})]
                    #[allow(non_upper_case_globals, reason = \"it is a state's name\")]
                    const {name}: () = ();
                    {name}
                }};"
            ));
        }
    }

    fn state_name(&self, state: usize) -> String {
        self.protocol.states[state].name.as_type()
    }

    /// `<T: Send, U>` as it stands after `struct` and `impl`; nothing if there are none.
    fn declared(&mut self, state: usize) -> String {
        let protocol = self.protocol;
        let parameters = protocol.parameters_of(&protocol.states[state]);
        let mut declared = Vec::new();
        for Parameter { name, bounds } in parameters {
            let name = self.code.name(&identifier(&name.text), name.at);
            declared.push(if bounds.is_empty() {
                name
            } else {
                format!("{name}: {}", self.code.place(bounds))
            });
        }
        in_angles(&declared)
    }

    /// `<T, U>`; nothing if there are none.
    fn own_arguments(&self, state: usize) -> String {
        let parameters = self.protocol.parameters_of(&self.protocol.states[state]);
        in_angles(
            &parameters
                .map(|parameter| identifier(&parameter.name.text))
                .collect::<Vec<_>>(),
        )
    }

    /// The next state with its arguments, as `LoginResponse<T, Vec<U>>`.
    fn next(&mut self, state: usize, message: usize) -> Option<String> {
        let protocol = self.protocol;
        let next = self.graph.next[state][message]?;
        let step = protocol.states[state].messages[message].step.as_ref()?;
        let types = step.arguments.iter().map(|ty| self.ty(ty, state)).collect();
        Some(self.form_name(next, types))
    }

    /// A state with types for its own parameters.
    fn form_name(&self, state: usize, own: Vec<String>) -> String {
        let shared = self.protocol.parameters.iter();
        let mut types: Vec<String> = shared.map(|shared| identifier(&shared.name.text)).collect();
        types.extend(own);
        format!("{}{}", self.state_name(state), in_angles(&types))
    }

    /// A type of the user, as it stands in a state.
    fn ty(&mut self, ty: &[Tree], state: usize) -> String {
        let protocol = self.protocol;
        let parameters = protocol.parameters_of(&protocol.states[state]);
        let heads = path_heads(ty);
        let is_parameter = |head: &str| {
            parameters
                .clone()
                .any(|parameter| parameter.name.text == head)
        };
        let is_hidden = |head: &&str| {
            let ours = [
                "self", "super", "client", "server", "wire", "states", "payload", "init",
            ];
            let is_state = || {
                protocol
                    .states
                    .iter()
                    .any(|state| state.name.as_type() == *head)
            };
            !is_parameter(head) && (ours.contains(head) || is_state())
        };
        if !heads.iter().any(is_hidden) {
            return self.code.place(ty);
        }
        let used: Vec<&Parameter> = parameters
            .clone()
            .filter(|parameter| heads.contains(&parameter.name.text.as_str()))
            .collect();
        let names: Vec<String> = used
            .iter()
            .map(|used| identifier(&used.name.text))
            .collect();
        let key = format!("{}{}", text(ty), in_angles(&names));
        if let Some(alias) = self.aliases.get(&key) {
            return format!("payload::{alias}{}", in_angles(&names));
        }
        let alias = format!("Payload{}", self.aliases.len());
        let mut declared = Vec::new();
        for (used, name) in used.iter().zip(&names) {
            let bounds = match used.bounds.as_slice() {
                [] => String::new(),
                bounds => format!(": {}", self.code.place(bounds)),
            };
            declared.push(format!("{name}{bounds}"));
        }
        let target = self.code.place(&from_two_modules_below(ty));
        let declared = in_angles(&declared);
        self.alias_code
            .push(format!("pub type {alias}{declared} = {target};\n"));
        let used = format!("payload::{alias}{}", in_angles(&names));
        self.aliases.insert(key, alias);
        used
    }

    /// The types of a message's arguments.
    fn types(&mut self, state: usize, message: usize) -> Vec<String> {
        let protocol = self.protocol;
        let arguments = &protocol.states[state].messages[message].arguments;
        arguments.iter().map(|ty| self.ty(ty, state)).collect()
    }
}

/// A type as it reads two modules further down: `self` and `super` go on from there.
fn from_two_modules_below(ty: &[Tree]) -> Vec<Tree> {
    let mut moved = Vec::new();
    for (index, tree) in ty.iter().enumerate() {
        let begins = crate::tree::begins_path(ty, index);
        let at = tree.at();
        let is_relative = begins && (tree.is_word("self") || tree.is_word("super"));
        match tree {
            _ if is_relative => {
                let ups = if tree.is_word("self") { 2 } else { 3 };
                for up in 0..ups {
                    if up > 0 {
                        moved.push(Tree::Sign {
                            sign: ':',
                            joint: true,
                            at,
                        });
                        moved.push(Tree::Sign {
                            sign: ':',
                            joint: false,
                            at,
                        });
                    }
                    moved.push(Tree::Word("super".to_owned(), at));
                }
            }
            Tree::Group(group) => {
                let mut group = group.clone();
                group.inner = from_two_modules_below(&group.inner);
                moved.push(Tree::Group(group));
            }
            other => moved.push(other.clone()),
        }
    }
    moved
}

/// `<A, B>`; nothing if there are none.
fn in_angles(parts: &[String]) -> String {
    if parts.is_empty() {
        String::new()
    } else {
        format!("<{}>", parts.join(", "))
    }
}

/// What a message's arguments are when they are handed over together: `()`, the one, or a tuple.
fn together(parts: &[String]) -> String {
    match parts {
        [one] => one.clone(),
        parts => format!("({})", parts.join(", ")),
    }
}

/// `a0`, `a1`, … for a message's arguments.
fn argument_names(message: &Message) -> Vec<String> {
    (0..message.arguments.len())
        .map(|index| format!("a{index}"))
        .collect()
}

/// `Deposit(a, b)`, or `Deposit` where there is nothing.
fn with_parts(name: &str, parts: &[String]) -> String {
    if parts.is_empty() {
        name.to_owned()
    } else {
        format!("{name}({})", parts.join(", "))
    }
}

/// A variant's name, without a place.
fn variant(name: &Name) -> String {
    identifier(&name.text)
}
