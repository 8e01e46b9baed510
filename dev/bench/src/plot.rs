//! Bars of ratios to the yardstick, one group a row, on a logarithmic axis so that half and double
//! are equally far from one.

use std::fmt::{self, Write};

const WIDTH: f64 = 760.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 50.0;
const BAR: f64 = 13.0;
const GAP: f64 = 10.0;
/// What the labels' letters take at most.
const LETTER: f64 = 6.5;
const COLOURS: [&str; 12] = [
    "#0a7", "#888", "#fb4", "#47c", "#c46", "#86b", "#6bd", "#a74", "#9b3", "#e79", "#555", "#3bb",
];
const TICKS: [f64; 13] = [
    0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0,
];

/// The bars of one row, each with its peer.
#[derive(Debug)]
pub struct Group {
    /// The row's name.
    pub row: &'static str,
    /// Peers and ratios, in the order of the drawing.
    pub bars: Vec<(&'static str, f64)>,
}

/// A complete SVG document. Groups without bars are left out.
pub fn ratios(title: &str, groups: &[Group]) -> String {
    let groups: Vec<_> = groups
        .iter()
        .filter(|group| !group.bars.is_empty())
        .collect();
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = draw(&mut svg, title, &groups);
    svg
}

fn draw(svg: &mut String, title: &str, groups: &[&Group]) -> fmt::Result {
    let mut peers = Vec::new();
    for (peer, _) in groups.iter().flat_map(|group| &group.bars) {
        if !peers.contains(peer) {
            peers.push(peer);
        }
    }
    let bars: usize = groups.iter().map(|group| group.bars.len()).sum();
    let height = TOP + number(bars) * BAR + number(groups.len()) * GAP + 30.0;
    let axis = Axis::of(groups);
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">"#
    )?;
    writeln!(svg, r##"<rect width="100%" height="100%" fill="#fff"/>"##)?;
    writeln!(svg, r#"<text x="10" y="24" font-size="15">{title}</text>"#)?;
    for tick in TICKS.into_iter().filter(|tick| axis.holds(*tick)) {
        let x = axis.x(tick);
        let (bottom, colour) = (
            height - 24.0,
            if (tick - 1.0).abs() < 1e-9 {
                "#333"
            } else {
                "#ddd"
            },
        );
        writeln!(
            svg,
            r#"<line x1="{x:.1}" x2="{x:.1}" y1="{}" y2="{bottom}" stroke="{colour}"/>"#,
            TOP - 8.0
        )?;
        writeln!(
            svg,
            r#"<text x="{x:.1}" y="{}" text-anchor="middle">{tick}</text>"#,
            bottom + 14.0
        )?;
    }
    let mut y = TOP;
    for group in groups {
        writeln!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            axis.left - 8.0,
            y + BAR - 3.0,
            group.row
        )?;
        for (peer, ratio) in &group.bars {
            let place = peers
                .iter()
                .position(|other| other == peer)
                .unwrap_or_default();
            let colour = COLOURS[place % COLOURS.len()];
            let (from, to) = (
                axis.x(1.0).min(axis.x(*ratio)),
                axis.x(1.0).max(axis.x(*ratio)),
            );
            let width = (to - from).max(1.5);
            writeln!(
                svg,
                r#"<rect x="{from:.1}" y="{y:.1}" width="{width:.1}" height="{}" fill="{colour}"/>"#,
                BAR - 2.0
            )?;
            writeln!(
                svg,
                r##"<text x="{:.1}" y="{:.1}" fill="#555">{ratio:.2} {peer}</text>"##,
                to + 4.0,
                y + BAR - 3.0
            )?;
            y += BAR;
        }
        y += GAP;
    }
    writeln!(svg, "</svg>")
}

struct Axis {
    left: f64,
    low: f64,
    high: f64,
}

impl Axis {
    fn of(groups: &[&Group]) -> Self {
        let longest = groups.iter().map(|group| group.row.len()).max();
        let ratios = groups
            .iter()
            .flat_map(|group| &group.bars)
            .map(|(_, ratio)| *ratio)
            .filter(|ratio| *ratio > 0.0);
        let low = ratios.clone().fold(0.5, f64::min);
        let high = ratios.fold(2.0, f64::max);
        Self {
            left: 20.0 + number(longest.unwrap_or_default()) * LETTER,
            low: low * 0.9,
            high: high * 1.1,
        }
    }

    fn holds(&self, ratio: f64) -> bool {
        (self.low..=self.high).contains(&ratio)
    }

    fn x(&self, ratio: f64) -> f64 {
        let share = (ratio.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        self.left + share * (WIDTH - self.left - RIGHT)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a drawing has few bars")]
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_and_double_are_equally_far_from_one() {
        let axis = Axis::of(&[&Group {
            row: "r",
            bars: vec![("a", 0.1), ("b", 10.0)],
        }]);
        let (half, one, double) = (axis.x(0.5), axis.x(1.0), axis.x(2.0));
        assert!((one - half - (double - one)).abs() < 1e-9);
    }

    #[test]
    fn every_bar_is_drawn_with_its_number() {
        let group = Group {
            row: "pairs100",
            bars: vec![("unbroken", 0.25), ("mosquitto", 1.0)],
        };
        let svg = ratios("CPU", &[group]);
        assert!(
            svg.contains(">0.25 unbroken<")
                && svg.contains("pairs100")
                && svg.trim_end().ends_with("</svg>")
        );
    }
}
