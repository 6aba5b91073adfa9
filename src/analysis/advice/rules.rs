//! The table of rules: the mistakes that memviz knows, and how it finds, judges and explains each.
//!
//! A new rule is a file with a function `find`, whose leading `//!` lines are its page for users, and a row here.

use super::attention_matrix::expanded_mask;
use super::model_calls::ModelCalls;
use super::{
    Finding, abandoned, activations_in_place, attention_matrix, cast_copies, dataloader_prefetch, detached,
    duplicate_model, expressions, flat_gradients, foreach_temporaries, fp32_logits, frozen, frozen_model, grads_kept,
    grads_zeroed, graph_pools, growing, held, inference_cache, kept_outputs, kept_over_steps, kv_cache_growth,
    last_logits, master_copies, master_gradients, moved_gradients, one_hot, pairs, release_cache, replaced,
    second_optimizer, several_graphs, side_stream, temporaries, varying_lengths, whole_copies, without_backward,
    zero_grad_late,
};
use crate::facts::device::Device;
use crate::model::HOST_DEVICE;
use crate::parallel;
use std::sync::OnceLock;

/// The facts that take long, of which a finder needs one. Those that need less start earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// The calls of models, and the categories of blocks.
    Calls,
    /// The categories of blocks.
    Categories,
    Nothing,
}

/// What finders look at.
pub(super) struct Evidence<'d, 'a> {
    pub device: &'d Device<'a>,
    /// Whether the fixes will be simulated.
    pub is_simulated: bool,
    calls: OnceLock<ModelCalls>,
}

/// A function that looks for a mistake.
struct Finder {
    needs: Needs,
    find: fn(&Evidence<'_, '_>) -> Vec<Finding>,
}

/// Which fixes of a rule are worth telling, and how far their figures can be trusted.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts about a rule")]
pub(super) struct Policy {
    /// Whether the memory accumulates from step to step.
    pub piles_up: bool,
    /// Whether the fix copies what the program collects to the CPU.
    pub copies_results: bool,
    /// A fix must lower the peak of allocated memory: nobody recomputes a layer, copies results or rewrites operators for a saving
    /// that depends on where blocks are placed.
    pub must_lower_allocated: bool,
    /// A simulated fix must save 1/N of reserved memory: see the row.
    pub least_part_reserved: Option<u64>,
    /// Whether only a simulation shows that a fix saves anything.
    pub must_be_simulated: bool,
    /// Whether reserved memory depends on where the changed program places blocks that the simulation knows little about.
    pub is_reserved_uncertain: bool,
}

impl Policy {
    const DEFAULT: Self = Self {
        piles_up: false,
        copies_results: false,
        must_lower_allocated: false,
        least_part_reserved: None,
        must_be_simulated: false,
        is_reserved_uncertain: false,
    };
}

/// The leading comment of a file: without the rest, which would make the binary larger.
macro_rules! leading_comment {
    ($file:literal) => {{
        const SOURCE: &[u8] = include_bytes!($file);
        const LENGTH: usize = length_of_comment(SOURCE);
        static COMMENT: [u8; LENGTH] = *SOURCE.first_chunk::<LENGTH>().unwrap();
        &COMMENT
    }};
}

/// Defines [`RuleKind`] from the rows of the table: kind, name, title, what differs from [`Policy::DEFAULT`], finders with what each
/// needs, and the files with the rule's page.
macro_rules! rules {
    ($($kind:ident $name:literal $title:literal
       { $($key:ident: $value:expr),* } [$($needs:ident $finder:ident),*] [$($page:literal),+],)+) => {
        /// A known mistake, by a name that stays the same in JSON.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum RuleKind { $(#[doc = $title] $kind,)+ }

        impl RuleKind {
            /// All kinds, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// The name in JSON.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }

            /// The mistake, in a sentence.
            pub fn title(self) -> &'static str {
                match self { $(Self::$kind => $title,)+ }
            }

            /// The page for users: the mistake, how it is recognized, its fix, and what the figures rest on.
            pub fn page(self) -> String {
                match self { $(Self::$kind => page_of(&[$(leading_comment!($page)),+]),)+ }
            }

            pub(super) fn policy(self) -> Policy {
                match self { $(Self::$kind => Policy { $($key: $value,)* ..Policy::DEFAULT },)+ }
            }
        }

        /// The finders of all rules, in the order of the table.
        const FINDERS: &[Finder] = &[$($(Finder { needs: Needs::$needs, find: $finder::find },)*)+];
    };
}

// Kinds whose finders need the same are in the order of their findings, the most telling first. Attention takes longest, so it starts
// first: the others run on the threads that it leaves idle.
rules! {
    AttentionMatrix "attention_matrix" "Attention allocates the matrix of all token pairs."
        {} [Categories attention_matrix, Categories expanded_mask] ["attention_matrix/mod.rs", "attention_matrix/expanded_mask.rs"],
    RetainedGraph "retained_graph" "Tensors are kept from step to step together with their autograd graph."
        { piles_up: true } [Calls kept_over_steps, Calls abandoned] ["retained.rs", "abandoned.rs"],
    AccumulatingMetrics "accumulating_metrics" "Results of all batches are collected on the device."
        { piles_up: true, copies_results: true, must_lower_allocated: true } [] ["collected.rs"],
    EvalWithoutNoGrad "eval_without_no_grad" "Evaluation with gradients enabled."
        {} [Calls without_backward, Calls detached] ["without_backward.rs", "detached.rs"],
    GradsKept "grads_kept" "Gradients stay live through an evaluation."
        {} [Calls grads_kept, Categories moved_gradients] ["grads_kept.rs", "moved_gradients.rs"],
    ZeroGradLate "zero_grad_late" "Gradients of the previous step stay live through the forward pass."
        {} [Calls grads_zeroed, Categories zero_grad_late, Categories master_gradients]
        ["zero_grad_late.rs", "grads_zeroed.rs", "master_gradients.rs"],
    Held "held" "A variable, attribute or exception holds memory that the program has finished with."
        {} [Calls held, Calls growing, Calls replaced, Categories second_optimizer] ["held.rs", "growing.rs", "replaced.rs", "second_optimizer.rs"],
    SeveralGraphs "several_graphs" "Several forward passes before one backward pass keep all of their graphs."
        {} [Calls several_graphs] ["several_graphs.rs"],
    GraphPools "graph_pools" "CUDA graphs with a memory pool each, none of which another graph can use."
        {} [Calls graph_pools] ["graph_pools.rs"],
    KeptOutputs "kept_outputs" "The output of a step stays referenced through backward and the next forward pass."
        {} [Calls kept_outputs] ["kept_outputs.rs"],
    // Emptying the cache costs time, and only a simulation shows whether later requests fit the segments that stay.
    ReleaseCache "release_cache" "Free segments from an earlier phase stay reserved."
        { least_part_reserved: Some(8), must_be_simulated: true, is_reserved_uncertain: true }
        [Calls release_cache] ["release_cache.rs"],
    DuplicateModel "duplicate_model" "A second copy of the weights that need not be on the device."
        {} [Calls duplicate_model, Categories cast_copies] ["duplicate_model.rs", "cast_copies.rs"],
    OptimizerStatesOfFrozen "optimizer_states_of_frozen" "Gradients and states of weights that need no training."
        {} [Calls frozen, Calls frozen_model, Calls master_copies]
        ["frozen.rs", "frozen_model.rs", "low_rank.rs", "master_copies.rs"],
    ForeachTemporaries "foreach_temporaries" "The optimizer allocates temporaries for all parameters at once."
        {} [Categories foreach_temporaries] ["foreach_temporaries.rs"],
    // Where the chunks are placed depends on how the program uses them.
    Fp32Logits "fp32_logits" "All logits in float32, with their loss computed at once."
        { must_lower_allocated: true, is_reserved_uncertain: true } [Categories fp32_logits] ["fp32_logits.rs"],
    LastLogits "last_logits" "Logits of all tokens, where those of the last one are read."
        { must_lower_allocated: true } [Calls last_logits] ["last_logits.rs"],
    PairwiseDifferences "pairwise_differences" "All pairs of rows are compared element by element."
        { must_lower_allocated: true } [Categories pairs] ["pairs.rs"],
    OneHot "one_hot" "One-hot rows that select rows of a matrix."
        { must_lower_allocated: true } [Categories one_hot] ["one_hot.rs"],
    DataloaderPrefetchGpu "dataloader_prefetch_gpu" "Batches on the device long before they are needed."
        {} [Categories dataloader_prefetch] ["dataloader_prefetch.rs"],
    SideStreamStranding "side_stream_stranding" "Memory reserved for a second stream that the first cannot use."
        {} [Categories side_stream] ["side_stream.rs"],
    KvCacheGrowth "kv_cache_growth" "A cache of keys and values that is copied to grow."
        { piles_up: true } [Nothing kv_cache_growth] ["kv_cache_growth.rs"],
    InferenceCache "inference_cache" "A library reserves memory for inference during training."
        {} [Nothing inference_cache] ["inference_cache.rs"],
    // Expandable segments need support by the driver.
    FragmentationVarlen "fragmentation_varlen" "Sequence lengths vary, so that much reserved memory fits no request."
        { least_part_reserved: Some(32) } [Nothing varying_lengths] ["varying_lengths.rs"],
    Temporary "temporary" "Temporaries of one line cause the peak."
        { must_lower_allocated: true }
        [Categories flat_gradients, Categories temporaries, Nothing whole_copies, Nothing expressions,
         Nothing activations_in_place]
        ["whole_copies.rs", "expressions.rs", "activations_in_place.rs", "temporaries.rs", "flat_gradients.rs"],
}

impl RuleKind {
    /// Whether the memory accumulates from step to step.
    pub fn piles_up(self) -> bool {
        self.policy().piles_up
    }
}

impl<'d, 'a> Evidence<'d, 'a> {
    pub fn of(device: &'d Device<'a>, is_simulated: bool) -> Self {
        Self { device, is_simulated, calls: OnceLock::new() }
    }

    /// The calls of models.
    pub fn calls(&self) -> &ModelCalls {
        self.calls.get_or_init(|| ModelCalls::of(self.device))
    }

    /// What the finders find, in the order of what they need and of the table.
    pub fn findings(&self) -> Vec<Finding> {
        if self.device.id() <= HOST_DEVICE {
            return Vec::new();
        }
        let all = |needs: Needs| -> Vec<Finding> {
            let finders = FINDERS.iter().filter(|finder| finder.needs == needs);
            parallel::map(finders, |finder| (finder.find)(self)).into_iter().flatten().collect()
        };
        // Categories take about as long as all that can be found without them. The calls of models take longest of that, so they
        // start first.
        let without = || parallel::join(|| ModelCalls::of(self.device), || all(Needs::Nothing));
        let ((), (calls, others)) = parallel::join(|| self.device.prepare_categories(), without);
        let _ = self.calls.set(calls);
        let (mut found, of_categories) = parallel::join(|| all(Needs::Calls), || all(Needs::Categories));
        found.extend(of_categories.into_iter().chain(others));
        found.retain_mut(|finding| held::confirm(self.device, finding));
        found
    }
}

/// The bytes of the `//!` lines with which a file starts.
const fn length_of_comment(source: &[u8]) -> usize {
    let mut at = 0;
    while at + 2 < source.len() && source[at] == b'/' && source[at + 1] == b'/' && source[at + 2] == b'!' {
        while at < source.len() && source[at] != b'\n' {
            at += 1;
        }
        at += 1;
    }
    if at < source.len() { at } else { source.len() }
}

/// Comments as Markdown.
fn page_of(comments: &[&[u8]]) -> String {
    let text = |comment: &&[u8]| -> String {
        let comment = String::from_utf8_lossy(comment);
        let lines = comment.lines().map(|line| line.trim_start_matches("//!").trim_start_matches(' '));
        lines.flat_map(|line| [line, "\n"]).collect()
    };
    comments.iter().map(text).collect::<Vec<String>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::RuleKind;
    use std::collections::HashSet;
    use std::fmt::Write as _;

    /// The page of the book: the pages of all rules.
    #[test]
    fn the_book_has_all_rules() {
        let mut book = "# Rules\n\nThe mistakes that memviz looks for, by their names in JSON. `memviz rules` lists them, and `memviz rules \
                        NAME` prints one of\nthese sections. A fix is shown if its simulation saves at least 8 MiB and 1% of a peak.\n"
            .to_owned();
        for kind in RuleKind::ALL {
            write!(book, "\n## {}\n\n{}\n\n{}", kind.name(), kind.title(), kind.page()).unwrap();
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/src/rules.md");
        if std::env::var("MEMVIZ_BLESS").is_ok_and(|value| value == "1") {
            std::fs::write(path, &book).unwrap();
        }
        let is_same = std::fs::read_to_string(path).is_ok_and(|text| text == book);
        assert!(is_same, "MEMVIZ_BLESS=1 cargo test --lib the_book_has_all_rules writes docs/src/rules.md");
    }

    #[test]
    fn names_differ_and_pages_name_a_fix() {
        let names: HashSet<&str> = RuleKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), RuleKind::ALL.len());
        for kind in RuleKind::ALL {
            let page = kind.page();
            assert!(page.to_lowercase().contains("fix"), "{}", kind.name());
            assert!(page.contains("**Figures"), "{}", kind.name());
        }
    }
}
