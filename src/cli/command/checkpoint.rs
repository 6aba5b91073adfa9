//! `memviz checkpoint`.

use super::{Answer, for_people, with_recording};
use crate::analysis::CheckpointOptions;
use crate::analysis::checkpoint::CurveOptions;
use crate::cli::args::{CheckpointArgs, FormatArg, FormatOrSvgArg};
use crate::cli::{Failure, Outcome, output};
use crate::report::{checkpoint, timeline};

/// Candidates for people; machines get all.
const DEFAULT_TOP: usize = 10;

pub fn run(args: &CheckpointArgs) -> Result<Outcome, Failure> {
    match FormatOrSvgArg::resolve(args.format, args.common.output.as_deref()) {
        Some(format) => tell(args, format),
        None => draw(args),
    }
}

fn tell(args: &CheckpointArgs, format: FormatArg) -> Result<Outcome, Failure> {
    let top = args.top.or(for_people(format).then_some(DEFAULT_TOP));
    let options = CheckpointOptions { top, devices: args.common.devices(), curves: None };
    let renderer = output::renderer(&args.common, format);
    with_recording(&args.common, |recording| {
        let report = recording.checkpoint(&options)?;
        Ok(Answer {
            warnings: Vec::new(),
            write: Box::new(move |source, out| renderer.checkpoint(source, &report, out)),
        })
    })
}

fn draw(args: &CheckpointArgs) -> Result<Outcome, Failure> {
    output::check_picture_target(&args.common)?;
    let devices = args.common.devices();
    with_recording(&args.common, |recording| {
        let panels = if devices.is_empty() { recording.histories.len() } else { devices.len() };
        let curves = CurveOptions { axis: args.x.into(), columns: timeline::columns(panels) };
        let options = CheckpointOptions { top: args.top, devices, curves: Some(curves) };
        let report = recording.checkpoint(&options)?;
        Ok(Answer {
            warnings: Vec::new(),
            write: Box::new(move |source, out| checkpoint::draw(source, &report).write(out)),
        })
    })
}
