//! `memviz report`.

use super::{Run, examples};
use crate::analysis::peak::PeakOptions;
use crate::analysis::timeline::{TimelineOptions, XAxis};
use crate::cli::args::{CommonArgs, FrameArgs, InferArgs};
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_view};
use crate::facts::grouping::GroupBy;
use crate::facts::time::when::When;
use crate::model::View;
use crate::report::page::{Page, PageFormat};
use crate::report::plot_columns;
use clap::Args;
use std::path::PathBuf;

/// Write a report to attach to an issue, as HTML, Markdown or a picture
///
/// Writes one file with the verdict, what to change, memory over time and the largest sites. HTML also has a flame graph and, if
/// fragmentation matters, a map of segments. Without -o or --format, it writes HTML to INPUT.report.html in the working directory.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz report snapshot.pickle", "write snapshot.pickle.report.html, a page to read"),
    ("memviz report snapshot.pickle -o report.md", "Markdown for an issue"),
]))]
pub struct Report {
    /// What to group rows and bands by; for `site`, bands show categories
    #[arg(long, value_enum, default_value_t = GroupBy::Site)]
    by: GroupBy,
    /// What the x axis of the timeline shows
    #[arg(long, value_enum, default_value_t = XAxis::Time)]
    x: XAxis,
    /// Number of rows of the collapsed table, at most 40; the rest are merged into one per category
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(..=40))]
    top: u8,
    /// Instant to show: peak, oom, start, end, entry:N, time:12.5s, step:N, annotation:NAME[#K]
    ///
    /// The default is the first failed request, else the peak.
    #[arg(long, value_name = "WHEN")]
    at: Option<When>,
    /// Draw from this instant on
    #[arg(long, value_name = "WHEN")]
    from: Option<When>,
    /// Draw up to this instant
    #[arg(long, value_name = "WHEN")]
    to: Option<When>,
    /// Output format [default: from the output file's extension, else html]
    #[arg(long, value_enum)]
    format: Option<PageFormat>,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    frames: FrameArgs,
    #[command(flatten)]
    common: CommonArgs,
}

impl Run for Report {
    fn run(&self) -> Result<Outcome, Failure> {
        let named = self.usual_output().map(|output| self.common.with_output(output));
        let common = named.as_ref().unwrap_or(&self.common);
        let format = output::format(common, self.format)?;
        let peak = PeakOptions {
            by: self.by,
            top: Some(usize::from(self.top)),
            at: self.at.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            inference: (&self.infer).into(),
            devices: common.devices(),
            ..PeakOptions::default()
        };
        let view = View { fold: self.frames.fold(true), ..common.view_by(self.by)? };
        with_view(common, view, |recording| {
            let devices = if peak.devices.is_empty() { recording.histories.len() } else { peak.devices.len() };
            let columns = plot_columns(devices);
            let overview = recording.overview(&TimelineOptions { peak, axis: self.x, columns, inactive: false })?;
            Ok(Reply::new(move |source, out| Page { source, overview: &overview }.write(format, out)))
        })
    }
}

impl Report {
    /// The file for a report for which neither a file nor a format is named, in the working directory. There is none for standard
    /// input, which has no name.
    fn usual_output(&self) -> Option<PathBuf> {
        let input = Some(&self.common.input).filter(|input| input.as_os_str() != "-")?;
        let is_named = self.common.output.is_some() || self.format.is_some();
        let mut name = input.file_name().filter(|_| !is_named)?.to_owned();
        name.push(".report.html");
        Some(name.into())
    }
}
