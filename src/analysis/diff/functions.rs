//! Lines of a snapshot as the functions of a profiler trace.
//!
//! A trace names a Python function by the line of its `def`, not by the line that allocates. So a snapshot's row belongs to
//! the last function with its name that starts at or before its line.

use super::matching::{CodePlace, match_files};
use super::rows::SideRow;
use indexmap::{IndexMap, IndexSet};
use std::collections::BTreeMap;

/// Adds up the rows of a snapshot that are lines of a function which the trace has a row for, and names them as the trace
/// does. Other rows stay as they are.
pub(super) fn fold(lines: &mut Vec<SideRow>, functions: &[SideRow]) {
    let files = |rows: &[SideRow]| -> IndexSet<String> {
        rows.iter().filter_map(|row| CodePlace::of_line(&row.label)).map(|place| place.file.to_owned()).collect()
    };
    let files = match_files(&files(functions), &files(lines));
    // The start lines of all functions with one name, in order.
    let mut beginnings: IndexMap<(&str, &str, bool), BTreeMap<u64, &str>> = IndexMap::new();
    for label in functions.iter().map(|row| row.label.as_str()) {
        if let Some(place) = CodePlace::of_line(label) {
            let key = (place.file, place.function, place.backward);
            beginnings.entry(key).or_default().insert(place.line, label);
        }
    }
    let function = |label: &str| -> Option<String> {
        let place = CodePlace::of_line(label)?;
        let file = files.get(place.file)?;
        let beginnings = beginnings.get(&(file.as_str(), place.function, place.backward))?;
        beginnings.range(..=place.line).next_back().map(|(_, &label)| label.to_owned())
    };
    let mut folded: IndexMap<String, SideRow> = IndexMap::new();
    // The largest row comes first, and its stack is used.
    for row in lines.drain(..) {
        let label = function(&row.label).unwrap_or_else(|| row.label.clone());
        let sum = folded.entry(label).or_insert_with_key(|label| SideRow {
            label: label.clone(),
            stack: row.stack.clone(),
            ..SideRow::default()
        });
        sum.bytes = sum.bytes.wrapping_add(row.bytes);
        sum.blocks += row.blocks;
        sum.inferred |= row.inferred;
    }
    lines.extend(folded.into_values());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&str, i64)]) -> Vec<SideRow> {
        let row =
            |&(label, bytes): &(&str, i64)| SideRow { label: label.to_owned(), bytes, blocks: 1, ..SideRow::default() };
        rows.iter().map(row).collect()
    }

    #[test]
    fn lines_count_in_the_function_they_are_in() {
        let mut lines = rows(&[
            ("m.py:45 forward", 100),
            ("(no stack)", 50),
            ("m.py:28 forward", 20),
            ("m.py:26 forward", 10),
            ("m.py:3 forward", 5),
            ("other.py:26 forward", 1),
        ]);
        let functions = rows(&[("pkg/m.py:25 forward", 7), ("pkg/m.py:41 forward", 7), ("pkg/m.py:1 init", 7)]);
        fold(&mut lines, &functions);
        let found: Vec<(&str, i64, u64)> =
            lines.iter().map(|row| (row.label.as_str(), row.bytes, row.blocks)).collect();
        let expected = [
            ("pkg/m.py:41 forward", 100, 1),
            ("(no stack)", 50, 1),
            ("pkg/m.py:25 forward", 30, 2),
            ("m.py:3 forward", 5, 1),
            ("other.py:26 forward", 1, 1),
        ];
        assert_eq!(found, expected);
    }
}
