//! A report format of one's own: the peak as a line for a chat message.
//!
//!     cargo run --release --example custom_report -- fixtures/snapshots/gpt_train/snapshot.pickle.gz

use memviz::Recording;
use memviz::analysis::{FragmentationReport, InfoReport, OomReport, PeakOptions, PeakReport};
use memviz::input::ReadOptions;
use memviz::model::bytes::Bytes;
use memviz::report::{Render, Source};
use std::io::{self, Write};

/// One line per device.
struct ChatReport;

impl Render for ChatReport {
    fn peak(&self, source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
        for device in &report.devices {
            let bytes = Bytes(device.attribution.total_bytes);
            let top = device.attribution.rows.first().map_or("nothing", |row| row.label.as_str());
            writeln!(out, "{}: GPU {} peaks at {bytes}, most of it from {top}", source.path, device.device)?;
        }
        Ok(())
    }

    fn fragmentation(&self, source: Source<'_>, report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()> {
        for device in &report.devices {
            let inactive = Bytes(device.figures.inactive);
            writeln!(out, "{}: GPU {} reserves {inactive} that nobody uses", source.path, device.device)?;
        }
        Ok(())
    }

    fn oom(&self, source: Source<'_>, report: &OomReport, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}: ran out of memory {} times", source.path, report.count())
    }

    fn info(&self, source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}: {} devices", source.path, report.devices.len())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "fixtures/snapshots/tiny/snapshot.pickle.gz".to_owned());
    let recording = Recording::open(path.as_ref(), &ReadOptions::default())?;
    let report = recording.peak(&PeakOptions::default())?;
    ChatReport.peak(Source { path: &path, recording: &recording }, &report, &mut io::stdout())?;
    Ok(())
}
