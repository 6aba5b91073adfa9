//! Text for a terminal: aligned, with bars, no wider than the screen. A file per report; here is what they share.

mod info;
mod leaks;
mod peak;

use super::notes::{safe, signed};
use super::{Render, Source};
use crate::analysis::{InfoReport, LeakReport, PeakReport};
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

impl Render for TextReport {
    fn peak(&self, source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
        peak::write(*self, source, report, out)
    }

    fn info(&self, source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
        info::write(*self, source, report, out)
    }

    fn leaks(&self, source: Source<'_>, report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
        leaks::write(*self, source, report, out)
    }
}

impl TextReport {
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
