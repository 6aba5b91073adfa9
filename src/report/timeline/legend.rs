//! The legend: bands by category, in the order of the stack, with their bytes at the instant.

use super::marks::RANGE_MARKS;
use super::stack::{leaks, name, written};
use super::stacked::Stack;
use crate::analysis::peak::each::RangePeaks;
use crate::analysis::timeline::DeviceTimeline;
use crate::analysis::timeline::{Band, INACTIVE, LEAKS};
use crate::facts::grouping::attribution::OTHER;
use crate::facts::grouping::{BASELINE, GroupBy};
use crate::facts::training::Category;
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use crate::report::common::fit::shorten_end;
use crate::report::common::notes::{safe, signed};
use crate::report::common::picture::palette::{self, Color, on};
use crate::report::common::picture::plot::{LEGEND, LEGEND_LINE};
use crate::report::common::picture::shape::{Anchor, MONO, MONO_SIZE, MONO_WIDTH, px, rectangle, text, titled};
use crate::report::common::picture::{Script, WIDTH};
use crate::report::common::words::{self, count};
use crate::report::percent;
use crate::sorting::SortRows;
use indexmap::IndexMap;
use std::cmp::Reverse;
use std::collections::HashSet;
use svg::node::element::{Circle, Group};

const SQUARE: f64 = 11.0;
const SHADE: f64 = 6.0;
/// Right edges of the columns.
const RIGHT: f64 = WIDTH as f64 - 16.0;
const SHARE: f64 = RIGHT - 10.0 * MONO_WIDTH;
const BYTES: f64 = SHARE - 8.0 * MONO_WIDTH;
/// How far the dot of a leak is from the edge of its square.
const DOT: f64 = 3.5;
/// The most characters of the name of a band that is held only at other times.
const ABSENT: usize = 40;
/// How far sites are indented to the right of their category.
const INDENT: f64 = 16.0;

struct Line {
    mark: Mark,
    indent: f64,
    label: String,
    /// The end of the label, which is not cut.
    note: String,
    bytes: u64,
    share: Option<f64>,
    blocks: Option<u64>,
    is_strong: bool,
}

enum Mark {
    Square(Color, bool),
    Line(Color),
    None,
}

/// The legend below `top`; returns where it ends.
pub(super) fn draw(device: &DeviceTimeline, stack: &Stack<'_>, top: f64) -> (Group, f64) {
    let mut group = Group::new();
    let star = if stack.bands.iter().any(|band| band.inferred) { " (* inferred)" } else { "" };
    let by = if is_by_category(stack) { "category and site" } else { stack.by.name() };
    let head = |x, anchor, content: &str| text(x, top, anchor, palette::MUTED, content);
    group = group.add(head(LEGEND, Anchor::Start, &format!("by {by}{star}")));
    group = group.add(head(BYTES, Anchor::End, moment(device)));
    group = group.add(head(RIGHT, Anchor::End, "blocks"));
    let mut y = top;
    for line in lines(device, stack) {
        y += LEGEND_LINE;
        group = group.add(row(&line, y));
    }
    let absent = absent(stack);
    if !absent.is_empty() {
        y += LEGEND_LINE;
        group = group.add(elsewhere(&absent, y));
    }
    if let Some(ranges) = &device.peak.ranges {
        y += LEGEND_LINE;
        let dot = Circle::new().set("cx", px(LEGEND + 5.5)).set("cy", px(y - 4.0)).set("r", 3);
        let dot = dot.set("fill", palette::BACKGROUND.light).set("stroke", palette::TEXT.light);
        group = group.add(dot).add(text(LEGEND + 18.0, y, Anchor::Start, palette::TEXT, &range_legend(device, ranges)));
    }
    (group, y)
}

/// A line of the legend, for a page that writes it as text.
#[derive(Clone, Debug)]
pub struct Key {
    pub color: Option<Color>,
    pub label: String,
    pub bytes: u64,
}

pub(super) fn keys(device: &DeviceTimeline, stack: &Stack<'_>) -> Vec<Key> {
    let key = |line: Line| {
        let color = match line.mark {
            Mark::Square(color, _) => Some(color),
            Mark::Line(_) | Mark::None => None,
        };
        Key { color, label: line.label + &line.note, bytes: line.bytes }
    };
    lines(device, stack).into_iter().map(key).collect()
}

/// Whether sites are listed under their categories: a heading "unknown" above all of them would say nothing.
fn is_by_category(stack: &Stack<'_>) -> bool {
    let is_known = |band: &Band| band.category.is_some_and(|category| category != Category::Unknown);
    stack.by == GroupBy::Site && stack.bands.iter().any(is_known)
}

/// The instant of the bytes in the legend.
fn moment(device: &DeviceTimeline) -> &'static str {
    let peak = &device.peak;
    let is_failure = device.ooms.iter().any(|oom| Some(oom.entry) == peak.entry);
    if peak.completeness.no_entries {
        "at dump time"
    } else if is_failure {
        "at the OOM"
    } else if peak.maxima[peak.metric as usize].instant == peak.instant {
        "at the peak"
    } else {
        "there"
    }
}

/// Bands without memory at the selected instant, the highest first, those of a category together.
fn absent(stack: &Stack<'_>) -> IndexMap<String, Vec<Color>> {
    let highest = |band: &Band| band.bytes.iter().copied().max().unwrap_or(0);
    let mut absent: Vec<(&Band, Color)> = stack.bands.iter().zip(stack.colors.iter().copied()).collect();
    absent.retain(|(band, _)| band.bytes_there == 0);
    absent.sort_rows_by_key(|(band, _)| Reverse(highest(band)));
    let is_grouped = stack.by == GroupBy::Category || is_by_category(stack);
    let present: HashSet<_> =
        stack.bands.iter().filter(|band| band.bytes_there > 0).map(|band| band.category).collect();
    let named = |(band, color): (&Band, Color)| {
        let category = |category: Category| {
            let is_known = category.is_known();
            let other = if is_known && present.contains(&Some(category)) { "other " } else { "" };
            format!("{other}{}", category_name(category))
        };
        (band.category.filter(|_| is_grouped).map_or_else(|| name(band), category), color)
    };
    let mut colors: IndexMap<String, Vec<Color>> = IndexMap::new();
    for (name, color) in absent.into_iter().map(named) {
        colors.entry(name).or_default().push(color);
    }
    colors
}

/// As many of them as fit into a line.
fn elsewhere(absent: &IndexMap<String, Vec<Color>>, y: f64) -> Group {
    let head = "at other times:";
    let mut group = Group::new().add(text(LEGEND, y, Anchor::Start, palette::MUTED, head));
    let mut x = LEGEND + Script::Body.width(head) + 8.0;
    for (name, colors) in absent {
        let name = shorten_end(&safe(name), ABSENT);
        // All shades of the category.
        let width = if colors.len() == 1 { SQUARE } else { SHADE };
        let right = x + width * colors.len() as f64;
        let end = right + 5.0 + Script::Body.width(&name) + 12.0;
        if end > RIGHT {
            break;
        }
        for (index, &color) in colors.iter().enumerate() {
            group = group.add(rectangle(x + width * index as f64, y - 9.5, width, SQUARE, color));
        }
        group = group.add(text(right + 5.0, y, Anchor::Start, palette::MUTED, &name));
        x = end;
    }
    group
}

fn lines(device: &DeviceTimeline, stack: &Stack<'_>) -> Vec<Line> {
    let total = device.peak.attribution.total_bytes;
    let share = |bytes| Some(percent(bytes, total));
    let mut lines = Vec::new();
    let is_by_category = is_by_category(stack);
    for mut bands in runs(&stack.bands) {
        // Bands that are held only at other times are listed below.
        bands.retain(|(band, _)| band.bytes_there > 0);
        // As in `palette::together`, so that colors follow the order.
        bands.sort_rows_by_key(|(band, _)| (band.label == OTHER, Reverse(band.bytes_there), band.label.as_str()));
        let has_leaks = bands.iter().any(|(band, _)| band.label == LEAKS);
        let category = bands.first().and_then(|(band, _)| band.category).filter(|_| is_by_category || has_leaks);
        let is_one = bands.len() == 1;
        if let Some(category) = category.filter(|_| !is_one) {
            let bytes = bands.iter().map(|(band, _)| band.bytes_there).sum();
            let blocks = bands.iter().map(|(band, _)| band.blocks_there).sum();
            let label = category_name(category);
            lines.push(Line {
                mark: Mark::None,
                indent: 0.0,
                label,
                note: String::new(),
                bytes,
                share: share(bytes),
                blocks: Some(blocks),
                is_strong: true,
            });
        }
        for (band, index) in bands {
            let is_inactive = band.label == INACTIVE;
            lines.push(Line {
                mark: Mark::Square(stack.colors[index], leaks(band)),
                indent: if category.is_some() && !is_one { INDENT } else { 0.0 },
                label: match category.filter(|_| is_one) {
                    Some(category) if band.label == OTHER => {
                        format!("{}: {}", category_name(category), count(band.groups as u64, "site"))
                    }
                    Some(category) if band.label == BASELINE && category == Category::BeforeRecording => {
                        category_name(category)
                    }
                    Some(category) => format!("{}: {}", category_name(category), name(band)),
                    None if has_leaks && band.label != LEAKS => format!("other {}", written(band)),
                    None => written(band),
                },
                note: band
                    .leak
                    .filter(|&bytes| bytes > 0 && band.label != LEAKS)
                    .map_or(String::new(), |bytes| format!(" leaks {} per step", signed(bytes))),
                bytes: band.bytes_there,
                // Inactive memory is not part of the total of the shares.
                share: share(band.bytes_there).filter(|_| !is_inactive),
                blocks: Some(band.blocks_there).filter(|_| !is_inactive),
                is_strong: false,
            });
        }
    }
    let plain = |mark, label: &str, bytes, is_strong| Line {
        mark,
        indent: 0.0,
        label: label.to_owned(),
        note: String::new(),
        bytes,
        share: None,
        blocks: None,
        is_strong,
    };
    lines.push(plain(Mark::None, device.peak.metric.name(), total, true));
    let failed = device.ooms.iter().find(|oom| Some(oom.entry) == device.peak.entry);
    if let Some(oom) = failed {
        lines.push(plain(Mark::Square(palette::ALARM, false), "failed request", oom.requested, false));
    }
    if device.has_pending_frees() {
        let active = u64::try_from(device.peak.at.active).unwrap_or(0);
        lines.push(plain(Mark::Line(palette::MUTED), "active, with pending frees", active, false));
    }
    if device.peak.metric != Metric::Reserved && !device.peak.completeness.no_reserved {
        let reserved = u64::try_from(device.peak.at.reserved).unwrap_or(0);
        lines.push(plain(Mark::Line(palette::TEXT), "reserved", reserved, false));
    }
    lines
}

/// Bands grouped by category, with their positions.
fn runs(bands: &[Band]) -> Vec<Vec<(&Band, usize)>> {
    let mut runs: Vec<Vec<(&Band, usize)>> = Vec::new();
    for (index, band) in bands.iter().enumerate() {
        match runs.last_mut().filter(|run| run.last().is_some_and(|(last, _)| last.category == band.category)) {
            Some(run) => run.push((band, index)),
            None => runs.push(vec![(band, index)]),
        }
    }
    runs
}

pub(super) fn category_name(category: Category) -> String {
    words::category(category.name()).to_owned()
}

fn row(line: &Line, y: f64) -> Group {
    let mono = |x: f64, anchor, content: &str| {
        text(x, y, anchor, palette::TEXT, content).set("font-family", MONO).set("font-size", MONO_SIZE)
    };
    let left = if matches!(line.mark, Mark::None) { LEGEND } else { LEGEND + 18.0 + line.indent };
    let room = ((BYTES - 12.0 * MONO_WIDTH - left) / MONO_WIDTH) as usize;
    let note = line.note.chars().count();
    let label = shorten_end(&safe(&line.label), room.saturating_sub(note));
    let mut row = titled(&line.label).add(mono(left, Anchor::Start, &format!("{label}{}", line.note)));
    let square = LEGEND + line.indent;
    match line.mark {
        Mark::Square(color, is_leaking) => {
            row = row.add(rectangle(square, y - 9.5, SQUARE, SQUARE, color));
            if is_leaking {
                row =
                    row.add(rectangle(square + DOT, y - 9.5 + DOT, SQUARE - 2.0 * DOT, SQUARE - 2.0 * DOT, on(color)));
            }
        }
        Mark::Line(color) => row = row.add(rectangle(square, y - 4.5, SQUARE, 1.5, color)),
        Mark::None => {}
    }
    row = row.add(mono(BYTES, Anchor::End, &Bytes(line.bytes).to_string()));
    if let Some(share) = line.share {
        row = row.add(mono(SHARE, Anchor::End, &format!("{share:.1}%")));
    }
    if let Some(blocks) = line.blocks {
        row = row.add(mono(RIGHT, Anchor::End, &blocks.to_string()));
    }
    if line.is_strong { row.set("font-weight", 600) } else { row }
}

fn range_legend(device: &DeviceTimeline, ranges: &RangePeaks) -> String {
    let all = device.range_peaks.len() + ranges.left_out.map_or(0, |(others, _)| others);
    let each = ranges.each.name();
    if all > RANGE_MARKS {
        format!("peak of each {each} (only the highest of {all})")
    } else {
        format!("peak of each {each}")
    }
}
