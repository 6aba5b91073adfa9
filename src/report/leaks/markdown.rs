//! `memviz leaks` as Markdown.

use super::words;
use crate::analysis::leaks::growth::Verdict;
use crate::analysis::leaks::{DeviceLeaks, LeakReport, LeakRow};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::cures;
use crate::report::common::markdown::{cell, code, escape};
use crate::report::common::notes::{self, device_name, safe};
use crate::report::common::words::{count, starred};
use std::io::{self, Write};

pub(crate) fn write(source: Source<'_>, report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## GPU memory leaks of {}\n", code(source.path))?;
    for line in notes::source(&source.recording.snapshot) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if report.devices.is_empty() {
        writeln!(out, "No memory was allocated on any device while recording.")?;
    }
    report.devices.iter().try_for_each(|device| leaks_device(device, out))
}

fn leaks_device(device: &DeviceLeaks, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "### {}: {}\n", device_name(device.device), words::headline(device))?;
    if let Some(steps) = words::steps(device) {
        writeln!(out, "{}.\n", escape(&steps))?;
    }
    for line in words::limits(device) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    let facts: Vec<String> =
        words::course(device).into_iter().chain(device.projection.as_ref().map(words::projection)).collect();
    for line in &facts {
        writeln!(out, "- {line}")?;
    }
    if !facts.is_empty() {
        writeln!(out)?;
    }
    let cures = device.of_growth();
    if !cures.is_empty() {
        cures::markdown(&cures, false, out)?;
        writeln!(out)?;
    }
    if device.rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "| Per step | Blocks per step | Live | Verdict | {} |\n|--:|--:|--:|---|---|", device.by.name())?;
    for row in &device.rows {
        let (bytes, blocks) = match row.verdict {
            Verdict::Cache => ("-".to_owned(), "-".to_owned()),
            _ => (format!("+{}", Bytes(row.rate.bytes)), format!("+{}", words::blocks(row.rate.blocks))),
        };
        let live = Bytes(row.live_bytes);
        writeln!(
            out,
            "| {bytes} | {blocks} | {live} | {} | {} |",
            row.verdict.name(),
            cell(&starred(&row.label, row.inferred))
        )?;
    }
    if device.left_out > 0 {
        writeln!(out, "\n{} more.", count(device.left_out, "row"))?;
    }
    writeln!(out)?;
    for line in words::legend(&device.rows) {
        writeln!(out, "- {}", escape(line))?;
    }
    writeln!(out)?;
    device.rows.iter().filter(|row| row.verdict != Verdict::Cache).try_for_each(|row| stack(row, out))
}

/// A row in full, folded away.
fn stack(row: &LeakRow, out: &mut dyn Write) -> io::Result<()> {
    let mut what = words::behaviour(row);
    if let Some(oldest) = &row.oldest {
        what += &format!("; oldest survivor {}", words::oldest(oldest));
    }
    writeln!(out, "<details><summary>{}: {what}</summary>\n", html(&starred(&row.label, row.inferred)))?;
    match row.stack.as_slice() {
        [] => writeln!(out, "No stack was recorded.")?,
        frames => frames.iter().try_for_each(|frame| writeln!(out, "1. {}", code(frame)))?,
    }
    writeln!(out, "\n</details>\n")
}

/// Text inside an HTML element, where Markdown's own escapes do not work.
fn html(text: &str) -> String {
    safe(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_no_elements() {
        assert_eq!(html("<string>:1 a && b"), "&lt;string&gt;:1 a &amp;&amp; b");
        assert_eq!(html("step_1 \u{1b}[31m"), "step_1 \\u{1b}[31m");
    }
}
