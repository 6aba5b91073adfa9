//! `memviz diff`.

use super::{Run, examples};
use crate::Recording;
use crate::analysis::diff::DiffReport;
use crate::analysis::diff::{Align, DiffInput, Growth, GrowthLimit, Overlay};
use crate::analysis::peak::PeakOptions;
use crate::cli::args::{CommonArgs, FilterArgs, InferArgs};
use crate::cli::format::RowsOrPicture;
use crate::cli::outcome::{Failure, Outcome, complain};
use crate::cli::output;
use crate::cli::progress::Progress;
use crate::cli::recording::{open, use_threads};
use crate::facts::grouping::GroupBy;
use crate::facts::time::when::When;
use crate::replay::Metric;
use crate::report::diff::{self, exceeded_growth, unknown_growth};
use crate::report::{Source, Sources, plot_columns};
use clap::Args;
use std::path::{Path, PathBuf};
use std::thread;

/// Two recordings side by side: peaks, what holds them, settings
///
/// With -o and a picture, both timelines.
#[derive(Debug, Args)]
#[command(after_help = examples(&[
    ("memviz diff before.pickle after.pickle", "what grew, and where"),
    ("memviz diff before.pickle after.pickle --fail-on-growth 2%", "as a check"),
]))]
#[command(mut_arg("input", |arg| arg.value_name("NEW").help("What the base is compared with; - for standard input")))]
pub struct Diff {
    /// Snapshot, profiler trace or memory timeline to compare with; - for standard input
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// What the rows stand for
    #[arg(long, value_enum, default_value_t = GroupBy::Site)]
    by: GroupBy,
    /// Number of rows that differ; the rest becomes one row [default: 20 in text and Markdown, all in JSON and CSV]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Another instant of both than the peak: peak, oom, start, end, entry:N, time:12.5s, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    at: Option<When>,
    /// What lies above each other in the picture [default: step where both have steps, else time]
    #[arg(long, value_enum)]
    align: Option<Align>,
    /// Exit with 1 if a device grew by more than this, such as 64MiB or 2%
    #[arg(long, value_name = "SIZE|PERCENT")]
    fail_on_growth: Option<GrowthLimit>,
    /// Which counter's peak to find and compare
    #[arg(long, value_enum, default_value_t = Metric::Allocated)]
    metric: Metric,
    /// Format of the answer [default: what the output file's name stands for, else text]
    #[arg(long, value_enum)]
    format: Option<RowsOrPicture>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// Rows for people; machines get all.
const DEFAULT_TOP: usize = 20;

impl Run for Diff {
    fn run(&self) -> Result<Outcome, Failure> {
        let common = &self.common;
        let format = output::format(common, self.format)?;
        output::check_target(common, &[&self.base, &common.input])?;
        if is_stdin(&self.base) && common.is_stdin() {
            return Err(Failure::Message("expected one input from standard input, found two".to_owned()));
        }
        use_threads(common);
        let options = PeakOptions {
            metric: self.metric,
            by: self.by,
            at: self.at.clone(),
            filter: self.filter.compile()?,
            inference: (&self.infer).into(),
            devices: common.devices(),
            ..PeakOptions::default()
        };

        let (base_path, new_path) = (CommonArgs::shown(&self.base), common.path());
        let (base, new) = read(self);
        let base = base.map_err(|error| Failure::about(&base_path, &error))?;
        let new = new.map_err(|error| Failure::about(&new_path, &error))?;
        let (base_side, new_side) = rayon::join(|| base.diff_input(&options), || new.diff_input(&options));
        let base_side = base_side.map_err(|error| Failure::about(&base_path, &error))?;
        let new_side = new_side.map_err(|error| Failure::about(&new_path, &error))?;
        let top = self.top.or_else(|| format.is_for_people().then_some(DEFAULT_TOP));
        let report = DiffReport::of(&base_side, &new_side, top);

        if !common.quiet {
            warn(&base_path, &base_side);
            warn(&new_path, &new_side);
        }
        let sources = Sources {
            base: Source { path: &base_path, recording: &base },
            new: Source { path: &new_path, recording: &new },
        };
        match format {
            RowsOrPicture::Rows(format) => {
                let style = output::style(common);
                output::write(common, |out| format.write(&report, sources, style, out))?;
            }
            RowsOrPicture::Picture(format) => {
                let columns = plot_columns(report.devices.len());
                let overlay = Overlay::of(&base.devices(), &new.devices(), &report, self.align, columns);
                let overlay = overlay.map_err(|error| Failure::Message(format!("{base_path}, {new_path}: {error}")))?;
                output::write(common, |out| diff::draw(sources, &report, &overlay).write_as(format, out))?;
            }
        }
        settle(self, &report, base.anomalies() + new.anomalies(), &new_path)
    }
}

/// The outcome, when the answer is written: what cannot be told fails, and says why.
fn settle(args: &Diff, report: &DiffReport, anomalies: u64, path: &str) -> Result<Outcome, Failure> {
    let growth = args.fail_on_growth.map_or(Growth::Within, |limit| report.growth(limit));
    let contradicts = args.common.strict && anomalies > 0;
    match (growth, args.fail_on_growth) {
        (Growth::Unknown, Some(limit)) => Err(Failure::Message(format!("{path}: {}", unknown_growth(report, limit)))),
        (Growth::Beyond, Some(limit)) => {
            complain(&format!("{path}: {}", exceeded_growth(report, limit)));
            Ok(Outcome::CheckFailed)
        }
        _ if contradicts => Ok(Outcome::CheckFailed),
        _ => Ok(Outcome::Done),
    }
}

/// Reads both at once, unless a single thread is asked for.
fn read(args: &Diff) -> (crate::Result<Recording>, crate::Result<Recording>) {
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
