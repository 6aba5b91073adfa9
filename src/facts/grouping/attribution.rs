//! Attribution of the memory at an instant to groups.

use crate::facts::code::sites::CodeOrigin;
use crate::facts::grouping::private_pools::PrivatePool;
use crate::facts::grouping::{GroupBy, Grouper, Groups, Holder, Key, Mean, RowHead, whole};
use crate::facts::training::{Category, Evidence};
use crate::replay::{History, Instant, Metric};
use crate::sorting::SortRows;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;

/// Bytes held by one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AttributionRow"))]
pub struct Row {
    /// The group.
    pub label: String,
    /// Bytes of the metric.
    pub bytes: u64,
    /// Blocks; segments if the metric is `reserved`.
    pub blocks: u64,
    /// Whether the label is inferred rather than recorded.
    pub inferred: bool,
    /// The stack with the most bytes in the group, innermost frame first; empty if groups do not depend on stacks.
    pub stack: Vec<String>,
    /// The evidence that assigns blocks to the group, the most bytes first. Left out unless rows represent categories.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Reason>,
    /// The category of most of its bytes, if requested.
    #[serde(skip)]
    pub category: Option<Category>,
}

/// Why blocks are in a category.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "EvidenceRow"))]
pub struct Reason {
    /// In words.
    #[serde(rename = "reason", serialize_with = "in_words")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub evidence: Evidence,
    /// Bytes that it decided about.
    pub bytes: u64,
    /// Blocks that it decided about.
    pub blocks: u64,
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn in_words<S: Serializer>(evidence: &Evidence, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(evidence.words())
}

/// Label of the row in which [`Attribution::keep_top`] combines the rest.
pub const OTHER: &str = "(other)";
/// The memory at an instant by group. Rows sum to the total, unless grouping is inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AttributionRows"))]
pub struct Attribution {
    /// What rows represent.
    pub by: GroupBy,
    /// Bytes of the metric at the instant. Rows sum to it, unless they are inclusive.
    pub total_bytes: u64,
    /// Whether rows overlap.
    pub inclusive: bool,
    /// Duration of the range whose mean rows show, in microseconds. Left out if they show an instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_over_us: Option<u64>,
    /// Groups, largest first.
    pub rows: Vec<Row>,
    /// Number of groups that [`Self::keep_top`] dropped.
    #[serde(skip)]
    pub dropped: usize,
    /// The user's lines that rows show as lines of a library, because its model runs below them and holds the most
    /// there. Left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub library_below: Vec<String>,
    /// Whether memory from before the recording may also be in rows of code: some of it has a stack.
    #[serde(skip)]
    pub has_older_lines: bool,
    /// The private pools of the device. Left out unless rows represent pools, or if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub private_pools: Vec<PrivatePool>,
}

/// The sums of one group.
#[derive(Default)]
struct Group {
    bytes: u64,
    blocks: u64,
    inferred: bool,
    /// Bytes by origin, to select the example of the row.
    origins: IndexMap<CodeOrigin, u64, RandomState>,
    /// Bytes and blocks by evidence.
    evidence: IndexMap<Evidence, (u64, u64)>,
    /// Bytes by category.
    purposes: IndexMap<Category, u64>,
}

impl Group {
    fn add(&mut self, origin: CodeOrigin, bytes: u64) {
        self.bytes = self.bytes.wrapping_add(bytes);
        self.blocks += 1;
        let origin_bytes = self.origins.entry(origin).or_default();
        *origin_bytes = origin_bytes.wrapping_add(bytes);
    }

    /// Counts the evidence that assigned a holder to the group.
    fn explain(&mut self, grouper: &Grouper<'_>, holder: &Holder) {
        self.inferred |= grouper.is_inferred(holder);
        if let Some(category) = grouper.purpose(holder) {
            let bytes = self.purposes.entry(category).or_default();
            *bytes = bytes.wrapping_add(holder.bytes);
        }
        if grouper.by == GroupBy::Category {
            let (bytes, blocks) = self.evidence.entry(grouper.decision(holder).evidence).or_default();
            *bytes = bytes.wrapping_add(holder.bytes);
            *blocks += 1;
        }
    }

    /// The category of most of its bytes.
    fn purpose(&self) -> Option<Category> {
        self.purposes
            .iter()
            .max_by_key(|&(&category, &bytes)| (bytes, Reverse(category)))
            .map(|(&category, _)| category)
    }

    fn reasons(&self) -> Vec<Reason> {
        let reason = |(&evidence, &(bytes, blocks)): (&Evidence, &(u64, u64))| Reason { evidence, bytes, blocks };
        let mut reasons: Vec<Reason> = self.evidence.iter().map(reason).collect();
        reasons.sort_rows_by_key(|reason| (Reverse(reason.bytes), reason.evidence));
        reasons
    }
}

impl Attribution {
    fn new(grouper: &Grouper<'_>, total_bytes: u64, rows: Vec<(Key, Row)>) -> Self {
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        let (library_below, private_pools) = (grouper.library_below(), grouper.private_pools());
        let has_older_lines = grouper.has_older_lines();
        let (by, inclusive) = (grouper.by, grouper.by.is_inclusive());
        Self { by, total_bytes, inclusive, rows, library_below, has_older_lines, private_pools, ..Self::default() }
    }

    /// Groups everything that counts for a metric at an instant.
    pub(crate) fn of(grouper: &Grouper<'_>, at: (Metric, Instant)) -> Self {
        let (total_bytes, rows) = grouped_rows(grouper, at);
        Self::new(grouper, total_bytes, rows)
    }

    /// Groups what a range holds on average, so that blocks count by bytes and lifetime.
    pub(crate) fn of_mean(grouper: &Grouper<'_>, metric: Metric, mean: &Mean<'_>) -> Self {
        let mut sums = Sums::new(grouper);
        Holder::visit(
            grouper.track,
            metric,
            |born, gone| mean.counts(born, gone),
            |holder| sums.add(&Holder { bytes: mean.weight(holder), ..*holder }),
        );
        let (total, mut rows) = sums.rows();
        let mut start = 0u64;
        for (_, row) in &mut rows {
            let mut part = start;
            for reason in &mut row.evidence {
                let weight = reason.bytes;
                (reason.bytes, part) = (whole(part, weight), part.wrapping_add(weight));
            }
            let weight = row.bytes;
            row.bytes = whole(start, weight);
            start = if grouper.by.is_inclusive() { 0 } else { start.wrapping_add(weight) };
        }
        Self { mean_over_us: Some(mean.micros), ..Self::new(grouper, whole(0, total), rows) }
    }

    /// Groups the allocations with these indexes, with the given bytes for each.
    pub(crate) fn of_blocks(
        grouper: &Grouper<'_>,
        metric: Metric,
        blocks: impl IntoIterator<Item = (usize, u64)>,
    ) -> Self {
        let mut sums = Sums::new(grouper);
        for (index, bytes) in blocks {
            if let Some(mut holder) = Holder::of_allocation(grouper.track, metric, index) {
                holder.bytes = bytes;
                sums.add(&holder);
            }
        }
        let (total_bytes, rows) = sums.rows();
        Self::new(grouper, total_bytes, rows)
    }

    /// Groups the allocations with these indexes.
    pub(crate) fn of_allocations(
        grouper: &Grouper<'_>,
        metric: Metric,
        allocations: impl Iterator<Item = usize>,
    ) -> Self {
        let mut sums = Sums::new(grouper);
        for index in allocations {
            if let Some(holder) = Holder::of_allocation(grouper.track, metric, index) {
                sums.add(&holder);
            }
        }
        let (total_bytes, rows) = sums.rows();
        Self::new(grouper, total_bytes, rows)
    }

    /// The same in a single row, labeled [`OTHER`].
    pub(crate) fn in_total(
        by: GroupBy,
        history: &History,
        metric: Metric,
        allocations: impl Iterator<Item = usize>,
    ) -> Self {
        let mut row = Row { label: OTHER.to_owned(), ..Row::default() };
        for allocation in allocations.filter_map(|index| history.allocations.get(index)) {
            let bytes = if metric == Metric::Requested { allocation.requested } else { allocation.size };
            row.bytes = row.bytes.wrapping_add(bytes);
            row.blocks += 1;
        }
        let rows = if row.blocks > 0 { vec![row.clone()] } else { Vec::new() };
        Self { by, total_bytes: row.bytes, inclusive: by.is_inclusive(), rows, ..Self::default() }
    }

    /// Keeps the `top` largest rows and combines the rest in one labeled [`OTHER`]. If rows are inclusive, they overlap, so
    /// the rest is dropped.
    pub fn keep_top(&mut self, top: usize) {
        if self.rows.len() <= top {
            return;
        }
        let rest = self.rows.split_off(top);
        if self.by.is_inclusive() {
            self.dropped = rest.len();
            return;
        }
        self.rows.push(Row {
            label: OTHER.to_owned(),
            bytes: rest.iter().fold(0, |sum: u64, row| sum.wrapping_add(row.bytes)),
            blocks: rest.iter().map(|row| row.blocks).sum(),
            inferred: rest.iter().any(|row| row.inferred),
            ..Row::default()
        });
    }
}

/// The rows of an attribution, largest first, with their keys, and the bytes of all blocks.
pub(crate) fn grouped_rows(grouper: &Grouper<'_>, (metric, instant): (Metric, Instant)) -> (u64, Vec<(Key, Row)>) {
    let mut sums = Sums::new(grouper);
    let counts = |born, gone| born <= instant && instant < gone;
    Holder::visit(grouper.track, metric, counts, |holder| sums.add(holder));
    sums.rows()
}

/// Bytes and blocks by group.
struct Sums<'g> {
    grouper: &'g Grouper<'g>,
    groups: Groups<'g>,
    by_group: Vec<Group>,
    total: u64,
}

impl<'g> Sums<'g> {
    fn new(grouper: &'g Grouper<'g>) -> Self {
        Self { grouper, groups: Groups::new(grouper), by_group: Vec::new(), total: 0 }
    }

    fn add(&mut self, holder: &Holder) {
        self.total = self.total.wrapping_add(holder.bytes);
        let grouper = self.grouper;
        let origin = grouper.origin(holder);
        for &group in self.groups.of(holder) {
            if group >= self.by_group.len() {
                self.by_group.resize_with(group + 1, Group::default);
            }
            self.by_group[group].add(origin, holder.bytes);
            self.by_group[group].explain(grouper, holder);
        }
    }

    fn rows(self) -> (u64, Vec<(Key, Row)>) {
        let heads =
            self.groups.heads(|group| self.by_group[group].origins.iter().map(|(&origin, &bytes)| (origin, bytes)));
        let row = |((key, head), sum): ((Key, RowHead), &Group)| {
            let RowHead { label, inferred, stack } = head;
            let inferred = inferred || sum.inferred;
            let (evidence, category) = (sum.reasons(), sum.purpose());
            (key, Row { label, bytes: sum.bytes, blocks: sum.blocks, inferred, stack, evidence, category })
        };
        let mut rows: Vec<(Key, Row)> = heads.into_iter().zip(&self.by_group).map(row).collect();
        rows.sort_rows_by(|(_, a), (_, b)| {
            b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)).then_with(|| a.stack.cmp(&b.stack))
        });
        (self.total, rows)
    }
}
