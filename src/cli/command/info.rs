//! `memviz info`.

use super::{Answer, with_recording};
use crate::cli::args::InfoArgs;
use crate::cli::{Failure, Outcome, output};

pub fn run(args: &InfoArgs) -> Result<Outcome, Failure> {
    let renderer = output::renderer(&args.common, args.format);
    with_recording(&args.common, |recording| {
        let report = recording.info(&args.common.devices())?;
        Ok(Answer { warnings: Vec::new(), write: Box::new(move |source, out| renderer.info(source, &report, out)) })
    })
}
