//! The JSON of `memviz timeline`.

use super::csv;
use crate::analysis::timeline::{Band, CurveReport, DeviceCurve, Point};
use crate::replay::{Bound, History, Metric};
use crate::report::Source;
use crate::report::common::answer;
use crate::report::common::json::{Head, InputHead, keys};
use crate::report::common::no_commands;
use crate::report::common::notes;
use crate::report::peak::json::Window;
use crate::wire::SCHEMA_VERSION;
use indexmap::IndexMap;
use std::io::{self, Write};

/// The name of the command in its answer.
pub(crate) const COMMAND: &str = "timeline";

keys! { schema
    /// `memviz timeline`, one device.
    pub struct CurveDevice<'a>(device: &'a DeviceCurve) {
        let peak = &device.peak;
        /// Device, -1 for pinned host memory, -2 for memory of the CPU.
        pub device: i32 = peak.device,
        /// The selected counter, to which the groups add up at each point.
        pub metric: &'static str = peak.metric.name(),
        /// What groups represent.
        pub by: &'static str = peak.attribution.by.name(),
        /// Whether this device's history is complete.
        pub complete_history: bool = peak.completeness.is_complete(),
        /// What is missing, in words.
        pub notes: Vec<String> = notes::device(peak),
        /// Counters that are not exact, as in the answer of `memviz peak`: an `upper` or `lower` bound, or `unknown`. Left out when
        /// all are exact.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub bounds: IndexMap<String, Bound> = peak.bounds(),
        /// The part of the history that the points are from, if it is not the whole history.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub window: Option<Window> = peak.window.map(|(from, to)| Window {
            from_entry: History::entry_before(from),
            to_entry: History::entry_before(to),
        }),
        /// Highest value of the selected counter, which is that of a point.
        pub peak_bytes: i64 = peak.maxima[peak.metric as usize].bytes,
        /// A point is the highest of this many consecutive entries; 1 if every entry is a point.
        pub entries_per_point: usize = device.instants_per_point,
        /// Points, in the order of entries.
        pub points: Vec<CurvePoint<'a>> = device.points.iter().map(|point| CurvePoint::of(device, point)).collect(),
        /// Groups, those that hold the most at the peak first.
        pub groups: Vec<CurveGroup<'a>> = device.bands.iter().map(CurveGroup::of).collect(),
    }
}

keys! { schema
    /// The counters after an entry.
    pub struct CurvePoint<'a>(device: &'a DeviceCurve, point: &'a Point) {
        let bytes = |metric| device.knows(metric).then(|| point.counters.get(metric));
        /// The entry, counted within the device's trace; null before the first entry.
        pub entry: Option<u32> = point.moment.entry,
        /// Time of that entry since the epoch; null if the file has no times.
        pub time_us: Option<i64> = point.moment.time_us,
        /// The step that contains the entry, counted from 1; null outside of steps, and if the recording does not show them.
        pub step: Option<usize> = point.step,
        /// Open `record_function` ranges, outermost first.
        pub annotations: &'a [String] = &point.moment.annotations,
        /// Bytes that callers requested, until the free completes; null if unknown, as for the other counters.
        pub requested_bytes: Option<i64> = bytes(Metric::Requested),
        /// Blocks in use until their free is requested.
        pub allocated_bytes: Option<i64> = bytes(Metric::Allocated),
        /// Blocks in use until their free completes.
        pub active_bytes: Option<i64> = bytes(Metric::Active),
        /// Segments.
        pub reserved_bytes: Option<i64> = bytes(Metric::Reserved),
    }
}

keys! { schema
    /// A group over time.
    pub struct CurveGroup<'a>(band: &'a Band) {
        /// The group, as in the rows of `memviz peak`; `(other)` for all that are not listed.
        pub label: &'a str = &band.label,
        /// Number of groups in it: 1, except for `(other)`.
        pub groups: usize = band.groups,
        /// Whether any of its memory is in the group because of an inference rather than a record.
        pub inferred: bool = band.has_inferred,
        /// Bytes of the selected counter at each point.
        pub bytes: &'a [u64] = &band.bytes,
    }
}

pub(crate) fn write(source: Source<'_>, report: &CurveReport, out: &mut dyn Write) -> io::Result<()> {
    let answer = Head {
        schema_version: SCHEMA_VERSION,
        command: COMMAND,
        input: InputHead::of(source),
        comparison: None,
        devices: report.devices.iter().map(CurveDevice::of).collect(),
    };
    no_commands::write(&answer, out)
}

/// Writes the JSON, then the CSV as an object.
pub(crate) fn with_table(source: Source<'_>, report: &CurveReport, out: &mut dyn Write) -> io::Result<()> {
    write(source, report, out)?;
    answer::table(|out| csv::write(report, out), out)
}
