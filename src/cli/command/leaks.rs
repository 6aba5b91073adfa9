//! `memviz leaks`.

use super::{Run, examples};
use crate::analysis::advice::Simulate;
use crate::analysis::leaks::LeakOptions;
use crate::cli::args::{CommonArgs, StackArgs, one_of, parse_regex, rows};
use crate::cli::code_lines::SourceArgs;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_view};
use crate::facts::grouping::GroupBy;
use crate::model::View;
use crate::model::bytes::Bytes;
use crate::report::{AnswerFormat, TextStyle};
use clap::Args;
use regex_lite::Regex;

/// Find allocations that survive step after step
///
/// Shows the growth per step, and the stacks that cause it.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz leaks snapshot.pickle", "what grows step after step"),
    ("memviz leaks snapshot.pickle --capacity 80GiB", "and when the device will be full"),
]))]
pub struct Leaks {
    /// What to group rows by
    #[arg(long, default_value = GroupBy::Site.name(), value_parser = one_of(&GROUPS))]
    by: GroupBy,
    /// Names of annotations that mark steps
    ///
    /// Without it, memviz uses annotations such as `ProfilerStep#N` and `step_N`, or infers steps from repetition.
    #[arg(long, value_name = "REGEX", value_parser = parse_regex)]
    steps: Option<Regex>,
    /// Memory of the device, such as 80GiB, to predict when it will be full [default: from an oom entry]
    #[arg(long, value_name = "SIZE", value_parser = Bytes::of_capacity)]
    capacity: Option<Bytes>,
    /// Number of rows
    ///
    /// The default is what fits a screen in text, 20 in Markdown, and all in JSON and CSV.
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

/// Groups in which each block is in exactly one.
const GROUPS: [GroupBy; 4] = [GroupBy::Site, GroupBy::Stack, GroupBy::File, GroupBy::Module];
/// Default number of rows in Markdown; other programs get all.
const DEFAULT_TOP: usize = 20;

impl Run for Leaks {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let options = LeakOptions {
            by: self.by,
            steps: self.steps.clone(),
            capacity: self.capacity.map(|capacity| capacity.0),
            filter: self.stacks.filter.compile()?,
            inference: (&self.stacks.infer).into(),
            top: rows(self.top, self.all, format, DEFAULT_TOP),
            devices: self.common.devices(),
            cures: Some(Simulate::All),
            ..LeakOptions::default()
        }
        .cures_of_growth(format.is_for_people());
        let style = TextStyle { all: self.all || self.top.is_some(), ..output::style(&self.common) };
        let view = View { fold: self.stacks.frames.fold(format.is_for_people()), ..self.common.view_of_one() };
        with_view(&self.common, view, |recording| {
            let mut report = recording.leaks(&options)?;
            self.source.fill(
                &self.common,
                &recording.snapshot,
                report.devices.iter_mut().flat_map(|device| &mut device.cures),
            );
            Ok(Reply::rows(report, format, style))
        })
    }
}
