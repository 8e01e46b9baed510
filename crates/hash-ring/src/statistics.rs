//! What the experiments are judged by: laws of loads, and the test of Kolmogorov and Smirnov.
//!
//! A load is in units of the mean, so every law here has the mean 1.

#![expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

use std::f64::consts::PI;

/// Euler's constant: the harmonic number of n is about ln n + this.
pub const EULER: f64 = 0.577_215_664_901_532_9;

/// A law of loads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Gamma with this shape; for a whole number the law of Erlang, and for 1 the exponential one.
    Gamma(f64),
    /// Normal, with this standard deviation.
    Normal(f64),
}

impl Law {
    /// The probability of a load up to `x`.
    pub fn below(self, x: f64) -> f64 {
        match self {
            Self::Gamma(shape) => gamma_below(shape, shape * x),
            Self::Normal(deviation) => {
                let z = (x - 1.0) / deviation;
                let tail = gamma_above(0.5, z * z / 2.0) / 2.0;
                if z < 0.0 { tail } else { 1.0 - tail }
            }
        }
    }

    /// The density at `x`.
    pub fn density(self, x: f64) -> f64 {
        match self {
            Self::Gamma(_) if x < 0.0 => 0.0,
            Self::Gamma(shape) => {
                // For a shape of 1 and x = 0 the logarithm would be multiplied by 0.
                let power = if shape > 1.0 {
                    (shape - 1.0) * (shape * x).ln()
                } else {
                    0.0
                };
                shape * (power - shape * x - ln_gamma(shape)).exp()
            }
            Self::Normal(deviation) => {
                let z = (x - 1.0) / deviation;
                (-z * z / 2.0).exp() / (deviation * (2.0 * PI).sqrt())
            }
        }
    }

    /// The load that half of the nodes are below.
    pub fn median(self) -> f64 {
        let (mut low, mut high) = (0.0, 2.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if self.below(middle) < 0.5 {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// The exact standard deviation of the loads of n nodes with k virtual nodes each, in units of the
/// mean: a load is Beta(k, k(n-1)) of the whole.
pub fn deviation(nodes: f64, virtual_nodes: f64) -> f64 {
    ((nodes - 1.0) / (nodes * virtual_nodes + 1.0)).sqrt()
}

/// What a set of loads comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The least.
    pub min: f64,
    /// Half of them are below it.
    pub median: f64,
    /// 99 % of them are below it.
    pub p99: f64,
    /// The most.
    pub max: f64,
    /// The standard deviation of all of them, which are not a sample.
    pub deviation: f64,
}

impl Summary {
    /// Of loads in ascending order; all zero of none.
    pub fn of(sorted: &[f64]) -> Self {
        let count = sorted.len().max(1) as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let squares = sorted.iter().map(|load| (load - mean) * (load - mean));
        let at = |hundredths: usize| {
            let last = sorted.len().saturating_sub(1);
            sorted.get(last * hundredths / 100).copied().unwrap_or(0.0)
        };
        Self {
            min: at(0),
            median: at(50),
            p99: at(99),
            max: at(100),
            deviation: (squares.sum::<f64>() / count).sqrt(),
        }
    }
}

/// A test of Kolmogorov and Smirnov.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The largest distance between the law and the share of loads that are below.
    pub distance: f64,
    /// How likely so large a distance is, if loads have this law and are independent.
    pub p: f64,
}

impl Fit {
    /// Of loads in ascending order.
    pub fn of(sorted: &[f64], law: Law) -> Self {
        let distance = distance(sorted, law);
        Self {
            distance,
            p: kolmogorov(sorted.len(), distance),
        }
    }
}

/// The largest distance between a law and the share of these loads that are below.
///
/// Both rise, so their values at two loads bound the distance in between. Halving the range where
/// the bound is above the largest distance so far needs a few hundred values of the law, and gives
/// the same as all of them.
fn distance(sorted: &[f64], law: Law) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let count = sorted.len() as f64;
    let share = |loads: usize| loads as f64 / count;
    let apart = |at: usize, below: f64| (share(at + 1) - below).max(below - share(at));
    let ends = [0, last].map(|at| law.below(sorted[at]));
    let mut largest = apart(0, ends[0]).max(apart(last, ends[1]));
    let mut open = vec![(0, last, ends[0], ends[1])];
    while let Some((first, last, low, high)) = open.pop() {
        let bound = (share(last) - low).max(high - share(first + 1));
        if last - first < 2 || bound <= largest {
            continue;
        }
        let middle = usize::midpoint(first, last);
        let below = law.below(sorted[middle]);
        largest = largest.max(apart(middle, below));
        open.push((first, middle, low, below));
        open.push((middle, last, below, high));
    }
    largest
}

/// The probability that the distance of this many independent values from their own law is at least
/// so large. To three digits for more than 100 values.
pub fn kolmogorov(count: usize, distance: f64) -> f64 {
    let n = count as f64;
    let squared = n * distance * distance;
    if squared >= 370.0 {
        return 0.0; // below the smallest number
    }
    if squared >= 2.2 {
        return (2.0 * smirnov(count, distance)).min(1.0);
    }
    // The limit law of Kolmogorov, at a point moved for the number of values (Vrbik, 2018).
    let z = n.sqrt() * distance;
    let z = z + 1.0 / (6.0 * n.sqrt()) + (z - 1.0) / (4.0 * n);
    if z < 0.2 {
        return 1.0;
    }
    // The sum over odd numbers; it converges fast for the small z that come here.
    let terms = (1..=20).map(|i| {
        let odd = f64::from(2 * i - 1);
        (-odd * odd * PI * PI / (8.0 * z * z)).exp()
    });
    1.0 - (2.0 * PI).sqrt() / z * terms.sum::<f64>()
}

/// The exact probability that the largest distance to one side is at least so large (Smirnov).
fn smirnov(count: usize, distance: f64) -> f64 {
    let n = count as f64;
    let mut choices = 0.0; // the logarithm of n over j
    let mut sum = 0.0;
    for j in 0..count {
        let j = j as f64;
        let (below, above) = (distance + j / n, 1.0 - distance - j / n);
        if above <= 0.0 {
            break;
        }
        sum += (choices + (j - 1.0) * below.ln() + (n - j) * above.ln()).exp();
        choices += ((n - j) / (j + 1.0)).ln();
    }
    distance * sum
}

/// The logarithm of the gamma function (Lanczos).
fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let terms = (1..).zip(COEFFICIENTS).map(|(i, c)| c / (x + f64::from(i)));
    let sum = 0.999_999_999_999_809_9 + terms.sum::<f64>();
    let t = x + 7.5;
    0.5 * (2.0 * PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// The regularised incomplete gamma function, from below.
fn gamma_below(shape: f64, x: f64) -> f64 {
    if x <= 0.0 {
        0.0
    } else if x < shape + 1.0 {
        gamma_series(shape, x)
    } else {
        1.0 - gamma_fraction(shape, x)
    }
}

/// The regularised incomplete gamma function, from above.
fn gamma_above(shape: f64, x: f64) -> f64 {
    if x <= 0.0 {
        1.0
    } else if x < shape + 1.0 {
        1.0 - gamma_series(shape, x)
    } else {
        gamma_fraction(shape, x)
    }
}

fn gamma_series(shape: f64, x: f64) -> f64 {
    let mut term = 1.0 / shape;
    let mut sum = term;
    let mut next = shape;
    while term > sum * 1e-16 {
        next += 1.0;
        term *= x / next;
        sum += term;
    }
    sum * (shape * x.ln() - x - ln_gamma(shape)).exp()
}

/// As a continued fraction, by the method of Lentz.
fn gamma_fraction(shape: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let near = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut term = x + 1.0 - shape;
    let mut above = 1.0 / TINY;
    let mut below = 1.0 / term;
    let mut fraction = below;
    for step in 1..1_000 {
        let step = f64::from(step);
        let numerator = -step * (step - shape);
        term += 2.0;
        below = 1.0 / near(numerator * below + term);
        above = near(term + numerator / above);
        fraction *= below * above;
        if (below * above - 1.0).abs() < 1e-15 {
            break;
        }
    }
    fraction * (shape * x.ln() - x - ln_gamma(shape)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(ours: f64, theirs: f64, relative: f64) {
        assert!(
            (ours / theirs - 1.0).abs() < relative,
            "{ours} is not {theirs}"
        );
    }

    #[test]
    fn laws_are_those_of_the_tables() {
        close(Law::Gamma(1.0).below(1.0), 1.0 - (-1f64).exp(), 1e-13);
        close(Law::Gamma(5.0).below(1.0), 0.559_506_714_934_788, 1e-12);
        close(Law::Normal(1.0).below(2.96), 0.975_002_104_851_78, 1e-12);
        close(Law::Normal(1.0).below(-0.96), 0.024_997_895_148_22, 1e-10);
        close(Law::Gamma(1.0).median(), 2f64.ln(), 1e-12);
        close(Law::Normal(0.3).median(), 1.0, 1e-12);
        for law in [Law::Gamma(1.0), Law::Gamma(7.0), Law::Normal(0.2)] {
            for x in [0.3, 1.0, 1.7] {
                let slope = (law.below(x + 1e-5) - law.below(x - 1e-5)) / 2e-5;
                close(law.density(x), slope, 1e-6);
            }
        }
    }

    #[test]
    fn halving_finds_the_same_distance_as_all_values() {
        let hash = |i: u64| crate::hash::pair_hash(crate::NodeId(7), i) as f64 / 2f64.powi(64);
        for count in [1, 2, 3, 10, 1_000] {
            let mut loads: Vec<_> = (0..count).map(|i| -hash(i).ln()).collect();
            loads.sort_unstable_by(f64::total_cmp);
            for law in [Law::Gamma(1.0), Law::Gamma(2.0), Law::Normal(1.0)] {
                let both = (0..).zip(&loads).map(|(at, load)| {
                    let (at, below) = (f64::from(at), law.below(*load));
                    let n = count as f64;
                    ((at + 1.0) / n - below).max(below - at / n)
                });
                let naive = both.fold(0.0, f64::max);
                assert!((distance(&loads, law) - naive).abs() < 1e-15);
            }
        }
        assert!(distance(&[], Law::Gamma(1.0)) < f64::EPSILON);
    }

    /// Values of scipy 1.17, `kstwo.sf`.
    #[test]
    fn p_is_that_of_another_library() {
        for (count, distance, p) in KSTWO {
            close(kolmogorov(count, distance), p, 1e-3);
        }
        assert!(kolmogorov(10_000, 0.3) < 1e-300);
        assert!(kolmogorov(10_000, 0.000_1) > 1.0 - f64::EPSILON);
    }

    const KSTWO: [(usize, f64, f64); 12] = [
        (101, 0.05, 0.951_366_290_745),
        (150, 0.1, 0.092_921_322_322),
        (1_000, 0.02, 0.810_897_165_690),
        (1_000, 0.04, 0.079_339_559_590),
        (10_000, 0.005_3, 0.940_033_266_874),
        (10_000, 0.011_5, 0.140_874_159_909),
        (10_000, 0.008_1, 0.525_292_361_394),
        (10_000, 0.014_6, 0.027_878_580_382),
        (10_000, 0.02, 0.000_661_684_863_9),
        (10_000, 0.1, 1.663_311_331_595e-87),
        (500_000, 0.001, 0.698_980_144_366),
        (500_000, 0.003, 0.000_246_323_012_4),
    ];
}
