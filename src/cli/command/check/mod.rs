//! `memviz check`.

mod args;
mod baselines;
mod plan;
mod repository;

use super::Run;
use crate::Recording;
use crate::analysis::check::{Budgets, CheckOptions};
use crate::analysis::check::{CheckReport, CheckVerdict, EarlierRun, Tolerance};
use crate::cli::args::{CommonArgs, SharedArgs};
use crate::cli::format::CheckFormat;
use crate::cli::outcome::{Failure, Outcome, complain};
use crate::cli::output;
use crate::cli::progress::Progress;
use crate::cli::recording::{open, use_threads};
use crate::report::check::words::{CheckedInput, doubt, title_below, verdict};
use crate::report::check::{github, junit, prometheus};
use crate::report::{Answer, InputHead, Source};
pub use args::Check;
use baselines::Known;
use indexmap::{IndexMap, IndexSet};
use plan::{BudgetSet, Job, plan};
use repository::Repository;
use std::fs;
use std::path::{Path, PathBuf};

impl Run for Check {
    fn run(&self) -> Result<Outcome, Failure> {
        let shared = &self.shared;
        let format = output::format(shared, self.format)?;
        let jobs = plan(self)?;
        let paths: Vec<&PathBuf> = jobs.iter().map(|job| &job.input).collect();
        // Other files that are read are not overwritten, either.
        let toml = Path::new("memviz.toml");
        let files = [self.config.as_deref(), Some(toml)].into_iter().flatten();
        let baselines = jobs.iter().flat_map(|job| &job.budgets).filter_map(|set| set.baseline.as_deref());
        let others = files.chain(baselines);
        output::check_target(shared, &paths.iter().map(|path| path.as_path()).chain(others).collect::<Vec<_>>())?;
        if paths.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(Failure::Message("expected at most one input from standard input, found several".to_owned()));
        }
        output::forget_old(shared)?;
        use_threads(shared);
        let baselines = Baselines::of(self, &jobs)?;
        // One after the other, so that only one recording is in memory at a time.
        let inputs: Vec<CheckedInput> =
            jobs.iter().map(|job| check(self, job, &baselines)).collect::<Result<_, Failure>>()?;
        for input in &inputs {
            complain_about(input);
        }
        // Standard error already shows everything; a requested file contains it, too.
        if inputs.iter().all(|input| input.answer.is_err()) && shared.output.is_none() {
            return Ok(Outcome::Failed);
        }
        output::write(shared, |out| match format {
            CheckFormat::Text => inputs.text((), output::style(shared), out),
            CheckFormat::Json => inputs.json((), out),
            CheckFormat::Markdown => inputs.markdown((), out),
            CheckFormat::Junit => junit::write(&inputs, out),
            CheckFormat::Prometheus => prometheus::write(&inputs, out),
            CheckFormat::Github => {
                let repository = Repository::here()?;
                github::write(&inputs, &|file| repository.path_of(file), out)
            }
        })?;
        baselines.update(&inputs, shared)?;
        let contradicts = |input: &CheckedInput| input.answer.as_ref().is_ok_and(|(head, _)| head.anomalies.total > 0);
        Ok(match verdict(&inputs) {
            CheckVerdict::Unknown => Outcome::Failed,
            CheckVerdict::Failed => Outcome::CheckFailed,
            CheckVerdict::Passed if shared.strict && inputs.iter().any(contradicts) => Outcome::CheckFailed,
            CheckVerdict::Passed | CheckVerdict::Shown => Outcome::Done,
        })
    }
}

/// Checks one input. If it cannot be read, that is part of the answer, since the other inputs can still be checked.
fn check(args: &Check, job: &Job, baselines: &Baselines) -> Result<CheckedInput, Failure> {
    let path = CommonArgs::shown(&job.input);
    let budgets = job.budgets.iter().map(|set| baselines.complete(set, &path));
    let options = CheckOptions { budgets: budgets.collect::<Result<_, Failure>>()?, top: args.top };
    if let Some(problem) = &job.problem {
        return Ok(CheckedInput { path, answer: Err(problem.clone()) });
    }
    let size = fs::metadata(&job.input).map_or(0, |metadata| metadata.len());
    let progress = Progress::start(size, 1, args.shared.quiet);
    let recording = open(&job.input, &args.shared, args.shared.view(), progress.bytes.first());
    let answer = recording.map_err(|error| error.to_string()).map(|recording| answer(&path, &recording, &options));
    Ok(CheckedInput { path, answer })
}

fn answer(path: &str, recording: &Recording, options: &CheckOptions) -> (InputHead<'static>, CheckReport) {
    (InputHead::of(Source { path, recording }).into_owned(), recording.check(options))
}

/// Prints one line on standard error for an input that could not be read or checked.
fn complain_about(input: &CheckedInput) {
    let path = &input.path;
    match &input.answer {
        Err(reason) => complain(&format!("{path}: {reason}")),
        Ok((_, report)) => {
            let mut unknown = report.checks.iter().filter(|check| check.verdict == CheckVerdict::Unknown);
            let Some(first) = unknown.next() else { return };
            let reason = first.doubt.as_ref().map(doubt).unwrap_or_default();
            let first = title_below(path, first);
            complain(&match unknown.count() {
                0 => format!("{path}: {first} cannot be judged: {reason}"),
                more => format!("{path}: {} budgets cannot be judged; the first is {first}: {reason}", more + 1),
            });
        }
    }
}

/// The baselines of all jobs, by file; or, to update them, the inputs for each file.
enum Baselines {
    Compare(IndexMap<PathBuf, Known>),
    Update(IndexMap<PathBuf, IndexSet<usize>>),
}

impl Baselines {
    fn of(args: &Check, jobs: &[Job]) -> Result<Self, Failure> {
        let mut inputs: IndexMap<PathBuf, IndexSet<usize>> = IndexMap::new();
        for (index, job) in jobs.iter().enumerate() {
            for baseline in job.budgets.iter().filter_map(|set| set.baseline.clone()) {
                inputs.entry(baseline).or_default().insert(index);
            }
        }
        if args.update_baseline {
            inputs.keys().try_for_each(|path| baselines::check_replaceable(path))?;
            return Ok(Self::Update(inputs));
        }
        let open = |path: PathBuf| Ok((path.clone(), Known::open(&path, args.shared.allow_truncated)?));
        Ok(Self::Compare(inputs.into_keys().map(open).collect::<Result<_, Failure>>()?))
    }

    fn complete(&self, BudgetSet { budgets, baseline }: &BudgetSet, input: &str) -> Result<Budgets, Failure> {
        let (Self::Compare(known), Some(path)) = (self, baseline) else { return Ok(budgets.clone()) };
        let baseline = known.get(path).and_then(|known| known.for_input(input));
        let baseline = baseline.or_else(|| (budgets.tolerance == Tolerance::Any).then(EarlierRun::default));
        let Some(baseline) = baseline else {
            let path = path.display();
            return Err(Failure::Message(format!("{path}: expected a baseline for {input}, found none")));
        };
        Ok(Budgets { baseline: Some(baseline), ..budgets.clone() })
    }

    /// Writes the baselines anew, if requested.
    fn update(&self, inputs: &[CheckedInput], shared: &SharedArgs) -> Result<(), Failure> {
        let Self::Update(files) = self else { return Ok(()) };
        baselines::update(files.iter().map(|(path, indexes)| {
            (path.as_path(), indexes.iter().filter_map(|&index| inputs.get(index).cloned()).collect())
        }))?;
        files.keys().try_for_each(|path| Ok(output::report_written(shared, path)?))
    }
}
