//! `memviz fragmentation`.

use super::{Run, examples};
use crate::analysis::fragmentation::FragmentationOptions;
use crate::analysis::peak::PeakOptions;
use crate::cli::args::{CommonArgs, StackArgs, only_snapshots, rows};
use crate::cli::format::RowsOrPicture;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_view};
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::filter::Filter;
use crate::facts::time::when::When;
use crate::model::View;
use crate::report::fragmentation;
use crate::report::{AnswerFormat, PictureFormat, TextStyle};
use clap::Args;

/// Show how much reserved memory is inactive, and which lines keep it reserved
///
/// Shows one instant, or the whole history. `-o NAME.svg` draws the segments that have free blocks.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz fragmentation snapshot.pickle --at oom", "which lines keep free memory reserved"),
    ("memviz fragmentation snapshot.pickle -o segments.svg", "the segments that have free blocks"),
]))]
#[command(mut_arg("input", only_snapshots))]
pub struct Fragmentation {
    /// Instant to show: peak, oom, start, end, entry:N, time:12.5s, step:N, annotation:NAME[#K]
    ///
    /// The default is the first OOM, or else the instant with the most inactive memory.
    #[arg(long, value_name = "WHEN", conflicts_with = "over_time")]
    at: Option<When>,
    /// Show the whole history instead of one instant, with the most inactive bytes in each part of it
    #[arg(long)]
    over_time: bool,
    /// Approximate number of rows for --over-time
    ///
    /// The default is 24 in text and Markdown, and 400 in JSON and CSV.
    #[arg(long, value_name = "N", requires = "over_time", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    points: Option<u32>,
    /// What to group non-releasable memory by, or to color blocks by in the picture
    ///
    /// The default is the site; for a picture, the category.
    #[arg(long, value_enum)]
    by: Option<GroupBy>,
    /// Number of rows or colors for --by; the rest are summed into one
    ///
    /// The default is what fits a screen in text, 20 in Markdown, and all in JSON and CSV.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Show all rows and sections in text, instead of what fits a screen
    #[arg(long)]
    all: bool,
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<RowsOrPicture>,
    #[command(flatten)]
    stacks: StackArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// Default number of rows of non-releasable memory in Markdown; other programs get all.
const DEFAULT_TOP: usize = 20;
/// Colors of the picture.
const DEFAULT_COLORS: usize = 10;
/// Rows over time for people.
const POINTS_TO_READ: u32 = 24;
/// Rows over time for plotting.
const POINTS_TO_PLOT: u32 = 400;

impl Run for Fragmentation {
    fn run(&self) -> Result<Outcome, Failure> {
        let filter = self.stacks.filter.compile()?;
        match output::format(&self.common, self.format)? {
            RowsOrPicture::Rows(format) => tell(self, format, filter),
            RowsOrPicture::Picture(format) => draw(self, format, filter),
        }
    }
}

fn tell(args: &Fragmentation, format: AnswerFormat, filter: Filter) -> Result<Outcome, Failure> {
    let for_people = format.is_for_people();
    let points = args.points.unwrap_or(if for_people { POINTS_TO_READ } else { POINTS_TO_PLOT });
    let options = FragmentationOptions {
        at: args.at.clone(),
        by: args.by.unwrap_or_default(),
        top: rows(args.top, args.all, format, DEFAULT_TOP),
        filter,
        inference: (&args.stacks.infer).into(),
        points: args.over_time.then_some(points),
        simulate: true,
        devices: args.common.devices(),
    };
    let style = TextStyle { all: args.all || args.top.is_some(), ..output::style(&args.common) };
    let view = args.common.view_by(options.by)?;
    with_view(&args.common, View { fold: args.stacks.frames.fold(for_people), ..view }, |recording| {
        let mut report = recording.fragmentation(&options)?;
        let skipped = std::mem::take(&mut report.skipped);
        Ok(Reply::rows(report, format, style).warning(skipped))
    })
}

fn draw(args: &Fragmentation, format: PictureFormat, filter: Filter) -> Result<Outcome, Failure> {
    if args.over_time {
        return Err(Failure::Message("--over-time prints rows; memviz timeline draws memory over time".to_owned()));
    }
    let options = PeakOptions {
        by: args.by.unwrap_or(GroupBy::Category),
        at: args.at.clone(),
        filter,
        inference: (&args.stacks.infer).into(),
        devices: args.common.devices(),
        ..PeakOptions::default()
    };
    let top = args.top.unwrap_or(DEFAULT_COLORS);
    with_view(&args.common, args.common.view_by(options.by)?, |recording| {
        let mut report = recording.segment_map(&options)?;
        let skipped = std::mem::take(&mut report.skipped);
        Ok(Reply::new(move |source, out| fragmentation::draw(source, &report, top).write_as(format, out))
            .warning(skipped))
    })
}
