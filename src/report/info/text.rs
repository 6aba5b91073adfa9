//! `memviz info` as text.

use crate::analysis::info::DeviceInfo;
use crate::analysis::info::InfoReport;
use crate::model::bytes::Bytes;
use crate::model::{Action, Format};
use crate::replay::Metric;
use crate::report::Source;
use crate::report::common::fit::{shorten, shorten_end};
use crate::report::common::next::Next;
use crate::report::common::notes::{self, device_name, safe};
use crate::report::common::text::{TextStyle, counters};
use crate::report::common::training;
use crate::report::common::words::count;
use std::io::{self, Write};

/// Annotations shown before the rest is counted.
const ANNOTATIONS: usize = 12;

pub(crate) fn write(text: TextStyle, source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
    let recording = source.recording;
    let file = &recording.snapshot.notes;
    let size = match recording.compression {
        crate::input::Compression::None => Bytes(file.bytes).to_string(),
        compression => format!("{} {}, {} unpacked", Bytes(recording.bytes), compression.name(), Bytes(file.bytes)),
    };
    writeln!(out, "{}", text.bold(&safe(source.path)))?;
    let protocol = match file.format {
        Format::CudaSnapshot => format!(", pickle protocol {}", file.protocol),
        _ => String::new(),
    };
    let rank = match file.rank {
        Some((rank, Some(world_size))) => format!(", rank {rank} of {world_size}"),
        Some((rank, None)) => format!(", rank {rank}"),
        None => String::new(),
    };
    text.words("  ", &format!("{}{protocol}, {size}{rank}", file.format.title()), out)?;
    text.file_notes(source, out)?;
    if report.devices.is_empty() {
        writeln!(out, "\nno memory was allocated on any device while recording")?;
    }
    for device in &report.devices {
        writeln!(out, "\n{}", text.bold(&device_name(device.device)))?;
        let mut lines = notes::limits(&device.completeness, &device.baseline);
        lines.extend(notes::anomalies(&device.anomalies));
        text.notes(&lines, out)?;
        // One entry takes no time.
        let span = device.time_us.filter(|_| device.entries > 1);
        let span = span.map(|(first, last)| format!(" over {}", notes::duration(last.saturating_sub(first))));
        // Times count from the first entry of all devices.
        let late = device.starts_after_us.filter(|&after| after > 0);
        let late = late.map_or(String::new(), |after| format!(", the first after {}", notes::duration(after)));
        let complete = if device.completeness.is_complete() { ", complete history" } else { "" };
        let entries = if device.entries == 1 { "entry" } else { "entries" };
        let line = format!("{} {entries}{}{late}{complete}", device.entries, span.unwrap_or_default());
        text.words("  ", &line, out)?;
        let counts = Action::ALL.iter().zip(device.actions).filter(|&(_, count)| count > 0);
        let counts: Vec<String> = counts.map(|(action, count)| format!("{count} {}", action.name())).collect();
        if !counts.is_empty() {
            text.wrapped("    ", &counts, out)?;
        }
        if file.format.has_segments() {
            let (segments, blocks) = (count(device.segments, "segment"), count(device.blocks, "block"));
            writeln!(out, "  {segments} and {blocks} at the dump")?;
        }
        if device.completeness.no_entries {
            counters(&[("at the dump", device.end)], out)?;
        } else {
            counters(&[("baseline", device.baseline), ("maximum", device.maxima.into()), ("end", device.end)], out)?;
        }
        if let Ok(steps) = &device.steps {
            text.words("  ", &training::steps(steps), out)?;
        }
        text.phases(&training::phases(device), out)?;
    }
    writeln!(out, "\n{}", text.bold("Recording"))?;
    writeln!(out, "  {} distinct stacks of {} distinct frames", report.stacks, report.frames)?;
    let mut settings = notes::settings(&recording.snapshot.settings);
    settings.extend(notes::ring(file));
    text.wrapped("  ", &settings, out)?;
    text.notes(&notes::settings_warnings(&recording.snapshot.settings), out)?;
    text.annotations(report, out)?;
    text.advice(source, out)?;
    text.next(&next(source, report), out)
}

/// What to type next: why requests failed, else what holds the most memory there was.
fn next(source: Source<'_>, report: &InfoReport) -> Vec<Next> {
    let bytes = |device: &DeviceInfo| device.maxima[Metric::Allocated as usize].bytes;
    let highest = report.devices.iter().max_by_key(|device| bytes(device)).filter(|device| bytes(device) > 0);
    let peak = |device: &DeviceInfo| {
        let place = if device.completeness.no_entries { "dump" } else { "peak" };
        Next::new("peak", &[source.path], "", format!("what holds {} at the {place}", notes::signed(bytes(device))))
    };
    Next::oom(source).or_else(|| highest.map(peak)).into_iter().collect()
}

impl TextStyle {
    fn phases(&self, rows: &[[String; training::COLUMNS.len()]], out: &mut dyn Write) -> io::Result<()> {
        let head = training::COLUMNS.map(str::to_owned);
        for row in rows.first().map(|_| &head).into_iter().chain(rows) {
            let [phase, times, entries, time, share, source] = row;
            let line = format!("  {phase:9} {times:>7} {entries:>9} {time:>10} {share:>6}  {source}");
            writeln!(out, "{}", shorten_end(line.trim_end(), self.room(0)))?;
        }
        Ok(())
    }

    fn annotations(&self, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
        if report.annotations.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n{}", self.bold("Annotations"))?;
        for summary in report.annotations.iter().take(ANNOTATIONS) {
            let open = if summary.open > 0 { format!(", {} without both ends", summary.open) } else { String::new() };
            let line = format!("{:>8}x {:>10}  ", summary.count, notes::duration(summary.total_us));
            let room = self.room(line.len() + open.len());
            writeln!(out, "{line}{}{}", shorten(&safe(&summary.name), room), self.dim(&open))?;
        }
        let rest = report.annotations.len().saturating_sub(ANNOTATIONS);
        if rest > 0 {
            writeln!(out, "{rest:>9} more names")?;
        }
        Ok(())
    }
}
