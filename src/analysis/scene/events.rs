//! The entries of a device as a list to browse.

use crate::facts::device::Device;
use crate::facts::grouping::filter::{Filter, matching_stacks};
use crate::model::{Action, StackId};

options! {
    /// Which entries a list contains: those that meet all conditions.
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct EventFilter {
        /// Their actions; empty for all.
        pub actions: Vec<Action>,
        pub at_least: u64,
        /// What one of their frames must match, or a frame of the allocation that they allocate or free, as in [`Scene::search`];
        /// `None` for entries with and without a stack.
        ///
        /// [`Scene::search`]: super::Scene::search
        pub frames: Option<Filter>,
    }
}

/// The entries that pass a filter, in order; `found` are the allocations whose frames match, in order.
pub(super) fn events(device: &Device<'_>, filter: &EventFilter, found: &[u32]) -> Vec<u32> {
    let track = device.track;
    let stacks = filter.frames.as_ref().map(|frames| matching_stacks(track.snapshot, |text| frames.includes(text)));
    let links = &track.history.links;
    let has_frame = |entry: u32, stack: &StackId| {
        stacks.as_ref().is_none_or(|stacks| {
            let link = links.get(entry as usize);
            stacks.get(stack.index()) == Some(&true) || link.is_some_and(|link| found.binary_search(link).is_ok())
        })
    };
    let columns = track.actions().iter().zip(track.sizes()).zip(track.stacks());
    let passes = |&(entry, ((action, &size), stack)): &(u32, ((&Action, &u64), &StackId))| {
        (filter.actions.is_empty() || filter.actions.contains(action))
            && size >= filter.at_least
            && has_frame(entry, stack)
    };
    (0..).zip(columns).filter(passes).map(|(entry, _)| entry).collect()
}
