//! Converts `export_memory_timeline` to entries and a history: allocations whose stack is their category.

use super::super::anomaly::AnomalyKind;
use super::super::history::History;
use super::frames::Frames;
use super::ledger::{Ledger, block};
use super::{begin, close, finish};
use crate::model::profile::{CATEGORIES, MemoryTimeline, TimelineStep};
use crate::model::stacks::special;
use crate::model::{DeviceId, EntryContext, Frame, Snapshot, StackId, Strings};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// The device of a timeline. The file does not name it.
const DEVICE: DeviceId = 0;

/// Converts a timeline to a snapshot and its only history; no history if nothing was recorded.
pub fn convert_timeline(timeline: MemoryTimeline) -> (Snapshot, Vec<History>) {
    let mut strings = Strings::default();
    let mut frames = Frames::new(&mut strings);
    let filename = strings.intern(special::CATEGORY);
    let stacks = CATEGORIES.map(|category| {
        let name = strings.intern(category);
        frames.single(Frame { filename, name, line: 0, fx: None })
    });
    let mut snapshot = begin(strings, timeline.notes, Vec::new());
    snapshot.stacks = frames.into_stacks();
    if timeline.steps.is_empty() {
        return (snapshot, Vec::new());
    }
    let context = snapshot.contexts.intern(EntryContext::default());
    let ledger = Ledger::new(&mut snapshot.entries, context);
    let mut writer = Writer { ledger, stacks: &stacks, tensors: HashMap::default(), categories: Vec::new() };
    if timeline.is_sums {
        writer.sums(&timeline.steps);
    } else {
        writer.tensors(&timeline.steps);
    }
    let Writer { ledger, categories, .. } = writer;
    let mut history = close(ledger, DEVICE, 0);
    for (origin, category) in history.baseline.iter_mut().zip(categories) {
        origin.stack = stacks[usize::from(category)];
    }
    history.completeness.sampled = timeline.is_sums;
    finish(&mut snapshot, &mut history);
    (snapshot, vec![history])
}

struct Writer<'a> {
    ledger: Ledger<'a>,
    stacks: &'a [StackId; CATEGORIES.len()],
    /// Live allocations by category and size. The file does not distinguish tensors with the same category and size.
    tensors: HashMap<(u8, u64), Vec<u32>, RandomState>,
    /// Category of each allocation from before the recording.
    categories: Vec<u8>,
}

impl Writer<'_> {
    /// Adds a file of single tensors.
    fn tensors(&mut self, steps: &[TimelineStep]) {
        let before = steps.iter().take_while(|step| step.time_ns < 0 && step.bytes >= 0).count();
        let (before, after) = steps.split_at(before);
        for step in before {
            let index = self.begin_with(step);
            self.tensors.entry((step.category, step.bytes.unsigned_abs())).or_default().push(index);
        }
        for step in after {
            self.ledger.at(step.time_ns.div_euclid(1000));
            let size = step.bytes.unsigned_abs();
            let alike = self.tensors.entry((step.category, size)).or_default();
            if step.bytes >= 0 {
                alike.push(self.ledger.allocate(0, size, self.stacks[usize::from(step.category)]));
            } else if let Some(index) = alike.pop() {
                self.ledger.free(index);
            } else {
                self.ledger.anomaly(AnomalyKind::FreeOfUnknown, 0);
                self.ledger.free_of_unknown(0, size);
            }
        }
    }

    /// Adds a file of sums: each sum of a category is one allocation that lives until the next sum.
    fn sums(&mut self, steps: &[TimelineStep]) {
        let mut held: [Option<u32>; CATEGORIES.len()] = [None; CATEGORIES.len()];
        let mut rows = steps.chunk_by(|_, next| !next.starts_row);
        for step in rows.next().unwrap_or(&[]) {
            held[usize::from(step.category)] = Some(self.begin_with(step));
        }
        for row in rows {
            self.ledger.at(row[0].time_ns.div_euclid(1000));
            // Frees come first, so that the total never exceeds the higher of two rows.
            for step in row {
                if let Some(index) = held[usize::from(step.category)].take() {
                    self.ledger.free(index);
                }
            }
            for step in row.iter().filter(|step| step.bytes != 0) {
                if step.bytes < 0 {
                    self.ledger.anomaly(AnomalyKind::NegativeTotal, 0);
                    continue;
                }
                let stack = self.stacks[usize::from(step.category)];
                held[usize::from(step.category)] = Some(self.ledger.allocate(0, step.bytes.unsigned_abs(), stack));
            }
        }
    }

    /// Adds memory from before the recording.
    fn begin_with(&mut self, step: &TimelineStep) -> u32 {
        let ledger = &mut self.ledger;
        let size = u64::try_from(step.bytes).unwrap_or(0);
        if step.bytes < 0 {
            ledger.anomalies.add(AnomalyKind::NegativeTotal, None, 0);
        }
        let allocation = block(0, size, 0);
        ledger.allocations.push(allocation);
        ledger.baseline += 1;
        ledger.start.add_baseline(&allocation);
        self.categories.push(step.category);
        (ledger.allocations.len() - 1) as u32
    }
}
