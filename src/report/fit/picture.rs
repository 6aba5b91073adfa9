//! `memviz fit -o`: peaks against the number that varies, with the device as a line and recorded runs as marks.

use super::axes::Axes;
use super::words;
use crate::analysis::fit::{DeviceFit, FitReport, Largest, Prediction};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::fit::shorten_end;
use crate::report::common::notes::{device_name, safe};
use crate::report::common::picture::palette::{self, Color};
use crate::report::common::picture::plot::{
    LABEL_LINE, LEFT, LEGEND, LEGEND_LINE, LEGEND_TOP, Labels, PLOT_HEIGHT, PLOT_WIDTH, vertical,
};
use crate::report::common::picture::shape::{Anchor, px, rectangle, text, titled};
use crate::report::common::picture::titles::{names, title};
use crate::report::common::picture::{Picture, Room, WIDTH, panels, stacked, warnings};
use crate::simulation::Trust;
use svg::node::element::{Circle, Group, Line};

/// Colors of reserved and allocated memory.
const RESERVED: Color = palette::OTHER;
const ALLOCATED: Color = palette::FIGURE;
/// The most characters of the name of the number.
const NAME: usize = 30;
/// Radius of the mark of a recorded run, and of a prediction.
const RECORDED: f64 = 5.5;
const PREDICTED: f64 = 3.5;

/// All devices below each other.
pub fn draw(sources: &[Source<'_>], report: &FitReport) -> Picture {
    let mut parts = vec![heading(sources, &report.parameter)];
    parts.extend(panels(&report.devices, true, |device, room| panel(&report.parameter, device, room)));
    stacked(parts)
}

fn heading(sources: &[Source<'_>], parameter: &str) -> Picture {
    let what = format!("peak memory by {}", shorten_end(&safe(parameter), NAME));
    let body = Group::new().add(text(f64::from(WIDTH) - 16.0, 28.0, Anchor::End, palette::MUTED, &what));
    let paths: Vec<&str> = sources.iter().map(|source| source.path).collect();
    let (body, y) = names(body, 16.0, 28.0, &paths);
    let (body, height) = warnings(body, y + 4.0, &words::files(sources));
    Picture { height: height + 8.0, body }
}

fn panel(parameter: &str, device: &DeviceFit, room: Room) -> Picture {
    let name = format!("{}: {}", device_name(device.device), words::headline(parameter, device));
    let (body, y) = title(Group::new(), 0.0, &name);
    let lines = if room.notes { words::limits(parameter, device) } else { Vec::new() };
    let (body, y) = warnings(body, y, &lines);
    if device.predictions.is_empty() {
        return Picture { height: y + 16.0, body };
    }
    let top = y + 14.0 + LABEL_LINE;
    let (plot, legend_end) = legend(plot(parameter, device), device);
    let plot = plot.set("transform", format!("translate(0 {})", px(top)));
    Picture { height: top + legend_end + 6.0, body: body.add(plot) }
}

/// Both curves, the device as a line, and a mark for each row.
fn plot(parameter: &str, device: &DeviceFit) -> Group {
    let axes = Axes::of(device);
    let name = shorten_end(&safe(parameter), NAME);
    let mut plot = axes.draw(&name);
    let mut labels = Labels::default();
    if let Some(capacity) = device.capacity {
        let at = px(axes.y(capacity));
        let line = Line::new().set("x1", LEFT).set("x2", LEFT + PLOT_WIDTH).set("y1", at.as_str()).set("y2", at);
        plot = plot.add(line.set("stroke", palette::TEXT.light).set("stroke-dasharray", "6 4"));
    }
    if let Some(Largest::UpTo { value, .. }) = device.largest {
        let x = axes.x(value);
        plot = plot.add(vertical(x, 0.0, f64::from(PLOT_HEIGHT), palette::MUTED).set("stroke-dasharray", "2 3"));
        plot = labels.add(plot, x, &format!("{name} {}", words::largest(device, value)), palette::TEXT);
    }
    // A simulation that fails ends early: its maximum is not a peak.
    let finished: Vec<&Prediction> = device.predictions.iter().filter(|it| it.fits()).collect();
    for (bytes, range, color) in [
        (reserved as fn(&Prediction) -> u64, reserved_range as fn(&Prediction) -> Option<(u64, u64)>, RESERVED),
        (allocated, allocated_range, ALLOCATED),
    ] {
        let at = |it: &Prediction| (axes.x(it.value), axes.y(bytes(it)));
        for pair in finished.windows(2) {
            let ((x1, y1), (x2, y2)) = (at(pair[0]), at(pair[1]));
            let line = Line::new().set("x1", px(x1)).set("y1", px(y1)).set("x2", px(x2)).set("y2", px(y2));
            let line = line.set("stroke", color.light).set("stroke-width", "1.8");
            let is_sure = pair.iter().all(|it| it.trust != Trust::Uncertain);
            plot = plot.add(if is_sure { line } else { line.set("stroke-dasharray", "3 5") });
        }
        for prediction in &finished {
            if let Some((least, most)) = range(prediction) {
                let x = axes.x(prediction.value);
                plot = plot.add(vertical(x, axes.y(most), axes.y(least), color).set("stroke-width", "1.8"));
            }
            plot = plot.add(mark(parameter, prediction, bytes(prediction), at(prediction), color));
        }
    }
    plot
}

fn mark(parameter: &str, prediction: &Prediction, bytes: u64, (x, y): (f64, f64), color: Color) -> Group {
    let how = if prediction.is_recorded { "recorded" } else { prediction.trust.name() };
    let dot = Circle::new().set("cx", px(x)).set("cy", px(y)).set("stroke-width", 1.5);
    // Recorded runs are large and filled.
    let dot = if prediction.is_recorded {
        dot.set("r", RECORDED).set("fill", color.light).set("stroke", palette::BACKGROUND.light)
    } else {
        dot.set("r", PREDICTED).set("fill", palette::BACKGROUND.light).set("stroke", color.light)
    };
    titled(&format!("{parameter} {}: {} ({how})", prediction.value, Bytes(bytes))).add(dot)
}

fn reserved(prediction: &Prediction) -> u64 {
    prediction.outcome.max_reserved
}

fn reserved_range(prediction: &Prediction) -> Option<(u64, u64)> {
    prediction.reserved_range
}

fn allocated(prediction: &Prediction) -> u64 {
    prediction.outcome.max_allocated
}

fn allocated_range(prediction: &Prediction) -> Option<(u64, u64)> {
    prediction.allocated_range
}

/// The meaning of colors and marks, below the curves, and where it ends.
fn legend(mut plot: Group, device: &DeviceFit) -> (Group, f64) {
    let mut y = LEGEND_TOP;
    for (color, name) in [(RESERVED, "maximum reserved"), (ALLOCATED, "maximum allocated")] {
        let line = text(LEGEND + 18.0, y, Anchor::Start, palette::TEXT, name);
        plot = plot.add(rectangle(LEGEND, y - 9.5, 11.0, 11.0, color)).add(line);
        y += LEGEND_LINE;
    }
    let mut said = vec!["large filled marks: recorded; hollow marks: predicted; dotted lines: uncertain".to_owned()];
    said.extend(device.capacity.map(|capacity| format!("dashed: {} for the allocator", Bytes(capacity))));
    for line in said {
        plot = plot.add(text(LEGEND + 18.0, y, Anchor::Start, palette::MUTED, &line));
        y += LEGEND_LINE;
    }
    (plot, y)
}
