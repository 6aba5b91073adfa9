//! `memviz flamegraph`.

use super::{Answer, with_recording};
use crate::analysis::{FlameOptions, GroupBy, PeakOptions};
use crate::cli::args::{FlameFormatArg, FlamegraphArgs};
use crate::cli::{Failure, Outcome, output};
use crate::report::flamegraph;
use crate::report::flamegraph::folded;

pub fn run(args: &FlamegraphArgs) -> Result<Outcome, Failure> {
    if args.format == FlameFormatArg::Svg {
        output::check_picture_target(&args.common)?;
    }
    let peak = PeakOptions {
        metric: args.metric.into(),
        at: args.at.clone(),
        from: args.from.clone(),
        to: args.to.clone(),
        filter: args.filter.compile()?,
        inference: (&args.infer).into(),
        devices: args.common.devices(),
        ..PeakOptions::default()
    };
    let options = FlameOptions { peak, all_frames: args.all_frames, split: args.by.map(GroupBy::from) };
    let format = args.format;
    with_recording(&args.common, |recording| {
        let mut report = recording.flame(&options)?;
        Ok(Answer {
            warnings: std::mem::take(&mut report.skipped),
            write: Box::new(move |source, out| match format {
                FlameFormatArg::Svg => flamegraph::draw(source, &report).write(out),
                FlameFormatArg::Folded => folded::write(&report, out),
            }),
        })
    })
}
