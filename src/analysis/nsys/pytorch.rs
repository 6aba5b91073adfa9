//! Which allocations of a profile are segments of PyTorch's allocator, according to a recording of the same run.
//!
//! A segment is one call of `cudaMalloc` (or `cudaHostAlloc`): an allocation with the same address and size. Expandable
//! segments are mapped in parts, which profiles do not show with addresses to compare.

use crate::facts::device::Devices;
use crate::model::nsys::{NsysProfile, Process};
use crate::replay::SegmentSpan;
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// The part of a profile that a recording shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "NsysPytorch"))]
pub struct PytorchShare {
    /// The process of the recording: the one with the most of its segments; null if the profile has none of them.
    pub pid: Option<i64>,
    /// Segments in the recording, without expandable ones.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Number of these that are in the profile.
    pub found: u64,
    /// Their bytes.
    pub found_bytes: u64,
    /// Allocations of the profile with the address and size of a segment, beyond the number of such segments: the
    /// recording may have started later. They count as PyTorch's.
    pub repeated: u64,
    /// Mapped ranges of expandable segments, which cannot be compared.
    pub expandable: u64,
}

#[derive(Debug, Default)]
pub(super) struct Matches {
    pub share: PytorchShare,
    events: HashSet<usize>,
}

impl Matches {
    pub(super) fn of(profile: &NsysProfile, recording: &Devices<'_>) -> Self {
        let mut share = PytorchShare::default();
        let mut segments: HashMap<(u64, u64), u64> = HashMap::new();
        for span in recording.all().iter().flat_map(|device| &device.history().segments) {
            if span.expandable {
                share.expandable += 1;
            } else {
                *segments.entry(key(span)).or_default() += 1;
                share.segments += 1;
                share.segment_bytes = share.segment_bytes.saturating_add(span.size);
            }
        }
        let mut of_process: HashMap<Process, Vec<usize>> = HashMap::new();
        for (at, event) in profile.events.iter().enumerate() {
            if !event.is_free && segments.contains_key(&(event.address, event.bytes)) {
                of_process.entry(event.process).or_default().push(at);
            }
        }
        // Among processes with equally many, the one with the lowest number.
        let most = of_process.into_iter().max_by_key(|(process, events)| (events.len(), std::cmp::Reverse(*process)));
        let Some((process, events)) = most else { return Self { share, ..Self::default() } };
        share.pid = Some(process.pid());
        for &at in &events {
            let event = &profile.events[at];
            match segments.get_mut(&(event.address, event.bytes)) {
                Some(left) if *left > 0 => {
                    *left -= 1;
                    share.found += 1;
                    share.found_bytes = share.found_bytes.saturating_add(event.bytes);
                }
                _ => share.repeated += 1,
            }
        }
        Self { share, events: events.into_iter().collect() }
    }

    pub(super) fn is_segment(&self, event: usize) -> bool {
        self.events.contains(&event)
    }
}

fn key(span: &SegmentSpan) -> (u64, u64) {
    (span.addr, span.size)
}
