//! `memviz report`.

use super::{Run, examples};
use crate::analysis::{GroupBy, PeakOptions, TimelineOptions, XAxis};
use crate::cli::args::{CommonArgs, FrameArgs, InferArgs};
use crate::cli::recording::{Reply, with_folded};
use crate::cli::{Failure, Outcome, output};
use crate::report::page::{Page, PageFormat};
use crate::report::plot_columns;
use clap::Args;

/// Write one file for an issue: figures, timeline, top sites, flame graph, segment map
#[derive(Debug, Args)]
#[command(after_help = examples(&[
    ("memviz report snapshot.pickle -o report.html --open", "a page to read"),
    ("memviz report snapshot.pickle -o report.md", "Markdown for an issue"),
]))]
pub struct Report {
    /// What bands and rows stand for
    #[arg(long, value_enum, default_value_t = GroupBy::Site)]
    by: GroupBy,
    /// What the x axis of the timeline counts
    #[arg(long, value_enum, default_value_t = XAxis::Time)]
    x: XAxis,
    /// Format of the report [default: what the output file's name stands for]
    #[arg(long, value_enum)]
    format: Option<PageFormat>,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    frames: FrameArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// Bands of the timeline.
const TOP: usize = 10;

impl Run for Report {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let peak = PeakOptions {
            by: self.by,
            top: Some(TOP),
            inference: (&self.infer).into(),
            devices: self.common.devices(),
            ..PeakOptions::default()
        };
        with_folded(&self.common, self.frames.fold(true), |recording| {
            let devices = if peak.devices.is_empty() { recording.histories.len() } else { peak.devices.len() };
            let columns = plot_columns(devices);
            let overview = recording.overview(&TimelineOptions { peak, axis: self.x, columns, inactive: false })?;
            Ok(Reply::new(move |source, out| Page { source, overview: &overview }.write(format, out)))
        })
    }
}
