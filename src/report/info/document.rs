//! `memviz info` for people.

use crate::analysis::info::{DeviceInfo, InfoReport};
use crate::input::Compression;
use crate::model::bytes::Bytes;
use crate::model::{Action, Format};
use crate::replay::{ComparedCounter, CountedAt, Metric};
use crate::report::Source;
use crate::report::common::advice;
use crate::report::common::document::{Cell, Column, Cut, Document, Reader, Table, Tone, counters, pending};
use crate::report::common::next::Next;
use crate::report::common::notes::{self, device_name};
use crate::report::common::training;
use crate::report::common::words::{NOTHING, count};

/// Annotations shown on a screen before the rest is counted.
const ANNOTATIONS: usize = 12;
/// Screens narrower than this do not show how many entries a phase has.
const ENTRIES_FROM: usize = 64;

pub(crate) fn document(source: Source<'_>, report: &InfoReport) -> Document {
    let snapshot = &source.recording.snapshot;
    let mut document = Document::about("", source.path);
    document.screen(|document| document.flush_title(source.path));
    document.fact(file(source, report));
    document.facts(kind(report));
    document.file_notes(source);
    if report.devices.is_empty() {
        document.gap();
        document.paragraph(NOTHING);
    }
    for info in &report.devices {
        document.gap();
        device(&mut document, info, snapshot.notes.format);
    }
    document.section("Recording");
    // The stacks of a memory timeline are its categories.
    if snapshot.notes.format != Format::MemoryTimeline {
        let what = if advice::has_only_operators(snapshot) { "operator" } else { "frame" };
        let frames = count(report.frames, &format!("distinct {what}"));
        document.fact(format!("{}, {frames}", count(report.stacks, "distinct stack")));
    }
    document.list(2, notes::settings(&snapshot.settings).into_iter().chain(notes::ring(&snapshot.notes)).collect());
    document.notes(notes::settings_warnings(&snapshot.settings));
    annotations(&mut document, report);
    document.advice(source);
    document.next(next(source, report));
    document
}

/// The kind of device, and what shows it. Without GPU memory there is none.
fn kind(report: &InfoReport) -> Option<String> {
    let (kind, evidence) = report.device_kind.as_ref()?;
    report.devices.iter().any(|device| device.device >= 0).then(|| format!("device: {} ({evidence})", kind.title()))
}

fn file(source: Source<'_>, report: &InfoReport) -> String {
    let (recording, file) = (source.recording, &source.recording.snapshot.notes);
    let size = match recording.compression {
        Compression::None => Bytes(file.bytes).to_string(),
        compression => format!("{} {}, {} unpacked", Bytes(recording.bytes), compression.name(), Bytes(file.bytes)),
    };
    let protocol = match file.protocol {
        Some(protocol) => format!(", pickle protocol {protocol}"),
        None if file.format.has_segments() => ", JSON".to_owned(),
        None => String::new(),
    };
    let rank = match file.rank {
        Some((rank, Some(world_size))) => format!(", rank {rank} of {world_size}"),
        Some((rank, None)) => format!(", rank {rank}"),
        None => String::new(),
    };
    let title = match &report.device_kind {
        Some((kind, _)) if file.format.has_segments() => format!("{} memory snapshot", kind.title()),
        _ => file.format.title().to_owned(),
    };
    format!("{title}{protocol}, {size}{rank}")
}

fn device(document: &mut Document, device: &DeviceInfo, format: Format) {
    document.title(device_name(device.device));
    document.notes(notes::limits(&device.completeness, &device.baseline));
    document.notes(notes::anomalies(&device.anomalies));
    // A single entry takes no time.
    let span = device.time_us.filter(|_| device.entries > 1);
    let span = span.map(|(first, last)| format!(" over {}", notes::duration(last.saturating_sub(first))));
    // Times count from the first entry of all devices.
    let late = device.starts_after_us.filter(|&after| after > 0);
    let late = late.map_or(String::new(), |after| format!(", the first after {}", notes::duration(after)));
    let complete = if device.completeness.is_complete() { ", complete history" } else { "" };
    let entries = if device.entries == 1 { "entry" } else { "entries" };
    let numbered = if device.entries > 1 { "; entries are numbered from 0" } else { "" };
    document.fact(format!("{} {entries}{}{late}{complete}{numbered}", device.entries, span.unwrap_or_default()));
    let counts = Action::ALL.iter().zip(device.actions).filter(|&(_, count)| count > 0);
    let counts: Vec<String> = counts.map(|(action, number)| action_count(*action, number, format)).collect();
    if !counts.is_empty() {
        document.list(4, counts);
    }
    if format.has_segments() {
        let (segments, blocks) = (count(device.segments, "segment"), count(device.blocks, "block"));
        document.fact(format!("{segments} and {blocks} at dump time"));
    }
    let dump = [("at dump time", device.end)];
    let instants = [("start", device.baseline), ("maximum", device.maxima.into()), ("end", device.end)];
    let shown: &[_] = if device.completeness.no_entries { &dump } else { &instants };
    document.table(counters(shown));
    document.legends(pending(shown));
    document.facts(counted(&device.counted));
    document.facts(device.steps.as_ref().ok().map(training::steps));
    phases(document, device);
}

/// What PyTorch itself counted: whether it is the same, and what is not.
fn counted(all: &[ComparedCounter]) -> Vec<String> {
    let differing: Vec<&ComparedCounter> = all.iter().filter(|compared| compared.differs()).collect();
    let number = count(all.len() as u64, "counter");
    match (all, differing.as_slice()) {
        ([], _) => Vec::new(),
        (_, []) => vec![format!("equal to {number} of torch.cuda.memory_stats() in the recording")],
        _ => {
            let head = format!("{} of {number} of torch.cuda.memory_stats() in the recording differ:", differing.len());
            let line = |compared: &&ComparedCounter| {
                let ComparedCounter { name, at, counted, replayed } = compared;
                let at = match at {
                    CountedAt::Start => " at the start",
                    CountedAt::All => "",
                    CountedAt::End => " at the end",
                };
                format!("{name}{at}: PyTorch counted {counted}, memviz {replayed}")
            };
            std::iter::once(head).chain(differing.iter().map(line)).collect()
        }
    }
}

/// The number of entries of an action. Other files than snapshots show segments only as changes of a total.
fn action_count(action: Action, number: u64, format: Format) -> String {
    match action {
        Action::SegmentAlloc if !format.has_segments() => count(number, "increase") + " of reserved memory",
        Action::SegmentFree if !format.has_segments() => count(number, "decrease") + " of reserved memory",
        _ => format!("{number} {}", action.name()),
    }
}

fn phases(document: &mut Document, device: &DeviceInfo) {
    let rows = training::phases(device);
    if rows.is_empty() {
        return;
    }
    let has_times = device.phases.iter().any(|phase| phase.time_us.is_some());
    let [phase, number, entries, time, share, source] = training::COLUMNS;
    let times = [Column::right(10, time), Column::right(6, share)].into_iter().filter(|_| has_times);
    let columns =
        [Column::left(9, phase), Column::right(7, number), Column::right(9, entries).from(ENTRIES_FROM)].into_iter();
    let mut table = Table::new(columns.chain(times).chain([Column::label(source).cut(Cut::Wrapped)]))
        .head(Some(Tone::Plain))
        .indent(2);
    for [phase, number, entries, time, share, source] in rows {
        let times = [time, share].into_iter().filter(|_| has_times);
        table.row([phase, number, entries].into_iter().chain(times), source);
    }
    document.table(table);
    document.legend(if has_times { training::COUNT_AND_TIME } else { training::COUNT });
}

fn annotations(document: &mut Document, report: &InfoReport) {
    if report.annotations.is_empty() {
        return;
    }
    document.section("Annotations");
    let mut table = Table::new([Column::right(9, "ranges"), Column::right(10, "time"), Column::label("annotation")]);
    for (place, summary) in report.annotations.iter().enumerate() {
        let open = if summary.open > 0 { format!(", {} incomplete", summary.open) } else { String::new() };
        let cells = [format!("{}x", summary.count), notes::duration(summary.total_us)];
        let row = table.row(cells, Cell::code(&summary.name).suffix(open, Tone::Dim, 0));
        row.reader = if place < ANNOTATIONS { Reader::Everybody } else { Reader::OfMarkdown };
    }
    let rest = report.annotations.len().saturating_sub(ANNOTATIONS);
    if rest > 0 {
        table.short("", count(rest, "more name")).reader = Reader::OfText;
    }
    document.table(table);
}

/// The commands to run next: why requests failed, or otherwise what holds the most memory.
fn next(source: Source<'_>, report: &InfoReport) -> Option<Next> {
    let bytes = |device: &DeviceInfo| device.maxima[Metric::Allocated as usize].bytes;
    let highest = report.devices.iter().max_by_key(|device| bytes(device)).filter(|device| bytes(device) > 0);
    let peak = |device: &DeviceInfo| {
        let place = if device.completeness.no_entries {
            "at dump time"
        } else if device.entries == 1 && device.completeness.has_baseline {
            match device.maxima[Metric::Allocated as usize].instant {
                0 => "at the start of the recording",
                _ => "after the only entry",
            }
        } else {
            "at the peak"
        };
        Next::new("peak", &[source.path], "", format!("what holds {} {place}", notes::signed(bytes(device))))
    };
    Next::oom(source).or_else(|| highest.map(peak))
}
