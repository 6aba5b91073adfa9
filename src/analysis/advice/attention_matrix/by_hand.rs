//! Finds attention without a softmax function on any stack: softmax is a method of a tensor, or is written with `exp`
//! and `sum`.
//!
//! The sizes of one function's allocations show it: several blocks of the same size, which are larger than the input and
//! the result. One of three signs is required. First: the last block is kept for backward and an earlier one is not, or
//! several are not if the matrix is no larger than a feed-forward layer's. Second: statistics of its rows lie in between,
//! one for each query of each head. Third: the first block is a product of two tensors, which copies queries and keys.

use super::named::{dropout, layers, softmax};
use super::{Matrix, Weights, has_input_like, is_for_backward, multiplies_activation};
use crate::facts::device::Device;
use crate::facts::training::{Phase, Role};
use crate::model::{FrameId, StackId, StrId};
use crate::parallel;
use crate::replay::Allocation;
use std::collections::HashSet;

/// Attention with smaller results is not worth reporting.
const SMALL: u64 = 64 << 10;
/// Least number of channels of a head, and of columns of a matrix.
const LEAST_CHANNELS: u64 = 8;
const LEAST_COLUMNS: u64 = 16;
/// The hidden layer of a transformer's feed-forward block is at most this many times as large as its input.
const FEED_FORWARD: u64 = 8;
/// The result of a normalization in double precision is at most this many times as large as its input.
const PRECISION: u64 = 2;
/// Scores, scaled scores and masked scores: backward needs none of these, and a feed-forward block has fewer such blocks.
const LEAST_DROPPED: usize = 3;
/// Bytes of the seed and offset of a kernel's random numbers.
const RANDOM_STATE: u64 = 16;
/// Number of allocations after the result that are checked: if one is as large as the matrix, this is no attention.
const BEHIND: usize = 2;
/// Allocations that a thread examines at a time.
const PORTION: usize = 1 << 14;

pub(super) fn matrices<'d, 'a>(device: &'d Device<'a>, weights: &'d Weights<'d, 'a>) -> Vec<Matrix> {
    let search = Search { device, weights, of_stack: of_stack(device) };
    let portions = device.history().allocations.chunks(PORTION).enumerate();
    let of_portion = |(place, allocations): (usize, &[Allocation])| {
        let numbered = allocations.iter().enumerate().map(|(index, out)| (place * PORTION + index, out));
        let large = numbered.filter(|(_, out)| out.requested >= SMALL && out.born > 0);
        large.filter_map(|(result, out)| search.matrix(result, *out)).collect::<Vec<Matrix>>()
    };
    let mut all: Vec<Matrix> = parallel::map(portions, of_portion).into_iter().flatten().collect();
    // The function that multiplies comes first; then the functions that call it and use its result.
    let mut known: HashSet<u32> = HashSet::new();
    all.retain(|matrix| matrix.blocks.first().is_some_and(|&block| known.insert(block)));
    all
}

#[derive(Clone, Copy, Debug)]
struct Code {
    /// `None` outside of forward passes. Whether plain code belongs to one depends on the phase.
    role: Option<Role>,
    home: Home,
    /// Number of module calls that it is in.
    depth: u32,
    /// Whether PyTorch computes a softmax or a layer here.
    ends_search: bool,
    drops: bool,
}

fn of_stack(device: &Device<'_>) -> Vec<Code> {
    let (softmax, layers, dropout) = (softmax(device), layers(device), dropout(device));
    let (homes, depths) = (homes(device), depths(device));
    let code = |(id, (home, depth)): (u32, (Home, u32))| {
        let stack = StackId(id);
        let role = device.roles().role(stack);
        Code {
            role: matches!(role, Role::Module | Role::Recompute | Role::Plain).then_some(role),
            home,
            depth,
            ends_search: softmax.has(stack) || layers.has(stack),
            drops: dropout.has(stack),
        }
    };
    (0..).zip(homes.into_iter().zip(depths)).map(code).collect()
}

/// The `forward` that each stack is in; outside of modules, the user's function.
type Home = Option<(StrId, StrId)>;

fn homes(device: &Device<'_>) -> Vec<Home> {
    let (stacks, sites, roles) = (&device.snapshot().stacks, device.sites(), device.roles());
    let home = |id: u32| {
        let frames = stacks.frame_ids(StackId(id));
        let python = |frame: &&FrameId| sites.kind(**frame).is_python();
        let forward = match frames.iter().position(|&frame| roles.is_module_call(frame)) {
            Some(call) => frames[..call].iter().rfind(python),
            None => frames.iter().find(|&&frame| sites.is_own(frame)),
        };
        stacks.frame(*forward?).map(|frame| (frame.filename, frame.name))
    };
    (0..stacks.len() as u32).map(home).collect()
}

fn depths(device: &Device<'_>) -> Vec<u32> {
    let (stacks, roles) = (&device.snapshot().stacks, device.roles());
    let depth =
        |id: u32| stacks.frame_ids(StackId(id)).iter().filter(|&&frame| roles.is_module_call(frame)).count() as u32;
    (0..stacks.len() as u32).map(depth).collect()
}

struct Search<'d, 'a> {
    device: &'d Device<'a>,
    weights: &'d Weights<'d, 'a>,
    of_stack: Vec<Code>,
}

impl Search<'_, '_> {
    fn block(&self, index: usize) -> Allocation {
        self.device.history().allocations[index]
    }

    /// The matrix that is multiplied to compute a block; `None` if there is none.
    fn matrix(&self, result: usize, out: Allocation) -> Option<Matrix> {
        let track = self.device.track;
        let stack = track.stack_of(result);
        let code = self.forward(stack, out)?;
        let (home, depth) = (code.home?, code.depth);
        if self.is_fused(result, stack) {
            return None;
        }
        let mut blocks: Vec<u32> = Vec::new();
        let mut between: Vec<u32> = Vec::new();
        let (mut statistics, mut modules) = (false, false);
        let mut whole = 0;
        for index in (result.saturating_sub(super::NEAR)..result).rev() {
            let block = self.block(index);
            let requested = block.requested;
            let stack = track.stack_of(index);
            let Some(code) = self.forward(stack, block).filter(|code| !code.ends_search) else { break };
            let nested = code.depth.checked_sub(depth);
            if nested.is_none_or(|nested| nested > 1) || !self.is_within(stack, home) {
                break;
            }
            modules |= nested != Some(0) && !code.drops;
            let is_like = |size: u64| {
                requested == size || requested == size.saturating_mul(2) || requested.saturating_mul(2) == size
            };
            if whole == 0 && requested > out.requested {
                whole = requested;
                blocks.push(index as u32);
            } else if whole > 0 && requested > out.requested && is_like(whole) {
                statistics |= between.iter().any(|&index| self.is_statistic(index, whole, out.requested));
                blocks.append(&mut between);
                blocks.push(index as u32);
            } else if whole > 0 && requested < whole && code.drops {
                // A mask of single bytes may have the size of the result.
                between.push(index as u32);
            } else if requested > out.requested || (whole > 0 && requested == out.requested) {
                // A copy of the values comes between; copies of queries and keys come before.
                break;
            } else if whole > 0 {
                between.push(index as u32);
            }
        }
        let large: Vec<Allocation> = blocks
            .iter()
            .map(|&index| self.block(index as usize))
            .filter(|block| block.requested > out.requested)
            .collect();
        let (last, earlier) = large.split_first()?;
        let is_kept = is_for_backward(self.device, last);
        let dropped = earlier.iter().filter(|block| block.freed <= out.born).count();
        let is_long = whole / out.requested > FEED_FORWARD;
        let first = blocks.iter().min().map_or(result, |&first| first as usize);
        let is_chain = dropped >= LEAST_DROPPED && dropped == earlier.len() && whole / out.requested > PRECISION
            || dropped > 0 && self.is_product(first, out.requested);
        let is_softmax = (statistics && whole / out.requested > PRECISION)
            || (is_long && dropped > 0 || is_chain) && is_kept && !modules;
        let is_softmax =
            is_softmax && (!is_kept || multiplies_activation(self.device, self.weights, first, last, out.requested));
        let behind = result + 1..(result + 1 + BEHIND).min(self.device.history().allocations.len());
        let goes_on = behind.filter(|&index| self.is_within(track.stack_of(index), home)).any(|index| {
            self.block(index).requested >= large.iter().map(|block| block.requested).min().unwrap_or(whole)
        });
        (!goes_on && !earlier.is_empty() && is_softmax && has_input_like(self.device, first, out.requested)).then(
            || {
                let smallest = large.iter().map(|block| block.requested).min().unwrap_or(whole);
                let largest = large.iter().map(|block| block.requested).max().unwrap_or(whole);
                let line = self.device.sites().site_frame(track.stack_of(blocks[0] as usize));
                Matrix { line, stack, blocks, sizes: [largest, smallest] }
            },
        )
    }

    /// Whether a block is the product of two tensors of one size: the line that multiplies them first copies both, if
    /// their heads are not contiguous. A layer multiplies by a weight, and copies at most one tensor.
    fn is_product(&self, block: usize, factor: u64) -> bool {
        let stack = self.device.track.stack_of(block);
        stack != StackId::EMPTY
            && block.checked_sub(2).is_some_and(|first| {
                (first..block)
                    .all(|index| self.block(index).requested == factor && self.device.track.stack_of(index) == stack)
            })
    }

    /// What a block's stack shows, if the block belongs to the forward pass.
    fn forward(&self, stack: StackId, block: Allocation) -> Option<&Code> {
        let code = self.of_stack.get(stack.index())?;
        // A model may consist of plain functions.
        let is_forward = code.role? != Role::Plain || self.device.phases().at(block.born) == Phase::Forward;
        is_forward.then_some(code)
    }

    /// Whether a block may hold a number for each row of a matrix: its maximum or its sum.
    fn is_statistic(&self, index: u32, matrix: u64, result: u64) -> bool {
        let bytes = self.block(index as usize).requested;
        let fits = |size: u64, least: u64| bytes > 0 && size.is_multiple_of(bytes) && size / bytes >= least;
        fits(matrix, LEAST_COLUMNS) && fits(result, LEAST_CHANNELS)
    }

    /// Whether a block contains the log-sum-exp values that a fused attention kernel returns: after them, it allocates
    /// the state of its random numbers.
    fn is_fused(&self, result: usize, stack: StackId) -> bool {
        let next = self.device.history().allocations.get(result + 1);
        next.is_some_and(|next| next.requested <= RANDOM_STATE) && self.device.track.stack_of(result + 1) == stack
    }

    fn is_within(&self, stack: StackId, (file, name): (StrId, StrId)) -> bool {
        // Neighbors are mostly in one function, so their frames need not be searched.
        if self.of_stack.get(stack.index()).is_some_and(|code| code.home == Some((file, name))) {
            return true;
        }
        let stacks = &self.device.snapshot().stacks;
        stacks.frames(stack).any(|frame| frame.filename == file && frame.name == name)
    }
}
