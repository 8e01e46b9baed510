//! A value with states, explored from its start through everything that can happen to it, and
//! written down as a table.
//!
//! Invariant: the columns are all the states that an owner who keeps the rules can bring the value
//! to, because nobody lists them: they are found.

/// How to read a table, for the head of its text.
const LEGEND: &str = "
outcome > next state; no next state: it stays as it is; -: nothing to do
state*: left by an earlier connection, and not carried by this one yet
(outcome): no owner that keeps the rules comes here; what would happen all the same
";

/// What can happen: its label, and how it happens, with the outcome in words.
pub(crate) type Event<S> = (&'static str, fn(&mut S) -> String);

pub(crate) struct Machine<S: 'static> {
    pub(crate) title: &'static str,
    pub(crate) start: S,
    /// What can be told of a state from outside. States of one name are taken to be the same.
    pub(crate) name: fn(&S) -> String,
    pub(crate) events: &'static [Event<S>],
    /// Whether an owner that keeps the rules lets this happen: a state's name, an event's label.
    pub(crate) occurs: fn(&str, &str) -> bool,
}

impl<S: Clone> Machine<S> {
    /// A row for each event and a column for each state, in parts: first the states of this
    /// connection, then those left by an earlier one.
    pub(crate) fn table(&self) -> String {
        let mut found = Vec::new();
        self.explore(&self.start, &mut found);
        let (earlier, present): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(name, _)| name.contains('*'));
        let head = format!("{}\n{LEGEND}", self.title);
        [head, self.part(&present), self.part(&earlier)].join("\n")
    }

    /// Finds this state, and then every state that what can happen to it leads to.
    fn explore(&self, state: &S, found: &mut Vec<(String, S)>) {
        let name = (self.name)(state);
        if found.iter().any(|(known, _)| *known == name) {
            return;
        }
        found.push((name.clone(), state.clone()));
        for (event, happen) in self.events {
            if (self.occurs)(&name, event) {
                let mut next = state.clone();
                happen(&mut next);
                self.explore(&next, found);
            }
        }
    }

    fn part(&self, states: &[(String, S)]) -> String {
        let labels = self.events.iter().map(|(event, _)| (*event).to_owned());
        let mut columns = vec![column("", labels)];
        for (name, state) in states {
            let cells = self.events.iter();
            columns.push(column(
                name,
                cells.map(|event| self.cell(name, state, event)),
            ));
        }
        let mut text = String::new();
        for row in 0..=self.events.len() {
            let line: Vec<&str> = columns.iter().map(|column| column[row].as_str()).collect();
            text.push_str(line.concat().trim_end());
            text.push('\n');
        }
        text
    }

    fn cell(&self, name: &str, state: &S, (event, happen): &Event<S>) -> String {
        let mut next = state.clone();
        let outcome = happen(&mut next);
        let next = (self.name)(&next);
        let cell = match (outcome.as_str(), next == name) {
            ("", true) => "-".to_owned(),
            ("", false) => format!("> {next}"),
            (outcome, true) => outcome.to_owned(),
            (outcome, false) => format!("{outcome} > {next}"),
        };
        if (self.occurs)(name, event) {
            cell
        } else {
            format!("({cell})")
        }
    }
}

/// A head and its cells, all as wide as the widest of them and some space.
fn column(head: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    let texts: Vec<_> = [head.to_owned()].into_iter().chain(cells).collect();
    let width = texts.iter().map(String::len).max().unwrap_or(0) + 2;
    let pad = |text: &String| format!("{text:width$}");
    texts.iter().map(pad).collect()
}
