//! The capacity, the peak, peaks of ranges and failed requests, with their labels.

use super::scale::{Scale, at, column, stacked};
use crate::analysis::peak::each::RangePeak;
use crate::analysis::timeline::DeviceTimeline;
use crate::analysis::timeline::OomMark;
use crate::model::bytes::Bytes;
use crate::report::common::fit;
use crate::report::common::notes::{safe, signed};
use crate::report::common::picture::palette;
use crate::report::common::picture::plot::{LEFT, Labels, PLOT_HEIGHT, PLOT_WIDTH, vertical};
use crate::report::common::picture::shape::{Anchor, px, rectangle, text, titled};
use crate::report::common::words::starred;
use crate::report::peak::each::words;
use crate::sorting::SortRows;
use std::cmp::Reverse;
use std::collections::HashSet;
use svg::node::element::{Circle, Group, Line};

/// Failed requests closer than this are one mark, in pixels.
const OOM_DISTANCE: f64 = 4.0;
pub(super) const REQUEST: f64 = 16.0;
/// The most marked peaks of ranges, and the most characters of their names.
pub(super) const RANGE_MARKS: usize = 200;
const RANGE_NAME: usize = 24;

pub(super) fn draw(mut plot: Group, device: &DeviceTimeline, scale: &Scale) -> Group {
    let right = f64::from(LEFT + PLOT_WIDTH);
    if let Some(capacity) = scale.capacity.filter(|_| scale.capacity_in_sight) {
        let y = scale.y(capacity as f64);
        let line = Line::new()
            .set("x1", LEFT)
            .set("x2", px(right))
            .set("y1", px(y))
            .set("y2", px(y))
            .set("stroke", palette::ALARM.light)
            .set("stroke-dasharray", "6 4");
        let name = format!("reserved plus free on the device at the OOM: {}", Bytes(capacity));
        let label = text(f64::from(LEFT) + 6.0, y - 5.0, Anchor::Start, palette::ALARM, &name);
        plot = plot.add(line).add(label);
    }
    let mut labels = Labels::default();
    let mut last_mark = f64::MIN;
    for oom in &device.ooms {
        let x = at(&device.axis, oom.x);
        if x - last_mark >= OOM_DISTANCE {
            last_mark = x;
            plot = failure(plot, &mut labels, device, scale, (oom, x));
        }
    }
    plot = peak(plot, &mut labels, device, scale);
    range_marks(plot, &mut labels, device, scale)
}

fn peak(mut plot: Group, labels: &mut Labels, device: &DeviceTimeline, scale: &Scale) -> Group {
    let peak = device.peak.maxima[device.peak.metric as usize].bytes;
    let Some(at_column) = device.peak_column.filter(|_| peak > 0) else { return plot };
    let x = column(device.columns.len(), at_column) + 0.5;
    let y = scale.y(peak as f64);
    let dot = Circle::new()
        .set("cx", px(x))
        .set("cy", px(y))
        .set("r", 4)
        .set("fill", palette::TEXT.light)
        .set("stroke", palette::BACKGROUND.light)
        .set("data-peak-bytes", peak);
    // At the start of an incomplete history the true peak may be earlier.
    let name = if device.peak.is_early(device.peak.metric) { signed(peak) } else { format!("peak {}", signed(peak)) };
    plot = plot.add(titled(&name).add(dot));
    plot = plot.add(vertical(x, 0.0, y, palette::TEXT).set("stroke-width", "0.7"));
    labels.add(plot, x, &name, palette::TEXT)
}

/// A failed request, on top of the memory held when it failed.
fn failure(
    mut plot: Group,
    labels: &mut Labels,
    device: &DeviceTimeline,
    scale: &Scale,
    (oom, x): (&OomMark, f64),
) -> Group {
    let name = format!("OOM: {} requested", Bytes(oom.requested));
    let free = oom.device_free.map_or(String::new(), |free| format!(", {} free on the device", Bytes(free)));
    let title = format!("{name}\nentry {}: {} reserved{free}", oom.entry, signed(oom.counters.reserved));
    let held = stacked(device, oom);
    let (bottom, top) = (scale.y(held), scale.y(held + oom.requested as f64));
    let left = (x - REQUEST / 2.0).min(f64::from(LEFT + PLOT_WIDTH) - REQUEST);
    let request = rectangle(left, top, REQUEST, (bottom - top).max(1.0), palette::ALARM)
        .set("fill-opacity", "0.35")
        .set("stroke", palette::ALARM.light)
        .set("stroke-width", "1.2")
        .set("data-request-bytes", oom.requested);
    let line = vertical(x, 0.0, f64::from(PLOT_HEIGHT), palette::ALARM).set("stroke-width", 1.5);
    plot = plot.add(titled(&title).add(line).add(request));
    labels.add(plot, x, &name, palette::ALARM)
}

/// The marked ranges: the highest in each pixel, and among those as many as the picture may contain.
fn marked(device: &DeviceTimeline) -> Vec<(f64, &RangePeak)> {
    let metric = device.peak.metric;
    let ranges = device.peak.ranges.iter().flat_map(|found| &found.ranges);
    let mut marks: Vec<(f64, &RangePeak)> =
        ranges.zip(&device.range_peaks).map(|(range, &x)| (at(&device.axis, x), range)).collect();
    // The sort is stable: among equal peaks, the first comes first.
    marks.sort_rows_by_key(|(_, range)| Reverse(range.at.get(metric)));
    let mut taken = HashSet::new();
    marks.retain(|(x, _)| taken.insert(x.round() as i64));
    marks.truncate(RANGE_MARKS);
    marks
}

/// The peak of each requested range, with names if there is room for them, the highest first.
fn range_marks(mut plot: Group, labels: &mut Labels, device: &DeviceTimeline, scale: &Scale) -> Group {
    let metric = device.peak.metric;
    for (x, range) in marked(device) {
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
