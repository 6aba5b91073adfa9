//! Fragmentation over a history, in a bounded number of rows.

use crate::facts::segments::figures::Figures;
use crate::facts::segments::layout::Sweep;
use crate::facts::time::annotations::Annotations;
use crate::facts::time::moment::Moment;
use crate::replay::{History, Instant, Track};
use serde::{Serialize, Serializer};

/// The figures at one instant of a series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "OverTime"))]
pub struct OverTimeRow {
    /// Where it is.
    #[serde(flatten)]
    pub moment: Moment,
    /// Sums over all segments there.
    #[serde(flatten)]
    pub figures: Figures,
}

/// An instant, and the inactive bytes there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "MostInactiveInstant"))]
pub struct MostInactive {
    /// First entry that leads there; null before the first entry.
    #[serde(rename = "entry", serialize_with = "entry_before")]
    #[cfg_attr(test, schemars(with = "Option<u32>"))]
    pub instant: Instant,
    /// Inactive bytes there: `reserved - active`.
    pub inactive_bytes: i64,
    /// Reserved bytes there.
    pub reserved_bytes: i64,
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn entry_before<S: Serializer>(instant: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    History::entry_before(*instant).serialize(serializer)
}

/// The instant with the most inactive memory in each of `windows` equal parts of a history, in order of time. Instants
/// before the first entry belong to the first part.
pub(super) fn most_inactive(track: Track<'_>, windows: u32) -> Vec<MostInactive> {
    let history = track.history;
    let length = history.entries().div_ceil(windows.max(1)).max(1);
    let start = history.start;
    let mut window = 0;
    let mut rows = vec![MostInactive {
        instant: 0,
        inactive_bytes: start.reserved.wrapping_sub(start.active),
        reserved_bytes: start.reserved,
    }];
    track.walk(|instant, counters| {
        let inactive_bytes = counters.reserved.wrapping_sub(counters.active);
        let row = MostInactive { instant, inactive_bytes, reserved_bytes: counters.reserved };
        if (instant - 1) / length != window {
            window = (instant - 1) / length;
            rows.push(row);
        } else if let Some(most) = rows.last_mut().filter(|most| most.inactive_bytes < inactive_bytes) {
            *most = row;
        }
    });
    rows
}

/// Segments and blocks that all rows of a series may examine: a few seconds of work.
const MOST_LOOKS: usize = 50_000_000;
/// Least number of rows, even if they examine more.
const FEWEST_POINTS: usize = 20;

fn most_at_once(history: &History) -> usize {
    let mut change = vec![0i64; history.entries() as usize + 2];
    let spans = history.segments.iter().map(|span| (span.born, span.gone));
    let blocks = history.allocations.iter().map(|allocation| (allocation.born, allocation.completed));
    for (born, gone) in spans.chain(blocks) {
        if let Some(change) = change.get_mut(born as usize) {
            *change += 1;
        }
        if let Some(change) = change.get_mut(gone as usize) {
            *change -= 1;
        }
    }
    let now = change.iter().scan(0, |now, change| {
        *now += change;
        Some(*now)
    });
    now.max().map_or(0, |most| usize::try_from(most).unwrap_or(0))
}

/// How many of this many points are affordable: each examines every live segment and block.
pub(super) fn affordable(history: &History, points: u32) -> u32 {
    let most = (MOST_LOOKS / most_at_once(history).max(1)).clamp(FEWEST_POINTS, u32::MAX as usize);
    points.min(most as u32)
}

/// Rows for plotting: the instant with the most inactive bytes in each of `points` equal parts of the history, so that
/// no peak is lost; also the start, the end, and the maxima of the four counters.
pub(super) fn over_time(track: Track<'_>, annotations: &Annotations, points: u32) -> Vec<OverTimeRow> {
    let history = track.history;
    let mut instants: Vec<Instant> = vec![0, history.entries()];
    instants.extend(history.maxima.iter().map(|maximum| maximum.instant));
    instants.extend(most_inactive(track, points).iter().map(|most| most.instant));
    instants.sort_unstable();
    instants.dedup();
    let mut sweep = Sweep::new(track);
    let row = |instant| OverTimeRow {
        moment: Moment::of(track, annotations, instant),
        figures: Figures::of(history, &sweep.at(instant)),
    };
    instants.into_iter().map(row).collect()
}
