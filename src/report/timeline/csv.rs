//! `memviz timeline` as CSV: a row for each group at each point.

use crate::analysis::timeline::{Band, CurveReport, DeviceCurve, Point};
use crate::replay::{Bound, Metric};
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

struct Line<'a> {
    device: &'a DeviceCurve,
    point: &'a Point,
    band: &'a Band,
    bytes: u64,
}

impl Line<'_> {
    /// A counter at the point; empty if it is unknown.
    fn counter(&self, metric: Metric) -> String {
        optional(self.device.knows(metric).then(|| self.point.counters.get(metric)))
    }
}

pub(crate) fn write(report: &CurveReport, out: &mut dyn Write) -> io::Result<()> {
    let points = report.devices.iter().flat_map(|device| device.points.iter().enumerate().map(move |at| (device, at)));
    let lines = points.flat_map(|(device, (at, point))| {
        device.bands.iter().map(move |band| Line { device, point, band, bytes: band.bytes[at] })
    });
    table(
        lines,
        &[
            ("device", |line| line.device.peak.device.to_string()),
            ("entry", |line| optional(line.point.moment.entry)),
            ("time_us", |line| optional(line.point.moment.time_us)),
            ("step", |line| optional(line.point.step)),
            ("annotation", |line| cell(&line.point.annotation())),
            ("metric", |line| line.device.peak.metric.name().to_owned()),
            ("by", |line| line.device.peak.attribution.by.name().to_owned()),
            ("label", |line| cell(&line.band.label)),
            ("inferred", |line| line.band.has_inferred.to_string()),
            ("bytes", |line| line.bytes.to_string()),
            ("allocated_bytes", |line| line.counter(Metric::Allocated)),
            ("active_bytes", |line| line.counter(Metric::Active)),
            ("requested_bytes", |line| line.counter(Metric::Requested)),
            ("reserved_bytes", |line| line.counter(Metric::Reserved)),
            ("bound", |Line { device: DeviceCurve { peak, .. }, .. }| {
                peak.completeness.bound(peak.metric).map_or("exact", Bound::name).to_owned()
            }),
            ("complete_history", |line| line.device.peak.completeness.is_complete().to_string()),
            ("anomalies", |line| line.device.peak.anomalies.total().to_string()),
        ],
        out,
    )
}
