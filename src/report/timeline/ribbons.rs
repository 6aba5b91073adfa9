//! Annotations below a timeline: a row per depth, a box per range.

use super::scale::at;
use crate::analysis::timeline::Ribbon;
use crate::analysis::timeline::{DeviceTimeline, XAxis};
use crate::report::common::notes;
use crate::report::common::picture::plot::LEFT;
use crate::report::common::picture::shape::{Anchor, px, rectangle, text, titled};
use crate::report::common::picture::{Room, palette};
use svg::node::element::{Group, Path};

const ROW: f64 = 17.0;
const ALONE_FROM: f64 = 8.0;
/// Average width of a character of a label.
const CHARACTER: f64 = 6.4;

/// The rows, and their total height.
pub(super) fn draw(device: &DeviceTimeline, room: Room) -> (Group, f64) {
    let mut group = Group::new();
    let deepest = device.ribbons.iter().map(|ribbon| ribbon.depth + 1).max().unwrap_or(0);
    let rows = deepest.min(if room.devices > 2 { 2 } else { 6 });
    for depth in 0..rows {
        let ribbons = device.ribbons.iter().filter(|ribbon| ribbon.depth == depth);
        group = row(group, device, ribbons, depth as f64 * ROW);
    }
    let mut height = rows as f64 * ROW;
    if deepest > rows {
        height += ROW;
        let hidden = device.ribbons.iter().filter(|ribbon| ribbon.depth >= rows).count();
        let are = if hidden == 1 { " nested in these is" } else { "s nested in these are" };
        let note = format!("{hidden} annotation{are} not drawn");
        group = group.add(text(f64::from(LEFT), height - 5.0, Anchor::Start, palette::MUTED, &note));
    }
    (group, height)
}

fn row<'a>(mut group: Group, device: &DeviceTimeline, ribbons: impl Iterator<Item = &'a Ribbon>, y: f64) -> Group {
    let x = |x: i64| at(&device.axis, x);
    // Narrow boxes of one color are one path, and one box per pixel is all that can be seen.
    let mut narrow = [String::new(), String::new()];
    let mut drawn_to = f64::MIN;
    for (index, ribbon) in ribbons.enumerate() {
        let (start, end) = (x(ribbon.start), x(ribbon.end));
        let shade = index % 2;
        if end - start < ALONE_FROM {
            if start.round() > drawn_to {
                drawn_to = start.round();
                let wide = (end - start).round().max(1.0);
                narrow[shade] +=
                    &format!("M{} {}h{}v{}h-{}z", px(start.round()), px(y), px(wide), px(ROW - 2.0), px(wide));
            }
            continue;
        }
        let mut title = ribbon.label.clone();
        if device.axis.counts == XAxis::Time {
            title += &format!("\n{}", notes::duration(ribbon.end.saturating_sub(ribbon.start)));
        }
        let mut part =
            titled(&title).add(rectangle(start, y, (end - start - 0.5).max(0.5), ROW - 2.0, palette::RIBBONS[shade]));
        let label = notes::safe(&ribbon.label);
        if label.chars().count() as f64 * CHARACTER + 6.0 <= end - start {
            part = part.add(text(f64::midpoint(start, end), y + 11.5, Anchor::Middle, palette::TEXT, &label));
        }
        group = group.add(part);
    }
    for (path, color) in narrow.into_iter().zip(palette::RIBBONS) {
        if !path.is_empty() {
            group = group.add(Path::new().set("d", path).set("fill", color.light));
        }
    }
    group
}
