//! The report as Markdown for an issue.

use super::findings::findings;
use super::{FIRST_SITES, Page, SITES, figures, verdict};
use crate::analysis::peak::DevicePeak;
use crate::analysis::timeline::DeviceTimeline;
use crate::model::bytes::Bytes;
use crate::report::common::document::{Column, Document, Table, Tone, attributed};
use crate::report::common::fit;
use crate::report::common::notes::{self, device_name};
use crate::report::common::words::{count, starred};
use std::io::{self, Write};

const STACKS: usize = 8;
/// Frames of each stack: as many as people can read, and as GitHub accepts in one comment.
const FRAMES: usize = 60;
const FRAME_WIDTH: usize = 160;

pub fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    document(page).markdown(out)
}

fn document(page: &Page<'_>) -> Document {
    let mut document = Document::about(&format!("{} for", page.title()), page.name());
    if page.overview.peak.devices.is_empty() {
        document.paragraph(format!("{}.", figures::recording(page)));
        document.paragraph("No memory was allocated on any device while recording, or recording was off.");
        return document;
    }
    if let Some((sentence, _)) = verdict::verdict(page) {
        document.toned(Tone::Bold, 0, sentence);
    }
    document.notes(notes::source(page.source.recording));
    let remedies = verdict::remedies(page);
    if !remedies.is_empty() {
        document.title("What to do");
        if let Some(line) = verdict::meaning(page) {
            document.paragraph(line);
        }
        for remedy in remedies {
            document.items([remedy.text]);
            document.code(4, remedy.code);
            for (text, code) in remedy.others {
                document.detail(4, text);
                document.code(4, code);
            }
        }
    }
    let timeline_of =
        |peak: &DevicePeak| page.overview.timeline.devices.iter().find(|timeline| timeline.peak.device == peak.device);
    if let Some(first) = page.first_peak() {
        device(&mut document, first, timeline_of(first), FIRST_SITES);
    }
    document.tuck("More", |document| more(document, page, timeline_of));
    document
}

/// The folded part.
fn more<'p>(document: &mut Document, page: &Page<'p>, timeline_of: impl Fn(&DevicePeak) -> Option<&'p DeviceTimeline>) {
    for finding in findings(page) {
        document.title(finding.title);
        document.items(finding.lines);
    }
    let [name, numbers @ .., note] = figures::COLUMNS;
    let numbers = numbers.iter().map(|name| Column::right(0, name));
    let mut table = Table::new([Column::left(0, name)].into_iter().chain(numbers).chain([Column::label(note)]));
    for [cells @ .., note] in figures::rows(page) {
        table.row(cells, note);
    }
    document.table(table);
    document.paragraph(format!("{}.", figures::INACTIVE));
    document.paragraph(format!("Recording: {}.", figures::recording(page)));
    let (devices, shown) = page.tables();
    for peak in devices {
        let is_first = page.first_peak().is_some_and(|first| first.device == peak.device);
        if !is_first {
            device(document, peak, timeline_of(peak), shown);
        } else if peak.attribution.rows.len() > FIRST_SITES {
            document.title(format!("{}: all rows", device_name(peak.device)));
            rows(document, peak, shown);
        }
        stacks(document, peak, shown);
    }
    let more = page.overview.peak.devices.len() - devices.len();
    if more > 0 {
        document.paragraph(format!("{} not shown in full; --device selects them.", count(more, "more device")));
    }
}

/// A device with its curve and its largest rows.
fn device(document: &mut Document, peak: &DevicePeak, timeline: Option<&DeviceTimeline>, shown: usize) {
    if peak.is_empty() {
        return document.title(notes::headline(peak));
    }
    document.heading(notes::headline(peak), notes::place(peak));
    document.notes(notes::device(peak));
    // One instant is not a curve.
    if let Some(timeline) = timeline.filter(|_| peak.entries > 1) {
        document.fact(caption(timeline));
        document.curve(timeline.columns.iter().map(|column| column.counters.get(peak.metric)).collect());
    }
    rows(document, peak, shown);
}

fn rows(document: &mut Document, peak: &DevicePeak, shown: usize) {
    let mut top = peak.attribution.clone();
    top.rows.retain(|row| row.bytes > 0);
    top.keep_top(shown);
    let mut table = attributed(top.by.name(), top.rows.iter(), top.total_bytes, false);
    table.total(Bytes(top.total_bytes).to_string(), peak.metric.name());
    document.table(table);
    let star = top.rows.iter().any(|row| row.inferred).then(|| notes::inferred(top.by).to_owned());
    document.legends(star.into_iter().chain(notes::library_below(&top)).chain(notes::private_pools(&top)));
}

/// The stacks of the largest rows, to unfold.
fn stacks(document: &mut Document, peak: &DevicePeak, shown: usize) {
    let rows: Vec<_> =
        peak.attribution.rows.iter().filter(|row| !row.stack.is_empty()).take(STACKS * shown / SITES).collect();
    if rows.is_empty() {
        return;
    }
    let summary = format!("{}: full stacks, innermost frame first", device_name(peak.device));
    document.tuck(summary, |document| {
        for row in rows {
            document.paragraph(format!("{} {}", Bytes(row.bytes), starred(&row.label, row.inferred)));
            let frames: Vec<String> =
                row.stack.iter().take(FRAMES).map(|frame| fit::shorten(frame, FRAME_WIDTH)).collect();
            document.frames(0, &frames);
            let more = row.stack.len().saturating_sub(FRAMES);
            if more > 0 {
                document.paragraph(format!("... and {more} more"));
            }
        }
    });
}

/// What the curve of a timeline shows.
fn caption(timeline: &DeviceTimeline) -> String {
    let step = timeline.run.as_ref().map_or(String::new(), |run| {
        let preposition = if run.step.is_some() { "in" } else { "after" };
        format!(" {preposition} {},", run.name)
    });
    format!("{} memory{step} over {}", timeline.peak.metric.name(), span(timeline))
}

fn span(timeline: &DeviceTimeline) -> String {
    let (first, last) = timeline.axis.range();
    match timeline.axis.counts {
        crate::analysis::timeline::XAxis::Time => notes::duration(last.saturating_sub(first)),
        crate::analysis::timeline::XAxis::Entry => format!("{} entries", last.saturating_sub(first)),
    }
}
