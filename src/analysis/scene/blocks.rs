//! Every block, or segment, as a shape over time, stacked, as `memory_viz` draws them.

use super::bands::{enter, sums};
use super::columns::Columns;
use super::grouped::{Grouped, SceneGroup};
use super::lives::{Lives, Seen};
use crate::replay::Instant;
use std::cmp::Reverse;

/// Blocks stacked in the order of their allocations at the instant of each column; the largest ones are shown individually.
/// When a block is freed, those above it move down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shapes {
    pub instants: Vec<Instant>,
    /// Bytes of all blocks in each column: the counter, unless the recording contradicts itself.
    pub totals: Vec<u64>,
    pub groups: Vec<SceneGroup>,
    /// The shapes in the order of their allocations, the lowest in the stack first.
    pub shapes: Vec<Shape>,
    /// Position of a shape: from a column on, this many bytes above the bottom.
    pub points: Vec<(u32, u64)>,
    /// Bytes of all other blocks in each column. Shapes and the rest sum to the totals.
    pub rest: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Index into [`crate::replay::History::allocations`], or for reserved memory into [`crate::replay::History::segments`].
    pub allocation: u32,
    pub bytes: u64,
    /// Index into [`Shapes::groups`].
    pub group: u32,
    pub end: u32,
    /// Its points in [`Shapes::points`]; the first one is in its first column.
    pub points: std::ops::Range<usize>,
}

impl Shapes {
    pub(super) fn of(lives: &Lives, grouped: &Grouped, columns: Columns, most: usize) -> Self {
        let count = columns.instants.len();
        let mut seen: Vec<Seen> = Vec::new();
        let mut totals = vec![0u64; count + 1];
        let mut rest = vec![0u64; count + 1];
        lives.seen(&columns.instants, |life| {
            enter(&mut totals, life.from, life.to, life.bytes);
            seen.push(life);
        });
        let area = |life: &Seen| u128::from(life.bytes) * u128::from(life.to - life.from);
        if seen.len() > most {
            let mut by_area: Vec<u32> = (0..seen.len() as u32).collect();
            by_area.select_nth_unstable_by_key(most, |&life| (Reverse(area(&seen[life as usize])), life));
            let mut shown = vec![false; seen.len()];
            by_area[..most].iter().for_each(|&life| shown[life as usize] = true);
            let mut next = shown.into_iter();
            seen.retain(|life| {
                let is_shown = next.next().unwrap_or(false);
                if !is_shown {
                    enter(&mut rest, life.from, life.to, life.bytes);
                }
                is_shown
            });
        }
        let (points, shapes) = stacked(&seen, grouped, count);
        Self {
            instants: columns.instants,
            totals: sums(totals),
            groups: grouped.groups.clone(),
            shapes,
            points,
            rest: sums(rest),
        }
    }
}

/// Stacks blocks, which come in the order of their allocations, column by column.
fn stacked(seen: &[Seen], grouped: &Grouped, columns: usize) -> (Vec<(u32, u64)>, Vec<Shape>) {
    // Every column in which a block starts or ends moves the blocks above it.
    let mut changed = vec![false; columns + 1];
    for life in seen {
        changed[life.from as usize] = true;
        changed[life.to as usize] = true;
    }
    let mut paths: Vec<Vec<(u32, u64)>> = vec![Vec::new(); seen.len()];
    let mut live: Vec<usize> = Vec::new();
    let mut next = 0;
    for column in (0..columns as u32).filter(|&column| changed[column as usize]) {
        live.retain(|&life| seen[life].to > column);
        while next < seen.len() && seen[next].from <= column {
            live.push(next);
            next += 1;
        }
        let mut height = 0u64;
        for &life in &live {
            if paths[life].last().is_none_or(|&(_, offset)| offset != height) {
                paths[life].push((column, height));
            }
            height = height.wrapping_add(seen[life].bytes);
        }
    }
    let mut points = Vec::new();
    let shapes = seen.iter().zip(paths).map(|(life, path)| {
        let start = points.len();
        points.extend(path);
        let group = grouped.of.get(life.index as usize).copied().unwrap_or(0);
        Shape { allocation: life.index, bytes: life.bytes, group, end: life.to, points: start..points.len() }
    });
    let shapes = shapes.collect();
    (points, shapes)
}
