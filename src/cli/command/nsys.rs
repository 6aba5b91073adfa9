//! `memviz nsys`.

use super::{Run, examples};
use crate::analysis::nsys::{NsysOptions, NsysReport};
use crate::cli::args::CommonArgs;
use crate::cli::limits;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{read_quietly, size_of_file};
use crate::input;
use crate::report::AnswerFormat;
use clap::Args;
use std::path::PathBuf;

/// Show the device memory of all libraries in an Nsight Systems profile
///
/// Reads the file that `nsys export --type sqlite` writes for a profile recorded with `nsys profile --cuda-memory-usage=true`.
/// With `--cudabacktrace=memory`, the profile also shows which libraries allocated the memory.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz nsys report.sqlite", "peak by process and library"),
    ("memviz nsys report.sqlite --snapshot run.pickle", "also find PyTorch's segments"),
]))]
#[command(mut_arg("input", |arg| arg.help("SQLite export of an Nsight Systems profile").long_help(None)))]
pub struct Nsys {
    /// A PyTorch recording of the same run, to find its segments in the profile
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<AnswerFormat>,
    #[command(flatten)]
    common: CommonArgs,
}

impl Run for Nsys {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let style = output::style(&self.common);
        output::check_target(&self.common, &[&self.common.input])?;
        let path = self.common.path();
        if self.common.input.as_os_str() == "-" {
            return Err(Failure::Message(
                "expected a file that can be read in any order, found standard input".to_owned(),
            ));
        }
        limits::grant(size_of_file(&self.common.input));
        let profile = input::nsys::read(&self.common.input).map_err(|error| Failure::about(&path, &error))?;
        let recording = self.snapshot.as_ref().map(|snapshot| {
            read_quietly(snapshot, self.common.allow_truncated)
                .map_err(|error| Failure::about(&snapshot.display().to_string(), &error))
        });
        let recording = recording.transpose()?;
        let recording = recording.as_ref().map(|recording| recording.devices());
        let options = NsysOptions::default().devices(self.common.devices());
        let report =
            NsysReport::of(&profile, recording.as_ref(), &options).map_err(|error| Failure::about(&path, &error))?;
        output::write(&self.common, |out| format.write(&report, &path, style, out))?;
        let contradicts = self.common.strict && report.contradictions() > 0;
        Ok(if contradicts { Outcome::CheckFailed } else { Outcome::Done })
    }
}
