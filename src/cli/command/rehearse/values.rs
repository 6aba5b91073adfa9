//! Rehearses a command with a placeholder for several values: what is the largest that fits?

use super::answer;
use super::program::{Rehearsed, nothing_recorded};
use super::settings::Settings;
use crate::cli::recording::read_quietly;
use crate::cli::{Failure, Outcome};
use crate::model::HOST_DEVICE;
use crate::model::bytes::Bytes;
use crate::model::rehearsal::Rehearsal;
use crate::replay::Metric;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// No program has a higher value; if it still fits, the program does not depend on the value.
const MOST: u64 = 1 << 32;

/// What varies, and its values.
#[derive(Clone, Debug)]
pub struct Vary {
    name: String,
    values: Vec<u64>,
}

impl FromStr for Vary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("expected a name and two or three values, such as batch=4,8, found {text:?}");
        let (name, values) = text.split_once('=').ok_or_else(bad)?;
        let values: Result<Vec<u64>, _> = values.split(',').map(|value| value.trim().parse()).collect();
        match (name.trim(), values) {
            (name, Ok(values)) if !name.is_empty() && (2..=3).contains(&values.len()) => {
                Ok(Self { name: name.to_owned(), values })
            }
            _ => Err(bad()),
        }
    }
}

/// What increases, and its first value.
#[derive(Clone, Debug)]
pub struct Largest {
    name: String,
    first: u64,
}

impl FromStr for Largest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, first) = text.split_once('=').unwrap_or((text, "1"));
        match (name.trim(), first.trim().parse()) {
            (name, Ok(first)) if !name.is_empty() && (1..=MOST).contains(&first) => {
                Ok(Self { name: name.to_owned(), first })
            }
            _ => Err(format!("expected a name and a first value, such as batch or batch=8, found {text:?}")),
        }
    }
}

/// Rehearses the command with each value, and runs `fit` to predict the largest that fits.
pub fn predict_largest(settings: &Settings, vary: &Vary) -> Result<Outcome, Failure> {
    let mut files = Vec::new();
    for &value in &vary.values {
        let rehearsed = with(settings, "--vary", &vary.name, value)?;
        if !rehearsed.succeeded {
            let wanted = "a prediction needs values that fit";
            return Err(Failure::Message(format!("with {}={value} the command failed; {wanted}", vary.name)));
        }
        let file = rehearsed.whole().ok_or_else(|| nothing_recorded(rehearsed.succeeded))?;
        files.push(file.to_owned());
    }
    let values: Vec<String> = vary.values.iter().map(u64::to_string).collect();
    let mut words = vec!["fit".to_owned(), format!("--vary={}={}", vary.name, values.join(","))];
    let device = files.first().and_then(|file| rehearsal(file)).filter(|rehearsal| rehearsal.memory > 0);
    if let Some(Rehearsal { memory, context, .. }) = device {
        words.push(format!("--capacity={memory}B"));
        words.push(format!("--context={context}B"));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(answer(&words, files.iter().map(|file| file.as_os_str())))
}

/// Rehearses the command, doubling the value until it does not fit, and then with values in between.
pub fn try_largest(settings: &Settings, largest: &Largest) -> Result<Outcome, Failure> {
    let name = &largest.name;
    let (mut fits, mut fails) = (None, None);
    let mut value = largest.first;
    loop {
        let rehearsed = with(settings, "--largest", name, value)?;
        say(&format!("{name} {value:>8}  {}", outcome(&rehearsed, name, value)?))?;
        if rehearsed.failed_request().is_none() {
            fits = Some((value, rehearsed.whole().map(Path::to_owned)));
        } else {
            fails = Some(value);
        }
        let largest_fit = fits.as_ref().map_or(0, |(value, _)| *value);
        value = match fails {
            Some(fails) if fails - largest_fit <= 1 => break,
            Some(fails) => largest_fit.midpoint(fails),
            None if value >= MOST => break,
            None => value * 2,
        };
    }
    match (fits, fails) {
        (Some((value, file)), Some(fails)) => {
            say(&format!("{name} {value} is the largest that fits: {fails} does not"))?;
            Ok(file.map_or(Outcome::Done, |file| answer(&["triage"], [file.as_os_str()])))
        }
        (Some((value, _)), None) => Err(Failure::Message(format!(
            "{name}={value} still fits: the memory of the command does not seem to depend on {name}"
        ))),
        (None, _) => {
            say(&format!("no value of {name} fits: even {name}=1 does not"))?;
            Ok(Outcome::CheckFailed)
        }
    }
}

/// Rehearses the command with a value for its placeholder.
fn with(settings: &Settings, flag: &str, name: &str, value: u64) -> Result<Rehearsed, Failure> {
    let hole = format!("{{{name}}}");
    if !settings.command.iter().any(|word| word.to_string_lossy().contains(&hole)) {
        return Err(Failure::Message(format!("{flag}: expected {hole} in the command, found none")));
    }
    let fill =
        |word: &OsString| word.to_str().map_or(word.clone(), |text| text.replace(&hole, &value.to_string()).into());
    let command: Vec<OsString> = settings.command.iter().map(fill).collect();
    settings.rehearse(&command, &beside(&settings.output, &format!("{name}{value}")))
}

/// Prints a line immediately.
fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// The result for a value, in words.
fn outcome(rehearsed: &Rehearsed, name: &str, value: u64) -> Result<String, Failure> {
    if let Some(file) = rehearsed.failed_request() {
        return Ok(format!("does not fit; see memviz oom {}", file.display()));
    }
    let file = rehearsed.whole().ok_or_else(|| nothing_recorded(rehearsed.succeeded))?;
    if !rehearsed.succeeded {
        return Err(Failure::Message(format!(
            "with {name}={value} the command failed, but not because it ran out of memory"
        )));
    }
    let recording = read_quietly(file, false).map_err(|error| Failure::about(&file.to_string_lossy(), &error))?;
    let devices = || recording.histories.iter().filter(|history| history.device != HOST_DEVICE);
    let most = |metric: Metric| devices().map(|history| history.maxima[metric as usize].bytes).max().unwrap_or(0);
    let shown = |metric| Bytes(u64::try_from(most(metric)).unwrap_or(0));
    Ok(format!("fits: {} allocated, {} reserved", shown(Metric::Allocated), shown(Metric::Reserved)))
}

/// `run.pickle` with a word added: `run_batch4.pickle`.
fn beside(path: &Path, word: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or_else(|| "pickle".into(), OsStr::to_string_lossy);
    path.with_file_name(format!("{stem}_{word}.{extension}"))
}

/// What a recording says about its rehearsal.
fn rehearsal(file: &Path) -> Option<Rehearsal> {
    read_quietly(file, false).ok()?.snapshot.notes.rehearsal
}
