//! `memviz flamegraph`.

use super::Run;
use crate::analysis::{FlameOptions, GroupBy, PeakOptions, When};
use crate::cli::args::{CommonArgs, FilterArgs, InferArgs, one_of};
use crate::cli::recording::{Reply, with_recording};
use crate::cli::{Failure, Outcome, output};
use crate::replay::Metric;
use crate::report::flamegraph::{self, folded};
use clap::{Args, ValueEnum};

/// Draw live bytes by stack at the peak as SVG, or write folded stacks
#[derive(Debug, Args)]
pub struct Flamegraph {
    #[command(flatten)]
    common: CommonArgs,
    /// A picture, or a line per stack for other flame graph tools
    #[arg(long, value_enum, default_value_t = FlameFormat::Svg)]
    format: FlameFormat,
    /// Which counter's peak to find and draw
    #[arg(long, value_enum, default_value_t = Metric::Allocated)]
    metric: Metric,
    /// Another instant than the peak: peak, oom, start, end, entry:N, time:12.5s, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    at: Option<When>,
    /// Search the peak from this instant on
    #[arg(long, value_name = "WHEN")]
    from: Option<When>,
    /// Search the peak up to this instant
    #[arg(long, value_name = "WHEN")]
    to: Option<When>,
    /// Groups between the root and the frames
    #[arg(long, value_parser = one_of(&GROUPS))]
    by: Option<GroupBy>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    infer: InferArgs,
    /// Keep the C++ frames of allocator, dispatcher and interpreter
    #[arg(long)]
    all_frames: bool,
}

/// What can stand around stacks.
const GROUPS: [GroupBy; 2] = [GroupBy::Category, GroupBy::Phase];

/// What a flame graph can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FlameFormat {
    /// SVG
    Svg,
    /// Folded stacks: inferno, speedscope, flamegraph.pl
    Folded,
}

impl Run for Flamegraph {
    fn run(&self) -> Result<Outcome, Failure> {
        if self.format == FlameFormat::Svg {
            output::check_picture_target(&self.common)?;
        }
        let peak = PeakOptions {
            metric: self.metric,
            at: self.at.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            filter: self.filter.compile()?,
            inference: (&self.infer).into(),
            devices: self.common.devices(),
            ..PeakOptions::default()
        };
        let options = FlameOptions { peak, all_frames: self.all_frames, split: self.by };
        let format = self.format;
        with_recording(&self.common, |recording| {
            let mut report = recording.flame(&options)?;
            let skipped = std::mem::take(&mut report.skipped);
            let reply = Reply::new(move |source, out| match format {
                FlameFormat::Svg => flamegraph::draw(source, &report).write(out),
                FlameFormat::Folded => folded::write(&report, out),
            });
            Ok(reply.warning(skipped))
        })
    }
}
