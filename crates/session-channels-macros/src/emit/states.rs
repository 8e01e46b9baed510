//! What the runtime knows of a protocol: a marker type per state, its messages as they travel, and
//! how large a message can be.

use super::{Emitter, RT, Side, argument_names, together, variant, with_parts};
use crate::model::identifier;
use crate::shape::Shape;
use crate::tree::path_heads;

impl Emitter<'_> {
    pub(super) fn states(&mut self) {
        let mut markers = Vec::new();
        let mut wires = Vec::new();
        for state in 0..self.protocol.states.len() {
            markers.push(self.marker(state));
            wires.push(self.wire(state));
        }
        let (markers, wires) = (markers.concat(), wires.concat());
        self.code.push(&format!(
            "#[doc(hidden)]
            #[allow(missing_docs, missing_debug_implementations, reason = \"it is generated\")]
            pub mod states {{ use super::*; {markers} }}
            #[doc(hidden)]
            #[allow(missing_docs, missing_debug_implementations, reason = \"it is generated\")]
            pub mod wire {{ use super::*; {wires} }}"
        ));
        for state in 0..self.protocol.states.len() {
            self.state(state);
        }
        self.slots();
        self.init();
    }

    /// Has the auto traits of everything that can come, here and further on.
    fn marker(&mut self, state: usize) -> String {
        let name = self.state_name(state);
        let declared = self.declared(state);
        let mut payloads = Vec::new();
        let mut next = Vec::new();
        for message in 0..self.protocol.states[state].messages.len() {
            payloads.extend(self.types(state, message));
            next.extend(self.next(state, message));
        }
        let parameters = in_parentheses(&self.parameter_names(state));
        let (payloads, next) = (in_parentheses(&payloads), in_parentheses(&next));
        format!(
            "pub struct {name}{declared}(
                ::core::marker::PhantomData<{payloads}>,
                ::core::marker::PhantomData<{next}>,
                ::core::marker::PhantomData<fn() -> {parameters}>,
            );\n"
        )
    }

    fn wire(&mut self, state: usize) -> String {
        let name = self.state_name(state);
        let declared = self.declared(state);
        let mut variants = Vec::new();
        for (index, message) in self.protocol.states[state].messages.iter().enumerate() {
            let types = self.types(state, index);
            let variant = with_parts(&variant(&message.name), &types);
            variants.push(format!("{variant},\n"));
        }
        let parameters = self.parameter_names(state);
        if !parameters.is_empty() {
            let parameters = in_parentheses(&parameters);
            variants.push(unused(&parameters));
        }
        let variants = variants.concat();
        format!("pub enum {name}{declared} {{ {variants} }}\n")
    }

    fn state(&mut self, index: usize) {
        let protocol = self.protocol;
        let state = &protocol.states[index];
        let name = self.state_name(index);
        let (declared, own) = (self.declared(index), self.own_arguments(index));
        let sender = if Side::Client.sends_in(state) {
            Side::Client
        } else {
            Side::Server
        };
        let shape = match self.shape {
            Shape::Packet { sides_waiting } => {
                format!("Packet {{ sides_waiting: {sides_waiting} }}")
            }
            Shape::Rings {
                to_server,
                to_client,
            } => {
                format!("Rings {{ to_server: {to_server}, to_client: {to_client} }}")
            }
        };
        let capacity = match &state.capacity {
            Some(capacity) => format!("::core::option::Option::Some({})", capacity.messages),
            None => "::core::option::Option::None".to_owned(),
        };
        let mut follows = Vec::new();
        for (message, written) in state.messages.iter().enumerate() {
            let next = self.graph.next[index][message];
            let goes_on =
                next.is_some_and(|next| protocol.states[next].direction == state.direction);
            let next = match self.next(index, message) {
                Some(next) if goes_on => format!("{RT}::Next::new::<states::{next}>()"),
                _ => format!("{RT}::Next::TURN"),
            };
            let variant = variant(&written.name);
            follows.push(format!("wire::{name}::{variant} {{ .. }} => {next},\n"));
        }
        if !self.parameter_names(index).is_empty() {
            let never = format!("wire::{name}::{UNUSED}(_, never) => match *never {{}},");
            follows.push(never);
        }
        let follows = follows.concat();
        let (sender, written) = (sender.marker(), &state.name.text);
        let protocol_name = &protocol.name.text;
        let mut code = format!(
            "impl{declared} {RT}::State for states::{name}{own} {{
                type Wire = wire::{name}{own};
                type Sender = {sender};
                const PROTOCOL: &'static str = {protocol_name:?};
                const NAME: &'static str = {written:?};
                const SHAPE: {RT}::Shape = {RT}::Shape::{shape};
                const CAPACITY: ::core::option::Option<u32> = {capacity};
                fn next(wire: &Self::Wire) -> {RT}::Next {{ match wire {{ {follows} }} }}
            }}\n"
        );
        code.push_str(&self.given_back(index));
        self.code.push(&code);
    }

    /// For each message, how its arguments come out of a message that was not taken.
    fn given_back(&mut self, index: usize) -> String {
        let protocol = self.protocol;
        let state = &protocol.states[index];
        let (declared, own) = (self.declared(index), self.own_arguments(index));
        let others = if state.messages.len() > 1 {
            "_ => ::core::unreachable!(\"the message given back is the one that was sent\"),"
        } else {
            ""
        };
        let mut methods = Vec::new();
        for (message, written) in state.messages.iter().enumerate() {
            let types = together(&self.types(index, message));
            let names = argument_names(written);
            let pattern = with_parts(&variant(&written.name), &names);
            let arguments = together(&names);
            methods.push(format!(
                "pub(super) fn __m{message}(self) -> {types} {{
                    match self {{ Self::{pattern} => {arguments}, {others} }}
                }}\n"
            ));
        }
        let methods = methods.concat();
        format!(
            "impl{declared} wire::{}{own} {{ {methods} }}\n",
            self.state_name(index)
        )
    }

    /// Never made nor read: the runtime asks for its size and alignment.
    fn slots(&mut self) {
        let declared = self.declared(0);
        let parameters = in_parentheses(&self.parameter_names(0));
        let mut fields = Vec::new();
        for (index, form) in std::mem::take(&mut self.forms).into_iter().enumerate() {
            let types = form.arguments.iter().map(|ty| self.ty(ty, 0)).collect();
            let form = self.form_name(form.state, types);
            fields.push(format!(
                "m{index}: ::core::mem::ManuallyDrop<wire::{form}>,\n"
            ));
        }
        let fields = fields.concat();
        self.code.push(&format!(
            "#[doc(hidden)]
            #[allow(missing_docs, missing_debug_implementations, reason = \"it is generated\")]
            pub union __Slots{declared} {{
                {fields}
                parameters: ::core::marker::PhantomData<{parameters}>,
            }}"
        ));
    }

    fn init(&mut self) {
        let (declared, own) = (self.declared(0), self.own_arguments(0));
        let name = self.state_name(0);
        let start = &self.protocol.states[0].name.text;
        self.code.push(&format!(
            "/// Opens a session: the two sides of it, both in state `{start}`.
            #[must_use = \"a session needs both its sides\"]
            pub fn init{declared}() -> (client::{name}{own}, server::{name}{own}) {{
                let (client, server) = {RT}::open::<states::{name}{own}, __Slots{own}>();
                (client::{name}(client), server::{name}(server))
            }}"
        ));
    }

    pub(super) fn parameter_names(&self, state: usize) -> Vec<String> {
        let parameters = self.protocol.parameters_of(&self.protocol.states[state]);
        parameters
            .map(|parameter| identifier(&parameter.name.text))
            .collect()
    }

    /// Whether a parameter occurs nowhere in the messages of a state, which an enum must not have.
    pub(super) fn has_unused_parameter(&self, index: usize) -> bool {
        let state = &self.protocol.states[index];
        let is_passed_on = self.graph.successors(index).next().is_some();
        let mut shared = self.protocol.parameters.iter();
        !is_passed_on
            && shared.any(|parameter| {
                let mut types = state.messages.iter().flat_map(|message| &message.arguments);
                !types.any(|ty| path_heads(ty).contains(&parameter.name.text.as_str()))
            })
    }
}

/// The variant that uses the parameters that no other uses. It cannot be made.
pub(super) const UNUSED: &str = "__Unused";

pub(super) fn unused(parameters: &str) -> String {
    format!(
        "#[doc(hidden)]
        {UNUSED}(::core::marker::PhantomData<fn() -> {parameters}>, ::core::convert::Infallible),"
    )
}

/// A tuple type, of one as well.
pub(super) fn in_parentheses(types: &[String]) -> String {
    let parts: Vec<String> = types.iter().map(|ty| format!("{ty},")).collect();
    format!("({})", parts.concat())
}
