//! `memviz oom`.

use super::{Run, examples};
use crate::analysis::advice::Simulate;
use crate::analysis::oom::OomOptions;
use crate::cli::args::{CommonArgs, StackArgs, rows};
use crate::cli::code_lines::SourceArgs;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_view};
use crate::facts::grouping::GroupBy;
use crate::model::View;
use crate::report::{AnswerFormat, TextStyle};
use clap::Args;

/// Explain why requests failed, and what would have helped
///
/// Shows, for every failed request, how much memory was free and why it was not enough.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz oom snapshot.pickle", "why it failed, and what would have helped"),
    ("memviz oom snapshot.pickle --by category", "what the memory was for"),
]))]
pub struct Oom {
    /// What to group rows by
    #[arg(long, value_enum, default_value_t = GroupBy::Site)]
    by: GroupBy,
    /// Number of rows; the rest are summed into one row
    ///
    /// The default is what fits a screen in text, 10 in Markdown, and all in JSON.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Show all rows and sections in text, instead of what fits a screen
    #[arg(long)]
    all: bool,
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<AnswerFormat>,
    #[command(flatten)]
    stacks: StackArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// Default number of rows in Markdown; other programs get all.
const DEFAULT_TOP: usize = 10;

impl Run for Oom {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let options = OomOptions {
            by: self.by,
            top: rows(self.top, self.all, format, DEFAULT_TOP),
            filter: self.stacks.filter.compile()?,
            inference: (&self.stacks.infer).into(),
            devices: self.common.devices(),
            plans: true,
            cures: Some(Simulate::All),
            ..OomOptions::default()
        }
        .cures_of_failures(format.is_for_people());
        let style = TextStyle { all: self.all || self.top.is_some(), ..output::style(&self.common) };
        let view = View { fold: self.stacks.frames.fold(format.is_for_people()), ..self.common.view_by(self.by)? };
        with_view(&self.common, view, |recording| {
            let mut report = recording.oom(&options)?;
            self.source.fill(
                &self.common,
                &recording.snapshot,
                report.devices.iter_mut().flat_map(|device| &mut device.cures),
            );
            Ok(Reply::rows(report, format, style))
        })
    }
}
