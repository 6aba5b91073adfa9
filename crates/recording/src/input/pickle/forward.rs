//! `forward_frames`: lines of a Python traceback, as `traceback.format_stack` writes them, outermost first.

use super::value::{Heap, Items, Value};
use crate::model::{Frame, FrameId, StackId, Stacks, StrId, Strings, traceback};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Reads lists of such lines.
#[derive(Debug, Default)]
pub struct ForwardFrames {
    /// The frame of each line that was read, if the line names one.
    frames: HashMap<StrId, Option<FrameId>, RandomState>,
    /// The stack of each list that was read, by its place on the heap and its length, since lists only grow.
    known: HashMap<(u32, usize), StackId, RandomState>,
    /// Lines that memviz could not parse and left out.
    pub unread: u64,
}

impl ForwardFrames {
    /// The stack of a `forward_frames` value, innermost frame first.
    pub fn stack(&mut self, heap: &Heap, strings: &mut Strings, stacks: &mut Stacks, value: Value) -> StackId {
        let (index, items) = match value {
            Value::None | Value::Stack(StackId::EMPTY) => return StackId::EMPTY,
            Value::List(index) => match heap.lists.get(index as usize) {
                Some(Items::Values(items)) => (index, items),
                _ => return self.nothing(),
            },
            _ => return self.nothing(),
        };
        if let Some(&stack) = self.known.get(&(index, items.len())) {
            return stack;
        }
        let mut frames = Vec::with_capacity(items.len());
        for &item in items.iter().rev() {
            let Value::Str(line) = item else {
                self.unread += 1;
                continue;
            };
            let found = if let Some(&known) = self.frames.get(&line) {
                known
            } else {
                let frame = read_frame(strings, stacks, line);
                self.frames.insert(line, frame);
                frame
            };
            match found {
                Some(frame) => frames.push(frame),
                None if says_nothing(strings.get(line)) => {}
                None => self.unread += 1,
            }
        }
        let stack = stacks.intern_stack(&frames);
        self.known.insert((index, items.len()), stack);
        stack
    }

    /// The result for a value that is not a list of lines.
    fn nothing(&mut self) -> StackId {
        self.unread += 1;
        StackId::EMPTY
    }
}

/// The frame that a line names. A line of code may follow it in the same text.
fn read_frame(strings: &mut Strings, stacks: &mut Stacks, text: StrId) -> Option<FrameId> {
    let text = strings.get(text).to_owned();
    let (file, line, name) = traceback::location(text.lines().next()?)?;
    let (filename, name) = (strings.intern(file), strings.intern(name));
    Some(stacks.intern_frame(Frame { filename, name, line, fx: None }))
}

/// Whether a line is one that tracebacks contain besides frames: a header, or the note that the previous line was repeated.
fn says_nothing(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || text.starts_with("Traceback") || text.starts_with("[Previous line repeated ")
}
