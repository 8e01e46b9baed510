//! The documentation of the generated code: what the user wrote, and a drawing of the protocol.

use super::{Emitter, Side};
use crate::model::{Direction, Message, Notes, Protocol};
use crate::tree::{Tree, text};

impl Emitter<'_> {
    pub(super) fn documentation_of_protocol(&mut self) -> String {
        let protocol = self.protocol;
        let written = self.notes(&protocol.notes);
        let first = if written.is_empty() {
            let words = format!("The protocol `{}`.", protocol.name.text);
            format!("#[doc = {words:?}]")
        } else {
            written
        };
        let drawing = format!("\n{}\n{}", drawing(protocol), table(protocol));
        format!("{first}\n#[doc = {drawing:?}]")
    }

    pub(super) fn documentation_of_state(&mut self, index: usize) -> String {
        let protocol = self.protocol;
        let state = &protocol.states[index];
        let sender = match state.direction {
            Direction::Send => "client",
            Direction::Receive => "server",
        };
        let words = format!("What the {sender} can send in state `{}`.", state.name.text);
        format!("#[doc = {words:?}]\n{}", self.apart(&state.notes))
    }

    pub(super) fn documentation_of_endpoint(&mut self, index: usize, side: Side) -> String {
        let protocol = self.protocol;
        let state = &protocol.states[index];
        let does = if side.sends_in(state) {
            "sends"
        } else {
            "receives"
        };
        let words = format!(
            "The {} in state `{}`, in which it {does}.",
            side.module(),
            state.name.text
        );
        format!("#[doc = {words:?}]\n{}", self.apart(&state.notes))
    }

    pub(super) fn documentation_of_message(&mut self, state: usize, message: usize) -> String {
        let protocol = self.protocol;
        let message = &protocol.states[state].messages[message];
        let written = self.notes(&message.notes);
        if !written.is_empty() {
            return written;
        }
        let words = match &message.step {
            Some(step) => format!("The session goes on in state `{}`.", step.name.text),
            None => "The session is over.".to_owned(),
        };
        format!("#[doc = {words:?}]")
    }

    /// The user's documentation as a paragraph of its own.
    fn apart(&mut self, notes: &Notes) -> String {
        match self.notes(notes).as_str() {
            "" => String::new(),
            written => format!("#[doc = \"\"]\n{written}"),
        }
    }

    fn notes(&mut self, notes: &Notes) -> String {
        let mut attributes = Vec::new();
        for attribute in &notes.documentation {
            let attribute = self.code.place(std::slice::from_ref(attribute));
            attributes.push(format!("#{attribute}\n"));
        }
        attributes.concat()
    }
}

/// `Deposit(Money)`.
pub(super) fn message_text(message: &Message) -> String {
    let types: Vec<String> = message.arguments.iter().map(|ty| text(ty)).collect();
    super::with_parts(&message.name.text, &types)
}

/// ```text
///                  client                  server
/// > login            ├── Login(User) ────────▶┤  login_response
///   login_response   ├◀── Ok ─────────────────┤  ■
/// ```
fn drawing(protocol: &Protocol) -> String {
    let messages = || protocol.states.iter().flat_map(|state| &state.messages);
    let width = |text: &str| text.chars().count();
    let states = protocol.states.iter().map(|state| {
        width(&head(
            state.name.text.as_str(),
            state.capacity.as_ref().map(|capacity| capacity.messages),
        ))
    });
    let left = states.max().unwrap_or(0);
    let middle = messages()
        .map(|message| width(&message_text(message)))
        .max()
        .unwrap_or(0)
        .max(8);
    let mut drawing = String::from("```text\n");
    let mut line = |text: &str| {
        drawing.push_str(text.trim_end());
        drawing.push('\n');
    };
    line(&format!("{:left$}  client{:middle$}  server", "", ""));
    for state in &protocol.states {
        let capacity = state.capacity.as_ref().map(|capacity| capacity.messages);
        let mut name = head(&state.name.text, capacity);
        for message in &state.messages {
            let shown = message_text(message);
            let rest = "─".repeat(middle - width(&shown));
            let arrow = match state.direction {
                Direction::Send => format!("├── {shown} {rest}──▶┤"),
                Direction::Receive => format!("├◀── {shown} {rest}──┤"),
            };
            let next = next_text(message).unwrap_or_else(|| "■".to_owned());
            line(&format!("{name:left$}    {arrow}  {next}"));
            name.clear();
        }
    }
    drawing.push_str("```\n");
    drawing
}

fn head(state: &str, capacity: Option<u32>) -> String {
    match capacity {
        Some(messages) => format!("{state} ({messages})"),
        None => state.to_owned(),
    }
}

/// The same as a table for those who hear the page.
fn table(protocol: &Protocol) -> String {
    let mut table = vec!["| state | sender | message | then |\n|---|---|---|---|\n".to_owned()];
    for state in &protocol.states {
        let sender = match state.direction {
            Direction::Send => "client",
            Direction::Receive => "server",
        };
        for message in &state.messages {
            let next =
                next_text(message).map_or_else(|| "end".to_owned(), |next| format!("`{next}`"));
            let shown = message_text(message).replace('|', "\\|");
            let row = format!("| `{}` | {sender} | `{shown}` | {next} |", state.name.text);
            table.push(format!("{row}\n"));
        }
    }
    table.concat()
}

fn next_text(message: &Message) -> Option<String> {
    let step = message.step.as_ref()?;
    let types: Vec<String> = step
        .arguments
        .iter()
        .map(|ty: &Vec<Tree>| text(ty))
        .collect();
    let types = super::in_angles(&types);
    Some(format!("{}{types}", step.name.text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use crate::tree::from_text::trees;

    #[test]
    fn the_drawing_shows_every_message() {
        let protocol = parse::protocol(&trees(
            "bank {
                login: send { Login(User, Vec<u8>) -> login_response }
                login_response: recv { Ok -> open, Invalid -> login }
                open: send(8) { Item(T) -> open<T>, Bye -> ! }
            }",
        ));
        let expected = "\
```text
                client                      server
login             ├── Login(User, Vec<u8>) ──▶┤  login_response
login_response    ├◀── Ok ────────────────────┤  open
                  ├◀── Invalid ───────────────┤  login
open (8)          ├── Item(T) ───────────────▶┤  open<T>
                  ├── Bye ───────────────────▶┤  ■
```
";
        assert_eq!(drawing(&protocol.expect("it is grammatical")), expected);
    }
}
