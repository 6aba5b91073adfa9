//! Figures in Prometheus' text format, for the textfile collector of its node exporter, Grafana and others.

use crate::analysis::export::{DeviceSamples, Label, SamplesReport};
use crate::model::Action;
use crate::replay::{Counters, Metric, Track};
use crate::report::Source;
use crate::report::common::gauges::Gauges;
use crate::report::common::source::file_names;
use std::io::{self, Write};

/// Writes gauges of all devices, each with the file and the device as labels.
pub fn write(source: Source<'_>, report: &SamplesReport, out: &mut dyn Write) -> io::Result<()> {
    let mut text = Text { file: file_names(&[source.path]).first().copied().unwrap_or_default(), out: Gauges(out) };
    text.counters(report, "max", "Highest value of a counter while recording.", |device| {
        device.has_history().then(|| device.peak.maxima.into())
    })?;
    text.counters(report, "end", "Value of a counter at the end of the recording.", |device| Some(device.peak.end))?;
    text.head("held_bytes", "Bytes held at the peak or the selected instant, by category.")?;
    for device in &report.devices {
        for (category, bytes) in categories(device) {
            text.line("held_bytes", device, &[("category", category)], bytes)?;
        }
    }
    text.head("failed_requests", "Requests that failed while recording.")?;
    // Without a history, no failed request is recorded, whether or not there was one.
    for device in report.devices.iter().filter(|device| device.has_history()) {
        let snapshot = &source.recording.snapshot;
        let history = source.recording.history(device.peak.device);
        let failed = history.map_or(0, |history| Track::new(snapshot, history).count_of(Action::Oom));
        text.line("failed_requests", device, &[], failed)?;
    }
    text.head("complete", "Whether the history of the device is complete.")?;
    for device in &report.devices {
        text.line("complete", device, &[], u8::from(device.peak.completeness.is_complete()))?;
    }
    text.head("anomalies", "Number of contradictions in the recording.")?;
    report.devices.iter().try_for_each(|device| text.line("anomalies", device, &[], device.peak.anomalies.total()))
}

/// Bytes held by category, if the recording shows categories.
fn categories(device: &DeviceSamples) -> Vec<(&str, u64)> {
    let Some(place) = device.labels.iter().position(|(label, _)| *label == Label::Category) else { return Vec::new() };
    let names = &device.labels[place].1;
    let mut bytes = vec![0u64; names.len()];
    for sample in &device.samples {
        let category = sample.labels.get(place).and_then(|&category| bytes.get_mut(category as usize));
        if let Some(sum) = category {
            *sum = sum.wrapping_add(sample.held.bytes);
        }
    }
    names.iter().map(String::as_str).zip(bytes).filter(|&(_, bytes)| bytes > 0).collect()
}

/// The destination of lines.
struct Text<'a> {
    file: &'a str,
    out: Gauges<'a>,
}

impl Text<'_> {
    fn head(&mut self, name: &str, help: &str) -> io::Result<()> {
        self.out.head(name, help)
    }

    fn line(
        &mut self,
        name: &str,
        device: &DeviceSamples,
        labels: &[(&str, &str)],
        value: impl std::fmt::Display,
    ) -> io::Result<()> {
        let device = device.peak.device.to_string();
        let labels = [&[("file", self.file), ("device", &device)], labels].concat();
        self.out.line(name, &labels, value)
    }

    /// A gauge of all counters that the recording shows.
    fn counters(
        &mut self,
        report: &SamplesReport,
        at: &str,
        help: &str,
        counters: impl Fn(&DeviceSamples) -> Option<Counters>,
    ) -> io::Result<()> {
        let name = format!("{at}_bytes");
        self.head(&name, help)?;
        for device in &report.devices {
            let Some(counters) = counters(device) else { continue };
            // Some recordings contain only blocks.
            let told = |metric: &Metric| *metric == Metric::Allocated || !device.peak.completeness.blocks_only;
            for metric in Metric::ALL.into_iter().filter(told) {
                self.line(&name, device, &[("counter", metric.name())], counters.get(metric))?;
            }
        }
        Ok(())
    }
}
