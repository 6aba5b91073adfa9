//! `memviz fit -o`: peaks against the number that varies, with the device as a line and recorded runs as marks.

use super::words;
use crate::analysis::fit::FitReport;
use crate::analysis::fit::{DeviceFit, Prediction};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::fit::{shorten, shorten_end};
use crate::report::common::notes::{device_name, safe};
use crate::report::common::picture::palette::{self, Color};
use crate::report::common::picture::plot::{LEFT, LEGEND, LEGEND_LINE, LEGEND_TOP, PLOT_HEIGHT, PLOT_WIDTH};
use crate::report::common::picture::shape::{Anchor, px, rectangle, text, titled};
use crate::report::common::picture::{Picture, Room, TITLE_WIDTH, WIDTH, chart, panels, stacked, warnings};
use svg::node::Blob;
use svg::node::element::{Circle, Group, Line};

/// Colours of reserved and allocated memory, and of the device.
const RESERVED: Color = palette::OTHER;
const ALLOCATED: Color = palette::GROUPS[0];
/// Longest path, in characters; each has a line of its own.
const LONGEST_PATH: usize = 70;

/// All devices below each other.
pub fn draw(sources: &[Source<'_>], report: &FitReport) -> Picture {
    let mut parts = vec![heading(sources, &report.parameter)];
    parts.extend(panels(&report.devices, true, |device, room| panel(&report.parameter, device, room)));
    stacked(parts)
}

fn heading(sources: &[Source<'_>], parameter: &str) -> Picture {
    let what = format!("peak memory by {}", shorten_end(&safe(parameter), 30));
    let mut body = Group::new().add(text(f64::from(WIDTH) - 16.0, 28.0, Anchor::End, palette::MUTED, &what));
    let mut y = 6.0;
    for source in sources {
        y += 22.0;
        let path = text(16.0, y, Anchor::Start, palette::TEXT, &shorten(&safe(source.path), LONGEST_PATH));
        body = body.add(path.set("font-size", 16).set("font-weight", 600));
    }
    let (body, height) = warnings(body, y + 4.0, &words::files(sources));
    Picture { height: height + 8.0, body }
}

fn panel(parameter: &str, device: &DeviceFit, room: Room) -> Picture {
    let title = format!("{}: {}", device_name(device.device), words::headline(parameter, device));
    let title = text(16.0, 20.0, Anchor::Start, palette::TEXT, &shorten_end(&title, TITLE_WIDTH));
    let body = Group::new().add(title.set("font-weight", 600).set("font-size", 14));
    let lines = if room.notes { words::limits(parameter, device) } else { Vec::new() };
    let (body, y) = warnings(body, 20.0, &lines);
    if device.predictions.is_empty() {
        return Picture { height: y + 16.0, body };
    }
    let top = y + 14.0 + 16.0;
    let (plot, legend_end) = legend(plot(parameter, device), device);
    let plot = plot.set("transform", format!("translate(0 {})", px(top)));
    Picture { height: top + legend_end + 6.0, body: body.add(plot) }
}

/// Both curves, the device as a line, and a mark for each row.
fn plot(parameter: &str, device: &DeviceFit) -> Group {
    let last = device.predictions.last().map_or(1, |it| it.value).max(1) as f64 * 1.04;
    let figures = device.predictions.iter().flat_map(|it| [it.outcome.max_allocated, it.outcome.max_reserved]);
    let highest = figures.chain(device.capacity).max().unwrap_or(0).max(1) as f64 * 1.06;
    let area = chart::Area { left: LEFT, top: 0, width: PLOT_WIDTH, height: PLOT_HEIGHT };
    let unit = chart::Unit { name: "", size: 1.0 };
    let x = chart::Axis { first: 0.0, last, unit, labels: 10 };
    let y = chart::Axis { first: 0.0, last: highest, unit: chart::Unit::of_bytes(highest), labels: 6 };
    let points = |of: fn(&Prediction) -> u64| {
        // A play that fails ends early: what it had come to is no peak.
        let finished = device.predictions.iter().filter(|it| it.fits());
        finished.map(|it| (it.value as f64, of(it) as f64)).collect::<Vec<_>>()
    };
    let curves = [(points(reserved), RESERVED), (points(allocated), ALLOCATED)];
    let lines: Vec<chart::Line> =
        curves.iter().map(|(points, color)| chart::Line { points: points.clone(), color: *color }).collect();
    let name = shorten_end(&safe(parameter), 30);
    let mut plot = Group::new().add(Blob::new(chart::draw(area, x, y, &name, &lines)));
    let place = |(value, bytes): (f64, f64)| {
        let across = f64::from(LEFT) + value / last * f64::from(PLOT_WIDTH);
        (across, f64::from(PLOT_HEIGHT) * (1.0 - bytes / highest))
    };
    if let Some(capacity) = device.capacity {
        let (_, at) = place((0.0, capacity as f64));
        let line = Line::new().set("x1", LEFT).set("x2", LEFT + PLOT_WIDTH).set("y1", px(at)).set("y2", px(at));
        plot = plot.add(line.set("stroke", palette::ALARM.light).set("stroke-width", 1).set("stroke-dasharray", "4 4"));
    }
    for prediction in device.predictions.iter().filter(|it| it.fits()) {
        for (bytes, color) in [(reserved(prediction), RESERVED), (allocated(prediction), ALLOCATED)] {
            let (cx, cy) = place((prediction.value as f64, bytes as f64));
            let mark =
                Circle::new().set("cx", px(cx)).set("cy", px(cy)).set("stroke", color.light).set("stroke-width", 1.5);
            // Recorded runs are filled.
            let fill = if prediction.is_recorded { color.light } else { palette::BACKGROUND.light };
            let title = format!("{parameter} {}: {}", prediction.value, Bytes(bytes));
            plot = plot.add(titled(&title).add(mark.set("r", 3.5).set("fill", fill)));
        }
    }
    plot
}

fn reserved(prediction: &Prediction) -> u64 {
    prediction.outcome.max_reserved
}

fn allocated(prediction: &Prediction) -> u64 {
    prediction.outcome.max_allocated
}

/// What colours and marks mean, below the curves, and where that ends.
fn legend(mut plot: Group, device: &DeviceFit) -> (Group, f64) {
    let mut y = LEGEND_TOP;
    for (color, name) in [(RESERVED, "most reserved"), (ALLOCATED, "most allocated")] {
        let line = text(LEGEND + 18.0, y, Anchor::Start, palette::TEXT, name);
        plot = plot.add(rectangle(LEGEND, y - 9.5, 11.0, 11.0, color)).add(line);
        y += LEGEND_LINE;
    }
    let mut said = vec!["filled marks: recorded".to_owned(), "empty marks: predicted".to_owned()];
    said.extend(device.capacity.map(|capacity| format!("dashed: {} for the allocator", Bytes(capacity))));
    for line in said {
        plot = plot.add(text(LEGEND + 18.0, y, Anchor::Start, palette::MUTED, &line));
        y += LEGEND_LINE;
    }
    (plot, y)
}
