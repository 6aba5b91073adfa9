//! Text for a terminal: aligned, with bars, no wider than the screen.

use super::notes::{self, device_name, safe, signed};
use super::{Render, Source, percent};
use crate::analysis::attribution::OTHER;
use crate::analysis::sites::NO_STACK;
use crate::analysis::{DevicePeak, GroupBy, InfoReport, PeakReport, Row};
use crate::model::bytes::Bytes;
use crate::model::{Action, AllocatorSettings};
use crate::replay::{Counters, Metric};
use std::io::{self, Write};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Writes text for people.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextReport {
    /// Columns of the terminal; `None` where lines may be as long as they need, as in a pipe.
    pub width: Option<usize>,
    /// Whether to use ANSI colours.
    pub color: bool,
}

/// Longest bar, in columns.
const BAR: usize = 20;
/// Terminals narrower than this do without bars.
const BAR_FROM: usize = 72;
/// Terminals narrower than this do without block counts.
const BLOCKS_FROM: usize = 56;
/// Share of allocations without a stack, in percent, from which on the reason is given.
const WORTH_A_HINT: f64 = 1.0;
/// Annotations shown before the rest is counted.
const ANNOTATIONS: usize = 12;

impl Render for TextReport {
    fn peak(&self, source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
        self.notes(&notes::source(&source.recording.snapshot), out)?;
        if report.devices.is_empty() {
            let path = safe(source.path);
            writeln!(out, "{path}: no memory was allocated on any device while recording")?;
        }
        for (index, device) in report.devices.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            self.peak_device(device, out)?;
        }
        Ok(())
    }

    fn info(&self, source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
        let recording = source.recording;
        let file = &recording.snapshot.notes;
        let size = match recording.compression {
            crate::input::Compression::None => Bytes(file.bytes).to_string(),
            compression => format!("{} {}, {} unpacked", Bytes(recording.bytes), compression.name(), Bytes(file.bytes)),
        };
        writeln!(out, "{}", self.bold(&safe(source.path)))?;
        self.words("  ", &format!("CUDA memory snapshot, pickle protocol {}, {size}", file.protocol), out)?;
        self.notes(&notes::source(&recording.snapshot), out)?;
        if report.devices.is_empty() {
            writeln!(out, "\nno memory was allocated on any device while recording")?;
        }
        for device in &report.devices {
            writeln!(out, "\n{}", self.bold(&device_name(device.device)))?;
            let mut lines = notes::limits(&device.completeness, &device.baseline);
            lines.extend(notes::anomalies(&device.anomalies));
            self.notes(&lines, out)?;
            let span =
                device.time_us.map(|(first, last)| format!(" over {}", notes::duration(last.saturating_sub(first))));
            let complete = if device.completeness.is_complete() { ", complete history" } else { "" };
            writeln!(out, "  {} entries{}{complete}", device.entries, span.unwrap_or_default())?;
            let counts = Action::ALL.iter().zip(device.actions).filter(|&(_, count)| count > 0);
            let counts: Vec<String> = counts.map(|(action, count)| format!("{count} {}", action.name())).collect();
            if !counts.is_empty() {
                self.wrapped("    ", &counts, out)?;
            }
            writeln!(out, "  {} segments and {} blocks at the dump", device.segments, device.blocks)?;
            counters([("baseline", device.baseline), ("maximum", device.maxima.into()), ("end", device.end)], out)?;
        }
        writeln!(out, "\n{}", self.bold("Recording"))?;
        writeln!(out, "  {} distinct stacks of {} distinct frames", report.stacks, report.frames)?;
        let settings = settings(&recording.snapshot.settings);
        self.wrapped("  ", &settings, out)?;
        self.annotations(report, out)
    }
}

impl TextReport {
    fn peak_device(&self, device: &DevicePeak, out: &mut dyn Write) -> io::Result<()> {
        let metric = device.metric;
        let is_peak = device.maxima[metric as usize].instant == device.instant && !device.completeness.no_entries;
        let title = format!(
            "{}: {}{} {}",
            device_name(device.device),
            if is_peak { "peak " } else { "" },
            metric.name(),
            signed(device.at.get(metric))
        );
        let mut place = match device.entry {
            Some(entry) => format!("entry {entry} of {}", device.entries),
            None if device.completeness.no_entries => "at the dump".to_owned(),
            None => "before the first entry".to_owned(),
        };
        if let Some(since) = device.since_start_us {
            place += &format!(", after {}", notes::duration(since));
        }
        if !device.annotations.is_empty() {
            place += &format!(", in {}", safe(&device.annotations.join(" / ")));
        }
        if title.width() + place.width() + 3 <= self.width.unwrap_or(usize::MAX) {
            writeln!(out, "{} ({place})", self.bold(&title))?;
        } else {
            writeln!(out, "{}", self.bold(&title))?;
            self.words("  ", &place, out)?;
        }
        let mut lines = notes::device(device);
        lines.extend(notes::grouping(device.attribution.by).map(str::to_owned));
        self.notes(&lines, out)?;
        counters([("here", device.at), ("maximum", device.maxima.into()), ("end", device.end)], out)?;
        writeln!(out)?;

        let attribution = &device.attribution;
        // What is summed up as other is no site of its own, so it does not set the scale.
        let largest = attribution.rows.iter().filter(|row| row.label != OTHER).map(|row| row.bytes).max().unwrap_or(0);
        for row in &attribution.rows {
            self.row(row, attribution.total_bytes, largest, out)?;
            if attribution.by == GroupBy::Stack {
                self.stack(row, out)?;
            }
        }
        let total = Bytes(attribution.total_bytes);
        let what = match (attribution.total_bytes, attribution.by.is_inclusive()) {
            (0, _) => "nothing is held".to_owned(),
            (_, true) => format!("held in all, by {}", attribution.by.name()),
            _ => format!("total, by {}", attribution.by.name()),
        };
        writeln!(out, "{total:>11}  {}", self.dim(&what))?;
        let anonymous: u64 = attribution.rows.iter().filter(|row| row.label == NO_STACK).map(|row| row.bytes).sum();
        if percent(anonymous, attribution.total_bytes) >= WORTH_A_HINT {
            let hint =
                "             (no stack): backward passes have no Python frames; stacks=\"all\" records C++ ones";
            writeln!(out, "{}", self.dim(&shorten_end(hint, self.width.unwrap_or(usize::MAX))))?;
        }
        Ok(())
    }

    fn row(&self, row: &Row, total: u64, largest: u64, out: &mut dyn Write) -> io::Result<()> {
        let width = self.width.unwrap_or(usize::MAX);
        let mut line = format!("{:>11} {:>6.1}%", Bytes(row.bytes), percent(row.bytes, total));
        if width >= BAR_FROM {
            line += &format!("  {}", self.tint(&bar(row.bytes, largest)));
        }
        let mut used = UnicodeWidthStr::width(line.as_str());
        if width >= BAR_FROM {
            used = 11 + 1 + 7 + 2 + BAR;
        }
        if width >= BLOCKS_FROM {
            line += &format!("  {:>7}", format!("{}x", row.blocks));
            used += 9;
        }
        let label = safe(&row.label);
        let inferred = if row.inferred { " (inferred)" } else { "" };
        let label = shorten(&format!("{label}{inferred}"), width.saturating_sub(used + 2));
        writeln!(out, "{line}  {label}")
    }

    /// The frames under a row, innermost first.
    fn stack(&self, row: &Row, out: &mut dyn Write) -> io::Result<()> {
        const INDENT: &str = "                       ";
        let width = self.width.unwrap_or(usize::MAX).saturating_sub(INDENT.len());
        for frame in &row.stack {
            writeln!(out, "{INDENT}{}", self.dim(&shorten(&safe(frame), width)))?;
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
            let room = self.width.unwrap_or(usize::MAX).saturating_sub(line.len() + open.len());
            writeln!(out, "{line}{}{}", shorten(&safe(&summary.name), room), self.dim(&open))?;
        }
        let rest = report.annotations.len().saturating_sub(ANNOTATIONS);
        if rest > 0 {
            writeln!(out, "{rest:>9} more names")?;
        }
        Ok(())
    }

    /// Items separated by commas, on as many lines as it takes.
    fn wrapped(&self, indent: &str, items: &[String], out: &mut dyn Write) -> io::Result<()> {
        let width = self.width.unwrap_or(usize::MAX);
        let mut line = indent.to_owned();
        for (index, item) in items.iter().enumerate() {
            let last = index + 1 == items.len();
            let item = format!("{}{}", safe(item), if last { "" } else { ", " });
            if line.len() > indent.len() && line.width() + item.trim_end().width() > width {
                writeln!(out, "{}", line.trim_end())?;
                indent.clone_into(&mut line);
            }
            line += &item;
        }
        writeln!(out, "{}", line.trim_end())
    }

    fn notes(&self, lines: &[String], out: &mut dyn Write) -> io::Result<()> {
        for line in lines {
            for (index, line) in self.broken(4, line).iter().enumerate() {
                let mark = if index == 0 { "!" } else { " " };
                writeln!(out, "{}", self.warn(&format!("  {mark} {line}")))?;
            }
        }
        Ok(())
    }

    /// Text on as many lines as it takes, broken between words.
    fn words(&self, indent: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
        self.broken(indent.len(), text).iter().try_for_each(|line| writeln!(out, "{indent}{line}"))
    }

    /// Lines of text that leave room for an indent.
    fn broken(&self, indent: usize, text: &str) -> Vec<String> {
        let width = self.width.unwrap_or(usize::MAX).saturating_sub(indent);
        let mut lines = vec![String::new()];
        for word in safe(text).split(' ') {
            let full = lines.last().is_some_and(|line| !line.is_empty() && line.width() + 1 + word.width() > width);
            if full {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(&shorten(word, width));
            }
        }
        lines
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.color && !text.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.paint(text, "1")
    }

    fn dim(&self, text: &str) -> String {
        self.paint(text, "2")
    }

    fn warn(&self, text: &str) -> String {
        self.paint(text, "33")
    }

    fn tint(&self, text: &str) -> String {
        self.paint(text, "36")
    }
}

/// The four counters, a line each, at the instants named; 47 columns wide.
fn counters(columns: [(&str, Counters); 3], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  {:9} {:>11} {:>11} {:>11}", "", columns[0].0, columns[1].0, columns[2].0)?;
    for metric in Metric::ALL {
        let [first, second, third] = columns.map(|(_, values)| signed(values.get(metric)));
        writeln!(out, "  {:9} {first:>11} {second:>11} {third:>11}", metric.name())?;
    }
    Ok(())
}

/// Settings that differ from PyTorch's defaults.
fn settings(settings: &AllocatorSettings) -> Vec<String> {
    if !settings.recorded {
        return vec!["allocator settings were not recorded".to_owned()];
    }
    let mut lines = Vec::new();
    if !settings.alloc_conf.is_empty() {
        lines.push(format!("PYTORCH_CUDA_ALLOC_CONF={}", settings.alloc_conf));
    }
    if let Some(size) = settings.max_split_size {
        lines.push(format!("max_split_size {}", Bytes(size)));
    }
    if settings.expandable_segments {
        lines.push("expandable_segments".to_owned());
    }
    if settings.garbage_collection_threshold > 0.0 {
        lines.push(format!("garbage_collection_threshold {}", settings.garbage_collection_threshold));
    }
    if settings.roundup_power2_divisions.iter().any(|&divisions| divisions > 1) {
        lines.push("roundup_power2_divisions".to_owned());
    }
    if lines.is_empty() {
        lines.push("default allocator settings".to_owned());
    }
    lines
}

/// A bar of at most [`BAR`] columns, in eighths.
fn bar(bytes: u64, largest: u64) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = if largest == 0 { 0.0 } else { (bytes as f64 / largest as f64).min(1.0) };
    let eighths = (share * (BAR * 8) as f64).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        text.push(EIGHTHS[eighths % 8]);
    }
    let columns = text.chars().count();
    text + &" ".repeat(BAR.saturating_sub(columns))
}

/// Text in at most `width` columns. What is cut is the beginning: the end of a path is what tells files apart.
fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = Vec::new();
    let mut used = 1;
    for next in text.chars().rev() {
        used += next.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(next);
    }
    std::iter::once('…').chain(kept.into_iter().rev()).collect()
}

/// Text in at most `width` columns, without its end.
fn shorten_end(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |next: &char| {
        used += next.width().unwrap_or(0);
        used <= width
    };
    text.chars().take_while(fits).chain(std::iter::once('…')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(10, 10), "█".repeat(BAR));
        assert_eq!(bar(0, 10), " ".repeat(BAR));
        assert_eq!(bar(1, 160), format!("▏{}", " ".repeat(BAR - 1)));
        assert_eq!(bar(0, 0), " ".repeat(BAR));
    }

    #[test]
    fn long_labels_keep_their_end() {
        assert_eq!(shorten("torch/nn/modules/linear.py:134 forward", 20), "…near.py:134 forward");
        assert_eq!(shorten("short", 20), "short");
        assert_eq!(shorten("日本語", 4), "…語");
    }
}
