//! Allocations of one process at one place, from their allocation to their free.

use super::{COLUMNS, NoPeak, NsysDoubt, NsysPeak};
use crate::model::nsys::{MemoryKind, NsysProfile, Process};
use std::collections::HashMap;

/// A block, and the events between which it is live: counted in the events of its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub event: usize,
    pub born: usize,
    /// `usize::MAX` if it is not freed.
    pub gone: usize,
    pub bytes: u64,
    pub kind: MemoryKind,
    pub caller: u32,
}

#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub all: Vec<Block>,
    pub frees: u64,
    pub times: Vec<i64>,
    pub after: Vec<u64>,
    pub allocated: Vec<u64>,
    pub freed: Vec<u64>,
    freed_unseen: u64,
    allocated_twice: u64,
    sizes_differ: u64,
    pooled: u64,
    pool_bytes: u64,
}

impl Blocks {
    /// Pairs allocations with frees of the same context and address.
    pub(super) fn of(profile: &NsysProfile, events: &[usize]) -> Self {
        let mut blocks = Self::default();
        let mut live: HashMap<(i64, u64), usize> = HashMap::new();
        let (mut now, mut allocated, mut freed) = (0, 0, 0);
        for (place, &at) in events.iter().enumerate() {
            let event = &profile.events[at];
            let key = (event.context, event.address);
            // Memory that is allocated again must have been freed before, although the profile does not show that.
            if let Some(known) = live.remove(&key) {
                let block = &mut blocks.all[known];
                block.gone = place;
                now -= block.bytes;
                freed += block.bytes;
                blocks.allocated_twice += u64::from(!event.is_free);
                blocks.sizes_differ += u64::from(event.is_free && event.bytes != 0 && event.bytes != block.bytes);
            } else if event.is_free {
                blocks.freed_unseen += 1;
            }
            if event.is_free {
                blocks.frees += 1;
            } else {
                live.insert(key, blocks.all.len());
                blocks.all.push(Block {
                    event: at,
                    born: place,
                    gone: usize::MAX,
                    bytes: event.bytes,
                    kind: event.kind,
                    caller: event.caller,
                });
                now += event.bytes;
                allocated += event.bytes;
                blocks.pooled += u64::from(event.pool_bytes.is_some());
                blocks.pool_bytes = blocks.pool_bytes.max(event.pool_bytes.unwrap_or(0));
            }
            blocks.times.push(event.start_ns);
            blocks.after.push(now);
            blocks.allocated.push(allocated);
            blocks.freed.push(freed);
        }
        blocks
    }

    /// The first event after which memory is highest.
    pub(super) fn highest(&self) -> Option<usize> {
        // `max_by_key` returns the last of several.
        (0..self.after.len()).rev().max_by_key(|&place| self.after[place])
    }

    /// The peak, unless the order of the events is unknown.
    pub(super) fn peak(&self, profile: &NsysProfile, process: Process) -> Result<NsysPeak, NoPeak> {
        let (first, last) = match (profile.events.first(), profile.events.last()) {
            (Some(first), Some(last)) => (first.start_ns, last.start_ns),
            _ => (0, 0),
        };
        if first == last && profile.events.len() > 1 {
            return Err(NoPeak::NoTimes(first));
        }
        let Some(highest) = self.highest() else { return Ok(NsysPeak::default()) };
        let time_ns = self.times[highest];
        let is_open = |end: Option<i64>| end.is_none_or(|end| end >= time_ns);
        let open = profile
            .ranges
            .iter()
            .take_while(|range| range.start_ns <= time_ns)
            .filter(|range| range.process == process && is_open(range.end_ns));
        Ok(NsysPeak {
            bytes: self.after[highest],
            time_ns,
            end_bytes: self.after.last().copied().unwrap_or(0),
            open_ranges: open.map(|range| range.name.clone()).collect(),
            curve_bytes: self.curve(first, last),
        })
    }

    fn curve(&self, first: i64, last: i64) -> Vec<u64> {
        let span = (i128::from(last) - i128::from(first)).max(1);
        let column = |time: i64| {
            let place = (i128::from(time) - i128::from(first)) * i128::from(COLUMNS) / span;
            place.clamp(0, i128::from(COLUMNS) - 1) as usize
        };
        let mut curve = vec![None; COLUMNS as usize];
        let mut last_of = vec![None; COLUMNS as usize];
        for (&time, &bytes) in self.times.iter().zip(&self.after) {
            let place = column(time);
            curve[place] = curve[place].max(Some(bytes));
            last_of[place] = Some(bytes);
        }
        // Each part starts with the state at the end of the previous part.
        let mut before = 0;
        let parts = curve.into_iter().zip(last_of);
        parts
            .map(|(highest, end): (Option<u64>, Option<u64>)| {
                let highest = highest.unwrap_or(0).max(before);
                before = end.unwrap_or(before);
                highest
            })
            .collect()
    }

    pub(super) fn doubts(&self) -> Vec<NsysDoubt> {
        let counted = [
            (self.freed_unseen, NsysDoubt::FreedUnseen(self.freed_unseen)),
            (self.allocated_twice, NsysDoubt::AllocatedTwice(self.allocated_twice)),
            (self.sizes_differ, NsysDoubt::SizesDiffer(self.sizes_differ)),
            (self.pooled, NsysDoubt::Pooled { allocations: self.pooled, pool_bytes: self.pool_bytes }),
        ];
        counted.into_iter().filter(|(count, _)| *count > 0).map(|(_, doubt)| doubt).collect()
    }
}
