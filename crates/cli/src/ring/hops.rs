//! How many hops a search takes in Chord.

use serde_json::json;
use unbroken_hash_ring::simulation::{self, Hops, expected_hops};
use unbroken_hash_ring::{Chord, Fingers, Ring};
use unbroken_terminal::Progress;

use super::chart::{Axis, Chart};
use super::figure::{BLUE, Figure, GREEN, GREY, ORANGE, PURPLE, Pen};
use super::report::{Report, digits};

/// The hops in rings of one size.
#[derive(Debug)]
pub(super) struct Searches {
    pub(super) nodes: u32,
    pub(super) virtual_nodes: u32,
    pub(super) by_place: Hops,
    /// Through the fingers of all virtual nodes of a node; `None`: it was not asked for.
    pub(super) by_node: Option<Hops>,
    pub(super) fingers: f64,
}

impl Searches {
    pub(super) fn measure(
        seed: u64,
        (nodes, virtual_nodes): (u32, u32),
        searches: u32,
        with_all_fingers: bool,
        progress: &mut Progress,
    ) -> Self {
        let members = (0..nodes.into())
            .map(|number| simulation::node(seed, number))
            .collect();
        let ring = Ring::with_nodes(virtual_nodes, members);
        let chord = Chord::new(ring, Fingers::OfThePlace);
        let what = format!("searches among {nodes} nodes with {virtual_nodes} virtual nodes");
        let by_place = simulation::hops(&chord, seed, searches as usize);
        progress.advance(work(virtual_nodes, searches, false), &what);
        let sample = 200.min(chord.ring().len());
        let fingers = (0..sample).map(|place| {
            let count = chord.distinct_fingers(place);
            f64::from(u32::try_from(count).unwrap_or(u32::MAX))
        });
        let fingers =
            fingers.sum::<f64>() / f64::from(u32::try_from(sample.max(1)).unwrap_or(u32::MAX));
        let by_node = with_all_fingers.then(|| {
            let chord = Chord::new(chord.ring().clone(), Fingers::OfTheNode);
            let hops = simulation::hops(&chord, seed, searches as usize / 4);
            progress.advance(
                work(virtual_nodes, searches, true) - work(virtual_nodes, searches, false),
                &what,
            );
            hops
        });
        Self {
            nodes,
            virtual_nodes,
            by_place,
            by_node,
            fingers,
        }
    }

    pub(super) fn places(&self) -> f64 {
        f64::from(self.nodes) * f64::from(self.virtual_nodes)
    }
}

/// What a progress bar counts: searches, of which those through all fingers take longer.
pub(super) fn work(virtual_nodes: u32, searches: u32, with_all_fingers: bool) -> u64 {
    let each = if with_all_fingers {
        1 + u64::from(virtual_nodes) / 4
    } else {
        1
    };
    u64::from(searches) * each
}

pub(super) fn describe(report: &mut Report, all: &[Searches]) {
    report.paragraph(
        "Hops from a random place to the owner of a random key. With the fingers of one place the \
         mean is ½ log2(nk) + 0.86: each doubling of the virtual nodes adds half a hop. A node that \
         looks in the finger tables of all its virtual nodes takes fewer hops with more of them; the \
         price is k tables.",
    );
    let row = |it: &Searches| {
        let all_fingers = it.by_node.map_or("-".to_owned(), |hops| digits(hops.mean));
        vec![
            it.nodes.to_string(),
            it.virtual_nodes.to_string(),
            digits(it.by_place.mean),
            digits(expected_hops(it.places())),
            it.by_place.p99.to_string(),
            it.by_place.max.to_string(),
            all_fingers,
            digits(it.fingers),
        ]
    };
    let heads = [
        "n",
        "k",
        "hops",
        "law",
        "p99",
        "max",
        "hops, all fingers",
        "fingers of a place",
    ];
    report.table(&heads, &all.iter().map(row).collect::<Vec<_>>());
    let json = |it: &Searches| {
        let hops = |hops: Hops| json!({ "mean": hops.mean, "p99": hops.p99, "max": hops.max });
        json!({
            "nodes": it.nodes, "virtual nodes": it.virtual_nodes, "hops": hops(it.by_place),
            "law": expected_hops(it.places()), "all fingers": it.by_node.map(hops),
            "fingers of a place": it.fingers,
        })
    };
    report.number("hops", all.iter().map(json).collect());
}

/// The bars for hops.
pub(super) fn judge(report: &mut Report, all: &[Searches]) {
    for it in all {
        let name = format!("hops, n = {}, k = {}", it.nodes, it.virtual_nodes);
        if it.places() >= 1_000.0 {
            let law = expected_hops(it.places());
            report.bar(
                format!("{name}: mean"),
                it.by_place.mean,
                law - 0.05,
                law + 0.05,
            );
            let most = 1.2 * it.places().log2() + 2.0;
            report.at_most(format!("{name}: most"), it.by_place.max.into(), most);
        }
        let one = all
            .iter()
            .find(|other| other.nodes == it.nodes && other.virtual_nodes == 1);
        let is_compared = it.nodes >= 100 && it.virtual_nodes >= 64;
        if let (Some(hops), Some(one), true) = (it.by_node, one, is_compared) {
            report.at_most(
                format!("{name}: mean through all fingers"),
                hops.mean,
                one.by_place.mean,
            );
        }
    }
}

/// Hops against the number of nodes.
pub(super) fn draw(all: &[Searches]) -> Figure {
    const COLOURS: [super::figure::Colour; 4] = [BLUE, GREEN, ORANGE, PURPLE];
    let nodes = || all.iter().map(|it| f64::from(it.nodes));
    let (least, most) = (
        nodes().fold(f64::MAX, f64::min),
        nodes().fold(1.0, f64::max),
    );
    let highest = all.iter().map(|it| it.by_place.mean).fold(1.0, f64::max);
    let axes = [
        Axis::logarithmic(least, most.max(least * 2.0)),
        Axis::linear(0.0, highest * 1.8),
    ];
    let mut chart = Chart::new((640.0, 400.0), "Hops of a search", ["nodes", "hops"], axes);
    let mut counts: Vec<_> = all.iter().map(|it| it.virtual_nodes).collect();
    counts.sort_unstable();
    counts.dedup();
    for (count, colour) in counts.iter().zip(COLOURS.iter().cycle()) {
        let of_count = || all.iter().filter(|it| it.virtual_nodes == *count);
        let law: Vec<_> = of_count()
            .map(|it| (f64::from(it.nodes), expected_hops(it.places())))
            .collect();
        chart.curve(&law, Pen::dashed(GREY), "");
        let hops: Vec<_> = of_count()
            .map(|it| (f64::from(it.nodes), it.by_place.mean))
            .collect();
        chart.curve(&hops, Pen::new(*colour, 1.5), &format!("k = {count}"));
        chart.dots(&hops, *colour);
        let by_node = of_count().filter_map(|it| Some((f64::from(it.nodes), it.by_node?.mean)));
        let by_node: Vec<_> = by_node.collect();
        if *count > 1 && !by_node.is_empty() {
            chart.curve(
                &by_node,
                Pen::dashed(*colour),
                &format!("k = {count}, all fingers"),
            );
        }
    }
    chart.name(GREY, "grey: ½ log2(nk) + 0.86");
    chart.finish()
}
