//! Tokens as trees, independent of the compiler.
//!
//! `proc_macro` works only inside a running macro, so everything between reading and writing is
//! done on these trees: `bridge` makes them and unmakes them, tests make them from text. A token
//! knows its place as a number, which `bridge` alone can turn into a span.

/// The place of a token: its number in the macro's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At(pub(crate) usize);

impl At {
    /// The whole call of the macro.
    pub(crate) const CALL: Self = Self(usize::MAX);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delimiter {
    Parenthesis,
    Brace,
    Bracket,
    /// What a `macro_rules!` puts around the tokens it passes on. Nobody writes it.
    Invisible,
}

impl Delimiter {
    pub(crate) fn signs(self) -> (&'static str, &'static str) {
        match self {
            Self::Parenthesis => ("(", ")"),
            Self::Brace => ("{", "}"),
            Self::Bracket => ("[", "]"),
            Self::Invisible => ("", ""),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tree {
    /// An identifier or keyword, as written (`r#` included).
    Word(String, At),
    /// One sign. `joint` means that the next sign follows without space.
    Sign {
        sign: char,
        joint: bool,
        at: At,
    },
    Literal(String, At),
    Group(Group),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) delimiter: Delimiter,
    pub(crate) inner: Vec<Tree>,
    pub(crate) open: At,
    pub(crate) close: At,
}

impl Tree {
    /// Where it begins.
    pub(crate) fn at(&self) -> At {
        match self {
            Self::Word(_, at) | Self::Sign { at, .. } | Self::Literal(_, at) => *at,
            Self::Group(group) => group.open,
        }
    }

    /// Where it ends.
    pub(crate) fn end(&self) -> At {
        match self {
            Self::Group(group) => group.close,
            other => other.at(),
        }
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(own, _) if own == word)
    }

    pub(crate) fn is_sign(&self, wanted: char) -> bool {
        matches!(self, Self::Sign { sign, .. } if *sign == wanted)
    }

    pub(crate) fn as_group(&self, wanted: Delimiter) -> Option<&Group> {
        match self {
            Self::Group(group) if group.delimiter == wanted => Some(group),
            _ => None,
        }
    }
}

/// What is in an invisible group, if that is all there is: a part that a `macro_rules!` passed on.
pub(crate) fn passed_on(trees: &[Tree]) -> &[Tree] {
    match trees {
        [Tree::Group(group)] if group.delimiter == Delimiter::Invisible => passed_on(&group.inner),
        trees => trees,
    }
}

/// Whether a word that stands at `index` begins a path: nothing is looked up by a word after `::`,
/// after `.`, or in a lifetime.
pub(crate) fn begins_path(trees: &[Tree], index: usize) -> bool {
    let before = |back: usize| index.checked_sub(back).and_then(|place| trees.get(place));
    let after_colons = before(1).is_some_and(|tree| tree.is_sign(':'))
        && before(2).is_some_and(|tree| {
            matches!(
                tree,
                Tree::Sign {
                    sign: ':',
                    joint: true,
                    ..
                }
            )
        });
    let after_sign = before(1).is_some_and(|tree| tree.is_sign('.') || tree.is_sign('\''));
    matches!(trees.get(index), Some(Tree::Word(..))) && !after_colons && !after_sign
}

/// The words that begin a path, in groups as well.
pub(crate) fn path_heads(trees: &[Tree]) -> Vec<&str> {
    let mut heads = Vec::new();
    for (index, tree) in trees.iter().enumerate() {
        match tree {
            Tree::Word(word, _) if begins_path(trees, index) => heads.push(word.as_str()),
            Tree::Group(group) => heads.extend(path_heads(&group.inner)),
            _ => {}
        }
    }
    heads
}

/// The tokens as a person would write them.
pub(crate) fn text(trees: &[Tree]) -> String {
    let mut text = String::new();
    let mut before = String::new();
    for piece in pieces(trees) {
        if space_between(&before, &piece) {
            text.push(' ');
        }
        text.push_str(&piece);
        before = piece;
    }
    text
}

/// Words, groups, and signs, with those signs together that are one.
fn pieces(trees: &[Tree]) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut goes_on = false;
    for tree in trees {
        let was_joint = std::mem::take(&mut goes_on);
        match tree {
            Tree::Word(word, _) | Tree::Literal(word, _) => match pieces.last_mut() {
                Some(quote) if was_joint && quote == "'" => quote.push_str(word),
                _ => pieces.push(word.clone()),
            },
            Tree::Sign { sign, joint, .. } => {
                goes_on = *joint;
                let pair = pieces.last().map(|last| format!("{last}{sign}"));
                match pair {
                    Some(pair) if was_joint && ["::", "->", "=>"].contains(&pair.as_str()) => {
                        pieces.pop();
                        pieces.push(pair);
                    }
                    _ => pieces.push(sign.to_string()),
                }
            }
            Tree::Group(group) => {
                let (open, close) = group.delimiter.signs();
                pieces.push(format!("{open}{}{close}", text(&group.inner)));
            }
        }
    }
    pieces
}

fn space_between(left: &str, right: &str) -> bool {
    let wordy = |piece: &str| {
        let first = piece.chars().next();
        first.is_some_and(|first| first.is_alphanumeric() || first == '_')
    };
    let spaced = ["->", "=>", "=", "+"];
    let ends_word = left.ends_with(|last: char| last.is_alphanumeric() || "_>".contains(last));
    [",", ";", ":"].contains(&left)
        || spaced.contains(&left)
        || (!left.is_empty() && spaced.contains(&right))
        || (ends_word && (wordy(right) || right.starts_with('\'')) && !spaced.contains(&left))
}

/// A reader of Rust tokens for tests: enough for what the tests write.
#[cfg(test)]
pub(crate) mod from_text {
    use super::{At, Delimiter, Group, Tree};

    pub(crate) fn trees(source: &str) -> Vec<Tree> {
        let characters: Vec<char> = source.chars().collect();
        let mut at = 0;
        let trees = level(&characters, &mut at);
        assert_eq!(at, characters.len(), "a bracket too many at {at}");
        trees
    }

    fn level(source: &[char], at: &mut usize) -> Vec<Tree> {
        let mut trees = Vec::new();
        while let Some(&next) = source.get(*at) {
            let begin = At(*at);
            *at += 1;
            match next {
                ')' | '}' | ']' => {
                    *at -= 1;
                    break;
                }
                '(' | '{' | '[' => {
                    let delimiter = match next {
                        '(' => Delimiter::Parenthesis,
                        '{' => Delimiter::Brace,
                        _ => Delimiter::Bracket,
                    };
                    let inner = level(source, at);
                    let close = At(*at);
                    assert_eq!(source[*at].to_string(), delimiter.signs().1);
                    *at += 1;
                    trees.push(Tree::Group(Group {
                        delimiter,
                        inner,
                        open: begin,
                        close,
                    }));
                }
                '"' => {
                    while source[*at] != '"' {
                        *at += 1;
                    }
                    *at += 1;
                    trees.push(Tree::Literal(source[begin.0..*at].iter().collect(), begin));
                }
                _ if next.is_whitespace() => {}
                _ if next.is_alphanumeric() || next == '_' => {
                    while source
                        .get(*at)
                        .is_some_and(|c| c.is_alphanumeric() || *c == '_')
                        || source[begin.0..*at] == ['r'] && source.get(*at) == Some(&'#')
                    {
                        *at += 1;
                    }
                    let word = source[begin.0..*at].iter().collect();
                    trees.push(if next.is_ascii_digit() {
                        Tree::Literal(word, begin)
                    } else {
                        Tree::Word(word, begin)
                    });
                }
                sign => {
                    let after = source.get(*at).copied().unwrap_or(' ');
                    let joint = "+-*/%^!&|=<>@.,;:#$?~'".contains(after)
                        || sign == '\'' && after.is_alphabetic();
                    trees.push(Tree::Sign {
                        sign,
                        joint,
                        at: begin,
                    });
                }
            }
        }
        trees
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_as_written() {
        for written in [
            "Vec<T>",
            "std::sync::Arc<[u8; 4]>",
            "Box<dyn Fn(&'static str, u8) -> Result<T, E> + Send>",
            "&'static mut T",
            "impl Iterator<Item = r#type>",
            "(A, B)",
            "T: Send + 'static",
        ] {
            assert_eq!(text(&from_text::trees(written)), written);
        }
    }

    #[test]
    fn only_the_first_word_of_a_path_is_looked_up() {
        let trees = from_text::trees("a::b<(C, ::d::E), &'f G>");
        assert_eq!(path_heads(&trees), ["a", "C", "G"]);
    }
}
