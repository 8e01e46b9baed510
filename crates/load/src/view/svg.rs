//! The latency distribution as a drawing: percentiles to the right, stretched towards the rare
//! ones, latency upwards.

use crate::report::{Report, micros};
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;
/// Percentiles with a grid line.
const MARKS: [(f64, &str); 6] = [
    (0.0, "0"),
    (50.0, "50 %"),
    (90.0, "90 %"),
    (99.0, "99 %"),
    (99.9, "99.9 %"),
    (99.99, "99.99 %"),
];

/// A complete SVG document.
pub(crate) fn latency(report: &Report) -> String {
    let curve = report
        .figures
        .as_ref()
        .map(|figures| figures.latency.curve.as_slice())
        .unwrap_or_default();
    let scale = Scale::of(curve);
    let mut svg = String::new();
    let told = &report.told;
    let load = told.rate.map_or_else(
        || format!("window {}", told.window),
        |rate| format!("{rate:.0} messages/s"),
    );
    let title = format!(
        "{}: {} connections, QoS {}, {} B, {load}",
        report.scenario, told.connections, told.qos, told.payload_bytes
    );
    // Writing to a string cannot fail.
    let _ = draw(&mut svg, curve, &scale, &title);
    svg
}

fn draw(svg: &mut String, curve: &[(f64, f64)], scale: &Scale, title: &str) -> std::fmt::Result {
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
    )?;
    writeln!(svg, r##"<rect width="100%" height="100%" fill="#fff"/>"##)?;
    writeln!(
        svg,
        r#"<text x="{LEFT}" y="28" font-size="15">Latency by percentile: {title}</text>"#
    )?;
    for (percentile, label) in MARKS
        .into_iter()
        .filter(|(percentile, _)| *percentile <= scale.last)
    {
        let x = scale.x(percentile);
        let bottom = HEIGHT - BOTTOM;
        writeln!(
            svg,
            r##"<line x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom}" stroke="#ddd"/>"##
        )?;
        writeln!(
            svg,
            r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
            bottom + 18.0
        )?;
    }
    for value in scale.marks() {
        let y = scale.y(value);
        let right = WIDTH - RIGHT;
        writeln!(
            svg,
            r##"<line x1="{LEFT}" x2="{right}" y1="{y:.1}" y2="{y:.1}" stroke="#ddd"/>"##
        )?;
        let (x, y) = (LEFT - 6.0, y + 4.0);
        writeln!(
            svg,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="end">{}</text>"#,
            micros(value)
        )?;
    }
    let points: Vec<_> = curve
        .iter()
        .map(|(percentile, value)| format!("{:.1},{:.1}", scale.x(*percentile), scale.y(*value)))
        .collect();
    let points = points.join(" ");
    writeln!(
        svg,
        r##"<polyline fill="none" stroke="#0a7" stroke-width="2" points="{points}"/>"##
    )?;
    writeln!(svg, "</svg>")
}

/// Both axes are logarithmic: upwards by the value, to the right by the share that is beyond.
struct Scale {
    low: f64,
    high: f64,
    last: f64,
}

impl Scale {
    fn of(curve: &[(f64, f64)]) -> Self {
        let values = curve.iter().map(|(_, value)| value.max(1.0));
        let low = values.clone().fold(f64::INFINITY, f64::min).min(1e6);
        let high = values.fold(1.0, f64::max);
        let last = curve
            .iter()
            .map(|(percentile, _)| *percentile)
            .filter(|at| *at < 100.0)
            .fold(90.0, f64::max);
        Self {
            low: power_below(low),
            high: power_below(high) * 10.0,
            last,
        }
    }

    fn x(&self, percentile: f64) -> f64 {
        let nines = |at: f64| -((100.0 - at) / 100.0).log10();
        let share = nines(percentile.min(self.last)) / nines(self.last);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).log10() / (self.high / self.low).log10();
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        let (low, high) = (self.low, self.high);
        std::iter::successors(Some(low), |value| Some(value * 10.0))
            .take_while(move |value| *value <= high * 1.01)
    }
}

fn power_below(value: f64) -> f64 {
    10_f64.powf(value.max(1.0).log10().floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axes_span_the_curve() {
        let scale = Scale::of(&[
            (0.0, 20.0),
            (50.0, 300.0),
            (99.9, 4_000.0),
            (100.0, 5_000.0),
        ]);
        assert!((scale.x(0.0) - LEFT).abs() < 1e-9);
        assert!((scale.x(100.0) - (WIDTH - RIGHT)).abs() < 1e-9);
        assert!(scale.x(50.0) < scale.x(90.0));
        assert!((scale.y(10.0) - (HEIGHT - BOTTOM)).abs() < 1e-9);
        assert!((scale.y(10_000.0) - TOP).abs() < 1e-9);
        assert_eq!(scale.marks().count(), 4);
    }

    #[test]
    fn nothing_to_draw_is_drawn_as_nothing() {
        let scale = Scale::of(&[]);
        assert!(scale.x(0.0).is_finite() && scale.y(1.0).is_finite());
    }
}
