//! The blocks that keep free memory from being released to the driver.
//!
//! The allocator releases memory in units: a regular segment as a whole, an expandable segment page by page. One live block
//! keeps its whole unit, and so keeps the free bytes in it reserved (*pins* them): only later requests of the same pool and
//! stream can use them.

use super::layout::{Layout, Piece, SegmentLayout};
use crate::facts::code::sites::CodeOrigin;
use crate::facts::grouping::attribution::OTHER;
use crate::facts::grouping::{Grouper, Groups, RowHead};
use crate::replay::History;
use crate::sorting::SortRows;
use indexmap::IndexMap;
use std::collections::HashMap;
use std::iter;

/// The free bytes that the live blocks of one group pin: keep reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinningRow {
    /// The group.
    pub label: String,
    /// Bytes of its blocks that pin something.
    pub bytes: u64,
    /// Number of these blocks.
    pub blocks: u64,
    /// Free bytes attributed to the group. If several blocks pin the same unit, each is attributed an equal part of it, since
    /// each alone would be enough to keep it.
    pub pinned_free_bytes: u64,
    /// Free bytes in units that only this group's blocks pin: freeing them makes these bytes releasable.
    pub alone_free_bytes: u64,
    /// The most bytes attributed to a single block.
    pub worst_block_bytes: u64,
    /// Whether the label is inferred rather than recorded.
    pub inferred: bool,
    /// The stack with the most attributed bytes in the group, innermost frame first; empty if groups do not depend on stacks.
    pub stack: Vec<String>,
}

/// Free bytes that live blocks pin, by group. Rows sum to the total, unless groups overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinning {
    /// Their total.
    pub pinned_free_bytes: u64,
    /// Number of blocks that pin them.
    pub blocks: u64,
    /// Groups, the largest first.
    pub rows: Vec<PinningRow>,
}

/// Calls `visit` for every unit of a segment that live blocks keep although it has free bytes, with those bytes and the
/// blocks (indexes into [`History::allocations`], in address order).
///
/// Takes time linear in the number of blocks, however many pages there are: pages inside a block have no free bytes, and no
/// block keeps the pages inside a free block.
pub(crate) fn pinned_units(layout: &Layout, segment: &SegmentLayout, mut visit: impl FnMut(u64, &[usize])) {
    let unit_size = segment.unit.max(1);
    let mut unit = 0;
    let mut used = 0;
    let mut blocks: Vec<usize> = Vec::new();
    let mut close = |unit: u64, used: u64, blocks: &[usize]| {
        let size = unit_size.min(segment.size - unit * unit_size);
        if size > used && !blocks.is_empty() {
            visit(size - used, blocks);
        }
    };
    for &Piece { addr, size, allocation, .. } in layout.pieces_of(segment) {
        let Some(allocation) = allocation else { continue };
        let (from, to) = (addr - segment.addr, addr - segment.addr + size);
        let (first, last) = (from / unit_size, to.saturating_sub(1).max(from) / unit_size);
        for touched in iter::once(first).chain((first != last).then_some(last)) {
            if touched != unit {
                close(unit, used, &blocks);
                (unit, used) = (touched, 0);
                blocks.clear();
            }
            let start = touched * unit_size;
            used += to.min(start.saturating_add(unit_size)) - from.max(start);
            blocks.push(allocation);
        }
    }
    close(unit, used, &blocks);
}

/// Free bytes of a unit in equal parts, one for each of its blocks.
fn shares(free: u64, blocks: &[usize]) -> impl Iterator<Item = (usize, u64)> {
    let (share, left) = (free / blocks.len() as u64, free % blocks.len() as u64);
    (0..).zip(blocks).map(move |(place, &block)| (block, share + u64::from(place < left)))
}

/// The free bytes of a segment that are attributed to each of its blocks: see [`PinningRow::pinned_free_bytes`].
pub fn charged(layout: &Layout, segment: &SegmentLayout) -> HashMap<usize, u64> {
    let mut charged = HashMap::new();
    pinned_units(layout, segment, |free, blocks| {
        for (block, bytes) in shares(free, blocks) {
            *charged.entry(block).or_default() += bytes;
        }
    });
    charged
}

impl Pinning {
    /// The same in one row, labeled [`OTHER`], without attribution.
    pub(crate) fn in_total(history: &History, layout: &Layout) -> Self {
        let mut row = PinningRow { label: OTHER.to_owned(), ..PinningRow::default() };
        // Blocks are visited in address order, each in one unit or in two adjacent ones.
        let mut last = None;
        for segment in &layout.segments {
            pinned_units(layout, segment, |free, blocks| {
                row.pinned_free_bytes += free;
                row.alone_free_bytes += free;
                for &block in blocks.iter().filter(|&&block| last.replace(block) != Some(block)) {
                    row.bytes += history.allocations[block].size;
                    row.blocks += 1;
                }
            });
        }
        let rows = if row.blocks > 0 { vec![row.clone()] } else { Vec::new() };
        Self { pinned_free_bytes: row.pinned_free_bytes, blocks: row.blocks, rows }
    }

    /// Attributes the pinned bytes of a layout to groups.
    pub(crate) fn of(grouper: &Grouper<'_>, layout: &Layout) -> Self {
        let history = grouper.track.history;
        let mut groups = Groups::new(grouper);
        let mut total = 0;
        let mut charged: IndexMap<usize, u64> = IndexMap::new();
        let mut rows: Vec<PinningRow> = Vec::new();
        for segment in &layout.segments {
            pinned_units(layout, segment, |free, blocks| {
                total += free;
                let mut kept_by: HashMap<usize, usize> = HashMap::new();
                for (block, bytes) in shares(free, blocks) {
                    *charged.entry(block).or_default() += bytes;
                    for &group in groups.of_allocation(block) {
                        *kept_by.entry(group).or_default() += 1;
                        if group >= rows.len() {
                            rows.resize_with(group + 1, PinningRow::default);
                        }
                    }
                }
                for (group, _) in kept_by.into_iter().filter(|&(_, kept)| kept == blocks.len()) {
                    rows[group].alone_free_bytes += free;
                }
            });
        }
        let mut by_origin: Vec<IndexMap<CodeOrigin, u64>> = vec![IndexMap::new(); rows.len()];
        for (&block, &bytes) in &charged {
            let origin = groups.origin_of(block);
            for &group in groups.of_allocation(block) {
                let row = &mut rows[group];
                row.bytes += history.allocations[block].size;
                row.blocks += 1;
                row.pinned_free_bytes += bytes;
                row.worst_block_bytes = row.worst_block_bytes.max(bytes);
                *by_origin[group].entry(origin).or_default() += bytes;
            }
        }
        let heads = groups.heads(|group| by_origin[group].iter().map(|(&origin, &bytes)| (origin, bytes)));
        for (row, (_, RowHead { label, inferred, stack })) in rows.iter_mut().zip(heads) {
            (row.label, row.inferred, row.stack) = (label, inferred, stack);
        }
        rows.sort_rows_by(|a, b| {
            let order = b.pinned_free_bytes.cmp(&a.pinned_free_bytes).then_with(|| a.label.cmp(&b.label));
            order.then_with(|| a.stack.cmp(&b.stack))
        });
        Self { pinned_free_bytes: total, blocks: charged.len() as u64, rows }
    }

    /// Keeps the first `top` rows and combines the rest in one labeled [`OTHER`]; if rows overlap, drops the rest. The bytes
    /// that the rest pins alone are then a lower bound, because its groups may share units.
    pub fn keep_top(&mut self, top: usize, overlap: bool) {
        if self.rows.len() <= top {
            return;
        }
        let rest = self.rows.split_off(top);
        if overlap {
            return;
        }
        let sum = |value: fn(&PinningRow) -> u64| rest.iter().map(value).sum();
        self.rows.push(PinningRow {
            label: OTHER.to_owned(),
            bytes: sum(|row| row.bytes),
            blocks: sum(|row| row.blocks),
            pinned_free_bytes: sum(|row| row.pinned_free_bytes),
            alone_free_bytes: sum(|row| row.alone_free_bytes),
            worst_block_bytes: rest.iter().map(|row| row.worst_block_bytes).max().unwrap_or(0),
            inferred: false,
            stack: Vec::new(),
        });
    }
}
