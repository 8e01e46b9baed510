//! Graph500 as a whole: searches with several threads give what a naive search gives, results that
//! are damaged fail the rule that they break, and the command does what its help says.

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use proptest::prelude::*;
use session_channels::par::{Limits, Team};
use unbroken_workloads::graph500::edges::Edge;
use unbroken_workloads::graph500::graph::Graph;
use unbroken_workloads::graph500::keys;
use unbroken_workloads::graph500::kronecker::Kronecker;
use unbroken_workloads::graph500::limits::Vertex;
use unbroken_workloads::graph500::run::Benchmark;
use unbroken_workloads::graph500::search::{Search, SearchError};
use unbroken_workloads::graph500::tree::Tree;
use unbroken_workloads::graph500::validation::{Fault, Validator};

fn team(tasks_max: usize) -> Team {
    Team::new(Limits {
        tasks_max,
        items_per_task_min: 16,
    })
}

fn kronecker(scale: u32, team: &Team) -> Vec<Edge> {
    let graph = Kronecker {
        scale,
        edge_factor: 16,
        seed: 11,
    };
    graph.generate(team)
}

/// Levels by the textbook: a queue, one thread, the list of edges.
fn naive_levels(edges: &[Edge], vertices: usize, root: Vertex) -> Vec<Option<u16>> {
    let mut neighbours = vec![Vec::new(); vertices];
    for edge in edges {
        neighbours[edge.start as usize].push(edge.end);
        neighbours[edge.end as usize].push(edge.start);
    }
    let mut levels = vec![None; vertices];
    levels[root as usize] = Some(0);
    let mut queue = VecDeque::from([(root, 0)]);
    while let Some((vertex, level)) = queue.pop_front() {
        for neighbour in &neighbours[vertex as usize] {
            let place = &mut levels[*neighbour as usize];
            if place.is_none() {
                *place = Some(level + 1);
                queue.push_back((*neighbour, level + 1));
            }
        }
    }
    levels
}

fn levels(tree: &Tree) -> Vec<Option<u16>> {
    let vertices = (0..).take(tree.vertices());
    vertices.map(|vertex| tree.level(vertex)).collect()
}

/// Tuples of the component, by the text: self-loops and repeated ones among them.
fn naive_edges(edges: &[Edge], levels: &[Option<u16>]) -> u64 {
    let inside = |edge: &&Edge| levels[edge.start as usize].is_some();
    edges.iter().filter(inside).count() as u64
}

#[test]
fn searches_find_the_levels_of_a_naive_search() {
    for threads in [1, 2, 3] {
        let team = team(threads);
        for scale in [1, 4, 6, 9, 12] {
            let edges = kronecker(scale, &team);
            let graph = Graph::new(&edges, &team);
            let validator = Validator::new(&edges, &team);
            let mut search = Search::new(&graph, &team);
            for key in keys::draw(&graph, 8, 5) {
                let tree = search.run(key).unwrap();
                let expect = naive_levels(&edges, graph.vertices(), key);
                assert_eq!(levels(tree), expect);
                let counted = validator.check(tree, &team).unwrap();
                assert_eq!(counted, naive_edges(&edges, &expect));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Sparse lists have many components and long ways, which Kronecker graphs have not.
    #[test]
    fn searches_in_random_lists_pass(
        ends in prop::collection::vec((0..200_u32, 0..200_u32), 1..300),
        root in 0..200_u32,
    ) {
        let edges: Vec<_> = ends.iter().map(|&(start, end)| Edge { start, end }).collect();
        let team = team(2);
        let graph = Graph::new(&edges, &team);
        let root = root % u32::try_from(graph.vertices()).unwrap();
        let mut search = Search::new(&graph, &team);
        let tree = search.run(root).unwrap();
        let expect = naive_levels(&edges, graph.vertices(), root);
        prop_assert_eq!(&levels(tree), &expect);
        let counted = Validator::new(&edges, &team).check(tree, &team);
        prop_assert_eq!(counted, Ok(naive_edges(&edges, &expect)));
    }

    /// Any other parent than the right one, or one of the right ones, is found.
    #[test]
    fn any_change_of_a_parent_or_a_level_is_found_or_is_right(
        vertex in 0..256_u32,
        parent in 0..300_u32,
        level in 0..5_u16,
    ) {
        let team = team(1);
        let edges = kronecker(8, &team);
        let graph = Graph::new(&edges, &team);
        let root = keys::draw(&graph, 1, 1)[0];
        let mut search = Search::new(&graph, &team);
        let tree = search.run(root).unwrap();
        let vertex = vertex % u32::try_from(graph.vertices()).unwrap();
        let before = tree.level(vertex);
        tree.put(vertex, parent, level);
        let is_right = if vertex == root {
            parent == root && level == 0
        } else {
            before == Some(level)
                && graph.neighbours(vertex).contains(&parent)
                && tree.level(parent).and_then(|parent| parent.checked_add(1)) == Some(level)
        };
        let checked = Validator::new(&edges, &team).check(tree, &team);
        prop_assert_eq!(checked.is_ok(), is_right, "{:?}", checked);
    }
}

/// A graph in which each rule can be broken without the ones before it:
///
/// ```text
///     0 root           level 0
///    / \
///   1---2              level 1
///   |   |
///   3   4              level 2
///   |
///   5                  level 3      6---7 another component
/// ```
fn damaged(damage: impl FnOnce(&Tree)) -> Result<u64, Fault> {
    let ends = [(0, 1), (2, 0), (1, 2), (1, 3), (4, 2), (3, 5), (6, 7)];
    let edges = ends.map(|(start, end)| Edge { start, end });
    let team = team(2);
    let graph = Graph::new(&edges, &team);
    let mut search = Search::new(&graph, &team);
    let tree = search.run(0).expect("the graph is small");
    damage(tree);
    Validator::new(&edges, &team).check(tree, &team)
}

#[test]
fn a_result_that_is_right_passes_and_its_component_is_counted() {
    assert_eq!(damaged(|_| {}), Ok(6));
}

#[test]
fn a_damaged_parent_fails_the_rule_that_it_breaks() {
    let root = 0;
    let cycle = |vertex| Err(Fault::Cycle { vertex, root });
    // 3 and 5 are each other's parent.
    assert_eq!(damaged(|tree| tree.put(3, 5, 4)), cycle(3));
    // A parent of itself, one outside the tree, one that is no vertex, a root that has another.
    assert_eq!(damaged(|tree| tree.put(5, 5, 3)), cycle(5));
    assert_eq!(damaged(|tree| tree.put(5, 6, 3)), cycle(5));
    assert_eq!(damaged(|tree| tree.put(5, 1_000, 3)), cycle(5));
    assert_eq!(damaged(|tree| tree.put(0, 1, 0)), cycle(0));
    // A neighbour of the same level, and a level that is not one below the parent's.
    let levels = |vertex, level, parent_level| {
        Err(Fault::TreeEdge {
            vertex,
            level: Some(level),
            parent_level: Some(parent_level),
        })
    };
    assert_eq!(damaged(|tree| tree.put(1, 2, 1)), levels(1, 1, 1));
    assert_eq!(damaged(|tree| tree.put(5, 3, 4)), levels(5, 4, 2));
    assert_eq!(damaged(|tree| tree.put(0, 0, 1)), levels(0, 1, 1));
    // 2 hangs below 5: each level is one below its parent's, but 0 and 2 are joined, 1 and 2 too.
    let moved = damaged(|tree| {
        tree.put(2, 5, 4);
        tree.put(4, 2, 5);
    });
    assert_eq!(moved.unwrap_err().rule(), 3);
    // A leaf is missing.
    let missing = damaged(|tree| tree.take_out(5));
    assert_eq!(missing, Err(Fault::Component { start: 3, end: 5 }));
    // The parent of 4 is 1, of the right level, to which no edge leads.
    let no_edge = Fault::NoEdge {
        vertex: 4,
        parent: 1,
    };
    assert_eq!(damaged(|tree| tree.put(4, 1, 2)), Err(no_edge));
    let rules = [no_edge.rule(), missing.unwrap_err().rule()];
    assert_eq!(rules, [5, 4]);
    assert_eq!(
        no_edge.to_string(),
        "rule 5, real edge: no edge joins 4 and its parent 1"
    );
}

#[test]
fn a_result_of_another_graph_is_refused() {
    let team = team(1);
    let edges = kronecker(4, &team);
    let fault = Validator::new(&edges, &team).check(&Tree::new(3), &team);
    assert_eq!(fault.unwrap_err().rule(), 0);
}

#[test]
fn what_cannot_be_searched_is_an_error() {
    let team = team(1);
    let path: Vec<_> = (0..70_000)
        .map(|start| Edge {
            start,
            end: start + 1,
        })
        .collect();
    let graph = Graph::new(&path, &team);
    let mut search = Search::new(&graph, &team);
    let error = search.run(0).unwrap_err();
    assert_eq!(error, SearchError::TooDeep { root: 0 });
    assert_eq!(
        search.run(70_001).unwrap_err().to_string(),
        "there is no vertex 70001: the graph has 70001, numbered from 0"
    );
    // The same memory is as good as new.
    let tree = search.run(35_000).unwrap();
    assert!(Validator::new(&path, &team).check(tree, &team).is_ok());
}

#[test]
fn there_are_as_many_keys_as_asked_for_or_as_there_are() {
    let team = team(2);
    let edges = kronecker(10, &team);
    let graph = Graph::new(&edges, &team);
    let mut keys = keys::draw(&graph, 64, 3);
    assert_eq!(keys, keys::draw(&graph, 64, 3));
    assert_ne!(keys, keys::draw(&graph, 64, 4));
    assert!(keys.iter().all(|key| graph.degree(*key) > 0));
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 64);
    let few = [(0, 0), (1, 2)].map(|(start, end)| Edge { start, end });
    let benchmark = Benchmark::new(&few, 64, 1, &team);
    let report = benchmark.run(Duration::ZERO).unwrap();
    assert_eq!(report.searches.len(), 2);
    assert!(report.searches.iter().all(|search| search.edges == 1));
}

fn graph500(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graph500"));
    command.args(arguments).current_dir(directory);
    command
        .output()
        .expect("the command was built with this test")
}

#[test]
fn the_command_writes_a_list_and_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let write = ["--scale", "8", "--keys", "5", "--write", "edges.el"];
    let written = graph500(&write, directory.path());
    let read = ["--read", "edges.el", "--keys", "5", "--threads", "1"];
    let read = graph500(&read, directory.path());
    for output in [&written, &read] {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(
            text.starts_with("SCALE: 8\nedgefactor: 16\nNBFS: 5\n"),
            "{text}"
        );
    }
    let edges = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter(|line| line.contains("_nedge"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(edges(&written), edges(&read));
}

#[test]
fn the_command_names_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("bad.el"), "1 2\n3 x\n").unwrap();
    for (arguments, expect) in [
        (
            &["--read", "bad.el"][..],
            "graph500: bad.el: line 2: expected a vertex number, found \"x\"\n",
        ),
        (&["--read", "none.el"], "graph500: none.el: No such file"),
        (
            &["--scale", "27"],
            "graph500: --scale 27 --edge-factor 16: the scale is 1 to 26",
        ),
        (
            &["--scale", "4", "--peer", "./none"],
            "graph500: ./none: No such file",
        ),
        (
            &["--scale", "4", "--peer", "true"],
            "graph500: true: no `Trial Time:` in its output",
        ),
    ] {
        let output = graph500(arguments, directory.path());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text.starts_with(expect), "{text}");
    }
}
