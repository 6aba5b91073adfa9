//! Memory that may be part of a leak, as far as the recording shows.

use crate::analysis::leaks::DeviceLeaks;
use crate::facts::device::Device;
use crate::facts::doubts::names_file;
use crate::model::StackId;
use crate::replay::NEVER;
use std::collections::HashSet;

/// Bytes that steps between the warm-up and the last one left behind and whose code is unknown: a leak is recognized by its
/// code, so a lost stack may hide one. Memory that the last step leaves may still be freed, as gradients are.
pub(super) fn without_a_stack(device: &Device<'_>, leaks: &DeviceLeaks) -> u64 {
    let track = device.track;
    left_behind(device, leaks, |_, entry| {
        track.context(entry).forward == StackId::EMPTY && !names_file(device.snapshot(), track.stack(entry))
    })
}

/// Bytes that these steps left behind with the stack of an older block whose entry is lost: if entries of steps are lost as
/// well, these bytes may be a part of a leak that is visible in too few of the steps.
pub(super) fn of_lost_entries(device: &Device<'_>, leaks: &DeviceLeaks) -> u64 {
    let track = device.track;
    let older = track.history.allocations.iter().enumerate().filter(|(_, block)| block.born == 0);
    let older: HashSet<StackId> = older.map(|(index, _)| track.stack_of(index)).collect();
    left_behind(device, leaks, |index, _| {
        let stack = track.stack_of(index);
        stack != StackId::EMPTY && older.contains(&stack)
    })
}

/// Requested bytes of blocks that the judged steps leave behind and that satisfy a condition on their index and entry.
fn left_behind(device: &Device<'_>, leaks: &DeviceLeaks, is_meant: impl Fn(usize, u32) -> bool) -> u64 {
    let ends = leaks.steps.as_ref().map(|steps| steps.ends.as_slice()).unwrap_or_default();
    let warm = leaks.warm_up.checked_sub(1).and_then(|last| ends.get(last));
    let (Some(&warm), Some(&last)) = (warm, ends.len().checked_sub(2).and_then(|last| ends.get(last))) else {
        return 0;
    };
    let stays = device.history().allocations.iter().enumerate().filter(|(_, block)| block.freed == NEVER);
    let of_steps = stays.filter(|(_, block)| warm < block.born && block.born <= last);
    let meant = of_steps.filter(|&(index, block)| is_meant(index, block.born - 1));
    meant.fold(0, |sum: u64, (_, block)| sum.saturating_add(block.requested))
}
