//! Text for a terminal: aligned, with bars, no wider than the screen. A file per report; here is what they share.

use super::advice::advice;
use super::fit::broken;
use super::notes::{self, safe, signed};
use super::palette::hues;
use crate::facts::training::Category;
use crate::replay::{Counters, Metric};
use crate::report::Source;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Writes text for people.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextStyle {
    /// Columns of the terminal; `None` where lines may be as long as they need, as in a pipe.
    pub width: Option<usize>,
    /// Whether to use ANSI colours.
    pub color: bool,
    /// Whether to end with what to do next: how to record what is missing, and what to type.
    pub advice: bool,
}

/// Longest bar, in columns.
pub(crate) const BAR: usize = 20;

impl TextStyle {
    /// Writes the notes about the file, then the text of `one` for each device, separated by empty lines.
    pub(crate) fn devices<D>(
        self,
        source: Source<'_>,
        devices: &[D],
        out: &mut dyn Write,
        one: impl Fn(&Self, &D, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        self.file_notes(source, out)?;
        if devices.is_empty() {
            writeln!(out, "{}: no memory was allocated on any device while recording", safe(source.path))?;
        }
        for (index, device) in devices.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            one(&self, device, out)?;
        }
        self.advice(source, out)
    }

    /// Writes how to record what is missing, if the style includes advice.
    pub(crate) fn advice(self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        let Some(advice) = self.advice.then(|| advice(source.recording)).flatten() else { return Ok(()) };
        writeln!(out)?;
        if advice.code.is_empty() {
            return self.broken(0, &advice.missing).iter().try_for_each(|line| writeln!(out, "{}", self.dim(line)));
        }
        let missing = format!("{}; to record one:", advice.missing);
        self.broken(0, &missing).iter().try_for_each(|line| writeln!(out, "{}", self.bold(line)))?;
        advice.code.iter().try_for_each(|line| writeln!(out, "    {line}"))
    }

    /// Items separated by commas, on as many lines as it takes.
    pub(crate) fn wrapped(&self, indent: &str, items: &[String], out: &mut dyn Write) -> io::Result<()> {
        let plain = |item: &String| {
            let item = safe(item);
            let width = item.width();
            (item, width)
        };
        self.wrapped_painted(indent, &items.iter().map(plain).collect::<Vec<_>>(), out)
    }

    /// The same of items that may have colours, each with its columns.
    pub(crate) fn wrapped_painted(
        &self,
        indent: &str,
        items: &[(String, usize)],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (mut line, mut used) = (indent.to_owned(), indent.width());
        for (index, (item, width)) in items.iter().enumerate() {
            let comma = if index + 1 == items.len() { "" } else { "," };
            let space = if used > indent.width() { " " } else { "" };
            if !space.is_empty() && used + 1 + width + comma.len() > self.room(0) {
                writeln!(out, "{line}")?;
                (line, used) = (format!("{indent}{item}{comma}"), indent.width() + width + comma.len());
                continue;
            }
            line += &format!("{space}{item}{comma}");
            used += space.len() + width + comma.len();
        }
        writeln!(out, "{line}")
    }

    /// Writes the notes about the file.
    pub(crate) fn file_notes(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        for note in notes::file(&source.recording.snapshot) {
            if note.is_plain { self.remark(&note.text, out)? } else { self.notes(&[note.text], out)? }
        }
        Ok(())
    }

    /// Writes a note that is not a warning.
    pub(crate) fn remark(&self, text: &str, out: &mut dyn Write) -> io::Result<()> {
        self.broken(4, text).iter().try_for_each(|line| writeln!(out, "    {}", self.dim(line)))
    }

    pub(crate) fn notes(&self, lines: &[String], out: &mut dyn Write) -> io::Result<()> {
        for line in lines {
            for (index, line) in self.broken(4, line).iter().enumerate() {
                let mark = if index == 0 { "!" } else { " " };
                writeln!(out, "{}", self.warn(&format!("  {mark} {line}")))?;
            }
        }
        Ok(())
    }

    /// A title with a place behind it, or on the lines below where both are too long for one.
    pub(crate) fn heading(&self, title: &str, place: &str, out: &mut dyn Write) -> io::Result<()> {
        if title.width() + place.width() + 3 <= self.room(0) {
            return writeln!(out, "{} ({place})", self.bold(title));
        }
        for line in self.broken(0, title) {
            writeln!(out, "{}", self.bold(&line))?;
        }
        self.words("  ", place, out)
    }

    /// Text on as many lines as it takes, broken between words.
    pub(crate) fn words(&self, indent: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
        self.broken(indent.len(), text).iter().try_for_each(|line| writeln!(out, "{indent}{line}"))
    }

    /// Writes the meaning of a sign below its table.
    pub(crate) fn legend(&self, meaning: &str, out: &mut dyn Write) -> io::Result<()> {
        self.broken(2, meaning).iter().try_for_each(|line| writeln!(out, "  {}", self.dim(line)))
    }

    /// Lines of text that leave room for an indent.
    pub(crate) fn broken(&self, indent: usize, text: &str) -> Vec<String> {
        broken(&safe(text), self.room(indent))
    }

    /// Columns of a line that are left beside this many.
    pub(crate) fn room(&self, used: usize) -> usize {
        self.width.unwrap_or(usize::MAX).saturating_sub(used)
    }

    /// Whether the screen has this many columns.
    pub(crate) fn has(&self, columns: usize) -> bool {
        self.width.is_none_or(|width| width >= columns)
    }

    pub(crate) fn paint(&self, text: &str, code: &str) -> String {
        if self.color && !text.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.paint(text, "1")
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        self.paint(text, "2")
    }

    pub(crate) fn warn(&self, text: &str) -> String {
        self.paint(text, "33")
    }

    pub(crate) fn tint(&self, text: &str) -> String {
        self.paint(text, "36")
    }

    /// In the colour of a category.
    pub(crate) fn hued(&self, text: &str, category: Category) -> String {
        self.paint(text, &format!("38;5;{}", hues::of_category(category).terminal))
    }
}

/// The four counters, a line each, at the instants named; 47 columns wide where these are three.
pub(crate) fn counters(columns: &[(&str, Counters)], out: &mut dyn Write) -> io::Result<()> {
    let line = |name: &str, cells: &dyn Fn(&(&str, Counters)) -> String| {
        let cells: Vec<String> = columns.iter().map(|column| format!(" {:>11}", cells(column))).collect();
        format!("  {name:9}{}", cells.concat())
    };
    writeln!(out, "{}", line("", &|(name, _)| (*name).to_owned()))?;
    // The memory of the CPU and memory timelines have none.
    let is_used = columns.iter().any(|(_, values)| values.allocated > 0);
    let no_reserved = columns.iter().all(|(_, values)| values.reserved == 0) && is_used;
    for metric in Metric::ALL {
        let shown = |bytes| if no_reserved && metric == Metric::Reserved { "-".to_owned() } else { signed(bytes) };
        writeln!(out, "{}", line(metric.name(), &|(_, values)| shown(values.get(metric))))?;
    }
    Ok(())
}

/// A bar of at most [`BAR`] columns, in eighths.
pub(crate) fn bar(bytes: u64, largest: u64) -> String {
    pub(crate) const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = if largest == 0 { 0.0 } else { (bytes as f64 / largest as f64).min(1.0) };
    let eighths = (share * (BAR * 8) as f64).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        text.push(EIGHTHS[eighths % 8]);
    }
    let columns = text.chars().count();
    text + &" ".repeat(BAR.saturating_sub(columns))
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
}
