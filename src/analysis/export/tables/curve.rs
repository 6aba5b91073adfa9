//! The curve of a device as a table.

use super::{Table, TableColumn as Column};
use crate::analysis::timeline::{DeviceCurve, Point};
use crate::replay::{Bound, Metric};

/// A row for each group at each point.
pub fn of_curve(device: &DeviceCurve) -> Table {
    let (points, bands) = (&device.points, &device.bands);
    let rows = points.len() * bands.len();
    let at = || points.iter().flat_map(|point| std::iter::repeat_n(point, bands.len()));
    let in_turn = || (0..points.len()).flat_map(|_| bands);
    let counter = |name, metric| {
        let is_known = device.knows(metric);
        Column::maybe(name, at().map(|point| is_known.then(|| point.counters.get(metric))))
    };
    let annotation = |point: &Point| (!point.moment.annotations.is_empty()).then(|| point.annotation());
    let constant = |name, text: &str| Column::text(name, vec![text.to_owned()], vec![0; rows]);
    let annotations = points.iter().map(|point| annotation(point).unwrap_or_default()).collect();
    let annotated =
        (0u32..).zip(points).flat_map(|(row, point)| std::iter::repeat_n(annotation(point).map(|_| row), bands.len()));
    let bytes = (0..points.len()).flat_map(|point| bands.iter().map(move |band| band.bytes[point]));
    Table::new(
        rows,
        [
            Column::whole("device", std::iter::repeat_n(i64::from(device.peak.device), rows)),
            Column::maybe_rising("entry", at().map(|point| point.moment.entry.map(i64::from))),
            Column::maybe_rising("time_us", at().map(|point| point.moment.time_us)),
            Column::maybe("step", at().map(|point| point.step.map(|step| step as i64))),
            Column::maybe_text("annotation", annotations, annotated),
            constant("metric", device.peak.metric.name()),
            constant("by", device.peak.attribution.by.name()),
            Column::text(
                "label",
                bands.iter().map(|band| band.label.clone()).collect(),
                (0..points.len()).flat_map(|_| 0..bands.len() as u32).collect(),
            ),
            Column::flags("inferred", in_turn().map(|band| band.has_inferred)),
            Column::unsigned("bytes", bytes),
            counter("allocated_bytes", Metric::Allocated),
            counter("active_bytes", Metric::Active),
            counter("requested_bytes", Metric::Requested),
            counter("reserved_bytes", Metric::Reserved),
            constant("bound", device.peak.completeness.bound(device.peak.metric).map_or("exact", Bound::name)),
        ],
    )
}
