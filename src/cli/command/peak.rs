//! `memviz peak`.

use super::Run;
use crate::analysis::{Each, EachOptions, GroupBy, PeakOptions, When};
use crate::cli::args::{CommonArgs, FilterArgs, FrameArgs, InferArgs};
use crate::cli::recording::{Reply, with_folded};
use crate::cli::{Failure, Outcome, output};
use crate::replay::Metric;
use crate::report::AnswerFormat;
use clap::Args;

/// The peak of each device and the lines of code that hold it
#[derive(Debug, Args)]
pub struct Peak {
    #[command(flatten)]
    common: CommonArgs,
    /// Format of the answer
    #[arg(long, value_enum, default_value_t = AnswerFormat::Text)]
    format: AnswerFormat,
    /// Which counter's peak to find and attribute
    #[arg(long, value_enum, default_value_t = Metric::Allocated)]
    metric: Metric,
    /// What the rows stand for
    #[arg(long, value_enum, default_value_t = GroupBy::Site)]
    by: GroupBy,
    /// Number of rows; the rest becomes one row [default: 20 in text and Markdown, all in JSON and CSV]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// The peak of each step, phase or annotation instead of one for all: step, phase, annotation or annotation:REGEX; --top
    /// is then the number of rows for each [default: 1 in text and Markdown, 3 in JSON]
    #[arg(long, value_name = "WHAT", conflicts_with = "at")]
    each: Option<Each>,
    /// Another instant than the peak: peak, oom, start, end, entry:N, time:12.5s, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    at: Option<When>,
    /// Search the peak from this instant on
    #[arg(long, value_name = "WHEN")]
    from: Option<When>,
    /// Search the peak up to this instant
    #[arg(long, value_name = "WHEN")]
    to: Option<When>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    frames: FrameArgs,
}

/// Rows for people; machines get all.
const DEFAULT_TOP: usize = 20;
/// Rows of each range for people, and for machines, who may get thousands of ranges.
const EACH_TOP: usize = 1;
const EACH_TOP_FOR_MACHINES: usize = 3;

impl Run for Peak {
    fn run(&self) -> Result<Outcome, Failure> {
        let for_people = self.format.is_for_people();
        let each_top = if for_people { EACH_TOP } else { EACH_TOP_FOR_MACHINES };
        let options = PeakOptions {
            metric: self.metric,
            by: self.by,
            at: self.at.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            top: self.top.or(for_people.then_some(DEFAULT_TOP)),
            filter: self.filter.compile()?,
            inference: (&self.infer).into(),
            devices: self.common.devices(),
            each: self.each.clone().map(|each| EachOptions { each, top: self.top.unwrap_or(each_top) }),
        };
        let style = output::style(&self.common);
        with_folded(&self.common, self.frames.fold(self.format.is_for_people()), |recording| {
            let mut report = recording.peak(&options)?;
            let skipped = std::mem::take(&mut report.skipped);
            Ok(Reply::rows(report, self.format, style).warning(skipped))
        })
    }
}
