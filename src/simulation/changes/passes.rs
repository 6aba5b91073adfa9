//! Forward passes of a recording.

use crate::facts::training::{Call, Calls, Phase, Phases};
use crate::replay::{History, Instant, Track};
use std::collections::HashMap;
use std::ops::Range;

/// The forward passes of a recording that checkpointing would change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passes {
    pub(crate) entries: Vec<Range<u32>>,
    /// Entries of its forward, without other entries in between, such as `zero_grad`.
    pub(crate) forward: Vec<Range<u32>>,
    /// Whether these are passes that no backward pass follows, but that keep what one would need.
    pub(crate) is_open: bool,
}

impl Passes {
    /// The passes followed by a backward pass; otherwise, if there is none or the peak is not before it, the later passes
    /// that keep what a backward pass would need.
    pub(crate) fn of(phases: &Phases, calls: &Calls, history: &History, peak: Instant) -> Self {
        let (mut entries, mut forward): (Vec<Range<u32>>, Vec<Range<u32>>) = Default::default();
        let mut open: Vec<Range<u32>> = Vec::new();
        for span in &phases.spans {
            match span.phase {
                Phase::Forward => open.push(span.start..span.end),
                Phase::Backward => {
                    entries.extend(open.first().map(|first| first.start..span.start));
                    forward.append(&mut open);
                }
                _ => {}
            }
        }
        if entries.is_empty() || open.first().is_some_and(|first| first.start < peak) {
            open.retain(|pass| keeps_graph(calls, history, pass));
            if !open.is_empty() {
                return Self { forward: open.clone(), entries: open, is_open: true };
            }
        }
        Self { entries, forward, is_open: false }
    }

    /// The pass of an entry.
    pub(crate) fn around(&self, entry: u32) -> Option<&Range<u32>> {
        self.entries.get(self.entries.partition_point(|pass| pass.end <= entry)).filter(|pass| pass.start <= entry)
    }

    /// The start of the pass after the one around or before an instant.
    pub(crate) fn end_of_step(&self, instant: u32, entries: u32) -> u32 {
        let next = self.entries.partition_point(|pass| pass.start < instant);
        self.entries.get(next).map_or(entries, |pass| pass.start)
    }

    pub(crate) fn split<'c>(&self, calls: impl IntoIterator<Item = &'c Call>) -> Vec<Vec<&'c Call>> {
        let mut passes = vec![Vec::new(); self.entries.len()];
        let mut over = 0;
        for call in calls {
            let pass = self.entries.partition_point(|pass| pass.end <= call.start);
            // Nested calls of the same function are part of the outer call.
            if call.start >= over
                && let Some(calls) = passes.get_mut(pass)
                && self.entries[pass].start <= call.start
            {
                calls.push(call);
                over = call.end;
            }
        }
        passes
    }

    /// The mean time of a pass and of the calls within it, in microseconds, if the file has times.
    pub(crate) fn mean_us(&self, track: Track<'_>, calls: &[Vec<&Call>]) -> Option<(i64, i64)> {
        let times = track.times();
        let passes = self.entries.len() as i64;
        if !track.has_times() || passes == 0 {
            return None;
        }
        // An entry lasts until the next one.
        let last = times.len().checked_sub(1)?;
        let lasted =
            |start: u32, end: u32| times[last.min(end as usize)].saturating_sub(times[last.min(start as usize)]);
        let passed = self.forward.iter().fold(0i64, |sum, part| sum.saturating_add(lasted(part.start, part.end)));
        let called = calls.iter().flatten().fold(0i64, |sum, call| sum.saturating_add(lasted(call.start, call.end)));
        Some((passed / passes, called / passes))
    }
}

/// Whether much of what repeated calls of a pass allocate is still live when the pass ends.
///
/// Without gradients, only the result of a call stays, and possibly a cache of keys and values, which is a small part of what
/// it allocates. With gradients, most of it stays. Blocks that are allocated only once, such as workspaces, do not count.
fn keeps_graph(calls: &Calls, history: &History, pass: &Range<u32>) -> bool {
    const SHARE: u64 = 3;
    let within = |call: &&Call| pass.start <= call.start && call.end <= pass.end;
    let mut times = vec![0u32; calls.functions.len()];
    for call in calls.calls.iter().filter(within) {
        times[call.function.index()] += 1;
    }
    let mut over = 0;
    // For each size, the number of allocated blocks and of those that stay live.
    let mut of_size: HashMap<u64, (u64, u64)> = HashMap::new();
    for call in calls.calls.iter().filter(within).filter(|call| times[call.function.index()] > 1) {
        let start = call.start.max(over);
        let behind = |entry: u32| history.born_after(entry);
        for allocation in history.allocations.get(behind(start)..behind(call.end)).unwrap_or(&[]) {
            let (made, kept) = of_size.entry(allocation.size).or_default();
            *made += 1;
            *kept += u64::from(allocation.freed > pass.end);
        }
        over = over.max(call.end);
    }
    let repeated = || of_size.iter().filter(|(_, (made, _))| *made > 1);
    let made = repeated().fold(0u64, |sum, (size, (made, _))| sum.saturating_add(size.saturating_mul(*made)));
    let kept = repeated().fold(0u64, |sum, (size, (_, kept))| sum.saturating_add(size.saturating_mul(*kept)));
    made > 0 && kept.saturating_mul(SHARE) >= made
}
