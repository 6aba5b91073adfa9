//! How to read the rows of an answer.

use super::text::safe;
use crate::analysis::fragmentation::Stranded;
use crate::facts::grouping::attribution::Attribution;
use crate::facts::grouping::private_pools::{PoolEvidence, PrivatePool};
use crate::facts::grouping::{BASELINE, GroupBy};
use crate::model::bytes::Bytes;

/// How to read the rows, if this is not obvious.
pub fn grouping(by: GroupBy) -> Option<&'static str> {
    by.is_inclusive().then_some(
        "rows overlap: a block is counted in every function on its stack; libraries that start the program are left out",
    )
}

/// Which lines run a library's model, as the start of a sentence; `None` if there are none.
fn run_library(lines: &[String]) -> Option<String> {
    let run = if lines.len() == 1 { "runs" } else { "run" };
    (!lines.is_empty()).then(|| format!("{} {run} a library's model", lines.join(", ")))
}

/// A note that rows name a library's lines instead of the user's line.
pub fn library_below(attribution: &Attribution) -> Option<String> {
    run_library(&attribution.library_below)
        .map(|lines_run| format!("{lines_run}, so rows show the library's lines; add --own '' to see your own"))
}

/// A note that not all memory from before the recording is in the row with that label.
pub fn older_lines(attribution: &Attribution) -> Option<&'static str> {
    let has_row = attribution.rows.iter().any(|row| row.label == BASELINE);
    (attribution.has_older_lines && has_row)
        .then_some("(before the recording) counts only memory without a stack; other memory from before the recording is in the rows of the code that allocated it")
}

/// Lines that run a library's model, in answers that name these lines.
pub fn other_lines(library_below: &[String]) -> Option<String> {
    run_library(library_below).map(|lines_run| format!("{lines_run}; memviz peak shows the library's lines instead"))
}

pub fn stranded(stranded: &Stranded) -> String {
    let Stranded { stream, pool_id: (first, second), free_bytes: free, reserved, first_used } = stranded;
    let used = first_used.as_ref().map(|site| format!(", first used at {}", safe(site))).unwrap_or_default();
    let (place, other) = match (first, second) {
        (0, 0) => (format!("on stream {stream}"), "stream"),
        _ => (format!("in private pool ({first}, {second})"), "pool"),
    };
    let (free, reserved) = (Bytes(*free), Bytes(*reserved));
    format!("{free} of {reserved} reserved is free {place}{used}; no other {other} can use it")
}

pub fn private_pools(attribution: &Attribution) -> Vec<String> {
    attribution.private_pools.iter().map(private_pool).collect()
}

/// A line with the use of a private pool, the evidence and the line that first used it.
pub fn private_pool(pool: &PrivatePool) -> String {
    let PrivatePool { pool_id: (first, second), kind, evidence, first_used } = pool;
    let evidence = match evidence {
        PoolEvidence::Id => "its ID",
        PoolEvidence::Stack => "the stacks of its requests",
        PoolEvidence::Stream => "its memory on the default stream, where no CUDA graph can be captured",
    };
    let used = first_used.as_ref().map(|site| format!(", first used at {}", safe(site))).unwrap_or_default();
    format!("private pool ({first}, {second}): {}, inferred from {evidence}{used}", kind.words())
}

/// Why backward passes have no stack, and what would record one.
pub const NO_STACKS: &str = "(no stack): backward passes have no Python frames; stacks=\"all\" records C++ frames";

/// The meaning of the star after a site, in commands without `--no-infer`.
pub const INFERRED_SITE: &str = "* inferred: backward has no Python frames";

/// The meaning of the star after a label.
pub fn inferred(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Category => "* inferred from stacks, phases, lifetimes and sizes",
        GroupBy::Phase => "* inferred from stacks and the order of entries",
        GroupBy::ModulePath => "* inferred: calls are numbered in the order in which they occur",
        _ => "* inferred: backward has no Python frames; --no-infer turns this off",
    }
}

/// The same below rows with a star. Categories have no stars: nearly all of them are inferred.
pub fn inferred_rows(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Category => "categories are inferred from stacks, phases, lifetimes and sizes",
        by => inferred(by),
    }
}
