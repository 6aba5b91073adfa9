//! The position of an instant in a recording.

use super::annotations::Annotations;
use crate::facts::code::sites::clipped;
use crate::replay::{History, Instant, Track};
use serde::Serialize;

/// An instant of one device: its entry, its time and the open annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Instant"))]
pub struct Moment {
    #[serde(skip)]
    pub instant: Instant,
    /// Entry that leads to it, counted within the device's trace; null before the first entry.
    pub entry: Option<u32>,
    /// Time of that entry since the epoch; null if the file has no times.
    pub time_us: Option<i64>,
    /// The same, counted from the first entry of the recording.
    #[serde(skip)]
    pub since_start_us: Option<i64>,
    /// Open `record_function` ranges, outermost first.
    pub annotations: Vec<String>,
}

impl Moment {
    /// Looks up an instant.
    pub fn of(track: Track<'_>, annotations: &Annotations, instant: Instant) -> Self {
        let snapshot = track.snapshot;
        let entry = History::entry_before(instant);
        let times = track.times();
        let time = entry.and_then(|entry| times.get(entry as usize).copied()).filter(|_| snapshot.notes.has_times);
        let names = |time| {
            annotations.enclosing(time).map(|range| clipped(snapshot.strings.get(range.name)).to_owned()).collect()
        };
        Self {
            instant,
            entry,
            time_us: time,
            since_start_us: time.and_then(|time| Some(time.saturating_sub(snapshot.first_time()?))),
            annotations: time.map(names).unwrap_or_default(),
        }
    }
}
