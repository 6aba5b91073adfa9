//! `memviz triage`, which is what `memviz FILE` is short for.

use super::Run;
use crate::analysis::triage::TriageOptions;
use crate::cli::args::{CommonArgs, InferArgs};
use crate::cli::recording::{Reply, with_recording};
use crate::cli::{Failure, Outcome, output};
use crate::report::AnswerFormat;
use clap::Args;

/// The verdict in one screen, and what to type next; `memviz FILE` is short for it
#[derive(Debug, Args)]
pub struct Triage {
    #[command(flatten)]
    common: CommonArgs,
    /// Format of the answer
    #[arg(long, value_enum, default_value_t = AnswerFormat::Text)]
    format: AnswerFormat,
    #[command(flatten)]
    infer: InferArgs,
}

impl Run for Triage {
    fn run(&self) -> Result<Outcome, Failure> {
        let style = output::style(&self.common);
        let options = TriageOptions { devices: self.common.devices(), inference: (&self.infer).into() };
        with_recording(&self.common, |recording| Ok(Reply::rows(recording.triage(&options)?, self.format, style)))
    }
}
