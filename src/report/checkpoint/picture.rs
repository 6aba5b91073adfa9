//! `memviz checkpoint -o`: memory as recorded, and with the best candidate checkpointed.

use super::words;
use crate::analysis::checkpoint::Candidate;
use crate::analysis::checkpoint::{CheckpointReport, DeviceCheckpoint};
use crate::analysis::diff::DeviceOverlay;
use crate::model::Format;
use crate::report::Source;
use crate::report::common::code_change;
use crate::report::common::notes::{self, signed};
use crate::report::common::picture::pair::{BASE, NEW, Scale, both, point};
use crate::report::common::picture::palette::{self, Color};
use crate::report::common::picture::plot::{LEFT, LEGEND, LEGEND_LINE, LEGEND_TOP, Labels, PLOT_WIDTH};
use crate::report::common::picture::shape::{Anchor, MONO, MONO_SIZE, MONO_WIDTH, code, px, rectangle, text, titled};
use crate::report::common::picture::{Picture, Room, WIDTH, heading, panels, remarks, stacked, titles, warnings};
use crate::report::common::words::count;
use svg::node::element::{Group, Line, Path};

/// Rows of the plan and of other candidates below the plot.
const ROWS: usize = 5;
/// How far from the right end of the plot the saving is drawn, in pixels.
const SAVING: f64 = 14.0;
/// Distance of two levels from which on there is room for it.
const SAVING_HEIGHT: f64 = 18.0;
/// Where the other two columns of the plan end, in characters from the right.
const PEAK_COLUMN: f64 = 12.0 * MONO_WIDTH;

/// All devices below each other.
pub fn draw(source: Source<'_>, report: &CheckpointReport) -> Picture {
    let format = source.recording.snapshot.notes.format;
    let mut parts = vec![heading(source, "activation checkpointing, predicted")];
    parts.extend(panels(&report.devices, true, |device, room| panel(device, format, room)));
    stacked(parts)
}

fn panel(device: &DeviceCheckpoint, format: Format, room: Room) -> Picture {
    let best = device.candidates.first().zip(device.curves.as_ref());
    let title = match best {
        Some((best, _)) => {
            let function = format!("Checkpoint {}", code_change::function(&best.label, &best.change));
            format!("{}: {}. {function}", notes::device_name(device.device), words::effect(device, best))
        }
        None => words::headline(device),
    };
    let (body, y) = titles::title(Group::new(), 0.0, &title);
    let limits = if room.notes { words::limits(device) } else { Vec::new() };
    let (body, y) = warnings(body, y, &limits);
    let reason: Vec<String> = words::reason(device, format).into_iter().collect();
    let (body, y) = remarks(body, y, &reason);
    let Some((best, curves)) = best else { return Picture { height: y + 16.0, body } };
    let scale = Scale::of(curves);
    let top = y + 14.0 + 32.0;
    let mut plot = both(curves, &scale).set("transform", format!("translate(0 {})", px(top)));
    plot = marks(plot, device, best, curves, &scale);
    let (plot, legend_end) = legend(plot, device, best);
    Picture { height: top + legend_end + 6.0, body: body.add(plot) }
}

/// Both peaks, and the saving between their levels.
fn marks(plot: Group, device: &DeviceCheckpoint, best: &Candidate, curves: &DeviceOverlay, scale: &Scale) -> Group {
    let (before, after) = (device.peak_bytes, best.predicted_peak_bytes);
    let mut labels = Labels::default();
    let name = format!("predicted peak {}", signed(after));
    let mark = (curves.new.mark, after);
    let plot = point(plot, &mut labels, scale, mark, (&name, &words::new_peak(device, best), NEW));
    let name = format!("recorded peak {}", signed(before));
    let mark = (curves.base.mark, before);
    let plot = point(plot, &mut labels, scale, mark, (&name, &words::place(device), BASE));

    let right = f64::from(LEFT + PLOT_WIDTH);
    let (high, low) = (scale.y(before), scale.y(after));
    let level = |y: f64, color: Color| {
        let line = Line::new().set("x1", LEFT).set("x2", px(right)).set("y1", px(y)).set("y2", px(y));
        line.set("stroke", color.light).set("stroke-width", 1).set("stroke-dasharray", "4 4")
    };
    let at = px(right - SAVING);
    let arrow = format!("M{at} {}V{}m-3.5 -6l3.5 6l3.5 -6", px(high), px(low));
    let arrow = Path::new().set("d", arrow).set("fill", "none").set("stroke", palette::TEXT.light);
    let saved = format!("{} less", signed(best.saved_bytes));
    let middle = f64::midpoint(high, low) + 4.0;
    let saved = text(right - SAVING - 8.0, middle, Anchor::End, palette::TEXT, &saved).set("font-weight", 600);
    // Legible on the curves underneath.
    let outlined = saved.set("stroke", palette::BACKGROUND.light).set("stroke-width", 3);
    let saved = outlined.set("stroke-linejoin", "round").set("paint-order", "stroke");
    let plot = plot.add(level(high, BASE)).add(level(low, NEW));
    // Between levels that nearly touch, the words would cover both peaks; the heading has them too.
    if low - high < SAVING_HEIGHT {
        return plot;
    }
    plot.add(titled(&words::effect(device, best)).add(arrow).add(saved))
}

/// The meaning of the colors, the plan, the cost and the other candidates; returns where that ends.
fn legend(mut plot: Group, device: &DeviceCheckpoint, best: &Candidate) -> (Group, f64) {
    let right = f64::from(WIDTH) - 16.0;
    let room = right - LEGEND;
    let mut y = LEGEND_TOP;
    let mono = |x: f64, y: f64, content: &str| {
        let text = text(x, y, Anchor::End, palette::TEXT, content);
        text.set("font-family", MONO).set("font-size", MONO_SIZE)
    };
    let muted = |y: f64, content: &str| text(LEGEND, y, Anchor::Start, palette::MUTED, content);
    for (color, name) in [(BASE, "recorded"), (NEW, "predicted with checkpointing")] {
        let line = text(LEGEND + 18.0, y, Anchor::Start, palette::TEXT, name);
        plot = plot.add(rectangle(LEGEND, y - 9.5, 11.0, 11.0, color)).add(line);
        y += LEGEND_LINE;
    }
    y += 6.0;
    let cost = best.recompute_us.map(|time| {
        let share = words::share_of_forward(device, best);
        let share = share.map_or(String::new(), |share| format!(" ({:.1}% of forward)", share * 100.0));
        format!("recomputation: {} of CPU time{share}", notes::duration(time))
    });
    if let Some(line) = cost {
        plot = plot.add(muted(y, &line));
        y += LEGEND_LINE;
    }
    let calls = count(best.calls as u64, "call");
    let keep = if best.calls == 1 { "keeps" } else { "keep" };
    plot = plot.add(muted(y, &format!("{calls} per forward pass {keep} memory; checkpoint:")));
    y += LEGEND_LINE;
    plot = plot.add(text(right - PEAK_COLUMN, y, Anchor::End, palette::MUTED, "peak"));
    plot = plot.add(text(right, y, Anchor::End, palette::MUTED, "saved"));
    y += LEGEND_LINE;
    for (which, plan) in words::plan(best).into_iter().take(ROWS) {
        let saved = signed(device.peak_bytes.saturating_sub(plan.predicted_peak_bytes));
        plot = plot.add(code(LEGEND, y, room, &which)).add(mono(right, y, &saved));
        plot = plot.add(mono(right - PEAK_COLUMN, y, &signed(plan.predicted_peak_bytes)));
        y += LEGEND_LINE;
    }
    let others = device.candidates.get(1..).unwrap_or(&[]);
    if !others.is_empty() {
        y += 6.0;
        plot = plot.add(muted(y, "other candidates"));
        y += LEGEND_LINE;
    }
    for candidate in others.iter().take(ROWS) {
        let function = code_change::function(&candidate.label, &candidate.change);
        let label = code(LEGEND, y, room - 2.0 * PEAK_COLUMN, &function);
        let row = titled(&format!("{function}\n{}", words::effect(device, candidate)));
        plot = plot.add(row.add(label).add(mono(right, y, &signed(candidate.saved_bytes))));
        plot = plot.add(mono(right - PEAK_COLUMN, y, &signed(candidate.predicted_peak_bytes)));
        y += LEGEND_LINE;
    }
    let more = others.len().saturating_sub(ROWS).saturating_add(device.left_out);
    if more > 0 {
        plot = plot.add(muted(y, &format!("{more} more")));
        y += LEGEND_LINE;
    }
    (plot, y)
}
