//! `memviz oom`.

use super::{Answer, for_people, with_folded};
use crate::analysis::OomOptions;
use crate::cli::args::OomArgs;
use crate::cli::{Failure, Outcome, output};

/// Rows for people; machines get all.
const DEFAULT_TOP: usize = 10;

pub fn run(args: &OomArgs) -> Result<Outcome, Failure> {
    let options = OomOptions {
        by: args.by.into(),
        top: args.top.or(for_people(args.format).then_some(DEFAULT_TOP)),
        filter: args.filter.compile()?,
        inference: (&args.infer).into(),
        devices: args.common.devices(),
    };
    let renderer = output::renderer(&args.common, args.format);
    with_folded(&args.common, args.frames.fold(for_people(args.format)), |recording| {
        let report = recording.oom(&options)?;
        Ok(Answer { warnings: Vec::new(), write: Box::new(move |source, out| renderer.oom(source, &report, out)) })
    })
}
