//! Which rows of two recordings are the same group.

use super::json;
use crate::analysis::diff::{Name, match_rows};
use crate::facts::grouping::GroupBy;
use crate::report::diff::moved;
use serde::{Deserialize, Serialize};

/// A row by its names.
#[derive(Deserialize)]
struct Named {
    label: String,
    /// Its stack, if rows represent stacks; innermost frame first.
    stack: Vec<String>,
}

/// The row of the first recording that a row of the second one matches, with what differs in their labels.
#[derive(Serialize)]
struct Partner {
    base: Option<usize>,
    was: String,
}

fn names(rows: &[Named]) -> Vec<Name<'_>> {
    rows.iter().map(|row| Name { label: &row.label, stack: &row.stack }).collect()
}

/// For each row of the second recording, its row in the first one, as `memviz diff` matches them. Rows are JSON.
///
/// # Errors
/// If the rows are no such JSON.
pub fn matched(by: GroupBy, base: &str, new: &str) -> serde_json::Result<String> {
    let rows = |text: &str| serde_json::from_str::<Vec<Named>>(text);
    let (base, new) = (rows(base)?, rows(new)?);
    let mut partners: Vec<Partner> = new.iter().map(|_| Partner { base: None, was: String::new() }).collect();
    for pair in match_rows(by, &names(&base), &names(&new)) {
        if let (Some(from), Some(to)) = (pair.base, pair.new) {
            let was = moved(&base[from].label, &new[to].label);
            partners[to] = Partner { base: Some(from), was };
        }
    }
    Ok(json(&partners))
}
