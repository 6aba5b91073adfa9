//! `memviz fragmentation`.

use super::Run;
use crate::analysis::{Filter, FragmentationOptions, GroupBy, PeakOptions, When};
use crate::cli::args::{CommonArgs, FilterArgs, FrameArgs, InferArgs, RowsOrSvg};
use crate::cli::recording::{Reply, with_folded, with_recording};
use crate::cli::{Failure, Outcome, output};
use crate::report::AnswerFormat;
use crate::report::fragmentation::{self, BlockColor};
use clap::Args;

/// How much of what is reserved is inactive, at the peak or over time, and which lines of code pin it; with -o, every
/// segment and its blocks as SVG
#[derive(Debug, Args)]
pub struct Fragmentation {
    #[command(flatten)]
    common: CommonArgs,
    /// Format of the answer [default: svg where the output file's name ends in .svg, else text]
    #[arg(long, value_enum)]
    format: Option<RowsOrSvg>,
    /// Another instant than the peak of allocated: oom, start, end, entry:N, time:12.5s, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN", conflicts_with = "over_time")]
    at: Option<When>,
    /// Rows along the whole history instead of one instant, none of its peaks of inactive bytes left out
    #[arg(long)]
    over_time: bool,
    /// Number of rows over time, about [default: 24 in text and Markdown, 400 in JSON and CSV]
    #[arg(long, value_name = "N", requires = "over_time", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    points: Option<u32>,
    /// What the rows of the pinning stand for [default: site]; in the picture, the colours of blocks [default: their state]
    #[arg(long, value_enum)]
    by: Option<GroupBy>,
    /// Number of those rows, or colours; the rest becomes one [default: 20 in text and Markdown, all in JSON and CSV]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    frames: FrameArgs,
}

/// Rows of the pinning for people; machines get all.
const DEFAULT_TOP: usize = 20;
/// Colours of the picture.
const DEFAULT_COLORS: usize = 10;
/// Rows over time for people.
const POINTS_TO_READ: u32 = 24;
/// Rows over time for plotting.
const POINTS_TO_PLOT: u32 = 400;

impl Run for Fragmentation {
    fn run(&self) -> Result<Outcome, Failure> {
        let filter = self.filter.compile()?;
        match RowsOrSvg::resolve(self.format, self.common.output.as_deref()) {
            RowsOrSvg::Rows(format) => tell(self, format, filter),
            RowsOrSvg::Svg => draw(self, filter),
        }
    }
}

fn tell(args: &Fragmentation, format: AnswerFormat, filter: Filter) -> Result<Outcome, Failure> {
    let for_people = format.is_for_people();
    let points = args.points.unwrap_or(if for_people { POINTS_TO_READ } else { POINTS_TO_PLOT });
    let options = FragmentationOptions {
        at: args.at.clone(),
        by: args.by.unwrap_or_default(),
        top: args.top.or(for_people.then_some(DEFAULT_TOP)),
        filter,
        inference: (&args.infer).into(),
        points: args.over_time.then_some(points),
        devices: args.common.devices(),
    };
    let style = output::style(&args.common);
    with_folded(&args.common, args.frames.fold(for_people), |recording| {
        let mut report = recording.fragmentation(&options)?;
        let skipped = std::mem::take(&mut report.skipped);
        Ok(Reply::rows(report, format, style).warning(skipped))
    })
}

fn draw(args: &Fragmentation, filter: Filter) -> Result<Outcome, Failure> {
    output::check_picture_target(&args.common)?;
    if args.over_time {
        return Err(Failure::Message("--over-time gives rows; memviz timeline draws memory over time".to_owned()));
    }
    let options = PeakOptions {
        by: args.by.unwrap_or_default(),
        at: args.at.clone(),
        filter,
        inference: (&args.infer).into(),
        devices: args.common.devices(),
        ..PeakOptions::default()
    };
    let color = args.by.map_or(BlockColor::State, |_| BlockColor::Group(args.top.unwrap_or(DEFAULT_COLORS)));
    with_recording(&args.common, |recording| {
        let mut report = recording.segment_map(&options)?;
        let skipped = std::mem::take(&mut report.skipped);
        Ok(Reply::new(move |source, out| fragmentation::draw(source, &report, color).write(out)).warning(skipped))
    })
}
