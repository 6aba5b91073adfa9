//! Axes, grid and lines of a chart, drawn by plotters.

use super::palette::{self, Color};
use plotters::prelude::{
    ChartBuilder, Color as _, DrawingArea, IntoDrawingArea, IntoFont, LineSeries, SVGBackend, ShapeStyle, TRANSPARENT,
    TextStyle,
};
use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The position of the plot within its picture, in pixels. Labels of the axes are to the left of it and below.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    pub left: u32,
    pub top: u32,
    pub width: u32,
    pub height: u32,
}

/// Room for the labels of the x axis, in pixels.
pub const BELOW: u32 = 36;
/// Room for the half of the last label that extends past the plot.
const RIGHT: u32 = 22;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    pub name: &'static str,
    pub size: f64,
}

impl Unit {
    /// The unit for sizes up to `max` bytes: the largest that fits, as PyTorch prints sizes.
    pub fn of_bytes(max: f64) -> Self {
        let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)].map(|(name, size)| (name, size as f64));
        let fits = units.into_iter().find(|&(_, size)| max >= size);
        fits.map_or(Self { name: "bytes", size: 1.0 }, |(name, size)| Self { name, size })
    }

    /// The unit for a period of time of this many microseconds: seconds, unless that makes numbers unwieldy.
    pub fn of_time(span: f64) -> Self {
        let units = [("hours", 3.6e9, 1.8e10), ("minutes", 6e7, 1.2e9), ("seconds", 1e6, 5e5), ("ms", 1e3, 1e3)];
        let fits = units.into_iter().find(|&(_, _, from)| span >= from);
        fits.map_or(Self { name: "\u{b5}s", size: 1.0 }, |(name, size, _)| Self { name, size })
    }

    /// The unit of entries is one entry.
    pub const ENTRIES: Self = Self { name: "entries", size: 1.0 };
}

/// An axis in base units (bytes, microseconds, entries).
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    pub first: f64,
    pub last: f64,
    pub unit: Unit,
    /// The most labels.
    pub labels: u16,
}

pub struct Line {
    pub points: Vec<(f64, f64)>,
    pub color: Color,
}

fn rgb(color: Color) -> RGBColor {
    let [red, green, blue] = color.light.0;
    RGBColor(red, green, blue)
}

/// Draws grid, axes and lines as a separate SVG element, with the picture's corner as its origin.
pub fn draw(area: Area, x: Axis, y: Axis, x_title: &str, lines: &[Line]) -> String {
    let mut svg = String::new();
    {
        let size = (area.left + area.width + RIGHT, area.top + area.height + BELOW);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        // Drawing into a string fails only if a chart has no room; its parts are then left out.
        let _ = draw_on(&root, area, x, y, x_title, lines);
        let _ = root.present();
    }
    // Half of a label at the top edge is outside.
    svg.replacen("<svg ", "<svg overflow=\"visible\" ", 1)
}

type DrawResult = Result<(), Box<dyn std::error::Error>>;

fn draw_on(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    area: Area,
    x: Axis,
    y: Axis,
    x_title: &str,
    lines: &[Line],
) -> DrawResult {
    let scaled = |axis: Axis| axis.first / axis.unit.size..axis.last / axis.unit.size;
    let mut chart = ChartBuilder::on(root)
        .margin_top(area.top)
        .margin_right(RIGHT)
        .x_label_area_size(BELOW)
        .y_label_area_size(area.left)
        .build_cartesian_2d(scaled(x), scaled(y))?;
    let muted = rgb(palette::MUTED);
    let font = TextStyle::from(("sans-serif", 14).into_font()).color(&muted);
    // More digits than neighboring ticks need would only blur them.
    let digits = |axis: Axis| {
        let step = (axis.last - axis.first) / axis.unit.size / f64::from(axis.labels.max(1));
        (-step.log10().floor()).clamp(0.0, 9.0) as usize
    };
    let (x_digits, y_digits) = (digits(x), digits(y));
    let label = |value: f64, digits: usize| {
        let text = format!("{value:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(rgb(palette::MUTED).mix(0.3))
        .axis_style(rgb(palette::MUTED))
        .x_labels(usize::from(x.labels))
        .y_labels(usize::from(y.labels))
        .x_label_formatter(&|value| label(*value, x_digits))
        .y_label_formatter(&|value| format!("{} {}", label(*value, y_digits), y.unit.name))
        .label_style(font.clone())
        .draw()?;
    let below = (area.left + area.width / 2, area.top + area.height + BELOW - 2);
    let centered = font.pos(Pos::new(HPos::Center, VPos::Bottom));
    root.draw_text(x_title, &centered, (below.0 as i32, below.1 as i32))?;
    for line in lines {
        // In a recording that contradicts itself, a counter can be far below zero, where plotters' pixels overflow.
        let within = |value: f64, axis: Axis| value.clamp(axis.first, axis.last) / axis.unit.size;
        let points = line.points.iter().map(|&(at, value)| (within(at, x), within(value, y)));
        chart.draw_series(LineSeries::new(points, ShapeStyle::from(rgb(line.color)).stroke_width(1)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_far_outside_stay_on_the_picture() {
        let area = Area { left: 80, top: 0, width: 740, height: 300 };
        let axis = Axis { first: 0.0, last: 1e6, unit: Unit::ENTRIES, labels: 10 };
        let line = Line { points: vec![(0.0, -1e30), (1e30, 1e30)], color: palette::TEXT };
        let svg = draw(area, axis, axis, "entries", &[line]);
        assert!(svg.contains("points=\"80,"), "{svg}");
    }

    #[test]
    fn units_suit_the_range() {
        let of_bytes = |bytes| Unit::of_bytes(bytes).name;
        assert_eq!([100.0, 2e3, 5e6, 4.4e9].map(of_bytes), ["bytes", "KiB", "MiB", "GiB"]);
        let of_time = |micros| Unit::of_time(micros).name;
        assert_eq!(
            [50.0, 4e5, 1e6, 6e8, 3e9, 3.6e10].map(of_time),
            ["\u{b5}s", "ms", "seconds", "seconds", "minutes", "hours"]
        );
    }
}
