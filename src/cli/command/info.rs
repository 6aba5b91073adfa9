//! `memviz info`.

use super::{Run, examples};
use crate::cli::args::CommonArgs;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_recording};
use crate::report::AnswerFormat;
use clap::Args;

/// Show what is in the file, and whether its history is complete
///
/// Shows devices, entries by action, time span, completeness, settings, annotations and anomalies.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz info snapshot.pickle", "what was recorded"),
    ("memviz info trace.json.gz --format json", "the same, in JSON format"),
]))]
pub struct Info {
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<AnswerFormat>,
    #[command(flatten)]
    common: CommonArgs,
}

impl Run for Info {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let style = output::style(&self.common);
        with_recording(&self.common, |recording| {
            Ok(Reply::rows(recording.info(&self.common.devices())?, format, style))
        })
    }
}
