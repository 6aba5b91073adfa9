//! All pairs of rows are compared element by element: `((a[:, None] - b[None]) ** 2).sum(-1)` makes a tensor with an element for
//! every pair and every column, several times, and backward makes more of them.
//!
//! **Sign:** the program allocates a tensor with the size of all pairs of rows of two live tensors, and no live tensor has its size.
//! A sum over the columns follows, after which the last such tensor is freed, or a norm.
//!
//! **Fix:** a matrix product, which `torch.cdist` uses for Euclidean distances of more than 25 rows. For other norms, its backward
//! pass makes such a tensor, too.
//!
//! **Figures** are simulated without these tensors, and with up to four elements for each pair instead: a matrix product makes
//! tensors of one.

use super::rules::Evidence;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase};
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, Instant, Metric};
use crate::simulation::changes::Lifetimes;
use std::collections::HashSet;

/// Tensors are reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 10;
/// Least number of rows of each of the two, and of their columns. Other blocks may have such sizes by chance, the more so the fewer
/// rows they need.
const LEAST_ROWS: u64 = 64;
const LEAST_COLUMNS: u64 = 8;
/// Bytes of an element.
const ELEMENTS: [u64; 3] = [4, 2, 8];
/// Blocks of a line of more than 1/N of the tensor are made of it: its powers, gradients, and their partial sums.
const PART_OF_TENSOR: u64 = 8;
/// How many elements for each pair stay instead of one of these blocks, at most.
const ELEMENTS_LEFT: u64 = 4;
/// Python functions from a norm to its operator.
const FRAMES_OF_NORM: usize = 4;
/// The most blocks of an expression.
const LONGEST: usize = 8;

/// An expression over all pairs of rows.
struct Pairs {
    /// How many there are.
    count: u64,
    columns: u64,
    /// Bytes of their sum.
    sum: u64,
    /// The lines that make its tensors, and their sum.
    lines: HashSet<FrameId>,
}

/// One finding for each line.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let mut seen: HashSet<(FrameId, u64)> = HashSet::new();
    let large = large_of_own_lines(device).filter(|&(_, made, line)| seen.insert((line, made.requested)));
    large.filter_map(|(index, made, line)| finding(device, line, &made, &pairs(device, index, &made)?)).collect()
}

/// Large blocks that a line of the program allocates in a forward pass, with that line: no function of a library does.
pub(super) fn large_of_own_lines<'d>(device: &'d Device<'_>) -> impl Iterator<Item = (u32, Allocation, FrameId)> + 'd {
    let peak = device.history().maxima[Metric::Allocated as usize].bytes.max(0) as u64;
    let least = (peak / NOTABLE_PART).max(1);
    let all = (0..).zip(device.history().allocations.iter().copied());
    let large = all.filter(move |(_, made)| made.born > 0 && made.requested >= least);
    large.filter_map(|(index, made)| {
        let stack = device.track.stack_of(index as usize);
        let (stacks, sites) = (&device.snapshot().stacks, device.sites());
        let innermost = stacks.frame_ids(stack).iter().copied().find(|&frame| sites.kind(frame).is_python())?;
        let is_forward = !matches!(device.phases().at(made.born), Phase::Backward | Phase::Optimizer);
        (is_forward && sites.is_own(innermost)).then_some((index, made, innermost))
    })
}

/// The next blocks, with the bytes that are requested for each.
pub(super) fn behind<'d>(device: &'d Device<'_>, index: u32) -> impl Iterator<Item = (u32, u64)> + 'd {
    let next = (index + 1..).take(LONGEST);
    next.map_while(|index| Some((index, device.track.allocation(index as usize)?.requested)))
}

/// The requested sizes of what is live right before an instant and may be an argument of a forward pass.
pub(super) fn live_before(device: &Device<'_>, at: Instant) -> HashSet<u64> {
    let is_argument = |&(index, _): &(usize, &Allocation)| {
        use Category::{Gradient, OptimizerState, Workspace};
        !matches!(device.categories().get(index).category, Gradient | OptimizerState | Workspace)
    };
    let all = device.history().allocations.iter().enumerate().take_while(|(_, made)| made.born < at);
    all.filter(|(_, made)| made.freed >= at).filter(is_argument).map(|(_, made)| made.requested).collect()
}

/// All blocks of wanted sizes that some lines make, in forward and backward passes.
pub(super) fn made_by(device: &Device<'_>, lines: &HashSet<FrameId>, is_wanted: impl Fn(u64) -> bool) -> Vec<u32> {
    let (track, roles) = (device.track, device.roles());
    let is_of_lines = |index: u32| {
        let forward = || device.backward().forward_stack(track, roles, index as usize);
        [Some(track.stack_of(index as usize)), forward()]
            .into_iter()
            .flatten()
            .any(|stack| device.sites().site_frame(stack).is_some_and(|line| lines.contains(&line)))
    };
    let wanted = (0u32..).zip(&device.history().allocations).filter(|(_, made)| is_wanted(made.requested));
    wanted.map(|(index, _)| index).filter(|&index| is_of_lines(index)).collect()
}

/// Whether the block before this one is freed as soon as it is made, or it is a norm, which backward needs its argument for.
fn is_sum(device: &Device<'_>, index: u32) -> bool {
    let made = |index: u32| device.track.allocation(index as usize);
    let next = made(index + 1).map_or(device.track.entries(), |next| next.born);
    let is_consumed = index.checked_sub(1).and_then(made).is_some_and(|argument| argument.freed <= next);
    let (stacks, strings) = (&device.snapshot().stacks, &device.snapshot().strings);
    let frames = stacks.frames(device.track.stack_of(index as usize));
    is_consumed || frames.take(FRAMES_OF_NORM).any(|frame| strings.get(frame.name) == "norm")
}

/// The pairs that a block contains, if its expression sums it up over the columns of two live blocks.
fn pairs(device: &Device<'_>, index: u32, made: &Allocation) -> Option<Pairs> {
    let tensor = made.requested;
    let (last, sum) = behind(device, index).find(|&(_, other)| other != tensor).filter(|&(_, sum)| sum < tensor)?;
    let columns = tensor / sum.max(1);
    if !tensor.is_multiple_of(sum.max(1)) || columns < LEAST_COLUMNS || !is_sum(device, last) {
        return None;
    }
    let live = live_before(device, made.born);
    // The result of attention or of an MLP has the size of its input.
    if live.contains(&tensor) || live.contains(&sum) {
        return None;
    }
    let line = |index: u32| device.sites().site_frame(device.track.stack_of(index as usize));
    ELEMENTS.iter().find_map(|element| {
        let (row, count) = (columns * element, sum / element);
        let is_part = |bytes: &u64| {
            let rows = bytes / row;
            let others = count / rows.max(1);
            bytes.is_multiple_of(row)
                && rows >= LEAST_ROWS
                && others >= LEAST_ROWS
                && rows * others == count
                && live.contains(&(others * row))
        };
        live.iter().any(is_part).then(|| Pairs {
            count,
            columns,
            sum,
            lines: (index..=last).filter_map(line).collect(),
        })
    })
}

fn finding(device: &Device<'_>, line: FrameId, made: &Allocation, pairs: &Pairs) -> Option<Finding> {
    let removed = made_by(device, &pairs.lines, |bytes| bytes > made.requested / PART_OF_TENSOR);
    let resized = removed.iter().map(|&index| (index, ELEMENTS_LEFT * pairs.sum)).collect();
    (!removed.is_empty()).then(|| Finding {
        kind: RuleKind::PairwiseDifferences,
        line: Some(line),
        evidence: format!(
            "{} for each tensor with {} elements for each of {} pairs of rows, which are then summed up",
            Bytes(made.size),
            pairs.columns,
            pairs.count
        ),
        cost: None,
        fixes: vec![Fix::up_to(
            "compare the pairs with a matrix product or torch.cdist, not element by element",
            [
                "torch.cdist(a, b)  # distances",
                "(a ** 2).sum(-1)[:, None] + (b ** 2).sum(-1) - 2 * a @ b.T  # their squares",
            ],
            Lifetimes { resized, ..Lifetimes::default() },
            Lifetimes { removed, ..Lifetimes::default() },
            "the matrix product makes tensors with an element for each pair",
        )],
    })
}
