//! Text that a client or a broker chose, as a log line or a table shows it.
//!
//! A name may have any character that UTF-8 has. Some break the line, some change how the text
//! around them is displayed, and some show as nothing, so that two names look alike. Each of these
//! is written as an escape: control characters (general category Cc), format characters (Cf), line
//! and paragraph separators (Zl, Zp), and whatever a font may leave out
//! (Default_Ignorable_Code_Point).
//!
//! Deliberately absent: letters that look like others.

use std::fmt::{self, Display, Write};

/// Text on one line, with escapes in place of what does not show.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a> {
    text: &'a str,
    characters_max: usize,
}

impl<'a> Escaped<'a> {
    /// All of it.
    pub const fn new(text: &'a str) -> Self {
        Self::at_most(text, usize::MAX)
    }

    /// So many characters of it; an ellipsis stands for the rest.
    pub const fn at_most(text: &'a str, characters_max: usize) -> Self {
        Self {
            text,
            characters_max,
        }
    }
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, character) in self.text.chars().enumerate() {
            if index == self.characters_max {
                return f.write_char('…');
            }
            if character == '\\' || !shows(character) {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

/// Whether a character is visible where it stands, and changes nothing around it.
fn shows(character: char) -> bool {
    let is_in = |&(first, last): &(char, char)| (first..=last).contains(&character);
    character.is_ascii_graphic()
        || character == ' '
        || !(character.is_control() || INVISIBLE.iter().any(is_in))
}

/// Cf, Zl, Zp and Default_Ignorable_Code_Point, in order. The last range is reserved for characters
/// of these kinds.
const INVISIBLE: [(char, char); 25] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(chosen: &str, shown: &str) {
        assert_eq!(Escaped::new(chosen).to_string(), shown);
    }

    #[test]
    fn text_stays_on_its_line_and_shows_each_character() {
        check("plain/topic ü 日本 עברית", "plain/topic ü 日本 עברית");
        check("a\nERROR forged", "a\\nERROR forged");
        check("\u{1b}[31mred", "\\u{1b}[31mred");
        check("\u{85}\u{7f}", "\\u{85}\\u{7f}");
        check("back\\slash", "back\\\\slash");
        check("", "");
        for invisible in [
            '\u{ad}',    // soft hyphen
            '\u{61c}',   // Arabic letter mark
            '\u{180e}',  // Mongolian vowel separator
            '\u{200b}',  // zero width space
            '\u{2028}',  // line separator
            '\u{2029}',  // paragraph separator
            '\u{202e}',  // right-to-left override
            '\u{2060}',  // word joiner
            '\u{2066}',  // left-to-right isolate
            '\u{3164}',  // Hangul filler
            '\u{fe0f}',  // variation selector
            '\u{feff}',  // byte order mark
            '\u{fffb}',  // end of an annotation
            '\u{1d173}', // begin of a beam
            '\u{e0041}', // tag of the letter A
            '\u{e01ef}', // variation selector 256
        ] {
            let code = u32::from(invisible);
            check(&format!("a{invisible}b"), &format!("a\\u{{{code:x}}}b"));
        }
    }

    /// The standard library escapes what it takes for unprintable: of the characters it shows as
    /// they are, only fillers and marks that a font may leave out are escaped here.
    #[test]
    fn what_the_standard_library_prints_is_printed_but_for_the_ignorable() {
        for character in (' '..=char::MAX).filter(|character| *character != '\\') {
            let is_printed = character.escape_debug().count() == 1;
            let is_quoted = matches!(character, '"' | '\'');
            if (is_printed || is_quoted) && !shows(character) {
                assert!(
                    matches!(u32::from(character), 0x115f | 0x1160 | 0x3164 | 0xffa0),
                    "{character:?}"
                );
            }
        }
    }

    #[test]
    fn ranges_are_in_order_and_apart() {
        let last = INVISIBLE.iter().map(|(_, last)| last);
        let next = INVISIBLE.iter().skip(1).map(|(first, _)| first);
        assert!(last.zip(next).all(|(last, next)| last < next));
    }

    #[test]
    fn endless_text_is_cut() {
        assert_eq!(Escaped::at_most("abc", 3).to_string(), "abc");
        assert_eq!(Escaped::at_most("abcd", 3).to_string(), "abc…");
    }
}
