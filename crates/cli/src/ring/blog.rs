//! Every figure and number of the article on the fairness of Chord (2013), with what has been found
//! since, and the bars that hold them.

use std::time::Instant;

use serde_json::json;
use unbroken_hash_ring::statistics::{EULER, Summary, deviation};
use unbroken_hash_ring::{Ring, Scheme, simulation};
use unbroken_terminal::Progress;

use super::chart::{Axis, Chart};
use super::figure::{Anchor, BLACK, BLUE, Colour, Figure, GREY, LIGHT, Pen, RED, arc};
use super::hops::{self, Searches};
use super::report::{Report, digits};
use super::spans::{self, Spread};

const NODES: u32 = 10_000;
const VIRTUAL_NODES: [u32; 14] = [1, 2, 3, 4, 5, 10, 15, 20, 25, 50, 75, 100, 125, 256];
const RINGS: u32 = 50;
const SIZES: [u32; 4] = [10, 100, 1_000, 10_000];
const FINGERS: [u32; 4] = [1, 4, 16, 64];
const SEARCHES: u32 = 20_000;
/// For the worst load against the number of nodes.
const WORST: [u32; 9] = [10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000];
const WORST_RINGS: u32 = 20;

pub(super) fn run(seed: u64) -> Report {
    let begin = Instant::now();
    let mut progress = Progress::new(work());
    let measure = |virtual_nodes: &u32| {
        Spread::measure(
            seed,
            (NODES, *virtual_nodes),
            rings(*virtual_nodes),
            &mut progress,
        )
    };
    let spreads: Vec<_> = VIRTUAL_NODES.iter().map(measure).collect();
    let sizes = SIZES.iter().flat_map(|nodes| FINGERS.map(|k| (*nodes, k)));
    let searches: Vec<_> = sizes
        .map(|size| Searches::measure(seed, size, SEARCHES, true, &mut progress))
        .collect();
    let worst: Vec<_> = WORST
        .iter()
        .map(|nodes| Worst::measure(seed, *nodes, &mut progress))
        .collect();
    drop(progress);

    let mut report = Report::new("blog", "How fair is Chord?", seed);
    report.figure(
        "figure-1",
        "A ring with 16 nodes, coloured by load",
        circle(seed),
    );
    report.section("Loads");
    if let Some(one) = spreads.first() {
        report.figure(
            "figure-2",
            "Loads of 10,000 nodes",
            one.histogram((640.0, 400.0)),
        );
    }
    spans::describe(&mut report, &spreads);
    spans::histograms(&mut report, "figure-3", &spreads[1..]);
    report.figure(
        "figure-4",
        "Standard deviation and worst load",
        against_virtual_nodes(&spreads),
    );
    report.section("Hops");
    hops::describe(&mut report, &searches);
    report.figure(
        "figure-5",
        "Hops against the number of nodes",
        hops::draw(&searches),
    );
    report.section("The worst load");
    describe_worst(&mut report, &worst);
    report.figure(
        "figure-6",
        "The worst load against the number of nodes",
        draw_worst(&worst),
    );
    corrections(&mut report, &spreads, &searches);
    judge(&mut report, &spreads);
    hops::judge(&mut report, &searches);
    report.time(
        "seconds of the whole run",
        begin.elapsed().as_secs_f64(),
        20.0,
    );
    report
}

fn rings(virtual_nodes: u32) -> u32 {
    if virtual_nodes > 125 { 1 } else { RINGS }
}

fn work() -> u64 {
    let spreads = VIRTUAL_NODES.map(|k| spans::work(NODES, k, rings(k)));
    let searches = FINGERS.map(|k| SIZES.len() as u64 * hops::work(k, SEARCHES, true));
    let worst = WORST.map(|nodes| spans::work(nodes, 1, WORST_RINGS));
    spreads.into_iter().chain(searches).chain(worst).sum()
}

/// The worst loads of rings of one size, without virtual nodes.
#[derive(Debug)]
struct Worst {
    nodes: u32,
    least: f64,
    mean: f64,
    most: f64,
    /// The root of the mean square deviation, and the mean of the deviations.
    deviations: (f64, f64),
}

impl Worst {
    fn measure(seed: u64, nodes: u32, progress: &mut Progress) -> Self {
        let mut summaries = Vec::new();
        for ring in 0..WORST_RINGS {
            let loads = simulation::loads(seed.wrapping_add(ring.into()), nodes, 1);
            summaries.push(Summary::of(&loads));
            progress.advance(spans::work(nodes, 1, 1), &format!("rings of {nodes} nodes"));
        }
        let count = f64::from(WORST_RINGS);
        let most = || summaries.iter().map(|it| it.max);
        let squares: f64 = summaries.iter().map(|it| it.deviation * it.deviation).sum();
        let deviations: f64 = summaries.iter().map(|it| it.deviation).sum();
        Self {
            nodes,
            least: most().fold(f64::MAX, f64::min),
            mean: most().sum::<f64>() / count,
            most: most().fold(0.0, f64::max),
            deviations: ((squares / count).sqrt(), deviations / count),
        }
    }

    /// The harmonic number.
    fn expected(&self) -> f64 {
        f64::from(self.nodes).ln() + EULER
    }
}

fn describe_worst(report: &mut Report, all: &[Worst]) {
    report.paragraph(format_args!(
        "The load of the worst node without virtual nodes, in units of the mean, in {WORST_RINGS} \
         rings of each size. It grows with the number of nodes: ln n + {EULER:.4} is expected.",
    ));
    let row = |it: &Worst| {
        let values = [
            it.least,
            it.mean,
            it.most,
            it.expected(),
            it.deviations.0,
            deviation(it.nodes.into(), 1.0),
        ];
        let mut row = vec![it.nodes.to_string()];
        row.extend(values.map(digits));
        row
    };
    let heads = ["n", "least", "mean", "most", "ln n + γ", "std", "law"];
    report.table(&heads, &all.iter().map(row).collect::<Vec<_>>());
    let json = |it: &Worst| {
        json!({
            "nodes": it.nodes, "rings": WORST_RINGS, "least": it.least, "mean": it.mean,
            "most": it.most, "expected": it.expected(), "deviation": it.deviations.0,
            "mean of deviations": it.deviations.1,
        })
    };
    report.number("worst", all.iter().map(json).collect());
}

/// What the article did not say.
fn corrections(report: &mut Report, spreads: &[Spread], searches: &[Searches]) {
    report.section("What has been found since");
    let [one, many] = [1, 25].map(|k| spreads.iter().find(|it| it.virtual_nodes == k));
    if let Some(one) = one {
        let most: Vec<_> = one.summaries.iter().map(|it| it.max).collect();
        let over = most.iter().filter(|max| **max > 10.0).count();
        let mean = mean(&most);
        report.paragraph(format_args!(
            "1. **\"10 to 15 times\" is the upper half.** The worst of 10,000 nodes holds {} times the \
             mean on average over {} rings (expected 9.79), and more than 10 times it in {over} of \
             them. The least loaded node of the first ring holds {} of the mean.",
            digits(mean),
            most.len(),
            digits(one.summary.min),
        ));
    }
    report.paragraph(
        "2. **There is an exact law.** The load of a node is Beta(k, k(n-1)) of the whole, so its \
         standard deviation in units of the mean is sqrt((n-1)/(nk+1)). Erlang is the limit for \
         many nodes: with 10 nodes the standard deviation is 0.905, and not 1.",
    );
    let find = |k| {
        searches
            .iter()
            .find(|it| (it.nodes, it.virtual_nodes) == (NODES, k))
    };
    if let (Some(first), Some(last)) = (find(1), find(64)) {
        report.paragraph(format_args!(
            "3. **Virtual nodes need not cost hops.** With the fingers of one place a search takes {} \
             hops with k = 1 and {} with k = 64. A node that looks in all its finger tables takes {}.",
            digits(first.by_place.mean),
            digits(last.by_place.mean),
            last.by_node.map_or_else(String::new, |hops| digits(hops.mean)),
        ));
    }
    if let Some((spread, (_, pooled))) = many.and_then(|it| Some((it, it.pooled.as_ref()?))) {
        report.paragraph(format_args!(
            "4. **One test is a weak judge.** With one ring and k = 25, p is {} for the law and {} \
             for that of k = 26. With {RINGS} rings together it is {} and {}.",
            digits(spread.fits.law.p),
            digits(spread.fits.next.p),
            digits(pooled.law.p),
            digits(pooled.next.p),
        ));
    }
}

fn judge(report: &mut Report, spreads: &[Spread]) {
    for it in spreads {
        let k = it.virtual_nodes;
        let name = |what: &str| format!("k = {k}: {what}");
        let root = f64::from(k).sqrt();
        report.at_least(name("p of one ring"), it.fits.law.p, 0.01);
        if k <= 25 {
            report.at_most(
                name("p of the normal law, one ring"),
                it.fits.normal.p,
                1e-4,
            );
        }
        if let Some((loads, fits)) = &it.pooled {
            report.at_least(name("p of all rings"), fits.law.p, 0.01);
            report.at_most(name("p of the normal law, all rings"), fits.normal.p, 1e-20);
            if k <= 25 {
                report.at_most(name("p of k + 1, all rings"), fits.next.p, 1e-3);
            }
            let ratio = loads.deviation / it.expected_deviation();
            report.bar(name("std of all rings / law"), ratio, 0.99, 1.01);
        }
        let median = it.law().median();
        match k {
            1 => report.bar(
                name("median"),
                it.summary.median,
                median - 0.04,
                median + 0.04,
            ),
            10.. => report.bar(
                name("median"),
                it.summary.median,
                median - 0.016,
                median + 0.016,
            ),
            _ => {}
        }
        let room = if k <= 3 { 0.06 } else { 0.04 };
        report.bar(
            name("std x sqrt k"),
            it.summary.deviation * root,
            1.0 - room,
            1.0 + room,
        );
        if k == 1 {
            report.bar(name("worst load"), it.summary.max, 7.0, 17.0);
            let most: Vec<_> = it.summaries.iter().map(|it| it.max).collect();
            report.bar(
                name("mean of the worst loads"),
                mean(&most),
                9.79 - 0.8,
                9.79 + 0.8,
            );
        }
        if k == 256 {
            report.bar(name("std"), it.summary.deviation, 0.06, 0.065);
            report.bar(name("worst load"), it.summary.max, 1.2, 1.35);
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    let count = f64::from(u32::try_from(values.len().max(1)).unwrap_or(u32::MAX));
    values.iter().sum::<f64>() / count
}

/// Sixteen nodes; an arc belongs to the node at its end.
fn circle(seed: u64) -> Figure {
    const COUNT: u32 = 16;
    const CENTRE: (f64, f64) = (220.0, 240.0);
    const RADIUS: f64 = 150.0;
    let members = (0..COUNT.into())
        .map(|number| simulation::node(seed, number))
        .collect();
    let ring = Ring::with_nodes(1, members);
    let loads = ring.loads();
    let share = |point: u64| to_float(point) / 2f64.powi(64);
    let mut figure = Figure::new(440.0, 450.0);
    figure.title((10.0, 18.0), "A ring with 16 nodes: load / mean");
    for place in 0..ring.len() {
        let end = share(ring.point(place));
        let length = share(u64::try_from(loads[ring.holder(place)]).unwrap_or(u64::MAX));
        let load = length * f64::from(COUNT);
        let colour: Colour = spans::heat(load);
        figure.line(
            arc(CENTRE, RADIUS, end - length, end),
            Pen::new(colour, 22.0),
        );
        let middle = arc(CENTRE, RADIUS + 32.0, end - length / 2.0, end)[0];
        figure.text(
            (middle.0, middle.1 + 3.5),
            Anchor::Middle,
            BLACK,
            format!("{load:.2}"),
        );
    }
    for place in 0..ring.len() {
        let at = arc(CENTRE, RADIUS, share(ring.point(place)), 1.0)[0];
        figure.dot(at, 5.0, BLACK);
    }
    debug_assert_eq!(ring.nodes().len(), COUNT as usize);
    figure
}

fn against_virtual_nodes(spreads: &[Spread]) -> Figure {
    let axes = [Axis::logarithmic(1.0, 256.0), Axis::logarithmic(0.05, 12.0)];
    let labels = ["virtual nodes", "load / mean"];
    let mut chart = Chart::new(
        (640.0, 400.0),
        "Fairness against virtual nodes, 10,000 nodes",
        labels,
        axes,
    );
    let line = |value: fn(&Spread) -> f64| -> Vec<_> {
        spreads
            .iter()
            .map(|it| (f64::from(it.virtual_nodes), value(it)))
            .collect()
    };
    let (worst, std) = (line(|it| it.summary.max), line(|it| it.summary.deviation));
    chart.curve(&worst, Pen::new(RED, 1.5), "worst load");
    chart.dots(&worst, RED);
    chart.curve(
        &line(Spread::expected_deviation),
        Pen::dashed(GREY),
        "sqrt((n-1)/(nk+1))",
    );
    chart.curve(&std, Pen::new(BLUE, 1.5), "standard deviation");
    chart.dots(&std, BLUE);
    chart.finish()
}

fn draw_worst(all: &[Worst]) -> Figure {
    let highest = all.iter().map(|it| it.most).fold(1.0, f64::max);
    let axes = [
        Axis::logarithmic(10.0, 100_000.0),
        Axis::linear(0.0, highest * 1.1),
    ];
    let title = "The worst load without virtual nodes";
    let mut chart = Chart::new((640.0, 400.0), title, ["nodes", "load / mean"], axes);
    let line = |value: fn(&Worst) -> f64| -> Vec<_> {
        all.iter()
            .map(|it| (f64::from(it.nodes), value(it)))
            .collect()
    };
    let name = format!("range of {WORST_RINGS} rings");
    chart.band(&line(|it| it.least), &line(|it| it.most), LIGHT, &name);
    let means = line(|it| it.mean);
    chart.curve(&means, Pen::new(RED, 1.5), "mean");
    chart.dots(&means, RED);
    chart.curve(&line(Worst::expected), Pen::dashed(BLUE), "ln n + 0.577");
    chart.finish()
}

#[expect(clippy::cast_precision_loss, reason = "a place in a drawing")]
fn to_float(point: u64) -> f64 {
    point as f64
}
