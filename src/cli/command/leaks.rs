//! `memviz leaks`.

use super::{Answer, for_people, with_folded};
use crate::analysis::LeakOptions;
use crate::cli::args::LeaksArgs;
use crate::cli::{Failure, Outcome, output};

/// Rows for people; machines get all.
const DEFAULT_TOP: usize = 20;

pub fn run(args: &LeaksArgs) -> Result<Outcome, Failure> {
    let options = LeakOptions {
        by: args.by.into(),
        steps: args.steps.clone(),
        capacity: args.capacity.map(|capacity| capacity.0),
        filter: args.filter.compile()?,
        inference: (&args.infer).into(),
        top: args.top.or(for_people(args.format).then_some(DEFAULT_TOP)),
        devices: args.common.devices(),
    };
    let renderer = output::renderer(&args.common, args.format);
    with_folded(&args.common, args.frames.fold(for_people(args.format)), |recording| {
        let report = recording.leaks(&options)?;
        Ok(Answer { warnings: Vec::new(), write: Box::new(move |source, out| renderer.leaks(source, &report, out)) })
    })
}
