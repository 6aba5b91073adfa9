//! `memviz ranks`.

use crate::analysis::RanksReport;
use crate::analysis::ranks::{RankLine, SummaryOptions};
use crate::cli::args::{FormatArg, FormatOrSvgArg, RanksArgs};
use crate::cli::progress::Progress;
use crate::cli::{Failure, Outcome, complain, output};
use crate::input::ReadOptions;
use crate::ranks::{RankInputs, RanksOptions};
use crate::report::{Render, ranks};
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;

pub fn run(args: &RanksArgs) -> Result<Outcome, Failure> {
    let shared = &args.shared;
    let format = FormatOrSvgArg::resolve(args.format, shared.output.as_deref());
    if format.is_none() {
        output::check_picture_target(shared)?;
    }
    super::use_threads(shared);
    let mut read =
        ReadOptions { allow_truncated: shared.allow_truncated, view: shared.view(), ..ReadOptions::default() };
    let mut options = RanksOptions {
        summary: SummaryOptions { metric: args.metric.into(), top: usize::from(args.top), devices: shared.devices() },
        stdin_name: args.stdin_name.clone(),
        threads: shared.threads.and_then(|threads| NonZeroUsize::new(usize::from(threads))),
        ..RanksOptions::default()
    };
    let inputs = RankInputs::of(&args.inputs, &options);
    output::check_target(shared, &inputs.paths().collect::<Vec<_>>())?;
    // Rows that appear on a terminal show the progress themselves.
    let rows_show = shared.output.is_none() && io::stdout().is_terminal() && streams(format);
    let progress = Progress::start(inputs.bytes(), 1, shared.quiet || rows_show);
    read.progress = progress.bytes.first().cloned();
    options.read = read;

    let mut report = RanksReport::default();
    let renderer = format.map(|format| output::renderer(shared, format));
    output::write(shared, |out| {
        report = stream(&inputs, &options, renderer.as_deref(), out)?;
        match &renderer {
            Some(renderer) => renderer.ranks(&report, out),
            None => ranks::draw(&report).write(out),
        }
    })?;
    if report.failed().next().is_some() {
        return Ok(Outcome::Failed);
    }
    let contradicts = report.ranks().any(|(_, rank)| rank.anomalies > 0);
    Ok(if shared.strict && contradicts { Outcome::CheckFailed } else { Outcome::Done })
}

/// Whether a format writes rows as soon as they are there.
fn streams(format: Option<FormatArg>) -> bool {
    matches!(format, Some(FormatArg::Text | FormatArg::Json))
}

/// Writes each line when it is there, and complains about inputs that cannot be analysed; then compares them.
fn stream(
    inputs: &RankInputs,
    options: &RanksOptions,
    renderer: Option<&dyn Render>,
    out: &mut dyn Write,
) -> io::Result<RanksReport> {
    let mut lines = Vec::new();
    inputs.summarise(options, |line| {
        if let RankLine::Failed(failed) = &line {
            complain(&format!("{}: {}", failed.path, failed.error));
        }
        if let Some(renderer) = renderer {
            renderer.ranks_line(lines.len(), &line, out)?;
            out.flush()?;
        }
        lines.push(line);
        Ok(())
    })?;
    Ok(RanksReport::of(lines, options.summary.metric))
}
