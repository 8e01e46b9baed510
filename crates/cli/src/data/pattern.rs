//! Which client ids are meant: a name, or a pattern for many.

/// A client id in which `*` stands for any characters, also for none, and `\*` for itself.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// What is before the first star, between stars, and behind the last; one part if there is
    /// none.
    parts: Vec<String>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        let mut parts = vec![String::new()];
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match (letter, parts.last_mut()) {
                ('*', _) => parts.push(String::new()),
                ('\\', Some(part)) if letters.next_if_eq(&'*').is_some() => part.push('*'),
                (letter, Some(part)) => part.push(letter),
                (_, None) => {}
            }
        }
        Self { parts }
    }

    /// The only client id that it stands for; none if there may be several.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.parts[..] {
            [name] => Some(name),
            _ => None,
        }
    }

    pub(super) fn matches(&self, client_id: &str) -> bool {
        let [first, between @ .., last] = &self.parts[..] else {
            return self.name() == Some(client_id);
        };
        let inner = client_id.strip_prefix(&**first);
        let Some(mut inner) = inner.and_then(|rest| rest.strip_suffix(&**last)) else {
            return false;
        };
        // Where one part is found first leaves most for the next.
        between.iter().all(|part| {
            let found = inner.split_once(&**part);
            inner = found.map_or("", |(_, behind)| behind);
            found.is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters_and_nothing_else_does() {
        for (pattern, fits, fits_not) in [
            ("a", &["a"][..], &["", "aa", "b", "*"][..]),
            ("*", &["", "a", "*"], &[]),
            (
                "sensor-*",
                &["sensor-", "sensor-7"],
                &["sensor", "a-sensor-7"],
            ),
            ("*-7", &["-7", "a-7"], &["7", "-7a"]),
            ("a*a", &["aa", "aba", "aaa"], &["a", "ab"]),
            (
                "a*bc*bc",
                &["abcbc", "axbcxbc", "abcbcbc"],
                &["abc", "abcb"],
            ),
            ("*b*c*", &["bc", "abxcx"], &["cb", "b", ""]),
            (r"\*", &["*"], &["", "a", r"\*"]),
            (r"a\*b*", &["a*b", "a*bc"], &["ab", "axb"]),
            (r"a\\*", &[r"a\*"], &["a*", r"a\b"]),
            (r"a\b?[c]", &[r"a\b?[c]"], &[r"a\bxc"]),
            ("ä*", &["ä", "äö"], &["a"]),
        ] {
            let matched = Pattern::new(pattern);
            for id in fits {
                assert!(matched.matches(id), "{pattern} {id}");
            }
            for id in fits_not {
                assert!(!matched.matches(id), "{pattern} {id}");
            }
        }
        assert_eq!(Pattern::new(r"a\*").name(), Some("a*"));
        assert_eq!(Pattern::new("a*").name(), None);
    }
}
