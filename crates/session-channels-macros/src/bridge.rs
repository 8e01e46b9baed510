//! Between the compiler's tokens and ours.

use proc_macro::{
    Delimiter as Around, Group as TokenGroup, Ident, Literal, Punct, Spacing, Span, TokenStream,
    TokenTree,
};

use crate::emit::Code;
use crate::error::Problem;
use crate::tree::{At, Delimiter, Group, Tree};

/// The spans of the tokens that were read, by their number.
#[derive(Default)]
pub(crate) struct Spans(Vec<Span>);

impl Spans {
    fn add(&mut self, span: Span) -> At {
        self.0.push(span);
        At(self.0.len() - 1)
    }

    fn get(&self, at: At) -> Span {
        self.0.get(at.0).copied().unwrap_or_else(Span::call_site)
    }
}

pub(crate) fn read(stream: TokenStream, spans: &mut Spans) -> Vec<Tree> {
    let mut trees = Vec::new();
    for token in stream {
        let at = spans.add(token.span());
        trees.push(match token {
            TokenTree::Ident(word) => Tree::Word(word.to_string(), at),
            TokenTree::Punct(punct) => Tree::Sign {
                sign: punct.as_char(),
                joint: punct.spacing() == Spacing::Joint,
                at,
            },
            TokenTree::Literal(literal) => Tree::Literal(literal.to_string(), at),
            TokenTree::Group(group) => Tree::Group(Group {
                delimiter: match group.delimiter() {
                    Around::Parenthesis => Delimiter::Parenthesis,
                    Around::Brace => Delimiter::Brace,
                    Around::Bracket => Delimiter::Bracket,
                    Around::None => Delimiter::Invisible,
                },
                open: spans.add(group.span_open()),
                close: spans.add(group.span_close()),
                inner: read(group.stream(), spans),
            }),
        });
    }
    trees
}

/// The generated code, with the user's tokens in their places.
pub(crate) fn write(code: &Code, spans: &Spans) -> TokenStream {
    match code.text.parse::<TokenStream>() {
        Ok(template) => fill(template, code, spans),
        Err(error) => write_problems(
            &[Problem::at(
                At::CALL,
                format!("the generated code cannot be read: {error}"),
            )],
            spans,
        ),
    }
}

/// Collects before it makes a stream: each call of a stream's own methods goes to the compiler.
fn fill(template: TokenStream, code: &Code, spans: &Spans) -> TokenStream {
    let mut filled = Vec::new();
    for token in template {
        match token {
            TokenTree::Ident(word) => match placeholder(&word.to_string(), code) {
                Some(tokens) => filled.extend(tokens.iter().map(|tree| unread(tree, spans))),
                None => filled.push(TokenTree::Ident(word)),
            },
            TokenTree::Group(group) => {
                let inner = fill(group.stream(), code, spans);
                let mut whole = TokenGroup::new(group.delimiter(), inner);
                whole.set_span(group.span());
                filled.push(TokenTree::Group(whole));
            }
            other => filled.push(other),
        }
    }
    filled.into_iter().collect()
}

fn placeholder<'a>(word: &str, code: &'a Code) -> Option<&'a [Tree]> {
    let number = word
        .strip_prefix(Code::PLACEHOLDER)?
        .parse::<usize>()
        .ok()?;
    code.tokens.get(number).map(Vec::as_slice)
}

fn unread(tree: &Tree, spans: &Spans) -> TokenTree {
    let span = spans.get(tree.at());
    match tree {
        Tree::Word(word, _) => TokenTree::Ident(match word.strip_prefix("r#") {
            Some(raw) => Ident::new_raw(raw, span),
            None => Ident::new(word, span),
        }),
        Tree::Sign { sign, joint, .. } => {
            let spacing = if *joint {
                Spacing::Joint
            } else {
                Spacing::Alone
            };
            let mut punct = Punct::new(*sign, spacing);
            punct.set_span(span);
            TokenTree::Punct(punct)
        }
        Tree::Literal(text, _) => {
            let mut literal = text
                .parse::<Literal>()
                .expect("it was a literal when it was read");
            literal.set_span(span);
            TokenTree::Literal(literal)
        }
        Tree::Group(group) => {
            let around = match group.delimiter {
                Delimiter::Parenthesis => Around::Parenthesis,
                Delimiter::Brace => Around::Brace,
                Delimiter::Bracket => Around::Bracket,
                Delimiter::Invisible => Around::None,
            };
            let inner = group.inner.iter().map(|tree| unread(tree, spans)).collect();
            let mut whole = TokenGroup::new(around, inner);
            whole.set_span(span);
            TokenTree::Group(whole)
        }
    }
}

/// Errors of the compiler, each at its place.
pub(crate) fn write_problems(problems: &[Problem], spans: &Spans) -> TokenStream {
    let mut stream = TokenStream::new();
    for problem in problems {
        let (from, to) = (spans.get(problem.from), spans.get(problem.to));
        let message = Literal::string(&problem.text);
        let mut tokens: Vec<TokenTree> = "::core::compile_error!"
            .parse::<TokenStream>()
            .map_or_else(|_| Vec::new(), |path| path.into_iter().collect());
        let mut arguments = TokenGroup::new(Around::Brace, TokenTree::Literal(message).into());
        arguments.set_span(to);
        // the compiler points from the span of the first token to that of the last
        for token in &mut tokens {
            token.set_span(from);
        }
        stream.extend(tokens);
        stream.extend([TokenTree::Group(arguments)]);
    }
    stream
}
