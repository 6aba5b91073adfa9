//! Markdown for issues and pull requests.

use super::notes::{self, device_name, safe, signed};
use super::{Render, Source, percent};
use crate::analysis::{DevicePeak, InfoReport, PeakReport};
use crate::model::Action;
use crate::model::bytes::Bytes;
use crate::replay::{Counters, Metric};
use std::io::{self, Write};

/// Writes GitHub-flavoured Markdown.
#[derive(Clone, Copy, Debug, Default)]
pub struct MarkdownReport;

impl Render for MarkdownReport {
    fn peak(&self, source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "## GPU memory peak of {}\n", code(source.path))?;
        for line in notes::source(&source.recording.snapshot) {
            writeln!(out, "> {}\n", escape(&line))?;
        }
        if report.devices.is_empty() {
            writeln!(out, "No memory was allocated on any device while recording.")?;
        }
        for device in &report.devices {
            peak_device(device, out)?;
        }
        Ok(())
    }

    fn info(&self, source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "## {}\n", code(source.path))?;
        for line in notes::source(&source.recording.snapshot) {
            writeln!(out, "> {}\n", escape(&line))?;
        }
        for device in &report.devices {
            writeln!(out, "### {}\n", device_name(device.device))?;
            let mut lines = notes::limits(&device.completeness, &device.baseline);
            lines.extend(notes::anomalies(&device.anomalies));
            for line in lines {
                writeln!(out, "> {}\n", escape(&line))?;
            }
            counters(&[("Baseline", device.baseline), ("Maximum", device.maxima.into()), ("End", device.end)], out)?;
            writeln!(out, "| Entries | Count |\n|---|--:|")?;
            for (action, count) in Action::ALL.iter().zip(device.actions).filter(|&(_, count)| count > 0) {
                writeln!(out, "| {} | {count} |", action.name())?;
            }
            writeln!(out, "| **all** | {} |\n", device.entries)?;
        }
        if !report.annotations.is_empty() {
            writeln!(out, "| Annotation | Ranges | Time |\n|---|--:|--:|")?;
            for summary in &report.annotations {
                let time = notes::duration(summary.total_us);
                writeln!(out, "| {} | {} | {time} |", cell(&summary.name), summary.count)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

fn peak_device(device: &DevicePeak, out: &mut dyn Write) -> io::Result<()> {
    let metric = device.metric;
    let bytes = device.at.get(metric);
    writeln!(out, "### {}: {} {}\n", device_name(device.device), signed(bytes), metric.name())?;
    let mut place = match device.entry {
        Some(entry) => format!("At entry {entry} of {}", device.entries),
        None if device.completeness.no_entries => "At the dump".to_owned(),
        None => "Before the first entry".to_owned(),
    };
    if let Some(since) = device.since_start_us {
        place += &format!(", {} after the first one", notes::duration(since));
    }
    if !device.annotations.is_empty() {
        place += &format!(", during {}", code(&device.annotations.join(" / ")));
    }
    writeln!(out, "{place}.\n")?;
    let mut lines = notes::device(device);
    lines.extend(notes::grouping(device.attribution.by).map(str::to_owned));
    for line in lines {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    counters(&[("Here", device.at), ("Maximum", device.maxima.into()), ("End", device.end)], out)?;

    let attribution = &device.attribution;
    writeln!(out, "| Bytes | Share | Blocks | {} |\n|--:|--:|--:|---|", attribution.by.name())?;
    for row in &attribution.rows {
        let share = percent(row.bytes, attribution.total_bytes);
        writeln!(out, "| {} | {share:.1}% | {} | {} |", Bytes(row.bytes), row.blocks, cell(&row.label))?;
    }
    writeln!(out, "| **{}** | | | **total** |\n", Bytes(attribution.total_bytes))
}

fn counters(lines: &[(&str, Counters)], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| | Allocated | Active | Requested | Reserved |\n|---|--:|--:|--:|--:|")?;
    for (name, values) in lines {
        write!(out, "| {name} |")?;
        for metric in Metric::ALL {
            write!(out, " {} |", signed(values.get(metric)))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

/// A code span in a table cell, where bars must be escaped even inside code.
fn cell(text: &str) -> String {
    code(&text.replace('|', "\\|"))
}

/// A code span: the fence is longer than any run of backticks inside.
fn code(text: &str) -> String {
    let text = safe(text);
    let longest = text.split(|next| next != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// Plain text that Markdown leaves alone.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for next in safe(text).chars() {
        if matches!(next, '\\' | '`' | '*' | '_' | '<' | '>' | '|' | '[' | ']' | '#') {
            escaped.push('\\');
        }
        escaped.push(next);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_the_table() {
        assert_eq!(cell("a|b"), "`a\\|b`");
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("`a"), "`` `a ``");
        assert_eq!(escape("<b> *x*"), "\\<b\\> \\*x\\*");
    }
}
