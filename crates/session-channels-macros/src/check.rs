//! Whether a protocol makes sense. Every problem is found in one go.
//!
//! A protocol that passes can be built: each step leads to a state with the right number of types,
//! each state is reached and has messages, and the memory of a session is bounded.

use std::collections::HashMap;

use crate::closure::closure;
use crate::error::{Problem, list};
use crate::model::{Graph, Message, Name, Parameter, Protocol, State, identifier};
use crate::shape::loops;
use crate::tree::path_heads;

pub(crate) fn check(protocol: &Protocol) -> Result<Graph, Vec<Problem>> {
    let mut problems = Vec::new();
    names(protocol, &mut problems);
    bounds(protocol, &mut problems);
    let are_names_clear = problems.is_empty();
    for state in &protocol.states {
        parameters(protocol, state, &mut problems);
        if state.messages.is_empty() {
            let text = format!(
                "state `{}` has no messages: give it one, or let what steps to it end with `-> !`",
                state.name.text
            );
            problems.push(Problem::at(state.name.at, text));
        }
    }
    let graph = match resolve(protocol) {
        Ok(graph) => graph,
        Err(more) => {
            problems.extend(more);
            return Err(problems);
        }
    };
    if are_names_clear {
        unreachable(protocol, &graph, &mut problems);
    }
    capacities(protocol, &graph, &mut problems);
    if problems.is_empty() {
        problems.extend(closure(protocol, &graph).err());
    }
    if problems.is_empty() {
        Ok(graph)
    } else {
        Err(problems)
    }
}

/// The states from which no `!` can be reached and that do not say `#[forever]`, which is worth a
/// warning.
pub(crate) fn endless<'a>(protocol: &'a Protocol, graph: &Graph) -> Vec<&'a State> {
    let ends = |state: usize| graph.next[state].iter().any(Option::is_none);
    let states = protocol.states.iter().enumerate();
    let endless = states.filter(|(index, state)| {
        let reached = graph.reached_from(*index);
        let quiet = protocol.notes.forever.is_some() || state.notes.forever.is_some();
        !quiet && !(0..reached.len()).any(|other| reached[other] && ends(other))
    });
    endless.map(|(_, state)| state).collect()
}

/// What the warning says.
pub(crate) fn endless_text(state: &State) -> String {
    format!(
        "state `{}` cannot reach `!`: such a session ends only when a side is dropped. Let a \
         message end it, or write `#[forever]` before the state or the protocol",
        state.name.text
    )
}

/// Which states the steps mean.
pub(crate) fn resolve(protocol: &Protocol) -> Result<Graph, Vec<Problem>> {
    let states: HashMap<&str, usize> = (0..)
        .zip(&protocol.states)
        .map(|(index, state)| (state.name.text.as_str(), index))
        .collect();
    let mut problems = Vec::new();
    let mut next = Vec::new();
    for state in &protocol.states {
        let mut steps = Vec::new();
        for message in &state.messages {
            steps.push(match target(protocol, &states, state, message) {
                Ok(target) => target,
                Err(problem) => {
                    problems.push(problem);
                    None
                }
            });
        }
        next.push(steps);
    }
    if problems.is_empty() {
        Ok(Graph { next })
    } else {
        Err(problems)
    }
}

fn target(
    protocol: &Protocol,
    states: &HashMap<&str, usize>,
    state: &State,
    message: &Message,
) -> Result<Option<usize>, Problem> {
    let Some(step) = &message.step else {
        return Ok(None);
    };
    let (from, by, to) = (&state.name.text, &message.name.text, &step.name.text);
    let Some(target) = states.get(to.as_str()) else {
        let all = list(protocol.states.iter().map(|state| state.name.text.as_str()));
        let text = format!(
            "message `{by}` of state `{from}` steps to `{to}`, which is no state of `{}`: define \
             it, or step to one of {all}",
            protocol.name.text
        );
        return Err(Problem::at(step.name.at, text));
    };
    let (given, wanted) = (
        step.arguments.len(),
        protocol.states[*target].parameters.len(),
    );
    if given != wanted {
        let plural = if wanted == 1 { "" } else { "s" };
        let mut text = format!(
            "state `{to}` has {wanted} type parameter{plural} of its own, and message `{by}` of \
             state `{from}` gives it {given}"
        );
        if !protocol.parameters.is_empty() {
            text.push_str(": those of the protocol are passed on by themselves");
        }
        return Err(Problem::at(step.name.at, text));
    }
    Ok(Some(*target))
}

/// Names that would become the same name in the generated code.
fn names(protocol: &Protocol, problems: &mut Vec<Problem>) {
    let states = protocol
        .states
        .iter()
        .map(|state| (&state.name, state.name.as_type()));
    twice(states, problems, |first, second, generated| {
        if first.text == second.text {
            format!(
                "state `{}` is defined twice: rename one of them",
                second.text
            )
        } else {
            format!(
                "states `{}` and `{}` both become the type `{generated}`: rename one of them",
                first.text, second.text
            )
        }
    });
    for state in &protocol.states {
        if state.name.as_type().is_empty() {
            let text = format!(
                "state `{}` has no letter to name a type after",
                state.name.text
            );
            problems.push(Problem::at(state.name.at, text));
        }
        let generated = state.messages.iter().flat_map(|message| {
            let method = message.name.as_method();
            let mut methods = vec![format!("try_{method}"), identifier(&method)];
            if state.capacity.is_some() {
                methods.push(format!("{method}_blocking"));
            }
            methods.into_iter().map(|method| (&message.name, method))
        });
        twice(generated, problems, |first, second, generated| {
            if first.text == second.text {
                format!(
                    "message `{}` is in state `{}` twice: rename one of them",
                    second.text, state.name.text
                )
            } else {
                format!(
                    "messages `{}` and `{}` of state `{}` both get a method `{generated}`: rename \
                     one of them",
                    first.text, second.text, state.name.text
                )
            }
        });
        for message in &state.messages {
            let method = message.name.as_method();
            if state.capacity.is_some() && ["room", "has_room", "arm"].contains(&method.as_str()) {
                let text = format!(
                    "message `{}` gets a method `{method}`, which state `{}` has already because \
                     of its capacity: rename the message",
                    message.name.text, state.name.text
                );
                problems.push(Problem::at(message.name.at, text));
            }
        }
    }
}

/// One problem for each written name that generates something another has generated before.
fn twice<'a>(
    generated: impl Iterator<Item = (&'a Name, String)>,
    problems: &mut Vec<Problem>,
    text: impl Fn(&Name, &Name, &str) -> String,
) {
    let mut seen: HashMap<String, &Name> = HashMap::new();
    let mut reported = None;
    for (name, generated) in generated {
        match seen.get(&generated) {
            Some(first) if reported != Some(name.at) => {
                problems.push(Problem::at(name.at, text(first, name, &generated)));
                reported = Some(name.at);
            }
            Some(_) => {}
            None => {
                seen.insert(generated, name);
            }
        }
    }
}

fn parameters(protocol: &Protocol, state: &State, problems: &mut Vec<Problem>) {
    for (index, parameter) in state.parameters.iter().enumerate() {
        let name = parameter.name.text.as_str();
        let before = protocol.parameters.iter().chain(&state.parameters[..index]);
        if before.into_iter().any(|other| other.name.text == name) {
            let text = format!(
                "type parameter `{name}` of state `{}` is in scope already: rename it",
                state.name.text
            );
            problems.push(Problem::at(parameter.name.at, text));
        } else if !state.messages.is_empty() && !is_used(parameter, state) {
            let text = format!(
                "type parameter `{name}` is used by no message of state `{}`: remove it",
                state.name.text
            );
            problems.push(Problem::at(parameter.name.at, text));
        }
    }
}

/// Bounds stand in modules of ours, where they must mean what they mean outside.
fn bounds(protocol: &Protocol, problems: &mut Vec<Problem>) {
    let own = protocol.states.iter().flat_map(|state| &state.parameters);
    for parameter in protocol.parameters.iter().chain(own) {
        let name = &parameter.name.text;
        let heads = path_heads(&parameter.bounds);
        if heads.iter().any(|head| ["self", "super"].contains(head)) {
            let text = format!(
                "the bound on `{name}` is relative to a module: import what it names and write \
                 that alone"
            );
            problems.push(Problem::at(parameter.name.at, text));
        }
        for state in &protocol.states {
            let generated = state.name.as_type();
            if heads.contains(&generated.as_str()) {
                let text = format!(
                    "state `{}` becomes the type `{generated}`, which hides what the bound on \
                     `{name}` means: rename the state",
                    state.name.text
                );
                problems.push(Problem::at(state.name.at, text));
            }
        }
    }
}

fn is_used(parameter: &Parameter, state: &State) -> bool {
    let name = parameter.name.text.as_str();
    let mut types = state.messages.iter().flat_map(|message| {
        let passed_on = message.step.iter().flat_map(|step| &step.arguments);
        message.arguments.iter().chain(passed_on)
    });
    types.any(|ty| path_heads(ty).contains(&name))
}

fn unreachable(protocol: &Protocol, graph: &Graph, problems: &mut Vec<Problem>) {
    let reached = graph.reached_from(0);
    let start = &protocol.states[0].name.text;
    for (state, _) in protocol
        .states
        .iter()
        .zip(reached)
        .filter(|(_, reached)| !reached)
    {
        let text = format!(
            "state `{}` cannot be reached from `{start}`, where the protocol starts: let a \
             message step to it, or remove it",
            state.name.text
        );
        problems.push(Problem::at(state.name.at, text));
    }
}

fn capacities(protocol: &Protocol, graph: &Graph, problems: &mut Vec<Problem>) {
    let loops = loops(protocol, graph);
    for (index, state) in protocol.states.iter().enumerate() {
        let name = &state.name.text;
        let own = loops.iter().find(|states| states.contains(&index));
        match (&state.capacity, own) {
            (None, Some(states)) => {
                let way = way_round(protocol, graph, states, index);
                let keyword = state.direction.keyword();
                let text = format!(
                    "state `{name}` can come round by sends alone (`{way}`), so messages could \
                     pile up without end: say how many may be in flight, as in `{name}: \
                     {keyword}(256)`"
                );
                problems.push(Problem::at(state.name.at, text));
            }
            (Some(capacity), None) => {
                let text = format!(
                    "state `{name}` does not come round by sends alone, so it needs no capacity: \
                     remove `({})`",
                    capacity.messages
                );
                problems.push(Problem::at(capacity.at, text));
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
}

/// The shortest way from a state back to itself within its loop, as `open -> more -> open`.
fn way_round(protocol: &Protocol, graph: &Graph, states: &[usize], from: usize) -> String {
    let mut came_from: HashMap<usize, usize> = HashMap::new();
    let mut waiting = std::collections::VecDeque::from([from]);
    while let Some(state) = waiting.pop_front() {
        for next in graph.successors(state).filter(|next| states.contains(next)) {
            if let std::collections::hash_map::Entry::Vacant(entry) = came_from.entry(next) {
                entry.insert(state);
                waiting.push_back(next);
            }
        }
    }
    let mut way = vec![from];
    let mut state = from;
    while let Some(before) = came_from.remove(&state) {
        way.push(before);
        state = before;
        if state == from {
            break;
        }
    }
    let names = way
        .iter()
        .rev()
        .map(|state| protocol.states[*state].name.text.as_str());
    names.collect::<Vec<_>>().join(" -> ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use crate::tree::{At, from_text::trees};

    /// The protocol is refused with exactly these words, at the place marked by `^` in the source.
    #[track_caller]
    fn check_refused(marked: &str, expected: &[&str]) {
        let mut places = Vec::new();
        let mut source = String::new();
        for character in marked.chars() {
            match character {
                '^' => places.push(At(source.chars().count())),
                other => source.push(other),
            }
        }
        let protocol = parse::protocol(&trees(&source)).expect("it is grammatical");
        let problems = check(&protocol).expect_err("it must be refused");
        let texts: Vec<&str> = problems
            .iter()
            .map(|problem| problem.text.as_str())
            .collect();
        assert_eq!(texts.len(), expected.len(), "{texts:#?}");
        for (text, expected) in texts.iter().zip(expected) {
            assert!(text.contains(expected), "{text:?} lacks {expected:?}");
        }
        let mut from: Vec<usize> = problems.iter().map(|problem| problem.from.0).collect();
        from.sort_unstable();
        assert_eq!(
            from,
            places.iter().map(|at| at.0).collect::<Vec<_>>(),
            "{problems:#?}"
        );
    }

    #[test]
    fn an_undefined_state_is_named() {
        check_refused(
            "p { a: send { M -> ^b, N -> a2 } a2: recv { O -> a } }",
            &[
                "message `M` of state `a` steps to `b`, which is no state of `p`: define it, or step \
             to one of `a`, `a2`",
            ],
        );
    }

    #[test]
    fn a_wrong_number_of_types_is_counted() {
        check_refused(
            "p<T> { a: send { M(T) -> ^b, N -> ^a<T> } b<U>: recv { O(U) -> ! } }",
            &[
                "state `b` has 1 type parameter of its own, and message `M` of state `a` gives it 0: \
             those of the protocol are passed on by themselves",
                "state `a` has 0 type parameters of its own, and message `N` of state `a` gives it 1",
            ],
        );
    }

    #[test]
    fn an_unreachable_state_is_refused() {
        check_refused(
            "p { a: send { M -> ! } ^b: recv { N -> c } ^c: send { O -> b } }",
            &[
                "state `b` cannot be reached from `a`",
                "state `c` cannot be reached from `a`",
            ],
        );
    }

    #[test]
    fn a_state_without_messages_is_refused() {
        check_refused(
            "p { a: send { M -> b } ^b: recv { } }",
            &["state `b` has no messages"],
        );
    }

    #[test]
    fn names_that_meet_are_refused() {
        check_refused(
            "p { a: send { M -> b } b: recv { N -> a } ^b: recv { N -> ! } }",
            &["state `b` is defined twice"],
        );
        check_refused(
            "p { a_b: send { M -> aB } ^aB: recv { N -> ! } }",
            &["states `a_b` and `aB` both become the type `AB`"],
        );
        check_refused(
            "p { a: send { M -> !, ^M -> ! } }",
            &["message `M` is in state `a` twice"],
        );
        check_refused(
            "p { a: send { Use -> !, ^TryUse -> ! } }",
            &["messages `Use` and `TryUse` of state `a` both get a method `try_use`"],
        );
        check_refused(
            "p { a: send(2) { ^Room -> a, N -> ! } }",
            &["gets a method `room`"],
        );
        check_refused(
            "p { a: send(2) { M -> a, ^MBlocking -> ! } }",
            &["`m_blocking`"],
        );
        check_refused(
            "p<T: Send> { a: send { M -> send } ^send: recv { N -> ! } }",
            &["state `send` becomes the type `Send`, which hides what the bound on `T` means"],
        );
    }

    #[test]
    fn a_bound_means_what_it_means_outside() {
        check_refused(
            "p { a: send { M -> copy<u8> } ^copy<U: Sync>: recv { N(U) -> b<U> }
             b<V: Copy>: send { O(V) -> ! } }",
            &["state `copy` becomes the type `Copy`, which hides what the bound on `V` means"],
        );
        check_refused(
            "p<^T: Send + super::Mine> { a: send { M(T) -> ! } }",
            &["the bound on `T` is relative to a module"],
        );
    }

    #[test]
    fn type_parameters_are_new_and_used() {
        check_refused(
            "p<T> { a: send { M -> b<T> } b<^T>: recv { N(T) -> ! } }",
            &["type parameter `T` of state `b` is in scope already"],
        );
        check_refused(
            "p { a: send { M -> b<u8> } b<^U>: recv { N -> ! } }",
            &["type parameter `U` is used by no message of state `b`"],
        );
    }

    #[test]
    fn a_loop_of_sends_needs_a_capacity_in_each_state() {
        check_refused("p { ^a: send { M -> a, N -> ! } }", &["(`a -> a`)"]);
        check_refused(
            "p { ^open: recv { M -> more } more: recv(4) { N -> x } ^x: recv { O -> open, P -> ! } }",
            &["(`open -> more -> x -> open`)", "as in `x: recv(256)`"],
        );
    }

    #[test]
    fn a_capacity_outside_a_loop_is_refused() {
        check_refused(
            "p { a: send^(16) { M -> b } b: recv { N -> a } }",
            &[
                "state `a` does not come round by sends alone, so it needs no capacity: remove `(16)`",
            ],
        );
    }

    #[test]
    fn types_that_grow_are_refused() {
        check_refused(
            "p { a: send { M -> b<u8> } b<U>: recv { N(U) -> c<U> }
            c<U>: send { O(U) -> ^b<Vec<U>>, Bye -> ! } }",
            &["the types of state `b` grow each time round (`-> b<Vec<U>>`)"],
        );
    }

    #[test]
    fn states_that_cannot_end_are_found_unless_meant() {
        let found = |source: &str| {
            let protocol = parse::protocol(&trees(source)).expect("it is grammatical");
            let graph = check(&protocol).expect("it makes sense");
            let names = endless(&protocol, &graph);
            names
                .iter()
                .map(|state| state.name.text.clone())
                .collect::<Vec<_>>()
        };
        let tail = "b: recv { O -> c } c: send { P -> b }";
        assert_eq!(
            found(&format!("p {{ a: send {{ M -> !, N -> b }} {tail} }}")),
            ["b", "c"]
        );
        let quiet = format!("p {{ a: send {{ M -> !, N -> b }} #[forever] {tail} }}");
        assert_eq!(found(&quiet), ["c"]);
        assert!(
            found(&format!(
                "#[forever] p {{ a: send {{ M -> !, N -> b }} {tail} }}"
            ))
            .is_empty()
        );
    }
}
