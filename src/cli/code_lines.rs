//! The lines of source code that a recording names, read from the recording if it contains them, or from files on this machine.
//!
//! They are shown on a terminal, or with `--source`: a file with an answer may be passed on, and must not contain source
//! code.

use super::args::{COMMON, SharedArgs};
use crate::analysis::advice::Advice;
use crate::model::Snapshot;
use clap::Args;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Component, Path, PathBuf};

/// Larger files are not read: nobody writes them by hand.
pub const LARGEST: u64 = 4 << 20;

/// Where the source code is.
#[derive(Debug, Args)]
#[command(next_help_heading = COMMON)]
pub struct SourceArgs {
    /// Show lines of code, from this folder or the recording [default: on a terminal, from the recording or its paths]
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
}

impl SourceArgs {
    /// Adds the text of its line to each change whose file is found.
    pub fn fill<'a>(&self, args: &SharedArgs, snapshot: &Snapshot, advice: impl Iterator<Item = &'a mut Advice>) {
        for line in advice.filter_map(|advice| advice.line.as_mut()) {
            line.text = self.text(args, snapshot, &line.file, line.line);
        }
    }

    /// The text of a line, if it may be shown and is found.
    pub fn text(&self, args: &SharedArgs, snapshot: &Snapshot, path: &str, number: u64) -> Option<String> {
        let to_terminal = args.output.is_none() && io::stdout().is_terminal();
        if self.source.is_none() && !to_terminal {
            return None;
        }
        let file = self.source.as_ref().and_then(|folder| below(folder, Path::new(path)));
        if let Some(file) = file {
            return read(&file).and_then(|text| nth_line(&text, number));
        }
        let mut recorded = snapshot.notes.source_code.iter();
        if let Some(recorded) = recorded.find(|file| snapshot.strings.get(file.path) == path) {
            return nth_line(snapshot.strings.get(recorded.text), number);
        }
        let path = Path::new(path);
        let text = if self.source.is_none() && path.is_absolute() { read(path) } else { None };
        nth_line(&text?, number)
    }
}

/// The file in a folder whose path shares the longest end with `path`.
fn below(folder: &Path, path: &Path) -> Option<PathBuf> {
    // Recordings from Windows have paths that are a single component on other systems.
    let path = path.to_string_lossy().replace('\\', "/");
    let parts: Vec<Component<'_>> = Path::new(&path).components().collect();
    let is_plain = |part: &&Component<'_>| matches!(part, Component::Normal(_));
    let plain = parts.iter().rev().take_while(is_plain).count();
    let ends = (parts.len() - plain..parts.len()).map(|from| folder.join(parts[from..].iter().collect::<PathBuf>()));
    ends.into_iter().find(|file| file.is_file())
}

/// The text of a Python file.
fn read(file: &Path) -> Option<String> {
    let is_python = file.extension().is_some_and(|extension| extension == "py");
    let is_small = fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= LARGEST);
    (is_python && is_small).then(|| fs::read_to_string(file).ok()).flatten()
}

/// A line without surrounding whitespace.
fn nth_line(text: &str, number: u64) -> Option<String> {
    let line = text.lines().nth(usize::try_from(number.checked_sub(1)?).ok()?)?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}
