//! What is rehearsed: the typed options, or else those in `[rehearse]` of `memviz.toml`, which a repository can contain.

use super::Rehearse;
use crate::cli::Failure;
use crate::cli::categories::CONFIG;
use crate::model::bytes::Bytes;
use serde::Deserialize;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

/// The GPU if neither names one.
const GPU: &str = "h100-80gb";
const OUTPUT: &str = "memory.pickle";
/// File name extensions of compressed files. Recordings are not compressed, so other programs could not read them by these names.
const COMPRESSED: [&str; 3] = [".gz", ".zst", ".zip"];

/// A command, the GPU that it is rehearsed on, and the path of the recording.
pub struct Settings {
    pub command: Vec<OsString>,
    pub output: PathBuf,
    /// In the form that the Python package accepts.
    pub options: serde_json::Value,
}

/// The part of the file about rehearsals.
#[derive(Default, Deserialize)]
struct File {
    #[serde(default)]
    rehearse: Table,
}

/// `[rehearse]`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    gpu: Option<String>,
    memory: Option<String>,
    steps: Option<u32>,
    time_limit: Option<u32>,
    output: Option<PathBuf>,
    command: Vec<String>,
}

impl Settings {
    /// The typed options, and those of the file for options that were not typed. Fails if the file cannot be read, no
    /// command is named, or the recording would have the name of a compressed file.
    pub fn of(typed: &Rehearse) -> Result<Self, Failure> {
        let table = read()?;
        let committed = || table.command.into_iter().map(OsString::from).collect();
        let command = if typed.command.is_empty() { committed() } else { typed.command.clone() };
        if command.is_empty() {
            let wanted = format!("a command after --, or one in [rehearse] of {CONFIG}");
            return Err(Failure::Message(format!("expected {wanted}, found neither")));
        }
        let memory = table.memory.map(|text| Bytes::of_capacity(&text).map_err(wrong)).transpose()?;
        let gpu = typed.gpu.as_deref().or(table.gpu.as_deref()).unwrap_or(GPU);
        let options = typed.options(
            gpu,
            typed.memory.or(memory),
            typed.steps.or(table.steps),
            typed.time_limit.or(table.time_limit),
        );
        let output = typed.output.clone().or(table.output).unwrap_or_else(|| PathBuf::from(OUTPUT));
        if COMPRESSED.iter().any(|end| output.to_string_lossy().ends_with(end)) {
            return Err(Failure::Message(format!(
                "expected the name of an uncompressed file, found {}",
                output.display()
            )));
        }
        Ok(Self { command, output, options })
    }
}

fn read() -> Result<Table, Failure> {
    let text = match fs::read_to_string(CONFIG) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Table::default()),
        Err(error) => return Err(wrong(error)),
    };
    let file: File = toml::from_str(&text).map_err(|error| wrong(error.message().replace('\n', ", ")))?;
    Ok(file.rehearse)
}

fn wrong(error: impl std::fmt::Display) -> Failure {
    Failure::Message(format!("{CONFIG}: {error}"))
}
