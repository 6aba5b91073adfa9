//! `memviz oom`.

use super::Run;
use crate::analysis::{GroupBy, OomOptions};
use crate::cli::args::{CommonArgs, FilterArgs, FrameArgs, InferArgs};
use crate::cli::recording::{Reply, with_folded};
use crate::cli::{Failure, Outcome, output};
use crate::report::AnswerFormat;
use clap::Args;

/// Every request that failed: what was free where, why it did not fit, who holds the memory, what would have helped
#[derive(Debug, Args)]
pub struct Oom {
    #[command(flatten)]
    common: CommonArgs,
    /// Format of the answer
    #[arg(long, value_enum, default_value_t = AnswerFormat::Text)]
    format: AnswerFormat,
    /// What the rows stand for
    #[arg(long, value_enum, default_value_t = GroupBy::Site)]
    by: GroupBy,
    /// Number of rows; the rest becomes one row [default: 10 in text and Markdown, all in JSON]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    frames: FrameArgs,
}

/// Rows for people; machines get all.
const DEFAULT_TOP: usize = 10;

impl Run for Oom {
    fn run(&self) -> Result<Outcome, Failure> {
        let options = OomOptions {
            by: self.by,
            top: self.top.or(self.format.is_for_people().then_some(DEFAULT_TOP)),
            filter: self.filter.compile()?,
            inference: (&self.infer).into(),
            devices: self.common.devices(),
        };
        let style = output::style(&self.common);
        with_folded(&self.common, self.frames.fold(self.format.is_for_people()), |recording| {
            Ok(Reply::rows(recording.oom(&options)?, self.format, style))
        })
    }
}
