//! How memory changed over a range of instants.

use super::{color, json};
use crate::analysis::scene::{Difference, DifferenceRow, Flow};
use crate::facts::device::Device;
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::private_pools::PrivatePools;
use crate::facts::training::Category;
use crate::replay::{Instant, Metric};
use crate::report::common::json::keys;
use crate::report::common::notes;
use crate::report::common::palette::Rgb;
use crate::report::common::words;
use serde::Serialize;

#[derive(Serialize)]
struct Answer<'a> {
    by: GroupBy,
    metric: Metric,
    from: Instant,
    to: Instant,
    inclusive: bool,
    #[serde(flatten)]
    total: Sums,
    rows: Vec<Row<'a>>,
    /// What is known about private pools, if rows represent pools.
    notes: Vec<String>,
}

keys! {

    struct Row<'a>(row: &'a DifferenceRow, by: GroupBy) {
        let category = Category::ALL.into_iter().find(|category| category.name() == row.label);
        let category = category.filter(|_| by == GroupBy::Category);
        let color = color(by, &row.label, category, row.place);
        pub label: &'a str = &row.label,
        pub light: Rgb = color.light,
        pub dark: Rgb = color.dark,
        pub inferred: bool = row.inferred,
        pub purpose: Option<&'static str> = category.or(row.place.category).map(|category| words::category(category.name())),
        #[serde(flatten)]
        pub sums: Sums = Sums::of(&row.flow),
        pub stack: &'a [String] = &row.stack,
    }
}

keys! {
    /// Bytes and blocks at both ends and in between.
    struct Sums(flow: &Flow) {
        let Flow { start, allocated, freed, survived, end } = flow;
        pub from_bytes: u64 = start.bytes,
        pub allocated_bytes: u64 = allocated.bytes,
        pub freed_bytes: u64 = freed.bytes,
        pub survived_bytes: u64 = survived.bytes,
        pub to_bytes: u64 = end.bytes,
        pub bytes: i128 = flow.change(),
        pub from_blocks: u64 = start.blocks,
        pub allocated_blocks: u64 = allocated.blocks,
        pub freed_blocks: u64 = freed.blocks,
        pub survived_blocks: u64 = survived.blocks,
        pub to_blocks: u64 = end.blocks,
    }
}

/// The groups in the range, the largest change first.
pub fn difference(
    device: &Device<'_>,
    metric: Metric,
    by: GroupBy,
    (from, to): (Instant, Instant),
    difference: &Difference,
) -> String {
    let pools = (by == GroupBy::Pool).then(|| PrivatePools::of(device.track, device.sites()).all());
    json(&Answer {
        by,
        metric,
        from,
        to,
        inclusive: by.is_inclusive(),
        total: Sums::of(&difference.total),
        rows: difference.rows.iter().map(|row| Row::of(row, by)).collect(),
        notes: pools.unwrap_or_default().iter().map(notes::private_pool).collect(),
    })
}

/// The whole range as one sum.
pub fn flow(flow: &Flow) -> String {
    json(&Sums::of(flow))
}
