//! Finds logits of all tokens in float32 with a loss that is computed at once.
//!
//! `cross_entropy` keeps the logarithms of all probabilities for backward, which then allocates their gradient, and the
//! gradient of the logits in the logits' type.

use super::stacks::Marked;
use super::{Finding, Remedy, Story};
use crate::facts::code::frames::FrameKind;
use crate::facts::device::Device;
use crate::facts::training::Category;
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::play::changes::{Change, Editor, chunked_loss, is_plain_loss};
use crate::play::program;
use crate::replay::Metric;

/// Number of chunks to simulate: more chunks save little more.
const PIECES: u32 = 8;
/// The blocks of the logits' size make up one part in so many of the peak at least, if they were cast to float32, or if the model is
/// in float32 anyway: below that, what pieces save is not worth the time in which a part of forward runs again.
const PART_IF_CAST: u64 = 4;
const PART_OF_PEAK: u64 = 2;

/// Losses whose blocks are a large part of the peak.
pub(super) fn find(device: &Device<'_>) -> Vec<Finding> {
    let marked = Marked::of(device, |path, name, kind| {
        kind == FrameKind::Torch && path == "torch/nn/functional.py" && matches!(name, "cross_entropy" | "log_softmax")
    });
    let (track, history) = (device.track, device.history());
    let largest = |is_loss: &dyn Fn(u32, StackId) -> bool| {
        let of_loss = track.allocations().filter(|&(index, _, stack)| is_loss(index, stack));
        let largest = of_loss.max_by_key(|&(index, block, _)| (block.requested, std::cmp::Reverse(index)));
        largest.map(|(index, ..)| index as usize)
    };
    let named = if marked.any() { largest(&|_, stack| marked.has(stack)) } else { None };
    let Some(kept) = named.or_else(|| largest(&|index, _| is_plain_loss(device, index))) else {
        return Vec::new();
    };
    let bytes = history.allocations[kept].requested;
    let peak = history.maxima[Metric::Allocated as usize];
    // Other blocks may have the same size by chance.
    let may_be_logits = |index: usize| {
        use Category::{Activation, Temporary, Unknown};
        matches!(device.categories().get(index).category, Activation | Temporary | Unknown)
    };
    let at_peak = history.allocations.iter().enumerate().filter(|&(index, block)| {
        let is_large = block.requested == bytes || block.requested.saturating_mul(2) == bytes;
        is_large && block.allocated_at(peak.instant) && may_be_logits(index)
    });
    let (count, sum) = at_peak
        .map(|(_, block)| block)
        .fold((0u32, 0u64), |(count, sum), block| (count + 1, sum.saturating_add(block.size)));
    let (line, is_cast) = cast(device, kept);
    let part = if is_cast { PART_IF_CAST } else { PART_OF_PEAK };
    let can_be_split = || program(device).is_ok_and(|program| Editor::new(device).losses(&program).is_ok());
    if count < 2 || sum < u64::try_from(peak.bytes).unwrap_or(0) / part || !can_be_split() {
        return Vec::new();
    }
    let cast = if is_cast { " in float32, twice the size of the layer's output" } else { "" };
    vec![Finding {
        story: Story::Fp32Logits,
        line,
        cure: format!("compute logits and loss in {PIECES} chunks of the sequence"),
        evidence: format!(
            "{count} blocks of {} are in use at the peak: the logits of all tokens{cast}, and the buffers of the loss",
            Bytes(bytes)
        ),
        cost: Some("backward recomputes the last layer".to_owned()),
        code: chunked_loss(PIECES),
        remedy: Remedy::Changes(vec![Change::ChunkLoss { pieces: PIECES }]),
    }]
}

/// The line that casts the logits to float32, and true; else the line of the loss, and false.
fn cast(device: &Device<'_>, kept: usize) -> (Option<FrameId>, bool) {
    let (track, sites) = (device.track, device.sites());
    let blocks = &device.history().allocations;
    let bytes = blocks[kept].requested;
    let own = sites.site_frame(track.stack_of(kept));
    // Few blocks are allocated between logits and loss.
    let near = (0..kept).rev().take_while(|&index| {
        let requested = blocks[index].requested;
        requested == bytes || requested.saturating_mul(2) == bytes || requested.saturating_mul(16) <= bytes
    });
    let large: Vec<usize> = near.filter(|&index| blocks[index].requested.saturating_mul(2) >= bytes).collect();
    let is_half = |&&index: &&usize| blocks[index].requested.saturating_mul(2) == bytes;
    if large.iter().find(is_half).is_none() {
        return (own, false);
    }
    let first_whole = large.iter().rev().find(|&&index| blocks[index].requested == bytes);
    (first_whole.map_or(own, |&index| sites.site_frame(track.stack_of(index))), true)
}
