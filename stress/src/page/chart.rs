//! Charts, as they are in the JSON, and their drawings. The page's variables set the colours, so
//! the page decides between light and dark.

use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Serialize;
use std::time::Duration;

/// The size that it is drawn at, in pixels; the page scales it.
const SIZE: (u32, u32) = (640, 340);
/// Stand-ins for the page's variables: no chart has these colours.
const INK: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);
const MARK: RGBColor = RGBColor(3, 3, 3);
/// How many lines of a chart a reader can distinguish.
pub const COLOURS: usize = 8;

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Seconds,
    /// Nanoseconds, on a logarithmic scale.
    Nanos,
    Bytes,
    /// A number of something.
    Count,
    /// How often in a second.
    PerSecond,
    /// A share of all, 0 to 1, in per cent.
    Share,
    /// A share of all, in per cent, on a scale by how much is left.
    Quantile,
}

impl Unit {
    /// The place of a value on its scale.
    fn place(self, value: f64) -> f64 {
        match self {
            Unit::Nanos => value.max(1.0).log10(),
            Unit::Quantile => -(1.0 - value).max(1e-6).log10(),
            _ => value,
        }
    }

    /// What stands at a place.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // above 0
    pub fn label(self, place: f64) -> String {
        match self {
            Unit::Seconds => format!("{} s", short(place)),
            Unit::Nanos => scaled(10f64.powf(place), 1000.0, &["ns", "us", "ms", "s"]),
            Unit::Bytes => scaled(place, 1024.0, &["B", "KiB", "MiB", "GiB"]),
            Unit::Count => scaled(place, 1000.0, &["", "K", "M", "G"]),
            Unit::PerSecond => scaled(place, 1000.0, &["/s", "K/s", "M/s", "G/s"]),
            Unit::Share => format!("{} %", short(place * 100.0)),
            Unit::Quantile => {
                let after = (place.ceil() - 1.0).max(0.0) as usize;
                let digits = format!("{:.after$}", (1.0 - 10f64.powf(-place)) * 100.0);
                trimmed(&digits).into()
            }
        }
    }

    fn is_logarithmic(self) -> bool {
        self == Unit::Nanos
    }
}

/// Three digits, in the unit that fits, each so many of the one before.
fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let (mut left, mut at) = (number, 0);
    while left >= 999.5 && at + 1 < units.len() {
        (left, at) = (left / step, at + 1);
    }
    let after = match left {
        left if left >= 99.95 => 0,
        left if left >= 9.995 => 1,
        _ => 2,
    };
    let digits = format!("{left:.after$}");
    format!("{} {}", trimmed(&digits), units[at]).trim_end().into()
}

/// Four digits behind the point at most.
fn short(number: f64) -> String {
    trimmed(&format!("{number:.4}")).into()
}

/// The digits without zeroes at the end, if they are behind a point.
fn trimmed(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

/// What is on an axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    pub label: String,
    pub unit: Unit,
}

/// A line, or the bars of one colour.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// What it is of; nothing if it is the only one.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// How it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Lines,
    /// A bar at each x.
    Bars,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub kind: Kind,
    pub lines: Vec<Line>,
    /// Times on the x axis at which faults were injected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<f64>,
}

impl Chart {
    /// A chart with nothing in it.
    pub fn new(title: &str, x: (&str, Unit), y: (&str, Unit), kind: Kind) -> Self {
        let axis = |(label, unit): (&str, Unit)| Axis { label: label.into(), unit };
        let (lines, marks) = (Vec::new(), Vec::new());
        Chart { title: title.into(), x: axis(x), y: axis(y), kind, lines, marks }
    }

    /// How many samples there are of each of several durations, as bars: each up to its bound,
    /// above the one before.
    #[allow(clippy::cast_precision_loss)] // for the eye
    pub fn by_duration(
        title: &str,
        of: &str,
        bars: impl IntoIterator<Item = (Duration, u64)>,
    ) -> Self {
        let bars = bars.into_iter();
        Chart::new(title, (of, Unit::Seconds), ("", Unit::Count), Kind::Bars)
            .with("", bars.map(|(bound, count)| (bound.as_secs_f64(), count as f64)))
    }

    /// The chart with one more line. It leaves out values that are not finite, or that a
    /// logarithmic scale does not have.
    pub fn with(mut self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let least = if self.y.unit.is_logarithmic() { f64::MIN_POSITIVE } else { f64::MIN };
        let finite =
            |point: &(f64, f64)| point.0.is_finite() && point.1.is_finite() && point.1 >= least;
        self.lines
            .push(Line { name: name.into(), points: points.into_iter().filter(finite).collect() });
        self
    }

    /// Whether there is nothing to be seen in it: one point is no line.
    pub fn is_empty(&self) -> bool {
        let least = if self.kind == Kind::Lines { 2 } else { 1 };
        self.lines.iter().all(|line| line.points.len() < least)
    }

    /// The lines that need colours to be distinguished, with their numbers.
    pub fn legend(&self) -> impl Iterator<Item = (usize, &Line)> {
        let named = self.lines.iter().enumerate();
        named.filter(|(_, line)| !line.name.is_empty())
    }

    /// Its drawing: an SVG element in the page's colours.
    pub fn draw(&self) -> String {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            // Into a string: nothing to fail but our own numbers, and these are finite.
            let drawn = self.draw_on(&area);
            debug_assert!(drawn.is_ok(), "{:?}", drawn.err());
        }
        in_colours(&svg)
    }

    fn draw_on(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let place = |&(x, y): &(f64, f64)| (self.x.unit.place(x), self.y.unit.place(y));
        let placed: Vec<Vec<_>> =
            self.lines.iter().map(|line| line.points.iter().map(place).collect()).collect();
        let bar = self.bar(&placed);
        let (mut across, mut up) =
            (range(&placed, |point| point.0), range(&placed, |point| point.1));
        if self.y.unit.is_logarithmic() {
            // Two decades at least, so that there are whole ones to be labelled.
            let least = up.start.floor();
            up = least..(up.end + 0.01).ceil().max(least + 2.0);
        } else {
            up = 0.0..up.end * 1.08;
        }
        if self.kind == Kind::Bars {
            across = across.start - bar / 2.0..across.end + bar / 2.0;
        }
        let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_top(16)
            .margin_right(if self.x.unit == Unit::Quantile { 40 } else { 16 })
            .x_label_area_size(34)
            .y_label_area_size(84)
            .build_cartesian_2d(across, up.clone())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .x_labels(7)
            .y_labels(6)
            .x_label_formatter(&|place| match self.x.unit {
                // There is no half of what is counted.
                Unit::Count if place.fract().abs() > 1e-9 => String::new(),
                unit => unit.label(*place),
            })
            .y_label_formatter(&|place| match self.y.unit {
                unit if unit.is_logarithmic() && place.fract().abs() > 1e-9 => String::new(),
                unit => unit.label(*place),
            })
            .label_style(text(19))
            .draw()?;
        // At the foot: where faults come all the time, the marks make a band below the lines.
        let foot = up.start + (up.end - up.start) * 0.06;
        chart.draw_series(self.marks.iter().map(|&at| {
            let at = self.x.unit.place(at);
            PathElement::new([(at, up.start), (at, foot)], MARK)
        }))?;
        for (at, points) in placed.iter().enumerate() {
            let colour = colour(at);
            match self.kind {
                Kind::Lines => chart
                    .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?,
                Kind::Bars => chart.draw_series(points.iter().map(|&(x, y)| {
                    Rectangle::new([(x - bar * 0.45, 0.0), (x + bar * 0.45, y)], colour.filled())
                }))?,
            };
        }
        area.present()?;
        Ok(())
    }

    /// How wide a bar and its gap are: what the two nearest are apart.
    fn bar(&self, placed: &[Vec<(f64, f64)>]) -> f64 {
        let pairs = placed.iter().flat_map(|points| points.windows(2));
        let gaps = pairs.map(|two| two[1].0 - two[0].0).filter(|gap| *gap > 0.0);
        gaps.reduce(f64::min).unwrap_or(1.0)
    }
}

/// The range from the least to the greatest value. It is never empty.
fn range(placed: &[Vec<(f64, f64)>], of: fn(&(f64, f64)) -> f64) -> std::ops::Range<f64> {
    let values = || placed.iter().flatten().map(of);
    match (values().reduce(f64::min), values().reduce(f64::max)) {
        (Some(least), Some(most)) if most - least >= 1e-9 => least..most,
        (Some(least), Some(_)) => least..least + least.abs().max(1.0),
        _ => 0.0..1.0,
    }
}

/// The stand-in for the colour of a line.
#[allow(clippy::cast_possible_truncation)] // fewer than COLOURS
fn colour(at: usize) -> RGBColor {
    RGBColor(10, 11, 16 + (at % COLOURS) as u8)
}

fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// Puts the page's variables where their stand-ins are, and leaves the size to the page.
fn in_colours(svg: &str) -> String {
    let (width, height) = SIZE;
    let mut svg = svg.replacen(&format!("width=\"{width}\" height=\"{height}\" "), "", 1);
    for (stand_in, variable) in [(INK, "ink"), (GRID, "grid"), (MARK, "bad")] {
        svg = svg.replace(&hex(stand_in), &format!("var(--{variable})"));
    }
    for at in 0..COLOURS {
        svg = svg.replace(&hex(colour(at)), &format!("var(--line-{at})"));
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(kind: Kind, y: Unit) -> Chart {
        Chart::new("t", ("x", Unit::Seconds), ("y", y), kind)
    }

    #[test]
    fn a_drawing_has_the_pages_colours_only() {
        for kind in [Kind::Lines, Kind::Bars] {
            let svg = chart(kind, Unit::PerSecond)
                .with("one", [(0.0, 1.0), (1.0, 2.0)])
                .with("two", [(0.0, 2.0), (1.0, 1.0)])
                .draw();
            for part in ["<svg ", "var(--ink)", "var(--line-0)", "var(--line-1)"] {
                assert!(svg.contains(part), "{part}: {svg}");
            }
            assert!(!svg.contains("=\"#0"), "{svg}");
        }
    }

    #[test]
    fn faults_are_marked_where_they_were_injected() {
        let chart = chart(Kind::Lines, Unit::Nanos).with("", [(0.0, 1.0), (8.0, 2.0)]);
        let marks = |marks: &[f64]| {
            let svg = Chart { marks: marks.to_vec(), ..chart.clone() }.draw();
            let lines = svg.lines().filter(|line| line.contains("var(--bad)"));
            let from = |line: &str| line.split_once("points=\"")?.1.split(',').next()?.parse().ok();
            lines.map(|line| from(line).unwrap()).collect::<Vec<f64>>()
        };
        assert!(marks(&[]).is_empty());
        let [first, second, third] = marks(&[2.0, 4.0, 8.0])[..] else { panic!("three marks") };
        assert!((third - second - 2.0 * (second - first)).abs() < 4.0, "{first} {second} {third}");
    }

    /// Whatever a run may come up with is drawn.
    #[test]
    fn odd_numbers_are_drawn() {
        for points in [
            vec![],
            vec![(0.0, 0.0)],
            vec![(3.0, 5.0); 4],
            vec![(0.0, f64::NAN), (f64::INFINITY, 1.0)],
            vec![(0.0, 1e18), (1e12, 0.0)],
        ] {
            for unit in [Unit::Nanos, Unit::Count, Unit::Bytes, Unit::Share] {
                for kind in [Kind::Lines, Kind::Bars] {
                    let svg = chart(kind, unit).with("", points.iter().copied()).draw();
                    assert!(svg.ends_with("</svg>\n"), "{svg}");
                }
            }
        }
    }

    #[test]
    fn scales_have_the_labels_of_their_values() {
        for (unit, value, label) in [
            (Unit::Nanos, 1000.0, "1 us"),
            (Unit::Quantile, 0.999, "99.9"),
            (Unit::Share, 0.125, "12.5 %"),
            (Unit::PerSecond, 2.5e6, "2.5 M/s"),
            (Unit::Bytes, 3.5 * f64::from(1 << 30), "3.5 GiB"),
            (Unit::Count, 0.0, "0"),
        ] {
            assert_eq!(unit.label(unit.place(value)), label);
        }
        assert_eq!(Unit::Quantile.label(0.5), "68");
        assert_eq!(Unit::Quantile.label(2.5), "99.68");
    }
}
