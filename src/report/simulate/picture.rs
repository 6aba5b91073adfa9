//! `memviz simulate -o`: reserved memory as recorded, and under the settings that need least.

use super::words;
use crate::analysis::simulate::DeviceSimulation;
use crate::analysis::simulate::SimulateReport;
use crate::model::bytes::Bytes;
use crate::play::{CurvePoint, Run};
use crate::report::Source;
use crate::report::common::fit::shorten_end;
use crate::report::common::notes;
use crate::report::common::picture::pair::{AREA, BASE, NEW, line};
use crate::report::common::picture::palette::{self, Color};
use crate::report::common::picture::plot::{LEFT, LEGEND, LEGEND_LINE, LEGEND_TOP, PLOT_HEIGHT, PLOT_WIDTH};
use crate::report::common::picture::shape::{Anchor, px, rectangle, text};
use crate::report::common::picture::{Picture, Room, TITLE_WIDTH, chart, heading, panels, remarks, stacked, warnings};
use svg::node::Blob;
use svg::node::element::{Group, Line, Path};

/// Longest title and names of settings in the legend, in characters.
const LONGEST_TITLE: usize = TITLE_WIDTH;
const LONGEST_NAME: usize = 110;

/// All devices below each other.
pub fn draw(source: Source<'_>, report: &SimulateReport) -> Picture {
    let mut parts = vec![heading(source, "reserved memory by settings")];
    parts.extend(panels(&report.devices, true, panel));
    stacked(parts)
}

fn panel(device: &DeviceSimulation, room: Room) -> Picture {
    let title = format!("{}: {}", notes::device_name(device.device), words::headline(device));
    let title = text(16.0, 20.0, Anchor::Start, palette::TEXT, &shorten_end(&title, LONGEST_TITLE));
    let body = Group::new().add(title.set("font-weight", 600).set("font-size", 14));
    let (alarms, doubts) =
        if room.notes { (words::alarms(device), words::doubts(drawn(device))) } else { Default::default() };
    let (body, y) = warnings(body, 20.0, &alarms);
    let (body, y) = remarks(body, y, &doubts);
    if device.runs.is_empty() {
        return Picture { height: y + 16.0, body };
    }
    let top = y + 14.0 + 16.0;
    let (plot, legend_end) = legend(plot(device), device);
    let plot = plot.set("transform", format!("translate(0 {})", px(top)));
    Picture { height: top + legend_end + 6.0, body: body.add(plot) }
}

/// The runs that are drawn: under the recorded settings, and under those that need least.
fn drawn(device: &DeviceSimulation) -> impl Iterator<Item = &Run> {
    device.runs.first().into_iter().chain(device.best())
}

/// Both curves, the recorded one as an area, and the devices on which the settings work as lines.
fn plot(device: &DeviceSimulation) -> Group {
    let last = f64::from(device.entries.max(1));
    let needs = levels(device);
    let highest = device.curves.iter().flatten().map(|&(_, bytes)| bytes).chain(needs.iter().map(|&(bytes, _)| bytes));
    let highest = highest.max().unwrap_or(0).max(1) as f64 * 1.05;
    let area = chart::Area { left: LEFT, top: 0, width: PLOT_WIDTH, height: PLOT_HEIGHT };
    let x = chart::Axis { first: 0.0, last, unit: chart::Unit::ENTRIES, labels: 10 };
    let y = chart::Axis { first: 0.0, last: highest, unit: chart::Unit::of_bytes(highest), labels: 6 };
    let [recorded, best] = &device.curves;
    let [recorded, best] = [recorded, best].map(|curve| outline(&steps(curve, last), last, highest));
    let area_below = Path::new().set("d", format!("{recorded}V{PLOT_HEIGHT}H{LEFT}z")).set("fill", BASE.light);
    let mut plot = Group::new()
        .add(area_below.set("fill-opacity", AREA))
        .add(line(recorded, BASE).set("stroke-width", 1))
        .add(Blob::new(chart::draw(area, x, y, "entries", &[])));
    if !best.is_empty() {
        plot = plot.add(line(best, NEW).set("stroke-width", "1.6"));
    }
    for (bytes, color) in needs {
        let at = px(f64::from(PLOT_HEIGHT) * (1.0 - bytes as f64 / highest));
        let line = Line::new().set("x1", LEFT).set("x2", LEFT + PLOT_WIDTH).set("y1", at.clone()).set("y2", at);
        plot = plot.add(line.set("stroke", color.light).set("stroke-width", 1).set("stroke-dasharray", "4 4"));
    }
    plot
}

/// What the recorded and the best settings need.
fn levels(device: &DeviceSimulation) -> Vec<(u64, Color)> {
    let recorded = device.runs.first().and_then(Run::needs);
    let best = device.best().and_then(Run::needs);
    [(recorded, BASE), (best, NEW)].into_iter().filter_map(|(bytes, color)| Some((bytes?, color))).collect()
}

/// A curve in pixels; nothing where it has no points.
fn outline(points: &[(f64, f64)], last: f64, highest: f64) -> String {
    let place = |&(entry, bytes): &(f64, f64)| {
        let x = px(f64::from(LEFT) + f64::from(PLOT_WIDTH) * (entry / last).clamp(0.0, 1.0));
        format!("{x} {}", px(f64::from(PLOT_HEIGHT) * (1.0 - bytes / highest)))
    };
    let mut places: Vec<String> = points.iter().map(place).collect();
    places.dedup();
    if places.is_empty() { String::new() } else { format!("M{}", places.join("L")) }
}

/// A curve that keeps its value up to the next point, thinned where there are more points than pixels.
fn steps(curve: &[CurvePoint], last: f64) -> Vec<(f64, f64)> {
    let columns = PLOT_WIDTH as usize;
    let column = |entry: u32| (f64::from(entry) / last * columns as f64) as usize;
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut rest = curve;
    while let Some(&(entry, first)) = rest.first() {
        let together = rest.iter().take_while(|&&(other, _)| column(other) == column(entry)).count();
        let (here, behind) = rest.split_at(together);
        let at = f64::from(entry);
        if let Some(&(_, before)) = points.last() {
            points.push((at, before));
        }
        let (least, most) = here.iter().fold((first, first), |(low, high), &(_, it)| (low.min(it), high.max(it)));
        let end = here.last().map_or(first, |&(_, bytes)| bytes);
        points.extend([least, most, end].map(|bytes| (at, bytes as f64)));
        rest = behind;
    }
    points.extend(points.last().map(|&(_, bytes)| (last, bytes)));
    points
}

/// What the colours mean, and where that ends.
fn legend(mut plot: Group, device: &DeviceSimulation) -> (Group, f64) {
    let mut y = LEGEND_TOP;
    let best = device.best().map(words::name);
    let names = [(BASE, Some("as recorded".to_owned())), (NEW, best)];
    for (color, name) in names {
        let Some(name) = name else { continue };
        let line = text(LEGEND + 18.0, y, Anchor::Start, palette::TEXT, &shorten_end(&name, LONGEST_NAME));
        plot = plot.add(rectangle(LEGEND, y - 9.5, 11.0, 11.0, color)).add(line);
        y += LEGEND_LINE;
    }
    for (bytes, color) in levels(device) {
        let line = Line::new()
            .set("x1", px(LEGEND))
            .set("x2", px(LEGEND + 11.0))
            .set("y1", px(y - 4.0))
            .set("y2", px(y - 4.0));
        let line = line.set("stroke", color.light).set("stroke-width", 1).set("stroke-dasharray", "4 4");
        let needs = format!("a device with {} does", Bytes(bytes));
        plot = plot.add(line).add(text(LEGEND + 18.0, y, Anchor::Start, palette::MUTED, &needs));
        y += LEGEND_LINE;
    }
    (plot, y)
}
