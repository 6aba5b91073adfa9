//! `memviz fix` for people and for `git apply`: what it says about each fix is a comment, which `git apply` and `patch` ignore.

use super::{unified, words};
use crate::analysis::fix::FixReport;
use crate::report::Source;
use crate::report::common::document::Document;
use crate::report::common::notes;
use crate::report::safe;

pub(crate) fn document(source: Source<'_>, report: &FixReport) -> Document {
    let mut document = Document::about("Fixes for", source.path);
    let notes = notes::file(source.recording).into_iter().map(|note| note.text);
    let comments = notes.chain(words::summary(report)).map(|line| format!("# {}", safe(&line)));
    let diff = unified::diff(report);
    document.diff(comments.chain(diff.split_terminator('\n').map(str::to_owned)).collect());
    document
}
