//! `memviz checkpoint`.

use super::{Run, examples};
use crate::analysis::checkpoint::CheckpointOptions;
use crate::analysis::checkpoint::CurveOptions;
use crate::analysis::timeline::XAxis;
use crate::cli::args::{CommonArgs, only_snapshots};
use crate::cli::format::RowsOrPicture;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_recording};
use crate::model::bytes::Bytes;
use crate::report::{AnswerFormat, PictureFormat, checkpoint, plot_columns};
use clap::Args;

/// Show what activation checkpointing would save, and what it costs
///
/// For each forward function that is called repeatedly, memviz predicts the peak with this function checkpointed, and the time to
/// recompute it. `-o NAME.svg` draws memory before and after.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz checkpoint snapshot.pickle", "candidates, the best first"),
    ("memviz checkpoint snapshot.pickle -o checkpoint.svg", "memory before and after"),
]))]
#[command(mut_arg("input", only_snapshots))]
pub struct Checkpoint {
    /// Number of candidates
    ///
    /// The default is 10 in text and Markdown, and all in JSON and CSV.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Find the cheapest calls to checkpoint so that allocated memory stays within this size, such as 20GiB
    #[arg(long, value_name = "SIZE", value_parser = Bytes::of_device)]
    fit: Option<Bytes>,
    /// What the x axis of the picture shows
    #[arg(long, value_enum, default_value_t = XAxis::Entry)]
    x: XAxis,
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<RowsOrPicture>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Default number of candidates for people; other programs get all.
const DEFAULT_TOP: usize = 10;

impl Run for Checkpoint {
    fn run(&self) -> Result<Outcome, Failure> {
        match output::format(&self.common, self.format)? {
            RowsOrPicture::Rows(format) => tell(self, format),
            RowsOrPicture::Picture(format) => draw(self, format),
        }
    }
}

fn tell(args: &Checkpoint, format: AnswerFormat) -> Result<Outcome, Failure> {
    let top = args.top.or(format.is_for_people().then_some(DEFAULT_TOP));
    let fit = args.fit.map(|bytes| bytes.0);
    let options = CheckpointOptions { top, devices: args.common.devices(), fit, ..CheckpointOptions::default() };
    let options = options.best_only(format.is_for_people());
    let style = output::style(&args.common);
    with_recording(&args.common, |recording| Ok(Reply::rows(recording.checkpoint(&options)?, format, style)))
}

fn draw(args: &Checkpoint, format: PictureFormat) -> Result<Outcome, Failure> {
    let devices = args.common.devices();
    with_recording(&args.common, |recording| {
        let panels = if devices.is_empty() { recording.histories.len() } else { devices.len() };
        let curves = CurveOptions { axis: args.x, columns: plot_columns(panels) };
        let options =
            CheckpointOptions { top: args.top, devices, curves: Some(curves), ..CheckpointOptions::default() };
        let options = options.best_only(true);
        let report = recording.checkpoint(&options)?;
        Ok(Reply::new(move |source, out| checkpoint::draw(source, &report).write_as(format, out)))
    })
}
