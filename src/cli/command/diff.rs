//! `memviz diff`.

use super::{Run, examples};
use crate::Recording;
use crate::analysis::diff::DiffReport;
use crate::analysis::diff::{Align, DiffInput, Growth, GrowthLimit, Overlay};
use crate::analysis::peak::PeakOptions;
use crate::cli::args::{CommonArgs, FilterArgs, InferArgs, one_input};
use crate::cli::format::RowsOrPicture;
use crate::cli::instants::AtInstant;
use crate::cli::outcome::{Failure, Outcome, complain};
use crate::cli::output;
use crate::cli::progress::Progress;
use crate::cli::recording::{open, size_of_file, use_threads};
use crate::facts::grouping::GroupBy;
use crate::facts::time::when::When;
use crate::model::View;
use crate::parallel;
use crate::replay::Metric;
use crate::report::diff::{self, exceeded_growth, unknown_growth};
use crate::report::{Source, Sources, plot_columns};
use clap::Args;
use std::path::{Path, PathBuf};
use std::thread;

/// The help for the second input.
const NEW: &str = "Recording to compare with the base, or FILE@WHEN; - for standard input";

/// Compare two recordings, or two instants of one
///
/// To select an instant, append it to the file name: FILE@WHEN. For two instants of one file (the earlier one first), the rows
/// show what was allocated in between and is still live, what was freed, and what survived. `-o NAME.svg` draws both timelines.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz diff before.pickle after.pickle", "what grew, and where"),
    ("memviz diff run.pickle@step:3:end run.pickle@step:4:end", "what a step left behind"),
]))]
#[command(mut_arg("input", |arg| arg.value_name("NEW").help(NEW).long_help(NEW)))]
pub struct Diff {
    /// Recording to use as the base, or FILE@WHEN; - for standard input
    #[arg(value_name = "BASE", value_parser = one_input())]
    base: PathBuf,
    /// What to group rows by
    #[arg(long, value_enum, default_value_t = GroupBy::Site)]
    by: GroupBy,
    /// Number of differing rows; the rest are summed into one row
    ///
    /// The default is 20 in text and Markdown, and all in JSON and CSV.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Instant to compare instead of the peak, for inputs without @WHEN
    ///
    /// One of: peak, oom, start, end, entry:N, time:12.5s, step:N, annotation:NAME[#K].
    #[arg(long, value_name = "WHEN")]
    at: Option<When>,
    /// How to align the timelines in the picture
    ///
    /// The default is step if both recordings have steps; otherwise time, or entry if one takes more than ten times as
    /// long as the other.
    #[arg(long, value_enum)]
    align: Option<Align>,
    /// Exit with 1 if memory on a device grew by more than this, such as 64MiB or 2%
    #[arg(long, value_name = "SIZE|PERCENT")]
    fail_on_growth: Option<GrowthLimit>,
    /// Which counter's peak to find and compare
    #[arg(long, value_enum, default_value_t = Metric::Allocated)]
    metric: Metric,
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<RowsOrPicture>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// Default number of rows for people; other programs get all.
const DEFAULT_TOP: usize = 20;

impl Run for Diff {
    fn run(&self) -> Result<Outcome, Failure> {
        let common = &self.common;
        let format = output::format(common, self.format)?;
        let sides = [&self.base, &common.input].map(|typed| AtInstant::of(typed));
        let [base_at, new_at] = sides;
        let (base_at, new_at) = (base_at?, new_at?);
        output::check_target(common, &[&base_at.file, &new_at.file])?;
        let is_one = base_at.is_same_file(&new_at) && (base_at.at.is_some() || new_at.at.is_some());
        if !is_one && is_stdin(&base_at.file) && is_stdin(&new_at.file) {
            return Err(Failure::Message("expected at most one input from standard input, found two".to_owned()));
        }
        use_threads(common);
        let options = PeakOptions {
            metric: self.metric,
            by: self.by,
            filter: self.filter.compile()?,
            inference: (&self.infer).into(),
            devices: common.devices(),
            ..PeakOptions::default()
        };
        let at = |side: &AtInstant| PeakOptions { at: side.at.clone().or(self.at.clone()), ..options.clone() };
        let (base_options, new_options) = (at(&base_at), at(&new_at));

        let view = common.view_by(self.by)?;
        let (base_path, new_path) = (CommonArgs::shown(&self.base), common.path());
        let (base, new) =
            if is_one { (None, read_one(common, &new_at.file, view)) } else { read(common, view, &base_at, &new_at) };
        let base = base.transpose().map_err(|error| Failure::about(&base_path, &error))?;
        let new = new.map_err(|error| Failure::about(&new_path, &error))?;
        let base = base.as_ref().unwrap_or(&new);
        // For a single recording, facts are computed only once.
        let new_devices = new.devices();
        let base_devices = if is_one { new_devices.clone() } else { base.devices() };
        let (base_side, new_side) = parallel::join(
            || DiffInput::of(&base_devices, &base_options),
            || DiffInput::of(&new_devices, &new_options),
        );
        let base_side = base_side.map_err(|error| Failure::about(&base_path, &error))?;
        let new_side = new_side.map_err(|error| Failure::about(&new_path, &error))?;
        let top = self.top.or_else(|| format.is_for_people().then_some(DEFAULT_TOP));
        let report = if is_one {
            DiffReport::of_instants(&new_devices, (&base_side, &new_side), &options, top)
                .map_err(|error| Failure::about(&new_path, &error))?
        } else {
            DiffReport::of(&base_side, &new_side, top)
        };

        if !common.quiet {
            warn(&base_path, &base_side);
            warn(&new_path, &new_side);
        }
        let sources = Sources {
            base: Source { path: &base_path, recording: base },
            new: Source { path: &new_path, recording: &new },
        };
        match format {
            RowsOrPicture::Rows(format) => {
                let style = output::style(common);
                output::write(common, |out| format.write(&report, sources, style, out))?;
            }
            RowsOrPicture::Picture(format) => {
                let columns = plot_columns(report.devices.len());
                let overlay = Overlay::of(&base_devices, &new_devices, &report, self.align, columns);
                let overlay = overlay.map_err(|error| Failure::Message(format!("{base_path}, {new_path}: {error}")))?;
                output::write(common, |out| diff::draw(sources, &report, &overlay).write_as(format, out))?;
            }
        }
        let anomalies = if is_one { new.anomalies() } else { base.anomalies() + new.anomalies() };
        settle(self, &report, anomalies, &new_path)
    }
}

/// The outcome after the answer was written: if the question cannot be answered, the command fails and says why.
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

/// Reads one recording, for both of its instants.
fn read_one(common: &CommonArgs, file: &Path, view: View) -> crate::Result<Recording> {
    let progress = Progress::start(size_of_file(file), 1, common.quiet);
    open(file, common, view, progress.bytes.first())
}

/// Reads both at the same time, unless one thread is requested.
fn read(
    common: &CommonArgs,
    view: View,
    base: &AtInstant,
    new: &AtInstant,
) -> (Option<crate::Result<Recording>>, crate::Result<Recording>) {
    let (base, new) = (&base.file, &new.file);
    let view = View { library_lines: false, ..view };
    let total = if is_stdin(base) || is_stdin(new) { 0 } else { size_of_file(base) + size_of_file(new) };
    let progress = Progress::start(total, 2, common.quiet);
    let read_base = || open(base, common, view.clone(), progress.bytes.first());
    let read_new = || open(new, common, view.clone(), progress.bytes.last());
    if common.threads == Some(1) {
        return (Some(read_base()), read_new());
    }
    thread::scope(|scope| {
        let base = scope.spawn(read_base);
        let new = read_new();
        // A thread that panicked has already reported it.
        (Some(base.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))), new)
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
