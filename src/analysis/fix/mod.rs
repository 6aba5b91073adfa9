//! Fixes as changes to the source code, where its text shows that they can be made.
//!
//! A fix is written only if the recorded line has exactly the expected form; otherwise the report says what was expected and what was
//! found. Nothing is applied.

mod curves;
mod expressions;
mod python;
mod rewrite;

pub use curves::FixedDevice;

use super::advice::{Advice, CodeLine, Rewrite, RuleKind, Saving, Simulate, changes};
use crate::error::{Error, Result};
use crate::facts::device::Devices;
use crate::model::DeviceId;
use crate::parallel;
use crate::sorting::SortRows;
use python::{Code, first_line};
use std::collections::HashSet;
use std::ops::Range;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct FixOptions {
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
        /// The fix wanted; `None` for all.
        pub only: Option<Only>,
    }
}

/// One fix of the list, or all fixes of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Its number, counted from 1.
    Number(usize),
    Rule(RuleKind),
}

/// A file of source code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path below the folder, with `/`.
    pub path: String,
    pub text: String,
}

/// Reads the file of a recorded path, or says in a line why it does not.
pub type ReadSource<'r> = &'r dyn Fn(&str) -> std::result::Result<SourceFile, String>;

#[derive(Clone, Debug, Default)]
pub struct FixReport {
    /// In the order of the advice, device by device.
    pub fixes: Vec<ProposedFix>,
    /// The files that the written fixes change, with all of these changes.
    pub files: Vec<ChangedFile>,
}

#[derive(Clone, Debug)]
pub struct ProposedFix {
    /// Its number in the list, counted from 1.
    pub number: usize,
    pub device: DeviceId,
    pub advice: Advice,
    /// How it was written, or why it was not.
    pub written: std::result::Result<Written, String>,
}

impl ProposedFix {
    /// The change of the diff; that of the advice if the fix was not written.
    pub fn change(&self) -> &str {
        self.written.as_ref().map_or(&self.advice.change, |written| &written.change)
    }

    /// What this change saves.
    pub fn saving(&self) -> &Saving {
        self.written.as_ref().map_or(&self.advice.saving, |written| &written.saving)
    }
}

/// A fix that the changes contain.
#[derive(Clone, Debug)]
pub struct Written {
    /// The path below the folder.
    pub path: String,
    /// What was changed: that of the advice, or of an alternative if only that could be written.
    pub change: String,
    pub saving: Saving,
}

#[derive(Clone, Debug)]
pub struct ChangedFile {
    pub file: SourceFile,
    /// In order, without overlaps.
    pub changes: Vec<LineChange>,
}

/// Lines that are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineChange {
    /// Their places, counted from 0; empty where lines are inserted before one.
    pub lines: Range<usize>,
    /// The lines instead, each with its end.
    pub new: String,
    /// The number of the fix.
    fix: usize,
}

/// Bytes of a file that are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    range: Range<usize>,
    text: String,
}

impl FixReport {
    /// # Errors
    /// If a device is missing, or if there is no fix with the number or of the mistake.
    pub fn of(recording: &Devices<'_>, options: &FixOptions, read: ReadSource<'_>) -> Result<Self> {
        let wanted = recording.wanted(&options.devices)?;
        let advice = parallel::map(&wanted, |device| (device.id(), changes(device, Simulate::All).advice));
        // Several devices may run the same program.
        let mut told = HashSet::new();
        let all =
            advice.into_iter().flat_map(|(device, advice)| advice.into_iter().map(move |advice| (device, advice)));
        let all =
            all.filter(|(_, advice)| told.insert((advice.kind, advice.line.as_ref().map(|line| line.label.clone()))));
        let mut all: Vec<(usize, (DeviceId, Advice))> = (1..).zip(all).collect();
        let number = all.len();
        all.retain(|(number, (_, advice))| match options.only {
            None => true,
            Some(Only::Number(only)) => *number == only,
            Some(Only::Rule(kind)) => advice.kind == kind,
        });
        if all.is_empty()
            && let Some(only) = options.only
        {
            return Err(Error::Request(match only {
                Only::Number(only) => format!("expected the number of a fix, at most {number}, found {only}"),
                Only::Rule(kind) => format!("expected a fix of {}, found none among {number}", kind.name()),
            }));
        }
        let mut report = Self::default();
        for (number, (device, advice)) in all {
            let written = report.write(number, &advice, read);
            report.fixes.push(ProposedFix { number, device, advice, written });
        }
        report.files.retain(|file| !file.changes.is_empty());
        for file in &mut report.files {
            file.changes.sort_rows_by_key(|change| (change.lines.start, change.lines.end));
        }
        Ok(report)
    }

    /// Adds the changes of a fix, or of the first alternative for which this is possible.
    fn write(&mut self, number: usize, advice: &Advice, read: ReadSource<'_>) -> std::result::Result<Written, String> {
        let own = (&advice.change, &advice.saving, advice.rewrite.as_ref());
        let others = advice.alternatives.iter().map(|other| (&other.change, &other.saving, other.rewrite.as_ref()));
        let mut ways = std::iter::once(own)
            .chain(others)
            .filter_map(|(change, saving, rewrite)| Some((change, saving, rewrite?)))
            .peekable();
        if ways.peek().is_none() {
            return Err(by_hand(advice).to_owned());
        }
        let line = advice.line.as_ref().ok_or("expected a line of code, found none in the recording")?;
        let file = read(&line.file)?;
        // The file might have changed since another fix was written.
        let known = self.files.iter().find(|known| known.file.path == file.path);
        let file = known.map_or(file, |known| known.file.clone());
        let mut refused = None;
        for (change, saving, rewrite) in ways {
            let changes = changes_of(&file, line, rewrite, number).and_then(|changes| self.add(&file, changes));
            match changes {
                Ok(()) => return Ok(Written { path: file.path, change: change.clone(), saving: saving.clone() }),
                Err(because) => refused = refused.or(Some(because)),
            }
        }
        Err(refused.unwrap_or_default())
    }

    fn add(&mut self, file: &SourceFile, changes: Vec<LineChange>) -> std::result::Result<(), String> {
        let place = self.files.iter().position(|known| known.file.path == file.path).unwrap_or_else(|| {
            self.files.push(ChangedFile { file: file.clone(), changes: Vec::new() });
            self.files.len() - 1
        });
        let known = &mut self.files[place].changes;
        let overlaps = |a: &LineChange, b: &LineChange| a.lines.start < b.lines.end && b.lines.start < a.lines.end;
        let other = known.iter().find(|known| changes.iter().any(|change| overlaps(known, change)));
        if let Some(other) = other {
            return Err(format!(
                "expected other lines than those of fix {}, found the same; apply that, and record again",
                other.fix
            ));
        }
        known.extend(changes);
        Ok(())
    }
}

/// Why a fix has no edit, and what to do instead.
fn by_hand(advice: &Advice) -> &'static str {
    match advice.kind {
        RuleKind::FragmentationVarlen => "set it in the environment of the program: it is not part of the source code",
        _ if advice.code.is_empty() => "make it by hand: what to edit depends on more of the program than this line",
        _ => {
            "make it by hand, with the lines of code below: where they go depends on more of the program than this line"
        }
    }
}

/// The changes of a fix, if the recorded line matches the source.
fn changes_of(
    file: &SourceFile,
    line: &CodeLine,
    rewrite: &Rewrite,
    fix: usize,
) -> std::result::Result<Vec<LineChange>, String> {
    let code = Code::of(&file.text)?;
    let at = code.at_line(line.line).ok_or("expected a statement, found none: the source may have changed since")?;
    let function = code.function(at);
    if function != line.function {
        return Err(format!("expected a line of {}, found one of {function}", first_line(&line.function)));
    }
    let edits = rewrite::edits(&code, at, rewrite)?;
    Ok(edits.into_iter().map(|edit| line_change(&file.text, &edit, fix)).collect())
}

/// An edit as whole lines.
fn line_change(text: &str, edit: &Edit, fix: usize) -> LineChange {
    let Edit { range, text: new } = edit;
    let start = text[..range.start].rfind('\n').map_or(0, |at| at + 1);
    let is_inside = range.end > start && !text[..range.end].ends_with('\n') || !new.is_empty() && !new.ends_with('\n');
    let end =
        if is_inside { text[range.end..].find('\n').map_or(text.len(), |at| range.end + at + 1) } else { range.end };
    let number = |end: usize| text[..end].matches('\n').count();
    let last = number(end) + usize::from(end > start && !text[..end].ends_with('\n'));
    let new = format!("{}{new}{}", &text[start..range.start], &text[range.end..end]);
    LineChange { lines: number(start)..last, new, fix }
}

#[cfg(test)]
mod tests;
