//! What `memviz check` checks: from options and `memviz.toml` to inputs with their budgets.
//!
//! Options apply to every input, an entry of the file to the inputs that it names. If both set the same limit, the option
//! counts.

use super::args::Check;
use crate::analysis::check::budget::Ceiling;
use crate::analysis::check::config::{self, Entry};
use crate::analysis::check::{Budgets, Tolerance};
use crate::cli::files::read_text;
use crate::cli::outcome::Failure;
use crate::input::paths::{matching, no_file};
use indexmap::IndexMap;
use std::path::{Path, PathBuf};

/// The file that is used if it is in the working directory.
const CONFIG: &str = "memviz.toml";
/// The longest configuration file that is read, in bytes.
const LONGEST_CONFIG: u64 = 1 << 20;

/// An input and its budgets.
#[derive(Debug)]
pub struct Job {
    pub input: PathBuf,
    /// Why it cannot be read, if that is known.
    pub problem: Option<String>,
    /// Its budgets: those of the command line, and those of each entry.
    pub budgets: Vec<BudgetSet>,
}

/// Budgets whose baseline was not read yet.
#[derive(Clone, Debug)]
pub struct BudgetSet {
    pub budgets: Budgets,
    /// The file that is their baseline.
    pub baseline: Option<PathBuf>,
}

impl BudgetSet {
    fn is_empty(&self) -> bool {
        self.budgets.is_empty() && self.baseline.is_none()
    }
}

/// Every input with its budgets, in the order in which they are named.
/// Fails if there is nothing to check, or an input has no budget.
pub fn plan(args: &Check) -> Result<Vec<Job>, Failure> {
    let flags = flags(args)?;
    let file = File::find(args)?;
    let flags = BudgetSet { budgets: flags, baseline: args.baseline.clone() };
    let own = || Some(flags.clone()).filter(|flags| !flags.is_empty());
    let jobs: Vec<Job> = if args.inputs.is_empty() {
        let Some(file) = &file else {
            return Err(Failure::Message(format!("expected an INPUT, or a {CONFIG} that names inputs; found neither")));
        };
        let jobs = file.inputs()?.into_iter();
        jobs.map(|(input, entries)| {
            let budgets = own().into_iter().chain(replaced(entries, args)).collect();
            Job { budgets, problem: no_file(&input), input }
        })
        .collect()
    } else {
        let job = |input: &PathBuf| {
            let entries = file.as_ref().map(|file| file.entries_for(input)).transpose()?.unwrap_or_default();
            Ok(Job {
                input: input.clone(),
                problem: None,
                budgets: own().into_iter().chain(replaced(entries, args)).collect(),
            })
        };
        args.inputs.iter().map(job).collect::<Result<_, Failure>>()?
    };
    // Growth that is only shown is no budget where a file has budgets.
    let is_shown = flags.budgets.is_empty() && flags.baseline.is_some() && args.tolerance == Some(Tolerance::Any);
    let no_budgets = usize::from(is_shown && file.as_ref().is_some_and(|file| !file.entries.is_empty()));
    for Job { input, budgets, .. } in &jobs {
        if budgets.len() <= no_budgets {
            let input = input.display();
            let wanted = "a flag such as --max-peak 40GiB, or a memviz.toml entry that names this recording";
            return Err(Failure::Message(format!("{input}: expected a budget: {wanted}; found none")));
        }
    }
    let has_baseline = jobs.iter().flat_map(|job| &job.budgets).any(|set| set.baseline.is_some());
    let asks = [(args.tolerance.is_some(), "--tolerance"), (args.update_baseline, "--update-baseline")];
    match asks.into_iter().find(|(asked, _)| *asked && !has_baseline) {
        Some((_, flag)) => Err(Failure::Message(format!("expected --baseline FILE with {flag}, found none"))),
        None => Ok(jobs),
    }
}

/// The budgets of the command line, without the baseline.
fn flags(args: &Check) -> Result<Budgets, Failure> {
    let bytes = |flag: &str, ceiling: Option<Ceiling>| {
        let bytes = ceiling.map(|ceiling| ceiling.bytes(args.capacity)).transpose();
        bytes.map_err(|error| Failure::Message(format!("{flag} {error}")))
    };
    Ok(Budgets {
        name: None,
        devices: args.shared.devices(),
        max_peak: bytes("--max-peak", args.max_peak)?,
        max_reserved: bytes("--max-reserved", args.max_reserved)?,
        max_fragmentation: args.max_fragmentation,
        max_leak: args.max_leak.map(|size| size.0),
        max_sites: args.max_site.clone(),
        max_residues: args.max_residue.clone(),
        steps: args.steps.clone(),
        baseline: None,
        tolerance: args.tolerance.unwrap_or_default(),
        accept_late_start: args.accept_late_start,
        require_counters: args.require_counters,
    })
}

/// Entries of the file, without limits that options replace. Entries without any limit left are dropped.
fn replaced(entries: Vec<BudgetSet>, args: &Check) -> Vec<BudgetSet> {
    let without_flags = |BudgetSet { mut budgets, baseline }: BudgetSet| {
        if !args.shared.device.is_empty() {
            budgets.devices = args.shared.devices();
        }
        budgets.max_peak = budgets.max_peak.filter(|_| args.max_peak.is_none());
        budgets.max_reserved = budgets.max_reserved.filter(|_| args.max_reserved.is_none());
        budgets.max_fragmentation = budgets.max_fragmentation.filter(|_| args.max_fragmentation.is_none());
        budgets.max_leak = budgets.max_leak.filter(|_| args.max_leak.is_none());
        if !args.max_site.is_empty() {
            budgets.max_sites.clear();
        }
        if !args.max_residue.is_empty() {
            budgets.max_residues.clear();
        }
        budgets.steps = args.steps.clone().or(budgets.steps);
        budgets.accept_late_start |= args.accept_late_start;
        budgets.require_counters |= args.require_counters;
        // What is only shown replaces no budget.
        if args.tolerance == Some(Tolerance::Any) {
            return BudgetSet { budgets, baseline };
        }
        budgets.tolerance = args.tolerance.unwrap_or(budgets.tolerance);
        BudgetSet { budgets, baseline: baseline.filter(|_| args.baseline.is_none()) }
    };
    entries.into_iter().map(without_flags).filter(|set| !set.is_empty()).collect()
}

/// A `memviz.toml`.
struct File {
    path: PathBuf,
    entries: Vec<Entry>,
}

impl File {
    /// The requested file, or the one in the working directory, if there is one.
    fn find(args: &Check) -> Result<Option<Self>, Failure> {
        let path = match &args.config {
            Some(path) => path.clone(),
            // A broken link was meant to be a configuration file.
            None if Path::new(CONFIG).symlink_metadata().is_ok() => PathBuf::from(CONFIG),
            None => return Ok(None),
        };
        let shown = path.display();
        let text = read_text(&path, LONGEST_CONFIG).map_err(|error| Failure::Message(format!("{shown}: {error}")))?;
        let entries =
            config::read(&text, args.capacity).map_err(|error| Failure::Message(format!("{shown}: {error}")))?;
        Ok(Some(Self { path, entries }))
    }

    /// Every input that it names, each with its entries.
    fn inputs(&self) -> Result<IndexMap<PathBuf, Vec<BudgetSet>>, Failure> {
        if self.entries.is_empty() {
            let path = self.path.display();
            return Err(Failure::Message(format!("{path}: expected at least one [[budget]], found none")));
        }
        let mut inputs: IndexMap<PathBuf, Vec<_>> = IndexMap::new();
        for entry in &self.entries {
            let matching = self.matching(entry)?;
            if matching.is_empty() {
                let (path, input) = (self.path.display(), &entry.input);
                return Err(Failure::Message(format!("{path}: expected files that match {input:?}, found none")));
            }
            for input in matching {
                inputs.entry(input).or_default().push(self.budgets(entry));
            }
        }
        Ok(inputs)
    }

    /// The entries that name an input. Paths are equal if they refer to the same file.
    fn entries_for(&self, input: &Path) -> Result<Vec<BudgetSet>, Failure> {
        let Ok(input) = input.canonicalize() else { return Ok(Vec::new()) };
        let mut entries = Vec::new();
        for entry in &self.entries {
            let matching = self.matching(entry)?;
            if matching.iter().any(|path| path.canonicalize().is_ok_and(|path| path == input)) {
                entries.push(self.budgets(entry));
            }
        }
        Ok(entries)
    }

    fn budgets(&self, entry: &Entry) -> BudgetSet {
        let baseline = entry.baseline.as_ref().map(|baseline| self.folder().join(baseline));
        BudgetSet { budgets: entry.budgets.clone(), baseline }
    }

    /// The files that an entry names, sorted.
    fn matching(&self, entry: &Entry) -> Result<Vec<PathBuf>, Failure> {
        matching(self.folder(), &entry.input)
            .map_err(|error| Failure::Message(format!("{}: input {:?}: {error}", self.path.display(), entry.input)))
    }

    /// The folder that its paths are relative to.
    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}
