//! The lines of source code that a recording names, read from files on this machine.
//!
//! They are shown on a terminal, or with `--source`: a file with an answer may be passed on, and must not contain source
//! code.

use super::args::{COMMON, SharedArgs};
use crate::analysis::advice::Advice;
use clap::Args;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Component, Path, PathBuf};

/// Larger files are not read: nobody writes them by hand.
const LARGEST: u64 = 4 << 20;

/// Where the source code is.
#[derive(Debug, Args)]
#[command(next_help_heading = COMMON)]
pub struct SourceArgs {
    /// Show the lines of code to change, read from this folder [default: on a terminal, from the recorded paths]
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
}

impl SourceArgs {
    /// Adds the text of its line to each change whose file is found.
    pub fn fill<'a>(&self, args: &SharedArgs, advice: impl Iterator<Item = &'a mut Advice>) {
        let to_terminal = args.output.is_none() && io::stdout().is_terminal();
        if self.source.is_none() && !to_terminal {
            return;
        }
        for line in advice.filter_map(|advice| advice.line.as_mut()) {
            let path = Path::new(&line.file);
            let file = match &self.source {
                Some(folder) => below(folder, path),
                None => Some(path.to_owned()).filter(|path| path.is_absolute()),
            };
            line.text = file.and_then(|file| nth_line(&file, line.line));
        }
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

/// A line of a Python file, without surrounding whitespace.
fn nth_line(file: &Path, number: u64) -> Option<String> {
    let is_python = file.extension().is_some_and(|extension| extension == "py");
    let is_small = fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= LARGEST);
    let text = (is_python && is_small).then(|| fs::read_to_string(file).ok()).flatten()?;
    let line = text.lines().nth(usize::try_from(number.checked_sub(1)?).ok()?)?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}
