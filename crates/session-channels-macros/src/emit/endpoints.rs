//! The two endpoints of a state: the one that sends has a method per message, the other receives.

use super::{Emitter, RT, Side, argument_names, together, variant, with_parts};
use crate::model::identifier;

const RESULT: &str = "::core::result::Result";

impl Emitter<'_> {
    /// The module with a side's endpoint types.
    pub(super) fn endpoint_module(&mut self, side: Side) {
        let mut types = Vec::new();
        for (index, state) in self.protocol.states.iter().enumerate() {
            let plain = self.state_name(index);
            let name = self.code.name(&plain, state.name.at);
            let (declared, own) = (self.declared(index), self.own_arguments(index));
            let documentation = self.documentation_of_endpoint(index, side);
            let marker = side.marker();
            let must_use = format!(
                "dropping it closes the session in state `{}`: go on with it",
                state.name.text
            );
            types.push(format!(
                "{documentation}
                #[must_use = {must_use:?}]
                pub struct {name}{declared}(pub(super) {RT}::Link<super::states::{plain}{own}, {marker}>);\n"
            ));
        }
        let types = types.concat();
        let module = side.module();
        let protocol = &self.protocol.name.text;
        let words = format!("The {module}'s side of `{protocol}`: an endpoint for each state.");
        self.code.push(&format!(
            "#[doc = {words:?}] pub mod {module} {{ use super::*; {types} }}"
        ));
    }

    pub(super) fn endpoint(&mut self, index: usize, side: Side) {
        let state = &self.protocol.states[index];
        let name = self.state_name(index);
        let (declared, own) = (self.declared(index), self.own_arguments(index));
        let (module, other) = (side.module(), side.other().module());
        let (protocol, state_name) = (&self.protocol.name.text, &state.name.text);
        let shown = format!("{protocol}::{module}::{name}");
        self.code.push(&format!(
            "impl{declared} {RT}::Endpoint for {module}::{name}{own} {{
                type Dual = {other}::{name}{own};
                const PROTOCOL: &'static str = {protocol:?};
                const STATE: &'static str = {state_name:?};
                fn end(&self) -> ::core::option::Option<{RT}::End> {{
                    ::core::option::Option::Some(self.0.end())
                }}
            }}
            impl{declared} ::core::fmt::Debug for {module}::{name}{own} {{
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{
                    f.write_str({shown:?})
                }}
            }}"
        ));
        if !side.sends_in(state) {
            self.receiving(index, side);
            return;
        }
        let has_capacity = state.capacity.is_some();
        let mut methods = Vec::new();
        for message in 0..state.messages.len() {
            methods.push(if has_capacity {
                self.send_with_room(index, message, side)
            } else {
                self.send_at_once(index, message, side)
            });
        }
        if has_capacity {
            methods.push("::session_channels::__room_methods! {}".to_owned());
        }
        let methods = methods.concat();
        self.code.push(&format!(
            "impl{declared} {module}::{name}{own} {{ {methods} }}"
        ));
    }

    /// Sends for which there is always room.
    fn send_at_once(&mut self, index: usize, message: usize, side: Side) -> String {
        let Send {
            method,
            try_method,
            parameters,
            types,
            wire,
            back,
            next,
            shown,
            then,
            ..
        } = self.send(index, message, side);
        let (gives, last, ways) = ways(next.as_deref(), &back);
        let (plain, arrow, dropped) = match &next {
            Some(next) => (
                format!("{}(self.0.send_anyway({wire}))", turbofish(next)),
                format!("-> {next}"),
                "the message is dropped, and the next endpoint says so",
            ),
            None => (
                format!("let _ = self.0.send_last({wire});"),
                String::new(),
                "the message is dropped",
            ),
        };
        format!(
            "/// Sends {shown} {then}. It never waits. If the other side is gone, {dropped}.
            #[inline]
            pub fn {method}(self, {parameters}) {arrow} {{ {plain} }}
            /// Sends {shown} {then}, unless the other side is gone: then the message is given back.
            #[inline]
            pub fn {try_method}(self, {parameters}) -> {RESULT}<{gives}, {RT}::Unsent<{types}>> {{
                self.0.give{last}({wire}, {ways})
            }}\n"
        )
    }

    /// Sends that wait while as many messages as the state allows are on their way.
    fn send_with_room(&mut self, index: usize, message: usize, side: Side) -> String {
        let Send {
            method,
            try_method,
            blocking_method,
            parameters,
            types,
            wire,
            back,
            next,
            shown,
            then,
        } = self.send(index, message, side);
        let (gives, last, ways) = ways(next.as_deref(), &back);
        format!(
            "/// Sends {shown} {then}, when there is room for it.
            #[inline]
            pub async fn {method}(self, {parameters}) -> {RESULT}<{gives}, {RT}::Unsent<{types}>> {{
                self.0.give_wait{last}({wire}, {ways}).await
            }}
            /// Sends {shown} {then}, when there is room for it; the thread waits.
            #[inline]
            pub fn {blocking_method}(self, {parameters}) -> {RESULT}<{gives}, {RT}::Unsent<{types}>> {{
                self.0.give_blocking{last}({wire}, {ways})
            }}
            /// Sends {shown} {then}, if there is room for it now.
            #[inline]
            pub fn {try_method}(self, {parameters}) -> {RESULT}<{gives}, {RT}::TrySend<Self, {types}>> {{
                self.0.try_give{last}({wire}, Self, {ways})
            }}\n"
        )
    }

    fn send(&mut self, index: usize, message: usize, side: Side) -> Send {
        let protocol = self.protocol;
        let state = &protocol.states[index];
        let written = &state.messages[message];
        let method = written.name.as_method();
        let names = argument_names(written);
        let types = self.types(index, message);
        let parameters = names
            .iter()
            .zip(&types)
            .map(|(name, ty)| format!("{name}: {ty}"));
        let parameters = parameters.collect::<Vec<_>>().join(", ");
        let at = written.name.at;
        let plain = self.state_name(index);
        let name = variant(&written.name);
        Send {
            method: self.code.name(&identifier(&method), at),
            try_method: self.code.name(&format!("try_{method}"), at),
            blocking_method: self.code.name(&format!("{method}_blocking"), at),
            parameters,
            types: together(&types),
            wire: with_parts(&format!("wire::{plain}::{name}"), &names),
            back: format!("wire::{plain}::__m{message}"),
            next: self
                .next(index, message)
                .map(|next| format!("{}::{next}", side.module())),
            shown: format!("`{}`", super::docs::message_text(written)),
            then: match &written.step {
                Some(step) => format!("and goes on to `{}`", step.name.text),
                None => "and ends the session".to_owned(),
            },
        }
    }

    fn receiving(&mut self, index: usize, side: Side) {
        let protocol = self.protocol;
        let state = &protocol.states[index];
        let name = self.state_name(index);
        let (declared, own) = (self.declared(index), self.own_arguments(index));
        let module = side.module();
        let marker = side.marker();
        let mut arms = Vec::new();
        for (message, written) in state.messages.iter().enumerate() {
            let mut parts = argument_names(written);
            let variant = variant(&written.name);
            let pattern = with_parts(&variant, &parts);
            let next = self.next(index, message);
            let mut finish = "link.finish();";
            if let Some(next) = next {
                parts.push(format!(
                    "{}(link.step())",
                    turbofish(&format!("{module}::{next}"))
                ));
                finish = "";
            }
            let made = with_parts(&variant, &parts);
            arms.push(format!(
                "wire::{name}::{pattern} => {{ {finish} self::{name}::{made} }}\n"
            ));
        }
        if !self.parameter_names(index).is_empty() {
            arms.push(format!(
                "wire::{name}::__Unused(_, never) => match never {{}},"
            ));
        }
        let arms = arms.concat();
        let link = format!("{RT}::Link<states::{name}{own}, {marker}>");
        self.code.push(&format!(
            "impl{declared} {RT}::Receive for {module}::{name}{own} {{
                type Message = self::{name}{own};
                type State = states::{name}{own};
                type Side = {marker};
                #[inline] fn link(&self) -> &{link} {{ &self.0 }}
                #[inline] fn link_mut(&mut self) -> &mut {link} {{ &mut self.0 }}
                #[inline] fn into_link(self) -> {link} {{ self.0 }}
                #[inline] fn message(wire: wire::{name}{own}, link: {link}) -> Self::Message {{
                    match wire {{ {arms} }}
                }}
            }}
            impl{declared} {module}::{name}{own} {{
                ::session_channels::__receive_methods! {{ self::{name}{own} }}
            }}"
        ));
    }
}

/// What the methods that send a message are made of.
struct Send {
    method: String,
    try_method: String,
    blocking_method: String,
    parameters: String,
    /// The arguments as they are given back.
    types: String,
    /// The message as it travels.
    wire: String,
    /// How its arguments come out of that.
    back: String,
    /// The next endpoint.
    next: Option<String>,
    /// For documentation: the message, and what comes then.
    shown: String,
    then: String,
}

/// What a send gives, what its name ends in, and the functions that make what it gives.
fn ways(next: Option<&str>, back: &str) -> (String, &'static str, String) {
    match next {
        Some(next) => (next.to_owned(), "", format!("{}, {back}", turbofish(next))),
        None => ("()".to_owned(), "_last", back.to_owned()),
    }
}

/// `client::Open<T>` as the function that makes one: `client::Open::<T>`.
fn turbofish(ty: &str) -> String {
    match ty.split_once('<') {
        Some((path, arguments)) => format!("{path}::<{arguments}"),
        None => ty.to_owned(),
    }
}
