//! Bands, and the line of reserved memory.

use super::scale::{Scale, column};
use super::stacked::Stack;
use super::{legend, names};
use crate::analysis::timeline::DeviceTimeline;
use crate::analysis::timeline::{Band, Column, INACTIVE, LEAKS};
use crate::facts::grouping::attribution::OTHER;
use crate::facts::grouping::{BASELINE, NOT_RECORDED};
use crate::model::bytes::Bytes;
use crate::report::common::fit;
use crate::report::common::notes::safe;
use crate::report::common::picture::palette;
use crate::report::common::picture::plot::{LEFT, PLOT_HEIGHT, PLOT_WIDTH};
use crate::report::common::picture::shape::{px, rectangle, titled};
use crate::report::common::words::{count, starred};
use crate::report::percent;
use svg::node::element::{Group, Path};

/// Height of the bar that represents a single instant.
pub(super) const BAR: f64 = 34.0;

pub(super) fn name(band: &Band) -> String {
    match band.label.as_str() {
        LEAKS => "leaks".to_owned(),
        OTHER if band.groups > 0 => count(band.groups as u64, "more group"),
        label => starred(label, band.inferred),
    }
}

/// Bands from the bottom up. Each is painted down to the axis and covered by the next: half as many points as with two edges,
/// and no seams.
pub(super) fn draw(device: &DeviceTimeline, stack: &Stack<'_>, scale: &Scale) -> Group {
    let mut group = Group::new();
    let columns = device.columns.len();
    let mut tops: Vec<f64> = vec![0.0; columns];
    for band in stack.bands.iter() {
        for (top, &bytes) in tops.iter_mut().zip(&band.bytes) {
            *top += bytes as f64;
        }
    }
    let covered = names::covered(device);
    let mut above = None;
    let mut names = Vec::new();
    for (band, color) in stack.bands.iter().zip(&stack.colors) {
        let mut edge = Vec::with_capacity(columns);
        for (column, top) in tops.iter_mut().enumerate() {
            edge.push(scale.y(*top));
            *top -= band.bytes[column] as f64;
        }
        let floor: Vec<f64> = tops.iter().map(|&top| scale.y(top)).collect();
        names.extend(names::on_band(&safe(&on_plot(band)), *color, &edge, &floor, &covered));
        let mut path = Path::new()
            .set("d", steps(&edge))
            .set("fill", color.light)
            .set("data-label", fit::shorten(&safe(&band.label), 160))
            .set("data-bytes", band.bytes_there);
        if let Some(category) = band.category {
            path = path.set("data-category", category.name());
        }
        if leaks(band) {
            // Stands out from the band's color in both themes.
            let edge = path.set("stroke", palette::on(*color).light).set("stroke-width", "1.5");
            path = edge.set("stroke-dasharray", "4 2");
        } else if above == Some(band.category) {
            // Two touching steps of one hue.
            path = path.set("stroke", palette::BACKGROUND.light).set("stroke-width", "0.6");
        }
        above = Some(band.category);
        group = group.add(titled(&title(device, band)).add(path));
    }
    names.into_iter().fold(group, Group::add)
}

/// Whether a band is a site that leaks; the band of all leaks has its own color.
pub(super) fn leaks(band: &Band) -> bool {
    band.leak.is_some() && band.label != LEAKS
}

pub(super) fn written(band: &Band) -> String {
    match band.category {
        Some(category) if band.label == category.name() => legend::category_name(category),
        _ => name(band),
    }
}

/// The name on a band, which must be clear without context: a band without a line of code is named by its category.
fn on_plot(band: &Band) -> String {
    match band.category {
        Some(category) if [BASELINE, NOT_RECORDED].contains(&band.label.as_str()) => legend::category_name(category),
        _ => written(band),
    }
}

fn title(device: &DeviceTimeline, band: &Band) -> String {
    let there = Bytes(band.bytes_there);
    if band.label == INACTIVE {
        return format!("{INACTIVE}\n{there} reserved and inactive at that instant");
    }
    let share = percent(band.bytes_there, device.peak.attribution.total_bytes);
    let what = band.category.filter(|category| band.label != category.name());
    let what = what.map_or(String::new(), |category| format!("{}: ", legend::category_name(category)));
    let name = format!("{what}{}", written(band));
    let leak = band.leak.filter(|&bytes| bytes > 0);
    let leak = leak.map(|bytes| format!("\nleaks {} per step", crate::report::common::notes::signed(bytes)));
    let blocks = count(band.blocks_there, "block");
    format!("{name}\n{there} ({share:.1}%) in {blocks} at that instant{}", leak.unwrap_or_default())
}

fn band_category(band: &Band) -> &'static str {
    band.category.map_or("", |category| category.name())
}

/// The outline below a step curve, one step per column, in relative moves of tenths of a pixel.
pub(super) fn steps(edge: &[f64]) -> String {
    outline(edge, f64::from(PLOT_HEIGHT)) + &format!("V{PLOT_HEIGHT}z")
}

pub(super) fn outline(edge: &[f64], from: f64) -> String {
    let columns = edge.len();
    let mut path = format!("M{LEFT} {}", px(from));
    // Moves are relative, so each starts at the end of the previous rounded one.
    let (mut x, mut y) = (tenths(f64::from(LEFT)), tenths(from));
    for (index, &level) in edge.iter().enumerate() {
        let level = tenths(level);
        if level == y {
            continue;
        }
        let left = tenths(column(columns, index));
        if left != x {
            path += &format!("h{}", decimal(left - x));
        }
        path += &format!("v{}", decimal(level - y));
        (x, y) = (left, level);
    }
    let right = tenths(column(columns, columns));
    path + &format!("h{}", decimal(right - x))
}

fn tenths(value: f64) -> i64 {
    (value * 10.0).round() as i64
}

fn decimal(tenths: i64) -> String {
    px(tenths as f64 / 10.0)
}

pub(super) fn reserved(device: &DeviceTimeline, scale: &Scale) -> Path {
    line(device, scale, |column| column.max_reserved).set("stroke", palette::TEXT.light)
}

/// The line of active memory, if it is above the bands.
pub(super) fn pending(device: &DeviceTimeline, scale: &Scale) -> Option<Path> {
    let draw = || line(device, scale, |column| column.max_active).set("stroke", palette::MUTED.light);
    device.has_pending_frees().then(draw)
}

fn line(device: &DeviceTimeline, scale: &Scale, bytes: impl Fn(&Column) -> i64) -> Path {
    let edge: Vec<f64> = device.columns.iter().map(|column| scale.y(bytes(column) as f64)).collect();
    let first = edge.first().copied().unwrap_or(f64::from(PLOT_HEIGHT));
    Path::new().set("d", outline(&edge, first)).set("fill", "none")
}

/// All bands of a single instant side by side; the bottom of a stack is on the left.
pub(super) fn bar(device: &DeviceTimeline, stack: &Stack<'_>) -> Group {
    let mut group = Group::new();
    let total = stack.bands.iter().map(|band| band.bytes_there as f64).sum::<f64>().max(1.0);
    let mut x = 16.0;
    let room = f64::from(LEFT + PLOT_WIDTH) - x;
    for (band, color) in stack.bands.iter().zip(&stack.colors).rev() {
        let width = room * band.bytes_there as f64 / total;
        let part = rectangle(x, 0.0, width, BAR, *color)
            .set("data-label", fit::shorten(&safe(&band.label), 160))
            .set("data-category", band_category(band))
            .set("data-bytes", band.bytes_there);
        group = group.add(titled(&title(device, band)).add(part));
        x += width;
    }
    group
}
