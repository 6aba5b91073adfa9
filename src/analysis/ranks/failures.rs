//! Failed requests of several recordings by signature: which of them are the same failure, and which happened before.

use crate::wire::ranks::{FailureSignature, RankLine};
use indexmap::IndexMap;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameFailure {
    pub signature: FailureSignature,
    /// The rows that have such failures, as indexes into [`super::RanksReport::lines`], and how many they have.
    pub rows: Vec<(usize, u64)>,
    /// The rows of earlier runs that have such failures, in their order.
    pub earlier: Vec<FailedRow>,
}

/// A row with failed requests of one signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailedRow {
    /// Number of the rank.
    pub rank: u64,
    /// Its recording, as named where it was summarized.
    pub path: String,
    /// Number of these requests.
    pub requests: u64,
}

impl SameFailure {
    pub fn requests(&self) -> u64 {
        self.rows.iter().fold(0, |sum: u64, &(_, requests)| sum.saturating_add(requests))
    }
}

/// The failures of rows; those that occur on the most rows are first.
pub(super) fn same(lines: &[RankLine]) -> Vec<SameFailure> {
    let mut found: IndexMap<&str, SameFailure> = IndexMap::new();
    for (row, rank) in super::ranks(lines) {
        for failure in &rank.failures {
            let new = || SameFailure { signature: failure.signature.clone(), rows: Vec::new(), earlier: Vec::new() };
            found.entry(&failure.signature.id).or_insert_with(new).rows.push((row, failure.requests));
        }
    }
    let mut found: Vec<SameFailure> = found.into_values().collect();
    found.sort_by_key(|failure| std::cmp::Reverse((failure.rows.len(), failure.requests())));
    found
}

pub(super) fn add_earlier(failures: &mut [SameFailure], lines: &[RankLine]) {
    let places: IndexMap<String, usize> =
        failures.iter().enumerate().map(|(place, failure)| (failure.signature.id.clone(), place)).collect();
    for (_, rank) in super::ranks(lines) {
        for of in &rank.failures {
            if let Some(&place) = places.get(&of.signature.id) {
                let earlier = FailedRow { rank: rank.rank, path: rank.path.clone(), requests: of.requests };
                failures[place].earlier.push(earlier);
            }
        }
    }
}
