//! `--include` and `--exclude`: which stacks count.

use super::sites::Origin;
use crate::error::{Error, Result};
use crate::model::{Frame, Snapshot, StackId};
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

    /// Whether an allocation passes, by its stack and the forward stack that was inferred for it. The empty stack passes
    /// unless something must be included.
    pub fn passes(&self, snapshot: &Snapshot, origin: Origin) -> bool {
        let stacks = [Some(origin.stack), origin.forward].into_iter().flatten();
        let frames: Vec<String> = stacks.flat_map(|stack| frame_texts(snapshot, stack)).collect();
        let any = |set: &RegexSet| frames.iter().any(|frame| set.is_match(frame));
        self.include.as_ref().is_none_or(any) && !self.exclude.as_ref().is_some_and(any)
    }
}

/// Frames of a stack as expressions see them: `path/file.py:line function`.
pub(super) fn frame_texts(snapshot: &Snapshot, stack: StackId) -> Vec<String> {
    let strings = &snapshot.strings;
    let text = |frame: &Frame| format!("{}:{} {}", strings.get(frame.filename), frame.line, strings.get(frame.name));
    snapshot.stacks.frames(stack).map(text).collect()
}
