//! The memory at a peak in the optimizer: checkpointing does not change it, but other things may.

use crate::facts::code::frames::FrameKind;
use crate::facts::code::sites::Sites;
use crate::facts::device::Device;
use crate::facts::training::Phase;
use crate::model::StackId;
use crate::replay::{History, Instant, Metric};
use crate::simulation::changes::functions::HeldByCalls;
use serde::Serialize;

/// A peak in the optimizer step, by when its blocks were allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OptimizerPeak {
    /// Bytes that the optimizer allocates and frees before its step ends.
    pub temporary_bytes: u64,
    /// Bytes that the optimizer allocates and keeps: its states.
    pub kept_bytes: u64,
    /// Bytes that backward allocated: gradients.
    pub backward_bytes: u64,
    /// Everything else: parameters, and memory from before the recording.
    pub other_bytes: u64,
    /// Whether some temporaries are allocated for lists of tensors at once (`foreach=True`).
    pub foreach: bool,
    /// The maximum of allocated bytes in forward and backward; null if the recording has neither.
    #[serde(rename = "forward_backward_peak_bytes")]
    pub elsewhere_bytes: Option<i64>,
    /// The repeatedly called function that holds the most at the end of the previous forward pass: freed by now, but
    /// the one to checkpoint once the optimizer needs less.
    #[serde(skip)]
    pub forward_function: Option<HeldByCalls>,
}

impl OptimizerPeak {
    /// Examines the blocks allocated at an instant within an optimizer step.
    pub(super) fn of(device: &Device<'_>, instant: Instant, forward_function: Option<HeldByCalls>) -> Self {
        let (track, history) = (device.track, device.history());
        let (sites, phases) = (device.sites(), device.phases());
        let mut found = Self { forward_function, ..Self::default() };
        let end = History::entry_before(instant).and_then(|entry| phases.span(entry)).map_or(instant, |span| span.end);
        let there = history.allocations.iter().enumerate().filter(|(_, block)| block.allocated_at(instant));
        for (index, block) in there {
            match phases.at(block.born) {
                Phase::Optimizer if block.freed <= end => {
                    found.temporary_bytes += block.size;
                    found.foreach |= is_foreach(sites, track.stack_of(index));
                }
                Phase::Optimizer => found.kept_bytes += block.size,
                Phase::Backward => found.backward_bytes += block.size,
                _ => found.other_bytes += block.size,
            }
        }
        track.walk(|instant, counters| {
            if matches!(phases.at(instant), Phase::Forward | Phase::Backward) {
                let bytes = counters.get(Metric::Allocated);
                found.elsewhere_bytes = Some(found.elsewhere_bytes.map_or(bytes, |known| known.max(bytes)));
            }
        });
        found
    }
}

/// Whether a function of `torch.optim` that works on lists of tensors is on a stack: `_multi_tensor_adamw`.
fn is_foreach(sites: &Sites<'_>, stack: StackId) -> bool {
    let snapshot = sites.snapshot();
    snapshot.stacks.frame_ids(stack).iter().any(|&id| {
        let name = snapshot.stacks.frame(id).map_or("", |frame| snapshot.strings.get(frame.name));
        sites.kind(id) == FrameKind::Torch && name.starts_with("_multi_tensor_")
    })
}
