//! The sites that caused an exceeded budget.

use super::earlier::EarlierDevice;
use crate::analysis::diff::lives::LivesOfGroup;
use crate::analysis::diff::matching::{Name, match_rows};
use crate::analysis::leaks::LeakRow;
use crate::analysis::leaks::growth::Verdict;
use crate::facts::code::sites::Sites;
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::Row;
use crate::facts::segments::pinning::PinningRow;
use crate::model::StackId;
use crate::sorting::SortRows;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

/// The sites that caused an exceeded budget, the largest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Culprits {
    /// The meaning of their bytes.
    pub basis: Basis,
    pub sites: Vec<Culprit>,
    pub left_out: usize,
    /// Lines among the sites that run a library's model: other answers show the library's lines instead.
    pub library_below: Vec<String>,
}

/// The meaning of the bytes of [`Culprits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    #[default]
    Held,
    /// Held at the peak in excess of the baseline.
    Grown,
    /// In segments that were reserved for the site's requests.
    Reserved,
    /// Free bytes that the site's blocks keep from being released.
    Pinned,
    Leaked,
    /// Allocated between two instants, and still live at the second one.
    Born,
}

/// A site that caused an exceeded limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "CheckSite"))]
pub struct Culprit {
    /// The site: `file.py:line function`.
    pub label: String,
    pub bytes: u64,
    /// Whether the label is inferred rather than recorded.
    pub inferred: bool,
    /// Its file, as recorded; null if it is not Python code.
    pub file: Option<String>,
    /// Its line.
    pub line: Option<u64>,
    /// A stack of the site, innermost frame first.
    pub stack: Vec<String>,
}

impl Culprits {
    pub(super) fn holding(basis: Basis, rows: &[Row]) -> Self {
        Self::of(basis, rows.iter().map(|row| Culprit::new(&row.label, row.bytes, row.inferred, &row.stack)))
    }

    /// The sites that hold more than in the baseline; `None` if there are none, or if it is unknown.
    pub(super) fn grown(rows: &[Row], baseline: &EarlierDevice) -> Option<Self> {
        let before = baseline.sites.as_ref()?;
        let base: Vec<Name<'_>> = before.iter().map(|(label, _)| Name { label, stack: &[] }).collect();
        let new: Vec<Name<'_>> = rows.iter().map(|row| Name { label: &row.label, stack: &row.stack }).collect();
        let grown = match_rows(GroupBy::Site, &base, &new).into_iter().filter_map(|same| {
            let row = rows.get(same.new?)?;
            let bytes = same.base.and_then(|index| before.get(index)).map_or(0, |&(_, bytes)| bytes);
            let growth = row.bytes.checked_sub(bytes).filter(|&growth| growth > 0)?;
            Some(Culprit::new(&row.label, growth, row.inferred, &row.stack))
        });
        Some(Self::of(Basis::Grown, grown)).filter(|culprits| !culprits.sites.is_empty())
    }

    pub(super) fn pinning(rows: &[PinningRow]) -> Self {
        let site = |row: &PinningRow| Culprit::new(&row.label, row.pinned_free_bytes, row.inferred, &row.stack);
        Self::of(Basis::Pinned, rows.iter().map(site))
    }

    pub(super) fn leaking(rows: &[LeakRow]) -> Self {
        let leaks = rows.iter().filter(|row| row.verdict == Verdict::Leak);
        Self::of(Basis::Leaked, leaks.map(|row| Culprit::new(&row.label, row.rate.bytes, row.inferred, &row.stack)))
    }

    pub(super) fn left_behind(rows: &[LivesOfGroup]) -> Self {
        let born = rows.iter().filter(|row| row.lives.born.blocks > 0);
        let site = |row: &LivesOfGroup| {
            Culprit::new(&row.head.label, row.lives.born.bytes, row.head.inferred, &row.head.stack)
        };
        Self::of(Basis::Born, born.map(site))
    }

    fn of(basis: Basis, sites: impl Iterator<Item = Culprit>) -> Self {
        let mut sites: Vec<Culprit> = sites.collect();
        // Rows are in order of size; growth is not.
        sites.sort_rows_by_key(|site| Reverse(site.bytes));
        Self { basis, sites, left_out: 0, library_below: Vec::new() }
    }

    /// Keeps the first `top`, and finds the location of their code.
    pub(super) fn finish(&mut self, top: usize, locations: &Locations) {
        self.left_out = self.sites.len().saturating_sub(top);
        self.sites.truncate(top);
        for site in &mut self.sites {
            (site.file, site.line) = locations.get(&site.label).unzip();
        }
        self.library_below.retain(|line| self.sites.iter().any(|site| site.label.contains(line.as_str())));
    }
}

impl Culprit {
    fn new(label: &str, bytes: u64, inferred: bool, stack: &[String]) -> Self {
        Self { label: label.to_owned(), bytes, inferred, file: None, line: None, stack: stack.to_owned() }
    }
}

/// The file and line of each site's code, by its label in attributions. A label that several lines share has none.
pub(super) struct Locations(HashMap<String, Option<(String, u64)>>);

impl Locations {
    pub(super) fn of(sites: &Sites<'_>) -> Self {
        let mut locations = HashMap::new();
        for stack in (0..sites.snapshot().stacks.len() as u32).map(StackId) {
            let Some((file, line)) = sites.source_line(stack) else { continue };
            let here = Some((file.to_owned(), line));
            for label in [sites.site(stack), sites.site_with_path(stack)] {
                let known = locations.entry(label).or_insert_with(|| here.clone());
                if *known != here {
                    *known = None;
                }
            }
        }
        Self(locations)
    }

    fn get(&self, label: &str) -> Option<(String, u64)> {
        self.0.get(label).cloned().flatten()
    }
}
