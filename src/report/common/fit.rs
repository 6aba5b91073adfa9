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

/// Shortens text to `width` columns. Cuts the middle, since both ends distinguish names of files.
pub fn shorten_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let end = shorten(text, width.div_ceil(2));
    format!("{}{}", shorten_end(text, width / 2 + 1).trim_end_matches('…'), end)
}

const UNITS: [&str; 8] = ["bytes", "KiB", "MiB", "GiB", "TiB", "us", "ms", "s"];

/// Words that stay in a line with the number after them.
const NUMBERED: [&str; 3] = ["entry", "step", "stream"];

/// Options that stay in a line with their value.
const OPTIONS: [&str; 2] = ["--at", "--own"];

/// Wraps text between words into lines of at most `width` columns.
pub fn broken(text: &str, width: usize) -> Vec<String> {
    broken_by(text, width, UnicodeWidthStr::width)
}

/// The same with another measure, under which text of `width` characters is never much wider than `width`.
pub fn broken_by(text: &str, width: usize, measure: impl Fn(&str) -> usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        // A number stays with its unit, and with what it counts.
        let is_unit = UNITS.contains(&word.trim_end_matches([',', ';', ')', ':', '.']));
        let is_number = word.starts_with(|start: char| start.is_ascii_digit());
        let belongs = |last: &&mut String| {
            let start = last.trim_start_matches('(');
            let is_one = is_unit && last.ends_with(|end: char| end.is_ascii_digit())
                || is_number && NUMBERED.contains(&start)
                || OPTIONS.contains(&start);
            is_one && measure(&format!("{last} {word}")) <= width
        };
        match words.last_mut().filter(belongs) {
            Some(number) => *number += &format!(" {word}"),
            None => words.push(word.to_owned()),
        }
    }
    let mut lines = vec![String::new()];
    for word in &words {
        let is_long = measure(word) > width;
        let parts = if is_long { parts(word, |part| measure(part) > width) } else { vec![word.as_str()] };
        for (place, part) in parts.into_iter().enumerate() {
            let space = if place == 0 { " " } else { "" };
            let is_full = |line: &String| !line.is_empty() && measure(&format!("{line}{space}{part}")) > width;
            if lines.last().is_some_and(is_full) {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push_str(space);
                }
                line.push_str(&shorten(part, width));
            }
        }
    }
    lines
}

/// The parts of a word that is too long for a line: settings, and a setting and its value, so that none of them is cut.
fn parts(word: &str, is_long: impl Fn(&str) -> bool) -> Vec<&str> {
    let settings = word.split_inclusive(',');
    settings.flat_map(|setting| if is_long(setting) { named(setting) } else { vec![setting] }).collect()
}

/// A name and its value: `checkpoint:` and `minigpt.py:53`. A number after a colon is the line of a file, `::` is C++.
fn named(setting: &str) -> Vec<&str> {
    match setting.split_once(':') {
        Some((name, value)) if value.starts_with(char::is_alphabetic) => {
            let (name, value) = setting.split_at(name.len() + 1);
            vec![name, value]
        }
        _ => vec![setting],
    }
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

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shorten_middle("memory_snapshot_200_mixed_precision.pickle", 20), "memory_sna…on.pickle");
        assert_eq!(shorten_middle("short", 20), "short");
    }

    #[test]
    fn settings_are_broken_not_cut() {
        let settings = "with max_split_size_mb:128,expandable_segments:True";
        assert_eq!(broken(settings, 25), ["with", "max_split_size_mb:128,", "expandable_segments:True"]);
        assert_eq!(broken("checkpoint:minigpt.py:53 forward", 22), ["checkpoint:", "minigpt.py:53 forward"]);
        assert_eq!(broken("at::native::empty_strided", 12), ["…pty_strided"]);
        assert_eq!(broken("torch/nn/modules/linear.py:134", 12), ["…near.py:134"]);
    }

    #[test]
    fn numbers_stay_with_their_words() {
        assert_eq!(broken("requests 4 bytes (entry 5481)", 22), ["requests 4 bytes", "(entry 5481)"]);
        assert_eq!(broken("in all (1000.00 MiB)", 14), ["in all", "(1000.00 MiB)"]);
        assert_eq!(broken("large pool, stream 14", 20), ["large pool,", "stream 14"]);
        assert_eq!(broken("show with (--at start)", 18), ["show with", "(--at start)"]);
        assert_eq!(broken("large pool, stream 94389", 8), ["large", "pool,", "stream", "94389"]);
    }
}
