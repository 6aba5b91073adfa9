//! `memviz diff`.

use super::{for_people, open, use_threads};
use crate::Recording;
use crate::analysis::diff::{DiffInput, Growth, Overlay};
use crate::analysis::{DiffReport, PeakOptions};
use crate::cli::args::{CommonArgs, DiffArgs, FormatOrSvgArg};
use crate::cli::progress::Progress;
use crate::cli::{Failure, Outcome, complain, output};
use crate::report::diff::words::{exceeded_growth, unknown_growth};
use crate::report::{Source, Sources, diff};
use std::path::Path;
use std::thread;

/// Rows for people; machines get all.
const DEFAULT_TOP: usize = 20;

pub fn run(args: &DiffArgs) -> Result<Outcome, Failure> {
    let common = &args.common;
    let format = FormatOrSvgArg::resolve(args.format, common.output.as_deref());
    if format.is_none() {
        output::check_picture_target(common)?;
    }
    output::check_target(common, &[&args.base, &common.input])?;
    if is_stdin(&args.base) && common.is_stdin() {
        return Err(Failure::Message("expected one input from standard input, found two".to_owned()));
    }
    use_threads(common);
    let options = PeakOptions {
        metric: args.metric.into(),
        by: args.by.into(),
        at: args.at.clone(),
        filter: args.filter.compile()?,
        inference: (&args.infer).into(),
        devices: common.devices(),
        ..PeakOptions::default()
    };

    let (base_path, new_path) = (CommonArgs::shown(&args.base), common.path());
    let (base, new) = read(args);
    let base = base.map_err(|error| Failure::about(&base_path, &error))?;
    let new = new.map_err(|error| Failure::about(&new_path, &error))?;
    let (base_side, new_side) = rayon::join(|| base.diff_input(&options), || new.diff_input(&options));
    let base_side = base_side.map_err(|error| Failure::about(&base_path, &error))?;
    let new_side = new_side.map_err(|error| Failure::about(&new_path, &error))?;
    let top = args.top.or_else(|| format.is_none_or(for_people).then_some(DEFAULT_TOP));
    let report = DiffReport::of(&base_side, &new_side, top);

    if !common.quiet {
        warn(&base_path, &base_side);
        warn(&new_path, &new_side);
    }
    let sources = Sources {
        base: Source { path: &base_path, recording: &base },
        new: Source { path: &new_path, recording: &new },
    };
    if let Some(format) = format {
        let renderer = output::renderer(common, format);
        output::write(common, |out| renderer.diff(sources, &report, out))?;
    } else {
        let columns = diff::columns(report.devices.len());
        let overlay = Overlay::of(&base.devices(), &new.devices(), &report, args.align.into(), columns);
        let overlay = overlay.map_err(|error| Failure::Message(format!("{base_path}, {new_path}: {error}")))?;
        output::write(common, |out| diff::draw(sources, &report, &overlay).write(out))?;
    }
    settle(args, &report, base.anomalies() + new.anomalies(), &new_path)
}

/// The outcome, when the answer is written: what cannot be told fails, and says why.
fn settle(args: &DiffArgs, report: &DiffReport, anomalies: u64, path: &str) -> Result<Outcome, Failure> {
    let growth = args.fail_on_growth.map_or(Growth::Within, |limit| report.growth(limit));
    let contradicts = args.common.strict && anomalies > 0;
    match (growth, args.fail_on_growth) {
        (Growth::Unknown, Some(limit)) => Err(Failure::Message(format!("{path}: {}", unknown_growth(report, limit)))),
        (Growth::Beyond, Some(limit)) => {
            super::super::complain(&format!("{path}: {}", exceeded_growth(report, limit)));
            Ok(Outcome::CheckFailed)
        }
        _ if contradicts => Ok(Outcome::CheckFailed),
        _ => Ok(Outcome::Done),
    }
}

/// Reads both at once, unless a single thread is asked for.
fn read(args: &DiffArgs) -> (crate::Result<Recording>, crate::Result<Recording>) {
    let common = &args.common;
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let total = if is_stdin(&args.base) || common.is_stdin() { 0 } else { size(&args.base) + size(&common.input) };
    let progress = Progress::start(total, 2, common.quiet);
    let read_base = || open(&args.base, common, common.view(), progress.bytes.first());
    let read_new = || open(&common.input, common, common.view(), progress.bytes.last());
    if common.threads == Some(1) {
        return (read_base(), read_new());
    }
    thread::scope(|scope| {
        let base = scope.spawn(read_base);
        let new = read_new();
        // A thread that panicked has said why.
        (base.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), new)
    })
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn warn(path: &str, side: &DiffInput) {
    for warning in &side.skipped {
        complain(&format!("{path}: {warning}"));
    }
}
