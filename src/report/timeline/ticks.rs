//! The x axis: ticks, folds, and changes of scale.

use super::scale::column;
use crate::analysis::timeline::{Axis, Period, Shows};
use crate::analysis::timeline::{DeviceTimeline, XAxis};
use crate::report::common::notes;
use crate::report::common::picture::chart::{BELOW, Unit};
use crate::report::common::picture::palette;
use crate::report::common::picture::plot::{LEFT, PLOT_HEIGHT, PLOT_WIDTH, vertical};
use crate::report::common::picture::shape::{Anchor, px, rectangle, text, titled};
use crate::report::common::picture::{Script, WIDTH};
use svg::node::element::{Group, Path};

const BETWEEN: f64 = 90.0;
/// Parts narrower than this have no ticks.
const NARROW: f64 = 46.0;
const ROOM: f64 = 8.0;

pub(super) fn draw(device: &DeviceTimeline) -> Group {
    let axis = &device.axis;
    let mut group = Group::new();
    let mut taken = f64::from(LEFT) - 30.0;
    let origin = origin(device);
    let unit = unit(axis, origin);
    for pair in axis.periods.windows(2) {
        // The parts before, in and after the steps have their own scales.
        if pair[0].shows != pair[1].shows && pair.iter().all(|period| period.shows != Shows::Idle) {
            let line = vertical(column(axis.columns(), pair[0].end), 0.0, f64::from(PLOT_HEIGHT), palette::MUTED);
            group = group.add(line.set("stroke-width", "0.7").set("stroke-dasharray", "2 3"));
        }
    }
    for period in &axis.periods {
        if period.shows == Shows::Idle {
            group = group.add(fold(axis, period));
            continue;
        }
        for (x, label) in ticks(axis, period, step(axis, period, unit), unit, origin) {
            let half = Script::Label.width(&label) / 2.0;
            if x - half < taken + ROOM || x + half > f64::from(WIDTH) - 2.0 {
                continue;
            }
            taken = x + half;
            let bottom = f64::from(PLOT_HEIGHT);
            group = group.add(vertical(x, bottom, bottom + 4.0, palette::MUTED));
            group = group.add(text(x, bottom + 17.0, Anchor::Middle, palette::MUTED, &label));
        }
    }
    let middle = f64::from(LEFT) + f64::from(PLOT_WIDTH) / 2.0;
    let y = f64::from(PLOT_HEIGHT + BELOW) - 2.0;
    group.add(text(middle, y, Anchor::Middle, palette::MUTED, &title(device, unit)))
}

/// The time that labels count from: the start of the enlarged step, or otherwise the first entry of the recording.
fn origin(device: &DeviceTimeline) -> i64 {
    let of_time = device.axis.counts == XAxis::Time;
    device.run.as_ref().filter(|_| of_time).map_or(0, |run| run.shown.0)
}

/// The unit of labels: that of the last time, which is the longest.
fn unit(axis: &Axis, origin: i64) -> Unit {
    match axis.counts {
        XAxis::Entry => Unit::ENTRIES,
        XAxis::Time => Unit::of_time(axis.range().1.saturating_sub(origin) as f64),
    }
}

/// The distance of ticks, in units: the same in all parts with one scale, which folds divide.
fn step(axis: &Axis, of: &Period, unit: Unit) -> f64 {
    let alike = || axis.periods.iter().filter(|period| period.shows == of.shows);
    let length: i64 = alike().map(length).fold(0, i64::saturating_add);
    let width = |period: &Period| column(axis.columns(), period.end) - column(axis.columns(), period.start);
    let raw = length as f64 / unit.size * BETWEEN / alike().map(width).sum::<f64>();
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|part| part * power).find(|step| *step >= raw).unwrap_or(raw);
    // Entries and microseconds have no parts.
    if unit.size <= 1.0 { step.max(1.0).round() } else { step }
}

/// Round numbers on a part of the axis, and their positions.
fn ticks(axis: &Axis, period: &Period, step: f64, unit: Unit, origin: i64) -> Vec<(f64, String)> {
    let (start, end) = (column(axis.columns(), period.start), column(axis.columns(), period.end));
    let since = |x: i64| x.saturating_sub(origin) as f64 / unit.size;
    let (from, to) = (since(period.from), since(period.to));
    if end - start < NARROW || to <= from {
        return Vec::new();
    }
    let digits = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    let first = (from / step).ceil() as i64;
    let place = |index: i64| {
        let value = index as f64 * step;
        (start + (end - start) * (value - from) / (to - from), format!("{value:.digits$}"))
    };
    (first..).map(place).take_while(|(x, _)| *x <= end).take(50).collect()
}

/// A part of the axis without activity.
fn fold(axis: &Axis, period: &Period) -> Group {
    let (left, right) = (column(axis.columns(), period.start), column(axis.columns(), period.end));
    let bottom = f64::from(PLOT_HEIGHT);
    let middle = f64::midpoint(left, right);
    let slash = |x: f64| format!("M{} {}l5 -10", px(x - 2.5), px(bottom + 5.0));
    let mark = Path::new()
        .set("d", slash(middle - 2.0) + &slash(middle + 2.0))
        .set("fill", "none")
        .set("stroke", palette::TEXT.light);
    let veil = rectangle(left, 0.0, right - left, bottom, palette::BACKGROUND).set("fill-opacity", "0.6");
    let what = match axis.counts {
        XAxis::Time => format!("idle time omitted: {}", notes::duration(length(period))),
        XAxis::Entry => "idle time omitted".to_owned(),
    };
    titled(&what).add(veil).add(mark)
}

fn length(period: &Period) -> i64 {
    period.to.saturating_sub(period.from)
}

fn title(device: &DeviceTimeline, unit: Unit) -> String {
    let axis = &device.axis;
    let mut title = unit.name.to_owned();
    if let Some(run) = device.run.as_ref().filter(|_| axis.counts == XAxis::Time) {
        let start = match run.step {
            Some(_) => format!("from the start of {}", notes::safe(&run.name)),
            None => format!("from the end of {}", notes::safe(&run.name)),
        };
        title += &format!(" {start}");
    }
    let folds: Vec<&Period> = axis.periods.iter().filter(|period| period.shows == Shows::Idle).collect();
    if !folds.is_empty() {
        let idle = notes::duration(folds.iter().map(|period| length(period)).sum());
        title += &format!("; // idle time omitted: {idle}");
    }
    let first = axis.periods.first().filter(|period| period.shows == Shows::StartUp);
    if let Some(start) = first {
        let end = axis.periods.iter().take_while(|period| period.shows != Shows::Steps).last().unwrap_or(start);
        title += match axis.counts {
            XAxis::Time => {
                format!("; startup ({}) has its own scale", notes::duration(end.to - start.from))
            }
            XAxis::Entry => {
                let entries = u64::try_from(end.to - start.from).unwrap_or(0);
                let noun = if entries == 1 { "entry" } else { "entries" };
                format!("; startup ({entries} {noun}) has its own scale")
            }
        }
        .as_str();
    }
    title
}
