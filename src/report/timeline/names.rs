//! Names of bands, written on them if there is room.

use super::marks::REQUEST;
use super::scale::{at, column};
use crate::analysis::timeline::{DeviceTimeline, Shows};
use crate::report::common::picture::palette::{self, Color};
use crate::report::common::picture::shape::{Anchor, MONO, MONO_SIZE, MONO_WIDTH, text};
use svg::node::element::Text;

/// Height that a band needs for its name, and room left and right of it.
const HEIGHT: f64 = 14.0;
const MARGIN: f64 = 4.0;

/// The columns in which a fold or a failed request would cover a name.
pub(super) fn covered(device: &DeviceTimeline) -> Vec<bool> {
    let columns = device.axis.columns();
    let mut covered = vec![false; columns];
    for fold in device.axis.periods.iter().filter(|period| period.shows == Shows::Idle) {
        if let Some(columns) = covered.get_mut(fold.start..fold.end.min(columns)) {
            columns.fill(true);
        }
    }
    for oom in &device.ooms {
        let x = at(&device.axis, oom.x);
        for (index, covered) in covered.iter_mut().enumerate() {
            *covered |= (column(columns, index) - x).abs() <= REQUEST;
        }
    }
    covered
}

/// The name of a band between two edges, where the band is thickest and not covered; a shorter one if the whole does not fit.
pub(super) fn on_band(name: &str, color: Color, top: &[f64], bottom: &[f64], covered: &[bool]) -> Option<Text> {
    let line = name.split(' ').next().filter(|line| line.contains(':'));
    [Some(name), line].into_iter().flatten().find_map(|name| {
        let (x, y) = place(name.chars().count() as f64 * MONO_WIDTH + 2.0 * MARGIN, top, bottom, covered)?;
        let name = text(x, y + 4.0, Anchor::Middle, palette::on(color), name);
        Some(name.set("font-family", MONO).set("font-size", MONO_SIZE).set("data-name", ""))
    })
}

/// The middle of the highest rectangle of a width that is between two edges, if a name fits into it.
fn place(width: f64, top: &[f64], bottom: &[f64], covered: &[bool]) -> Option<(f64, f64)> {
    let columns = top.len().min(bottom.len());
    let wide = (width / (column(columns, 1) - column(columns, 0))).ceil() as usize;
    let fits = |start: usize| {
        let end = start + wide;
        if covered.get(start..end)?.contains(&true) {
            return None;
        }
        let upper = top.get(start..end)?.iter().copied().fold(f64::MIN, f64::max);
        let lower = bottom.get(start..end)?.iter().copied().fold(f64::MAX, f64::min);
        Some((lower - upper, start, f64::midpoint(lower, upper)))
    };
    let best = (0..columns).filter_map(fits).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let middle = f64::midpoint(column(columns, best.1), column(columns, best.1 + wide));
    (best.0 >= HEIGHT).then_some((middle, best.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_drawn_where_the_band_is_thick_enough() {
        let bottom = vec![200.0; 800];
        let mut top = vec![190.0; 800];
        let mut covered = vec![false; 800];
        assert!(on_band("activations", palette::OTHER, &top, &bottom, &covered).is_none());
        top[300..500].fill(100.0);
        let (x, y) = place(100.0, &top, &bottom, &covered).unwrap();
        assert!(column(800, 350) <= x && x <= column(800, 450), "{x}");
        assert!((y - 150.0).abs() < 0.1, "{y}");
        assert!(place(300.0, &top, &bottom, &covered).is_none());
        // For a site, the line number is enough; any other name must be complete.
        let long = "a_function_with_a_very_long_name";
        assert!(on_band(&format!("model.py:41 {long}"), palette::OTHER, &top, &bottom, &covered).is_some());
        assert!(on_band(&format!("5 {long}"), palette::OTHER, &top, &bottom, &covered).is_none());
        // A fold covers the right half.
        covered[400..500].fill(true);
        let (x, _) = place(60.0, &top, &bottom, &covered).unwrap();
        assert!(x <= column(800, 400) - 29.9, "{x}");
        assert!(place(120.0, &top, &bottom, &covered).is_none());
    }
}
