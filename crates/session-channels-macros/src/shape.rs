//! What a protocol needs of the runtime: one packet that goes to and fro, or rings.
//!
//! A *run* is a stretch of states in which one side goes on sending. Where no run is longer than
//! one message, at most one message exists at a time and a packet will do. Otherwise each direction
//! has a ring with room for its longest run: what a loop lets be in flight, and a slot for each
//! message outside a loop.

use crate::model::{Direction, Graph, Protocol};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// At most one message exists. `sides_waiting` is how many sides may ever wait for one.
    Packet { sides_waiting: u8 },
    /// Slots per direction, 0 where nothing goes that way.
    Rings { to_server: u32, to_client: u32 },
}

pub(crate) fn shape(protocol: &Protocol, graph: &Graph) -> Shape {
    let runs = Runs { protocol, graph };
    let count = protocol.states.len();
    if (0..count).all(|state| graph.successors(state).next().is_none()) {
        Shape::Packet { sides_waiting: 1 }
    } else if (0..count).all(|state| runs.successors(state).next().is_none()) {
        Shape::Packet { sides_waiting: 2 }
    } else {
        Shape::Rings {
            to_server: runs.slots(Direction::Send),
            to_client: runs.slots(Direction::Receive),
        }
    }
}

/// The loops of sends in one direction, each as the indices of its states: sets of states that all
/// reach each other.
pub(crate) fn loops(protocol: &Protocol, graph: &Graph) -> Vec<Vec<usize>> {
    let runs = Runs { protocol, graph };
    let count = protocol.states.len();
    let reached: Vec<Vec<bool>> = (0..count)
        .map(|state| runs.reached_by_a_step(state))
        .collect();
    let mut loops: Vec<Vec<usize>> = Vec::new();
    for state in (0..count).filter(|state| reached[*state][*state]) {
        if loops.iter().all(|known| !known.contains(&state)) {
            let both_ways = |other: &usize| reached[state][*other] && reached[*other][state];
            loops.push((0..count).filter(both_ways).collect());
        }
    }
    loops
}

/// The steps that keep the direction.
struct Runs<'a> {
    protocol: &'a Protocol,
    graph: &'a Graph,
}

impl Runs<'_> {
    fn successors(&self, state: usize) -> impl Iterator<Item = usize> {
        let direction = |state: usize| self.protocol.states[state].direction;
        let own = direction(state);
        self.graph
            .successors(state)
            .filter(move |next| direction(*next) == own)
    }

    fn reached_by_a_step(&self, state: usize) -> Vec<bool> {
        let mut reached = vec![false; self.protocol.states.len()];
        let mut waiting: Vec<usize> = self.successors(state).collect();
        while let Some(state) = waiting.pop() {
            if !std::mem::replace(&mut reached[state], true) {
                waiting.extend(self.successors(state));
            }
        }
        reached
    }

    fn slots(&self, direction: Direction) -> u32 {
        let mut longest = Longest {
            runs: self,
            known: vec![None; self.protocol.states.len()],
        };
        let states = self.protocol.states.iter().enumerate();
        let sending = states.filter(|(_, state)| state.direction == direction);
        sending
            .map(|(state, _)| longest.from(state).slots())
            .max()
            .unwrap_or(0)
    }
}

/// What the runs that begin in a state need.
#[derive(Debug, Clone, Copy, Default)]
struct Need {
    /// The largest capacity of a loop on the way.
    capacity: u32,
    /// The most messages outside loops on one way.
    messages: u32,
}

impl Need {
    fn slots(self) -> u32 {
        self.capacity.saturating_add(self.messages)
    }
}

struct Longest<'a> {
    runs: &'a Runs<'a>,
    known: Vec<Option<Need>>,
}

impl Longest<'_> {
    /// Ends because every state of a loop has a capacity, and those are left by [`Self::exits`].
    fn from(&mut self, state: usize) -> Need {
        if let Some(known) = self.known[state] {
            return known;
        }
        let written = &self.runs.protocol.states[state];
        let (mut need, exits) = match &written.capacity {
            Some(_) => self.around(state),
            None => (Need::default(), self.runs.successors(state).collect()),
        };
        for exit in exits {
            let after = self.from(exit);
            need.capacity = need.capacity.max(after.capacity);
            need.messages = need.messages.max(after.messages);
        }
        if written.capacity.is_none() {
            need.messages = need.messages.saturating_add(1);
        }
        self.known[state] = Some(need);
        need
    }

    /// The largest capacity in the loop of this state, and the states outside that follow it.
    fn around(&self, state: usize) -> (Need, Vec<usize>) {
        let reached = self.runs.reached_by_a_step(state);
        let is_inside =
            |other: &usize| reached[*other] && self.runs.reached_by_a_step(*other)[state];
        let members: Vec<usize> = (0..reached.len()).filter(is_inside).collect();
        let capacity = |member: &usize| {
            self.runs.protocol.states[*member]
                .capacity
                .as_ref()
                .map_or(0, |own| own.messages)
        };
        let capacity = members.iter().map(capacity).max().unwrap_or(0);
        let successors = members
            .iter()
            .flat_map(|member| self.runs.successors(*member));
        let exits = successors.filter(|next| !members.contains(next)).collect();
        (
            Need {
                capacity,
                messages: 0,
            },
            exits,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::parse;
    use crate::tree::from_text::trees;

    #[track_caller]
    fn check_shape(states: &str, expected: Shape) {
        let source = format!("p {{ {states} }}");
        let protocol = parse::protocol(&trees(&source)).expect("it is grammatical");
        let graph = check(&protocol).unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(shape(&protocol, &graph), expected);
    }

    #[test]
    fn a_single_message_is_a_packet_for_which_one_side_waits() {
        check_shape(
            "a: send { M -> !, N -> ! }",
            Shape::Packet { sides_waiting: 1 },
        );
        check_shape("a: recv { M -> ! }", Shape::Packet { sides_waiting: 1 });
    }

    #[test]
    fn strict_alternation_is_a_packet_for_which_both_sides_wait() {
        check_shape(
            "a: send { M -> b, N -> ! } b: recv { O -> a }",
            Shape::Packet { sides_waiting: 2 },
        );
    }

    #[test]
    fn a_loop_needs_its_capacity() {
        check_shape(
            "a: send(256) { M -> a, N -> ! }",
            Shape::Rings {
                to_server: 256,
                to_client: 0,
            },
        );
    }

    #[test]
    fn a_chain_needs_a_slot_for_each_message() {
        check_shape(
            "a: send { M -> b } b: send { M -> c, N -> d } c: recv { M -> ! } d: send { M -> ! }",
            Shape::Rings {
                to_server: 3,
                to_client: 1,
            },
        );
    }

    #[test]
    fn messages_before_and_after_a_loop_need_slots_besides_it() {
        check_shape(
            "a: recv { M -> b } b: recv(8) { M -> c, End -> d } c: recv(4) { M -> b }
             d: recv { M -> e } e: send { M -> a, N -> ! }",
            Shape::Rings {
                to_server: 1,
                to_client: 8 + 2,
            },
        );
    }

    #[test]
    fn the_larger_of_two_loops_counts() {
        check_shape(
            "a: send(2) { M -> a, N -> b } b: send { M -> c } c: send(16) { M -> c, N -> ! }",
            Shape::Rings {
                to_server: 17,
                to_client: 0,
            },
        );
    }
}
