//! `memviz timeline`.

use super::{Run, examples};
use crate::analysis::peak::PeakOptions;
use crate::analysis::peak::each::{Each, EachOptions};
use crate::analysis::timeline::{TimelineOptions, XAxis};
use crate::cli::args::{CommonArgs, FilterArgs, InferArgs};
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_view};
use crate::facts::grouping::GroupBy;
use crate::facts::time::when::When;
use crate::replay::Metric;
use crate::report::{PictureFormat, plot_columns, timeline};
use clap::Args;

/// Draw memory over time, stacked by what holds it
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz timeline snapshot.pickle -o timeline.svg --open", "the curve by line of code"),
    ("memviz timeline snapshot.pickle --by category -o timeline.svg", "by category"),
]))]
pub struct Timeline {
    /// What to group bands by
    #[arg(long, value_enum, default_value_t = GroupBy::Site)]
    by: GroupBy,
    /// Number of bands, at most 40; the rest are merged into one band per category
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(..=40))]
    top: u8,
    /// What the x axis shows
    #[arg(long, value_enum, default_value_t = XAxis::Time)]
    x: XAxis,
    /// Add a band for reserved but inactive memory
    #[arg(long)]
    inactive: bool,
    /// Mark the peak of each step, phase or annotation: step, phase, annotation or annotation:REGEX
    #[arg(long, value_name = "WHAT")]
    each: Option<Each>,
    /// Draw from this instant on: peak, oom, start, end, entry:N, time:12.5s, step:N, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    from: Option<When>,
    /// Draw up to this instant
    #[arg(long, value_name = "WHEN")]
    to: Option<When>,
    /// Which counter to draw
    #[arg(long, value_enum, default_value_t = Metric::Allocated)]
    metric: Metric,
    /// Output format [default: from the output file's extension, else svg]
    #[arg(long, value_enum)]
    format: Option<PictureFormat>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    common: CommonArgs,
}

impl Run for Timeline {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let peak = PeakOptions {
            metric: self.metric,
            by: self.by,
            from: self.from.clone(),
            to: self.to.clone(),
            top: Some(usize::from(self.top)),
            filter: self.filter.compile()?,
            inference: (&self.infer).into(),
            devices: self.common.devices(),
            each: self.each.clone().map(|each| EachOptions { each, top: 1 }),
            ..PeakOptions::default()
        };
        with_view(&self.common, self.common.view_by(self.by)?, |recording| {
            let devices = if peak.devices.is_empty() { recording.histories.len() } else { peak.devices.len() };
            let columns = plot_columns(devices);
            let mut report =
                recording.timeline(&TimelineOptions { peak, axis: self.x, columns, inactive: self.inactive })?;
            let skipped = std::mem::take(&mut report.skipped);
            Ok(Reply::new(move |source, out| timeline::draw(source, &report).write_as(format, out)).warning(skipped))
        })
    }
}
