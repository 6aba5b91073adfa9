//! `memviz rehearse`.

use super::{Run, examples};
use crate::cli::recording::read_quietly;
use crate::cli::{Failure, Outcome};
use crate::model::bytes::Bytes;
use clap::{Args, ValueEnum};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// Run a program of PyTorch on a GPU that is not there, and record its memory
///
/// PyTorch's CUDA build runs over a stand-in for CUDA: its own allocator serves every request, kernels do nothing, and every value
/// read from the device is 0. Linux; the Python of the command needs torch-memviz and a CUDA build of PyTorch.
#[derive(Debug, Args)]
#[command(after_help = examples(&[
    ("memviz rehearse --gpu a100-40gb -- python train.py", "its memory on an A100"),
    ("memviz rehearse --steps 3 --vary batch=4,8 -- python train.py --batch {batch}", "and the largest batch"),
]))]
pub struct Rehearse {
    /// Kind of GPU, or the beginning of its name: --list has them
    #[arg(long, value_name = "NAME", default_value = "h100-80gb")]
    gpu: String,
    /// Memory of the device, as PyTorch's messages name its total [default: that of the GPU]
    #[arg(long, value_name = "SIZE", value_parser = Bytes::of_device)]
    memory: Option<Bytes>,
    /// What CUDA keeps of it
    #[arg(long, value_name = "SIZE", default_value = "500MiB", value_parser = Bytes::of_device)]
    context: Bytes,
    /// Number of devices
    #[arg(long, value_name = "N", default_value_t = 1)]
    gpus: u32,
    /// Be the first of so many ranks of a distributed program, alone
    #[arg(long, value_name = "N", default_value_t = 1)]
    ranks: u32,
    /// End the program after so many steps of an optimizer
    #[arg(long, value_name = "N")]
    steps: Option<u32>,
    /// End the program after so many seconds
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u32>,
    /// End the program when a line has read so many values of the device: it may wait for one that is not 0; 0 for any number
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    most_reads: u32,
    /// Whose driver places segments
    #[arg(long, value_enum, default_value_t = Placement::Linux)]
    placement: Placement,
    /// Rehearse on a machine with a GPU, which is not used
    #[arg(long)]
    despite_gpu: bool,
    /// Run the command once for each value, {NAME} in it being the value, and hand the recordings to fit
    #[arg(long, value_name = "NAME=N,N")]
    vary: Option<Vary>,
    /// The recording
    #[arg(long, short, value_name = "FILE", default_value = "memory.pickle")]
    output: PathBuf,
    /// List the GPUs
    #[arg(long)]
    list: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "list")]
    command: Vec<OsString>,
}

/// Drivers that place segments in different ways.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Placement {
    /// The driver of Linux
    Linux,
    /// That of Windows, and of Linux under it
    Windows,
}

/// What varies, and its values.
#[derive(Clone, Debug)]
struct Vary {
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

/// What a rehearsed command left behind.
struct Rehearsed {
    files: Vec<PathBuf>,
    succeeded: bool,
}

impl Run for Rehearse {
    fn run(&self) -> Result<Outcome, Failure> {
        if self.list {
            return self.list_gpus();
        }
        match &self.vary {
            Some(vary) => self.run_each(vary),
            None => self.run_once(),
        }
    }
}

impl Rehearse {
    fn run_once(&self) -> Result<Outcome, Failure> {
        let rehearsed = self.rehearse(&self.command, &self.output)?;
        let answer = match &by_importance(&rehearsed.files)[..] {
            [] => return Err(nothing_recorded(rehearsed.succeeded)),
            [first, others @ ..] if others.iter().all(|other| rank(other).is_none()) => {
                answer(&["triage".as_ref(), first])
            }
            files => {
                let words: Vec<&OsStr> = std::iter::once(OsStr::new("ranks")).chain(files.iter().copied()).collect();
                answer(&words)
            }
        };
        Ok(match (answer, rehearsed.succeeded) {
            (Outcome::Done, false) => Outcome::CheckFailed,
            (answer, _) => answer,
        })
    }

    /// Rehearses the command with each value, and asks what the largest value is.
    fn run_each(&self, vary: &Vary) -> Result<Outcome, Failure> {
        let hole = format!("{{{}}}", vary.name);
        if !self.command.iter().any(|word| word.to_string_lossy().contains(&hole)) {
            return Err(Failure::Message(format!("--vary: expected {hole} in the command, found none")));
        }
        let mut files = Vec::new();
        for value in &vary.values {
            let fill = |word: &OsString| {
                word.to_str().map_or(word.clone(), |text| text.replace(&hole, &value.to_string()).into())
            };
            let command: Vec<OsString> = self.command.iter().map(fill).collect();
            let output = beside(&self.output, &format!("{}{value}", vary.name));
            let rehearsed = self.rehearse(&command, &output)?;
            let found = rehearsed.files.into_iter().find(|file| is_whole(file));
            let file = found.ok_or_else(|| nothing_recorded(rehearsed.succeeded))?;
            if !rehearsed.succeeded {
                let message = format!(
                    "with {}={value} the command failed: expected values that fit, for a prediction",
                    vary.name
                );
                return Err(Failure::Message(message));
            }
            files.push(file);
        }
        let values: Vec<String> = vary.values.iter().map(u64::to_string).collect();
        let vary = OsString::from(format!("--vary={}={}", vary.name, values.join(",")));
        let mut words: Vec<OsString> = vec!["fit".into(), vary];
        if let Some((memory, context)) = files.first().and_then(|file| device_of(file)) {
            words.push(format!("--capacity={memory}B").into());
            words.push(format!("--context={context}B").into());
        }
        words.extend(files.into_iter().map(PathBuf::into_os_string));
        Ok(answer(&words.iter().map(OsString::as_os_str).collect::<Vec<_>>()))
    }

    /// Runs a command to its end.
    fn rehearse(&self, command: &[OsString], output: &Path) -> Result<Rehearsed, Failure> {
        let Some(program) = command.first() else {
            return Err(Failure::Message("expected a command, found none".to_owned()));
        };
        let list = env::temp_dir().join(format!("memviz-rehearsal-{}.txt", std::process::id()));
        // One that is there is not ours, and a link may lead anywhere.
        fs::OpenOptions::new().write(true).create_new(true).open(&list)?;
        let succeeded = self.start(&interpreter(program), command, output, &list);
        let files = fs::read_to_string(&list);
        fs::remove_file(&list)?;
        let files = files?.lines().map(PathBuf::from).filter(|file| file.is_file()).collect();
        Ok(Rehearsed { files, succeeded: succeeded? })
    }

    /// Has Python prepare the rehearsal and become the command; gives whether that succeeded.
    fn start(&self, python: &OsStr, command: &[OsString], output: &Path, list: &Path) -> Result<bool, Failure> {
        let options = self.options(output, list).to_string();
        let helper = || {
            let mut helper = Command::new(python);
            helper.args(["-m", "torch_memviz._rehearsal", &options]);
            helper
        };
        let shown = python.to_string_lossy();
        let failed = |error: io::Error| Failure::Message(format!("{shown}: {error}"));
        // Without a command it only says whether it could.
        let tried = helper().output().map_err(failed)?;
        if !tried.status.success() {
            let said = String::from_utf8_lossy(&tried.stderr);
            let reason = said.lines().last().unwrap_or_default();
            return Err(Failure::Message(if reason.contains("No module named") {
                format!(
                    "expected torch-memviz in the environment of {shown}, found none: {shown} -m pip install torch-memviz"
                )
            } else {
                reason.trim_start_matches("memviz: ").to_owned()
            }));
        }
        Ok(helper().args(command).status().map_err(failed)?.success())
    }

    /// Has Python list the GPUs.
    fn list_gpus(&self) -> Result<Outcome, Failure> {
        let python = self.command.first().map_or_else(|| "python3".into(), |program| interpreter(program));
        let options = serde_json::json!({ "list": true }).to_string();
        let status = Command::new(&python).args(["-m", "torch_memviz._rehearsal", &options]).status();
        let status = status.map_err(|error| Failure::Message(format!("{}: {error}", python.to_string_lossy())))?;
        Ok(if status.success() { Outcome::Done } else { Outcome::Failed })
    }

    fn options(&self, output: &Path, list: &Path) -> serde_json::Value {
        serde_json::json!({
            "path": output,
            "gpu": self.gpu,
            "memory": self.memory.map(|memory| memory.0),
            "context": self.context.0,
            "gpus": self.gpus,
            "ranks": self.ranks,
            "steps": self.steps,
            "time_limit": self.time_limit,
            "most_reads": self.most_reads,
            "placement": self.placement.to_possible_value().map(|value| value.get_name().to_owned()),
            "despite_gpu": self.despite_gpu,
            "files": list,
        })
    }
}

/// The Python that a command is run by: the command itself, or the one beside it, as scripts of an environment are installed.
fn interpreter(program: &OsStr) -> OsString {
    let is_python = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let path = Path::new(program);
    if is_python(path) {
        return program.to_owned();
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let named = |folder: PathBuf| folder.join(path);
    let found = if path.components().count() > 1 {
        Some(path.to_owned())
    } else {
        env::split_paths(&folders).map(named).find(|path| path.is_file())
    };
    let beside = found.and_then(|path| Some(path.parent()?.join("python3"))).filter(|python| python.is_file());
    beside.map_or_else(|| "python3".into(), PathBuf::into_os_string)
}

/// Recordings with what went wrong first.
fn by_importance(files: &[PathBuf]) -> Vec<&OsStr> {
    let mut files: Vec<&OsStr> = files.iter().map(|file| file.as_os_str()).collect();
    files.sort_by_key(|file| !file.to_string_lossy().contains("_oom_attempt"));
    files
}

/// The rank in the name of a recording.
fn rank(file: &OsStr) -> Option<u64> {
    let name = file.to_string_lossy();
    let digits: String = name.rsplit_once("_rank")?.1.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Whether it is the recording of all that happened.
fn is_whole(file: &Path) -> bool {
    let name = file.to_string_lossy();
    !name.contains("_oom_attempt") && !name.contains("_signal_attempt")
}

/// `run.pickle` with a word: `run_batch4.pickle`.
fn beside(path: &Path, word: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or_else(|| "pickle".into(), OsStr::to_string_lossy);
    path.with_file_name(format!("{stem}_{word}.{extension}"))
}

/// Memory of the rehearsed device, and what CUDA keeps of it.
fn device_of(file: &Path) -> Option<(u64, u64)> {
    let rehearsal = read_quietly(file, false).ok()?.snapshot.notes.rehearsal?;
    (rehearsal.memory > 0).then_some((rehearsal.memory, rehearsal.context))
}

fn nothing_recorded(succeeded: bool) -> Failure {
    let end = if succeeded { "" } else { ", and failed" };
    Failure::Message(format!("the command used no device{end}: nothing was recorded"))
}

/// Answers as the command line does.
fn answer(words: &[&OsStr]) -> Outcome {
    let words = std::iter::once(OsStr::new("memviz")).chain(words.iter().copied());
    crate::cli::run(words.map(OsStr::to_owned))
}
