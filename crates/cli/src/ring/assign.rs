//! Schemes side by side: how fair they are, what moves, and what a look-up costs.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Instant;

use serde_json::json;
use unbroken_hash_ring::simulation::{self, movement, owners};
use unbroken_hash_ring::statistics::Summary;
use unbroken_hash_ring::{
    Jump, Move, Node, NodeId, Refused, Rendezvous, Ring, Scheme, Shape, SlotTable, Weight, Zone,
};
use unbroken_terminal::Progress;

use super::chart::{Axis, Chart};
use super::figure::{BLUE, Figure, GREY, Pen, RED};
use super::report::{Report, digits};

/// A scheme by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Slots,
    Ring(u32),
    Rendezvous,
    Jump,
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let virtual_nodes = |text: &str| text.parse().ok().filter(|k| (1..=10_000).contains(k));
        match text.split_once(':') {
            None if text == "slots" => Ok(Self::Slots),
            None if text == "hrw" || text == "rendezvous" => Ok(Self::Rendezvous),
            None if text == "jump" => Ok(Self::Jump),
            Some(("ring", k)) if virtual_nodes(k).is_some() => {
                Ok(Self::Ring(virtual_nodes(k).unwrap_or(1)))
            }
            _ => Err("it is slots, ring:K with 1 to 10000 virtual nodes, hrw or jump".to_owned()),
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Slots => f.write_str("slots"),
            Self::Ring(k) => write!(f, "ring:{k}"),
            Self::Rendezvous => f.write_str("hrw"),
            Self::Jump => f.write_str("jump"),
        }
    }
}

/// A cluster, and what happens to it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) schemes: Vec<Name>,
    pub(super) nodes: u32,
    pub(super) joins: u32,
    pub(super) leaves: u32,
    pub(super) weights: Vec<Weight>,
    pub(super) shape: Shape,
    pub(super) zones: u32,
}

impl Plan {
    fn node(&self, number: u32) -> Node {
        Node {
            weight: self.weights[number as usize % self.weights.len()],
            zone: Zone((number % self.zones).into()),
            ..simulation::node(self.seed, number.into())
        }
    }

    fn keys(&self) -> Vec<u64> {
        let each_node = 1_000 * (self.nodes as usize + self.joins as usize);
        simulation::keys(self.seed, each_node.clamp(100_000, 2_000_000))
    }

    /// With these members, or why it cannot have them.
    fn scheme(&self, name: Name, members: &[Node]) -> Result<Box<dyn Scheme>, String> {
        let mut scheme: Box<dyn Scheme> = match name {
            Name::Slots => {
                let table = SlotTable::new(self.shape, members);
                return Ok(Box::new(table.map_err(|error| error.to_string())?));
            }
            Name::Ring(k) => return Ok(Box::new(Ring::with_nodes(k, members.to_vec()))),
            Name::Rendezvous => Box::new(Rendezvous::new()),
            Name::Jump => Box::new(Jump::new()),
        };
        for node in members {
            scheme.join(*node).map_err(|error| error.to_string())?;
        }
        Ok(scheme)
    }

    /// A member that leaves: any, or the last where no other can.
    fn leave(&self, scheme: &mut dyn Scheme, step: u32) -> Result<NodeId, String> {
        let nodes = scheme.nodes();
        let count = u64::try_from(nodes.len()).unwrap_or(u64::MAX).max(1);
        let draw = simulation::node(!self.seed, step.into()).id.0 % count;
        let any = nodes
            .get(usize::try_from(draw).unwrap_or(0))
            .ok_or("no node is left")?
            .id;
        match scheme.leave(any) {
            Ok(()) => Ok(any),
            Err(Refused::NotLast) => {
                let last = nodes.last().ok_or("no node is left")?.id;
                scheme
                    .leave(last)
                    .map(|()| last)
                    .map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What was measured of one scheme.
#[derive(Debug)]
struct Measured {
    name: Name,
    before: Summary,
    after: Summary,
    /// Keys moved by joins and by leaves, in units of the least possible.
    moved: [f64; 2],
    /// The part that neither went to a node that joined nor came from one that left.
    needless: f64,
    lookup_ns: f64,
    table_bytes: usize,
}

pub(super) fn run(plan: &Plan) -> Result<Report, String> {
    let keys = plan.keys();
    let steps = plan.schemes.len() as u64 * u64::from(1 + plan.joins + plan.leaves);
    let mut progress = Progress::new(steps);
    let mut report = Report::new("assign", "Which node holds what", plan.seed);
    let mut all = Vec::new();
    for name in &plan.schemes {
        match measure(plan, *name, &keys, &mut progress) {
            Ok(measured) => all.push(measured),
            Err(reason) => report.paragraph(format_args!("{name} is left out: {reason}.")),
        }
    }
    drop(progress);
    describe(&mut report, plan, &all, keys.len());
    report.figure("figure-7", "The worst load against what moves", draw(&all));
    if plan.schemes.contains(&Name::Slots) {
        let walk = Walk::take(plan, &keys)?;
        walk.describe(&mut report, plan);
        walk.judge(&mut report, plan);
    }
    Ok(report)
}

fn measure(
    plan: &Plan,
    name: Name,
    keys: &[u64],
    progress: &mut Progress,
) -> Result<Measured, String> {
    let members: Vec<_> = (0..plan.nodes).map(|number| plan.node(number)).collect();
    let mut scheme = plan.scheme(name, &members)?;
    let what = name.to_string();
    let begin = Instant::now();
    let mut held = owners(&*scheme, keys);
    let lookup_ns = begin.elapsed().as_secs_f64() * 1e9 / float(keys.len());
    progress.advance(1, &what);
    let summary = |scheme: &dyn Scheme, held: &[NodeId]| {
        Summary::of(&simulation::shares(&scheme.nodes(), held))
    };
    let before = summary(&*scheme, &held);
    let (mut moved, mut least, mut needless) = ([0; 2], [0.0; 2], 0);
    for step in 0..plan.joins + plan.leaves {
        let is_leave = step >= plan.joins;
        let node = if is_leave {
            plan.leave(&mut *scheme, step)?
        } else {
            let node = plan.node(plan.nodes + step);
            scheme.join(node).map_err(|error| error.to_string())?;
            let weight = |node: &Node| f64::from(node.weight.get());
            let weights: f64 = scheme.nodes().iter().map(weight).sum();
            least[0] += float(keys.len()) * weight(&node) / weights;
            node.id
        };
        if is_leave {
            least[1] += float(held.iter().filter(|owner| **owner == node).count());
        }
        let now = owners(&*scheme, keys);
        let movement = movement(&held, &now, node);
        moved[usize::from(is_leave)] += movement.moved;
        needless += movement.needless;
        held = now;
        progress.advance(1, &what);
    }
    let ratio = |at: usize| {
        let moved = float(usize::try_from(moved[at]).unwrap_or(usize::MAX));
        if least[at] > 0.0 {
            moved / least[at]
        } else {
            0.0
        }
    };
    let all = least[0] + least[1];
    let needless = float(usize::try_from(needless).unwrap_or(usize::MAX));
    Ok(Measured {
        name,
        before,
        after: summary(&*scheme, &held),
        moved: [ratio(0), ratio(1)],
        needless: if all > 0.0 { needless / all } else { 0.0 },
        lookup_ns,
        table_bytes: scheme.table_bytes(),
    })
}

fn describe(report: &mut Report, plan: &Plan, all: &[Measured], keys: usize) {
    let weights: Vec<_> = plan
        .weights
        .iter()
        .map(|weight| weight.get().to_string())
        .collect();
    report.paragraph(format_args!(
        "{} nodes with weights {}, then {} joins and {} leaves; {keys} keys. Loads are in units of \
         what a node should have by its weight; even a perfect hash shows a standard deviation of {} \
         for so many keys. Moved keys are in units of the least possible; `needless` neither went to \
         a node that joined nor came from one that left.",
        plan.nodes,
        weights.join(", "),
        plan.joins,
        plan.leaves,
        digits((f64::from(plan.nodes) / float(keys)).sqrt()),
    ));
    let row = |it: &Measured| {
        let values = [
            it.before.max,
            it.before.deviation,
            it.after.max,
            it.moved[0],
            it.moved[1],
            it.needless,
        ];
        let mut row = vec![it.name.to_string()];
        row.extend(values.map(digits));
        row.extend([format!("{:.0}", it.lookup_ns), it.table_bytes.to_string()]);
        row
    };
    let heads = [
        "scheme",
        "max",
        "std",
        "max after",
        "joins moved",
        "leaves moved",
        "needless",
        "look-up ns",
        "bytes",
    ];
    report.table(&heads, &all.iter().map(row).collect::<Vec<_>>());
    let json = |it: &Measured| {
        json!({
            "scheme": it.name.to_string(), "max": it.before.max, "deviation": it.before.deviation,
            "max after": it.after.max, "joins moved": it.moved[0], "leaves moved": it.moved[1],
            "needless": it.needless, "lookup ns": it.lookup_ns, "bytes": it.table_bytes,
        })
    };
    report.number("schemes", all.iter().map(json).collect());
}

fn draw(all: &[Measured]) -> Figure {
    let moved = |it: &Measured| it.moved[0].max(it.moved[1]);
    let right = all.iter().map(moved).fold(1.2, f64::max);
    let top = all.iter().map(|it| it.before.max).fold(1.2, f64::max);
    let axes = [
        Axis::linear(0.0, right * 1.15),
        Axis::linear(0.9, top * 1.1),
    ];
    let labels = ["moved / least possible", "worst load / fair share"];
    let mut chart = Chart::new((640.0, 400.0), "Fairness and movement", labels, axes);
    chart.mark(1.0, Pen::dashed(GREY), "");
    for it in all {
        let at = (moved(it), it.before.max);
        let colour = if it.name == Name::Slots { RED } else { BLUE };
        chart.dots(&[at], colour);
        chart.label(at, colour, &it.name.to_string());
    }
    chart.finish()
}

/// What a slot table did on a walk of joins and leaves, in slots and not in keys.
#[derive(Debug, Default)]
struct Walk {
    build_ms: f64,
    lookup_ns: f64,
    table_bytes: usize,
    change_bytes: usize,
    /// By how many slots a node was above its quota, at most.
    over: f64,
    /// Slots with two copies in one node, or in one zone although there are enough, over all steps.
    shared: usize,
    moved: usize,
    least: f64,
    /// Moved between two nodes that stay.
    strays: usize,
    copies: usize,
}

impl Walk {
    fn take(plan: &Plan, keys: &[u64]) -> Result<Self, String> {
        let mut walk = Self::default();
        let members: Vec<_> = (0..plan.nodes).map(|number| plan.node(number)).collect();
        let begin = Instant::now();
        let mut table = SlotTable::new(plan.shape, &members).map_err(|error| error.to_string())?;
        walk.build_ms = begin.elapsed().as_secs_f64() * 1e3;
        walk.look_at(&table);
        for step in 0..plan.joins + plan.leaves {
            let mut next = table.clone();
            let node = if step < plan.joins {
                let node = plan.node(plan.nodes + step);
                next.join(node).map_err(|error| error.to_string())?;
                let weight = |node: &Node| f64::from(node.weight.get());
                let share = weight(&node) / next.nodes().iter().map(weight).sum::<f64>();
                walk.least += f64::from(plan.shape.slots) * share;
                node.id
            } else {
                let gone = plan.leave(&mut next, step)?;
                let is_held = |slot: &u32| table.primary(*slot).is_some_and(|it| it.id == gone);
                walk.least += float((0..plan.shape.slots).filter(is_held).count());
                gone
            };
            let moves = table.moves(&next);
            let is_stray = |it: &&Move| it.from != node && it.to != node;
            walk.strays += moves.iter().filter(is_stray).count();
            walk.moved += moves.len();
            walk.copies += table.new_copies(&next).len();
            walk.change_bytes += table
                .change_to(&next)
                .map_or(0, |change| change.encode().len());
            walk.look_at(&next);
            table = next;
        }
        walk.table_bytes = table.encode().len();
        let begin = Instant::now();
        let sum = keys
            .iter()
            .filter_map(|key| table.owner(*key))
            .fold(0, |sum, id| sum ^ id.0);
        std::hint::black_box(sum);
        walk.lookup_ns = begin.elapsed().as_secs_f64() * 1e9 / float(keys.len());
        Ok(walk)
    }

    fn look_at(&mut self, table: &SlotTable) {
        let (over, shared) = over_and_shared(table);
        self.over = self.over.max(over);
        self.shared += shared;
    }

    fn describe(&self, report: &mut Report, plan: &Plan) {
        report.section("The slot table");
        let steps = f64::from((plan.joins + plan.leaves).max(1));
        let each_step = |total: usize| digits(float(total) / steps);
        let Shape { slots, copies } = plan.shape;
        let rows = [
            ("slots, copies of each", format!("{slots}, {copies}")),
            ("bytes of the whole table", self.table_bytes.to_string()),
            (
                "bytes of a change, on average",
                each_step(self.change_bytes),
            ),
            (
                "primaries moved by a step, on average",
                each_step(self.moved),
            ),
            (
                "copies of slots made by a step, on average",
                each_step(self.copies),
            ),
            ("first table made in ms", digits(self.build_ms)),
            ("look-up in ns, behind the hash", digits(self.lookup_ns)),
        ];
        let rows = rows
            .into_iter()
            .map(|(name, value)| vec![name.to_owned(), value]);
        report.table(&["of the table", ""], &rows.collect::<Vec<_>>());
        let json = json!({
            "slots": slots, "copies": copies, "bytes": self.table_bytes,
            "change bytes": self.change_bytes, "moved": self.moved, "least": self.least,
            "copies made": self.copies, "strays": self.strays,
            "build ms": self.build_ms, "lookup ns": self.lookup_ns,
        });
        report.number("table", json);
    }

    fn judge(&self, report: &mut Report, plan: &Plan) {
        report.at_most("slots above the quota, after every step", self.over, 0.0);
        if self.least > 0.0 {
            report.at_most(
                "slots moved / least possible",
                float(self.moved) / self.least,
                1.01,
            );
        }
        let is_even = plan.weights.windows(2).all(|pair| pair[0] == pair[1]);
        if is_even {
            report.at_most(
                "slots moved between nodes that stay",
                float(self.strays),
                0.0,
            );
        }
        report.at_most(
            "slots with two copies in one node or zone",
            float(self.shared),
            0.0,
        );
        report.time("ns of a look-up", self.lookup_ns, 10.0);
        report.time("ms to make the first table", self.build_ms, 50.0);
    }
}

/// By how many slots the worst node is above its quota, and how many slots have two copies in one
/// node, or in one zone although there are enough.
fn over_and_shared(table: &SlotTable) -> (f64, usize) {
    let nodes = table.nodes();
    let zones: BTreeSet<_> = nodes.iter().map(|node| node.zone).collect();
    let weights: u64 = nodes.iter().map(|node| u64::from(node.weight.get())).sum();
    let Shape { slots, copies } = table.shape();
    let mut counts = std::collections::BTreeMap::<NodeId, u64>::new();
    let mut shared = 0;
    for slot in 0..slots {
        let holders: Vec<_> = table.holders(slot).collect();
        if let Some(primary) = holders.first() {
            *counts.entry(primary.id).or_default() += 1;
        }
        let ids: BTreeSet<_> = holders.iter().map(|node| node.id).collect();
        let seen: BTreeSet<_> = holders.iter().map(|node| node.zone).collect();
        let copies = usize::from(copies).min(nodes.len());
        shared += usize::from(ids.len() < copies || seen.len() < copies.min(zones.len()));
    }
    let over = nodes.iter().map(|node| {
        let quota = (u64::from(slots) * u64::from(node.weight.get())).div_ceil(weights);
        let has = counts.get(&node.id).copied().unwrap_or(0);
        float(usize::try_from(has.saturating_sub(quota)).unwrap_or(usize::MAX))
    });
    (over.fold(0.0, f64::max), shared)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for text in ["slots", "ring:256", "hrw", "jump"] {
            assert_eq!(text.parse::<Name>().unwrap().to_string(), text);
        }
        for text in ["ring", "ring:0", "ring:x", "slots:1", ""] {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_bars_of_the_table_are_met_on_a_short_walk() {
        let weight = |weight: u16| Weight::try_from(weight).unwrap();
        for weights in [vec![weight(1)], vec![weight(1), weight(4)]] {
            let plan = Plan {
                seed: 1,
                schemes: vec![Name::Slots, Name::Jump],
                nodes: 5,
                joins: 3,
                leaves: 2,
                weights,
                shape: Shape {
                    slots: 512,
                    copies: 3,
                },
                zones: 3,
            };
            let directory = tempfile::tempdir().unwrap();
            let report = run(&plan).unwrap();
            let (missed, has_failed) = report.write_to(directory.path()).unwrap();
            assert!(!has_failed, "{missed:?}");
        }
    }
}
