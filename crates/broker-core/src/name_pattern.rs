//! Names of clients as configurations write them: `*` stands for any characters.

use std::borrow::Cow;

/// Whether a text is what a pattern with `*` means.
pub(crate) fn is_like(pattern: &str, text: &str) -> bool {
    fits(pattern.split('*').map(Cow::Borrowed), text)
}

/// The same, with `{user}` for a name, which means only itself whatever is in it.
pub(crate) fn is_like_for(pattern: &str, user: &str, text: &str) -> bool {
    let parts = pattern.split('*').map(|part| part.replace(USER, user));
    fits(parts.map(Cow::Owned), text)
}

/// Stands for the name of a user.
pub(crate) const USER: &str = "{user}";

/// Whether the text has these parts in order, the first at its beginning and the last at its end.
/// Takes each part's first place, so the time is that of the parts times the text, at most.
fn fits<'a>(mut parts: impl Iterator<Item = Cow<'a, str>>, text: &str) -> bool {
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(&*first) else {
        return false;
    };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(&*part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(&*last)
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

    #[test]
    fn a_users_name_stands_for_itself_alone() {
        let check = |pattern, user, text, expected| {
            let found = is_like_for(pattern, user, text);
            assert_eq!(found, expected, "{pattern} of {user} and {text}");
        };
        check("{user}", "ann", "ann", true);
        check("{user}-*", "ann", "ann-1", true);
        check("{user}-*", "ann", "anna-1", false);
        check("{user}-*", "*", "ann-1", false);
        check("{user}-*", "*", "*-1", true);
        check("*/{user}", "{user}", "a/{user}", true);
        check("dev-*", "ann", "dev-9", true);
    }
}
