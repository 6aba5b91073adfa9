//! The report as Markdown for an issue.

use super::findings::findings;
use super::{FIRST_SITES, Page, SITES, figures, verdict};
use crate::analysis::peak::DevicePeak;
use crate::analysis::timeline::DeviceTimeline;
use crate::model::bytes::Bytes;
use crate::report::common::fit;
use crate::report::common::markdown::{code, escape};
use crate::report::common::notes::{self, device_name, safe};
use crate::report::common::words::{count, starred};
use crate::report::peak::markdown::table;
use std::io::{self, Write};

/// Stacks that are written out in full.
const STACKS: usize = 8;
/// Frames of each: what a person may read, and GitHub takes in one comment.
const FRAMES: usize = 60;
/// Longest line of a stack.
const FRAME_WIDTH: usize = 160;
/// Columns of the curve.
const CURVE: usize = 64;

pub fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## {} of {}\n", page.title(), code(page.name()))?;
    if page.overview.peak.devices.is_empty() {
        writeln!(out, "{}.\n", escape(&figures::recording(page)))?;
        return writeln!(out, "No memory was allocated on any device while recording.");
    }
    if let Some((sentence, _)) = verdict::verdict(page) {
        writeln!(out, "**{}**\n", escape(&sentence))?;
    }
    for line in notes::source(&page.source.recording.snapshot) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    let remedies = verdict::remedies(page);
    if !remedies.is_empty() {
        writeln!(out, "### What to do\n")?;
        remedies.iter().try_for_each(|line| writeln!(out, "- {}", escape(line)))?;
        writeln!(out)?;
    }
    let (devices, shown) = page.tables();
    let timeline_of =
        |peak: &DevicePeak| page.overview.timeline.devices.iter().find(|timeline| timeline.peak.device == peak.device);
    if let Some(first) = page.first_peak() {
        device(first, timeline_of(first), FIRST_SITES, out)?;
    }
    writeln!(out, "<details>\n<summary>More</summary>\n")?;
    for finding in findings(page) {
        writeln!(out, "### {}\n", escape(&finding.title))?;
        finding.lines.iter().try_for_each(|line| writeln!(out, "- {}", escape(line)))?;
        writeln!(out)?;
    }
    writeln!(out, "| {} |", figures::COLUMNS.map(escape).join(" | "))?;
    writeln!(out, "|---|{}---|", "--:|".repeat(figures::COLUMNS.len() - 2))?;
    for row in figures::rows(page) {
        writeln!(out, "| {} |", row.join(" | "))?;
    }
    writeln!(out, "\n{}; {}.\n", escape(figures::INACTIVE), escape(&figures::recording(page)))?;
    for peak in devices {
        let is_first = page.first_peak().is_some_and(|first| first.device == peak.device);
        if !is_first {
            device(peak, timeline_of(peak), shown, out)?;
        } else if peak.attribution.rows.len() > FIRST_SITES {
            writeln!(out, "### {}: all rows\n", escape(&device_name(peak.device)))?;
            rows(peak, shown, out)?;
        }
        stacks(peak, shown, out)?;
    }
    let more = page.overview.peak.devices.len() - devices.len();
    if more > 0 {
        writeln!(out, "{} not shown in full; `--device` selects them.\n", count(more, "more device"))?;
    }
    writeln!(out, "</details>")
}

/// A device with its curve and its largest rows.
fn device(peak: &DevicePeak, timeline: Option<&DeviceTimeline>, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "### {}\n", escape(&notes::headline(peak)))?;
    if peak.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}.\n", escape(&notes::place(peak)))?;
    for line in notes::device(peak) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    // One instant makes no curve.
    if let Some(timeline) = timeline.filter(|_| peak.entries > 1) {
        writeln!(out, "```\n{}\n```\n", curve(timeline))?;
    }
    rows(peak, shown, out)
}

fn rows(peak: &DevicePeak, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut top = peak.attribution.clone();
    top.rows.retain(|row| row.bytes > 0);
    top.keep_top(shown);
    table(&top, ["bytes", "share", "blocks"], peak.metric.name(), out)
}

/// The stacks of the largest rows, to unfold.
fn stacks(peak: &DevicePeak, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<_> =
        peak.attribution.rows.iter().filter(|row| !row.stack.is_empty()).take(STACKS * shown / SITES).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let name = device_name(peak.device);
    writeln!(out, "<details>\n<summary>{name}: full stacks, innermost frame first</summary>\n")?;
    for row in rows {
        writeln!(out, "{} {}\n", Bytes(row.bytes), code(&starred(&row.label, row.inferred)))?;
        // Indented rather than fenced: no frame can end the block.
        for frame in row.stack.iter().take(FRAMES) {
            writeln!(out, "    {}", fit::shorten(&safe(frame), FRAME_WIDTH))?;
        }
        let more = row.stack.len().saturating_sub(FRAMES);
        if more > 0 {
            writeln!(out, "    ... and {more} more")?;
        }
        writeln!(out)?;
    }
    writeln!(out, "</details>\n")
}

/// The timeline in one line of text, each character the highest point of its period.
fn curve(timeline: &DeviceTimeline) -> String {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let metric = timeline.peak.metric;
    let levels: Vec<i64> = timeline.columns.iter().map(|column| column.counters.get(metric).max(0)).collect();
    let highest = levels.iter().copied().max().unwrap_or(0);
    let period = levels.len().div_ceil(CURVE).max(1);
    let level = |values: &[i64]| {
        let value = values.iter().copied().max().unwrap_or(0);
        let eighths = if highest == 0 { 0.0 } else { (value as f64 / highest as f64 * 8.0).ceil() };
        LEVELS[(eighths as usize).min(8)]
    };
    let curve: String = levels.chunks(period).map(level).collect();
    // Steps that have names are not numbered.
    let step = match &timeline.run {
        Some(run) if timeline.peak.annotations.is_empty() => format!(" in step {},", run.step),
        Some(_) => " in its step,".to_owned(),
        None => String::new(),
    };
    format!("{curve}  {}{step} over {}", metric.name(), span(timeline))
}

fn span(timeline: &DeviceTimeline) -> String {
    let (first, last) = timeline.axis.range();
    match timeline.axis.counts {
        crate::analysis::timeline::XAxis::Time => notes::duration(last.saturating_sub(first)),
        crate::analysis::timeline::XAxis::Entry => format!("{} entries", last.saturating_sub(first)),
    }
}
