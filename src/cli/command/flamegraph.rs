//! `memviz flamegraph`.

use super::{Run, examples};
use crate::analysis::flame::FlameOptions;
use crate::analysis::peak::PeakOptions;
use crate::cli::args::{CommonArgs, FilterArgs, InferArgs, one_of};
use crate::cli::format::FlameFormat;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_view};
use crate::facts::grouping::GroupBy;
use crate::facts::time::when::When;
use crate::replay::Metric;
use crate::report::flamegraph::{self, folded};
use clap::Args;

/// Draw the memory at the peak by call stack, or write folded stacks
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz flamegraph snapshot.pickle -o flame.svg --open", "which calls hold memory"),
    ("memviz flamegraph snapshot.pickle -o stacks.folded", "for other flame graph tools"),
]))]
pub struct Flamegraph {
    /// Groups to put between the root and the frames
    #[arg(long, value_parser = one_of(&GROUPS))]
    by: Option<GroupBy>,
    /// Instant to show instead of the peak: peak, oom, start, end, entry:N, time:12.5s, step:N, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    at: Option<When>,
    /// Weigh blocks by bytes times lifetime: frames show the mean over the recording, or from --from to --to
    #[arg(long, conflicts_with = "at")]
    mean: bool,
    /// Search for the peak from this instant on
    #[arg(long, value_name = "WHEN")]
    from: Option<When>,
    /// Search for the peak up to this instant
    #[arg(long, value_name = "WHEN")]
    to: Option<When>,
    /// Which counter's peak to find and draw
    #[arg(long, value_enum, default_value_t = Metric::Allocated)]
    metric: Metric,
    /// A picture, or a line per stack for other flame graph tools [default: from the output file's extension, else svg]
    #[arg(long, value_enum)]
    format: Option<FlameFormat>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    infer: InferArgs,
    /// Keep pass-through frames, such as `_call_impl`, and C++ frames
    #[arg(long)]
    all_frames: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Groups that can be between the root and the stacks.
const GROUPS: [GroupBy; 2] = [GroupBy::Category, GroupBy::Phase];

impl Run for Flamegraph {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let peak = PeakOptions {
            metric: self.metric,
            at: self.at.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            mean: self.mean,
            filter: self.filter.compile()?,
            inference: (&self.infer).into(),
            devices: self.common.devices(),
            ..PeakOptions::default()
        };
        let options = FlameOptions { peak, all_frames: self.all_frames, split: self.by };
        let view = self.common.view_by(self.by.unwrap_or_default())?;
        with_view(&self.common, view, |recording| {
            let mut report = recording.flame(&options)?;
            let skipped = std::mem::take(&mut report.skipped);
            let reply = Reply::new(move |source, out| match format {
                FlameFormat::Picture(picture) => flamegraph::draw(source, &report).write_as(picture, out),
                FlameFormat::Folded => folded::write(&report, out),
            });
            Ok(reply.warning(skipped))
        })
    }
}
