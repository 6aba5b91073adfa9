//! Categorizes blocks without a stack that are older than the kept history, by sets of sizes.
//!
//! A model has many blocks of few sizes, since its layers are alike, and gradients and optimizer states repeat its sizes.
//! These sets are used only for blocks without other evidence.

use super::categories::Decision;
use super::category::{Category, Evidence};
use super::origin::{Origin, Origins};
use super::workspace;
use crate::model::{FrameId, StackId};
use crate::replay::{NEVER, Track};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The least number of layers of a model that is recognized by its sizes.
const LEAST_LAYERS: usize = 6;
/// The highest number of layers.
const MOST_LAYERS: usize = 512;
/// The most widths of models that are tried: programs have a few models, but malicious files may have any number.
const MOST_WIDTHS: usize = 16;
/// The least number of matrix sizes that repeat with the layers.
const LEAST_MATRICES: usize = 2;
/// Sizes of vectors: biases, and weights of normalizations.
const VECTORS: std::ops::RangeInclusive<u64> = 1 << 10..=256 << 10;
/// The least rows of a matrix.
const LEAST_ROWS: u64 = 64;
/// Percentage of the bytes without a stack that an explanation must account for.
const LEAST_SHARE: u64 = 80;
/// The same for equal sets.
const LEAST_SHARE_OF_SETS: u64 = 95;
/// The least live blocks of one optimizer line that count as states. Temporaries are allocated one at a time.
const LEAST_STATES: u32 = 4;

/// Indexes of blocks, by requested bytes.
type BySize = BTreeMap<u64, Vec<u32>>;

/// What is known about blocks with stacks that are as old.
#[derive(Default)]
struct Known {
    /// Number of blocks of each size that are parameters.
    parameters: HashMap<u64, usize>,
    /// Number of states of each size that were allocated by the line with most of them.
    states: HashMap<u64, usize>,
}

/// Innermost lines of optimizers that allocated enough live blocks from before the first entry to count as states.
pub(super) struct States(HashSet<StackId>);

impl States {
    /// Whether the line of this stack is one of them.
    pub(super) fn has(&self, stack: StackId) -> bool {
        self.0.contains(&stack)
    }
}

/// Lines that allocated states: those of optimizers outside PyTorch, since PyTorch's own states are allocated in a separate
/// function.
pub(super) fn states(
    track: Track<'_>,
    origins: &Origins,
    innermost: impl Fn(StackId) -> Option<FrameId>,
    is_torch: impl Fn(FrameId) -> bool,
) -> States {
    let mut lines: HashMap<FrameId, (u32, HashSet<StackId>)> = HashMap::new();
    for (index, _) in track.history.baseline.iter().enumerate() {
        let stack = track.stack_of(index);
        let lives = track.history.allocations.get(index).is_some_and(|allocation| allocation.freed == NEVER);
        if lives
            && origins.get(stack) == Origin::Optimizer
            && let Some(line) = innermost(stack).filter(|&line| !is_torch(line))
        {
            let (blocks, stacks) = lines.entry(line).or_default();
            *blocks += 1;
            stacks.insert(stack);
        }
    }
    States(lines.into_values().filter(|(blocks, _)| *blocks >= LEAST_STATES).flat_map(|(_, stacks)| stacks).collect())
}

/// Decides about blocks from before the first entry together, given the decisions about single blocks. `innermost` is the
/// innermost Python frame of a stack, `trains` whether any stack of the recording is part of backward or an optimizer, and
/// `is_backward` whether a stack is part of backward.
pub(super) fn settle(
    track: Track<'_>,
    decided: &mut [Decision],
    trains: bool,
    innermost: impl Fn(StackId) -> Option<FrameId>,
    is_backward: impl Fn(StackId) -> bool,
) {
    let history = track.history;
    let known = known(track, decided, innermost);
    let mut unknown = BySize::new();
    let mut of_backward = BySize::new();
    for (index, decision) in decided.iter().enumerate() {
        let Some(allocation) = history.allocations.get(index).filter(|allocation| allocation.freed == NEVER) else {
            continue;
        };
        let is_open = decision.evidence == Evidence::ParameterSize;
        if !is_open && decision.category.is_known() {
            continue;
        }
        let stack = track.stack_of(index);
        let sizes = match stack {
            StackId::EMPTY => &mut unknown,
            stack if is_backward(stack) => &mut of_backward,
            _ => continue,
        };
        sizes.entry(allocation.requested).or_default().push(index as u32);
    }
    unknown.retain(|bytes, blocks| {
        let verdict = match (known.parameters.get(bytes), known.states.get(bytes)) {
            (Some(&parameters), _) if trains && parameters == blocks.len() => {
                (Category::Gradient, Evidence::OlderMirrors)
            }
            (None, Some(&states)) if states == blocks.len() => (Category::Parameter, Evidence::StateCount),
            (None, Some(_)) => (Category::ModelState, Evidence::StateSize),
            _ => return true,
        };
        set(decided, blocks, verdict.0, verdict.1);
        false
    });
    // Each stream and thread has one workspace. Sizes of gradients are already decided, as far as possible.
    unknown.retain(|&bytes, blocks| {
        let is_open =
            |&index: &u32| decided.get(index as usize).is_some_and(|it| it.evidence == Evidence::ParameterSize);
        (!workspace::is_workspace_size(bytes) || blocks.len() >= LEAST_LAYERS) && !blocks.iter().any(is_open)
    });
    let sizes = of_layers(&unknown);
    let category = match copies(&sizes) {
        4 if history.completeness.no_entries => None,
        1 if !is_doubled(&sizes) => Some(Category::Parameter),
        _ => Some(Category::ModelState),
    };
    match category {
        None => share_out(decided, &sizes),
        Some(category) => {
            for blocks in sizes.values() {
                set(decided, blocks, category, Evidence::LayerSizes);
            }
        }
    }
    // More parameters are known at this point.
    let mut parameters: HashMap<u64, usize> = HashMap::new();
    for (decision, allocation) in decided.iter().zip(&history.allocations) {
        if decision.category == Category::Parameter {
            *parameters.entry(allocation.requested).or_default() += 1;
        }
    }
    for (bytes, blocks) in of_backward {
        if parameters.get(&bytes).is_some_and(|&count| blocks.len() <= count) {
            set(decided, &blocks, Category::Gradient, Evidence::OlderMirrors);
        }
    }
}

fn set(decided: &mut [Decision], blocks: &[u32], category: Category, evidence: Evidence) {
    for &index in blocks {
        if let Some(decision) = decided.get_mut(index as usize) {
            *decision = Decision { category, evidence };
        }
    }
}

fn known(track: Track<'_>, decided: &[Decision], innermost: impl Fn(StackId) -> Option<FrameId>) -> Known {
    let mut known = Known::default();
    let mut states: HashMap<(u64, FrameId), usize> = HashMap::new();
    for (index, decision) in decided.iter().enumerate() {
        let Some(allocation) = track.history.allocations.get(index).filter(|allocation| allocation.freed == NEVER)
        else {
            continue;
        };
        let line = innermost(track.stack_of(index));
        match (decision.category, line) {
            (Category::Parameter, Some(_)) => *known.parameters.entry(allocation.requested).or_default() += 1,
            (Category::OptimizerState, Some(line)) => *states.entry((allocation.requested, line)).or_default() += 1,
            _ => {}
        }
    }
    for ((bytes, _), blocks) in states {
        let most = known.states.entry(bytes).or_default();
        *most = blocks.max(*most);
    }
    known
}

/// The sizes of a model with many layers: vectors that are as wide as the model, square matrices of that width, and other
/// matrices with that number of rows or columns. Empty if they do not account for most of the bytes.
fn of_layers(unknown: &BySize) -> BySize {
    let bytes_of = |sizes: &mut dyn Iterator<Item = (&u64, &Vec<u32>)>| {
        sizes.fold(0, |sum: u64, (bytes, blocks)| sum.saturating_add(bytes.saturating_mul(blocks.len() as u64)))
    };
    let total = bytes_of(&mut unknown.iter());
    let count = |bytes: u64| unknown.get(&bytes).map_or(0, Vec::len);
    // Elements have 1 to 4 bytes, and the elements of a normalization may have twice the size of those of a matrix.
    let widths: Vec<(u64, u64)> = unknown
        .range(VECTORS)
        .flat_map(|(&width, _)| [1, 2, 4, 8].map(|element| (width, element)))
        .filter(|&(width, element)| count(width) >= LEAST_LAYERS && count(width * width / element) >= LEAST_LAYERS)
        .take(MOST_WIDTHS)
        .collect();
    let is_matrix =
        |bytes: u64| widths.iter().any(|(width, _)| bytes.is_multiple_of(*width) && bytes / width >= LEAST_ROWS);
    let matrices: BySize = unknown.iter().filter(|(bytes, _)| is_matrix(**bytes)).map(owned).collect();
    let most = matrices.values().map(Vec::len).max().unwrap_or(0).min(MOST_LAYERS);
    let repeats = |blocks: &[u32], layers: usize| blocks.len() >= layers && blocks.len() % layers <= 1;
    let repeated = |layers: usize| {
        let sizes = matrices.values().filter(|blocks| repeats(blocks, layers)).count();
        // Embeddings exist once.
        let belongs = |blocks: &Vec<u32>| blocks.len() < layers || repeats(blocks, layers);
        let bytes = bytes_of(&mut matrices.iter().filter(|(_, blocks)| belongs(blocks)));
        let in_layers = bytes_of(&mut matrices.iter().filter(|(_, blocks)| repeats(blocks, layers)));
        let accounts = is_share(bytes, total, LEAST_SHARE) && is_share(in_layers, total, LEAST_SHARE / 2);
        (sizes >= LEAST_MATRICES && accounts).then_some((in_layers, layers))
    };
    // The number of layers that accounts for most bytes; if there are several, the highest.
    let Some((_, layers)) = (LEAST_LAYERS..=most).filter_map(repeated).max() else { return BySize::new() };
    let is_vector = |bytes: u64| {
        let side = |&(width, element): &(u64, u64)| {
            bytes == width || matrices.contains_key(&(width.saturating_mul(bytes) / element))
        };
        VECTORS.contains(&bytes) && widths.iter().any(side)
    };
    let belongs = |&(&bytes, blocks): &(&u64, &Vec<u32>)| {
        let count = blocks.len();
        is_vector(bytes) || (matrices.contains_key(&bytes) && (count < layers || repeats(blocks, layers)))
    };
    unknown.iter().filter(belongs).map(owned).collect()
}

fn owned((&bytes, blocks): (&u64, &Vec<u32>)) -> (u64, Vec<u32>) {
    (bytes, blocks.clone())
}

fn is_share(bytes: u64, total: u64, percent: u64) -> bool {
    u128::from(bytes) * 100 >= u128::from(total) * u128::from(percent)
}

/// How often the sizes contain the same set: a model alone, or with gradients and optimizer states of the same sizes.
fn copies(sizes: &BySize) -> usize {
    let bytes = |(&bytes, blocks): (&u64, &Vec<u32>)| bytes.saturating_mul(blocks.len() as u64);
    let total = sizes.iter().map(bytes).fold(0, u64::saturating_add);
    let holds = |copies: usize| {
        let divides = |blocks: &Vec<u32>| blocks.len().is_multiple_of(copies);
        let divided = sizes.iter().filter(|(_, blocks)| divides(blocks)).map(bytes).fold(0, u64::saturating_add);
        let vectors = sizes.range(VECTORS).all(|(_, blocks)| divides(blocks));
        vectors && is_share(divided, total, LEAST_SHARE_OF_SETS)
    };
    [4, 3, 2].into_iter().find(|&copies| holds(copies)).unwrap_or(1)
}

/// Whether a model exists in two precisions: it is then unknown which of them is trained.
fn is_doubled(sizes: &BySize) -> bool {
    let doubled = |&(&bytes, blocks): &(&u64, &Vec<u32>)| {
        blocks.len() >= LEAST_LAYERS
            && sizes.get(&bytes.saturating_mul(2)).is_some_and(|twice| twice.len() == blocks.len())
    };
    sizes.iter().filter(doubled).count() >= LEAST_MATRICES
}

/// Four equal sets are parameters, gradients and two optimizer states. Which block is in which set is unknown, but the sums
/// are known.
fn share_out(decided: &mut [Decision], sizes: &BySize) {
    const SETS: [Category; 4] =
        [Category::Parameter, Category::Gradient, Category::OptimizerState, Category::OptimizerState];
    for blocks in sizes.values().filter(|blocks| blocks.len().is_multiple_of(SETS.len())) {
        for (part, category) in blocks.chunks(blocks.len() / SETS.len()).zip(SETS) {
            set(decided, part, category, Evidence::EqualSets);
        }
    }
}
