//! What grew between two instants.

use super::{color, json};
use crate::analysis::scene::{Difference, DifferenceRow};
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
    from_bytes: u64,
    to_bytes: u64,
    bytes: i128,
    rows: Vec<Row<'a>>,
    /// What is known of private pools, where rows stand for pools.
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Row<'a> {
    label: &'a str,
    light: Rgb,
    dark: Rgb,
    inferred: bool,
    from_bytes: u64,
    to_bytes: u64,
    bytes: i128,
    from_blocks: u64,
    to_blocks: u64,
    stack: &'a [String],
}

/// The groups that became more or less, the largest change first.
pub fn difference(
    device: &Device<'_>,
    metric: Metric,
    by: GroupBy,
    (from, to): (Instant, Instant),
    difference: &Difference,
) -> String {
    let (before, after) = difference.totals;
    let pools = (by == GroupBy::Pool).then(|| PrivatePools::of(device.track, device.sites()).all());
    json(&Answer {
        by,
        metric,
        from,
        to,
        inclusive: by.is_inclusive(),
        from_bytes: before,
        to_bytes: after,
        bytes: i128::from(after) - i128::from(before),
        rows: difference.rows.iter().map(|row| Row::of(row, by)).collect(),
        notes: pools.unwrap_or_default().iter().map(notes::private_pool).collect(),
    })
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
            from_bytes: row.bytes.0,
            to_bytes: row.bytes.1,
            bytes: row.change(),
            from_blocks: row.blocks.0,
            to_blocks: row.blocks.1,
            stack: &row.stack,
        }
    }
}
