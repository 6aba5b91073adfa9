//! `memviz peak`.

use super::{Run, examples};
use crate::analysis::peak::PeakOptions;
use crate::analysis::peak::each::{Each, EachOptions};
use crate::cli::args::{CommonArgs, StackArgs};
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_view};
use crate::facts::grouping::GroupBy;
use crate::facts::time::when::When;
use crate::model::View;
use crate::replay::Metric;
use crate::report::AnswerFormat;
use clap::Args;

/// Show the peak of each device and the lines of code that hold it
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz peak snapshot.pickle --top 5", "the lines that hold the most"),
    ("memviz peak snapshot.pickle --by category --at oom", "what the memory is for, at the OOM"),
]))]
pub struct Peak {
    /// What to group rows by
    #[arg(long, value_enum, default_value_t = GroupBy::Site)]
    by: GroupBy,
    /// Number of rows; the rest are summed into one row
    ///
    /// The default is 20 in text and Markdown, and all in JSON and CSV.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Instant to show instead of the peak: peak, oom, start, end, entry:N, time:12.5s, step:N, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    at: Option<When>,
    /// Show the peak of each step, phase or annotation: step, phase, annotation or annotation:REGEX
    ///
    /// --top is then the number of rows for each, by default 1 in text and Markdown, and 3 in JSON.
    #[arg(long, value_name = "WHAT", conflicts_with = "at")]
    each: Option<Each>,
    /// Weigh blocks by bytes times lifetime: rows show the mean over the recording, or from --from to --to
    #[arg(long, conflicts_with_all = ["at", "each"])]
    mean: bool,
    /// Search for the peak from this instant on
    #[arg(long, value_name = "WHEN")]
    from: Option<When>,
    /// Search for the peak up to this instant
    #[arg(long, value_name = "WHEN")]
    to: Option<When>,
    /// Which counter's peak to find and attribute
    #[arg(long, value_enum, default_value_t = Metric::Allocated)]
    metric: Metric,
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<AnswerFormat>,
    #[command(flatten)]
    stacks: StackArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// Default number of rows for people; other programs get all.
const DEFAULT_TOP: usize = 20;
/// Default number of rows of each range, for people and for other programs, since there may be thousands of ranges.
const EACH_TOP: usize = 1;
const EACH_TOP_FOR_MACHINES: usize = 3;

impl Run for Peak {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let for_people = format.is_for_people();
        let each_top = if for_people { EACH_TOP } else { EACH_TOP_FOR_MACHINES };
        let style = output::style(&self.common);
        let options = PeakOptions {
            metric: self.metric,
            by: self.by,
            at: self.at.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            mean: self.mean,
            top: self.top.or(for_people.then_some(DEFAULT_TOP)),
            filter: self.stacks.filter.compile()?,
            inference: (&self.stacks.infer).into(),
            devices: self.common.devices(),
            each: self.each.clone().map(|each| EachOptions { each, top: self.top.unwrap_or(each_top) }),
            // Their bars have the color of their category.
            categories: for_people && style.color,
        };
        let view = View { fold: self.stacks.frames.fold(for_people), ..self.common.view_by(self.by)? };
        with_view(&self.common, view, |recording| {
            let mut report = recording.peak(&options)?;
            let skipped = std::mem::take(&mut report.skipped);
            Ok(Reply::rows(report, format, style).warning(skipped))
        })
    }
}
