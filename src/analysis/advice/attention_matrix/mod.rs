//! Attention that is written out allocates the matrix of all token pairs: batch times heads times tokens times tokens. Softmax
//! keeps its result for backward, which allocates two gradients of that size in each layer. Scores, scaling, mask and dropout are
//! further blocks of that size. Fused attention allocates none of them.
//!
//! **Sign:** a call of PyTorch's softmax whose result is larger than what the function around it reads and returns; without such
//! a call, several blocks of one such size in one function.
//!
//! **Fix:** call `scaled_dot_product_attention`, or load the model with `attn_implementation="sdpa"`. Where C++ frames show that its
//! math kernel runs, it is used already: `sdpa_kernel` without that kernel warns why no fused one can run.
//!
//! **Figures** are simulated without these blocks. They are a lower bound where fused attention may copy a mask or a bias.

mod by_hand;
pub(super) mod expanded_mask;
mod named;

use super::rules::Evidence;
use super::stacks::Marked;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::parallel;
use crate::replay::{Allocation, Instant, Metric, NEVER};
use crate::simulation::changes::Lifetimes;
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashSet};
use std::sync::OnceLock;

/// Queries, keys and values are allocated within this many allocations before the scores.
const NEAR: usize = 64;
/// Smaller matrices, or smaller parts of the peak, are not worth reporting.
const SMALL: u64 = 8 << 20;
const PART_OF_PEAK: u64 = 50;

/// Before backward releases the matrix, it allocates the gradients of both factors, and may allocate copies and the gradient of the
/// scores.
const GRADIENTS: usize = 8;

/// So far apart at most are two of these that have the size of the matrix: the gradient of the other factor and a workspace may come
/// in between.
const BETWEEN: usize = 3;

/// Matrices that are looked at for a bias.
const LOOKED_AT: usize = 4;
/// Allocations before the matrix that are examined for an activation function.
const BEFORE: u32 = 4;
/// How to load a model of transformers with fused attention.
const LOADED_WITH_SDPA: &str = "model = AutoModel.from_pretrained(name, attn_implementation=\"sdpa\")";
/// What selects this kernel (`select_sdp_backend` in `ATen/native/transformers/cuda/sdp_utils.cpp`).
const MATH_KERNEL: &str = "; PyTorch selects this kernel for float64, for head sizes that are no multiple of 8 (4 in float32), and where \
                           sdpa_kernel or enable_mem_efficient_sdp(False) disables the others";
/// Smaller blocks are no bias of all pairs.
const SMALLEST_BIAS: u64 = 64 << 10;

/// The blocks that belong to a matrix are allocated and freed at most this many entries before or after it.
const AROUND: u32 = 16;

/// One finding for each line that makes such a matrix. If it will not be simulated, only what is alive at the peak,
/// or within [`AROUND`] entries of it, matters.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, is_simulated) = (evidence.device, evidence.is_simulated);
    let weights = Weights { device, sizes: OnceLock::new() };
    let mut of_line: BTreeMap<Option<FrameId>, Vec<Matrix>> = BTreeMap::new();
    let (named, by_hand) = parallel::join(|| named::matrices(device, &weights), || by_hand::matrices(device, &weights));
    let activations = activations(device);
    let is_activated = |matrix: &Matrix| {
        // A mask may come between, and hide the blocks in front of it.
        let first = matrix.blocks.iter().copied().min().unwrap_or(0);
        let in_front = (first.saturating_sub(BEFORE)..first)
            .filter(|&index| matrix.sizes.contains(&device.history().allocations[index as usize].requested));
        let mut all = matrix.blocks.iter().copied().chain(in_front);
        all.any(|index| activations.has(device.track.stack_of(index as usize)))
    };
    // `scaled_dot_product_attention` itself makes the matrix where its kernel for any input runs.
    let fused = Marked::of(device, |path, _, _| path.ends_with("transformers/integrations/sdpa_attention.py"));
    let is_fused = |matrix: &Matrix| fused.has(matrix.stack);
    let all = named.into_iter().chain(by_hand);
    for matrix in all.filter(|matrix| !is_activated(matrix) && !is_fused(matrix)) {
        of_line.entry(matrix.line).or_default().push(matrix);
    }
    parallel::filter_map(of_line, |(line, matrices)| finding(device, line, matrices, is_simulated))
}

/// Functions that are applied to the scores of graph attention, but never to products of queries and keys.
fn activations(device: &Device<'_>) -> Marked {
    Marked::of(device, |path, name, _| {
        path == "torch/nn/functional.py" && matches!(name, "leaky_relu" | "relu" | "elu" | "selu" | "gelu" | "silu")
    })
}

/// The blocks that one call allocates for the matrix.
struct Matrix {
    line: Option<FrameId>,
    blocks: Vec<u32>,
    /// Bytes of softmax's result, and of what is around it, which is half of that where softmax computes in float32.
    sizes: [u64; 2],
    stack: StackId,
}

/// Whether something of a size, or of two or three of it in one, is there when the scores are made: a query has the size of what
/// attention returns, and may be made together with keys and values.
fn has_input_like(device: &Device<'_>, scores: usize, bytes: u64) -> bool {
    let blocks = &device.history().allocations;
    let born = blocks[scores].born;
    bytes > 0
        && blocks[scores.saturating_sub(NEAR)..scores].iter().any(|block| {
            block.allocated_at(born)
                && block.requested.is_multiple_of(bytes)
                && (1..=3).contains(&(block.requested / bytes))
        })
}

fn is_for_backward(device: &Device<'_>, block: &Allocation) -> bool {
    let phases = device.phases();
    block.freed != NEVER && phases.at(block.freed) == Phase::Backward && phases.at(block.born) == Phase::Forward
}

/// Whether a matrix that is kept for backward was multiplied by an activation, as attention multiplies it by the values, and not by a
/// weight, such as that of a layer or a codebook. Backward shows it: next to the gradient of the matrix it allocates that of the other
/// factor, and then releases the matrix. `weights` are the sizes of weights, `first` is the first allocation that belongs to the
/// matrix, `result` is the size of the product.
fn multiplies_activation(
    device: &Device<'_>,
    weights: &Weights<'_, '_>,
    first: usize,
    matrix: &Allocation,
    result: u64,
) -> bool {
    let (blocks, phases) = (&device.history().allocations, device.phases());
    let is_activation = |block: &Allocation| {
        block.freed > matrix.born && block.freed != NEVER && phases.at(block.freed) == Phase::Backward
    };
    let has_activation = |bytes: u64| {
        blocks[first.saturating_sub(NEAR)..first].iter().any(|block| block.requested == bytes && is_activation(block))
    };
    let released = device.history().born_after(matrix.freed.saturating_sub(1));
    let gradients = &blocks[released.saturating_sub(GRADIENTS)..released];
    // Its own gradient is the first of those of its size: what lies further in front belongs to another product.
    let alike = (0..gradients.len()).rev().filter(|&index| gradients[index].requested == matrix.requested);
    let own = alike.fold(None, |own: Option<usize>, index| match own {
        Some(own) if own - index > BETWEEN => Some(own),
        _ => Some(index),
    });
    let Some(of_matrix) = own else { return false };
    let (before, behind) = (&gradients[..of_matrix], &gradients[of_matrix + 1..]);
    // Values that the program holds itself outlive backward. They have the size of the result.
    let is_other = |block: &Allocation| block.requested != matrix.requested;
    let is_of_activation =
        |block: &Allocation| is_other(block) && (block.requested == result || has_activation(block.requested));
    let is_of_weight = |block: &Allocation| is_other(block) && weights.has(block.requested);
    if behind.iter().any(|block| is_of_activation(block) || is_of_weight(block)) {
        return behind.iter().any(is_of_activation);
    }
    // A product of more than two dimensions may multiply the other way round, and its gradients come so, with a workspace in between.
    // What comes before may also be the gradient of the result, which goes with the matrix.
    before.iter().rev().take(2).any(|block| is_of_activation(block) && block.freed > matrix.freed)
}

/// The sizes of all weights, once somebody asks.
struct Weights<'d, 'a> {
    device: &'d Device<'a>,
    sizes: OnceLock<HashSet<u64, RandomState>>,
}

impl Weights<'_, '_> {
    fn has(&self, bytes: u64) -> bool {
        let sizes = self
            .sizes
            .get_or_init(|| self.device.allocations_of(Category::Parameter).map(|(_, made)| made.requested).collect());
        sizes.contains(&bytes)
    }
}

fn finding(
    device: &Device<'_>,
    line: Option<FrameId>,
    mut matrices: Vec<Matrix>,
    is_simulated: bool,
) -> Option<Finding> {
    let history = device.history();
    let block = |index: u32| history.allocations[index as usize];
    let peak = history.maxima[Metric::Allocated as usize].instant;
    let calls = matrices.len();
    let &Matrix { sizes: largest, stack, .. } = matrices.iter().max_by_key(|matrix| matrix.sizes[0])?;
    if !is_simulated {
        matrices.retain(|matrix| {
            let own = || matrix.blocks.iter().map(|&index| block(index));
            own().any(|block| block.born <= peak.saturating_add(AROUND))
                && own().any(|block| block.freed >= peak.saturating_sub(AROUND))
        });
    }
    let matrices = &matrices[..];
    let backward = of_backward(device, matrices);
    let removed = merged(&of_forward(device, matrices), &backward);
    let at_peak = removed.iter().map(|&index| block(index)).filter(|block| block.allocated_at(peak));
    let at_peak = at_peak.fold(0u64, |sum, block| sum.saturating_add(block.size));
    let peak = u64::try_from(history.maxima[Metric::Allocated as usize].bytes).unwrap_or(0);
    if at_peak.max(largest[0]) < SMALL.max(peak / PART_OF_PEAK) {
        return None;
    }
    let (change, code) = words(device, stack);
    let is_math = is_math_kernel(device, stack);
    let certain = Lifetimes { removed: removed.clone(), ..Lifetimes::default() };
    let copies = sorted(matrices.iter().filter_map(|matrix| copied_result(device, matrix)).collect());
    let is_trained = matrices.iter().any(|matrix| has_trained_bias(device, matrix));
    let trained = is_trained.then(|| {
        let own = certain.removed.iter().copied().filter(|index| backward.binary_search(index).is_err());
        Lifetimes { removed: own.collect(), ..Lifetimes::default() }
    });
    let is_copied = trained.is_none();
    let biased = trained.or_else(|| with_copied_bias(device, matrices, &certain));
    let masked =
        if code == LOADED_WITH_SDPA && biased.is_none() { with_mask(device, matrices, &certain) } else { None };
    let unknown = match (&biased, copies.is_empty()) {
        (Some(_), _) if !is_copied => {
            "the backward pass of fused attention may allocate the gradient of a trained bias, which is as large as the matrix"
        }
        (None, _) if masked.is_some() => "transformers may pass a mask, which each layer then copies and keeps",
        (Some(_), _) => "a layer may copy attn_mask to the dtype of its queries and keep the copy for backward",
        (None, false) => "fused attention may already return its result in the layout that the next line copies it to",
        (None, true) => "",
    };
    let fix = if unknown.is_empty() {
        Fix::new(change, [code], certain)
    } else {
        let most = Lifetimes { removed: merged(&removed, &copies), ..Lifetimes::default() };
        Fix::up_to(change, [code], biased.or(masked).unwrap_or(certain), most, unknown)
    };
    Some(Finding {
        kind: RuleKind::AttentionMatrix,
        line,
        evidence: format!(
            "{}{} allocates matrices over all token pairs, up to {} each, in {}; {} at the peak{}",
            if is_math { "its math kernel" } else { "attention" },
            in_library(device, line, stack).map_or(String::new(), |library| format!(" in {library}")),
            Bytes(largest[0]),
            if calls == 1 { "one call".to_owned() } else { format!("{calls} calls") },
            if at_peak == 0 { "none is live".to_owned() } else { format!("such matrices hold {}", Bytes(at_peak)) },
            if is_math { MATH_KERNEL } else { "" }
        ),
        cost: None,
        fixes: vec![fix],
    })
}

/// What fused attention does not allocate in forward, in order.
fn of_forward(device: &Device<'_>, matrices: &[Matrix]) -> Vec<u32> {
    let mut all = Vec::new();
    for matrix in matrices {
        // Matrices are mostly sorted already.
        let first = all.len();
        all.extend(&matrix.blocks);
        all.extend(copied_operands(device, matrix));
        all[first..].sort_unstable();
    }
    sorted(all)
}

/// A list in order, each index once.
fn sorted(mut indexes: Vec<u32>) -> Vec<u32> {
    indexes.sort_unstable();
    indexes.dedup();
    indexes
}

/// Both lists, which are in order, as one, each index once.
fn merged(one: &[u32], other: &[u32]) -> Vec<u32> {
    let mut all = Vec::with_capacity(one.len() + other.len());
    let mut rest = other.iter().copied().peekable();
    for &index in one {
        while let Some(before) = rest.next_if(|&before| before < index) {
            all.push(before);
        }
        rest.next_if_eq(&index);
        all.push(index);
    }
    all.extend(rest);
    all
}

/// What the two products copy for themselves and free at once, as they do where no backward pass follows: fused attention reads
/// queries, keys and values where they are.
fn copied_operands(device: &Device<'_>, matrix: &Matrix) -> Vec<u32> {
    let blocks = &device.history().allocations;
    let stack = |index: usize| device.track.stack_of(index);
    let copies_of = |product: usize| -> Vec<u32> {
        let Some(next) = blocks.get(product + 1).map(|next| next.born) else { return Vec::new() };
        let in_front = (product.saturating_sub(2)..product).rev().take_while(|&index| {
            let copy = blocks[index];
            stack(index) == stack(product)
                && copy.born > 0
                && copy.requested < matrix.sizes[1]
                && (blocks[product].born..next).contains(&copy.freed)
        });
        in_front.map(|index| index as u32).collect()
    };
    let (Some(&first), Some(&last)) = (matrix.blocks.iter().min(), matrix.blocks.iter().max()) else {
        return Vec::new();
    };
    let mut copies = copies_of(first as usize);
    // The values may be copied before the second product.
    copies.extend((last as usize + 1..last as usize + 3).flat_map(copies_of));
    copies
}

/// What is made right behind the second product, as large as that and gone no later: the heads of one token, beside each other. Where
/// a backward pass follows, it needs only this copy.
fn copied_result(device: &Device<'_>, matrix: &Matrix) -> Option<u32> {
    let blocks = &device.history().allocations;
    let last = *matrix.blocks.iter().max()? as usize;
    let copies = copied_operands(device, matrix);
    let product = (last + 1..last + 3).find(|&index| !copies.contains(&(index as u32)))?;
    let (made, copy) = (blocks.get(product)?, blocks.get(product + 1)?);
    let is_copy = copy.requested == made.requested && copy.freed <= made.freed && copy.freed != NEVER;
    (is_copy && device.phases().at(copy.freed) != Phase::Backward).then_some(product as u32 + 1)
}

/// Whether a bias that is trained is added to the scores: the next that backward allocates behind the release of the matrix is a
/// gradient whose size divides that of the matrix.
fn has_trained_bias(device: &Device<'_>, matrix: &Matrix) -> bool {
    let (blocks, categories) = (&device.history().allocations, device.categories());
    let released = matrix.blocks.iter().map(|&index| blocks[index as usize]);
    let Some(released) = released.filter(|block| is_for_backward(device, block)).map(|block| block.freed).max() else {
        return false;
    };
    let behind = device.history().born_after(released.saturating_sub(1));
    blocks.get(behind).is_some_and(|block| {
        block.requested >= SMALLEST_BIAS
            && block.requested < matrix.sizes[1]
            && matrix.sizes[1].is_multiple_of(block.requested)
            && categories.get(behind).category == Category::Gradient
    })
}

/// The least that the change saves where a bias in float32 is added to scores in half precision: the bias of fused attention has the
/// dtype of the queries. If each layer casts it, the copy lives as long as the matrix did. `None` where no such bias is known.
fn with_copied_bias(device: &Device<'_>, matrices: &[Matrix], most: &Lifetimes) -> Option<Lifetimes> {
    let blocks = &device.history().allocations;
    let requested = |index: u32| blocks[index as usize].requested;
    let stack = |index: u32| device.track.stack_of(index as usize);
    // Bytes of a matrix that is computed from scores in half precision, and then at least once more.
    let whole = |matrix: &Matrix| {
        let first = matrix.blocks.iter().copied().min()?;
        let whole = matrix.blocks.iter().map(|&index| requested(index)).max()?;
        let wholes: Vec<u32> = matrix.blocks.iter().copied().filter(|&index| requested(index) == whole).collect();
        // Operands that the first product copies have its stack.
        let before = first.checked_sub(1).filter(|&before| stack(before) != stack(first));
        let mut halves =
            matrix.blocks.iter().copied().chain(before).filter(|&index| requested(index).checked_mul(2) == Some(whole));
        (wholes.len() >= 2 && halves.any(|half| wholes.iter().all(|&whole| half < whole))).then_some(whole)
    };
    let in_half: Vec<(&Matrix, u64)> = matrices.iter().filter_map(|it| Some((it, whole(it)?))).collect();
    // A bias is the same in all layers.
    let bias = in_half.iter().take(LOOKED_AT).find_map(|(matrix, whole)| bias(device, matrix, *whole, matrices))?;
    let longest =
        |(matrix, _): &(&Matrix, u64)| matrix.blocks.iter().copied().max_by_key(|&index| blocks[index as usize].freed);
    let copies: HashSet<u32> = in_half.iter().filter_map(longest).collect();
    let removed = most.removed.iter().copied().filter(|index| !copies.contains(index)).collect();
    let mut resized: Vec<(u32, u64)> = copies.into_iter().map(|index| (index, bias / 2)).collect();
    resized.sort_unstable();
    Some(Lifetimes { removed, resized, ..most.clone() })
}

/// The least that the change saves if a mask is added to the scores: fused attention converts a boolean mask to a mask of numbers,
/// as large as the recorded one, in each layer, which lives as long as the matrix did. `None` where no mask is known.
fn with_mask(device: &Device<'_>, matrices: &[Matrix], most: &Lifetimes) -> Option<Lifetimes> {
    let blocks = &device.history().allocations;
    let mask = matrices.iter().take(LOOKED_AT).find_map(|matrix| bias(device, matrix, matrix.sizes[1], matrices))?;
    let longest = |matrix: &Matrix| matrix.blocks.iter().copied().max_by_key(|&index| blocks[index as usize].freed);
    let copies: HashSet<u32> = matrices.iter().filter_map(longest).collect();
    let removed = most.removed.iter().copied().filter(|index| !copies.contains(index)).collect();
    let mut resized: Vec<(u32, u64)> = copies.into_iter().map(|index| (index, mask)).collect();
    resized.sort_unstable();
    Some(Lifetimes { removed, resized, ..most.clone() })
}

/// Bytes of a bias that is added to the scores of several layers: it is there when a matrix is made, and when another one is, and its
/// size divides that of the matrix. Backward does not free it, as it would an activation.
fn bias(device: &Device<'_>, matrix: &Matrix, whole: u64, matrices: &[Matrix]) -> Option<u64> {
    let (blocks, phases) = (&device.history().allocations, device.phases());
    let born = |matrix: &Matrix| matrix.blocks.iter().map(|&index| blocks[index as usize].born).min().unwrap_or(0);
    let own = born(matrix);
    let others: Vec<Instant> = matrices.iter().map(born).filter(|&other| other != own).take(LOOKED_AT).collect();
    let is_shared = |block: &Allocation| others.iter().any(|&other| block.allocated_at(other));
    let is_bias = |&(index, block): &(usize, &Allocation)| {
        block.allocated_at(own)
            && block.requested >= SMALLEST_BIAS
            && block.requested < whole
            && whole.is_multiple_of(block.requested)
            && (block.freed == NEVER || phases.at(block.freed) != Phase::Backward)
            && is_shared(block)
            && matches!(
                device.categories().get(index).category,
                Category::Activation | Category::Temporary | Category::Unknown
            )
    };
    let all = blocks.iter().enumerate().take_while(|(_, block)| block.born < own);
    all.filter(is_bias).map(|(_, block)| block.requested).max()
}

/// Whether `scaled_dot_product_attention` itself makes the matrix, in the kernel for any input.
fn is_math_kernel(device: &Device<'_>, stack: StackId) -> bool {
    let snapshot = device.snapshot();
    let is_kernel = |name: &str| name.starts_with("at::native::_scaled_dot_product_attention_math");
    snapshot.stacks.frames(stack).any(|frame| is_kernel(snapshot.strings.get(frame.name)))
}

/// The line of a library that makes the matrix, if the user's line only calls it.
fn in_library(device: &Device<'_>, line: Option<FrameId>, stack: StackId) -> Option<String> {
    let sites = device.deep_sites();
    let deep = sites.site_frame(stack).filter(|&frame| Some(frame) != line && !device.sites().is_own(frame))?;
    Some(sites.label(deep))
}

/// What to change, depending on the code that calls softmax.
fn words(device: &Device<'_>, stack: StackId) -> (&'static str, &'static str) {
    let snapshot = device.snapshot();
    if is_math_kernel(device, stack) {
        return (
            "let scaled_dot_product_attention, which is used already, run a fused kernel instead of its math kernel",
            "with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]): ...  # torch.nn.attention: warns why none can run",
        );
    }
    let calls = |wanted: &str| snapshot.stacks.frames(stack).any(|frame| snapshot.strings.get(frame.name) == wanted);
    if calls("multi_head_attention_forward") {
        ("call nn.MultiheadAttention with need_weights=False", "out, _ = attention(q, k, v, need_weights=False)")
    } else if calls("eager_attention_forward") {
        ("load the model with attn_implementation=\"sdpa\"", LOADED_WITH_SDPA)
    } else {
        (
            "compute attention with PyTorch's scaled_dot_product_attention",
            "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # in a causal decoder: is_causal=True instead of attn_mask",
        )
    }
}

/// Blocks of backward with the size of a matrix that are live around the instant at which a block of forward is freed.
fn of_backward(device: &Device<'_>, matrices: &[Matrix]) -> Vec<u32> {
    let (history, phases) = (device.history(), device.phases());
    let mut sizes: Vec<u64> = matrices.iter().flat_map(|matrix| matrix.sizes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (Some(&least), Some(&most)) = (sizes.first(), sizes.last()) else { return Vec::new() };
    let is_backward = |block: &Allocation| {
        (least..=most).contains(&block.requested)
            && block.born > 0
            && block.freed != NEVER
            && sizes.binary_search(&block.requested).is_ok()
            && phases.at(block.born) == Phase::Backward
    };
    let forward = matrices.iter().flat_map(|matrix| &matrix.blocks).map(|&index| history.allocations[index as usize]);
    let mut released: Vec<u32> = forward.map(|block| block.freed).filter(|&freed| freed != NEVER).collect();
    released.sort_unstable();
    let is_needed = |from: u32, to: u32| {
        let next = released.partition_point(|&freed| freed < from);
        released.get(next).is_some_and(|&freed| freed <= to)
    };
    // Gradients that are live together belong to the same node of the graph, or to the next one.
    let mut found = Vec::new();
    let mut together: Vec<u32> = Vec::new();
    let (mut from, mut to) = (0, 0);
    for (index, block) in (0..).zip(&history.allocations) {
        if !is_backward(block) {
            continue;
        }
        if block.born > to {
            if is_needed(from, to) {
                found.append(&mut together);
            }
            together.clear();
            from = block.born;
        }
        to = to.max(block.freed);
        together.push(index);
    }
    if is_needed(from, to) {
        found.append(&mut together);
    }
    found
}
