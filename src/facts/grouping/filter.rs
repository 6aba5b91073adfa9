//! `--include` and `--exclude`: which stacks count.

use crate::error::{Error, Result};
use crate::facts::code::sites::{CodeOrigin, clipped};
use crate::model::{Frame, FrameId, Snapshot, StackId};
use regex_lite::Regex;

/// Regular expressions over stacks.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    include: Vec<Regex>,
    exclude: Vec<Regex>,
}

impl Filter {
    /// A filter that keeps stacks with a frame that matches any of `include` (all stacks if it is empty), and drops stacks
    /// with a frame that matches any of `exclude`. Frames are matched as `path/file.py:line function`.
    ///
    /// # Errors
    /// If an expression is malformed.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self> {
        let compile = |patterns: &[String]| -> Result<Vec<Regex>> {
            let compiled = patterns.iter().map(|pattern| Regex::new(pattern)).collect::<std::result::Result<_, _>>();
            compiled.map_err(|error| Error::Request(format!("expected a regular expression: {error}")))
        };
        Ok(Self { include: compile(include)?, exclude: compile(exclude)? })
    }

    /// Whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether a text matches any of the expressions to include.
    pub fn includes(&self, text: &str) -> bool {
        self.include.is_empty() || matches_any(&self.include, text)
    }

    /// The result of the filter for every stack of a recording, computed frame by frame: a frame is on many stacks, and many
    /// blocks share a stack.
    pub(crate) fn over(&self, snapshot: &Snapshot) -> Passing {
        let stacks = |patterns: &[Regex]| {
            (!patterns.is_empty()).then(|| matching_stacks(snapshot, |text| matches_any(patterns, text)))
        };
        Passing { include: stacks(&self.include), exclude: stacks(&self.exclude) }
    }
}

fn matches_any(patterns: &[Regex], text: &str) -> bool {
    patterns.iter().any(|pattern| pattern.is_match(text))
}

/// Which stacks of a recording pass a filter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passing {
    /// By number, whether a stack has a frame to include; `None` if all are included.
    include: Option<Vec<bool>>,
    /// By number, whether a stack has a frame to exclude.
    exclude: Option<Vec<bool>>,
}

impl Passing {
    /// Whether an allocation passes, by its stack and the forward stack inferred for it. The empty stack passes unless
    /// `include` is set.
    pub fn passes(&self, origin: CodeOrigin) -> bool {
        let matches = |stacks: &Vec<bool>| {
            let stack = |stack: StackId| stacks.get(stack.index()).copied().unwrap_or(false);
            stack(origin.stack) || origin.forward.is_some_and(stack)
        };
        self.include.as_ref().is_none_or(matches) && !self.exclude.as_ref().is_some_and(matches)
    }
}

/// Which stacks have a frame whose text matches, by the stack's number.
pub(crate) fn matching_stacks(snapshot: &Snapshot, matches: impl Fn(&str) -> bool) -> Vec<bool> {
    let frames = (0..snapshot.stacks.frame_count() as u32).map(|id| snapshot.stacks.frame(FrameId(id)));
    let frames: Vec<bool> =
        frames.map(|frame| frame.is_some_and(|frame| matches(&frame_text(snapshot, frame)))).collect();
    let any = |stack| snapshot.stacks.frame_ids(StackId(stack)).iter().any(|id| frames.get(id.index()) == Some(&true));
    (0..snapshot.stacks.len() as u32).map(any).collect()
}

/// A frame as the text that expressions match: `path/file.py:line function`. If a name is too long to be shown, only its
/// shown part is matched.
fn frame_text(snapshot: &Snapshot, frame: &Frame) -> String {
    let text = |id| clipped(snapshot.strings.get(id));
    format!("{}:{} {}", text(frame.filename), frame.line, text(frame.name))
}
