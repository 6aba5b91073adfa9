//! The text about the peaks of ranges, the same in text and Markdown.

use crate::analysis::peak::DevicePeak;
use crate::analysis::peak::each::{Each, RangePeak, RangePeaks};
use crate::facts::grouping::attribution::OTHER;
use crate::facts::grouping::attribution::Row;
use crate::replay::{Bound, Metric};
use crate::report::common::notes::{self, signed};
use crate::report::common::training;
use crate::report::common::words::{count, mark, starred};
use crate::sorting::SortRows;
use indexmap::IndexMap;
use std::cmp::Reverse;

/// The most ranges that are shown to people.
pub const SHOWN: usize = 20;

#[derive(Clone, Copy, Debug)]
pub struct Shown<'r> {
    pub range: &'r RangePeak,
    /// Number of ranges of its family that it represents, as the one with the highest peak; 1 if it represents only itself.
    pub of: usize,
}

/// The ranges that are shown to people, in their order: all, if there are few; if there are many, and for phases, the highest
/// of each name; if all have one name, the highest of all.
pub fn shown(ranges: &RangePeaks, metric: Metric) -> Vec<Shown<'_>> {
    let all = &ranges.ranges;
    let alone = |range| Shown { range, of: 1 };
    let by_name = matches!(ranges.each, Each::Phase) || all.len() > SHOWN;
    if !by_name {
        return all.iter().map(alone).collect();
    }
    let bytes = |range: &RangePeak| range.at.get(metric);
    let mut families: IndexMap<&str, (usize, Shown<'_>)> = IndexMap::new();
    for (index, range) in all.iter().enumerate() {
        let (place, highest) = families.entry(&range.family).or_insert((index, Shown { range, of: 0 }));
        let of = highest.of + 1;
        *highest = if bytes(range) > bytes(highest.range) { Shown { range, of } } else { Shown { of, ..*highest } };
        if std::ptr::eq(highest.range, range) {
            *place = index;
        }
    }
    // Besides the one family, there may be a period outside it.
    let has_names = families.values().filter(|(_, shown)| !shown.range.is_outside()).count() > 1;
    let mut shown: Vec<(usize, Shown<'_>)> =
        if has_names { families.into_values().collect() } else { all.iter().map(alone).enumerate().collect() };
    shown.sort_rows_by_key(|(place, shown)| (Reverse(bytes(shown.range)), *place));
    shown.truncate(SHOWN);
    shown.sort_rows_by_key(|(place, _)| *place);
    shown.into_iter().map(|(_, shown)| shown).collect()
}

pub fn headline(ranges: &RangePeaks) -> String {
    let number = ranges.ranges.iter().filter(|range| !range.is_outside()).count();
    let number = number + ranges.left_out.map_or(0, |(others, _)| others);
    match (&ranges.each, &ranges.steps) {
        (Each::Step, Some(steps)) => training::steps(steps),
        (Each::Annotation(Some(pattern)), _) => {
            let names = if number == 1 { "a name that matches" } else { "names that match" };
            format!("{} with {names} {}", count(number as u64, "annotation"), pattern.as_str())
        }
        (each, _) => count(number as u64, each.name()),
    }
}

pub fn rest(ranges: &RangePeaks, shown: &[Shown<'_>], metric: Metric) -> Option<String> {
    if shown.len() == ranges.ranges.len() {
        return None;
    }
    let what =
        if shown.iter().any(|shown| shown.of > 1) { "the highest peak of each name" } else { "the highest peaks" };
    let mut text = format!("{what} among {} ranges; --format csv lists all", ranges.ranges.len());
    if let Some((others, highest)) = ranges.left_out {
        let highest = signed(highest);
        text = format!(
            "{what} among {} ranges; --format csv lists {} of them; the others reach at most {highest} {}",
            ranges.ranges.len() + others,
            ranges.ranges.len(),
            metric.name()
        );
    }
    Some(text)
}

pub fn peak(range: &RangePeak, metric: Metric) -> String {
    format!("{}{}", mark(range.bound), signed(range.at.get(metric)))
}

/// The name of a range in a table: with a star if it is inferred, with the number of ranges that it represents, and whether
/// memory was highest when it started.
pub fn label(shown: &Shown<'_>) -> String {
    let range = shown.range;
    let mut label = starred(&range.label, range.inferred);
    if shown.of > 1 {
        label += &format!(" (highest of {})", shown.of);
    }
    if range.is_inherited() {
        label += ", at its start";
    }
    label
}

/// The entry that leads to the peak of a range; a dash before the first one.
pub fn entry(range: &RangePeak) -> String {
    range.peak.entry.map_or_else(|| "-".to_owned(), |entry| entry.to_string())
}

/// The time of that entry, counted from the first one.
pub fn after(range: &RangePeak) -> String {
    range.peak.since_start_us.map(notes::duration).unwrap_or_default()
}

pub fn lead(range: &RangePeak) -> Option<&Row> {
    range.top.iter().find(|row| row.label != OTHER)
}

/// The meaning of signs in the table, one line each, given the rows of groups that it shows.
pub fn legend<'r>(
    device: &DevicePeak,
    ranges: &RangePeaks,
    shown: &[Shown<'_>],
    mut rows: impl Iterator<Item = &'r Row>,
) -> Vec<String> {
    let mut lines = Vec::new();
    if shown.iter().any(|shown| shown.range.inferred) {
        let each = ranges.each.name();
        lines.push(format!("* next to a {each} name: inferred, not annotated"));
    }
    if rows.any(|row| row.inferred) {
        lines.push(notes::inferred(device.attribution.by).to_owned());
    }
    if shown.iter().any(|shown| shown.range.bound == Some(Bound::Lower)) {
        let each = ranges.each.name();
        lines.push(format!(
            "\u{2265} a lower bound: part of the {each}, or of the memory allocated before it, was not recorded"
        ));
    }
    if shown.iter().any(|shown| shown.range.is_inherited()) {
        lines.push("at its start: memory was highest when the range started, so earlier code caused it".to_owned());
    }
    lines
}
