//! `memviz ranks`.

use super::{Run, examples};
#[cfg(feature = "parquet")]
use crate::analysis::export::of_ranks;
use crate::analysis::ranks::RanksReport;
use crate::analysis::ranks::SummaryOptions;
use crate::cli::args::SharedArgs;
use crate::cli::format::{RanksFormat, RowsOrPicture};
use crate::cli::limits;
use crate::cli::outcome::{Failure, Outcome, complain};
use crate::cli::output;
use crate::cli::progress::Progress;
use crate::cli::recording::use_threads;
use crate::ranks::{RankInputs, RanksOptions};
use crate::replay::Metric;
use crate::report::AnswerFormat;
#[cfg(feature = "parquet")]
use crate::report::export::parquet;
use crate::report::ranks::{self, Streamed};
use crate::wire::ranks::RankLine;
use clap::Args;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Find the rank that differs, and what it holds that others do not
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz ranks recordings/", "all recordings in a folder"),
    ("memviz ranks rank*.pickle -o ranks.svg", "as a picture"),
]))]
pub struct Ranks {
    /// Recordings of ranks, folders of recordings, globs, or summaries written by `memviz ranks --format json` or
    /// `--format parquet`; - for standard input
    #[arg(value_name = "INPUT", required = true)]
    inputs: Vec<PathBuf>,
    /// Recordings, summaries, folders or globs of earlier runs, to show which failures also happened there
    #[arg(long, value_name = "INPUT")]
    earlier: Vec<PathBuf>,
    /// Which counter's peak to attribute
    #[arg(long, value_enum, default_value_t = Metric::Allocated)]
    metric: Metric,
    /// Number of sites in each summary; the rest are summed into one row
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=50))]
    top: u8,
    /// Name for standard input: rows show it, and the rank is taken from it
    #[arg(long, value_name = "NAME")]
    stdin_name: Option<String>,
    /// Output format; json has one summary per line and parquet one per row, and memviz ranks can read both as inputs [default: from the output
    /// file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<RanksFormat>,
    #[command(flatten)]
    shared: SharedArgs,
}

impl Run for Ranks {
    fn run(&self) -> Result<Outcome, Failure> {
        let shared = &self.shared;
        let format = output::format(shared, self.format)?;
        use_threads(shared);
        let style = output::style(shared);
        let streamed = match format {
            RanksFormat::Answer(RowsOrPicture::Rows(AnswerFormat::Text)) => Some(Streamed::Text(style)),
            RanksFormat::Answer(RowsOrPicture::Rows(AnswerFormat::Json)) => Some(Streamed::Json),
            _ => None,
        };
        let mut read = shared.read_options(shared.view());
        let mut options = RanksOptions {
            summary: SummaryOptions { metric: self.metric, top: usize::from(self.top), devices: shared.devices() },
            stdin_name: self.stdin_name.clone(),
            threads: shared.threads.and_then(|threads| NonZeroUsize::new(usize::from(threads))),
            ..RanksOptions::default()
        };
        let inputs = RankInputs::of(&self.inputs, &options);
        if let (Some(Streamed::Text(_)), Some(problem)) = (streamed, inputs.problem()) {
            return Err(Failure::Message(problem));
        }
        let before = RankInputs::of(&self.earlier, &options);
        output::check_target(shared, &inputs.paths().chain(before.paths()).collect::<Vec<_>>())?;
        // Rows that appear on a terminal already show the progress.
        let rows_show = shared.output.is_none() && io::stdout().is_terminal() && streamed.is_some();
        limits::grant(inputs.bytes() + before.bytes());
        let progress = Progress::start(inputs.bytes(), 1, shared.quiet || rows_show);
        read.progress = progress.bytes.first().cloned();
        options.read = read;

        // Nothing else is written for earlier inputs that cannot be read.
        let mut earlier = Vec::new();
        before.summarize(&options, |line| {
            report_failed(&line);
            earlier.push(line);
            Ok(())
        })?;
        let earlier_failed = earlier.iter().any(|line| matches!(line, RankLine::Failed(_)));

        // An error that is the whole answer is also one for scripts.
        let is_seen = shared.output.as_ref().is_none_or(|path| path.as_os_str() == "-");
        let rows_say = is_seen && inputs.len() > 1 && matches!(streamed, Some(Streamed::Text(_)));
        let mut report = RanksReport::default();
        output::write(shared, |out| {
            report = summarize(&inputs, &options, streamed, rows_say, out)?;
            if !self.earlier.is_empty() {
                report = std::mem::take(&mut report).with_earlier(&earlier);
            }
            match (streamed, format) {
                (Some(streamed), _) => streamed.end(&report, out),
                (None, RanksFormat::Answer(RowsOrPicture::Rows(format))) => format.write(&report, (), style, out),
                (None, RanksFormat::Answer(RowsOrPicture::Picture(picture))) => {
                    ranks::draw(&report).write_as(picture, out)
                }
                (None, RanksFormat::Prometheus) => ranks::prometheus::write(&report, out),
                #[cfg(feature = "parquet")]
                (None, RanksFormat::Parquet) => {
                    let mut table = parquet::Writer::new(out)?;
                    table.part(&of_ranks(&report.lines.iter().collect::<Vec<_>>())?)?;
                    table.end()
                }
            }
        })?;
        if earlier_failed || report.failed().next().is_some() {
            return Ok(Outcome::Failed);
        }
        let contradicts = report.ranks().any(|(_, rank)| rank.anomalies > 0);
        Ok(if shared.strict && contradicts { Outcome::CheckFailed } else { Outcome::Done })
    }
}

/// Writes each line as soon as it is complete, in formats that allow it, and reports inputs that cannot be analyzed, unless rows
/// say so to the same reader; then compares the ranks.
fn summarize(
    inputs: &RankInputs,
    options: &RanksOptions,
    streamed: Option<Streamed>,
    rows_say: bool,
    out: &mut dyn Write,
) -> io::Result<RanksReport> {
    let mut lines = Vec::new();
    inputs.summarize(options, |line| {
        if !rows_say {
            report_failed(&line);
        }
        if let Some(streamed) = streamed {
            streamed.line(lines.len(), &line, out)?;
            out.flush()?;
        }
        lines.push(line);
        Ok(())
    })?;
    Ok(RanksReport::of(lines, options.summary.metric))
}

/// Reports an input that cannot be analyzed.
fn report_failed(line: &RankLine) {
    if let RankLine::Failed(failed) = line {
        complain(&format!("{}: {}", failed.path, failed.error));
    }
}
