//! `memviz timeline`.

use super::{Answer, with_recording};
use crate::analysis::{EachOptions, PeakOptions, TimelineOptions};
use crate::cli::args::{PictureFormatArg, TimelineArgs};
use crate::cli::{Failure, Outcome, output};
use crate::report::timeline;

pub fn run(args: &TimelineArgs) -> Result<Outcome, Failure> {
    match args.format {
        PictureFormatArg::Svg => output::check_picture_target(&args.common)?,
    }
    let peak = PeakOptions {
        metric: args.metric.into(),
        by: args.by.into(),
        from: args.from.clone(),
        to: args.to.clone(),
        top: Some(usize::from(args.top)),
        filter: args.filter.compile()?,
        inference: (&args.infer).into(),
        devices: args.common.devices(),
        each: args.each.clone().map(|each| EachOptions { each, top: 1 }),
        at: None,
    };
    with_recording(&args.common, |recording| {
        let devices = if peak.devices.is_empty() { recording.histories.len() } else { peak.devices.len() };
        let columns = timeline::columns(devices);
        let mut report =
            recording.timeline(&TimelineOptions { peak, axis: args.x.into(), columns, inactive: args.inactive })?;
        Ok(Answer {
            warnings: std::mem::take(&mut report.skipped),
            write: Box::new(move |source, out| timeline::draw(source, &report).write(out)),
        })
    })
}
