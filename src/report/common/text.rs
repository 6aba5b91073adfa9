//! Text for a terminal: its width, its colors, and bars.

use super::document::Tone;
use super::fit::broken;
use super::notes::safe;
use super::palette::hues;
use crate::facts::training::Category;

#[derive(Clone, Copy, Debug, Default)]
pub struct TextStyle {
    /// Columns of the terminal; `None` if lines may be arbitrarily long, as in a pipe.
    pub width: Option<usize>,
    pub color: bool,
    /// Whether to end with next steps: how to record what is missing, and which commands to run.
    pub advice: bool,
    /// How memviz was called, if a shell does not find it by its name: commands to run start with it.
    pub program: Option<&'static str>,
    /// Whether to show all of an answer that is longer than a screen.
    pub all: bool,
}

/// Longest bar, in columns: on an 80-column terminal, `backward of minigpt.py:82 forward *` fits next to it.
pub(crate) const BAR: usize = 12;

impl TextStyle {
    /// Lines of text that leave room for an indent.
    pub(crate) fn broken(&self, indent: usize, text: &str) -> Vec<String> {
        broken(&safe(text), self.room(indent))
    }

    /// Columns of a line that remain next to this many.
    pub(crate) fn room(&self, used: usize) -> usize {
        self.width.unwrap_or(usize::MAX).saturating_sub(used)
    }

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

    pub(crate) fn toned(&self, text: &str, tone: Tone) -> String {
        match tone {
            Tone::Plain => text.to_owned(),
            Tone::Bold => self.bold(text),
            Tone::Dim => self.dim(text),
            Tone::Warn => self.warn(text),
            Tone::Tint => self.tint(text),
            Tone::Hued(category) => self.hued(text, category),
        }
    }

    /// In the color of a category.
    pub(crate) fn hued(&self, text: &str, category: Category) -> String {
        self.paint(text, &format!("38;5;{}", hues::of_category(category).terminal))
    }
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
