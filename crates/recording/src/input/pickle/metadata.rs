//! `user_metadata` that is not a string: PyTorch accepts dictionaries and any other JSON value, and writes them unchanged or
//! as JSON text. Here they become JSON text, spaced as by Python's `json.dumps`.

use super::value::{DictBody, Heap, Items, Value};
use crate::error::{Error, Result};
use crate::model::{FrameId, StackId, Stacks, StrId, Strings};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::fmt::Write;

/// The deepest nesting of containers that is shown; [`MORE`] replaces deeper ones.
const DEEPEST: usize = 16;
/// The longest text in bytes; a longer one is cut and ends with [`MORE`].
const LONGEST: usize = 4096;
const MORE: char = '…';
/// New texts may take this many bytes for each byte of the file up to that point, plus a constant. A pickle can refer to the
/// same object many times; without this limit, a small file could use any amount of memory.
const BYTES_PER_BYTE: u64 = 4;
const BYTES_AT_START: u64 = 16 << 20;
/// The cost of a byte of a known text is lower by this factor than that of a new text, since it only takes time.
const KNOWN_DISCOUNT: u64 = 4;

/// Texts of objects.
#[derive(Debug, Default)]
pub struct Metadata {
    /// The text of each container, by its place on the heap and its length, since containers only grow.
    known: HashMap<(Value, usize), StrId, RandomState>,
    spent: u64,
}

/// The tables that objects refer to.
#[derive(Clone, Copy)]
struct Tables<'t> {
    heap: &'t Heap,
    strings: &'t Strings,
    stacks: &'t Stacks,
}

impl Metadata {
    /// The text of a value of an entry at offset `at`; a string is its own text. The text of None and of an empty container
    /// is empty.
    ///
    /// # Errors
    /// If texts take much more memory than the bytes that they come from.
    pub fn text(
        &mut self,
        at: u64,
        heap: &Heap,
        strings: &mut Strings,
        stacks: &Stacks,
        value: Value,
    ) -> Result<StrId> {
        let key = match value {
            Value::Str(text) => return Ok(text),
            Value::None => return Ok(StrId::EMPTY),
            _ => (value, length(heap, value)),
        };
        if key.1 == 0 {
            return Ok(StrId::EMPTY);
        }
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        if self.spent > at.saturating_mul(BYTES_PER_BYTE).saturating_add(BYTES_AT_START) {
            let message = "the \"user_metadata\" strings take more memory than any snapshot needs".to_owned();
            return Err(Error::Limit { at, message });
        }
        let mut text = String::new();
        Tables { heap, strings, stacks }.write(value, 0, &mut text);
        if text.len() > LONGEST {
            text.truncate(beginning(&text).len());
            text.push(MORE);
        }
        let before = strings.len();
        let id = strings.intern(&text);
        let is_new = strings.len() > before;
        self.spent += if is_new { text.len() as u64 } else { text.len() as u64 / KNOWN_DISCOUNT };
        self.known.insert(key, id);
        Ok(id)
    }
}

/// Number of items in a container; 1 for anything else.
fn length(heap: &Heap, value: Value) -> usize {
    match value {
        Value::List(index) | Value::Set(index) => match heap.lists.get(index as usize) {
            Some(Items::Values(items)) => items.len(),
            Some(Items::Entries(rows)) => rows.len(),
            None => 0,
        },
        Value::Tuple(index) => heap.tuples.get(index as usize).map_or(0, |items| items.len()),
        Value::Dict(index) => match heap.dicts.get(index as usize).map(|dict| &dict.body) {
            Some(DictBody::Pairs(pairs)) => pairs.len(),
            Some(DictBody::Moved(_)) => 1,
            None => 0,
        },
        Value::Stack(StackId::EMPTY) => 0,
        _ => 1,
    }
}

impl Tables<'_> {
    /// Adds the text of a value that is inside `depth` containers. Stops soon after [`LONGEST`], so that a value that refers
    /// to itself ends, and repeated references are not written out.
    fn write(self, value: Value, depth: usize, out: &mut String) {
        match self.heap.resolve(value) {
            Value::None | Value::Missing => out.push_str("null"),
            Value::Bool(value) => out.push_str(if value { "true" } else { "false" }),
            Value::Float(index) => {
                let float = self.heap.floats.get(index as usize).copied().unwrap_or_default();
                let _ = write!(out, "{float:?}");
            }
            Value::Str(text) => quote(self.strings.get(text), out),
            value @ (Value::List(_) | Value::Set(_) | Value::Tuple(_) | Value::Dict(_)) if depth < DEEPEST => {
                self.container(value, depth + 1, out);
            }
            Value::List(_) | Value::Set(_) | Value::Tuple(_) | Value::Dict(_) => out.push(MORE),
            // The reader has recognized it as a frame.
            Value::Frame(frame) => self.frame(frame, out),
            Value::Stack(stack) => {
                let frames = self.stacks.frame_ids(stack);
                list(frames, out, |&frame, out| self.frame(frame, out));
            }
            other => match self.heap.as_int(other) {
                Some(int) => {
                    let _ = write!(out, "{int}");
                }
                None => quote(other.describe(), out),
            },
        }
    }

    fn container(self, value: Value, depth: usize, out: &mut String) {
        let items = match value {
            Value::Dict(index) => return self.dictionary(index, depth, out),
            Value::Tuple(index) => self.heap.tuples.get(index as usize).map(|items| &items[..]),
            Value::List(index) | Value::Set(index) => match self.heap.lists.get(index as usize) {
                Some(Items::Values(items)) => Some(&items[..]),
                _ => None,
            },
            _ => None,
        };
        list(items.unwrap_or_default(), out, |&item, out| self.write(item, depth, out));
    }

    fn dictionary(self, index: u32, depth: usize, out: &mut String) {
        let Some(DictBody::Pairs(pairs)) = self.heap.dicts.get(index as usize).map(|dict| &dict.body) else { return };
        out.push('{');
        for (index, &(key, value)) in pairs.iter().enumerate() {
            if out.len() > LONGEST {
                return;
            }
            out.push_str(if index == 0 { "" } else { ", " });
            if let Value::Str(text) = key {
                quote(self.strings.get(text), out);
            } else {
                let mut text = String::new();
                self.write(key, DEEPEST, &mut text);
                quote(&text, out);
            }
            out.push_str(": ");
            self.write(value, depth, out);
        }
        out.push('}');
    }

    fn frame(self, frame: FrameId, out: &mut String) {
        let Some(frame) = self.stacks.frame(frame) else { return };
        out.push_str("{\"filename\": ");
        quote(self.strings.get(frame.filename), out);
        let _ = write!(out, ", \"line\": {}, \"name\": ", frame.line);
        quote(self.strings.get(frame.name), out);
        out.push('}');
    }
}

/// Adds a list whose items are written by `write`, up to the maximum length.
fn list<T>(items: &[T], out: &mut String, write: impl Fn(&T, &mut String)) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if out.len() > LONGEST {
            return;
        }
        out.push_str(if index == 0 { "" } else { ", " });
        write(item, out);
    }
    out.push(']');
}

/// Adds a string in JSON syntax; a string that is too long is cut.
fn quote(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(beginning(text)).to_string());
}

/// The part of a text that fits the maximum length.
fn beginning(text: &str) -> &str {
    let end = (0..=text.len().min(LONGEST)).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}
