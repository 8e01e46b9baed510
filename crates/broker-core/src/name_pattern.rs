//! Names of clients as configurations write them: `*` stands for any characters.

/// Whether a text is what a pattern with `*` means. Takes each star's first fit, so the time is
/// that of the pattern's parts times the text, at most.
pub(crate) fn is_like(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = text.find(part) else {
            return false;
        };
        text = &text[at + part.len()..];
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        let check = |pattern, text, expected| {
            assert_eq!(is_like(pattern, text), expected, "{pattern} and {text}");
        };
        check("pump", "pump", true);
        check("pump", "pump1", false);
        check("*", "", true);
        check("pump-*", "pump-1", true);
        check("pump-*", "pomp-1", false);
        check("*-1", "pump-1", true);
        check("a*b*c", "a1b2b3c", true);
        check("a*b*c", "abc", true);
        check("ab*ba", "aba", false);
        check("*é*", "caféa", true);
    }
}
