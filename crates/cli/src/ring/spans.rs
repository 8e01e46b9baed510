//! How the circle is divided: loads of the nodes of rings, and the laws that they have.

use serde_json::{Value, json};
use unbroken_hash_ring::simulation;
use unbroken_hash_ring::statistics::{Fit, Law, Summary, deviation};
use unbroken_terminal::Progress;

use super::chart::{Axis, Chart};
use super::figure::{BLUE, Colour, Figure, GREEN, ORANGE, Pen, RED};
use super::report::{Report, digits};

/// The loads of rings with one number of virtual nodes.
#[derive(Debug)]
pub(super) struct Spread {
    pub(super) nodes: u32,
    pub(super) virtual_nodes: u32,
    /// Of the first ring, ascending.
    pub(super) loads: Vec<f64>,
    pub(super) summary: Summary,
    pub(super) fits: Fits,
    /// Of each ring.
    pub(super) summaries: Vec<Summary>,
    /// Of all rings together, if there are several.
    pub(super) pooled: Option<(Summary, Fits)>,
}

/// Tests of the law, and of two that must be refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fits {
    pub(super) law: Fit,
    pub(super) normal: Fit,
    /// The law of one virtual node more.
    pub(super) next: Fit,
}

impl Fits {
    fn of(loads: &[f64], nodes: u32, virtual_nodes: u32) -> Self {
        let shape = f64::from(virtual_nodes);
        Self {
            law: Fit::of(loads, Law::Gamma(shape)),
            normal: Fit::of(loads, Law::Normal(deviation(nodes.into(), shape))),
            next: Fit::of(loads, Law::Gamma(shape + 1.0)),
        }
    }

    fn json(&self) -> Value {
        json!({
            "distance": self.law.distance, "p": self.law.p,
            "normal distance": self.normal.distance, "normal p": self.normal.p,
            "next distance": self.next.distance, "next p": self.next.p,
        })
    }
}

impl Spread {
    /// Of so many rings, with seeds that count up from this one.
    pub(super) fn measure(
        seed: u64,
        (nodes, virtual_nodes): (u32, u32),
        rings: u32,
        progress: &mut Progress,
    ) -> Self {
        let mut first = Vec::new();
        let mut all = Vec::new();
        let mut summaries = Vec::new();
        for ring in 0..rings {
            let loads = simulation::loads(seed.wrapping_add(ring.into()), nodes, virtual_nodes);
            summaries.push(Summary::of(&loads));
            if ring == 0 {
                first.clone_from(&loads);
            }
            all.extend(loads);
            let what = format!("rings with {virtual_nodes} virtual nodes");
            progress.advance(work(nodes, virtual_nodes, 1), &what);
        }
        let pooled = (rings > 1).then(|| {
            all.sort_unstable_by(f64::total_cmp);
            (Summary::of(&all), Fits::of(&all, nodes, virtual_nodes))
        });
        Self {
            nodes,
            virtual_nodes,
            summary: Summary::of(&first),
            fits: Fits::of(&first, nodes, virtual_nodes),
            loads: first,
            summaries,
            pooled,
        }
    }

    pub(super) fn law(&self) -> Law {
        Law::Gamma(self.virtual_nodes.into())
    }

    /// The exact standard deviation.
    pub(super) fn expected_deviation(&self) -> f64 {
        deviation(self.nodes.into(), self.virtual_nodes.into())
    }

    pub(super) fn json(&self) -> Value {
        let summary = |it: &Summary| {
            json!({
                "min": it.min, "median": it.median, "p99": it.p99, "max": it.max,
                "deviation": it.deviation,
            })
        };
        json!({
            "nodes": self.nodes, "virtual nodes": self.virtual_nodes,
            "loads": summary(&self.summary),
            "expected deviation": self.expected_deviation(),
            "expected median": self.law().median(),
            "test": self.fits.json(),
            "pooled": self.pooled.as_ref().map(|(loads, fits)| json!({
                "rings": self.summaries.len(), "loads": summary(loads), "test": fits.json(),
            })),
        })
    }

    /// A histogram of the first ring with the density of the law.
    pub(super) fn histogram(&self, size: (f64, f64)) -> Figure {
        const BINS: u32 = 60;
        let (law, it) = (self.law(), &self.summary);
        let tail = 1.0 + 5.0 * self.expected_deviation();
        let end = it.max.min(tail.max(1.2)).max(1.1);
        let start = if it.min > 0.4 {
            (2.0 - end).max(0.0)
        } else {
            0.0
        };
        let width = (end - start) / f64::from(BINS);
        let bins = (0..BINS).map(|bin| {
            let low = start + f64::from(bin) * width;
            let count = self.loads.partition_point(|load| *load < low + width)
                - self.loads.partition_point(|load| *load < low);
            let count = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
            count / (f64::from(self.nodes) * width)
        });
        let bins: Vec<_> = bins.collect();
        let steps = (0..=200).map(|step| start + (end - start) * f64::from(step) / 200.0);
        let density: Vec<_> = steps.map(|x| (x, law.density(x))).collect();
        let highest = bins
            .iter()
            .copied()
            .chain(density.iter().map(|it| it.1))
            .fold(0.0, f64::max);
        let title = format!(
            "{} virtual node{}",
            self.virtual_nodes,
            if self.virtual_nodes == 1 { "" } else { "s" }
        );
        let axes = [Axis::linear(start, end), Axis::linear(0.0, highest * 1.08)];
        let mut chart = Chart::new(size, &title, ["load / mean", "density"], axes);
        chart.bars(start, width, &bins, GREEN);
        chart.curve(
            &density,
            Pen::new(BLUE, 1.5),
            if self.virtual_nodes == 1 {
                "exponential"
            } else {
                "Erlang"
            },
        );
        chart.mark(1.0, Pen::new(RED, 1.0), "mean");
        chart.mark(
            it.median,
            Pen::dashed(ORANGE),
            &format!("median {}", digits(it.median)),
        );
        for (name, value) in [
            ("std", it.deviation),
            ("p99", it.p99),
            ("max", it.max),
            ("p", self.fits.law.p),
        ] {
            chart.name(super::figure::BLACK, &format!("{name} {}", digits(value)));
        }
        chart.finish()
    }
}

/// What a progress bar counts: places.
pub(super) fn work(nodes: u32, virtual_nodes: u32, rings: u32) -> u64 {
    u64::from(nodes) * u64::from(virtual_nodes) * u64::from(rings)
}

/// The tables of loads and of tests.
pub(super) fn describe(report: &mut Report, spreads: &[Spread]) {
    report.paragraph(
        "Loads in units of the mean, of the first ring. `std x sqrt k` would be 1 if loads had \
         exactly the law of Erlang; the exact standard deviation is sqrt((n-1)/(nk+1)).",
    );
    let row = |it: &Spread| {
        let loads = &it.summary;
        let root = f64::from(it.virtual_nodes).sqrt();
        let values = [
            loads.median,
            it.law().median(),
            loads.deviation,
            it.expected_deviation(),
            loads.deviation * root,
            loads.min,
            loads.p99,
            loads.max,
            it.fits.law.distance,
            it.fits.law.p,
        ];
        let mut row = vec![it.virtual_nodes.to_string()];
        row.extend(values.map(digits));
        row
    };
    let heads = [
        "k",
        "median",
        "law",
        "std",
        "law",
        "std x sqrt k",
        "min",
        "p99",
        "max",
        "KS D",
        "KS p",
    ];
    report.table(&heads, &spreads.iter().map(row).collect::<Vec<_>>());
    report.paragraph(
        "The test of Kolmogorov and Smirnov against the law of Erlang with k, against the normal \
         law with the same standard deviation, and against Erlang with k + 1: p of one ring, and of \
         all rings together.",
    );
    let row = |it: &Spread| {
        let mut row = vec![it.virtual_nodes.to_string()];
        let ps = |fits: &Fits| [fits.law.p, fits.normal.p, fits.next.p].map(digits);
        row.extend(ps(&it.fits));
        match &it.pooled {
            Some((_, fits)) => {
                row.push(it.summaries.len().to_string());
                row.extend(ps(fits));
            }
            None => row.extend(["1", "-", "-", "-"].map(str::to_owned)),
        }
        row
    };
    let heads = [
        "k", "p law", "p normal", "p k+1", "rings", "p law", "p normal", "p k+1",
    ];
    report.table(&heads, &spreads.iter().map(row).collect::<Vec<_>>());
    report.number("spans", spreads.iter().map(Spread::json).collect());
}

/// Histograms side by side, and each alone.
pub(super) fn histograms(report: &mut Report, name: &str, spreads: &[Spread]) {
    const COLUMNS: usize = 3;
    const SIZE: (f64, f64) = (360.0, 240.0);
    let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    let rows = count(spreads.len().div_ceil(COLUMNS));
    let columns = count(spreads.len().min(COLUMNS));
    let mut sheet = Figure::new(SIZE.0 * columns, SIZE.1 * rows);
    for (at, spread) in spreads.iter().enumerate() {
        let place = (count(at % COLUMNS) * SIZE.0, count(at / COLUMNS) * SIZE.1);
        sheet.place(spread.histogram(SIZE), place);
    }
    report.figure(name, "Loads of the nodes, with the law of Erlang", sheet);
    for spread in spreads {
        let part = format!("{name}-k{}", spread.virtual_nodes);
        report.part(part, spread.histogram((560.0, 340.0)));
    }
}

/// From blue for little to red for much; green is the mean.
pub(super) fn heat(load: f64) -> Colour {
    let mix = |from: Colour, to: Colour, share: f64| {
        let part = |from: u8, to: u8| {
            let value = f64::from(from) + (f64::from(to) - f64::from(from)) * share.clamp(0.0, 1.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between two colours"
            )]
            let value = value.round() as u8;
            value
        };
        [
            part(from[0], to[0]),
            part(from[1], to[1]),
            part(from[2], to[2]),
        ]
    };
    if load < 1.0 {
        mix(BLUE, GREEN, load)
    } else {
        mix(GREEN, RED, (load - 1.0) / 2.0)
    }
}
