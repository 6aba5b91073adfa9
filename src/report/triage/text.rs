//! The triage as text: what fits on one screen.

use super::words;
use crate::analysis::triage::{DeviceTriage, TriageReport};
use crate::facts::grouping::attribution::Row;
use crate::facts::grouping::attribution::{Attribution, OTHER};
use crate::facts::training::Category;
use crate::model::Format;
use crate::report::common::advice::advice;
use crate::report::common::next::Next;
use crate::report::common::notes::{self, safe};
use crate::report::common::text::TextStyle;
use crate::report::common::words::{category, count, share};
use crate::report::{Source, percent};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Longest bar of categories, in columns.
const BAR: usize = 60;
/// Categories named below the bar.
const NAMED: usize = 5;
/// Devices told of in a line each, below the first one.
const OTHERS: usize = 2;
/// Findings with a line each.
const FINDINGS: usize = 4;
/// What fills the parts of the categories that are named in the bar, the largest first.
const FILLS: [&str; NAMED] = ["█", "▓", "▒", "░", "▚"];
/// The same of what is not known, and of the categories without a name.
const UNKNOWN: &str = "·";
const REST: &str = "-";

pub(crate) fn write(text: TextStyle, source: Source<'_>, report: &TriageReport, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = report.devices.get(report.first) else {
        writeln!(out, "{}: no memory was allocated on any device while recording", safe(source.path))?;
        text.file_notes(source, out)?;
        return text.advice(source, out);
    };
    for line in text.broken(0, &words::verdict(first)) {
        writeln!(out, "{}", text.bold(&line))?;
    }
    let most = words::most_reserved(first).map_or(String::new(), |most| format!("; {most}"));
    text.words("", &format!("{} ({}){most}", words::held(first), notes::place(&first.peak)), out)?;
    text.file_notes(source, out)?;
    text.notes(&notes::device(&first.peak), out)?;
    text.categories(&first.categories, out)?;
    text.sites(&first.peak.attribution, out)?;
    let others = || report.devices.iter().filter(|device| device.peak.device != first.peak.device);
    for device in others().take(OTHERS) {
        text.words("", &words::held(device), out)?;
    }
    let more = others().skip(OTHERS).count();
    if more > 0 {
        writeln!(out, "{}", text.dim(&format!("and {}", count(more, "more device"))))?;
    }
    // Where most of the memory is not known: the lines that record it better say what would show it, or else how to mark the
    // program does. Other programs than PyTorch's have no such marks.
    let is_better_recorded = advice(source.recording).is_some();
    let is_foreign = source.recording.snapshot.notes.format.is_one_instant();
    let would_show = words::would_show(first).filter(|_| !is_foreign && !is_better_recorded);
    if let Some(sentence) = would_show {
        writeln!(out)?;
        text.broken(0, sentence).iter().try_for_each(|line| writeln!(out, "{}", text.dim(line)))?;
    }
    text.cures(&first.advice, first.failure.is_some(), out)?;
    let is_told = is_better_recorded || would_show.is_some();
    if let Some(nothing) = first.nothing.as_ref().filter(|nothing| !is_told || !nothing.is_unknown()) {
        writeln!(out)?;
        text.words("", &words::nothing(nothing), out)?;
    }
    text.advice(source, out)?;
    text.findings(first, source, out)
}

impl TextStyle {
    /// All categories as one bar, with the largest of them named below.
    fn categories(&self, categories: &Attribution, out: &mut dyn Write) -> io::Result<()> {
        let rows: Vec<&Row> = categories.rows.iter().filter(|row| row.label != OTHER && row.bytes > 0).collect();
        let Some(total) = Some(categories.total_bytes).filter(|&total| total > 0 && !rows.is_empty()) else {
            return Ok(());
        };
        let length = self.width.unwrap_or(BAR).min(BAR);
        let (mut bar, mut names, mut sum, mut used) = (String::new(), Vec::new(), 0u64, 0);
        for (index, row) in rows.iter().enumerate() {
            sum = sum.saturating_add(row.bytes);
            let end = (percent(sum, total) / 100.0 * length as f64).round() as usize;
            let is_named = index == 0 || index < NAMED && percent(row.bytes, total) >= 1.0;
            let fill = match row.category {
                Some(Category::Unknown) => UNKNOWN,
                _ if is_named => FILLS[index],
                _ => REST,
            };
            let hued = |text: &str| match row.category {
                Some(category) if is_named => self.hued(text, category),
                _ => self.dim(text),
            };
            bar += &hued(&fill.repeat(end.saturating_sub(used)));
            used = used.max(end);
            if is_named {
                let name = format!(" {} {}", category(&row.label), share(row.bytes, total));
                names.push((hued(fill) + &name, fill.width() + name.width()));
            }
        }
        writeln!(out, "{bar}")?;
        self.wrapped_painted("", &names, out)
    }

    fn sites(&self, sites: &Attribution, out: &mut dyn Write) -> io::Result<()> {
        let largest = sites.rows.iter().filter(|row| row.label != OTHER).map(|row| row.bytes).max().unwrap_or(0);
        sites
            .rows
            .iter()
            .filter(|row| row.label != OTHER)
            .try_for_each(|row| self.row(row, sites.total_bytes, largest, out))?;
        if sites.rows.iter().any(|row| row.inferred) { self.star(notes::INFERRED_SITE, out) } else { Ok(()) }
    }

    /// The commands that show more.
    fn findings(&self, device: &DeviceTriage, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        let path = source.path;
        let mut lines: Vec<Next> = words::findings(device)
            .into_iter()
            .take(FINDINGS)
            .map(|line| Next::new(line.command, &[path], "", line.text))
            .collect();
        lines.extend(words::compared(device, path));
        // Of a profile of one instant there is no report.
        if source.recording.snapshot.notes.format == Format::DeviceMemoryProfile {
            lines.push(Next::new("flamegraph", &[path], "-o memory.svg", "the whole profile, as a picture"));
        } else {
            if cfg!(feature = "view") {
                lines.push(Next::new("view", &[path], "", "the recording as a page in the browser"));
            }
            lines.push(Next::new("report", &[path], "-o report.html", "the full report, as an HTML page"));
        }
        self.commands(&lines, out)
    }
}
