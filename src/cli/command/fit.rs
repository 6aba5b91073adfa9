//! `memviz fit`.

use super::{Run, examples};
use crate::Recording;
use crate::analysis::fit::{FitInput, FitOptions, FitPlans, FitReport, plans_beside, ran_out};
use crate::cli::args::{CommonArgs, SharedArgs, one_input};
use crate::cli::changes::ChangeArgs;
use crate::cli::device_memory::{DeviceMemoryArgs, TOTAL};
use crate::cli::format::RowsOrPicture;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::progress::Progress;
use crate::cli::recording::{open, use_threads};
use crate::facts::device::Devices;
use crate::input::alloc_conf::{Rest, parse, rest_of};
use crate::model::DeviceFile;
use crate::model::bytes::Bytes;
use crate::parallel;
use crate::report::{Source, fit};
use crate::simulation::plans::PlanOptions;
use clap::Args;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Find what makes a program fit on a device, or the largest batch that fits
///
/// From one recording, memviz finds the allocator settings or changes to the program that make it fit, easiest first. From two or
/// three recordings that differ in one number, such as the batch size or the sequence length, it predicts the memory that other
/// values need: it aligns the requests of the recordings, extrapolates them and simulates the result. `-o NAME.svg` draws the
/// peak against that number.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz fit batch4.pickle batch8.pickle --capacity 24GiB", "the largest batch"),
    ("memviz fit snapshot.pickle --gpu h100-80gb", "what makes it fit there"),
]))]
pub struct Fit {
    /// One snapshot, 2 or 3 that differ in one number, or an OOM and a run that finished
    #[arg(value_name = "INPUT", required = true, value_parser = one_input())]
    inputs: Vec<PathBuf>,
    /// The number that differs, and its values, such as batch=4,8
    ///
    /// The default is the number that differs between the paths.
    #[arg(long, value_name = "NAME=N,N")]
    vary: Option<Vary>,
    /// A value to predict memory for, such as batch=16 or 16; may be repeated
    #[arg(long, value_name = "NAME=N")]
    at: Vec<At>,
    /// Find how many inference requests of N cached tokens fit (2-3 recordings)
    ///
    /// The recordings must be of inference with a cache that grows with every token, and must differ in the number of requests.
    #[arg(long, value_name = "N", conflicts_with = "at")]
    tokens: Option<u64>,
    #[command(flatten)]
    memory: DeviceMemoryArgs,
    /// Memory that CUDA itself uses [default: from an oom entry, else 500MiB]
    #[arg(long, value_name = "SIZE", requires = TOTAL, value_parser = Bytes::of_device)]
    context: Option<Bytes>,
    /// Allocator settings to simulate [default: those recorded]
    ///
    /// The syntax is that of `PYTORCH_CUDA_ALLOC_CONF`.
    #[arg(long, value_name = "CONF")]
    alloc_conf: Option<String>,
    /// Number of lines of code at the peak; the rest are summed into one row
    ///
    /// The default is 10 in text and Markdown, and all in JSON.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// List all plans for a program that ran out of memory, not just the best one
    #[arg(long)]
    all: bool,
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<RowsOrPicture>,
    #[command(flatten)]
    changes: ChangeArgs,
    #[command(flatten)]
    shared: SharedArgs,
}

/// Default number of rows for people; other programs get all.
const DEFAULT_TOP: usize = 10;
/// The name of a number without a name.
const UNNAMED: &str = "size";

/// What varies, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Vary {
    name: String,
    values: Vec<u64>,
}

impl FromStr for Vary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("expected a name and a value for each recording, such as batch=4,8, found {text:?}");
        let (name, values) = text.split_once('=').ok_or_else(bad)?;
        let values: Result<Vec<u64>, _> = values.split(',').map(|value| value.trim().parse()).collect();
        let name = name.trim();
        if name.is_empty() {
            return Err(bad());
        }
        Ok(Self { name: name.to_owned(), values: values.map_err(|_| bad())? })
    }
}

/// A value, with or without its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct At {
    name: Option<String>,
    value: u64,
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (Some(name.trim().to_owned()), value),
            None => (None, text),
        };
        let value = value.trim().parse().ok().filter(|&value| value > 0);
        let value = value.ok_or_else(|| format!("expected a value above 0, such as batch=16, found {text:?}"))?;
        Ok(Self { name, value })
    }
}

impl Run for Fit {
    fn run(&self) -> Result<Outcome, Failure> {
        let shared = &self.shared;
        let format = output::format(shared, self.format)?;
        output::check_target(shared, &self.inputs)?;
        if let Some(conf) = &self.alloc_conf {
            parse(conf, Rest::default()).map_err(|error| Failure::Message(format!("--alloc-conf: {error}")))?;
        }
        if self.tokens.is_some() && !self.changes.changes().is_empty() {
            return Err(Failure::Message("expected --tokens or changes to the program, found both".to_owned()));
        }
        if self.tokens.is_some() && self.memory.total().is_none() {
            return Err(Failure::Message("expected --capacity or --gpu with --tokens, found neither".to_owned()));
        }
        if self.inputs.len() == 1 {
            if self.tokens.is_some() {
                return Err(Failure::Message("expected two or three recordings for --tokens, found 1".to_owned()));
            }
            return if self.vary.is_some() { self.range(format) } else { self.plan(format) };
        }
        if self.inputs.len() > 3 {
            let found = self.inputs.len();
            return Err(Failure::Message(format!("expected one, two or three recordings of a program, found {found}")));
        }
        let may_be_beside = self.inputs.len() == 2 && self.vary.is_none() && self.at.is_empty();
        let vary = match self.vary() {
            Err(failure) if !may_be_beside => return Err(failure),
            vary => vary,
        };
        use_threads(shared);
        let recordings = self.read()?;
        let devices: Vec<_> = recordings.iter().map(Recording::devices).collect();
        if may_be_beside && devices.iter().filter(|devices| ran_out(devices)).count() == 1 {
            return self.plan_beside(&recordings, &devices, format);
        }
        let vary = vary?;
        let inputs: Vec<FitInput<'_>> =
            vary.values.iter().zip(&devices).map(|(&value, devices)| FitInput { value, devices }).collect();
        let rest = recordings.first().map(|recording| rest_of(&recording.snapshot.settings)).unwrap_or_default();
        let mut options = self.fit_options(rest, format);
        options.capacity = options.capacity.or_else(|| traced(&recordings));
        let report =
            FitReport::of(&vary.name, &inputs, &options).map_err(|error| Failure::Message(error.to_string()))?;
        self.write_fit(&report, &recordings, format)
    }
}

impl Fit {
    /// The range in which other values of a single recording are.
    fn range(&self, format: RowsOrPicture) -> Result<Outcome, Failure> {
        let is_picture = matches!(format, RowsOrPicture::Picture(_));
        if is_picture || self.memory.total().is_some() || !self.changes.changes().is_empty() || self.top.is_some() {
            let options = "--capacity, --gpu, --top, changes and pictures";
            return Err(Failure::Message(format!("with --vary, {options} need two or three recordings; found 1")));
        }
        let vary = self.vary()?;
        use_threads(&self.shared);
        let recordings = self.read()?;
        let Some(recording) = recordings.first() else { return Ok(Outcome::Done) };
        let devices = recording.devices();
        let input = FitInput { value: vary.values[0], devices: &devices };
        let rest = rest_of(&recording.snapshot.settings);
        let report = FitReport::of_one(&vary.name, input, &self.fit_options(rest, format));
        let report = report.map_err(|error| Failure::Message(error.to_string()))?;
        self.write_fit(&report, &recordings, format)
    }

    /// What makes a single recording fit the device.
    fn plan(&self, format: RowsOrPicture) -> Result<Outcome, Failure> {
        let format = self.of_plans(format)?;
        use_threads(&self.shared);
        let recordings = self.read()?;
        let Some(recording) = recordings.first() else { return Ok(Outcome::Done) };
        let mut options = self.plan_options();
        // A rehearsal already has a device: another one must be named.
        let rehearsal = recording.snapshot.notes.rehearsal.as_ref();
        if let (None, Some(rehearsal)) = (options.capacity, rehearsal.filter(|rehearsal| rehearsal.memory > 0)) {
            options.capacity = Some(rehearsal.memory);
            options.context = options.context.or(Some(rehearsal.context));
        }
        // So does a recording with samples of the device: memory used by others there is not available.
        let sampled = recording.device_file.as_ref().and_then(DeviceFile::memory);
        if let (None, Some((total, outside))) = (options.capacity, sampled) {
            options.capacity = Some(total);
            options.context = options.context.or(Some(outside));
        }
        options.capacity = options.capacity.or_else(|| traced(&recordings));
        let report = FitPlans::of(&recording.devices(), &options);
        let mut report = report.map_err(|error| Failure::about(&CommonArgs::shown(&self.inputs[0]), &error))?;
        if format.is_for_people() && !self.all {
            report = report.in_brief();
        }
        if let Some(rehearsal) = rehearsal {
            let lacks = rehearsal.lacks(self.memory.is_elsewhere(rehearsal));
            report
                .plans
                .devices
                .iter_mut()
                .filter(|device| device.lacks.is_empty())
                .for_each(|device| device.lacks = lacks);
        }
        self.write_plans(&report, &recordings, format)
    }

    /// What makes a program fit the device on which one of two recorded runs ran out of memory.
    fn plan_beside(
        &self,
        recordings: &[Recording],
        devices: &[Devices<'_>],
        format: RowsOrPicture,
    ) -> Result<Outcome, Failure> {
        let format = self.of_plans(format)?;
        let [one, other] = devices else { return Ok(Outcome::Done) };
        let (failed, other) = if ran_out(one) { (one, other) } else { (other, one) };
        let report = plans_beside(failed, other, &self.plan_options());
        let report = report.map_err(|error| Failure::Message(error.to_string()))?;
        self.write_plans(&FitPlans::without_fixes(report), recordings, format)
    }

    /// The format of plans; options that plans do not have are errors.
    fn of_plans(&self, format: RowsOrPicture) -> Result<RowsOrPicture, Failure> {
        let of_several = [
            (self.vary.is_some(), "--vary"),
            (!self.at.is_empty(), "--at"),
            (self.alloc_conf.is_some(), "--alloc-conf"),
            (self.top.is_some(), "--top"),
            (!self.changes.changes().is_empty(), "changes to the program (for one recording, use memviz simulate)"),
        ];
        let wanted = of_several.iter().find(|(is_wanted, _)| *is_wanted).map(|(_, what)| *what);
        match wanted {
            None => Ok(format),
            Some(what) => Err(Failure::Message(match self.inputs.len() {
                1 => format!("expected two or three recordings for {what}, found 1"),
                _ => format!("expected recordings that finish for {what}, found one that ran out of memory"),
            })),
        }
    }

    fn fit_options(&self, rest: Rest, format: RowsOrPicture) -> FitOptions {
        FitOptions {
            changes: self.changes.changes(),
            at: self.at.iter().map(|at| at.value).collect(),
            capacity: self.memory.total(),
            context: self.context.map(|context| context.0),
            threads: self.memory.threads(),
            settings: self.alloc_conf.as_ref().and_then(|conf| parse(conf, rest).ok()),
            tokens: self.tokens,
            devices: self.shared.devices(),
            top: self.top.or_else(|| format.is_for_people().then_some(DEFAULT_TOP)),
            ..FitOptions::default()
        }
    }

    fn plan_options(&self) -> PlanOptions {
        PlanOptions {
            capacity: self.memory.total(),
            context: self.context.map(|context| context.0),
            devices: self.shared.devices(),
        }
    }

    fn write_plans(
        &self,
        report: &FitPlans,
        recordings: &[Recording],
        format: RowsOrPicture,
    ) -> Result<Outcome, Failure> {
        let paths = self.paths();
        let sources = sources(&paths, recordings);
        match format {
            RowsOrPicture::Rows(format) => {
                let style = output::style(&self.shared);
                output::write(&self.shared, |out| format.write(report, &sources, style, out))?;
            }
            RowsOrPicture::Picture(format) => {
                output::write(&self.shared, |out| fit::single::draw(&sources, report).write_as(format, out))?;
            }
        }
        Ok(self.outcome(recordings))
    }

    fn write_fit(
        &self,
        report: &FitReport,
        recordings: &[Recording],
        format: RowsOrPicture,
    ) -> Result<Outcome, Failure> {
        let shared = &self.shared;
        let paths = self.paths();
        let sources = sources(&paths, recordings);
        match format {
            RowsOrPicture::Rows(format) => {
                let style = output::style(shared);
                output::write(shared, |out| format.write(report, &sources, style, out))?;
            }
            RowsOrPicture::Picture(format) => {
                output::write(shared, |out| fit::draw(&sources, report).write_as(format, out))?;
            }
        }
        Ok(self.outcome(recordings))
    }

    /// The inputs as messages name them.
    fn paths(&self) -> Vec<String> {
        self.inputs.iter().map(|path| CommonArgs::shown(path)).collect()
    }

    fn outcome(&self, recordings: &[Recording]) -> Outcome {
        let contradicts = recordings.iter().any(|recording| recording.anomalies() > 0);
        if self.shared.strict && contradicts { Outcome::CheckFailed } else { Outcome::Done }
    }

    /// What varies: as typed, or from the names of the inputs.
    fn vary(&self) -> Result<Vary, Failure> {
        let vary = match &self.vary {
            Some(vary) => vary.clone(),
            None => from_names(&self.inputs).ok_or_else(|| {
                if self.inputs.iter().all(|input| *input == self.inputs[0]) {
                    let same = CommonArgs::shown(&self.inputs[0]);
                    return Failure::Message(format!("expected recordings that differ, found {same} more than once"));
                }
                let expected = "expected --vary NAME=N,N, or file names that differ in one number only, such as \
                                run_batch4.pickle and run_batch8.pickle";
                Failure::Message(expected.to_owned())
            })?,
        };
        if vary.values.len() != self.inputs.len() {
            let (values, inputs) = (vary.values.len(), self.inputs.len());
            return Err(Failure::Message(format!(
                "--vary: expected a value for each recording, {inputs} in total; found {values}"
            )));
        }
        let named = self.at.iter().find_map(|at| at.name.clone()).filter(|_| self.vary.is_none());
        let vary = Vary { name: named.unwrap_or(vary.name), ..vary };
        let other = self.at.iter().filter_map(|at| at.name.as_deref()).find(|&name| name != vary.name);
        match other {
            Some(other) => Err(Failure::Message(format!("--at: expected {}=N, found {other}", vary.name))),
            None => Ok(vary),
        }
    }

    fn read(&self) -> Result<Vec<Recording>, Failure> {
        let shared = &self.shared;
        if self.inputs.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(Failure::Message("expected at most one input from standard input, found several".to_owned()));
        }
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        // One counter for each input: its value becomes the file size in the answer.
        let progress = Progress::start(self.inputs.iter().map(size).sum(), self.inputs.len(), shared.quiet);
        let read = |(index, path): (usize, &PathBuf)| {
            let recording = open(path, shared, shared.view(), progress.bytes.get(index));
            recording.map_err(|error| Failure::about(&CommonArgs::shown(path), &error))
        };
        parallel::map(self.inputs.iter().enumerate(), read).into_iter().collect()
    }
}

/// The recordings with the names of their files.
fn sources<'a>(paths: &'a [String], recordings: &'a [Recording]) -> Vec<Source<'a>> {
    paths.iter().zip(recordings).map(|(path, recording)| Source { path, recording }).collect()
}

/// A name in parts: text, and the numbers in it.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_number = first.is_ascii_digit();
        let end = rest.find(|next: char| next.is_ascii_digit() != is_number).unwrap_or(rest.len());
        let (piece, behind) = rest.split_at(end);
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// The number in which otherwise equal names differ, and the word before it.
fn from_names(paths: &[impl AsRef<Path>]) -> Option<Vary> {
    let names: Vec<String> = paths.iter().map(|path| path.as_ref().display().to_string()).collect();
    let all: Vec<Vec<&str>> = names.iter().map(|name| pieces(name)).collect();
    let first = all.first()?;
    if all.iter().any(|pieces| pieces.len() != first.len()) {
        return None;
    }
    let differ: Vec<usize> = (0..first.len()).filter(|&at| all.iter().any(|pieces| pieces[at] != first[at])).collect();
    let [at] = differ[..] else { return None };
    let values = all.iter().map(|pieces| pieces[at].parse().ok()).collect::<Option<Vec<u64>>>()?;
    let word = at.checked_sub(1).map_or("", |before| first[before]);
    let word = word.trim_end_matches(|next: char| !next.is_alphabetic());
    let word = word.rsplit(|next: char| !next.is_alphabetic()).next().filter(|word| !word.is_empty());
    Some(Vary { name: word.unwrap_or(UNNAMED).to_owned(), values })
}

/// The memory of the device, if the traces of all recordings contain it and agree.
fn traced(recordings: &[Recording]) -> Option<u64> {
    let of = |recording: &Recording| {
        let known = &recording.snapshot.notes.device_memory;
        let (_, first) = known.first()?;
        known.iter().all(|(_, memory)| memory == first).then_some(*first)
    };
    let first = of(recordings.first()?)?;
    recordings.iter().all(|recording| of(recording) == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_varies() {
        let vary = |paths: &[&str]| from_names(paths).map(|vary| (vary.name, vary.values));
        assert_eq!(vary(&["run_batch4.pickle", "run_batch16.pickle"]), Some(("batch".to_owned(), vec![4, 16])));
        assert_eq!(
            vary(&["a/seq_128/s.gz", "a/seq_256/s.gz", "a/seq_512/s.gz"]),
            Some(("seq".to_owned(), vec![128, 256, 512]))
        );
        assert_eq!(vary(&["2024/4.pickle", "2024/8.pickle"]), Some(("size".to_owned(), vec![4, 8])));
        assert_eq!(vary(&["a4_b1.pickle", "a8_b2.pickle"]), None, "two numbers");
        assert_eq!(vary(&["a.pickle", "b.pickle"]), None, "no number");
    }

    #[test]
    fn values_are_read_as_people_type_them() {
        assert_eq!("batch=4,8".parse(), Ok(Vary { name: "batch".to_owned(), values: vec![4, 8] }));
        assert!(
            "batch".parse::<Vary>().is_err() && "=4,8".parse::<Vary>().is_err() && "a=4,x".parse::<Vary>().is_err()
        );
        assert_eq!("batch=16".parse(), Ok(At { name: Some("batch".to_owned()), value: 16 }));
        assert_eq!("16".parse(), Ok(At { name: None, value: 16 }));
        assert!("0".parse::<At>().is_err());
    }
}
