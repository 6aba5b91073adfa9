//! `memviz diff -o`: the memory of both recordings over time, on one axis, and the causes of the difference.

use super::words;
use crate::analysis::diff::{Curve, DeviceDiff, DeviceOverlay, DiffInputDevice, DiffReport, DiffRow, Lives, Overlay};
use crate::facts::grouping::GroupBy;
use crate::model::bytes::Bytes;
use crate::report::Sources;
use crate::report::common::fit::shorten_end;
use crate::report::common::notes::{self, safe, signed};
use crate::report::common::picture::pair::{BASE, NEW, Scale, both, one, point};
use crate::report::common::picture::palette::{self, Color};
use crate::report::common::picture::plot::{LEGEND, LEGEND_LINE, LEGEND_TOP, Labels, PLOT_HEIGHT, vertical};
use crate::report::common::picture::shape::{Anchor, MONO, MONO_SIZE, MONO_WIDTH, code, px, rectangle, text, titled};
use crate::report::common::picture::titles::{NAMES, names, title};
use crate::report::common::picture::{LINE_WIDTH, Picture, Room, WIDTH, panels, remarks, stacked, warnings};
use crate::report::common::words::{category, starred};
use svg::node::element::Group;

/// Rows listed below the plot.
const ROWS: usize = 11;
/// Lines below all plots.
const REMARKS: usize = 12;

pub fn draw(sources: Sources<'_>, report: &DiffReport, overlay: &Overlay) -> Picture {
    let mut parts = vec![heading(sources, report)];
    let devices: Vec<(&DeviceDiff, &DeviceOverlay)> = report.devices.iter().zip(&overlay.devices).collect();
    parts.extend(panels(&devices, true, |&(device, curves), room| panel(device, curves, room)));
    parts.extend(further(report));
    stacked(parts)
}

/// Devices of one file only, and settings that differ.
fn further(report: &DiffReport) -> Option<Picture> {
    let mut lines = words::unpaired(report);
    lines.extend(report.settings.iter().map(words::setting));
    let hidden = lines.len().saturating_sub(REMARKS);
    lines.truncate(REMARKS);
    if hidden > 0 {
        lines.push(format!("{hidden} more"));
    }
    let line = |(index, line): (usize, &String)| {
        text(
            16.0,
            LEGEND_LINE * (index + 1) as f64,
            Anchor::Start,
            palette::MUTED,
            &shorten_end(&safe(line), LINE_WIDTH),
        )
    };
    let body = lines.iter().enumerate().map(line).fold(Group::new(), Group::add);
    (!lines.is_empty()).then(|| Picture { height: LEGEND_LINE * (lines.len() + 1) as f64, body })
}

/// Both files' names, and what they lack.
fn heading(sources: Sources<'_>, report: &DiffReport) -> Picture {
    let key = |y: f64, color: Color, what: &str| {
        let what = text(34.0, y, Anchor::Start, palette::MUTED, what);
        Group::new().add(rectangle(16.0, y - 10.0, 11.0, 11.0, color)).add(what)
    };
    let what = if report.is_of_instants() { "two instants" } else { "two recordings" };
    let title = text(f64::from(WIDTH) - 16.0, 28.0, Anchor::End, palette::MUTED, what);
    let body = Group::new().add(title).add(key(28.0, BASE, "base")).add(key(28.0 + NAMES, NEW, "new"));
    let (body, y) = names(body, 80.0, 28.0, &[sources.base.path, sources.new.path]);
    let (body, height) = warnings(body, y + 4.0, &words::files(sources, report));
    Picture { height: height + 8.0, body }
}

fn panel(device: &DeviceDiff, curves: &DeviceOverlay, room: Room) -> Picture {
    let (body, y) = title(Group::new(), 0.0, &words::headline(device));
    let limits = if room.notes { words::limits(device) } else { Vec::new() };
    let (body, y) = warnings(body, y, &limits);
    let lives = device.lives.as_ref().map(words::lives);
    let parting = curves.parting.as_ref().map(|(_, parting)| words::parting(parting));
    let facts: Vec<String> = lives.into_iter().chain(parting).collect();
    let (body, y) = remarks(body, y, &facts);
    if [&device.base, &device.new].iter().all(|side| side.peak.completeness.no_entries) {
        // Two instants or recordings without a history have no curves.
        let top = y + 14.0 - LEGEND_TOP + LEGEND_LINE;
        let (rows, end) = legend(Group::new(), device);
        let rows = rows.set("transform", format!("translate(0 {})", px(top)));
        return Picture { height: top + end + LEGEND_LINE, body: body.add(rows) };
    }
    let scale = Scale::of(curves);
    let top = y + 14.0 + 32.0;
    let curve = if device.lives.is_some() { one(curves, &scale) } else { both(curves, &scale) };
    let mut plot = curve.set("transform", format!("translate(0 {})", px(top)));
    let mut labels = Labels::default();
    if let Some((column, _)) = &curves.parting {
        let x = scale.x(*column);
        plot = plot.add(vertical(x, 0.0, f64::from(PLOT_HEIGHT), palette::MUTED).set("stroke-dasharray", "4 3"));
        plot = labels.add(plot, x, "first difference", palette::TEXT);
    }
    // If two labels collide, the lower one is that of the new recording.
    plot = mark(plot, &mut labels, &device.new, &curves.new, &scale, ("new", NEW));
    plot = mark(plot, &mut labels, &device.base, &curves.base, &scale, ("base", BASE));
    let (plot, end) = legend(plot, device);
    Picture { height: top + end + LEGEND_LINE, body: body.add(plot) }
}

/// The selected instant on one side: its peak, unless another one was requested.
fn mark(
    plot: Group,
    labels: &mut Labels,
    side: &DiffInputDevice,
    curve: &Curve,
    scale: &Scale,
    (name, color): (&str, Color),
) -> Group {
    let metric = side.peak.metric;
    let bytes = side.peak.at.get(metric);
    let is_peak = side.peak.maxima[metric as usize].instant == side.peak.instant && !side.peak.completeness.no_entries;
    let label = format!("{name} {}{}", if is_peak { "peak " } else { "" }, signed(bytes));
    point(plot, labels, scale, (curve.mark, bytes), (&label, &notes::place(&side.peak), color))
}

/// The rows that grew and shrank most, and the sum; returns where that ends.
fn legend(mut plot: Group, device: &DeviceDiff) -> (Group, f64) {
    let right = f64::from(WIDTH) - 16.0;
    let (heads, width): (&[&str], f64) =
        if device.lives.is_some() { (&["freed", "allocated"], 26.0) } else { (&["change"], 13.0) };
    let room = right - width * MONO_WIDTH - LEGEND;
    let mut y = LEGEND_TOP;
    // Nearly all categories are inferred: a star at each would say nothing.
    let is_category = device.by() == GroupBy::Category;
    let is_starred = |row: &DiffRow| row.inferred && !is_category;
    let star = if device.rows.iter().take(ROWS).any(is_starred) { " (* inferred)" } else { "" };
    let by = format!("by {}{star}", device.by().name());
    plot = plot.add(text(LEGEND, y, Anchor::Start, palette::MUTED, &by));
    for (column, head) in heads.iter().enumerate() {
        let right = right - 13.0 * MONO_WIDTH * column as f64;
        plot = plot.add(text(right, y, Anchor::End, palette::MUTED, head));
    }
    let number = |x: f64, y: f64, content: &str| {
        let number = text(x, y, Anchor::End, palette::TEXT, content);
        number.set("font-family", MONO).set("font-size", MONO_SIZE)
    };
    let amount = |y: f64, bytes: i64, lives: Option<Lives>| match lives {
        None => Group::new().add(number(right, y, &words::delta(bytes))),
        Some(Lives { born, freed, .. }) => {
            // A difference of zero has no sign.
            let signed = |sign, bytes| if bytes == 0 { "-".to_owned() } else { format!("{sign}{}", Bytes(bytes)) };
            let born = number(right - 13.0 * MONO_WIDTH, y, &signed("+", born.bytes));
            Group::new().add(born).add(number(right, y, &signed("-", freed.bytes)))
        }
    };
    for row in device.rows.iter().take(ROWS) {
        y += LEGEND_LINE;
        let name = if is_category { category(&row.label) } else { &row.label };
        let label = format!("{}{}", starred(name, is_starred(row)), words::fate(device, row));
        let title = format!("{label}\n{} -> {}", signed(row.base_bytes), signed(row.new_bytes));
        plot = plot.add(titled(&title).add(code(LEGEND, y, room, &label)).add(amount(y, row.delta_bytes, row.lives)));
    }
    let rest = device.rows.get(ROWS..).unwrap_or(&[]);
    let hidden = rest.iter().fold(0, |sum: i64, row| sum.wrapping_add(row.delta_bytes));
    if !rest.is_empty() && !device.by().is_inclusive() {
        y += LEGEND_LINE;
        let label = format!("({} more)", rest.len().saturating_add(device.left_out.saturating_sub(1)));
        plot = plot.add(code(LEGEND, y, room, &label)).add(amount(
            y,
            hidden,
            rest.iter().filter_map(|row| row.lives).reduce(Lives::plus),
        ));
    }
    if let Some(unchanged) = words::unchanged(device) {
        y += LEGEND_LINE;
        plot = plot.add(text(LEGEND, y, Anchor::Start, palette::MUTED, &unchanged));
    }
    y += LEGEND_LINE;
    let name = code(LEGEND, y, room, device.metric().name()).set("font-weight", 600);
    let total = amount(y, device.delta_bytes, device.lives).set("font-weight", 600);
    (plot.add(name).add(total), y)
}
