//! What would have happened with expandable segments: the requests of a recording, played again.

use crate::allocator::{Allocator, BlockId, Limits, Placement, Request, SizeRules};
use crate::model::{Action, Snapshot};
use crate::replay::History;
use std::collections::HashMap;

/// How a recording ends when its requests are played again with expandable segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The entry whose request fails; `None` when all are served, the one that failed included.
    pub fails_at: Option<u32>,
    /// Bytes mapped at the end, or at the failure.
    pub reserved: u64,
    /// Bytes that the device has for the process.
    pub capacity: u64,
}

/// Plays the requests before an `oom` entry, and the one that failed there, on a device with `capacity` bytes for the
/// process. Calls of `empty_cache` are not played, since a trace does not tell them from what the allocator does itself.
pub(super) fn replay(snapshot: &Snapshot, history: &History, oom: u32, capacity: u64) -> Replayed {
    let rules = SizeRules::device(&snapshot.settings).with_expandable_segments();
    let limits = Limits::device(capacity);
    let mut allocator = Allocator::new(rules.clone(), limits, Placement::LowestFree, 0);
    let mut blocks: HashMap<u32, BlockId> = HashMap::new();
    for (entry, recorded) in (0..=oom).zip(snapshot.entries.rows(history.rows.clone())) {
        let index = history.links.get(entry as usize).copied().unwrap_or(u32::MAX);
        match recorded.action {
            Action::FreeRequested => blocks.get(&index).into_iter().for_each(|&block| allocator.request_free(block)),
            Action::FreeCompleted => blocks.remove(&index).into_iter().for_each(|block| allocator.free(block)),
            Action::Alloc | Action::Oom if recorded.action == Action::Alloc || entry == oom => {
                let context = snapshot.contexts.get(recorded.context);
                let bytes = rules.round(recorded.size);
                let pool = allocator.pool(context.stream, context.pool, Allocator::segment_type(bytes));
                let request = Request { pool, bytes, requested: recorded.size, is_capturing: false, address: None };
                let Some(block) = allocator.alloc(request) else {
                    return Replayed { fails_at: Some(entry), reserved: allocator.stats().reserved, capacity };
                };
                blocks.insert(index, block);
            }
            _ => {}
        }
    }
    Replayed { fails_at: None, reserved: allocator.stats().reserved, capacity }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recording;

    fn recording(name: &str) -> Recording {
        let path = format!("fixtures/snapshots/{name}/snapshot.pickle.gz");
        Recording::open(path.as_ref(), &crate::input::ReadOptions::default()).unwrap()
    }

    /// PyTorch ran one program with plain and with expandable segments. Its requests, recorded with plain ones and played
    /// again, end in the same failure with the same bytes reserved as PyTorch's own run.
    #[test]
    fn what_is_played_again_is_what_pytorch_does() {
        let [plain, expandable] = ["oom", "oom_expandable"].map(recording);
        let [failed, really] = [&plain, &expandable].map(|recording| {
            let report = recording.oom(&super::super::OomOptions::default()).unwrap();
            report.devices[0].ooms[0].clone()
        });
        let capacity = failed.figures.reserved + failed.device_free;
        assert_eq!(capacity, really.figures.reserved + really.device_free);
        let entry = failed.moment.entry.unwrap();
        let replayed = replay(&plain.snapshot, &plain.histories[0], entry, capacity);
        assert_eq!(replayed, Replayed { fails_at: Some(entry), reserved: really.figures.reserved, capacity });
    }
}
