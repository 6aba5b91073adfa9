//! `memviz timeline`: live memory over time, stacked by group, with what is reserved, marks and annotations.

use super::ribbons;
use crate::analysis::timeline::{INACTIVE, OomMark};
use crate::analysis::{DeviceTimeline, RangePeak, RangePeaks, TimelineReport, XAxis};
use crate::model::bytes::Bytes;
use crate::report::common::fit;
use crate::report::common::notes::{self, safe, signed};
use crate::report::common::picture::chart::{self, Area, Axis, Line, Unit};
use crate::report::common::picture::palette::{self, Color};
use crate::report::common::picture::plot::{
    LABEL_LINE, LABEL_LINES, LEFT, LEGEND, LEGEND_LINE, Labels, PLOT_HEIGHT, PLOT_WIDTH, vertical,
};
use crate::report::common::picture::shape::{Anchor, MONO, MONO_SIZE, MONO_WIDTH, code, px, rectangle, text, titled};
use crate::report::common::picture::{Picture, Room, WIDTH, device_heading, heading, panels, stacked, warnings};
use crate::report::common::words::starred;
use crate::report::peak::each::words;
use crate::report::{Source, percent};
use std::cmp::Reverse;
use std::collections::HashSet;
use svg::node::Blob;
use svg::node::element::{Circle, Group, Line as SvgLine, Path};

/// Failed requests closer than this are one mark, in pixels.
const OOM_DISTANCE: f64 = 4.0;
/// Peaks of ranges that are marked, at most, and characters of their names.
const RANGE_MARKS: usize = 200;
const RANGE_NAME: usize = 24;
/// A capacity further above the memory in use than this factor would flatten the curve, and is told in words.
const CAPACITY_IN_SIGHT: f64 = 2.5;

/// All devices below each other.
pub fn draw(source: Source<'_>, report: &TimelineReport) -> Picture {
    let mut parts = vec![heading(source, "live memory")];
    parts.extend(panels(&report.devices, true, panel));
    stacked(parts)
}

/// One device.
pub fn panel(device: &DeviceTimeline, room: Room) -> Picture {
    let scale = Scale::of(device);
    let (mut body, mut y) = device_heading(&device.peak, room);
    if let Some(capacity) = scale.capacity.filter(|_| !scale.capacity_in_sight) {
        let line =
            format!("what was reserved and what was free on the device at the OOM add up to {}", Bytes(capacity));
        (body, y) = warnings(body, y, &[line]);
    }
    if device.ooms.len() > 1 {
        let line = format!("{} requests failed (OOM); those close to each other share a mark", device.ooms.len());
        (body, y) = warnings(body, y, &[line]);
    }
    let area = Area { left: LEFT, top: 0, width: PLOT_WIDTH, height: PLOT_HEIGHT };
    let colors = palette::of_groups(device.bands.iter().map(|band| band.label.as_str()));
    let top = y + 14.0 + LABEL_LINE * LABEL_LINES as f64;
    let mut plot = Group::new().set("transform", format!("translate(0 {})", px(top)));
    // Smoothed edges of bands that are painted over each other would shine through.
    plot = plot.add(bands(device, &scale, &colors).set("shape-rendering", "crispEdges"));
    plot = plot.add(Blob::new(chart::draw(area, scale.x, scale.y, scale.x_title, &[reserved_line(device, &scale)])));
    plot = marks(plot, device, &scale);
    plot = legend(plot, device, &colors);
    let lines = device.bands.len() + 3 + usize::from(device.peak.ranges.is_some());
    let legend_height = LEGEND_LINE * lines as f64;
    let (ribbons, ribbons_height) = ribbons::draw(device, room, f64::from(LEFT), f64::from(PLOT_WIDTH));
    let below = f64::from(PLOT_HEIGHT + chart::BELOW) + 6.0;
    plot = plot.add(ribbons.set("transform", format!("translate(0 {})", px(below))));
    let height = top + (below + ribbons_height).max(legend_height) + 16.0;
    Picture { height, body: body.add(plot) }
}

/// From bytes and x to pixels.
struct Scale {
    x: Axis,
    y: Axis,
    x_title: &'static str,
    capacity: Option<u64>,
    capacity_in_sight: bool,
}

impl Scale {
    fn of(device: &DeviceTimeline) -> Self {
        let total = |column: usize| device.bands.iter().map(|band| band.bytes[column] as f64).sum::<f64>();
        let highest = (0..device.columns.len()).map(total).fold(0.0, f64::max);
        let reserved = device.columns.iter().map(|column| column.max_reserved).max().unwrap_or(0).max(0);
        let used = highest.max(reserved as f64).max(1.0);
        let capacity = device.ooms.iter().filter_map(OomMark::capacity).max();
        let capacity_in_sight = capacity.is_some_and(|capacity| capacity as f64 <= used * CAPACITY_IN_SIGHT);
        let top = capacity.filter(|_| capacity_in_sight).map_or(used, |capacity| used.max(capacity as f64));
        let (first, last) = device.range;
        // An axis without extent has nothing to count.
        let x_labels = if first < last { 10 } else { 0 };
        let (first, last) = (first as f64, (last as f64).max(first as f64 + 1.0));
        let (unit, x_title) = match device.axis {
            _ if device.peak.completeness.no_entries => (Unit::ENTRIES, "at the dump"),
            XAxis::Entry => (Unit::ENTRIES, Unit::ENTRIES.name),
            XAxis::Time => {
                let unit = Unit::of_time(last - first);
                (unit, unit.name)
            }
        };
        Self {
            x: Axis { first, last, unit, labels: x_labels },
            y: Axis { first: 0.0, last: top * 1.04, unit: Unit::of_bytes(top), labels: 8 },
            x_title,
            capacity,
            capacity_in_sight,
        }
    }

    fn y(&self, bytes: f64) -> f64 {
        f64::from(PLOT_HEIGHT) * (1.0 - bytes / self.y.last)
    }

    /// Left edge of a column.
    fn column(column: usize, columns: usize) -> f64 {
        f64::from(LEFT) + f64::from(PLOT_WIDTH) * column as f64 / columns.max(1) as f64
    }

    fn x(&self, x: i64) -> f64 {
        let share = (x as f64 - self.x.first) / (self.x.last - self.x.first);
        f64::from(LEFT) + f64::from(PLOT_WIDTH) * share.clamp(0.0, 1.0)
    }
}

/// Bands from the bottom up, the first of the legend on top. Each is painted down to the axis and covered by the next:
/// half as many points as with two edges, and no seams.
fn bands(device: &DeviceTimeline, scale: &Scale, colors: &[Color]) -> Group {
    let mut group = Group::new();
    let columns = device.columns.len();
    let total = device.peak.attribution.total_bytes;
    let mut tops: Vec<f64> = vec![0.0; columns];
    for band in &device.bands {
        for (top, &bytes) in tops.iter_mut().zip(&band.bytes) {
            *top += bytes as f64;
        }
    }
    for (band, color) in device.bands.iter().zip(colors) {
        let mut edge = Vec::with_capacity(columns);
        for (column, top) in tops.iter_mut().enumerate() {
            edge.push(scale.y(*top));
            *top -= band.bytes[column] as f64;
        }
        let at_peak = band.bytes[device.peak_column];
        let blocks = band.peak_blocks;
        let share = percent(at_peak, total);
        let title = match band.label.as_str() {
            INACTIVE => format!("{INACTIVE}\n{} reserved and inactive at the peak", Bytes(at_peak)),
            label => {
                let label = starred(label, band.inferred);
                format!("{label}\n{} ({share:.1}%) in {blocks} blocks at the peak", Bytes(at_peak))
            }
        };
        let path = Path::new()
            .set("d", steps(&edge))
            .set("fill", color.light)
            .set("data-label", fit::shorten(&safe(&band.label), 160))
            .set("data-peak-bytes", at_peak);
        group = group.add(titled(&title).add(path));
    }
    group
}

/// The outline below a step curve, one step per column, in relative moves of tenths of a pixel.
fn steps(edge: &[f64]) -> String {
    let columns = edge.len();
    let bottom = f64::from(PLOT_HEIGHT);
    let mut path = format!("M{LEFT} {PLOT_HEIGHT}");
    // Moves add up, so each is taken from where the rounded ones before it lead.
    let (mut x, mut y) = (tenths(f64::from(LEFT)), tenths(bottom));
    for (column, &level) in edge.iter().enumerate() {
        let level = tenths(level);
        if level == y {
            continue;
        }
        let left = tenths(Scale::column(column, columns));
        if left != x {
            path += &format!("h{}", decimal(left - x));
        }
        path += &format!("v{}", decimal(level - y));
        (x, y) = (left, level);
    }
    let right = tenths(Scale::column(columns, columns));
    path + &format!("h{}V{PLOT_HEIGHT}z", decimal(right - x))
}

fn tenths(value: f64) -> i64 {
    (value * 10.0).round() as i64
}

fn decimal(tenths: i64) -> String {
    px(tenths as f64 / 10.0)
}

fn reserved_line(device: &DeviceTimeline, scale: &Scale) -> Line {
    let columns = device.columns.len();
    let width = scale.x.last - scale.x.first;
    let x = |column: usize| scale.x.first + width * column as f64 / columns.max(1) as f64;
    let levels: Vec<i64> = device.columns.iter().map(|column| column.max_reserved).collect();
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut start = 0;
    for stretch in levels.chunk_by(|a, b| a == b) {
        let end = start + stretch.len();
        points.extend([(x(start), stretch[0] as f64), (x(end), stretch[0] as f64)]);
        start = end;
    }
    Line { points, color: palette::TEXT }
}

/// The capacity, the peak and failed requests, with their labels.
fn marks(mut plot: Group, device: &DeviceTimeline, scale: &Scale) -> Group {
    let right = f64::from(LEFT + PLOT_WIDTH);
    if let Some(capacity) = scale.capacity.filter(|_| scale.capacity_in_sight) {
        let y = scale.y(capacity as f64);
        let line = SvgLine::new()
            .set("x1", LEFT)
            .set("x2", px(right))
            .set("y1", px(y))
            .set("y2", px(y))
            .set("stroke", palette::ALARM.light)
            .set("stroke-dasharray", "6 4");
        let name = format!("{} reserved and free on the device at the OOM", Bytes(capacity));
        let label = text(f64::from(LEFT) + 6.0, y - 5.0, Anchor::Start, palette::ALARM, &name);
        plot = plot.add(line).add(label);
    }
    let mut labels = Labels::default();
    let metric = device.peak.metric;
    let peak = device.peak.maxima[metric as usize].bytes;
    if !device.peak.completeness.no_entries && peak > 0 {
        let x = Scale::column(device.peak_column, device.columns.len()) + 0.5;
        let y = scale.y(peak as f64);
        let dot = Circle::new()
            .set("cx", px(x))
            .set("cy", px(y))
            .set("r", 4)
            .set("fill", palette::TEXT.light)
            .set("stroke", palette::BACKGROUND.light)
            .set("data-peak-bytes", peak);
        let name = format!("peak {}", signed(peak));
        plot = plot.add(titled(&format!("{name}\n{}", notes::place(&device.peak))).add(dot));
        plot = plot.add(vertical(x, 0.0, y, palette::TEXT).set("stroke-width", "0.7"));
        plot = labels.add(plot, x, &name, palette::TEXT);
    }
    plot = range_marks(plot, &mut labels, device, scale);
    let mut last_mark = f64::MIN;
    for oom in &device.ooms {
        let x = scale.x(oom.x);
        if x - last_mark < OOM_DISTANCE {
            continue;
        }
        last_mark = x;
        let name = format!("OOM: {} asked for", Bytes(oom.requested));
        let free = oom.device_free.map_or(String::new(), |free| format!(", {} free on the device", Bytes(free)));
        let title = format!("{name}\nentry {}: {} reserved{free}", oom.entry, signed(oom.reserved));
        let line = vertical(x, 0.0, f64::from(PLOT_HEIGHT), palette::ALARM).set("stroke-width", 1.5);
        plot = plot.add(titled(&title).add(line));
        plot = labels.add(plot, x, &name, palette::ALARM);
    }
    plot
}

/// The ranges that are marked: the highest in each pixel, and of those as many as the picture may have.
fn marked<'d>(device: &'d DeviceTimeline, scale: &Scale) -> Vec<(f64, &'d RangePeak)> {
    let metric = device.peak.metric;
    let ranges = device.peak.ranges.iter().flat_map(|found| &found.ranges);
    let mut marks: Vec<(f64, &RangePeak)> =
        ranges.zip(&device.range_peaks).map(|(range, &x)| (scale.x(x), range)).collect();
    // The sort is stable: of equal peaks the first comes first.
    marks.sort_by_key(|(_, range)| Reverse(range.at.get(metric)));
    let mut taken = HashSet::new();
    marks.retain(|(x, _)| taken.insert(x.round() as i64));
    marks.truncate(RANGE_MARKS);
    marks
}

/// The peak of each range asked for, with names where there is room for them, the highest first.
fn range_marks(mut plot: Group, labels: &mut Labels, device: &DeviceTimeline, scale: &Scale) -> Group {
    let metric = device.peak.metric;
    for (x, range) in marked(device, scale) {
        let bytes = range.at.get(metric);
        let y = scale.y(bytes.max(0) as f64);
        let name = starred(&range.label, range.inferred);
        let lead =
            words::lead(range).map(|row| format!("\n{} {}", Bytes(row.bytes), starred(&row.label, row.inferred)));
        let place = words::entry(range);
        let title = format!("{name}: peak {}, entry {place}{}", words::peak(range, metric), lead.unwrap_or_default());
        let dot = Circle::new()
            .set("cx", px(x))
            .set("cy", px(y))
            .set("r", 3)
            .set("fill", palette::BACKGROUND.light)
            .set("stroke", palette::TEXT.light)
            .set("data-range-peak-bytes", bytes);
        plot = plot.add(titled(&title).add(dot));
        let label = format!("{} {}", fit::shorten(&safe(&name), RANGE_NAME), words::peak(range, metric));
        plot = labels.add(plot, x, &label, palette::MUTED);
    }
    plot
}

/// What the marks of ranges are.
fn range_legend(device: &DeviceTimeline, ranges: &RangePeaks) -> String {
    let all = device.range_peaks.len() + ranges.left_out.map_or(0, |(others, _)| others);
    let each = ranges.each.name();
    if all > RANGE_MARKS {
        format!("peak of each {each}, the highest of {all}")
    } else {
        format!("peak of each {each}")
    }
}

/// What the bands are, in the order they are stacked, with their bytes at the peak.
fn legend(mut plot: Group, device: &DeviceTimeline, colors: &[Color]) -> Group {
    let right = f64::from(WIDTH) - 16.0;
    let total = device.peak.attribution.total_bytes;
    let row = |y: f64, label: &str, bytes: u64, share: Option<f64>| {
        let mono = |anchor, x, content: &str| {
            text(x, y, anchor, palette::TEXT, content).set("font-family", MONO).set("font-size", MONO_SIZE)
        };
        let share = share.map(|share| mono(Anchor::End, right, &format!("{share:.1}%")));
        let bytes_at = right - 8.0 * MONO_WIDTH;
        let label_width = bytes_at - 12.0 * MONO_WIDTH - (LEGEND + 18.0);
        let row = titled(label).add(code(LEGEND + 18.0, y, label_width, label));
        let row = row.add(mono(Anchor::End, bytes_at, &Bytes(bytes).to_string()));
        share.into_iter().fold(row, Group::add)
    };
    let at = if device.peak.completeness.no_entries { "at the dump" } else { "at the peak" };
    let star = if device.bands.iter().any(|band| band.inferred) { " (* inferred)" } else { "" };
    let by = format!("by {}{star}", device.peak.attribution.by.name());
    plot = plot.add(text(LEGEND, 0.0, Anchor::Start, palette::MUTED, &by));
    plot = plot.add(text(right, 0.0, Anchor::End, palette::MUTED, at));
    let mut y = LEGEND_LINE;
    for (band, color) in device.bands.iter().zip(colors) {
        let bytes = band.bytes[device.peak_column];
        plot = plot.add(rectangle(LEGEND, y - 9.5, 11.0, 11.0, *color));
        // What is inactive is no part of the whole that shares are of.
        let share = (band.label != INACTIVE).then(|| percent(bytes, total));
        plot = plot.add(row(y, &starred(&band.label, band.inferred), bytes, share));
        y += LEGEND_LINE;
    }
    plot = plot.add(row(y, device.peak.metric.name(), total, None).set("font-weight", 600));
    y += LEGEND_LINE;
    if device.peak.metric != crate::replay::Metric::Reserved {
        let line = rectangle(LEGEND, y - 4.5, 11.0, 1.5, palette::TEXT);
        let reserved = u64::try_from(device.peak.at.reserved).unwrap_or(0);
        plot = plot.add(line).add(row(y, "reserved", reserved, None));
        y += LEGEND_LINE;
    }
    if let Some(ranges) = &device.peak.ranges {
        let dot = Circle::new().set("cx", px(LEGEND + 5.5)).set("cy", px(y - 4.0)).set("r", 3);
        let dot = dot.set("fill", palette::BACKGROUND.light).set("stroke", palette::TEXT.light);
        plot = plot.add(dot).add(text(LEGEND + 18.0, y, Anchor::Start, palette::TEXT, &range_legend(device, ranges)));
    }
    plot
}
