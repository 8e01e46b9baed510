//! Which states occur with which types.
//!
//! A session holds messages of every state that it can come to, with the types they have by then;
//! the memory of a session is a union over all of them. States are followed from the start and
//! types put in for parameters, until nothing new comes up. Types are compared as they are written.

use std::collections::HashSet;

use crate::error::Problem;
use crate::model::{Graph, Protocol, Step};
use crate::tree::{At, Tree, begins_path, text};

/// More forms of one state than this are taken for a list without end.
const FORMS_MAX: usize = 64;

/// And so is a type of more characters than this.
const TYPE_LENGTH_MAX: usize = 10_000;

/// A state with types for its own parameters; those of the protocol are always the protocol's.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) state: usize,
    pub(crate) arguments: Vec<Vec<Tree>>,
}

/// All forms of all states that are reached, the start first.
pub(crate) fn closure(protocol: &Protocol, graph: &Graph) -> Result<Vec<Form>, Problem> {
    let itself = |name: &str| vec![Tree::Word(name.to_owned(), At::CALL)];
    let start = &protocol.states[0].parameters;
    let arguments = start
        .iter()
        .map(|parameter| itself(&parameter.name.text))
        .collect();
    let mut forms = vec![Form {
        state: 0,
        arguments,
    }];
    let mut known: HashSet<(usize, Vec<String>)> = HashSet::new();
    let mut counts = vec![0; protocol.states.len()];
    let mut next = 0;
    while next < forms.len() {
        let Form { state, arguments } = &forms[next];
        let written = &protocol.states[*state];
        let mut found = Vec::new();
        for (message, target) in written.messages.iter().zip(&graph.next[*state]) {
            let (Some(step), Some(target)) = (&message.step, target) else {
                continue;
            };
            let names: Vec<&str> = written
                .parameters
                .iter()
                .map(|parameter| parameter.name.text.as_str())
                .collect();
            let types = step.arguments.iter();
            let types: Vec<_> = types.map(|ty| substitute(ty, &names, arguments)).collect();
            let texts: Vec<String> = types.iter().map(|ty| text(ty)).collect();
            let length: usize = texts.iter().map(String::len).sum();
            if known.insert((*target, texts)) {
                counts[*target] += 1;
                if counts[*target] > FORMS_MAX || length > TYPE_LENGTH_MAX {
                    return Err(grows(step));
                }
                found.push(Form {
                    state: *target,
                    arguments: types,
                });
            }
        }
        forms.extend(found);
        next += 1;
    }
    Ok(forms)
}

fn grows(step: &Step) -> Problem {
    let name = &step.name.text;
    let types: Vec<String> = step.arguments.iter().map(|ty| text(ty)).collect();
    let text = format!(
        "the types of state `{name}` grow each time round (`-> {name}<{}>`), so no memory is \
         large enough for all its messages: box the part that grows, as in `Box<dyn Trait>`",
        types.join(", ")
    );
    Problem::at(step.name.at, text)
}

/// Puts types in for names that begin a path.
fn substitute(ty: &[Tree], names: &[&str], types: &[Vec<Tree>]) -> Vec<Tree> {
    let mut substituted = Vec::new();
    for (index, tree) in ty.iter().enumerate() {
        let place = match tree {
            Tree::Word(word, _) if begins_path(ty, index) => {
                names.iter().position(|name| name == word)
            }
            _ => None,
        };
        match (place, tree) {
            (Some(place), _) => {
                let goes_on = ty.get(index + 1).is_some_and(|tree| tree.is_sign(':'));
                let at = tree.at();
                if goes_on {
                    substituted.push(Tree::Sign {
                        sign: '<',
                        joint: false,
                        at,
                    });
                }
                substituted.extend(types[place].iter().cloned());
                if goes_on {
                    substituted.push(Tree::Sign {
                        sign: '>',
                        joint: false,
                        at,
                    });
                }
            }
            (None, Tree::Group(group)) => {
                let mut group = group.clone();
                group.inner = substitute(&group.inner, names, types);
                substituted.push(Tree::Group(group));
            }
            (None, _) => substituted.push(tree.clone()),
        }
    }
    substituted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::resolve;
    use crate::parse;
    use crate::tree::from_text::trees;

    fn forms(states: &str) -> Result<Vec<String>, Problem> {
        let protocol = parse::protocol(&trees(states)).expect("it is grammatical");
        let graph = resolve(&protocol).expect("the states exist");
        let forms = closure(&protocol, &graph)?;
        let shown = forms.iter().map(|form| {
            let types: Vec<String> = form.arguments.iter().map(|ty| text(ty)).collect();
            format!(
                "{}<{}>",
                protocol.states[form.state].name.text,
                types.join(", ")
            )
        });
        Ok(shown.collect())
    }

    #[test]
    fn each_form_of_a_state_is_found_once() {
        let found = forms(
            "p<T> {
                 a<U>: send { M(U) -> b<Vec<U>>, N -> b<(T, U::Item)> }
                 b<V>: recv { O(V) -> b2<V>, Again -> a<T> }
                 b2<W>: recv { P(W) -> ! }
             }",
        );
        // the start once more with `T` for its parameter, and what follows from it
        let expected = [
            "a<U>",
            "b<Vec<U>>",
            "b<(T, U::Item)>",
            "b2<Vec<U>>",
            "a<T>",
            "b2<(T, U::Item)>",
            "b<Vec<T>>",
            "b<(T, T::Item)>",
            "b2<Vec<T>>",
            "b2<(T, T::Item)>",
        ];
        let mut found = found.expect("it ends");
        let mut expected = expected
            .map(|form| form.replace("T::Item", "<T>::Item"))
            .to_vec();
        for form in &mut expected {
            *form = form.replace("U::Item", "<U>::Item");
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn types_that_grow_are_refused() {
        let problem = forms("p { a<U>: send { M(U) -> b<Vec<U>> } b<U>: recv { N(U) -> a<U> } }")
            .expect_err("it does not end");
        assert!(
            problem
                .text
                .contains("the types of state `b` grow each time round (`-> b<Vec<U>>`)"),
            "{problem:?}"
        );
    }

    #[test]
    fn types_that_double_are_refused_in_time() {
        let problem = forms("p { a<U>: send { M -> b<(U, U)> } b<U>: recv { N(U) -> a<U> } }");
        assert!(problem.is_err());
    }

    #[test]
    fn many_states_are_no_growth() {
        let states: Vec<String> = (0..99)
            .map(|n| format!("s{n}: send {{ M -> s{} }}", n + 1))
            .collect();
        let found = forms(&format!(
            "p {{ {} s99: send {{ M -> ! }} }}",
            states.join(" ")
        ));
        assert_eq!(found.map(|forms| forms.len()), Ok(100));
    }
}
