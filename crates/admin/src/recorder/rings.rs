//! Samples of all series in three rings: 1 s for 10 minutes, 10 s for 6 hours, 1 minute for 7 days.
//!
//! Invariants:
//! - The memory is fixed: 4 bytes for a value of the first ring, 8 for one of the others (mean, and
//!   the least and the greatest as the upper halves of floats). With [`SERIES`] of 33 that is
//!   3.3 MB, which the system gives only as it is filled.
//! - A value that was not sampled is not there: a gap is never drawn as 0.

use super::series::SERIES;

/// The values of one moment.
pub(crate) type Sample = [f32; SERIES.len()];

/// All rings.
#[derive(Debug)]
pub(crate) struct Rings {
    seconds: Ring,
    tens: Ring,
    minutes: Ring,
}

/// Values of one step each.
#[derive(Debug)]
struct Ring {
    /// Seconds of a step.
    step: u64,
    slots: usize,
    /// The number of the step in each slot, and 1; 0: it is empty.
    steps: Vec<u64>,
    mean: Vec<f32>,
    /// Not of the first ring, where a step is one sample.
    least: Vec<u16>,
    most: Vec<u16>,
    open: Option<Open>,
}

/// The step that is being filled.
#[derive(Clone, Debug)]
struct Open {
    step: u64,
    count: u32,
    row: Row,
}

/// Values of one step.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) mean: Sample,
    pub(crate) least: Sample,
    pub(crate) most: Sample,
}

/// Several steps of one series together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Point {
    pub(crate) avg: f32,
    pub(crate) min: f32,
    pub(crate) max: f32,
}

/// What a ring has of a time.
#[derive(Debug)]
pub(crate) struct Part {
    /// Seconds since 1970 of the first point.
    pub(crate) from: u64,
    pub(crate) step: u64,
    /// For each series that was asked for.
    pub(crate) points: Vec<Vec<Option<Point>>>,
}

impl Rings {
    pub(crate) fn new() -> Self {
        Self {
            seconds: Ring::new(1, 600, false),
            tens: Ring::new(10, 2_160, true),
            minutes: Ring::new(MINUTE, MINUTES, true),
        }
    }

    /// Adds a sample of this second. Answers a minute that is over.
    pub(crate) fn add(&mut self, second: u64, sample: &Sample) -> Option<(u64, Row)> {
        self.seconds.add(second, sample);
        self.tens.add(second, sample);
        self.minutes.add(second, sample)
    }

    /// A minute of an earlier run.
    pub(crate) fn restore(&mut self, minute: u64, row: &Row) {
        if self.minutes.is_older_at(minute) {
            self.minutes.put(minute, row);
        }
    }

    /// All series at this second, or at the one before.
    pub(crate) fn newest(&self, second: u64) -> Vec<Option<Point>> {
        let at = |series| {
            let now = self.seconds.point(second, series);
            now.or_else(|| self.seconds.point(second.saturating_sub(1), series))
        };
        (0..SERIES.len()).map(at).collect()
    }

    /// These series from `from` to `to`, in at most `points`, of the finest ring that reaches back
    /// so far. `began`: before it only minutes are there.
    pub(crate) fn read(
        &self,
        series: &[usize],
        (from, to): (u64, u64),
        points: u64,
        (now, began): (u64, u64),
    ) -> Part {
        let age = now.saturating_sub(from);
        let ring = match () {
            () if age <= 600 => &self.seconds,
            () if age <= 6 * 3_600 && from >= began => &self.tens,
            () => &self.minutes,
        };
        ring.read(series, (from, to), points)
    }
}

impl Ring {
    fn new(step: u64, slots: usize, has_extremes: bool) -> Self {
        let values = slots * SERIES.len();
        let extremes = if has_extremes { values } else { 0 };
        Self {
            step,
            slots,
            steps: vec![0; slots],
            mean: vec![0.0; values],
            least: vec![0; extremes],
            most: vec![0; extremes],
            open: None,
        }
    }

    fn add(&mut self, second: u64, sample: &Sample) -> Option<(u64, Row)> {
        let step = second / self.step;
        let mut over = None;
        if self.step == 1 {
            self.put(step, &Row::of(sample));
            return None;
        }
        if let Some(open) = self.open.take_if(|open| open.step != step) {
            self.put(open.step, &open.row);
            over = Some((open.step, open.row));
        }
        match &mut self.open {
            Some(open) => {
                open.count += 1;
                open.row.add(open.count, sample);
            }
            None => {
                self.open = Some(Open {
                    step,
                    count: 1,
                    row: Row::of(sample),
                });
            }
        }
        over
    }

    fn put(&mut self, step: u64, row: &Row) {
        let slot = self.slot(step);
        self.steps[slot] = step + 1;
        let range = slot * SERIES.len()..(slot + 1) * SERIES.len();
        self.mean[range.clone()].copy_from_slice(&row.mean);
        if !self.least.is_empty() {
            for (at, value) in range.zip(0..SERIES.len()) {
                self.least[at] = lower(row.least[value]);
                self.most[at] = upper(row.most[value]);
            }
        }
    }

    /// Whether what is in the place of this step is older than it.
    fn is_older_at(&self, step: u64) -> bool {
        self.steps[self.slot(step)] <= step + 1
    }

    fn slot(&self, step: u64) -> usize {
        usize::try_from(step % self.slots as u64).unwrap_or(0)
    }

    fn point(&self, step: u64, series: usize) -> Option<Point> {
        if let Some(open) = self.open.as_ref().filter(|open| open.step == step) {
            return open.row.point(series);
        }
        let slot = self.slot(step);
        let at = slot * SERIES.len() + series;
        let avg =
            Some(self.mean[at]).filter(|avg| self.steps[slot] == step + 1 && !avg.is_nan())?;
        let extremes = self.least.get(at).zip(self.most.get(at));
        let (min, max) = extremes.map_or((avg, avg), |(least, most)| (whole(*least), whole(*most)));
        Some(Point {
            avg,
            min: min.min(avg),
            max: max.max(avg),
        })
    }

    fn read(&self, series: &[usize], (from, to): (u64, u64), points: u64) -> Part {
        let first = from / self.step;
        let steps = (to / self.step).saturating_sub(first).saturating_add(1);
        let steps = steps.min(self.slots as u64);
        let together = steps.div_ceil(points.max(1)).max(1);
        let of = |series: usize| {
            let starts = (0..steps).step_by(usize::try_from(together).unwrap_or(usize::MAX));
            let joined = starts.map(|start| {
                let all = start..(start + together).min(steps);
                let all = all.filter_map(|step| self.point(first + step, series));
                join(all)
            });
            joined.collect()
        };
        Part {
            from: first * self.step,
            step: together * self.step,
            points: series.iter().map(|series| of(*series)).collect(),
        }
    }
}

impl Row {
    fn of(sample: &Sample) -> Self {
        Self {
            mean: *sample,
            least: *sample,
            most: *sample,
        }
    }

    fn add(&mut self, count: u32, sample: &Sample) {
        #[expect(clippy::cast_precision_loss, reason = "at most 60")]
        let share = 1.0 / count as f32;
        for (at, value) in sample.iter().enumerate() {
            if self.mean[at].is_nan() {
                self.mean[at] = *value;
            } else if !value.is_nan() {
                self.mean[at] += (value - self.mean[at]) * share;
            }
            self.least[at] = self.least[at].min(*value);
            self.most[at] = self.most[at].max(*value);
        }
    }

    fn point(&self, series: usize) -> Option<Point> {
        let avg = Some(self.mean[series]).filter(|avg| !avg.is_nan())?;
        Some(Point {
            avg,
            min: self.least[series],
            max: self.most[series],
        })
    }
}

fn join(points: impl Iterator<Item = Point>) -> Option<Point> {
    let (mut sum, mut count, mut joined) = (0.0_f64, 0.0_f64, None::<Point>);
    for point in points {
        sum += f64::from(point.avg);
        count += 1.0;
        let all = joined.get_or_insert(point);
        all.min = all.min.min(point.min);
        all.max = all.max.max(point.max);
    }
    #[expect(clippy::cast_possible_truncation, reason = "a mean of f32")]
    let avg = (sum / count) as f32;
    joined.map(|joined| Point { avg, ..joined })
}

/// The upper half of a value that is not negative, rounded towards 0.
pub(crate) fn lower(value: f32) -> u16 {
    u16::try_from(value.to_bits() >> 16).unwrap_or(u16::MAX)
}

/// The same, rounded away from 0.
pub(crate) fn upper(value: f32) -> u16 {
    if value.is_nan() {
        return lower(value);
    }
    u16::try_from(value.to_bits().saturating_add(0xffff) >> 16).unwrap_or(u16::MAX)
}

pub(crate) fn whole(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

const MINUTE: u64 = 60;
/// Minutes of seven days.
pub(crate) const MINUTES: usize = 7 * 24 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: f32) -> Sample {
        [value; SERIES.len()]
    }

    #[test]
    fn a_step_has_its_mean_and_its_extremes() {
        let mut rings = Rings::new();
        for second in 0_u8..120 {
            rings.add(1_000_020 + u64::from(second), &sample(f32::from(second)));
        }
        let read = |from, points| {
            let part = rings.read(&[0], (from, 1_000_139), points, (1_000_139, 0));
            part.points[0].clone()
        };
        assert_eq!(read(1_000_130, 100).len(), 10);
        let all = read(1_000_020, 4);
        assert_eq!(all.len(), 4);
        let first = all[0].unwrap();
        assert!((first.avg - 14.5).abs() < 0.01, "{first:?}");
        assert_eq!((first.min, first.max), (0.0, 29.0));
    }

    #[test]
    fn a_minute_that_is_over_is_answered_and_can_be_restored() {
        let mut rings = Rings::new();
        let mut over = Vec::new();
        for second in 0..130 {
            over.extend(rings.add(6_000_000 + second, &sample(3.0)));
        }
        let minutes: Vec<u64> = over.iter().map(|(minute, _)| *minute).collect();
        assert_eq!(minutes, [100_000, 100_001]);
        let mut other = Rings::new();
        for (minute, row) in &over {
            other.restore(*minute, row);
        }
        let now = 6_000_000 + 86_400;
        let part = other.read(&[5], (6_000_000, 6_000_180), 10, (now, now));
        let found: Vec<_> = part.points[0].iter().map(Option::is_some).collect();
        assert_eq!(found, [true, true, false, false]);
    }

    #[test]
    fn what_was_not_sampled_is_a_gap() {
        let mut rings = Rings::new();
        rings.add(100, &sample(f32::NAN));
        rings.add(101, &sample(1.0));
        let part = rings.read(&[0], (98, 102), 10, (102, 0));
        let found: Vec<_> = part.points[0].iter().map(Option::is_some).collect();
        assert_eq!(found, [false, false, false, true, false]);
    }

    #[test]
    fn halves_of_floats_enclose_the_value() {
        for value in [0.0, 0.1, 1.0, 3.25, 1e9, 123_456.79] {
            assert!(
                whole(lower(value)) <= value && value <= whole(upper(value)),
                "{value}"
            );
        }
    }
}
