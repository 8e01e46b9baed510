//! The rules of one role, found by topic or filter: a node for each beginning of a rule's filter.
//!
//! A filter is found by the rules that cover it: each topic that it asks for is one of theirs. For
//! a topic, which has no wildcards, that is the same as matching. It is decided level by level, so
//! a rule for `+/#` does not cover `#`, though no topic tells them apart.
//!
//! The walk is as deep as the deepest rule, and visits each node at most once.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::{Claims, PolicyError};

/// The names that placeholders stand for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    pub(super) user: Option<&'a str>,
    pub(super) client: &'a str,
    pub(super) claims: Option<&'a Claims>,
}

#[derive(Debug)]
pub(super) struct RuleTree {
    nodes: Vec<Node>,
    /// A filter in it has `{user}`.
    pub(super) names_user: bool,
    /// A filter in it has `{client}`.
    pub(super) names_client: bool,
    /// A filter in it has `{role}`.
    pub(super) names_roles: bool,
    /// The names of values in its filters: `{claim.NAME}`.
    pub(super) named_claims: BTreeSet<Box<str>>,
}

/// What is known about one beginning of a filter.
#[derive(Debug, Default)]
struct Node {
    /// Rules whose filter ends here, by their numbers.
    exact: SmallVec<[u32; 2]>,
    /// Rules whose filter ends here with `/#`; in the root, those of `#`.
    subtree: SmallVec<[u32; 2]>,
    children: BTreeMap<Box<str>, usize>,
    /// The child for `+`.
    plus: Option<usize>,
    /// Children by a level with a placeholder in it.
    named: Vec<(Level, usize)>,
}

/// A level of a filter with a placeholder in it.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Level(Vec<Part>);

/// A text, or a placeholder.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Part {
    Text(Box<str>),
    User,
    Client,
    Role,
    Claim(Box<str>),
}

impl RuleTree {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node::default()],
            names_user: false,
            names_client: false,
            names_roles: false,
            named_claims: BTreeSet::new(),
        }
    }

    /// Adds a rule; its filter is a topic filter if placeholders are taken for text.
    pub(super) fn insert(&mut self, filter: &str, rule: u32) -> Result<(), PolicyError> {
        let mut at = ROOT;
        for level in filter.split('/') {
            if level == "#" {
                self.nodes[at].subtree.push(rule);
                return Ok(());
            }
            at = self.child_or_insert(at, level)?;
        }
        self.nodes[at].exact.push(rule);
        Ok(())
    }

    fn child_or_insert(&mut self, at: usize, level: &str) -> Result<usize, PolicyError> {
        let fresh = self.nodes.len();
        let node = &mut self.nodes[at];
        let child = if level == "+" {
            *node.plus.get_or_insert(fresh)
        } else {
            let level = Level::parse(level)?;
            self.names_user |= level.0.contains(&Part::User);
            self.names_client |= level.0.contains(&Part::Client);
            self.names_roles |= level.0.contains(&Part::Role);
            self.named_claims.extend(level.claims());
            match level.into_text() {
                Ok(text) => *node.children.entry(text).or_insert(fresh),
                Err(level) => {
                    let found = node.named.iter().find(|(other, _)| *other == level);
                    let found = found.map(|(_, child)| *child);
                    found.unwrap_or_else(|| {
                        node.named.push((level, fresh));
                        fresh
                    })
                }
            }
        };
        if child == fresh {
            self.nodes.push(Node::default());
        }
        Ok(child)
    }

    /// Visits the rules that cover a topic or filter, until the visitor has seen enough and says
    /// `false`.
    pub(super) fn covering(
        &self,
        filter: &str,
        names: Names<'_>,
        mut visit: impl FnMut(u32) -> bool,
    ) {
        let walk = Walk {
            tree: self,
            levels: filter.split('/').collect(),
            // A leading wildcard or placeholder does not reach the `$` topics.
            is_dollar: filter.starts_with('$'),
            names,
        };
        walk.visit(ROOT, 0, &mut visit);
    }
}

struct Walk<'a> {
    tree: &'a RuleTree,
    levels: SmallVec<[&'a str; 16]>,
    is_dollar: bool,
    names: Names<'a>,
}

impl Walk<'_> {
    /// Answers whether the visitor wants more. `depth`: levels that the way to the node covers.
    fn visit(&self, at: usize, depth: usize, visit: &mut impl FnMut(u32) -> bool) -> bool {
        let node = &self.tree.nodes[at];
        let is_hidden = depth == 0 && self.is_dollar;
        if !is_hidden && !node.subtree.iter().all(|rule| visit(*rule)) {
            return false;
        }
        let Some(level) = self.levels.get(depth).copied() else {
            return node.exact.iter().all(|rule| visit(*rule));
        };
        if level == "#" {
            return true;
        }
        let child = node.children.get(level).copied();
        let plus = node.plus.filter(|_| !is_hidden);
        let named = node.named.iter().filter(|_| !is_hidden);
        let named =
            named.filter_map(|(named, child)| named.is(level, self.names).then_some(*child));
        let mut next = child.into_iter().chain(plus).chain(named);
        next.all(|child| self.visit(child, depth + 1, visit))
    }
}

impl Level {
    pub(super) fn parse(text: &str) -> Result<Self, PolicyError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            literal.push_str(before);
            if let Some(behind) = behind.strip_prefix('{') {
                literal.push('{');
                rest = behind;
                continue;
            }
            let unknown = || PolicyError::Placeholder(text.into());
            let (name, behind) = behind.split_once('}').ok_or_else(unknown)?;
            let part = match name {
                "user" => Part::User,
                "client" => Part::Client,
                "role" => Part::Role,
                _ => match name.strip_prefix("claim.") {
                    Some(name) if !name.is_empty() => Part::Claim(name.into()),
                    _ => return Err(unknown()),
                },
            };
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal).into()));
            }
            parts.push(part);
            rest = behind;
        }
        literal.push_str(rest);
        if !literal.is_empty() || parts.is_empty() {
            parts.push(Part::Text(literal.into()));
        }
        Ok(Self(parts))
    }

    pub(super) fn into_parts(self) -> Vec<Part> {
        self.0
    }

    /// Its text, if there is no placeholder in it.
    fn into_text(mut self) -> Result<Box<str>, Self> {
        match self.0.pop() {
            Some(Part::Text(text)) if self.0.is_empty() => Ok(text),
            last => {
                self.0.extend(last);
                Err(self)
            }
        }
    }

    /// The names of values in it.
    fn claims(&self) -> impl Iterator<Item = Box<str>> {
        self.0.iter().filter_map(|part| match part {
            Part::Claim(name) => Some(name.clone()),
            Part::Text(_) | Part::User | Part::Client | Part::Role => None,
        })
    }

    /// Whether a level of a topic is this one, for a client of these names.
    fn is(&self, level: &str, names: Names<'_>) -> bool {
        is_made_of(&self.0, level, names)
    }
}

/// Whether a text is these parts, one after the other: `{role}` may be any of the client's.
fn is_made_of(parts: &[Part], text: &str, names: Names<'_>) -> bool {
    let Some((part, parts)) = parts.split_first() else {
        return text.is_empty();
    };
    let goes_on = |begin: &str| {
        let rest = text.strip_prefix(begin);
        rest.is_some_and(|rest| is_made_of(parts, rest, names))
    };
    let claims = names.claims;
    match part {
        Part::Text(text) => goes_on(text),
        Part::User => names.user.is_some_and(goes_on),
        Part::Client => goes_on(names.client),
        Part::Role => claims.is_some_and(|claims| claims.roles().any(goes_on)),
        Part::Claim(name) => claims.and_then(|it| it.value(name)).is_some_and(goes_on),
    }
}

const ROOT: usize = 0;
