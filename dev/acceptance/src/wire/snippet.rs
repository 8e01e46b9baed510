//! The beginning of a definition for a step that has none.

use super::message::Multiline;

/// Quoted texts and numbers of the step become arguments.
pub(super) fn text(keyword: &str, name: &str, under: Multiline) -> String {
    let macro_name = match keyword {
        "When" => "when",
        "Then" => "then",
        _ => "given",
    };
    let parts = parts(name);
    let pattern: String = parts.iter().map(Part::pattern).collect();
    let arguments = parts.iter().filter_map(Part::argument).enumerate();
    let mut arguments: Vec<_> = arguments
        .map(|(index, kind)| format!(", arg{}: {kind}", index + 1))
        .collect();
    if under != Multiline::None {
        arguments.push(", step: &Step".to_owned());
    }
    let function = function_name(name);
    let arguments = arguments.concat();
    format!(
        "#[{macro_name}(regex = r#\"^{pattern}$\"#)]\n\
         async fn {function}(scene: &mut Scene{arguments}) {{\n    \
             scene.act(move |_| pending(\"write this step\")).await;\n\
         }}"
    )
}

/// A piece of a step.
enum Part<'a> {
    Words(&'a str),
    /// Between quotes.
    Quoted,
    Number,
}

impl Part<'_> {
    fn pattern(&self) -> String {
        match self {
            Self::Words(words) => escaped(words),
            Self::Quoted => "\"([^\"]*)\"".to_owned(),
            Self::Number => "(\\d+)".to_owned(),
        }
    }

    fn argument(&self) -> Option<&'static str> {
        match self {
            Self::Words(_) => None,
            Self::Quoted => Some("String"),
            Self::Number => Some("u64"),
        }
    }
}

fn parts(name: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let pieces: Vec<&str> = name.split('"').collect();
    // A quote that is not closed is a character like others.
    let closed = pieces.len() - 1 - (pieces.len() - 1) % 2;
    let mut rest = name;
    for (index, piece) in pieces.iter().enumerate().take(closed) {
        if index % 2 == 1 {
            parts.push(Part::Quoted);
        } else {
            parts.extend(words(piece));
        }
        rest = &rest[piece.len() + 1..];
    }
    parts.extend(words(rest));
    parts
}

fn words(mut text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let is_number = text.starts_with(|first: char| first.is_ascii_digit());
        let end = text.find(|next: char| next.is_ascii_digit() != is_number);
        let (part, rest) = text.split_at(end.unwrap_or(text.len()));
        parts.push(if is_number {
            Part::Number
        } else {
            Part::Words(part)
        });
        text = rest;
    }
    parts
}

fn escaped(words: &str) -> String {
    let mut pattern = String::new();
    for character in words.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

/// The words of the step, joined.
fn function_name(name: &str) -> String {
    let lower = name.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let joined = words.join("_");
    if joined.starts_with(|first: char| first.is_ascii_lowercase()) {
        joined
    } else {
        format!("step_{joined}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_texts_and_numbers_become_arguments() {
        let expected = "#[when(regex = r#\"^phone sends (\\d+) of \"([^\"]*)\"\\.$\"#)]\n\
            async fn phone_sends_20_of_a_2(scene: &mut Scene, arg1: u64, arg2: String) {\n    \
            scene.act(move |_| pending(\"write this step\")).await;\n\
            }";
        let got = text("When", "phone sends 20 of \"a 2\".", Multiline::None);
        assert_eq!(got, expected);
    }

    #[test]
    fn what_is_under_a_step_is_in_the_step() {
        let got = text("Given", "5\" of rain:", Multiline::Table);
        assert!(
            got.starts_with("#[given(regex = r#\"^(\\d+)\" of rain:$\"#)]"),
            "{got}"
        );
        assert!(
            got.contains("step_5_of_rain(scene: &mut Scene, arg1: u64, step: &Step)"),
            "{got}"
        );
    }
}
