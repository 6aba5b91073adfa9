//! `memviz flamegraph`: live bytes by stack, root on top.

use super::colors::Colors;
use crate::analysis::flame::{DeviceFlame, FlameReport};
use crate::analysis::flame::{FlameNode, Owner};
use crate::facts::code::frames::short_native_name;
use crate::model::bytes::Bytes;
use crate::report::common::fit::{shorten, shorten_end};
use crate::report::common::notes::safe;
use crate::report::common::picture::palette::{self, Color};
use crate::report::common::picture::shape::{Anchor, MONO, MONO_SIZE, MONO_WIDTH, rectangle, text, titled};
use crate::report::common::picture::{Picture, Room, Script, WIDTH, device_heading, heading, panels, stacked};
use crate::report::common::words::category;
use crate::report::{Source, percent};
use crate::sorting::SortRows;
use std::cmp::Reverse;
use svg::node::element::Group;

const ROW: f64 = 18.0;
/// Left and right of the graph.
const MARGIN: f64 = 16.0;
/// Narrower frames are not drawn.
const MIN_WIDTH: f64 = 0.7;
/// Rows whose frames together are narrower are not drawn.
const MIN_ROW: f64 = 40.0;
/// The most frames drawn, the widest ones: as many as a file of moderate size can contain.
const MAX_FRAMES: usize = 560;
const TOOLTIP: usize = 400;
const MAX_ROWS: usize = 120;
/// Room at the end of the legend for the note about frames that are not drawn.
const NOTE: f64 = 280.0;
/// C++ functions that many classes have: without their class, the name says nothing.
const METHODS: [&str; 4] = ["apply", "call", "operator()", "redispatch"];
/// Colors named in the legend, and the height of a line of it.
const LEGEND: usize = 12;
const LEGEND_ROW: f64 = 17.0;
/// Maximum length of a name in the legend, in characters: enough for each category.
const LEGEND_NAME: usize = 32;
/// Opacity of frames, so that text on them is legible.
const OPACITY: f64 = 0.42;

pub fn draw(source: Source<'_>, report: &FlameReport) -> Picture {
    let is_mean = report.devices.iter().any(|device| device.peak.attribution.mean_over_us.is_some());
    let what = if is_mean { "mean live bytes by stack" } else { "live bytes by stack" };
    let mut parts = vec![heading(source, what)];
    let colors = Colors::of(report.devices.iter().flat_map(|device| &device.nodes));
    parts.extend(panels(&report.devices, true, |device, room| panel(device, &colors, room)));
    stacked(parts)
}

pub(crate) fn panel(device: &DeviceFlame, colors: &Colors<'_>, room: Room) -> Picture {
    let total = device.peak.attribution.total_bytes;
    let (mut body, top) = device_heading(&device.peak, room);

    let width = |node: &FlameNode| (f64::from(WIDTH) - 2.0 * MARGIN) * share(node.bytes, total);
    let mut shown: Vec<&FlameNode> =
        device.nodes.iter().filter(|node| width(node) > MIN_WIDTH && node.depth < MAX_ROWS).collect();
    // The widest first; a caller is never narrower than its callees, so none is drawn without its callers.
    shown.sort_rows_by_key(|node| (Reverse(node.bytes), node.depth));
    shown.truncate(MAX_FRAMES / room.devices.max(1));
    // A few thin frames below each other would leave the rest of the picture empty.
    let in_row = |depth: usize| shown.iter().filter(|node| node.depth == depth).map(|node| width(node)).sum::<f64>();
    let rows = (0..MAX_ROWS).take_while(|&depth| in_row(depth) >= MIN_ROW).count();
    shown.retain(|node| node.depth < rows);
    let hidden = device.nodes.len() - shown.len();

    let mut graph = Group::new().set("font-family", MONO).set("font-size", MONO_SIZE);
    for node in &shown {
        let x = MARGIN + (f64::from(WIDTH) - 2.0 * MARGIN) * share(node.start, total);
        let y = top + 10.0 + ROW * node.depth as f64;
        graph = graph.add(frame(node, colors.of_node(node), x, width(node), y, total));
    }
    body = body.add(graph);
    let mut height = top + 10.0 + ROW * rows as f64;
    (body, height) = legend(body, &colors.legend(&device.nodes), height + 18.0, hidden);
    Picture { height: height + 16.0, body }
}

fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

fn frame(node: &FlameNode, color: Color, x: f64, width: f64, y: f64, total: u64) -> Group {
    let plural = if node.blocks == 1 { "" } else { "s" };
    let share = percent(node.bytes, total);
    // If the label is cut off, the picture shows it only here.
    let name = shorten_end(name(node), TOOLTIP);
    let title = format!("{name}\n{} ({share:.1}%) in {} block{plural}", Bytes(node.bytes), node.blocks);
    let shape = rectangle(x, y, (width - 0.5).max(0.5), ROW - 1.0, color).set("fill-opacity", OPACITY);
    let mut frame = titled(&title).add(shape.set("data-bytes", node.bytes));
    if let Some(label) = label(node, ((width - 6.0) / MONO_WIDTH).max(0.0) as usize) {
        frame = frame.add(text(x + 3.0, y + 12.5, Anchor::Start, palette::TEXT, &label));
    }
    frame
}

fn name(node: &FlameNode) -> &str {
    if node.owner == Owner::Group { category(&node.label) } else { &node.label }
}

/// The longest text that fits: the whole label with its bytes, the label, path and line, file and line; otherwise nothing.
fn label(node: &FlameNode, width: usize) -> Option<String> {
    let label = safe(name(node));
    let with_bytes = format!("{label}  {}", Bytes(node.bytes));
    let line = label.split(' ').next().filter(|line| line.contains(':'));
    let fits = |text: &str| shorten(text, width) == text;
    if fits(&with_bytes) {
        Some(with_bytes)
    } else if fits(&label) {
        Some(label)
    } else if node.owner == Owner::Native {
        native(&label, fits)
    } else {
        let file = line.and_then(|line| line.rsplit('/').next());
        line.into_iter().chain(file).find(|line| fits(line)).map(str::to_owned)
    }
}

/// A C++ function with as many of its namespaces as fit.
fn native(label: &str, fits: impl Fn(&str) -> bool) -> Option<String> {
    let name = short_native_name(label);
    let starts = std::iter::once(0).chain(name.match_indices("::").map(|(at, colons)| at + colons.len()));
    let mut shorter = starts.filter_map(|start| name.get(start..));
    shorter.find(|&rest| !rest.is_empty() && fits(rest) && !METHODS.contains(&rest)).map(str::to_owned)
}

/// The meaning of the colors on as many lines as needed, and how much was too narrow; returns the baseline of the last line.
fn legend(mut body: Group, colors: &[(String, Color)], top: f64, hidden: usize) -> (Group, f64) {
    let entries = colors.iter().take(LEGEND).map(|(name, color)| (shorten_end(&safe(name), LEGEND_NAME), *color));
    let (mut x, mut y) = (MARGIN, top);
    for (name, color) in entries {
        let width = 16.0 + Script::Body.width(&name) + 18.0;
        let room = if y > top || hidden == 0 { MARGIN } else { NOTE };
        if x + width > f64::from(WIDTH) - room {
            (x, y) = (MARGIN, y + LEGEND_ROW);
        }
        let swatch = rectangle(x, y - 9.5, 11.0, 11.0, color).set("fill-opacity", OPACITY);
        body = body.add(swatch).add(text(x + 16.0, y, Anchor::Start, palette::MUTED, &name));
        x += width;
    }
    if hidden > 0 {
        let plural = if hidden == 1 { "" } else { "s" };
        let note = format!("{hidden} frame{plural} too narrow or too deep to draw");
        body = body.add(text(f64::from(WIDTH) - MARGIN, top, Anchor::End, palette::MUTED, &note));
    }
    (body, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legend_names_every_color() {
        let names: Vec<String> = (0..LEGEND).map(|number| format!("temporary tensors {number}")).collect();
        let colors: Vec<(String, Color)> = names.iter().map(|name| (name.clone(), palette::FIGURE)).collect();
        let (drawn, bottom) = legend(Group::new(), &colors, 18.0, 1);
        let drawn = drawn.to_string();
        assert!(bottom > 18.0 && names.iter().all(|name| drawn.contains(name.as_str())));
    }

    #[test]
    fn labels_are_cut_to_fit() {
        let node = FlameNode {
            label: "model.py:41 forward".into(),
            owner: Owner::Package("model".into()),
            bytes: 1 << 20,
            own_bytes: 0,
            blocks: 1,
            category: None,
            depth: 1,
            start: 0,
        };
        let fitted = [40, 20, 12, 8].map(|width| label(&node, width));
        let expected = [Some("model.py:41 forward  1.00 MiB"), Some("model.py:41 forward"), Some("model.py:41"), None];
        assert_eq!(fitted, expected.map(|label| label.map(str::to_owned)));
        let marker = FlameNode { label: "(backward, inferred)".into(), ..node.clone() };
        assert_eq!(label(&marker, 12), None);
        let group = FlameNode { label: "optimizer_state".into(), owner: Owner::Group, ..node.clone() };
        assert_eq!(label(&group, 20).as_deref(), Some("optimizer state"));
        let native =
            FlameNode { label: "torch::autograd::generated::SubBackward0::apply".into(), owner: Owner::Native, ..node };
        let fitted = [50, 33, 20, 12].map(|width| label(&native, width));
        let expected = [
            Some("torch::autograd::generated::SubBackward0::apply"),
            Some("generated::SubBackward0::apply"),
            Some("SubBackward0::apply"),
            None,
        ];
        assert_eq!(fitted, expected.map(|label| label.map(str::to_owned)));
    }
}
