//! `memviz flamegraph`: live bytes by stack, root on top.

use crate::analysis::flame::{DeviceFlame, FlameReport};
use crate::analysis::flame::{FlameNode, Owner};
use crate::model::bytes::Bytes;
use crate::report::common::fit::{shorten, shorten_end};
use crate::report::common::notes::safe;
use crate::report::common::picture::palette::{self, Color, SideBySide};
use crate::report::common::picture::shape::{Anchor, MONO, MONO_SIZE, MONO_WIDTH, rectangle, text, titled};
use crate::report::common::picture::{Picture, Room, WIDTH, device_heading, heading, panels, stacked};
use crate::report::{Source, percent};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use svg::node::element::Group;

/// Height of a frame.
const ROW: f64 = 18.0;
/// Left and right of the graph.
const MARGIN: f64 = 16.0;
/// Narrower frames are not drawn.
const MIN_WIDTH: f64 = 0.7;
/// Frames drawn, the widest ones: what a file of moderate size holds.
const MAX_FRAMES: usize = 560;
/// Longest label in a tooltip, in characters.
const TOOLTIP: usize = 400;
/// Rows drawn.
const MAX_ROWS: usize = 120;
/// Room at the end of the legend for what is not drawn.
const NOTE: f64 = 280.0;
/// Characters of a C++ name below which its end says nothing.
const NATIVE_WIDTH: usize = 8;
/// Opacity of frames, so that text on them is legible.
const OPACITY: f64 = 0.42;

/// All devices below each other.
pub fn draw(source: Source<'_>, report: &FlameReport) -> Picture {
    let mut parts = vec![heading(source, "live bytes by stack")];
    parts.extend(panels(&report.devices, true, panel));
    stacked(parts)
}

/// One device.
pub fn panel(device: &DeviceFlame, room: Room) -> Picture {
    let total = device.peak.attribution.total_bytes;
    let (mut body, top) = device_heading(&device.peak, room);

    let width = |node: &FlameNode| (f64::from(WIDTH) - 2.0 * MARGIN) * share(node.bytes, total);
    let mut shown: Vec<&FlameNode> =
        device.nodes.iter().filter(|node| width(node) > MIN_WIDTH && node.depth < MAX_ROWS).collect();
    // The widest first; a caller is never narrower than what it calls, so none is drawn without its callers.
    shown.sort_by_key(|node| (Reverse(node.bytes), node.depth));
    shown.truncate(MAX_FRAMES / room.devices.max(1));
    let hidden = device.nodes.len() - shown.len();

    let mut graph = Group::new().set("font-family", MONO).set("font-size", MONO_SIZE);
    let packages = packages(device);
    let colors = colors(&packages);
    for node in &shown {
        let x = MARGIN + (f64::from(WIDTH) - 2.0 * MARGIN) * share(node.start, total);
        let y = top + 10.0 + ROW * node.depth as f64;
        graph = graph.add(frame(node, color(node, &colors), x, width(node), y, total));
    }
    body = body.add(graph);
    let rows = shown.iter().map(|node| node.depth + 1).max().unwrap_or(0);
    let mut height = top + 10.0 + ROW * rows as f64;
    body = legend(body, device, &packages, &colors, height + 18.0, hidden);
    height += 34.0;
    Picture { height, body }
}

fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

fn frame(node: &FlameNode, color: Color, x: f64, width: f64, y: f64, total: u64) -> Group {
    let plural = if node.blocks == 1 { "" } else { "s" };
    let share = percent(node.bytes, total);
    // Where the label is cut off, this is all that is left of it in the picture.
    let name = shorten_end(&node.label, TOOLTIP);
    let title = format!("{name}\n{} ({share:.1}%) in {} block{plural}", Bytes(node.bytes), node.blocks);
    let shape = rectangle(x, y, (width - 0.5).max(0.5), ROW - 1.0, color).set("fill-opacity", OPACITY);
    let mut frame = titled(&title).add(shape.set("data-bytes", node.bytes));
    if let Some(label) = label(node, ((width - 6.0) / MONO_WIDTH).max(0.0) as usize) {
        frame = frame.add(text(x + 3.0, y + 12.5, Anchor::Start, palette::TEXT, &label));
    }
    frame
}

/// What fits: the whole label with its bytes, the label, the function, or the function's beginning.
fn label(node: &FlameNode, width: usize) -> Option<String> {
    let label = safe(&node.label);
    let with_bytes = format!("{label}  {}", Bytes(node.bytes));
    let function = label.rsplit(' ').next().unwrap_or(&label);
    let fits = |text: &str| shorten(text, width) == text;
    match () {
        () if fits(&with_bytes) => Some(with_bytes),
        () if fits(&label) => Some(label),
        () if fits(function) => Some(function.to_owned()),
        // Namespaces come first in C++ and tell little.
        () if width >= NATIVE_WIDTH && node.owner == Owner::Native => Some(shorten(&label, width)),
        () if node.owner == Owner::Native => None,
        () if width >= 4 => Some(shorten_end(function, width)),
        () => None,
    }
}

/// Whose code there is, with the bytes that nobody further in holds, so that the sum is the whole; the largest first.
pub(crate) fn packages(device: &DeviceFlame) -> Vec<(&str, u64)> {
    let mut owners: BTreeMap<&str, u64> = BTreeMap::new();
    for node in &device.nodes {
        if let Owner::Package(package) = &node.owner {
            let bytes = owners.entry(package).or_default();
            *bytes = bytes.wrapping_add(node.own_bytes);
        }
    }
    let mut owners: Vec<(&str, u64)> = owners.into_iter().collect();
    owners.sort_by_key(|&(package, bytes)| (Reverse(bytes), package));
    owners
}

/// The colours of packages.
pub(crate) fn colors<'p>(packages: &[(&'p str, u64)]) -> SideBySide<'p> {
    SideBySide::of_largest_first(packages.iter().map(|&(package, _)| package))
}

/// The colour of a frame: whose code it is.
pub(crate) fn color(node: &FlameNode, packages: &SideBySide<'_>) -> Color {
    match &node.owner {
        Owner::Package(package) => packages.of(package),
        Owner::Native => palette::OTHER,
        Owner::Group => palette::of_label(&node.label),
        Owner::Nobody => palette::of_special(&node.label).unwrap_or(palette::OTHER),
    }
}

/// Whose code the colours stand for, and how much was too narrow.
fn legend(
    mut body: Group,
    device: &DeviceFlame,
    packages: &[(&str, u64)],
    colors: &SideBySide<'_>,
    y: f64,
    hidden: usize,
) -> Group {
    let mut entries: Vec<(String, Color)> =
        packages.iter().take(8).map(|(name, _)| (shorten_end(&safe(name), 24), colors.of(name))).collect();
    if device.nodes.iter().any(|node| node.owner == Owner::Native) {
        entries.push(("C++".to_owned(), palette::OTHER));
    }
    let mut x = MARGIN;
    for (name, color) in entries {
        let width = 16.0 + 7.0 * name.chars().count() as f64 + 18.0;
        if x + width > f64::from(WIDTH) - NOTE {
            break;
        }
        let swatch = rectangle(x, y - 9.5, 11.0, 11.0, color).set("fill-opacity", OPACITY);
        body = body.add(swatch).add(text(x + 16.0, y, Anchor::Start, palette::MUTED, &name));
        x += width;
    }
    if hidden > 0 {
        let plural = if hidden == 1 { "" } else { "s" };
        let note = format!("{hidden} frame{plural} too narrow or too deep to draw");
        body = body.add(text(f64::from(WIDTH) - MARGIN, y, Anchor::End, palette::MUTED, &note));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_show_what_fits() {
        let node = FlameNode {
            label: "model.py:41 forward".into(),
            owner: Owner::Package("model".into()),
            bytes: 1 << 20,
            own_bytes: 0,
            blocks: 1,
            depth: 1,
            start: 0,
        };
        let fitted: Vec<_> = [40, 20, 8, 5, 3].map(|width| label(&node, width)).into_iter().collect();
        let expected = ["model.py:41 forward  1.00 MiB", "model.py:41 forward", "forward", "forw…"];
        assert_eq!(fitted[..4], expected.map(|label| Some(label.to_owned())));
        assert_eq!(fitted[4], None);
    }
}
