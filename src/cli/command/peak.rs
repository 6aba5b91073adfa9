//! `memviz peak`.

use super::{Answer, for_people, with_folded};
use crate::analysis::{EachOptions, PeakOptions};
use crate::cli::args::PeakArgs;
use crate::cli::{Failure, Outcome, output};

/// Rows for people; machines get all.
const DEFAULT_TOP: usize = 20;
/// Rows of each range for people, and for machines, who may get thousands of ranges.
const EACH_TOP: usize = 1;
const EACH_TOP_FOR_MACHINES: usize = 3;

pub fn run(args: &PeakArgs) -> Result<Outcome, Failure> {
    let for_people = for_people(args.format);
    let each_top = if for_people { EACH_TOP } else { EACH_TOP_FOR_MACHINES };
    let options = PeakOptions {
        metric: args.metric.into(),
        by: args.by.into(),
        at: args.at.clone(),
        from: args.from.clone(),
        to: args.to.clone(),
        top: args.top.or(for_people.then_some(DEFAULT_TOP)),
        filter: args.filter.compile()?,
        inference: (&args.infer).into(),
        devices: args.common.devices(),
        each: args.each.clone().map(|each| EachOptions { each, top: args.top.unwrap_or(each_top) }),
    };
    let renderer = output::renderer(&args.common, args.format);
    with_folded(&args.common, args.frames.fold(for_people), |recording| {
        let mut report = recording.peak(&options)?;
        Ok(Answer {
            warnings: std::mem::take(&mut report.skipped),
            write: Box::new(move |source, out| renderer.peak(source, &report, out)),
        })
    })
}
