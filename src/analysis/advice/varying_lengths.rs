//! The sizes of blocks differ from pass to pass, as with sequences of different lengths. Freed blocks fit no later request, so
//! reserved memory far exceeds allocated memory.
//!
//! **Sign:** most of a forward pass requests at least three different sizes at the same places, and an eighth of reserved memory
//! is free at its peak.
//!
//! **Fix:** set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` before torch is imported; it needs support by the driver.
//!
//! **Figures** are simulated with this setting, and shown only if they are at least 1/32 of reserved memory.

use super::rules::Evidence;
use super::stacks::common_line;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::segments::expandable::conflicts;
use crate::facts::training::Phase;
use crate::input::alloc_conf::{Rest, parse};
use crate::model::bytes::Bytes;
use crate::model::{AllocatorSettings, StackId};
use crate::replay::{History, Metric};
use crate::simulation::recorded_settings;
use std::collections::{BTreeMap, BTreeSet};

/// Smaller blocks share segments of 2 MiB.
const LARGE: u64 = 1 << 20;
/// Least number of different sizes that one place requests.
const LEAST_SIZES: usize = 3;
/// At least 1/N of reserved memory must be free when it is highest.
const PART_FREE: i64 = 8;

/// One finding if most of a forward pass requests different sizes each time, and segments do not already grow in place.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let settings = recorded_settings(device.track);
    let Some(proposed) = with_expandable_segments(&settings) else { return Vec::new() };
    let history = device.history();
    let [reserved, allocated] =
        [Metric::Reserved, Metric::Allocated].map(|metric| history.maxima[metric as usize].bytes);
    if reserved <= 0 || reserved - allocated < reserved / PART_FREE {
        return Vec::new();
    }
    let varying = varying(device);
    if varying.is_empty() {
        return Vec::new();
    }
    vec![Finding {
        kind: RuleKind::FragmentationVarlen,
        line: common_line(device, &varying),
        evidence: format!(
            "{} is reserved for a peak of {} allocated: the sizes of blocks differ from pass to pass, so new blocks do not fit in \
             those that earlier passes freed",
            Bytes(reserved.unsigned_abs()),
            Bytes(allocated.max(0).unsigned_abs())
        ),
        cost: Some(limits(device)),
        fixes: vec![Fix::new(
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            ["os.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = \"expandable_segments:True\"  # before torch is imported"],
            proposed,
        )],
    }]
}

/// The recorded settings with segments that grow in place; `None` if they already do. Blocks that are never split would
/// prevent them from serving smaller requests.
fn with_expandable_segments(recorded: &AllocatorSettings) -> Option<AllocatorSettings> {
    if recorded.expandable_segments || recorded.other_backend {
        return None;
    }
    let kept = recorded.alloc_conf.split(',').map(str::trim).filter(|pair| {
        !pair.is_empty() && !pair.starts_with("expandable_segments") && !pair.starts_with("max_split_size_mb")
    });
    let text: Vec<&str> = kept.chain(["expandable_segments:True"]).collect();
    parse(&text.join(","), Rest::AfterLast).ok()
}

/// Stacks of forward that request different sizes in each pass, if most of its memory does.
fn varying(device: &Device<'_>) -> Vec<StackId> {
    let (track, phases) = (device.track, device.phases());
    let mut sizes: BTreeMap<StackId, BTreeSet<u64>> = BTreeMap::new();
    let mut bytes: BTreeMap<StackId, u64> = BTreeMap::new();
    // The first request of each stack in a pass: later ones may be for layers of other sizes.
    let mut seen: BTreeSet<StackId> = BTreeSet::new();
    let mut before = Phase::Other;
    let mut all = 0u64;
    for (index, allocation) in history_blocks(device) {
        let Some(entry) = History::entry_before(allocation.born) else { continue };
        let phase = phases.span(entry).map_or(Phase::Other, |span| span.phase);
        if phase == Phase::Forward && before != Phase::Forward {
            seen.clear();
        }
        before = phase;
        if phase != Phase::Forward || allocation.requested < LARGE {
            continue;
        }
        let stack = track.stack_of(index);
        all = all.saturating_add(allocation.requested);
        let of_stack = bytes.entry(stack).or_default();
        *of_stack = of_stack.saturating_add(allocation.requested);
        if seen.insert(stack) {
            sizes.entry(stack).or_default().insert(allocation.requested);
        }
    }
    let varies = |stack: &StackId| sizes.get(stack).is_some_and(|sizes| sizes.len() >= LEAST_SIZES && !is_even(sizes));
    let varying: Vec<StackId> = bytes.keys().copied().filter(varies).collect();
    let sum = varying.iter().filter_map(|stack| bytes.get(stack)).fold(0u64, |sum, &bytes| sum.saturating_add(bytes));
    if sum > all / 2 { varying } else { Vec::new() }
}

/// Whether sizes grow by the same number of bytes each time, as those of a growing cache do.
fn is_even(sizes: &BTreeSet<u64>) -> bool {
    let steps = sizes.iter().zip(sizes.iter().skip(1)).map(|(small, large)| large - small);
    steps.clone().min() == steps.max()
}

fn history_blocks<'d>(device: &'d Device<'_>) -> impl Iterator<Item = (usize, &'d crate::replay::Allocation)> {
    device.history().allocations.iter().enumerate()
}

/// What keeps segments from growing in place, as far as the recording shows it, and what else would help.
fn limits(device: &Device<'_>) -> String {
    let platform = "needs a GPU and a platform that support virtual memory management";
    let other = "padding sequences to a few fixed lengths also helps";
    let parts: Vec<&str> =
        [platform].into_iter().chain(conflicts(device.track, device.sites())).chain([other]).collect();
    parts.join("; ")
}
