//! The replayed counters beside those that PyTorch itself counted. Entries of a recording can be missing such that the rest
//! is the recording of a smaller program: only these counters show it.

use super::counters::Metric;
use super::history::History;
use crate::model::memory_stats::{DeviceStats, MemoryStats};
use crate::model::{Action, Snapshot};
use serde::{Deserialize, Serialize};

names! {
    /// When a counter had a value.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum CountedAt {
        /// When the recording started.
        Start = "start",
        /// Over the whole recording.
        All = "all",
        /// When it was written.
        End = "end",
    }
}

/// A counter of PyTorch and its replayed value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparedCounter {
    /// Its name in `torch.cuda.memory_stats()`.
    pub name: String,
    /// When it had these values.
    pub at: CountedAt,
    /// What PyTorch counted.
    pub counted: i64,
    /// What memviz replayed.
    pub replayed: i64,
}

impl ComparedCounter {
    pub fn differs(&self) -> bool {
        self.counted != self.replayed
    }
}

/// All counters of a device that both have, as far as the replay is exact.
pub(super) fn compare(snapshot: &Snapshot, history: &History) -> Vec<ComparedCounter> {
    let stats = usize::try_from(history.device)
        .ok()
        .and_then(|device| snapshot.notes.memory_stats.as_ref()?.devices.get(device));
    let known = history.completeness;
    let is_lost = known.no_entries || known.overflowed || known.ring_full || known.truncated;
    match stats {
        Some(stats) if !is_lost => compared(snapshot, history, stats),
        _ => Vec::new(),
    }
}

fn compared(snapshot: &Snapshot, history: &History, stats: &DeviceStats) -> Vec<ComparedCounter> {
    let mut found = Vec::new();
    let mut add = |name: String, at, counted: Option<i64>, replayed| {
        found.extend(counted.map(|counted| ComparedCounter { name, at, counted, replayed }));
    };
    let actions = snapshot.entries.actions().get(history.rows.clone()).unwrap_or(&[]);
    let requests = actions.iter().filter(|&&action| action == Action::Alloc).count() as i64;
    // Fewer than there are entries: the program has reset the counter.
    add(
        MemoryStats::REQUESTS.to_owned(),
        CountedAt::All,
        stats.requests().filter(|&counted| counted >= requests),
        requests,
    );
    for metric in Metric::ALL.into_iter().filter(|&metric| history.completeness.bound(metric).is_none()) {
        let [current, peak] = ["current", "peak"].map(|kind| format!("{}_bytes.all.{kind}", metric.name()));
        if history.completeness.baseline_bound().is_none() {
            add(current.clone(), CountedAt::Start, stats.at_start(&current), history.start.get(metric));
        }
        let highest = history.maxima[metric as usize].bytes;
        // A peak from before the recording may be higher, and a program can reset peaks: then they are lower.
        let before = stats.at_start(&peak);
        let counted =
            stats.at_end(&peak).filter(|&counted| before.is_some_and(|it| it < counted) && counted >= highest);
        add(peak, CountedAt::All, counted, highest);
        add(current.clone(), CountedAt::End, stats.at_end(&current), history.end.get(metric));
    }
    found
}
