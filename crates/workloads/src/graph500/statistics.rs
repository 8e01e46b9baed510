//! The figures of a run in the form that the text requires: names, order and meaning.
//!
//! Times are in seconds, `nedge` is a number of tuples, `TEPS` tuples per second. Quartiles are
//! those of the reference program: the mean of the two places next to a quarter.

#![expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// One search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// How long kernel 2 took.
    pub time: Duration,
    /// Tuples of the list in the component of the key.
    pub edges: u64,
    /// How long the validation took, which is no part of the result.
    pub validation: Duration,
}

/// What is put out in the end.
#[derive(Clone, Debug)]
pub struct Report {
    /// Logarithm to base 2 of the number of vertices, rounded up where the list is from a file.
    pub scale: u32,
    /// Tuples for each of 2^scale vertices, rounded down.
    pub edge_factor: u64,
    /// Threads at work.
    pub threads: usize,
    /// How long the list took to generate or to read.
    pub generation: Duration,
    /// How long kernel 1 took.
    pub construction: Duration,
    /// One for each key.
    pub searches: Vec<Measured>,
}

/// Order statistics, mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Least, first quartile, median, third quartile, greatest.
    pub quartiles: [f64; 5],
    /// Arithmetic or harmonic.
    pub mean: f64,
    /// Of the sample; for the harmonic mean as Norris (1940) gives it.
    pub deviation: f64,
}

impl Summary {
    /// With the arithmetic mean. All are 0 if there are no values.
    pub fn new(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self {
                quartiles: [0.0; 5],
                mean: 0.0,
                deviation: 0.0,
            };
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            quartiles: quartiles(values),
            mean,
            deviation: (squares / (count - 1.0).max(1.0)).sqrt(),
        }
    }

    /// With the harmonic mean, for rates above 0.
    pub fn of_rates(rates: &[f64]) -> Self {
        if rates.is_empty() {
            return Self::new(&[]);
        }
        let count = rates.len() as f64;
        let inverse = rates.iter().map(|rate| rate.recip());
        let mean_of_inverse = inverse.clone().sum::<f64>() / count;
        let mean = mean_of_inverse.recip();
        let squares: f64 = inverse.map(|one| (one - mean_of_inverse).powi(2)).sum();
        Self {
            quartiles: quartiles(rates),
            mean,
            deviation: squares.sqrt() / (count - 1.0).max(1.0) * mean * mean,
        }
    }

    /// The middle of the values.
    pub const fn median(&self) -> f64 {
        self.quartiles[2]
    }
}

/// Of at least one value.
fn quartiles(values: &[f64]) -> [f64; 5] {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (count, last) = (sorted.len(), sorted.len() - 1);
    let between = |one: usize, other: usize| f64::midpoint(sorted[one], sorted[other]);
    [
        sorted[0],
        between(last / 4, count / 4),
        between(last / 2, count / 2),
        between(last - last / 4, last - count / 4),
        sorted[last],
    ]
}

impl Report {
    /// Seconds of kernel 2.
    pub fn times(&self) -> Summary {
        let times = self.searches.iter().map(|one| one.time.as_secs_f64());
        Summary::new(&times.collect::<Vec<_>>())
    }

    /// Seconds of the validation.
    pub fn validations(&self) -> Summary {
        let times = self.searches.iter().map(|one| one.validation.as_secs_f64());
        Summary::new(&times.collect::<Vec<_>>())
    }

    /// Tuples of the component.
    pub fn edges(&self) -> Summary {
        let edges = self.searches.iter().map(|one| one.edges as f64);
        Summary::new(&edges.collect::<Vec<_>>())
    }

    /// Tuples per second.
    pub fn teps(&self) -> Summary {
        let rate = |one: &Measured| one.edges as f64 / one.time.as_secs_f64().max(1e-9);
        Summary::of_rates(&self.searches.iter().map(rate).collect::<Vec<_>>())
    }
}

impl Display for Report {
    /// The form of the text. Kernel 3 is not run, so its figures are 0, which the text allows.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "SCALE: {}", self.scale)?;
        writeln!(f, "edgefactor: {}", self.edge_factor)?;
        writeln!(f, "NBFS: {}", self.searches.len())?;
        writeln!(f, "num_threads: {}", self.threads)?;
        let generation = Exponent(self.generation.as_secs_f64());
        writeln!(f, "graph_generation: {generation}")?;
        let construction = Exponent(self.construction.as_secs_f64());
        writeln!(f, "construction_time: {construction}")?;
        lines(f, "bfs", "time", "", &self.times())?;
        lines(f, "bfs", "nedge", "", &self.edges())?;
        lines(f, "bfs", "TEPS", "harmonic_", &self.teps())?;
        lines(f, "bfs", "validation", "", &self.validations())?;
        let none = Summary::new(&[]);
        lines(f, "sssp", "time", "", &none)?;
        lines(f, "sssp", "nedge", "", &none)?;
        lines(f, "sssp", "TEPS", "harmonic_", &none)
    }
}

fn lines(
    f: &mut Formatter<'_>,
    kernel: &str,
    what: &str,
    mean: &str,
    summary: &Summary,
) -> fmt::Result {
    let names = ["min", "firstquartile", "median", "thirdquartile", "max"];
    for (name, value) in names.iter().zip(summary.quartiles) {
        writeln!(f, "{kernel}_{name}_{what}: {}", Exponent(value))?;
    }
    writeln!(f, "{kernel}_{mean}mean_{what}: {}", Exponent(summary.mean))?;
    let deviation = Exponent(summary.deviation);
    writeln!(f, "{kernel}_{mean}stddev_{what}: {deviation}")
}

/// A number as `%20.17e` of C prints it.
struct Exponent(f64);

impl Display for Exponent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = format!("{:.17e}", self.0);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        write!(f, "{mantissa}e{sign}{digits:0>2}")
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these have no rounding error")]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_those_of_the_reference() {
        let summary = Summary::new(&[4.0, 1.0, 3.0, 2.0]);
        // Places (n-1)/4 and n/4 are 0 and 1.
        assert_eq!(summary.quartiles, [1.0, 1.5, 2.5, 3.5, 4.0]);
        assert_eq!(summary.mean, 2.5);
        assert!((summary.deviation - (5.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Summary::new(&[7.0]).quartiles, [7.0; 5]);
        assert_eq!(Summary::new(&[]).mean, 0.0);
    }

    #[test]
    fn rates_have_a_harmonic_mean() {
        let summary = Summary::of_rates(&[1.0, 3.0]);
        assert!((summary.mean - 1.5).abs() < 1e-12);
        // Inverses 1 and 1/3, their mean 2/3: both are 1/3 away.
        let expect = (2.0_f64 / 9.0).sqrt() * 2.25;
        assert!((summary.deviation - expect).abs() < 1e-12);
    }

    #[test]
    fn numbers_are_printed_as_c_does() {
        for (value, expect) in [
            (0.0, "0.00000000000000000e+00"),
            (1.5, "1.50000000000000000e+00"),
            (0.00025, "2.50000000000000005e-04"),
            (1.25e123, "1.24999999999999994e+123"),
        ] {
            assert_eq!(Exponent(value).to_string(), expect);
        }
    }

    #[test]
    fn the_output_has_the_fields_of_the_text_in_their_order() {
        let search = Measured {
            time: Duration::from_millis(500),
            edges: 100,
            validation: Duration::from_secs(1),
        };
        let report = Report {
            scale: 4,
            edge_factor: 16,
            threads: 2,
            generation: Duration::ZERO,
            construction: Duration::from_secs(2),
            searches: vec![search; 3],
        };
        let text = report.to_string();
        let mut at = 0;
        for field in [
            "SCALE: 4\n",
            "edgefactor: 16\n",
            "NBFS: 3\n",
            "construction_time: 2.0",
            "bfs_min_time: 5.00000000000000000e-01\n",
            "bfs_firstquartile_time: ",
            "bfs_median_time: ",
            "bfs_thirdquartile_time: ",
            "bfs_max_time: ",
            "bfs_mean_time: ",
            "bfs_stddev_time: 0.0",
            "bfs_min_nedge: 1.00000000000000000e+02\n",
            "bfs_stddev_nedge: ",
            "bfs_median_TEPS: 2.00000000000000000e+02\n",
            "bfs_harmonic_mean_TEPS: 2.00000000000000000e+02\n",
            "bfs_harmonic_stddev_TEPS: 0.0",
            "sssp_harmonic_stddev_TEPS: 0.0",
        ] {
            let found = text[at..].find(field).expect(field);
            at += found + field.len();
        }
    }
}
