//! A custom report format: the peak as one line for a chat message.
//!
//!     cargo run --release --example custom_report -- fixtures/snapshots/gpt_train/snapshot.pickle.gz

use memviz::analysis::peak::{PeakOptions, PeakReport};
use memviz::{Answer, Bytes, ReadOptions, Recording, Source, TextStyle};
use std::io::{self, Write};
use std::process::ExitCode;

/// An answer as a chat message.
trait Chat: Answer {
    /// Writes a line per device.
    fn chat(&self, about: Self::About<'_>, out: &mut dyn Write) -> io::Result<()>;
}

impl Chat for PeakReport {
    fn chat(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        for device in &self.devices {
            let bytes = Bytes(device.attribution.total_bytes);
            let top = device.attribution.rows.first().map_or("nothing", |row| row.label.as_str());
            writeln!(out, "{}: GPU {} peaks at {bytes}, most of it from {top}", source.path, device.device)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "fixtures/snapshots/tiny/snapshot.pickle.gz".to_owned());
    let recording = Recording::open(path.as_ref(), &ReadOptions::default())?;
    let source = Source { path: &path, recording: &recording };
    let report = recording.peak(&PeakOptions::default())?;
    report.chat(source, &mut io::stdout())?;
    // The formats of memviz itself are also available.
    report.text(
        source,
        TextStyle { width: Some(80), color: false, advice: true, ..TextStyle::default() },
        &mut io::stdout(),
    )?;
    Ok(())
}
