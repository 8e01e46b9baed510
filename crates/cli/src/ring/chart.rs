//! Axes, and what is drawn between them.

use super::figure::{Anchor, BLACK, Colour, Figure, GREY, LETTER, LIGHT, Pen, Point};

/// A figure with axes, whose frame has a title and room for labels.
#[derive(Debug)]
pub(super) struct Chart {
    figure: Figure,
    x: Axis,
    y: Axis,
    legend: f64,
}

/// A range of values along one side.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    ticks: Vec<f64>,
    /// Where the range begins and ends, in pixels.
    pixels: (f64, f64),
}

const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 32.0;
const BOTTOM: f64 = 36.0;

impl Axis {
    pub(super) fn linear(from: f64, to: f64) -> Self {
        let step = step(to - from);
        let first = (from / step).ceil();
        let ticks = (0..20).map(|i| (first + f64::from(i)) * step);
        Self {
            from,
            to,
            is_logarithmic: false,
            ticks: ticks.take_while(|tick| *tick <= to + step * 1e-9).collect(),
            pixels: (0.0, 1.0),
        }
    }

    /// Both ends are above 0.
    pub(super) fn logarithmic(from: f64, to: f64) -> Self {
        let decades = (-9..10).map(|power| 10f64.powi(power));
        let all = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * decade));
        let mut ticks: Vec<_> = all.filter(|tick| (from..=to).contains(tick)).collect();
        if ticks.len() > 9 {
            ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
        }
        Self {
            from,
            to,
            is_logarithmic: true,
            ticks,
            pixels: (0.0, 1.0),
        }
    }

    fn place(&self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value.max(1e-300) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        let (start, end) = self.pixels;
        start + (end - start) * share.clamp(0.0, 1.0)
    }
}

impl Chart {
    pub(super) fn new(
        size: Point,
        title: &str,
        labels: [&str; 2],
        [mut x, mut y]: [Axis; 2],
    ) -> Self {
        let (width, height) = size;
        x.pixels = (LEFT, width - RIGHT);
        y.pixels = (height - BOTTOM, TOP);
        let mut figure = Figure::new(width, height);
        figure.title((10.0, 18.0), title);
        for tick in &x.ticks {
            let at = x.place(*tick);
            figure.line(vec![(at, TOP), (at, height - BOTTOM)], Pen::new(LIGHT, 1.0));
            figure.text(
                (at, height - BOTTOM + 13.0),
                Anchor::Middle,
                BLACK,
                number(*tick),
            );
        }
        for tick in &y.ticks {
            let at = y.place(*tick);
            figure.line(vec![(LEFT, at), (width - RIGHT, at)], Pen::new(LIGHT, 1.0));
            figure.text((LEFT - 5.0, at + 3.5), Anchor::End, BLACK, number(*tick));
        }
        let corner = (LEFT, height - BOTTOM);
        let ends = [(LEFT, TOP), corner, (width - RIGHT, height - BOTTOM)];
        figure.line(ends.to_vec(), Pen::new(GREY, 1.0));
        figure.text((width - RIGHT, height - 7.0), Anchor::End, BLACK, labels[0]);
        figure.text((6.0, TOP - 4.0), Anchor::Start, BLACK, labels[1]);
        Self {
            figure,
            x,
            y,
            legend: TOP + 12.0,
        }
    }

    /// A line through these values, with a name in the legend.
    pub(super) fn curve(&mut self, values: &[Point], pen: Pen, name: &str) {
        let points = values.iter().map(|value| self.place(*value)).collect();
        self.figure.line(points, pen);
        self.name(pen.colour, name);
    }

    /// What lies between two lines.
    pub(super) fn band(&mut self, low: &[Point], high: &[Point], colour: Colour, name: &str) {
        let there = low.iter().map(|value| self.place(*value));
        let back = high.iter().rev().map(|value| self.place(*value));
        let points = there.chain(back).collect();
        self.figure.area(points, colour);
        self.name(colour, name);
    }

    pub(super) fn dots(&mut self, values: &[Point], colour: Colour) {
        for value in values {
            let at = self.place(*value);
            self.figure.dot(at, 2.5, colour);
        }
    }

    /// Bars of one width, side by side from the first value.
    pub(super) fn bars(&mut self, first: f64, width: f64, heights: &[f64], colour: Colour) {
        let mut left = first;
        for height in heights {
            let (from, to) = (self.place((left, 0.0)), self.place((left + width, *height)));
            if *height > 0.0 {
                self.figure.rectangle(from, (to.0 - 0.5, to.1), colour);
            }
            left += width;
        }
    }

    /// An upright line across the chart, with a name beside it.
    pub(super) fn mark(&mut self, x: f64, pen: Pen, name: &str) {
        let at = self.place((x, self.y.to)).0;
        let (bottom, top) = self.y.pixels;
        self.figure.line(vec![(at, bottom), (at, top)], pen);
        self.name(pen.colour, name);
    }

    pub(super) fn label(&mut self, value: Point, colour: Colour, text: &str) {
        let at = self.place(value);
        // To the left where there is no room to the right.
        let length = f64::from(u32::try_from(text.chars().count()).unwrap_or(u32::MAX)) * LETTER;
        let (anchor, shift) = if at.0 + 6.0 + length > self.figure.width {
            (Anchor::End, -6.0)
        } else {
            (Anchor::Start, 6.0)
        };
        self.figure
            .text((at.0 + shift, at.1 - 4.0), anchor, colour, text);
    }

    pub(super) fn name(&mut self, colour: Colour, name: &str) {
        if !name.is_empty() {
            let right = self.figure.width - RIGHT - 4.0;
            self.figure
                .text((right, self.legend), Anchor::End, colour, name);
            self.legend += 13.0;
        }
    }

    pub(super) fn finish(self) -> Figure {
        self.figure
    }

    fn place(&self, (x, y): Point) -> Point {
        (self.x.place(x), self.y.place(y))
    }
}

/// Between ticks: one, two or five times a power of ten, so that there are 4 to 9.
fn step(range: f64) -> f64 {
    let decade = 10f64.powf((range / 4.0).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * decade);
    steps
        .into_iter()
        .rfind(|step| range / step >= 4.0)
        .unwrap_or(decade)
}

/// With no more digits than it needs.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text {
        "" | "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_within_the_range() {
        let texts = |axis: Axis| {
            axis.ticks
                .iter()
                .map(|tick| number(*tick))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(texts(Axis::linear(0.0, 4.0)), "0 1 2 3 4");
        assert_eq!(texts(Axis::linear(0.5, 1.0)), "0.5 0.6 0.7 0.8 0.9 1");
        assert_eq!(texts(Axis::logarithmic(1.0, 20.0)), "1 2 5 10 20");
        assert_eq!(
            texts(Axis::logarithmic(10.0, 100_000.0)),
            "10 100 1000 10000 100000"
        );
    }
}
