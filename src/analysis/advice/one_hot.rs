//! A matrix is multiplied by one-hot rows to select some of its rows: `F.one_hot(tokens, n).float() @ weight`. Each token then has as
//! many elements as there are classes, first of eight bytes each.
//!
//! **Sign:** a line of the program allocates a tensor of int64 and casts it to a smaller dtype. The sizes are those of one-hot rows
//! for a live tensor of indices, and what is allocated next has the size of their product with a live matrix.
//!
//! **Fix:** index the matrix.
//!
//! **Figures** are simulated without the one-hot rows.

use super::pairs::{behind, large_of_own_lines, live_before, made_by};
use super::rules::Evidence;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::replay::Allocation;
use crate::simulation::changes::Lifetimes;
use std::collections::HashSet;

/// Bytes of an index.
const INDEX: u64 = 8;
/// Least number of classes, and of indices.
const LEAST: u64 = 64;
/// How much smaller the dtype is to which the rows are cast.
const FACTORS: [u64; 2] = [2, 4];

/// One finding for each line.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let mut seen: HashSet<(FrameId, u64)> = HashSet::new();
    let large = large_of_own_lines(device).filter(|&(_, made, line)| seen.insert((line, made.requested)));
    large.filter_map(|(index, made, line)| finding(device, line, &made, one_hot(device, index, &made)?)).collect()
}

/// The bytes of one-hot rows after their cast, if a block contains them.
fn one_hot(device: &Device<'_>, index: u32, made: &Allocation) -> Option<u64> {
    let encoded = made.requested;
    let mut later = behind(device, index).map(|(_, bytes)| bytes);
    let cast = later.next()?;
    let factor = FACTORS.into_iter().find(|factor| cast * factor == encoded)?;
    let results: Vec<u64> = later.collect();
    let live = live_before(device, made.born);
    // What is cast to a larger dtype and back has a source.
    if [1, 2, 4].iter().any(|part| live.contains(&(encoded / part))) {
        return None;
    }
    let is_of_indices = |bytes: &u64| {
        let (count, classes) = (bytes / INDEX, encoded / bytes.max(&1));
        let is_product = |result: &u64| {
            // Bytes of a row of the matrix, which has a row for each class.
            let row = result / count.max(1);
            result.is_multiple_of(count.max(1))
                && row > INDEX / factor
                && row.is_multiple_of(INDEX / factor)
                && live.contains(&classes.saturating_mul(row))
        };
        encoded.is_multiple_of(*bytes) && count >= LEAST && classes >= LEAST && results.iter().any(is_product)
    };
    live.iter().any(is_of_indices).then_some(cast)
}

fn finding(device: &Device<'_>, line: FrameId, made: &Allocation, cast: u64) -> Option<Finding> {
    let is_row = |bytes: u64| FACTORS.iter().chain([&1]).any(|factor| bytes * factor == made.requested);
    let removed = made_by(device, &HashSet::from([line]), is_row);
    (!removed.is_empty()).then(|| Finding {
        kind: RuleKind::OneHot,
        line: Some(line),
        evidence: format!(
            "class indices are encoded as one-hot rows, {} as int64 and {} after a cast, to be multiplied by a matrix",
            Bytes(made.size),
            Bytes(cast)
        ),
        cost: None,
        fixes: vec![Fix::new(
            "index the matrix instead of multiplying it by one-hot rows",
            ["torch.nn.functional.embedding(indices, weight)  # or weight[indices]"],
            Lifetimes { removed, ..Lifetimes::default() },
        )],
    })
}
