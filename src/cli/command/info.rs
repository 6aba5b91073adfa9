//! `memviz info`.

use super::Run;
use crate::cli::args::CommonArgs;
use crate::cli::recording::{Reply, with_recording};
use crate::cli::{Failure, Outcome, output};
use crate::report::AnswerFormat;
use clap::Args;

/// What is in the file: devices, entries by action, time span, completeness, settings, annotations, anomalies
#[derive(Debug, Args)]
pub struct Info {
    #[command(flatten)]
    common: CommonArgs,
    /// Format of the answer
    #[arg(long, value_enum, default_value_t = AnswerFormat::Text)]
    format: AnswerFormat,
}

impl Run for Info {
    fn run(&self) -> Result<Outcome, Failure> {
        let style = output::style(&self.common);
        with_recording(&self.common, |recording| {
            Ok(Reply::rows(recording.info(&self.common.devices())?, self.format, style))
        })
    }
}
