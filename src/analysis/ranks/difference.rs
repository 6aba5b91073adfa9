//! The memory that one rank holds at its peak and another does not.

use crate::facts::grouping::attribution::OTHER;
use crate::replay::Bound;
use crate::sorting::SortRows;
use crate::wire::ranks::RankSummary;
use indexmap::IndexMap;
use serde::Serialize;
use std::collections::HashSet;

/// A site that differs. If a rank does not list the site, its other sites may include some of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "OutlierRow"))]
pub struct DifferenceRow {
    /// The site.
    pub label: String,
    /// Bytes on the rank; null if its summary does not list the site.
    pub bytes: Option<u64>,
    /// Bytes on the reference; null if its summary does not list the site.
    pub reference_bytes: Option<u64>,
    /// How many more bytes the rank holds. A site that is not listed counts as 0 here, and is included in the rest below.
    pub delta_bytes: i128,
    /// Which bound the delta is as a result, if a site is not listed. Left out if it is exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Whether the label is inferred on either of them. Left out if false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inferred: bool,
}

/// The memory that a rank holds at its peak, compared with another rank. The rows sum to the total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub reference: usize,
    pub delta_bytes: i128,
    /// Sites that differ, the largest difference first; the rest is last.
    pub rows: Vec<DifferenceRow>,
}

impl Difference {
    /// Compares a rank with a reference, which is in row `row`.
    pub fn between(rank: &RankSummary, reference: &RankSummary, row: usize) -> Self {
        let (left, right) = (Listed::of(rank), Listed::of(reference));
        let delta_bytes = i128::from(rank.total_bytes) - i128::from(reference.total_bytes);
        let labels = left.rows.keys().chain(right.rows.keys().filter(|label| !left.rows.contains_key(*label)));
        let mut rows: Vec<DifferenceRow> = labels
            .map(|&label| {
                let (bytes, reference_bytes) = (left.bytes(label), right.bytes(label));
                let bound = match (bytes, reference_bytes) {
                    (Some(_), None) => Some(Bound::Upper),
                    (None, Some(_)) => Some(Bound::Lower),
                    _ => None,
                };
                let value = |bytes: Option<u64>| i128::from(bytes.unwrap_or(0));
                let delta_bytes = value(bytes) - value(reference_bytes);
                let inferred = left.is_inferred(label) || right.is_inferred(label);
                DifferenceRow { label: label.to_owned(), bytes, reference_bytes, delta_bytes, bound, inferred }
            })
            .filter(|row| row.delta_bytes != 0)
            .collect();
        rows.sort_rows_by(|a, b| {
            b.delta_bytes.unsigned_abs().cmp(&a.delta_bytes.unsigned_abs()).then_with(|| a.label.cmp(&b.label))
        });
        rows.extend(rest(&rows, &left, &right, delta_bytes));
        Self { reference: row, delta_bytes, rows }
    }
}

/// The part of the difference outside of the rows.
fn rest(rows: &[DifferenceRow], left: &Listed<'_>, right: &Listed<'_>, whole: i128) -> Option<DifferenceRow> {
    let delta_bytes = whole - rows.iter().map(|row| row.delta_bytes).sum::<i128>();
    let any = |bound| rows.iter().any(|row| row.bound == Some(bound));
    // Bytes that a row may count too much are missing here.
    let bound = match (any(Bound::Upper), any(Bound::Lower)) {
        (false, false) => None,
        (true, false) => Some(Bound::Lower),
        (false, true) => Some(Bound::Upper),
        (true, true) => Some(Bound::Unknown),
    };
    let row = DifferenceRow {
        label: OTHER.to_owned(),
        bytes: left.other,
        reference_bytes: right.other,
        delta_bytes,
        bound,
        inferred: left.is_inferred(OTHER) || right.is_inferred(OTHER),
    };
    (delta_bytes != 0 || bound.is_some()).then_some(row)
}

struct Listed<'r> {
    rows: IndexMap<&'r str, u64>,
    /// Bytes of the sites that are not listed; `None` if all are listed.
    other: Option<u64>,
    inferred: HashSet<&'r str>,
}

impl<'r> Listed<'r> {
    fn of(rank: &'r RankSummary) -> Self {
        let inferred = rank.top.iter().filter(|row| row.inferred).map(|row| row.label.as_str()).collect();
        let mut listed = Self { rows: IndexMap::new(), other: None, inferred };
        for row in &rank.top {
            let sum = if row.label == OTHER {
                listed.other.get_or_insert(0)
            } else {
                listed.rows.entry(row.label.as_str()).or_default()
            };
            *sum = sum.wrapping_add(row.bytes);
        }
        listed
    }

    fn is_inferred(&self, label: &str) -> bool {
        self.inferred.contains(label)
    }

    fn bytes(&self, label: &str) -> Option<u64> {
        self.rows.get(label).copied().or_else(|| self.other.is_none().then_some(0))
    }
}
