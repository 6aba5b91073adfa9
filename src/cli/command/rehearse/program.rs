//! Runs a program in a rehearsal, and finds its recordings.

use super::settings::Settings;
use crate::cli::Failure;
use crate::sorting::SortRows;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names tried for the list of recordings.
const NAMES: u32 = 100;

/// The result of a rehearsed program.
pub struct Rehearsed {
    /// Recordings.
    pub files: Vec<PathBuf>,
    /// Whether it ended successfully.
    pub succeeded: bool,
}

impl Rehearsed {
    /// The recording of the whole run.
    pub fn whole(&self) -> Option<&Path> {
        let is_part = |name: &str| name.contains("_oom_attempt") || name.contains("_signal_attempt");
        self.files.iter().find(|file| !is_part(&file.to_string_lossy())).map(PathBuf::as_path)
    }

    /// The recording of the first request that failed.
    pub fn failed_request(&self) -> Option<&Path> {
        self.files.iter().find(|file| is_failure(file.as_os_str())).map(PathBuf::as_path)
    }
}

/// Creates the file to which the program's process writes the names of its recordings.
fn new_list() -> io::Result<PathBuf> {
    let path = |number: u32| env::temp_dir().join(format!("memviz-rehearsal-{}-{number}.txt", std::process::id()));
    // An existing file is not ours, and a link may lead anywhere: one may remain from an earlier process with this ID.
    let create = |path: PathBuf| fs::OpenOptions::new().write(true).create_new(true).open(&path).map(|_| path);
    let exists = |made: &io::Result<PathBuf>| made.as_ref().is_err_and(|it| it.kind() == io::ErrorKind::AlreadyExists);
    (0..NAMES).map(|number| create(path(number))).find(|made| !exists(made)).unwrap_or_else(|| create(path(NAMES)))
}

impl Settings {
    /// Runs a command to its end.
    pub fn rehearse(&self, command: &[OsString], output: &Path) -> Result<Rehearsed, Failure> {
        let Some(program) = command.first() else {
            return Err(Failure::Message("expected a command, found none".to_owned()));
        };
        let python = interpreter(program)
            .ok_or_else(|| Failure::Message(format!("command not found: {}", program.to_string_lossy())))?;
        let list = new_list()?;
        let succeeded = self.start(&python, command, output, &list);
        let files = fs::read_to_string(&list);
        fs::remove_file(&list)?;
        let files = files?.lines().map(PathBuf::from).filter(|file| file.is_file()).collect();
        Ok(Rehearsed { files, succeeded: succeeded? })
    }

    /// Starts Python, which prepares the rehearsal and becomes the command. Returns whether that succeeded.
    fn start(&self, python: &OsStr, command: &[OsString], output: &Path, list: &Path) -> Result<bool, Failure> {
        let mut options = self.options.clone();
        options["path"] = output.to_string_lossy().into();
        options["files"] = list.to_string_lossy().into();
        let options = options.to_string();
        let helper = || {
            let mut helper = Command::new(python);
            helper.args(["-m", "torch_memviz._rehearsal", &options]);
            helper
        };
        let shown = python.to_string_lossy();
        let failed = |error: io::Error| Failure::Message(format!("{shown}: {error}"));
        // Without a command, it only reports whether it could start one.
        let tried = helper().output().map_err(failed)?;
        if !tried.status.success() {
            return Err(not_started(python, &tried.stderr));
        }
        Ok(helper().args(command).status().map_err(failed)?.success())
    }
}

/// The error if Python cannot prepare a rehearsal, from what it wrote to standard error.
fn not_started(python: &OsStr, stderr: &[u8]) -> Failure {
    let shown = python.to_string_lossy();
    let said = String::from_utf8_lossy(stderr);
    let reason = said.lines().last().unwrap_or_default();
    Failure::Message(if reason.contains("No module named") && reason.contains("torch_memviz") {
        format!(
            "torch-memviz is not installed in the environment of {shown}; in a clone of memviz, run {shown} -m pip install ./python"
        )
    } else {
        reason.trim_start_matches("memviz: ").to_owned()
    })
}

/// Recordings, those of failures first.
pub fn by_importance(files: &[PathBuf]) -> Vec<&OsStr> {
    let mut files: Vec<&OsStr> = files.iter().map(|file| file.as_os_str()).collect();
    files.sort_rows_by_key(|file| !is_failure(file));
    files
}

/// The rank in the name of a recording.
pub fn rank(file: &OsStr) -> Option<u64> {
    let name = file.to_string_lossy();
    let digits: String = name.rsplit_once("_rank")?.1.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The error if nothing was recorded.
pub fn nothing_recorded(succeeded: bool) -> Failure {
    let end = if succeeded { "" } else { ", and failed" };
    Failure::Message(format!("the command used no device{end}: nothing was recorded"))
}

/// Whether a recording is of a failed request.
fn is_failure(file: &OsStr) -> bool {
    file.to_string_lossy().contains("_oom_attempt")
}

/// The Python that runs a command: the command itself, or the one next to it, where scripts of an environment are installed.
/// `None` if there is no such command.
fn interpreter(program: &OsStr) -> Option<OsString> {
    let is_python = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let path = Path::new(program);
    if is_python(path) {
        return Some(program.to_owned());
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let named = |folder: PathBuf| folder.join(path);
    let found = if path.components().count() > 1 {
        path.is_file().then(|| path.to_owned())
    } else {
        env::split_paths(&folders).map(named).find(|path| path.is_file())
    };
    let beside = found?.parent().map(|folder| folder.join("python3")).filter(|python| python.is_file());
    Some(beside.map_or_else(|| "python3".into(), PathBuf::into_os_string))
}
