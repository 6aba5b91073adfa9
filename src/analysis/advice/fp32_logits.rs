//! The logits of all tokens exist in float32, and their loss is computed all at once. `cross_entropy` keeps the logarithms of all
//! probabilities for backward, which then allocates their gradient, and the gradient of the logits in their dtype.
//!
//! **Sign:** blocks of the size of the logits around a loss hold at least a quarter of the peak if the logits were cast, and half
//! of it otherwise.
//!
//! **Fix:** compute the last layer and the loss in chunks of tokens. Backward recomputes the last layer.
//!
//! **Figures** are simulated with 8 chunks, like `memviz simulate --chunk-loss`. Reserved memory is uncertain, since it depends
//! on how the program uses the chunks.

use super::rules::Evidence;
use super::stacks::Marked;
use super::{Finding, Fix, RuleKind};
use crate::facts::code::frames::FrameKind;
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, Role};
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, Metric};
use crate::simulation::changes::{Change, Editor, Lifetimes, LogitsSizes, chunked_loss, is_plain_loss};
use crate::simulation::program;
use std::cmp::Reverse;

/// Number of chunks to simulate: more chunks save little more.
const PIECES: u32 = 8;
/// The blocks with the size of the logits are at least 1/N of the peak, with one limit if they were cast to float32, another if
/// the model is in float32 anyway. Below that, chunks save too little for the time that recomputing a part of forward takes.
const PART_IF_CAST: u64 = 4;
const PART_OF_PEAK: u64 = 2;

/// The result of a loss for one token has at most 1/N of the bytes of its logits.
const PART_OF_LOGITS: u64 = 1000;

/// Losses whose blocks are a large part of the peak.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let trained = find_trained(device);
    if trained.is_empty() { scored(device).into_iter().collect() } else { trained }
}

fn find_trained(device: &Device<'_>) -> Vec<Finding> {
    let marked = Marked::of(device, |path, name, kind| {
        kind == FrameKind::Torch && path == "torch/nn/functional.py" && matches!(name, "cross_entropy" | "log_softmax")
    });
    let history = device.history();
    // The first of the largest.
    let named = marked.any().then(|| {
        let losses = device.allocations_by(|stack| marked.has(stack));
        losses.max_by_key(|&(index, block, _)| (block.requested, Reverse(index))).map(|(index, ..)| index as usize)
    });
    let plain = || {
        let mut largest: Option<(u32, u64)> = None;
        for (index, block) in (0u32..).zip(&history.allocations) {
            if largest.is_none_or(|(_, most)| block.requested > most) && is_plain_loss(device, index) {
                largest = Some((index, block.requested));
            }
        }
        largest.map(|(index, _)| index as usize)
    };
    let Some(kept) = named.flatten().or_else(plain) else {
        return Vec::new();
    };
    let bytes = history.allocations[kept].requested;
    let peak = history.maxima[Metric::Allocated as usize];
    // Other blocks may have the same size by chance.
    let may_be_logits = |index: usize| {
        use Category::{Activation, Temporary, Unknown};
        matches!(device.categories().get(index).category, Activation | Temporary | Unknown)
    };
    let (line, is_cast, sizes) = cast(device, kept);
    let at_peak = history.allocations.iter().enumerate().filter(|&(index, block)| {
        let is_large = sizes.has(block.requested) || block.requested.saturating_mul(2) == bytes;
        is_large && block.allocated_at(peak.instant) && may_be_logits(index)
    });
    let (count, sum) = at_peak
        .map(|(_, block)| block)
        .fold((0u32, 0u64), |(count, sum), block| (count + 1, sum.saturating_add(block.size)));
    // The user's own logarithms may have other readers, such as a distillation, that cannot be split like this.
    let freed = history.allocations[kept].freed;
    if !is_cast && device.phases().at(freed) != Phase::Backward {
        return Vec::new();
    }
    let part = if is_cast { PART_IF_CAST } else { PART_OF_PEAK };
    let can_be_split = || program(device).is_ok_and(|program| Editor::new(device).losses(&program).is_ok());
    if count < 2 || sum < u64::try_from(peak.bytes).unwrap_or(0) / part || !can_be_split() {
        return Vec::new();
    }
    let cast = if is_cast { " in float32, twice the size of the layer's output" } else { "" };
    vec![Finding {
        kind: RuleKind::Fp32Logits,
        line,
        evidence: format!(
            "{count} blocks hold {} at the peak: the logits of all tokens{cast}, and the buffers of the loss",
            Bytes(sum)
        ),
        cost: Some("backward recomputes the last layer".to_owned()),
        fixes: vec![Fix::new(
            format!("compute logits and loss in {PIECES} chunks of tokens"),
            chunked_loss(PIECES),
            Change::ChunkLoss { pieces: PIECES },
        )],
    }]
}

/// Losses without a backward pass, such as those of an evaluation: a layer allocates logits in half precision, the
/// user's code casts all of them and computes their logarithms, and then computes something far smaller from these.
fn scored(device: &Device<'_>) -> Option<Finding> {
    let history = device.history();
    let blocks = &history.allocations;
    let peak = history.maxima[Metric::Allocated as usize];
    let role = |index: usize| device.roles().role(device.track.stack_of(index));
    let is_scored = |first: usize| {
        let [logits, cast, logarithms, result] = [0, 1, 2, 3].map(|ahead| blocks.get(first + ahead));
        let (Some(logits), Some(cast), Some(logarithms), Some(result)) = (logits, cast, logarithms, result) else {
            return false;
        };
        let is_forward = |block: &&Allocation| {
            device.phases().at(block.freed) != Phase::Backward && device.phases().at(block.born) != Phase::Backward
        };
        logits.requested.checked_mul(2) == Some(cast.requested)
            && logarithms.requested == cast.requested
            && result.requested > 0
            && result.requested.saturating_mul(PART_OF_LOGITS) <= cast.requested
            && result.born <= logarithms.freed
            && role(first) == Role::Module
            && (1..4).all(|ahead| role(first + ahead) == Role::Plain)
            && [logits, cast, logarithms].iter().all(is_forward)
    };
    let least = u64::try_from(peak.bytes).unwrap_or(0) / PART_IF_CAST;
    let large = (0..blocks.len()).filter(|&index| blocks[index].size >= least / 5);
    let all: Vec<usize> = large.filter(|&index| is_scored(index)).collect();
    let at_peak = |first: usize| {
        let own = blocks[first..first + 3].iter().filter(|block| block.allocated_at(peak.instant));
        own.map(|block| block.size).fold(0, u64::saturating_add)
    };
    let first = all.iter().copied().max_by_key(|&first| at_peak(first)).filter(|&first| at_peak(first) >= least)?;
    let split = |index: usize| (index as u32, blocks[index].requested.div_ceil(u64::from(PIECES)));
    let resized = all.iter().flat_map(|&first| (first..first + 4).map(split)).collect();
    Some(Finding { kind: RuleKind::Fp32Logits, line: device.sites().site_frame(device.track.stack_of(first + 1)), evidence: format!(
            "the logits of all tokens, {}, are cast to float32, and softmax or log_softmax makes a tensor of the same size; {} of these are in use \
             at the peak",
            Bytes(blocks[first].size),
            Bytes(at_peak(first))
        ), cost: None, fixes: vec![Fix::new(format!("compute logits and loss in {PIECES} chunks of tokens"), [format!("chunks = zip(hidden.flatten(0, 1).chunk({PIECES}), targets.flatten().chunk({PIECES}))"), "loss = sum(F.cross_entropy(head(h).float(), t, reduction=\"sum\") for h, t in chunks) / targets.numel()"
                .to_owned()], Lifetimes { resized, ..Lifetimes::default() })] })
}

/// The line that casts the logits to float32, and true; otherwise the line of the loss, and false. And the sizes of the logits.
fn cast(device: &Device<'_>, kept: usize) -> (Option<FrameId>, bool, LogitsSizes) {
    let (track, sites) = (device.track, device.sites());
    let blocks = &device.history().allocations;
    let bytes = blocks[kept].requested;
    let own = sites.site_frame(track.stack_of(kept));
    let mut sizes = LogitsSizes::of(bytes);
    // Few blocks are allocated between logits and loss.
    let near = (0..kept).rev().map_while(|index| {
        let holds = sizes.look_at(device, index as u32, blocks[index].requested)?;
        Some((index, holds))
    });
    let logits: Vec<usize> = near.filter(|&(_, holds)| holds).map(|(index, _)| index).collect();
    let is_whole = |&&index: &&usize| blocks[index].requested >= bytes;
    if logits.iter().all(|index| is_whole(&index)) {
        return (own, false, sizes);
    }
    let first_whole = logits.iter().rev().find(is_whole);
    (first_whole.map_or(own, |&index| sites.site_frame(track.stack_of(index))), true, sizes)
}
