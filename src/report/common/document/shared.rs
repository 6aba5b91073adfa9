//! Tables that several answers have.

use super::{Cell, Column, Reader, Table, Tone};
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::Row;
use crate::facts::training::Category;
use crate::replay::{Counters, Metric};
use crate::report::common::text::{BAR, bar};
use crate::report::common::words::{self, starred};
use crate::report::percent;

/// Screens narrower than this show no bars.
const BAR_FROM: usize = 72;
/// Screens narrower than this show no block counts.
const BLOCKS_FROM: usize = 56;
/// The column at which the frames below a row start.
const FRAMES: usize = 23;

/// The four counters, one line each, at the named instants; 47 columns wide for three instants.
pub(crate) fn counters(instants: &[(&str, Counters)]) -> Table {
    let columns = instants.iter().map(|(name, _)| Column::right(name.len().max(11), name));
    let mut table = Table::new([Column::left(9, "")].into_iter().chain(columns)).head(Some(Tone::Plain)).indent(2);
    // CPU memory and memory timelines have none.
    let is_used = instants.iter().any(|(_, values)| values.allocated > 0);
    let no_reserved = instants.iter().all(|(_, values)| values.reserved == 0) && is_used;
    for metric in Metric::ALL {
        let shown = |bytes| if no_reserved && metric == Metric::Reserved { "-".into() } else { Cell::size(bytes) };
        let values = instants.iter().map(|(_, values)| shown(values.get(metric)));
        let mut cells: Vec<Cell> = [metric.name().into()].into_iter().chain(values).collect();
        let last = cells.pop().unwrap_or_default();
        table.row(cells, last);
    }
    table
}

/// Why more is requested than allocated at one of these instants, if it is.
pub(crate) fn pending(instants: &[(&str, Counters)]) -> Option<&'static str> {
    let is_pending = |values: &Counters| values.requested > values.allocated && values.active > values.allocated;
    instants
        .iter()
        .any(|(_, values)| is_pending(values))
        .then_some("requested and active include blocks whose free is still pending; allocated does not")
}

/// The label of a row of a table by `name`: categories as sentences call them, everything else as the program does.
pub(crate) fn label(name: &str, label: &str, inferred: bool) -> Cell {
    if name == GroupBy::Category.name() {
        // That nothing is known is not inferred.
        Cell::from(starred(words::category(label), inferred && label != Category::Unknown.name()))
    } else {
        Cell::code(starred(label, inferred))
    }
}

/// Shows at most this many of the parts of a total on a screen, and how many others there are, with their sum unless they overlap.
pub(crate) fn shortened(table: &mut Table, rows: &[Row], total: Option<u64>, most: usize) {
    // A line that counts one row could be that row.
    if rows.len() <= most.saturating_add(1) {
        return;
    }
    table.rows[most..].iter_mut().for_each(|row| row.reader = Reader::OfAll);
    let others = &rows[most..];
    let bytes = others.iter().map(|row| row.bytes).fold(0, u64::wrapping_add);
    let cells = |total| [Cell::size(bytes), format!("{:.1}%", percent(bytes, total)).into()];
    let [bytes, share] = total.map(cells).unwrap_or_default();
    let label = Cell::from(more_rows(others.len())).toned(Tone::Dim);
    table.row([bytes, share, Cell::default(), Cell::default()], label).reader = Reader::OfScreen;
}

/// How many rows a screen does not show.
pub(crate) fn more_rows(rows: usize) -> String {
    format!("{}; --all shows them", words::count(rows as u64, "more row"))
}

/// Parts of a total, each with its share and a bar, and with its stack if requested.
pub(crate) fn attributed<'r>(
    name: &str,
    rows: impl Iterator<Item = &'r Row> + Clone,
    total: u64,
    with_stacks: bool,
) -> Table {
    let mut table = Table::new([
        Column::right(11, "bytes"),
        Column::right(7, "share"),
        Column::left(BAR, "").gap(2).from(BAR_FROM).on_screens(),
        Column::right(7, "blocks").gap(2).from(BLOCKS_FROM),
        Column::label(name),
    ])
    .below(FRAMES);
    let largest = rows.clone().map(|row| row.bytes).max().unwrap_or(0);
    for row in rows {
        let share = format!("{:.1}%", percent(row.bytes, total));
        let blocks = if row.blocks == 0 { String::new() } else { format!("{}x", row.blocks) };
        let cells = [Cell::size(row.bytes), share.into(), bar(row.bytes, largest).into(), blocks.into()];
        let shown = table.row(cells, label(name, &row.label, row.inferred));
        shown.cell(2, row.category.map_or(Tone::Tint, Tone::Hued));
        if with_stacks {
            shown.below(&row.stack);
        }
    }
    table
}
