//! The entries of a device as a list to look through.

use crate::facts::device::Device;
use crate::facts::grouping::filter::{Filter, matching_stacks};
use crate::model::{Action, StackId};

/// Which entries a list has: those that pass everything here.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EventFilter {
    /// Their actions; empty for all.
    pub actions: Vec<Action>,
    /// Their bytes, at least.
    pub at_least: u64,
    /// What one of their frames must match; `None` for entries with and without a stack.
    pub frames: Option<Filter>,
}

setters!(EventFilter { actions: Vec<Action>, at_least: u64, frames: Option<Filter> });

/// The entries that a filter lets through, in order.
pub(super) fn events(device: &Device<'_>, filter: &EventFilter) -> Vec<u32> {
    let track = device.track;
    let stacks = filter.frames.as_ref().map(|frames| matching_stacks(track.snapshot, |text| frames.includes(text)));
    let columns = track.actions().iter().zip(track.sizes()).zip(track.stacks());
    let passes = |((action, &size), stack): ((&Action, &u64), &StackId)| {
        (filter.actions.is_empty() || filter.actions.contains(action))
            && size >= filter.at_least
            && stacks.as_ref().is_none_or(|stacks| stacks.get(stack.index()) == Some(&true))
    };
    (0..).zip(columns).filter_map(|(entry, columns)| passes(columns).then_some(entry)).collect()
}
