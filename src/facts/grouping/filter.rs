//! `--include` and `--exclude`: which stacks count.

use crate::error::{Error, Result};
use crate::facts::code::sites::{CodeOrigin, clipped};
use crate::model::{Frame, FrameId, Snapshot, StackId};
use regex::RegexSet;

/// Regular expressions over stacks.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    include: Option<RegexSet>,
    exclude: Option<RegexSet>,
}

impl Filter {
    /// A filter that keeps stacks with a frame that matches any of `include` (all, when empty) and none with a frame
    /// that matches any of `exclude`. Frames are matched as `path/file.py:line function`.
    ///
    /// # Errors
    /// When an expression is malformed.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self> {
        let compile = |patterns: &[String]| {
            if patterns.is_empty() {
                return Ok(None);
            }
            let one_line =
                |error: &regex::Error| error.to_string().lines().last().unwrap_or_default().trim().to_owned();
            RegexSet::new(patterns)
                .map(Some)
                .map_err(|error| Error::Request(format!("expected a regular expression: {}", one_line(&error))))
        };
        Ok(Self { include: compile(include)?, exclude: compile(exclude)? })
    }

    /// Whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.include.is_none() && self.exclude.is_none()
    }

    /// Whether a text by itself has something that is to be included.
    pub fn includes(&self, text: &str) -> bool {
        self.include.as_ref().is_none_or(|set| set.is_match(text))
    }

    /// The filter's answers about every stack of a recording, worked out frame by frame: one frame stands on many stacks,
    /// and one stack behind many blocks.
    pub(crate) fn over(&self, snapshot: &Snapshot) -> Passing {
        let stacks =
            |set: &Option<RegexSet>| set.as_ref().map(|set| matching_stacks(snapshot, |text| set.is_match(text)));
        Passing { include: stacks(&self.include), exclude: stacks(&self.exclude) }
    }
}

/// Which stacks of a recording pass a filter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passing {
    /// Whether a stack has a frame that is to be included, by number; `None` where all are.
    include: Option<Vec<bool>>,
    /// Whether it has one that is to be excluded.
    exclude: Option<Vec<bool>>,
}

impl Passing {
    /// Whether an allocation passes, by its stack and the forward stack that was inferred for it. The empty stack passes
    /// unless something must be included.
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

/// A frame as expressions see it: `path/file.py:line function`. Of names that are too long to be shown, they see what is.
fn frame_text(snapshot: &Snapshot, frame: &Frame) -> String {
    let text = |id| clipped(snapshot.strings.get(id));
    format!("{}:{} {}", text(frame.filename), frame.line, text(frame.name))
}
