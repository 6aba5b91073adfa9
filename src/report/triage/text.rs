//! The triage as text: what fits on one screen.

use super::words;
use crate::analysis::grouping::attribution::{Attribution, OTHER};
use crate::analysis::triage::{DeviceTriage, TriageReport};
use crate::analysis::{Category, Row};
use crate::report::common::fit::shorten_end;
use crate::report::common::notes::{self, safe};
use crate::report::common::text::TextStyle;
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
/// Room behind the commands from which on it is said what they are about.
const COMMENT_FROM: usize = 16;
/// What fills the part of a category in the bar, by turns, and its colour.
const FILLS: [(&str, &str); 5] = [("█", "36"), ("▓", "35"), ("▒", "33"), ("░", "34"), ("▚", "32")];

pub(crate) fn write(text: TextStyle, source: Source<'_>, report: &TriageReport, out: &mut dyn Write) -> io::Result<()> {
    text.notes(&notes::source(&source.recording.snapshot), out)?;
    let Some((first, others)) = report.devices.split_first() else {
        writeln!(out, "{}: no memory was allocated on any device while recording", safe(source.path))?;
        return text.advice(source, out);
    };
    for line in text.broken(0, &words::verdict(first)) {
        writeln!(out, "{}", text.bold(&line))?;
    }
    text.words("", &format!("{} ({})", words::held(first), notes::place(&first.peak)), out)?;
    text.notes(&notes::device(&first.peak), out)?;
    text.categories(&first.categories, out)?;
    text.sites(&first.peak.attribution, out)?;
    for device in others.iter().take(OTHERS) {
        text.words("", &words::held(device), out)?;
    }
    if others.len() > OTHERS {
        writeln!(out, "{}", text.dim(&format!("and {} more devices", others.len() - OTHERS)))?;
    }
    text.next(first, source.path, out)
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
            let (fill, color) = match row.label == Category::Unknown.name() {
                true => ("·", "2"),
                false => FILLS[index % FILLS.len()],
            };
            bar += &self.paint(&fill.repeat(end.saturating_sub(used)), color);
            used = used.max(end);
            let is_worth_a_name = index == 0 || percent(row.bytes, total) >= 1.0;
            if index < NAMED && is_worth_a_name {
                names.push(format!("{fill} {} {:.0}%", row.label, percent(row.bytes, total)));
            }
        }
        writeln!(out, "{bar}")?;
        self.wrapped("", &names, out)
    }

    fn sites(&self, sites: &Attribution, out: &mut dyn Write) -> io::Result<()> {
        let largest = sites.rows.iter().filter(|row| row.label != OTHER).map(|row| row.bytes).max().unwrap_or(0);
        sites
            .rows
            .iter()
            .filter(|row| row.label != OTHER)
            .try_for_each(|row| self.row(row, sites.total_bytes, largest, out))
    }

    /// The commands that show more, each with what it is about behind a sign that makes it a comment for the shell.
    fn next(&self, device: &DeviceTriage, path: &str, out: &mut dyn Write) -> io::Result<()> {
        let mut lines: Vec<(String, String)> = words::findings(device)
            .into_iter()
            .take(FINDINGS)
            .map(|line| (words::command(line.command, path), line.text))
            .collect();
        let page = format!("{} -o report.html", words::command("report", path));
        lines.push((page, "all of it, on a page".to_owned()));
        let widest = lines.iter().map(|(command, _)| command.width()).max().unwrap_or(0);
        let width = self.width.unwrap_or(usize::MAX);
        writeln!(out)?;
        for (command, text) in lines {
            let room = width.saturating_sub(widest);
            let comment = if room >= COMMENT_FROM { shorten_end(&format!("  # {text}"), room) } else { String::new() };
            let gap = if comment.is_empty() { 0 } else { widest - command.width() };
            writeln!(out, "{}{}{}", self.tint(&command), " ".repeat(gap), self.dim(&comment))?;
        }
        Ok(())
    }
}
