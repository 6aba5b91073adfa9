//! The plot that all pictures of memory over time share: its position, the labels above it and the legend below.

use super::palette::Color;
use super::shape::{Anchor, px, text};
use super::{Script, WIDTH, chart};
use svg::node::element::{Group, Line};

/// Left edge, width and height of the plot, in pixels.
pub const LEFT: u32 = 76;
pub const PLOT_WIDTH: u32 = WIDTH - LEFT - 24;
pub const PLOT_HEIGHT: u32 = 300;
/// Left edge of the legend, and the baseline of its first line below the top of the plot.
pub const LEGEND: f64 = 16.0;
pub const LEGEND_TOP: f64 = (PLOT_HEIGHT + chart::BELOW + 20) as f64;
pub const LEGEND_LINE: f64 = 18.0;
/// Lines of labels above the plot, and the height of one.
pub const LABEL_LINES: usize = 2;
pub const LABEL_LINE: f64 = 16.0;

/// Columns to sample for each of this many devices: one per pixel, fewer if many panels share the size of a file.
pub fn plot_columns(devices: usize) -> usize {
    PLOT_WIDTH as usize / devices.div_ceil(2).clamp(1, 8)
}

/// Labels above the plot, on as many lines as needed.
#[derive(Default)]
pub struct Labels {
    taken: [Vec<(f64, f64)>; LABEL_LINES],
}

impl Labels {
    /// Adds a label where it covers no other; if there is no such place, only the tooltip remains.
    pub fn add(&mut self, plot: Group, x: f64, content: &str, color: Color) -> Group {
        let half = Script::Label.width(content) / 2.0;
        let (left, right) = (f64::from(LEFT), f64::from(WIDTH) - 6.0);
        let middle = x.min(right - half).max(left + half);
        let (start, end) = (middle - half - 4.0, middle + half + 4.0);
        let is_free = |line: &Vec<(f64, f64)>| line.iter().all(|other| end < other.0 || other.1 < start);
        let Some(line) = self.taken.iter().position(is_free) else { return plot };
        self.taken[line].push((start, end));
        let y = -8.0 - LABEL_LINE * line as f64;
        plot.add(text(middle, y, Anchor::Middle, color, content).set("font-weight", 600))
    }
}

pub fn vertical(x: f64, from: f64, to: f64, color: Color) -> Line {
    Line::new().set("x1", px(x)).set("x2", px(x)).set("y1", px(from)).set("y2", px(to)).set("stroke", color.light)
}
