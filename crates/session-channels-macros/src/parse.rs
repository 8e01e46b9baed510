//! From tokens to a [`Protocol`].
//!
//! ```text
//! protocol  := note* visibility? name parameters? '{' state* '}'
//! state     := note* name parameters? ':' direction '{' messages '}' [,;]?
//! direction := ('send' | 'recv') ('(' number ')')?
//! messages  := (message (',' message)* ','?)?
//! message   := note* name ('(' types ')')? '->' (name ('<' types '>')? | '!')
//! note      := '#[doc ..]' | '#[forever]'
//! ```
//!
//! A message that cannot be read is reported and skipped; what follows a state that cannot be read
//! is not looked at. Types are not understood, only delimited.

use crate::error::Problem;
use crate::model::{Capacity, Direction, Message, Name, Notes, Parameter, Protocol, State, Step};
use crate::tree::{At, Delimiter, Group, Tree, passed_on, text};

/// More messages in flight than this are a queue, for which a protocol is the wrong place.
pub(crate) const CAPACITY_MAX: u32 = 65_536;

type Parsed<T> = Result<T, Problem>;

pub(crate) fn protocol(input: &[Tree]) -> Result<Protocol, Vec<Problem>> {
    let mut problems = Vec::new();
    match read_protocol(&mut Cursor::new(input, At::CALL), &mut problems) {
        Ok(protocol) if problems.is_empty() => Ok(protocol),
        Ok(_) => Err(problems),
        Err(problem) => {
            problems.push(problem);
            Err(problems)
        }
    }
}

fn read_protocol(cursor: &mut Cursor<'_>, problems: &mut Vec<Problem>) -> Parsed<Protocol> {
    let notes = notes(cursor)?;
    let visibility = visibility(cursor);
    let name = name(cursor, "the name of the protocol, as in `pub bank { .. }`")?;
    let parameters = parameters(cursor)?;
    let body = cursor.group(Delimiter::Brace, "`{` and the states of the protocol")?;
    if cursor.peek().is_some() {
        return Err(cursor.expected("nothing more: a call of `proto!` has one protocol"));
    }
    let mut inside = Cursor::new(&body.inner, body.close);
    let mut states = Vec::new();
    while inside.peek().is_some() {
        states.push(state(&mut inside, problems)?);
        let _separated = inside.sign(',') || inside.sign(';');
    }
    if states.is_empty() {
        let text = format!(
            "protocol `{}` has no states: write one, as in `start: send {{ Hello -> ! }}`",
            name.text
        );
        return Err(Problem::at(name.at, text));
    }
    Ok(Protocol {
        notes,
        visibility,
        name,
        parameters,
        states,
    })
}

fn state(cursor: &mut Cursor<'_>, problems: &mut Vec<Problem>) -> Parsed<State> {
    let notes = notes(cursor)?;
    let name = name(cursor, "the name of a state, as in `login: send { .. }`")?;
    let parameters = parameters(cursor)?;
    if !cursor.sign(':') {
        return Err(cursor.expected(&format!("`:` after the state `{}`", name.text)));
    }
    let direction = if cursor.word("send") {
        Direction::Send
    } else if cursor.word("recv") {
        Direction::Receive
    } else {
        let what = format!(
            "`send` or `recv`: what the client does in state `{}`",
            name.text
        );
        return Err(cursor.expected(&what));
    };
    let capacity = match cursor
        .peek()
        .and_then(|tree| tree.as_group(Delimiter::Parenthesis))
    {
        Some(group) => {
            cursor.skip();
            Some(capacity(group, &name)?)
        }
        None => None,
    };
    let what = format!("`{{` and the messages of state `{}`", name.text);
    let body = cursor.group(Delimiter::Brace, &what)?;
    let mut messages = Vec::new();
    let mut inside = Cursor::new(&body.inner, body.close);
    while inside.peek().is_some() {
        match message(&mut inside, &name) {
            Ok(message) => messages.push(message),
            Err(problem) => {
                problems.push(problem);
                inside.skip_to_comma();
            }
        }
        if !inside.sign(',') && inside.peek().is_some() {
            problems.push(inside.expected("`,` between two messages"));
            inside.skip_to_comma();
            inside.sign(',');
        }
    }
    Ok(State {
        notes,
        name,
        parameters,
        direction,
        capacity,
        messages,
    })
}

fn capacity(group: &Group, state: &Name) -> Parsed<Capacity> {
    let number = match passed_on(&group.inner) {
        [Tree::Literal(digits, _)] => digits.replace('_', "").parse::<u32>().ok(),
        _ => None,
    };
    match number {
        Some(messages) if (1..=CAPACITY_MAX).contains(&messages) => Ok(Capacity {
            messages,
            at: group.open,
        }),
        _ => {
            let text = format!(
                "the capacity of state `{}` is a number of messages from 1 to {CAPACITY_MAX}, \
                 not `{}`",
                state.text,
                text(&group.inner)
            );
            Err(Problem {
                from: group.open,
                to: group.close,
                text,
            })
        }
    }
}

fn message(cursor: &mut Cursor<'_>, state: &Name) -> Parsed<Message> {
    let notes = notes(cursor)?;
    let what = format!(
        "a message of state `{}`, as in `Deposit(Money) -> done`",
        state.text
    );
    let name = name(cursor, &what)?;
    let mut arguments = Vec::new();
    if let Some(group) = cursor
        .peek()
        .and_then(|tree| tree.as_group(Delimiter::Parenthesis))
    {
        cursor.skip();
        arguments = types(&group.inner, group.close)?;
    }
    if !cursor.arrow() {
        let what = format!(
            "`->` and the state after message `{}`, or `-> !`",
            name.text
        );
        return Err(cursor.expected(&what));
    }
    let step = if cursor.sign('!') {
        None
    } else {
        let what = format!("a state, or `!` for the end, after message `{}`", name.text);
        let name = self::name(cursor, &what)?;
        let arguments = match cursor.angles()? {
            Some((inner, close)) => types(inner, close)?,
            None => Vec::new(),
        };
        Some(Step { name, arguments })
    };
    Ok(Message {
        notes,
        name,
        arguments,
        step,
    })
}

fn notes(cursor: &mut Cursor<'_>) -> Parsed<Notes> {
    let mut notes = Notes::default();
    while let Some(hash) = cursor.peek().filter(|tree| tree.is_sign('#')) {
        cursor.skip();
        let group = cursor.group(Delimiter::Bracket, "an attribute after `#`")?;
        let inner = passed_on(&group.inner);
        match inner.first() {
            Some(word) if word.is_word("doc") => {
                notes.documentation.push(Tree::Group(group.clone()));
            }
            Some(word) if word.is_word("forever") && inner.len() == 1 => {
                notes.forever = Some(word.at());
            }
            _ => {
                let text = format!(
                    "`#[{}]` has no meaning here: only documentation and `#[forever]` do",
                    text(&group.inner)
                );
                return Err(Problem {
                    from: hash.at(),
                    to: group.close,
                    text,
                });
            }
        }
    }
    Ok(notes)
}

fn visibility(cursor: &mut Cursor<'_>) -> Vec<Tree> {
    let mut visibility = Vec::new();
    match cursor.peek() {
        // what `$vis:vis` of a `macro_rules!` becomes
        Some(tree) if tree.as_group(Delimiter::Invisible).is_some() => {
            visibility.push(tree.clone());
            cursor.skip();
        }
        Some(tree) if tree.is_word("pub") => {
            visibility.push(tree.clone());
            cursor.skip();
            let within = cursor
                .peek()
                .filter(|tree| tree.as_group(Delimiter::Parenthesis).is_some());
            if let Some(within) = within {
                visibility.push(within.clone());
                cursor.skip();
            }
        }
        _ => {}
    }
    visibility
}

fn name(cursor: &mut Cursor<'_>, what: &str) -> Parsed<Name> {
    const NO_NAMES: [&str; 6] = ["_", "self", "Self", "super", "crate", "pub"];
    match cursor.peek() {
        Some(Tree::Word(word, at)) if !NO_NAMES.contains(&word.as_str()) => {
            cursor.skip();
            let text = word.strip_prefix("r#").unwrap_or(word).to_owned();
            Ok(Name { text, at: *at })
        }
        _ => Err(cursor.expected(what)),
    }
}

fn parameters(cursor: &mut Cursor<'_>) -> Parsed<Vec<Parameter>> {
    let Some((inner, close)) = cursor.angles()? else {
        return Ok(Vec::new());
    };
    let mut parameters = Vec::new();
    for part in between_commas(inner) {
        let mut cursor = Cursor::new(part, close);
        if cursor
            .peek()
            .is_some_and(|tree| tree.is_sign('\'') || tree.is_word("const"))
        {
            return Err(cursor.expected("a type parameter: others are not supported"));
        }
        let name = name(&mut cursor, "a type parameter, as in `<T: Send>`")?;
        let bounds = if cursor.sign(':') { cursor.rest() } else { &[] };
        if let Some(equals) = bounds_end(bounds) {
            let text = format!("type parameter `{}` cannot have a default", name.text);
            return Err(Problem::at(equals.at(), text));
        }
        if bounds.is_empty() && cursor.peek().is_some() {
            return Err(cursor.expected("`:`, `,` or `>` after a type parameter"));
        }
        parameters.push(Parameter {
            name,
            bounds: bounds.to_vec(),
        });
    }
    Ok(parameters)
}

/// An `=` outside angle brackets, which would begin a default.
fn bounds_end(bounds: &[Tree]) -> Option<&Tree> {
    let mut angles = Angles::default();
    bounds
        .iter()
        .find(|tree| angles.after(tree) == 0 && tree.is_sign('='))
}

/// Types with commas between them.
fn types(trees: &[Tree], close: At) -> Parsed<Vec<Vec<Tree>>> {
    let parts = between_commas(trees);
    if let Some(empty) = parts.iter().position(|part| part.is_empty()) {
        let before = parts[..empty].last().and_then(|part| part.last());
        let at = before.map_or(close, Tree::end);
        return Err(Problem::at(at, "expected a type between two commas"));
    }
    Ok(parts.into_iter().map(<[Tree]>::to_vec).collect())
}

/// The parts between the commas that stand in no angle brackets. A comma at the end is allowed.
fn between_commas(trees: &[Tree]) -> Vec<&[Tree]> {
    let mut parts = Vec::new();
    let mut begin = 0;
    let mut angles = Angles::default();
    for (index, tree) in trees.iter().enumerate() {
        if angles.after(tree) == 0 && tree.is_sign(',') {
            parts.push(&trees[begin..index]);
            begin = index + 1;
        }
    }
    if begin < trees.len() {
        parts.push(&trees[begin..]);
    }
    parts
}

/// How many angle brackets are open, token by token.
#[derive(Default)]
struct Angles {
    open: usize,
    /// Whether a `>` would belong to an arrow.
    in_arrow: bool,
}

impl Angles {
    /// The depth after this token.
    fn after(&mut self, tree: &Tree) -> usize {
        let begins_arrow = matches!(
            tree,
            Tree::Sign {
                sign: '-' | '=',
                joint: true,
                ..
            }
        );
        let was_in_arrow = std::mem::replace(&mut self.in_arrow, begins_arrow);
        match tree {
            Tree::Sign { sign: '<', .. } => self.open += 1,
            Tree::Sign { sign: '>', .. } if !was_in_arrow => {
                self.open = self.open.saturating_sub(1);
            }
            _ => {}
        }
        self.open
    }
}

/// A place in a list of tokens.
pub(crate) struct Cursor<'a> {
    trees: &'a [Tree],
    /// Where to point when something is missing at the end.
    end: At,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(trees: &'a [Tree], end: At) -> Self {
        Self { trees, end }
    }

    pub(crate) fn peek(&self) -> Option<&'a Tree> {
        self.trees.first()
    }

    pub(crate) fn rest(&self) -> &'a [Tree] {
        self.trees
    }

    pub(crate) fn skip(&mut self) {
        self.trees = self.trees.get(1..).unwrap_or_default();
    }

    /// Takes this word if it is next.
    pub(crate) fn word(&mut self, word: &str) -> bool {
        let is_next = self.peek().is_some_and(|tree| tree.is_word(word));
        if is_next {
            self.skip();
        }
        is_next
    }

    /// Takes this sign if it is next.
    pub(crate) fn sign(&mut self, sign: char) -> bool {
        let is_next = self.peek().is_some_and(|tree| tree.is_sign(sign));
        if is_next {
            self.skip();
        }
        is_next
    }

    fn arrow(&mut self) -> bool {
        self.pair('-', '>')
    }

    /// Takes these two signs if they are next and one.
    pub(crate) fn pair(&mut self, first: char, second: char) -> bool {
        let is_next = matches!(
            self.trees,
            [Tree::Sign { sign: left, joint: true, .. }, Tree::Sign { sign: right, .. }, ..]
                if *left == first && *right == second
        );
        if is_next {
            self.trees = &self.trees[2..];
        }
        is_next
    }

    pub(crate) fn group(&mut self, delimiter: Delimiter, what: &str) -> Parsed<&'a Group> {
        match self.peek().and_then(|tree| tree.as_group(delimiter)) {
            Some(group) => {
                self.skip();
                Ok(group)
            }
            None => Err(self.expected(what)),
        }
    }

    /// What stands between `<` and its `>`, and where that is, if a `<` is next.
    fn angles(&mut self) -> Parsed<Option<(&'a [Tree], At)>> {
        let Some(open) = self.peek().filter(|tree| tree.is_sign('<')) else {
            return Ok(None);
        };
        let mut angles = Angles::default();
        for (index, tree) in self.trees.iter().enumerate() {
            if angles.after(tree) == 0 {
                let inner = &self.trees[1..index];
                self.trees = &self.trees[index + 1..];
                return Ok(Some((inner, tree.at())));
            }
        }
        Err(Problem::at(open.at(), "this `<` has no `>`"))
    }

    fn skip_to_comma(&mut self) {
        while self.peek().is_some_and(|tree| !tree.is_sign(',')) {
            self.skip();
        }
    }

    pub(crate) fn expected(&self, what: &str) -> Problem {
        match self.peek() {
            Some(tree) => Problem {
                from: tree.at(),
                to: tree.end(),
                text: format!("expected {what}"),
            },
            None => Problem::at(self.end, format!("expected {what}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::from_text::trees;

    fn parsed(source: &str) -> Protocol {
        protocol(&trees(source)).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    /// The first problem, with the input from where it points.
    #[track_caller]
    fn check_refused(source: &str, expected: &str, points_at: &str) {
        let problems = protocol(&trees(source))
            .map(drop)
            .expect_err("must be refused");
        let problem = &problems[0];
        assert!(problem.text.contains(expected), "{problem:?}");
        match problem.from {
            At::CALL => assert_eq!(points_at, ""),
            At(at) => assert!(
                source[at..].starts_with(points_at),
                "at {:?}",
                &source[at..]
            ),
        }
    }

    #[test]
    fn everything_that_can_be_written_is_read() {
        let protocol = parsed(
            "#[doc = \"about\"] pub(crate) feed<T: Fn(A) -> B + 'static, S,> {
                 #[forever] open<U: Into<Vec<T>>>: send(1_024) {
                     #[doc = \"one\"] Item(U, Vec<(T, S)>) -> open<Result<U, T>>,
                     r#type -> close,
                 },
                 close: recv { Done() -> !, Again -> r#loop, }
                 r#loop: send { }
             }",
        );
        assert_eq!(text(&protocol.visibility), "pub(crate)");
        assert_eq!(protocol.notes.documentation.len(), 1);
        let names: Vec<&str> = protocol
            .parameters
            .iter()
            .map(|p| p.name.text.as_str())
            .collect();
        assert_eq!(names, ["T", "S"]);
        assert_eq!(text(&protocol.parameters[0].bounds), "Fn(A) -> B + 'static");
        let [open, close, r#loop] = protocol.states.as_slice() else {
            panic!()
        };
        assert_eq!(
            open.capacity.as_ref().map(|capacity| capacity.messages),
            Some(1024)
        );
        assert!(open.notes.forever.is_some() && close.notes.forever.is_none());
        assert_eq!(text(&open.parameters[0].bounds), "Into<Vec<T>>");
        let [item, r#type] = open.messages.as_slice() else {
            panic!()
        };
        let arguments: Vec<String> = item.arguments.iter().map(|ty| text(ty)).collect();
        assert_eq!(arguments, ["U", "Vec<(T, S)>"]);
        let step = item.step.as_ref().expect("a state");
        assert_eq!(
            step.arguments.iter().map(|ty| text(ty)).collect::<Vec<_>>(),
            ["Result<U, T>"]
        );
        assert_eq!(r#type.name.text, "type");
        assert_eq!(close.direction, Direction::Receive);
        assert!(close.messages[0].step.is_none());
        assert_eq!(r#loop.name.text, "loop");
    }

    #[test]
    fn bad_syntax_says_what_was_expected() {
        check_refused("", "expected the name of the protocol", "");
        check_refused("bank {}", "protocol `bank` has no states", "bank");
        check_refused("bank ( )", "expected `{` and the states", "(");
        check_refused("b { a: send { M -> ! } } c", "one protocol", "c");
        check_refused(
            "b { a send { } }",
            "expected `:` after the state `a`",
            "send",
        );
        check_refused("b { a: sent { } }", "expected `send` or `recv`", "sent");
        check_refused(
            "b { a: send { M } }",
            "expected `->` and the state after message `M`",
            "} }",
        );
        check_refused("b { a: send { M -> } }", "after message `M`", "} }");
        check_refused(
            "b { a: send { M -> ! N -> ! } }",
            "expected `,` between two",
            "N",
        );
        check_refused("b { a: send { M { x: u8 } -> ! } }", "expected `->`", "{ x");
        check_refused(
            "b { a: send { M(u8,,u8) -> ! } }",
            "a type between two commas",
            "u8,,",
        );
        check_refused(
            "b { #[cold] a: send { M -> ! } }",
            "`#[cold]` has no meaning here",
            "#[",
        );
        check_refused(
            "b<'a> { a: send { M -> ! } }",
            "others are not supported",
            "'a",
        );
        check_refused(
            "b<T: X = u8> { a: send { M -> ! } }",
            "cannot have a default",
            "=",
        );
        check_refused("b<T { a: send { M -> ! } }", "this `<` has no `>`", "<T");
        check_refused(
            "b { _: send { M -> ! } }",
            "expected the name of a state",
            "_",
        );
    }

    #[test]
    fn a_capacity_is_a_number_in_its_range() {
        for (capacity, shown) in [
            ("0", "0"),
            ("65537", "65537"),
            ("n", "n"),
            ("", ""),
            ("1u8", "1u8"),
        ] {
            let source = format!("b {{ a: send({capacity}) {{ M -> a }} }}");
            check_refused(&source, &format!("from 1 to 65536, not `{shown}`"), "(");
        }
    }

    #[test]
    fn every_message_that_cannot_be_read_is_reported() {
        let problems = protocol(&trees("b { a: send { M, N -> !, O( -> ! ) } }"));
        assert_eq!(problems.map(drop).expect_err("two are wrong").len(), 2);
    }
}
