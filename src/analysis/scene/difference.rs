//! How memory changed over a range of instants: what was live before, what was allocated and freed, and what grew or shrank.

use super::grouped::Place;
use crate::facts::code::sites::CodeOrigin;
use crate::facts::device::Device;
use crate::facts::grouping::attribution::OTHER;
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Groups, Holder, Inference, RowHead};
use crate::replay::{Instant, Metric};
use crate::sorting::SortRows;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use std::cmp::Reverse;

/// Two instants of one device and what happened between them, group by group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    pub total: Flow,
    /// The largest change first, and among equal changes the group that allocated the most; the last one may contain
    /// all other groups, as [`OTHER`]. Rows sum to the total, unless groups overlap.
    pub rows: Vec<DifferenceRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DifferenceRow {
    pub label: String,
    pub inferred: bool,
    pub flow: Flow,
    /// The stack with the most bytes in the group, innermost frame first.
    pub stack: Vec<String>,
    /// Its rank among similar groups.
    pub place: Place,
}

/// Bytes and blocks; segments for [`Metric::Reserved`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub bytes: u64,
    pub blocks: u64,
}

/// Memory over a range of instants: live at the start plus allocated in the range equals freed in the range plus live
/// at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    pub start: Amount,
    /// Allocated after it, until the last instant.
    pub allocated: Amount,
    /// Freed after it, until the last instant, including blocks from before.
    pub freed: Amount,
    pub survived: Amount,
    pub end: Amount,
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.blocks += other.blocks;
    }
}

impl Flow {
    pub fn change(&self) -> i128 {
        i128::from(self.end.bytes) - i128::from(self.start.bytes)
    }

    /// Sums everything, without groups.
    pub(super) fn of(device: &Device<'_>, metric: Metric, range: (Instant, Instant)) -> Self {
        let mut total = Self::default();
        Holder::visit(device.track, metric, counts(range), |holder| total.add(&Self::of_block(holder, range)));
        total
    }

    fn of_block(holder: &Holder, (from, to): (Instant, Instant)) -> Self {
        let one = Amount { bytes: holder.bytes, blocks: 1 };
        let when = |is_so: bool| if is_so { one } else { Amount::default() };
        let (is_new, is_gone) = (holder.born > from, holder.gone <= to);
        Self {
            start: when(!is_new),
            allocated: when(is_new),
            freed: when(is_gone),
            survived: when(is_new && !is_gone),
            end: when(!is_gone),
        }
    }

    fn add(&mut self, other: &Self) {
        self.start.add(other.start);
        self.allocated.add(other.allocated);
        self.freed.add(other.freed);
        self.survived.add(other.survived);
        self.end.add(other.end);
    }
}

#[derive(Default)]
struct Group {
    flow: Flow,
    inferred: bool,
    /// Bytes by origin, to pick the row's example.
    origins: IndexMap<CodeOrigin, u64, RandomState>,
}

/// Whether a block with this lifetime is live at some instant of a range.
fn counts((from, to): (Instant, Instant)) -> impl Fn(Instant, Instant) -> bool {
    move |born, gone| born <= to && from < gone
}

impl Difference {
    /// Sums all blocks that are live at some instant of a range, in one pass.
    pub(super) fn of(
        device: &Device<'_>,
        metric: Metric,
        by: GroupBy,
        range: (Instant, Instant),
        top: Option<usize>,
    ) -> Self {
        let filter = Filter::default();
        let grouper = Grouper::new(device, device.deep_sites(), &filter, by).inferring(device, Inference::On, metric);
        let grouper = grouper.splitting_before(device, metric);
        let mut groups = Groups::new(&grouper);
        let mut sums: Vec<Group> = Vec::new();
        let mut total = Flow::default();
        Holder::visit(device.track, metric, counts(range), |holder| {
            let flow = Flow::of_block(holder, range);
            total.add(&flow);
            let (origin, inferred) = (grouper.origin(holder), grouper.is_inferred(holder));
            for &group in groups.of(holder) {
                if group >= sums.len() {
                    sums.resize_with(group + 1, Group::default);
                }
                let sum = &mut sums[group];
                sum.flow.add(&flow);
                sum.inferred |= inferred;
                let bytes = sum.origins.entry(origin).or_default();
                *bytes = bytes.wrapping_add(holder.bytes);
            }
        });
        let heads = groups.heads(|group| sums[group].origins.iter().map(|(&origin, &bytes)| (origin, bytes)));
        let row = |((_, RowHead { label, inferred, stack }), sum): (_, &Group)| {
            let inferred = inferred || sum.inferred;
            DifferenceRow { label, inferred, flow: sum.flow, stack, ..DifferenceRow::default() }
        };
        let mut rows: Vec<DifferenceRow> = heads.into_iter().zip(&sums).map(row).collect();
        let rank = |DifferenceRow { flow, .. }: &DifferenceRow| {
            Reverse((flow.change().unsigned_abs(), flow.allocated.bytes, flow.end.bytes))
        };
        rows.sort_rows_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| (&a.label, &a.stack).cmp(&(&b.label, &b.stack))));
        if let Some(top) = top.filter(|&top| rows.len() > top) {
            let rest = rows.split_off(top);
            // Overlapping rows have no sum.
            if !by.is_inclusive() {
                rows.push(sum(&rest));
            }
        }
        Self { total, rows }
    }
}

fn sum(rows: &[DifferenceRow]) -> DifferenceRow {
    let mut sum = DifferenceRow { label: OTHER.to_owned(), ..DifferenceRow::default() };
    for row in rows {
        sum.flow.add(&row.flow);
        sum.inferred |= row.inferred;
    }
    sum
}
