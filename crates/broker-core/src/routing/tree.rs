//! The subscription tree: one node per distinct beginning of a filter.
//!
//! Invariants:
//! - A node other than the root has a subscriber or a child; the last removal takes the empty ones
//!   away.
//! - A level's text is kept once, however many filters use it, and only while one does.
//! - `generation` differs after every call that could change an answer.
//!
//! Memory: a node is 56 bytes, and the edge to it 13 to 30. A subscription alone on its filter is
//! inside the node; one of several takes 16 bytes more, one of very many about 40. A text takes 40
//! to 80 bytes, and its length more if it is longer than 16. Measured with 100,000:
//! `site/+/device/<n>/#` 140 bytes each, `fleet/<n>/cmd` 240, one filter for all 40.
//!
//! Deliberately absent: a cache (see `cache.rs`), any order among filters, and limits; what a walk
//! visits is counted, and bounded by what filters were let in ([`crate::filter_size`]).

use std::cell::Cell;
use std::collections::HashMap;
use std::num::NonZeroU32;

use foldhash::fast::RandomState;
use slab::Slab;
use smallvec::SmallVec;
use unbroken_mqtt_proto::{TopicFilter, TopicName};

use super::cache::Receiver;
use super::list::SubscriberList;
use super::{Grant, Subscriber};
use crate::ids::SessionId;

/// All subscriptions of a shard, found by topic.
#[derive(Debug)]
pub(crate) struct SubscriptionIndex {
    nodes: Slab<Node>,
    /// From a node and the text of the next level to the child. One table for all nodes: most
    /// nodes have one child, and a table each would cost more than the node.
    edges: HashMap<Edge, NodeId, RandomState>,
    names: Names,
    generation: u64,
    /// Nodes that topics have visited, ever.
    visited: Cell<u64>,
}

/// What is known about one beginning of a filter.
#[derive(Debug, Default)]
struct Node {
    /// Those whose filter ends here.
    exact: SubscriberList,
    /// Those whose filter ends here with `/#`; in the root, those of `#`.
    subtree: SubscriberList,
    /// The child for `+`.
    plus: Option<NodeId>,
    /// Children by text and `plus`, counted.
    children: u32,
}

/// A node's place in the slab, plus one, so that `Option<NodeId>` takes four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NodeId(NonZeroU32);

/// A child by text: the node above it and the text of its level.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Edge(u64);

/// One level of a filter on the way down: the node it left, and the text unless it was `+`.
struct Step<'f> {
    from: NodeId,
    text: Option<(&'f str, Symbol)>,
}

/// The way from the root to a node.
type Path<'f> = SmallVec<[Step<'f>; PATH_INLINE]>;

impl SubscriptionIndex {
    pub(crate) fn new() -> Self {
        let mut nodes = Slab::new();
        let root = nodes.insert(Node::default());
        debug_assert_eq!(root, ROOT.key());
        Self {
            nodes,
            edges: HashMap::default(),
            names: Names::default(),
            generation: 1,
            visited: Cell::new(0),
        }
    }

    /// Adds a subscription, or replaces the one this subscriber has with this filter [MQTT-3.8.4-3]
    /// and gives that back.
    pub(crate) fn insert(
        &mut self,
        filter: TopicFilter<'_>,
        subscriber: Subscriber,
        grant: Grant,
    ) -> Option<Grant> {
        self.generation += 1;
        let mut node = ROOT;
        let mut multi_level = false;
        for level in filter.levels() {
            match level {
                // A filter has `#` only at its end [MQTT-4.7.1-1].
                "#" => multi_level = true,
                "+" => node = self.plus_or_insert(node),
                text => node = self.child_or_insert(node, text),
            }
        }
        self.node_mut(node)
            .list_mut(multi_level)
            .insert(subscriber, grant)
    }

    /// Removes a subscription and gives it back; `None` if there is none.
    pub(crate) fn remove(
        &mut self,
        filter: TopicFilter<'_>,
        subscriber: Subscriber,
    ) -> Option<Grant> {
        let mut path = Path::new();
        let mut node = ROOT;
        let mut multi_level = false;
        for level in filter.levels() {
            let (text, child) = match level {
                "#" => {
                    multi_level = true;
                    break;
                }
                "+" => (None, self.node(node).plus?),
                text => {
                    let symbol = self.names.get(text)?;
                    (Some((text, symbol)), self.child(node, symbol)?)
                }
            };
            path.push(Step { from: node, text });
            node = child;
        }
        let removed = self
            .node_mut(node)
            .list_mut(multi_level)
            .remove(subscriber)?;
        self.generation += 1;
        self.prune(path, node);
        Some(removed)
    }

    /// Calls `f` once for each subscription whose filter matches, in an order that is the same as
    /// long as the index does not change.
    pub(crate) fn for_each_match(
        &self,
        topic: TopicName<'_>,
        mut f: impl FnMut(Subscriber, &Grant),
    ) {
        self.walk(topic, |list| {
            for entry in list.entries() {
                f(entry.subscriber, &entry.grant);
            }
        });
    }

    /// What a session gets of a message that it published itself: as in a route, but without its
    /// subscriptions that asked for No Local [MQTT-3.8.3-3]. `None` if nothing is left.
    #[cold]
    pub(crate) fn receiver_of_own(
        &self,
        topic: TopicName<'_>,
        session: SessionId,
    ) -> Option<Receiver> {
        let mut receiver: Option<Receiver> = None;
        self.walk(topic, |list| {
            let grant = list
                .get(Subscriber::Session(session))
                .filter(|grant| !grant.no_local);
            match (&mut receiver, grant) {
                (Some(receiver), Some(grant)) => receiver.merge(grant),
                (None, Some(grant)) => receiver = Some(Receiver::new(session, grant)),
                (_, None) => {}
            }
        });
        receiver
    }

    /// Something else than a subscription has changed that routes depend on.
    pub(crate) fn renew(&mut self) {
        self.generation += 1;
    }

    /// Differs whenever the answer to some topic may differ.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Nodes that topics have visited, ever.
    pub(crate) fn visited(&self) -> u64 {
        self.visited.get()
    }

    /// Nodes, the root included, edges and texts.
    #[cfg(test)]
    pub(super) fn parts(&self) -> (usize, usize, usize) {
        (self.nodes.len(), self.edges.len(), self.names.by_text.len())
    }

    // The walk.
    //
    //   frontier = { root }
    //   for each level of the topic:
    //       every node of the frontier gives its `/#` subscribers,
    //       and sends to the next frontier its child of that text and its child of `+`
    //   every node left gives its subscribers, and those of `/#`: `a/#` matches `a`
    //
    // Level by level rather than depth first, because then a text is looked up once however many
    // nodes wait for it, the look-ups of one level do not wait for each other's memory, and
    // there is no stack to bound: a frontier holds at most as many nodes as filters go that
    // deep. A text that no filter uses has no symbol, and only `+` leads on. Nothing is
    // allocated while a frontier fits into its inline part.
    //
    // Tried and lost: a table of children in each node instead of one for all. As fast at best, a
    // half slower where many nodes have one child, and up to 40 % more memory.
    //
    // Tried and lost, with `examples/levels.rs`: cutting the topic into a buffer with memchr before
    // the walk. 38 ns where `str::split` takes 28 (4 levels, 23 bytes), 48 for 19 (8 levels of one
    // byte), and only with levels of 36 bytes 25 for 39. Byte by byte is 20, 14 and 44: eight ns of
    // a walk that takes hundreds.
    //
    // Half of a walk through 100,000 filters is waiting for memory. Fewer looks at it do not show:
    // see `cache.rs`.
    fn walk<'i>(&'i self, topic: TopicName<'_>, mut visit: impl FnMut(&'i SubscriberList)) {
        let mut frontier: SmallVec<[NodeId; FRONTIER_INLINE]> = SmallVec::new();
        let mut next: SmallVec<[NodeId; FRONTIER_INLINE]> = SmallVec::new();
        frontier.push(ROOT);
        // A topic that begins with `$` is not matched by a wildcard in the first place
        // [MQTT-4.7.2-1].
        let mut wildcards = !topic.is_dollar();
        let mut visited = 0;
        for level in topic.levels() {
            let symbol = self.names.get(level);
            visited += frontier.len();
            for &id in &frontier {
                let node = self.node(id);
                if wildcards {
                    if !node.subtree.is_empty() {
                        visit(&node.subtree);
                    }
                    next.extend(node.plus);
                }
                if let Some(symbol) = symbol
                    && node.has_children_by_text()
                {
                    next.extend(self.child(id, symbol));
                }
            }
            wildcards = true;
            if next.is_empty() {
                return self.note_visited(visited);
            }
            std::mem::swap(&mut frontier, &mut next);
            next.clear();
        }
        self.note_visited(visited + frontier.len());
        for &id in &frontier {
            let node = self.node(id);
            for list in [&node.subtree, &node.exact] {
                if !list.is_empty() {
                    visit(list);
                }
            }
        }
    }

    fn note_visited(&self, nodes: usize) {
        self.visited.set(self.visited.get() + nodes as u64);
    }

    /// Takes away the node at the end of `path`, and those above it, while they hold nothing.
    fn prune(&mut self, mut path: Path<'_>, end: NodeId) {
        let mut node = end;
        while self.node(node).is_unused()
            && let Some(step) = path.pop()
        {
            self.nodes.remove(node.key());
            let above = self.node_mut(step.from);
            above.children -= 1;
            match step.text {
                None => above.plus = None,
                Some((text, symbol)) => {
                    self.edges.remove(&Edge::new(step.from, symbol));
                    self.names.release(text);
                }
            }
            node = step.from;
        }
        if self.edges.len() * 8 < self.edges.capacity() {
            self.edges.shrink_to(self.edges.len() * 2);
            self.nodes.shrink_to_fit();
        }
    }

    fn plus_or_insert(&mut self, from: NodeId) -> NodeId {
        if let Some(child) = self.node(from).plus {
            return child;
        }
        let child = NodeId::from_key(self.nodes.insert(Node::default()));
        let node = self.node_mut(from);
        node.plus = Some(child);
        node.children += 1;
        child
    }

    fn child_or_insert(&mut self, from: NodeId, text: &str) -> NodeId {
        if let Some(child) = self
            .names
            .get(text)
            .and_then(|symbol| self.child(from, symbol))
        {
            return child;
        }
        let child = NodeId::from_key(self.nodes.insert(Node::default()));
        let symbol = self.names.hold(text);
        self.edges.insert(Edge::new(from, symbol), child);
        self.node_mut(from).children += 1;
        child
    }

    fn child(&self, from: NodeId, symbol: Symbol) -> Option<NodeId> {
        self.edges.get(&Edge::new(from, symbol)).copied()
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.key()]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.key()]
    }
}

impl Node {
    fn list_mut(&mut self, multi_level: bool) -> &mut SubscriberList {
        if multi_level {
            &mut self.subtree
        } else {
            &mut self.exact
        }
    }

    fn is_unused(&self) -> bool {
        self.children == 0 && self.exact.is_empty() && self.subtree.is_empty()
    }

    fn has_children_by_text(&self) -> bool {
        self.children > u32::from(self.plus.is_some())
    }
}

impl NodeId {
    fn from_key(key: usize) -> Self {
        u32::try_from(key + 1)
            .ok()
            .and_then(NonZeroU32::new)
            .map(Self)
            .expect("nodes of 56 bytes run out of memory long before 2^32")
    }

    const fn key(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl Edge {
    fn new(from: NodeId, symbol: Symbol) -> Self {
        Self(u64::from(from.0.get()) << 32 | u64::from(symbol.0))
    }
}

/// The text of a level as a number, valid while a filter uses the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Symbol(u32);

/// Texts of levels and their numbers. Numbers are used again after their text has gone.
#[derive(Debug, Default)]
struct Names {
    by_text: HashMap<Text, Name, RandomState>,
    free: Vec<Symbol>,
}

/// The bytes of a level: most are short, and need no memory of their own, nor a look at it when
/// they are compared. With 100,000 filters a text of its own took 21 to 23 bytes more of each.
type Text = SmallVec<[u8; TEXT_INLINE]>;

#[derive(Debug)]
struct Name {
    symbol: Symbol,
    /// Edges with this text.
    edges: u32,
}

impl Names {
    fn get(&self, text: &str) -> Option<Symbol> {
        self.by_text.get(text.as_bytes()).map(|name| name.symbol)
    }

    /// The number of `text`, for one more edge.
    fn hold(&mut self, text: &str) -> Symbol {
        if let Some(name) = self.by_text.get_mut(text.as_bytes()) {
            name.edges += 1;
            return name.symbol;
        }
        // All numbers below the count of texts are in use when none is free.
        let symbol = self.free.pop().unwrap_or_else(|| {
            Symbol(u32::try_from(self.by_text.len()).expect("there are fewer texts than nodes"))
        });
        self.by_text
            .insert(Text::from_slice(text.as_bytes()), Name { symbol, edges: 1 });
        symbol
    }

    /// One edge less has `text`.
    fn release(&mut self, text: &str) {
        let Some(name) = self.by_text.get_mut(text.as_bytes()) else {
            return;
        };
        name.edges -= 1;
        if name.edges > 0 {
            return;
        }
        self.free.push(name.symbol);
        self.by_text.remove(text.as_bytes());
        if self.by_text.is_empty() {
            *self = Self::default();
        } else if self.by_text.len() * 8 < self.by_text.capacity() {
            self.by_text.shrink_to(self.by_text.len() * 2);
        }
    }
}

const ROOT: NodeId = NodeId(NonZeroU32::MIN);

/// Nodes that a topic reaches at one level before the walk needs memory: 64 bytes on the stack,
/// twice.
const FRONTIER_INLINE: usize = 16;

/// Bytes of a level's text before it needs memory of its own: in the room of a pointer to it and
/// its length.
const TEXT_INLINE: usize = 16;

/// Levels of a filter before its removal needs memory.
const PATH_INLINE: usize = 16;

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Node>() == 56, "the figure in the header");
