//! Changes to files as a unified diff.

use crate::analysis::fix::{ChangedFile, FixReport, LineChange};
use std::ops::Range;

/// Unchanged lines around each change.
const CONTEXT: usize = 3;

/// All changes, for `git apply` or `patch -p1`.
pub(super) fn diff(report: &FixReport) -> String {
    report.files.iter().map(of_file).collect()
}

fn of_file(file: &ChangedFile) -> String {
    let path = &file.file.path;
    // As git does: otherwise, a name would end at its first space.
    let end = if path.contains(' ') { "\t" } else { "" };
    let lines: Vec<&str> = file.file.text.split_inclusive('\n').collect();
    let mut text = format!("--- a/{path}{end}\n+++ b/{path}{end}\n");
    // How many lines the hunks before have added, and removed.
    let (mut added, mut removed) = (0, 0);
    for hunk in file.changes.chunk_by(|one, next| next.lines.start - one.lines.end <= 2 * CONTEXT) {
        let (body, range) = body(hunk, &lines);
        let counted = |marks: [char; 2]| body.lines().filter(|line| line.starts_with(marks)).count();
        let (old, new) = (counted([' ', '-']), counted([' ', '+']));
        let start = |lines: usize, count: usize| lines + usize::from(count > 0);
        text += &format!(
            "@@ -{},{old} +{},{new} @@\n{body}",
            start(range.start, old),
            start(range.start + added - removed, new)
        );
        (added, removed) = (added + new, removed + old);
    }
    text
}

/// The lines of a hunk with their marks, and its place in the file.
fn body(hunk: &[LineChange], lines: &[&str]) -> (String, Range<usize>) {
    let first = hunk.first().map_or(0, |change| change.lines.start);
    let last = hunk.last().map_or(0, |change| change.lines.end);
    let range = first.saturating_sub(CONTEXT)..(last + CONTEXT).min(lines.len());
    let mut text = String::new();
    let mut mark = |mark: char, lines: &[&str]| {
        for line in lines {
            text.push(mark);
            text += line;
            if !line.ends_with('\n') {
                text += "\n\\ No newline at end of file\n";
            }
        }
    };
    let mut at = range.start;
    for change in hunk {
        mark(' ', &lines[at..change.lines.start]);
        mark('-', &lines[change.lines.clone()]);
        mark('+', &change.new.split_inclusive('\n').collect::<Vec<_>>());
        at = change.lines.end;
    }
    mark(' ', &lines[at..range.end]);
    (text, range)
}
