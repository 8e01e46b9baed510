//! The enum of a state's messages, which is what the receiving side gets.

use super::states::{in_parentheses, unused};
use super::{Emitter, Side, with_parts};
use crate::model::identifier;

impl Emitter<'_> {
    /// Each variant has the message's arguments and then the receiver's next endpoint.
    pub(super) fn message_enum(&mut self, index: usize) {
        let protocol = self.protocol;
        let state = &protocol.states[index];
        let receiver = if Side::Client.sends_in(state) {
            Side::Server
        } else {
            Side::Client
        };
        let (declared, own) = (self.declared(index), self.own_arguments(index));
        let mut variants = Vec::new();
        let mut shown = Vec::new();
        for (message, written) in state.messages.iter().enumerate() {
            let mut parts = self.types(index, message);
            let next = self.next(index, message);
            parts.extend(next.map(|next| format!("{}::{next}", receiver.module())));
            let documentation = self.documentation_of_message(index, message);
            let name = identifier(&written.name.text);
            let variant = self.code.name(&name, written.name.at);
            let variant = with_parts(&variant, &parts);
            variants.push(format!("{documentation} {variant},\n"));
            shown.push(format!(
                "Self::{name} {{ .. }} => {:?},\n",
                written.name.text
            ));
        }
        if self.has_unused_parameter(index) {
            variants.push(unused(&in_parentheses(&self.parameter_names(index))));
            shown.push("Self::__Unused(_, never) => match *never {},".to_owned());
        }
        let (variants, shown) = (variants.concat(), shown.concat());
        let documentation = self.documentation_of_state(index);
        let must_use = match self.graph.successors(index).next() {
            Some(_) => "#[must_use = \"the session goes on with the endpoint inside\"]",
            None => "",
        };
        let name = self.code.name(&self.state_name(index), state.name.at);
        let plain = self.state_name(index);
        self.code.push(&format!(
            "{documentation}
            {must_use}
            pub enum {name}{declared} {{ {variants} }}
            impl{declared} ::core::fmt::Debug for self::{plain}{own} {{
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{
                    f.write_str(match self {{ {shown} }})
                }}
            }}"
        ));
    }
}
