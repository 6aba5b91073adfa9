//! How memory changed over a range of instants.

use super::{color, json};
use crate::analysis::scene::{Difference, DifferenceRow, Flow};
use crate::facts::device::Device;
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::private_pools::PrivatePools;
use crate::facts::training::Category;
use crate::replay::{Instant, Metric};
use crate::report::common::notes;
use crate::report::common::palette::Rgb;
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

#[derive(Serialize)]
struct Row<'a> {
    label: &'a str,
    light: Rgb,
    dark: Rgb,
    inferred: bool,
    #[serde(flatten)]
    sums: Sums,
    stack: &'a [String],
}

/// Bytes and blocks at both ends and in between.
#[derive(Serialize)]
struct Sums {
    from_bytes: u64,
    allocated_bytes: u64,
    freed_bytes: u64,
    survived_bytes: u64,
    to_bytes: u64,
    bytes: i128,
    from_blocks: u64,
    allocated_blocks: u64,
    freed_blocks: u64,
    survived_blocks: u64,
    to_blocks: u64,
}

impl From<&Flow> for Sums {
    fn from(flow: &Flow) -> Self {
        let Flow { start, allocated, freed, survived, end } = flow;
        Self {
            from_bytes: start.bytes,
            allocated_bytes: allocated.bytes,
            freed_bytes: freed.bytes,
            survived_bytes: survived.bytes,
            to_bytes: end.bytes,
            bytes: flow.change(),
            from_blocks: start.blocks,
            allocated_blocks: allocated.blocks,
            freed_blocks: freed.blocks,
            survived_blocks: survived.blocks,
            to_blocks: end.blocks,
        }
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
        total: Sums::from(&difference.total),
        rows: difference.rows.iter().map(|row| Row::of(row, by)).collect(),
        notes: pools.unwrap_or_default().iter().map(notes::private_pool).collect(),
    })
}

/// The whole range as one sum.
pub fn flow(flow: &Flow) -> String {
    json(&Sums::from(flow))
}

impl<'a> Row<'a> {
    fn of(row: &'a DifferenceRow, by: GroupBy) -> Self {
        let category = Category::ALL.into_iter().find(|category| category.name() == row.label);
        let color = color(&row.label, category.filter(|_| by == GroupBy::Category), row.place);
        Self {
            label: &row.label,
            light: color.light,
            dark: color.dark,
            inferred: row.inferred,
            sums: Sums::from(&row.flow),
            stack: &row.stack,
        }
    }
}
