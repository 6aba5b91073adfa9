//! `memviz report`.

use super::Run;
use crate::analysis::{GroupBy, PeakOptions, TimelineOptions, XAxis};
use crate::cli::args::{CommonArgs, FrameArgs, InferArgs};
use crate::cli::recording::{Reply, with_folded};
use crate::cli::{Failure, Outcome, output};
use crate::report::page::{Page, PageFormat};
use crate::report::plot_columns;
use clap::Args;

/// Write one file for an issue: figures, timeline, top sites, flame graph, segment map
#[derive(Debug, Args)]
pub struct Report {
    #[command(flatten)]
    common: CommonArgs,
    /// Format of the report [default: by the extension of the output file]
    #[arg(long, value_enum)]
    format: Option<PageFormat>,
    /// What bands and rows stand for
    #[arg(long, value_enum, default_value_t = GroupBy::Site)]
    by: GroupBy,
    /// What the x axis of the timeline counts
    #[arg(long, value_enum, default_value_t = XAxis::Time)]
    x: XAxis,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    frames: FrameArgs,
}

/// Bands of the timeline.
const TOP: usize = 10;

impl Run for Report {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = format(self)?;
        if format == PageFormat::Svg {
            output::check_picture_target(&self.common)?;
        }
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

/// The format asked for, or else what the output's extension stands for.
fn format(args: &Report) -> Result<PageFormat, Failure> {
    if let Some(format) = args.format {
        return Ok(format);
    }
    let output = args.common.output.as_deref();
    let extension = output.and_then(|path| path.extension()).and_then(|extension| extension.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("svg") => Ok(PageFormat::Svg),
        Some("md" | "markdown") => Ok(PageFormat::Markdown),
        Some("html" | "htm") => Ok(PageFormat::Html),
        _ => {
            let found = output.map_or("no output file".to_owned(), |path| path.display().to_string());
            Err(Failure::Message(format!("expected -o with a name in .svg, .md or .html, or --format; found {found}")))
        }
    }
}
