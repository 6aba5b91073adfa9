//! Two curves on one axis, an area and a line, for comparisons.

use super::chart::{self, Area, Axis, Unit};
use super::palette::{self, Color};
use super::plot::{LEFT, Labels, PLOT_HEIGHT, PLOT_WIDTH, vertical};
use super::shape::{px, titled};
use crate::analysis::diff::{Align, Curve, DeviceOverlay};
use svg::node::Blob;
use svg::node::element::{Circle, Group, Path};

/// Colors of the base, painted as an area, and of the recording compared with it, a line.
pub(crate) const BASE: Color = palette::OTHER;
pub(crate) const NEW: Color = palette::FIGURE;
pub(crate) const AREA: &str = "0.35";

pub(crate) fn both(curves: &DeviceOverlay, scale: &Scale) -> Group {
    one(curves, scale).add(line(outline(&curves.new, scale), NEW).set("stroke-width", "1.6"))
}

pub(crate) fn one(curves: &DeviceOverlay, scale: &Scale) -> Group {
    let area = Area { left: LEFT, top: 0, width: PLOT_WIDTH, height: PLOT_HEIGHT };
    let base = outline(&curves.base, scale);
    let filled = Path::new().set("d", format!("{base}V{PLOT_HEIGHT}H{LEFT}z")).set("fill", BASE.light);
    Group::new()
        .add(filled.set("fill-opacity", AREA))
        .add(line(base, BASE).set("stroke-width", 1))
        .add(Blob::new(chart::draw(area, scale.x, scale.y, scale.x_title, &[])))
}

pub(crate) struct Scale {
    x: Axis,
    y: Axis,
    x_title: &'static str,
    columns: usize,
}

impl Scale {
    pub(crate) fn of(curves: &DeviceOverlay) -> Self {
        let values = curves.base.highest.iter().chain(&curves.new.highest);
        let highest = (values.copied().max().unwrap_or(0) as f64).max(1.0);
        let last = (curves.last as f64).max(1.0);
        let (unit, x_title) = match curves.align {
            Align::Time => {
                let unit = Unit::of_time(last);
                (unit, unit.name)
            }
            Align::Entry => (Unit::ENTRIES, Unit::ENTRIES.name),
            Align::Step => (Unit { name: "steps", size: 1000.0 }, "steps"),
        };
        let labels = if curves.last > 0 { 10 } else { 0 };
        Self {
            x: Axis { first: 0.0, last, unit, labels },
            y: Axis { first: 0.0, last: highest * 1.04, unit: Unit::of_bytes(highest), labels: 8 },
            x_title,
            columns: curves.columns,
        }
    }

    pub(crate) fn x(&self, column: usize) -> f64 {
        f64::from(LEFT) + f64::from(PLOT_WIDTH) * column as f64 / self.columns.max(1) as f64
    }

    pub(crate) fn y(&self, bytes: i64) -> f64 {
        let share = bytes as f64 / self.y.last;
        f64::from(PLOT_HEIGHT) * (1.0 - share.clamp(0.0, 1.0))
    }
}

/// A step curve, one step per column.
fn outline(curve: &Curve, scale: &Scale) -> String {
    let first = curve.highest.first().copied().unwrap_or(0);
    let mut path = format!("M{LEFT} {}", px(scale.y(first)));
    let mut level = px(scale.y(first));
    for (column, &bytes) in curve.highest.iter().enumerate() {
        let next = px(scale.y(bytes));
        if next != level {
            path += &format!("H{}V{next}", px(scale.x(column)));
            level = next;
        }
    }
    path + &format!("H{}", px(scale.x(curve.highest.len())))
}

pub(crate) fn line(path: String, color: Color) -> Path {
    Path::new().set("d", path).set("fill", "none").set("stroke", color.light).set("stroke-linejoin", "round")
}

/// A point of a curve, with its label above the plot.
pub(crate) fn point(
    plot: Group,
    labels: &mut Labels,
    scale: &Scale,
    (column, bytes): (usize, i64),
    (label, place, color): (&str, &str, Color),
) -> Group {
    let (x, y) = (scale.x(column) + 0.5, scale.y(bytes));
    let dot = Circle::new().set("cx", px(x)).set("cy", px(y)).set("r", 4);
    let dot = dot.set("fill", color.light).set("stroke", palette::BACKGROUND.light).set("data-peak-bytes", bytes);
    // The line is not part of a curve, so it has the color of neither.
    let lead = vertical(x, 0.0, y, palette::MUTED).set("stroke-width", "0.7").set("stroke-dasharray", "2 3");
    let plot = plot.add(lead);
    let plot = plot.add(titled(&format!("{label}\n{place}")).add(dot));
    labels.add(plot, x, label, palette::TEXT)
}
