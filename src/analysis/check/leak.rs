//! What may be a part of a leak, for all that is known.

use crate::analysis::leaks::DeviceLeaks;
use crate::facts::device::Device;
use crate::facts::doubts::names_file;
use crate::model::StackId;
use crate::replay::NEVER;

/// Bytes that steps between the warm-up and the last one have left behind, and whose code is not known: a leak is told by its code,
/// so that a stack that was lost may hide one. What the last step leaves may still be freed, as gradients are.
pub(super) fn without_a_stack(device: &Device<'_>, leaks: &DeviceLeaks) -> u64 {
    let ends = leaks.steps.as_ref().map(|steps| steps.ends.as_slice()).unwrap_or_default();
    let warm = leaks.warm_up.checked_sub(1).and_then(|last| ends.get(last));
    let (Some(&warm), Some(&last)) = (warm, ends.len().checked_sub(2).and_then(|last| ends.get(last))) else {
        return 0;
    };
    let track = device.track;
    let is_unknown = |entry: u32| {
        track.context(entry).forward == StackId::EMPTY && !names_file(device.snapshot(), track.stack(entry))
    };
    let stays = device.history().allocations.iter().filter(|block| block.freed == NEVER);
    let of_steps = stays.filter(|block| warm < block.born && block.born <= last && is_unknown(block.born - 1));
    of_steps.fold(0, |sum: u64, block| sum.saturating_add(block.requested))
}
