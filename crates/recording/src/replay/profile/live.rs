//! From the live buffers at one instant to histories without entries.

use super::super::history::{BaselineOrigin, History};
use super::ledger::{Ledger, block};
use super::{begin, close, finish};
use crate::model::live::{LiveProfile, LiveSample};
use crate::model::{DeviceId, EntryContext, Snapshot};
use std::collections::BTreeMap;

/// Converts buffers to allocations from before a history without entries, in the order of [`Snapshot::traces`]. A file
/// contains the number of buffers and their sum: each buffer gets an equal part of the sum.
pub fn convert_live(live: LiveProfile) -> (Snapshot, Vec<History>) {
    let mut snapshot = begin(live.strings, live.notes, Vec::new());
    snapshot.stacks = live.stacks;
    let mut devices: BTreeMap<DeviceId, Vec<LiveSample>> = BTreeMap::new();
    for sample in live.samples {
        devices.entry(sample.device).or_default().push(sample);
    }
    let context = snapshot.contexts.intern(EntryContext::default());
    let mut histories = Vec::new();
    for (device, samples) in devices {
        let mut ledger = Ledger::new(&mut snapshot.entries, context);
        let mut origins = Vec::new();
        for sample in samples {
            let (each, rest) = (sample.bytes / sample.count, sample.bytes % sample.count);
            for index in 0..sample.count {
                let allocation = block(0, each + u64::from(index < rest), 0);
                ledger.allocations.push(allocation);
                ledger.start.add_baseline(&allocation);
                origins.push(BaselineOrigin { stack: sample.stack, ..BaselineOrigin::default() });
            }
        }
        let mut history = close(ledger, device, 0);
        history.baseline = origins;
        history.completeness.no_entries = true;
        finish(&mut snapshot, &mut history);
        histories.push(history);
    }
    (snapshot, histories)
}
