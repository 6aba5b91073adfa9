//! Shortens and wraps text to a number of columns.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Shortens text to `width` columns. Cuts the beginning, since the end of a path distinguishes files.
pub fn shorten(text: &str, width: usize) -> String {
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

/// Shortens text to `width` columns. Cuts the end.
pub fn shorten_end(text: &str, width: usize) -> String {
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

/// Words that stay in a line with the number before them.
const UNITS: [&str; 8] = ["bytes", "KiB", "MiB", "GiB", "TiB", "us", "ms", "s"];

/// Wraps text between words into lines of at most `width` columns.
pub fn broken(text: &str, width: usize) -> Vec<String> {
    broken_by(text, width, UnicodeWidthStr::width)
}

/// The same with another measure, under which text of `width` characters is never much wider than `width`.
pub fn broken_by(text: &str, width: usize, measure: impl Fn(&str) -> usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        // A number stays with its unit.
        let is_unit = UNITS.contains(&word.trim_end_matches([',', ';', ')', ':', '.']));
        match words.last_mut().filter(|last| is_unit && last.ends_with(|end: char| end.is_ascii_digit())) {
            Some(number) => *number += &format!(" {word}"),
            None => words.push(word.to_owned()),
        }
    }
    let mut lines = vec![String::new()];
    for word in &words {
        let full = lines.last().is_some_and(|line| !line.is_empty() && measure(&format!("{line} {word}")) > width);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_labels_keep_their_end() {
        assert_eq!(shorten("torch/nn/modules/linear.py:134 forward", 20), "…near.py:134 forward");
        assert_eq!(shorten("short", 20), "short");
        assert_eq!(shorten("日本語", 4), "…語");
    }
}
