//! `memviz checkpoint`.

use super::Run;
use crate::analysis::checkpoint::CurveOptions;
use crate::analysis::{CheckpointOptions, XAxis};
use crate::cli::args::{CommonArgs, RowsOrSvg};
use crate::cli::recording::{Reply, with_recording};
use crate::cli::{Failure, Outcome, output};
use crate::report::{AnswerFormat, checkpoint, plot_columns};
use clap::Args;

/// What activation checkpointing would save: the predicted peak with each repeatedly called forward function
/// checkpointed, and what running it again costs; with -o, memory before and after as SVG
#[derive(Debug, Args)]
pub struct Checkpoint {
    #[command(flatten)]
    common: CommonArgs,
    /// Format of the answer [default: svg where the output file's name ends in .svg, else text]
    #[arg(long, value_enum)]
    format: Option<RowsOrSvg>,
    /// Number of candidates [default: 10 in text and Markdown, all in JSON and CSV]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// What the x axis of the picture counts
    #[arg(long, value_enum, default_value_t = XAxis::Entry)]
    x: XAxis,
}

/// Candidates for people; machines get all.
const DEFAULT_TOP: usize = 10;

impl Run for Checkpoint {
    fn run(&self) -> Result<Outcome, Failure> {
        match RowsOrSvg::resolve(self.format, self.common.output.as_deref()) {
            RowsOrSvg::Rows(format) => tell(self, format),
            RowsOrSvg::Svg => draw(self),
        }
    }
}

fn tell(args: &Checkpoint, format: AnswerFormat) -> Result<Outcome, Failure> {
    let top = args.top.or(format.is_for_people().then_some(DEFAULT_TOP));
    let options = CheckpointOptions { top, devices: args.common.devices(), curves: None };
    let style = output::style(&args.common);
    with_recording(&args.common, |recording| Ok(Reply::rows(recording.checkpoint(&options)?, format, style)))
}

fn draw(args: &Checkpoint) -> Result<Outcome, Failure> {
    output::check_picture_target(&args.common)?;
    let devices = args.common.devices();
    with_recording(&args.common, |recording| {
        let panels = if devices.is_empty() { recording.histories.len() } else { devices.len() };
        let curves = CurveOptions { axis: args.x, columns: plot_columns(panels) };
        let options = CheckpointOptions { top: args.top, devices, curves: Some(curves) };
        let report = recording.checkpoint(&options)?;
        Ok(Reply::new(move |source, out| checkpoint::draw(source, &report).write(out)))
    })
}
