//! `select!` and `select_blocking!`.
//!
//! ```text
//! select := ('biased' ';')? (place | after | else)*
//! place  := PLACE '=>' '{' match arms, one of which may be 'closed' '(' pattern ')' '=>' body '}'
//! after  := 'after' '(' duration ')' '=>' body
//! else   := 'else' '=>' body
//! body   := block ','? | expression without bare commas ','
//! ```
//!
//! The code waits with a function that looks at all places, in which each is borrowed, and after
//! that, when nothing is borrowed any more, takes from the one that was chosen. So a local endpoint
//! is moved only in the arm that runs. The arms are handed on as they are.

use crate::emit::Code;
use crate::error::Problem;
use crate::parse::Cursor;
use crate::tree::{At, Delimiter, Group, Tree, text};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    Async,
    Blocking,
}

#[derive(Debug)]
pub(crate) struct Select {
    is_biased: bool,
    places: Vec<Place>,
    /// The duration and the body.
    after: Option<(Vec<Tree>, Vec<Tree>)>,
    otherwise: Option<Vec<Tree>>,
}

#[derive(Debug)]
struct Place {
    /// An expression that can be looked at repeatedly and taken from.
    path: Vec<Tree>,
    /// What is matched against a message.
    arms: Vec<Tree>,
    closed: Option<Closed>,
}

#[derive(Debug)]
struct Closed {
    pattern: Vec<Tree>,
    body: Vec<Tree>,
}

pub(crate) fn read(input: &[Tree]) -> Result<Select, Vec<Problem>> {
    let mut cursor = Cursor::new(input, At::CALL);
    let mut problems = Vec::new();
    let select = read_arms(&mut cursor, &mut problems).map_err(|problem| vec![problem])?;
    if select.places.is_empty() {
        let text = "there is nothing to wait for: write a place, as in \
                    `endpoint => { Message(next) => .., closed(why) => .. }`";
        problems.push(Problem::at(At::CALL, text));
    }
    if select.otherwise.is_none() {
        for place in select.places.iter().filter(|place| place.closed.is_none()) {
            let name = text(&place.path);
            let words = format!(
                "nothing says what happens when the other side of `{name}` is gone: add \
                 `closed(why) => ..` to its arms, or `else => ..` at the end for when all are gone"
            );
            problems.push(over(&place.path, words));
        }
    }
    if problems.is_empty() {
        Ok(select)
    } else {
        Err(problems)
    }
}

fn read_arms(cursor: &mut Cursor<'_>, problems: &mut Vec<Problem>) -> Result<Select, Problem> {
    let mut select = Select {
        is_biased: false,
        places: Vec::new(),
        after: None,
        otherwise: None,
    };
    if let [biased, semicolon, ..] = cursor.rest()
        && biased.is_word("biased")
        && semicolon.is_sign(';')
    {
        cursor.skip();
        cursor.skip();
        select.is_biased = true;
    }
    while let Some(first) = cursor.peek() {
        let head = head(cursor)?;
        match head {
            [word] if word.is_word("else") => {
                if select.otherwise.replace(body(cursor)?).is_some() {
                    return Err(Problem::at(first.at(), "there is an `else` already"));
                }
            }
            [word, Tree::Group(duration)]
                if word.is_word("after") && duration.delimiter == Delimiter::Parenthesis =>
            {
                let after = (duration.inner.clone(), body(cursor)?);
                if select.after.replace(after).is_some() {
                    return Err(Problem::at(first.at(), "there is an `after` already"));
                }
            }
            place => {
                problems.extend(not_a_place(place));
                let what = format!("`{{` and the arms of `{}`", text(place));
                let arms = cursor.group(Delimiter::Brace, &what)?;
                let (arms, closed) = arms_of(arms)?;
                select.places.push(Place {
                    path: place.to_vec(),
                    arms,
                    closed,
                });
                cursor.sign(',');
            }
        }
    }
    Ok(select)
}

/// What stands before `=>`, which is taken as well.
fn head<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [Tree], Problem> {
    let all = cursor.rest();
    let mut length = 0;
    while cursor.peek().is_some() {
        if cursor.pair('=', '>') {
            return if length == 0 {
                Err(Problem::at(all[0].at(), "expected a place before `=>`"))
            } else {
                Ok(&all[..length])
            };
        }
        cursor.skip();
        length += 1;
    }
    Err(cursor.expected("`=>` after a place, `after(..)` or `else`"))
}

/// A block, or everything up to a comma, which is taken as well.
fn body(cursor: &mut Cursor<'_>) -> Result<Vec<Tree>, Problem> {
    let mut body = Vec::new();
    if let Some(block) = cursor
        .peek()
        .filter(|tree| tree.as_group(Delimiter::Brace).is_some())
    {
        body.push(block.clone());
        cursor.skip();
        cursor.sign(',');
        return Ok(body);
    }
    while let Some(tree) = cursor.peek() {
        if cursor.sign(',') {
            break;
        }
        body.push(tree.clone());
        cursor.skip();
    }
    if body.is_empty() {
        Err(cursor.expected("a block or an expression"))
    } else {
        Ok(body)
    }
}

/// Takes the arm `closed(pattern) => body` out of the arms.
fn arms_of(group: &Group) -> Result<(Vec<Tree>, Option<Closed>), Problem> {
    let mut arms = Vec::new();
    let mut closed = None;
    let mut cursor = Cursor::new(&group.inner, group.close);
    while let Some(tree) = cursor.peek() {
        let begins_arm = arms.last().is_none_or(|before: &Tree| {
            before.is_sign(',') || before.as_group(Delimiter::Brace).is_some()
        });
        match cursor.rest() {
            [word, Tree::Group(pattern), equals, arrow, ..]
                if begins_arm
                    && word.is_word("closed")
                    && pattern.delimiter == Delimiter::Parenthesis
                    && equals.is_sign('=')
                    && arrow.is_sign('>') =>
            {
                for _ in 0..4 {
                    cursor.skip();
                }
                if pattern.inner.is_empty() {
                    let words = "expected a pattern for the reason: `closed(why)` or `closed(_)`";
                    return Err(Problem {
                        from: pattern.open,
                        to: pattern.close,
                        text: words.into(),
                    });
                }
                let arm = Closed {
                    pattern: pattern.inner.clone(),
                    body: body(&mut cursor)?,
                };
                if closed.replace(arm).is_some() {
                    return Err(Problem::at(
                        word.at(),
                        "there is a `closed` for this place already",
                    ));
                }
            }
            _ => {
                arms.push(tree.clone());
                cursor.skip();
            }
        }
    }
    Ok((arms, closed))
}

/// A place is looked at again and again and then taken from, so it must have a name: a variable,
/// with fields and indices, or what a reference points to.
fn not_a_place(trees: &[Tree]) -> Option<Problem> {
    let names = trees.iter().skip_while(|tree| tree.is_sign('*'));
    let mut after_name = false;
    let is_place = names.clone().next().is_some()
        && names.into_iter().all(|tree| {
            let was_after_name = std::mem::replace(&mut after_name, !tree.is_sign('.'));
            match tree {
                Tree::Word(word, _) => !was_after_name && word != "await" && word != "mut",
                Tree::Literal(..) => !was_after_name,
                Tree::Sign { sign, .. } => *sign == '.' && was_after_name,
                Tree::Group(group) => match group.delimiter {
                    Delimiter::Bracket => was_after_name,
                    Delimiter::Parenthesis => {
                        !was_after_name && not_a_place(&group.inner).is_none()
                    }
                    Delimiter::Invisible => !was_after_name,
                    Delimiter::Brace => false,
                },
            }
        });
    if is_place {
        return None;
    }
    let words = format!(
        "`{}` is not a place: put the endpoint into a variable or a field and write that",
        text(trees)
    );
    Some(over(trees, words))
}

fn over(trees: &[Tree], text: String) -> Problem {
    let from = trees.first().map_or(At::CALL, Tree::at);
    let to = trees.last().map_or(At::CALL, Tree::end);
    Problem { from, to, text }
}

const RT: &str = "::session_channels::rt";

pub(crate) fn emit(select: &Select, waiting: Waiting) -> Code {
    let mut code = Code::default();
    let mut looks = Vec::new();
    let mut takes = Vec::new();
    for (index, arm) in select.places.iter().enumerate() {
        let place = code.place(&arm.path);
        let borrowed = code.place(&borrowed(&arm.path));
        let hears = arm.closed.is_some();
        looks.push(format!(
            "{index} => {RT}::candidate({RT}::Place::find({borrowed}, __context), {hears}),"
        ));
        let (pattern, body) = match &arm.closed {
            Some(closed) => (code.place(&closed.pattern), code.place(&closed.body)),
            None => (
                "_".to_owned(),
                "::core::unreachable!(\"a message was found\")".to_owned(),
            ),
        };
        let arms = code.place(&arm.arms);
        takes.push(format!(
            "{RT}::Selected::Place({index}) => match ({place}).take_selected() {{
                ::core::result::Result::Ok(__message) => match __message {{ {arms} }},
                ::core::result::Result::Err({pattern}) => {body},
            }},"
        ));
    }
    let mut deadline = "::core::option::Option::None".to_owned();
    if let Some((duration, body)) = &select.after {
        deadline = format!("{RT}::deadline({})", code.place(duration));
        takes.push(format!("{RT}::Selected::TimedOut => {},", code.place(body)));
    }
    if let Some(body) = &select.otherwise {
        takes.push(format!("{RT}::Selected::Nothing => {},", code.place(body)));
    }
    let (wait, end) = match waiting {
        Waiting::Async => ("select_wait", ".await"),
        Waiting::Blocking => ("select_wait_blocking", ""),
    };
    let order = if select.is_biased { "Biased" } else { "Fair" };
    let (count, ends) = (select.places.len(), select.otherwise.is_some());
    let (looks, takes) = (looks.concat(), takes.concat());
    code.push(&format!(
        "{{
            #[allow(unused_imports, reason = \"it depends on the places\")]
            use {RT}::{{TakeHeld as _, TakeLocal as _}};
            let __deadline = {deadline};
            let __selected = {RT}::{wait}(
                {count},
                |__place: usize, __context: ::core::option::Option<&::core::task::Context<'_>>| {{
                    match __place {{
                        {looks}
                        _ => ::core::task::Poll::Ready(false),
                    }}
                }},
                {RT}::Order::{order},
                __deadline,
                {ends},
            ){end};
            match __selected {{
                {takes}
                _ => ::core::unreachable!(\"only what is waited for is selected\"),
            }}
        }}"
    ));
    code
}

/// `&mut place`, such that an error about it points at the place.
fn borrowed(place: &[Tree]) -> Vec<Tree> {
    let at = place.first().map_or(At::CALL, Tree::at);
    let mut borrowed = vec![
        Tree::Sign {
            sign: '&',
            joint: false,
            at,
        },
        Tree::Word("mut".to_owned(), at),
    ];
    borrowed.extend_from_slice(place);
    borrowed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::from_text::trees;

    #[test]
    fn everything_that_can_be_written_is_read() {
        let select = read(&trees(
            "biased;
             self.bank => {
                 Connected::Deposit(m, next) if m > 0 => { closed(m) }
                 closed(Closed { why, .. }) => return Err(why),
                 Bye => done(),
             }
             *(slot), a.0[i] => { }
             after(ms(5)) => tick(1, 2),
             else => { }",
        ));
        let problems = select.map(drop).expect_err("a place has a comma");
        assert!(
            problems[0]
                .text
                .starts_with("`*(slot), a.0[i]` is not a place"),
            "{problems:?}"
        );

        let select = read(&trees(
            "biased;
             self.bank => {
                 Connected::Deposit(m, next) if m > 0 => { closed(m) }
                 closed(Closed { why, .. }) => return Err(why),
                 Bye => done(),
             },
             *slot => { _ => 1, }
             after(ms(5)) => tick(1, 2),
             else => { }",
        ));
        let select = select.expect("it is right");
        let [bank, slot] = select.places.as_slice() else {
            panic!("{select:?}")
        };
        assert!(select.is_biased && slot.closed.is_none());
        let closed = bank.closed.as_ref().expect("it is there");
        assert_eq!(text(&closed.pattern), "Closed{why, ..}");
        assert_eq!(text(&closed.body), "return Err(why)");
        let rest = "Connected::Deposit(m, next)if m> 0 => {closed(m)}Bye => done(),";
        assert_eq!(text(&bank.arms), rest);
        assert_eq!(
            select.after.map(|(_, body)| text(&body)).as_deref(),
            Some("tick(1, 2)")
        );
        assert!(select.otherwise.is_some());
    }

    #[track_caller]
    fn check_refused(source: &str, expected: &str) {
        let problems = read(&trees(source))
            .map(drop)
            .expect_err("it must be refused");
        assert!(problems[0].text.contains(expected), "{problems:?}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        check_refused("", "there is nothing to wait for");
        check_refused(
            "a => { M => 1 }",
            "the other side of `a` is gone: add `closed(why) => ..`",
        );
        check_refused(
            "a => { M => 1, closed() => 2 }",
            "`closed(why)` or `closed(_)`",
        );
        check_refused(
            "a => { closed(_) => 1, closed(_) => 2 }",
            "a `closed` for this place already",
        );
        check_refused("a => { } else => 1, else => 2", "an `else` already");
        check_refused(
            "a => { closed(_) => 1 } after(d) => 1, after(d) => 2",
            "an `after` already",
        );
        check_refused("a => M", "expected `{` and the arms of `a`");
        check_refused("a", "expected `=>`");
        check_refused("a => { } else => ", "expected a block or an expression");
    }

    #[test]
    fn only_places_are_places() {
        for place in ["a", "self.a", "a.0", "a[i].b", "*a", "(*a).b", "(a)"] {
            assert_eq!(not_a_place(&trees(place)), None, "{place}");
        }
        for other in [
            "a()", "a.b()", "&mut a", "a?", "{ a }", "a b", "f.await", "a::B", "a + b",
        ] {
            assert!(not_a_place(&trees(other)).is_some(), "{other}");
        }
    }
}
