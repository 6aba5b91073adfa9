//! Baselines of `memviz check`: read before the check, written after it.

use crate::analysis::check::{CheckVerdict, EarlierRun};
use crate::cli::files::{Staged, read_text, replace_all};
use crate::cli::outcome::Failure;
use crate::cli::recording::read_quietly;
use crate::error::Error;
use crate::facts::doubts::Doubt;
use crate::report::Answer;
use crate::report::check::words::{CheckedInput, doubt};
use crate::wire::answers::{SavedAnswer, read_answers};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: u64 = 1 << 30;

/// The contents of a baseline file.
#[derive(Debug)]
pub enum Known {
    Recording(EarlierRun),
    /// Earlier answers.
    Answers(Vec<SavedAnswer>),
}

impl Known {
    /// Reads a baseline.
    /// Fails if it is neither a recording nor an answer.
    pub fn open(path: &Path, allow_truncated: bool) -> Result<Self, Failure> {
        let about = |error: &Error| Failure::about(&path.display().to_string(), error);
        if is_answer(path).map_err(|error| about(&error.into()))? {
            let text = read_text(path, LONGEST_ANSWER).map_err(|error| about(&error.into()))?;
            return read_answers(&text).map(Self::Answers).map_err(|error| about(&error));
        }
        let recording = read_quietly(path, allow_truncated).map_err(|error| about(&error))?;
        let baseline = EarlierRun::of(&recording.devices()).map_err(|error| about(&error))?;
        Ok(Self::Recording(baseline))
    }

    /// The baseline of an input: the only answer, or the answer about an input with the same path.
    pub fn for_input(&self, path: &str) -> Option<EarlierRun> {
        match self {
            Self::Recording(baseline) => Some(baseline.clone()),
            Self::Answers(answers) => match &answers[..] {
                [answer] => Some(EarlierRun::of_answer(answer)),
                answers => answers.iter().find(|answer| answer.path == path).map(EarlierRun::of_answer),
            },
        }
    }
}

/// Whether a file is meant to be an answer of memviz: a JSON object that starts like every answer.
fn is_answer(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(256).read_to_end(&mut head)?;
    let head = String::from_utf8_lossy(&head);
    Ok(head.trim_start().starts_with('{') && head.contains("\"schema_version\""))
}

/// Refuses to replace a file that is not an answer of memviz, such as a recording.
/// Fails if the file is not an answer.
pub fn check_replaceable(path: &Path) -> Result<(), Failure> {
    if path.symlink_metadata().is_err() || is_answer(path).unwrap_or(false) {
        return Ok(());
    }
    let shown = path.display();
    Err(Failure::Message(format!(
        "{shown}: expected output of memviz check, found something else; memviz does not overwrite other files"
    )))
}

/// Writes each measurement to a temporary file, and then replaces all baselines or none.
/// Fails if something could not be measured, or a file cannot be written.
pub fn update<'p>(files: impl IntoIterator<Item = (&'p Path, Vec<CheckedInput>)>) -> Result<(), Failure> {
    let about = |path: &Path, error: &dyn Display| Failure::Message(format!("{}: {error}", path.display()));
    let mut staged = Vec::new();
    for (path, inputs) in files {
        for input in &inputs {
            if let Some(reason) = not_measured(input) {
                return Err(about(path, &format!("not written: {}: {reason}", input.path)));
            }
        }
        let written = Staged::write(path, |out| inputs.json((), out));
        staged.push(written.map_err(|error| about(path, &error))?);
    }
    replace_all(staged).map_err(|(path, error)| about(&path, &error))
}

/// Why an input cannot be a baseline.
fn not_measured(input: &CheckedInput) -> Option<String> {
    let report = match &input.answer {
        Err(reason) => return Some(reason.clone()),
        Ok((_, report)) if report.devices.is_empty() => return Some("it has no data on any device".to_owned()),
        Ok((_, report)) => report,
    };
    let figures = report.devices.iter().flat_map(|device| [&device.allocated, &device.reserved]);
    let inexact = figures.filter(|figure| figure.doubt != Some(Doubt::NoReserved)).filter_map(|it| it.doubt.as_ref());
    let unknown = report.checks.iter().filter(|check| check.verdict == CheckVerdict::Unknown);
    inexact.chain(unknown.filter_map(|check| check.doubt.as_ref())).next().map(doubt)
}
