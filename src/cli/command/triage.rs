//! `memviz triage`; `memviz FILE` is short for it.

use super::{Run, examples};
use crate::analysis::triage::TriageOptions;
use crate::cli::args::{CommonArgs, InferArgs};
use crate::cli::code_lines::SourceArgs;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_recording};
use crate::report::AnswerFormat;
use clap::Args;

/// Show the verdict and what to run next, as `memviz FILE` does
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz snapshot.pickle", "the verdict on one screen"),
    ("memviz triage snapshot.pickle --format json", "the same, in JSON format"),
]))]
pub struct Triage {
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<AnswerFormat>,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    common: CommonArgs,
}

impl Run for Triage {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let style = output::style(&self.common);
        let options = TriageOptions::default().devices(self.common.devices()).inference((&self.infer).into());
        with_recording(&self.common, |recording| {
            let mut report = recording.triage(&options)?;
            self.source.fill(
                &self.common,
                &recording.snapshot,
                report.devices.iter_mut().flat_map(|device| &mut device.advice),
            );
            Ok(Reply::rows(report, format, style))
        })
    }
}
