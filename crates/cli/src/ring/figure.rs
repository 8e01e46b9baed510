//! A figure as a list of shapes, and its two forms: SVG, and PNG by way of a raster.
//!
//! Invariants: the same figure gives the same bytes; coordinates are in pixels of the SVG from the
//! top left corner, and the raster has twice as many.

use std::fmt::Write;

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster};
use tiny_skia::{
    Color, FillRule, LineCap, Paint, PathBuilder, Pixmap, Stroke, StrokeDash, Transform,
};

/// What a figure shows.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) width: f64,
    pub(super) height: f64,
    shapes: Vec<Shape>,
}

#[derive(Debug)]
enum Shape {
    Area(Vec<Point>, Colour),
    Line(Vec<Point>, Pen),
    Text(Label),
}

/// From the left, and from the top.
pub(super) type Point = (f64, f64);

/// Red, green and blue.
pub(super) type Colour = [u8; 3];

/// How a line is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pen {
    pub(super) colour: Colour,
    pub(super) width: f64,
    pub(super) is_dashed: bool,
}

/// Which part of a text is at its point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Debug)]
struct Label {
    at: Point,
    anchor: Anchor,
    is_title: bool,
    colour: Colour,
    text: String,
}

pub(super) const BLACK: Colour = [0x22, 0x22, 0x22];
pub(super) const GREY: Colour = [0xaa, 0xaa, 0xaa];
pub(super) const LIGHT: Colour = [0xe8, 0xe8, 0xe8];
pub(super) const GREEN: Colour = [0x4c, 0xaf, 0x50];
pub(super) const BLUE: Colour = [0x1f, 0x5f, 0xbf];
pub(super) const RED: Colour = [0xc6, 0x28, 0x28];
pub(super) const ORANGE: Colour = [0xef, 0x8a, 0x1d];
pub(super) const PURPLE: Colour = [0x7b, 0x3f, 0xa0];

/// The width of a letter, for those who place texts.
pub(super) const LETTER: f64 = 6.0;
const SIZE: f64 = 10.0;
const TITLE: f64 = 13.0;
/// Pixels of the raster for one of the figure.
const SCALE: f32 = 2.0;

impl Pen {
    pub(super) const fn new(colour: Colour, width: f64) -> Self {
        Self {
            colour,
            width,
            is_dashed: false,
        }
    }

    pub(super) const fn dashed(colour: Colour) -> Self {
        Self {
            colour,
            width: 1.0,
            is_dashed: true,
        }
    }
}

impl Figure {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            shapes: Vec::new(),
        }
    }

    /// A filled polygon.
    pub(super) fn area(&mut self, points: Vec<Point>, colour: Colour) {
        self.shapes.push(Shape::Area(points, colour));
    }

    /// A filled rectangle between two corners.
    pub(super) fn rectangle(&mut self, from: Point, to: Point, colour: Colour) {
        let corners = vec![from, (to.0, from.1), to, (from.0, to.1)];
        self.area(corners, colour);
    }

    /// A filled circle, as a polygon.
    pub(super) fn dot(&mut self, centre: Point, radius: f64, colour: Colour) {
        self.area(arc(centre, radius, 0.0, 1.0), colour);
    }

    pub(super) fn line(&mut self, points: Vec<Point>, pen: Pen) {
        self.shapes.push(Shape::Line(points, pen));
    }

    pub(super) fn text(
        &mut self,
        at: Point,
        anchor: Anchor,
        colour: Colour,
        text: impl Into<String>,
    ) {
        self.shapes.push(Shape::Text(Label {
            at,
            anchor,
            is_title: false,
            colour,
            text: text.into(),
        }));
    }

    pub(super) fn title(&mut self, at: Point, text: impl Into<String>) {
        self.shapes.push(Shape::Text(Label {
            at,
            anchor: Anchor::Start,
            is_title: true,
            colour: BLACK,
            text: text.into(),
        }));
    }

    /// Puts the shapes of another figure into this one.
    pub(super) fn place(&mut self, other: Self, at: Point) {
        let moved = |point: Point| (point.0 + at.0, point.1 + at.1);
        for shape in other.shapes {
            self.shapes.push(match shape {
                Shape::Area(points, colour) => {
                    Shape::Area(points.into_iter().map(moved).collect(), colour)
                }
                Shape::Line(points, pen) => {
                    Shape::Line(points.into_iter().map(moved).collect(), pen)
                }
                Shape::Text(label) => Shape::Text(Label {
                    at: moved(label.at),
                    ..label
                }),
            });
        }
    }

    /// As a document.
    pub(super) fn svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" \
             font-family=\"monospace\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
            self.width, self.height
        );
        for shape in &self.shapes {
            // Writing to a string cannot fail.
            let _ = match shape {
                Shape::Area(points, colour) => {
                    writeln!(
                        svg,
                        "<polygon points=\"{}\" fill=\"{}\"/>",
                        list(points),
                        hex(*colour)
                    )
                }
                Shape::Line(points, pen) => {
                    let dash = if pen.is_dashed {
                        " stroke-dasharray=\"4 3\""
                    } else {
                        ""
                    };
                    writeln!(
                        svg,
                        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{dash}/>",
                        list(points),
                        hex(pen.colour),
                        pen.width
                    )
                }
                Shape::Text(label) => label.svg(&mut svg),
            };
        }
        svg + "</svg>\n"
    }

    /// As an image. `None`: it would be too large.
    pub(super) fn png(&self) -> Option<Vec<u8>> {
        let pixels = |length: f64| single(length * f64::from(SCALE)).round();
        let [width, height] = [self.width, self.height].map(pixels);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a few thousand pixels"
        )]
        let mut raster = Pixmap::new(width as u32, height as u32)?;
        raster.fill(Color::WHITE);
        for shape in &self.shapes {
            match shape {
                Shape::Area(points, colour) => {
                    if let Some(path) = path(points, true) {
                        raster.fill_path(&path, &paint(*colour), FillRule::Winding, scaled(), None);
                    }
                }
                Shape::Line(points, pen) => {
                    if let Some(path) = path(points, false) {
                        raster.stroke_path(
                            &path,
                            &paint(pen.colour),
                            &pen.stroke(),
                            scaled(),
                            None,
                        );
                    }
                }
                Shape::Text(label) => label.draw(&mut raster),
            }
        }
        raster.encode_png().ok()
    }
}

impl Label {
    fn svg(&self, svg: &mut String) -> std::fmt::Result {
        let anchor = match self.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = self.text.replace('&', "&amp;").replace('<', "&lt;");
        writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"{}\" fill=\"{}\">{text}</text>",
            self.at.0,
            self.at.1,
            if self.is_title { TITLE } else { SIZE },
            hex(self.colour)
        )
    }

    /// Letter by letter, from a font of rasters. What it does not have is left blank.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "positions of a few thousand pixels"
    )]
    fn draw(&self, raster: &mut Pixmap) {
        let height = if self.is_title {
            RasterHeight::Size24
        } else {
            RasterHeight::Size20
        };
        let weight = FontWeight::Regular;
        let letters: Vec<_> = self
            .text
            .chars()
            .map(|letter| get_raster(letter, weight, height))
            .collect();
        let blank = get_raster(' ', weight, height).map_or(0, |letter| letter.width());
        let width = blank * letters.len();
        let shift = match self.anchor {
            Anchor::Start => 0,
            Anchor::Middle => width / 2,
            Anchor::End => width,
        };
        // A font's base line is at about four fifths of its height.
        let scale = f64::from(SCALE);
        let top = (self.at.1 * scale) as i64 - height.val() as i64 * 4 / 5;
        let mut left = (self.at.0 * scale) as i64 - shift as i64;
        let size = (i64::from(raster.width()), i64::from(raster.height()));
        for letter in letters {
            let rows = letter.iter().flat_map(|letter| letter.rows().enumerate());
            for (y, row) in rows {
                for (x, strength) in row.iter().enumerate() {
                    let (x, y) = (left + x as i64, top + y as i64);
                    if (0..size.0).contains(&x) && (0..size.1).contains(&y) {
                        let at = (y * size.0 + x) as usize * 4;
                        blend(&mut raster.data_mut()[at..at + 3], self.colour, *strength);
                    }
                }
            }
            left += blank as i64;
        }
    }
}

impl Pen {
    fn stroke(self) -> Stroke {
        Stroke {
            width: single(self.width),
            line_cap: LineCap::Butt,
            dash: self
                .is_dashed
                .then(|| StrokeDash::new(vec![4.0, 3.0], 0.0))
                .flatten(),
            ..Stroke::default()
        }
    }
}

/// Points of a part of a circle; shares of the whole, clockwise from the top.
pub(super) fn arc(centre: Point, radius: f64, from: f64, to: f64) -> Vec<Point> {
    const STEPS: u32 = 24;
    let point = |step: u32| {
        let share = from + (to - from) * f64::from(step) / f64::from(STEPS);
        let (sine, cosine) = (share * std::f64::consts::TAU).sin_cos();
        (centre.0 + radius * sine, centre.1 - radius * cosine)
    };
    (0..=STEPS).map(point).collect()
}

fn list(points: &[Point]) -> String {
    let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
    points.collect::<Vec<_>>().join(" ")
}

fn hex([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn path(points: &[Point], is_closed: bool) -> Option<tiny_skia::Path> {
    let mut builder = PathBuilder::new();
    let (first, rest) = points.split_first()?;
    builder.move_to(single(first.0), single(first.1));
    for (x, y) in rest {
        builder.line_to(single(*x), single(*y));
    }
    if is_closed {
        builder.close();
    }
    builder.finish()
}

fn paint([red, green, blue]: Colour) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, u8::MAX);
    paint
}

fn scaled() -> Transform {
    Transform::from_scale(SCALE, SCALE)
}

/// Puts a colour over the pixel, which is opaque.
fn blend(pixel: &mut [u8], colour: Colour, strength: u8) {
    let strength = u16::from(strength);
    for (below, above) in pixel.iter_mut().zip(colour) {
        let mixed = (u16::from(above) * strength + u16::from(*below) * (255 - strength)) / 255;
        *below = u8::try_from(mixed).unwrap_or(u8::MAX);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a raster needs no more digits"
)]
fn single(number: f64) -> f32 {
    number as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let mut figure = Figure::new(100.0, 50.0);
        figure.rectangle((10.0, 10.0), (30.0, 40.0), GREEN);
        figure.line(vec![(0.0, 0.0), (100.0, 50.0)], Pen::dashed(BLUE));
        figure.text((99.0, 20.0), Anchor::End, RED, "a < b & ½");
        figure.title((2.0, 12.0), "Title");
        figure
    }

    #[test]
    fn a_figure_has_the_same_bytes_each_time() {
        assert_eq!(figure().svg(), figure().svg());
        assert_eq!(figure().png(), figure().png());
        assert!(figure().svg().contains(">a &lt; b &amp; ½</text>"));
    }

    #[test]
    fn a_raster_is_a_png_of_twice_the_size() {
        let png = figure().png().expect("it is small");
        let image = Pixmap::decode_png(&png).expect("it is a PNG");
        assert_eq!((image.width(), image.height()), (200, 100));
        let pixel = image.pixel(40, 50).expect("it is inside").demultiply();
        assert_eq!([pixel.red(), pixel.green(), pixel.blue()], GREEN);
        let has_ink =
            |x: u32| (20..50).any(|y| image.pixel(x, y).is_some_and(|it| it.green() < 128));
        assert!((100..198).any(has_ink), "the text is not there");
    }
}
