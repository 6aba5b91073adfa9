//! The pickle machine: every opcode of protocols 0 to 5, without ever running anything.
//!
//! A pickle is a program for a stack machine. Snapshots need only the instructions that build data. The instructions that
//! name classes and call them yield [`Value::Opaque`] here: a placeholder that may be stored and ignored, and that is an
//! error only where data is needed.

mod instructions;

use super::decoded::{Cut, DecodedPickle};
use super::fast_entry::{DecodedEntry, EntryDecoder};
use super::findings::{Findings, Rows, name};
use super::memo::Memo;
use super::opcode as op;
use super::tables::Tables;
use super::template::Templates;
use super::value::{DictBody, Heap, Items, Value};
use crate::error::{Error, Result};
use crate::input::limits::Limits;
use crate::input::window::Window;
use crate::model::bytes::Bytes;
use std::io::Read;

#[derive(Clone, Copy, Debug)]
pub struct DecodeOptions {
    pub limits: Limits,
    /// Whether to turn entries and frames into rows and IDs while decoding. Off only if the generic tree is needed.
    pub recognize: bool,
    /// Whether to read a file that ends early as if its open containers were closed there.
    pub allow_truncated: bool,
}

/// Decodes one pickle from `reader`; trace entries are added to `rows`.
pub fn decode(reader: impl Read, options: DecodeOptions, rows: Rows) -> Result<DecodedPickle> {
    let mut machine = Machine {
        window: Window::new(reader),
        options,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        heap: Heap::default(),
        findings: Findings { rows, ..Findings::default() },
        decoder: EntryDecoder::new(options.limits.string_bytes),
        templates: Templates::default(),
        unframed: Vec::new(),
        frame: None,
        protocol: 0,
    };
    if !machine.window.fill(1)? {
        return Err(Error::Empty);
    }
    let (root, cut) = match machine.run() {
        Ok(root) => (root, None),
        Err(Error::Truncated { at, .. }) if options.allow_truncated => {
            let (root, open_lists) = machine.close_at_cut()?;
            (root, Some(Cut { at, open_lists }))
        }
        Err(error) => return Err(error),
    };
    machine.findings.rows.flush();
    let followed = cut.is_none() && !machine.window.ahead().is_empty();
    Ok(DecodedPickle {
        bytes: machine.window.offset(),
        cut_behind: None,
        followed,
        heap: machine.heap,
        findings: machine.findings,
        root,
        protocol: machine.protocol,
        cut,
        failed_behind: machine.window.take_failure(),
    })
}

/// Memory for an entry: in the columns, as an allocation of the history, and as a link.
const BYTES_PER_ENTRY: u64 = 80;
/// Opcodes between two checks of the memory limits.
const BILL_INTERVAL: u32 = 1024;
/// Entries are numbered with 32 bits; the highest number means none.
const MAX_ENTRIES: usize = u32::MAX as usize - 1;
/// The list of entries that are not in a list.
const NO_LIST: u32 = u32::MAX;
/// Bytes that should be ahead before the hot path looks for an entry: longer than nearly all entries.
const ENTRY_AHEAD: usize = 4096;
/// Bytes of the FRAME instruction: the opcode and a length.
const FRAME_HEAD: usize = 9;

pub struct Machine<R> {
    pub(super) window: Window<R>,
    options: DecodeOptions,
    pub(super) stack: Vec<Value>,
    /// Stack heights at the open marks.
    pub(super) marks: Vec<usize>,
    memo: Memo,
    pub(super) heap: Heap,
    findings: Findings,
    decoder: EntryDecoder,
    templates: Templates,
    /// An entry without the frame instruction inside it.
    unframed: Vec<u8>,
    /// Start of the current frame, and the offset of its end.
    frame: Option<(u64, u64)>,
    protocol: u8,
}

impl<R: Read> Machine<R> {
    /// Runs to the STOP opcode and returns the value on top of the stack.
    fn run(&mut self) -> Result<Value> {
        let mut until_bill = BILL_INTERVAL;
        loop {
            until_bill -= 1;
            if until_bill == 0 {
                until_bill = BILL_INTERVAL;
                self.check_bill()?;
            }
            if self.window.ahead().first() == Some(&op::EMPTY_DICT) && self.options.recognize && self.fast_entries()? {
                continue;
            }
            let at = self.window.offset();
            let opcode = self.window.byte()?;
            if opcode == op::STOP {
                let root = self.pop(at)?;
                if let Some((start, end)) = self.frame
                    && end > self.window.offset()
                {
                    let message = format!("a frame claims to end at byte {end}, but the pickle ends at {}", at + 1);
                    return Err(Error::malformed(start, message));
                }
                return Ok(root);
            }
            self.step(at, opcode)?;
        }
    }

    /// Takes entries ahead on the hot path, as long as they have the usual shape. Returns false if the first one does not, so
    /// that the machine must execute it step by step.
    fn fast_entries(&mut self) -> Result<bool> {
        let list = self.open_list();
        for taken in 0..BILL_INTERVAL {
            if !self.memo.is_dense() {
                return Ok(taken > 0);
            }
            let bytes = self.window.look_ahead(ENTRY_AHEAD);
            if bytes.first() != Some(&op::EMPTY_DICT) {
                return Ok(taken > 0);
            }
            if self.findings.rows.len() >= MAX_ENTRIES {
                let message = format!("more trace entries than the limit of {MAX_ENTRIES}");
                return Err(Error::Limit { at: self.window.offset(), message });
            }
            let mut tables = Tables { memo: &self.memo, heap: &mut self.heap, findings: &mut self.findings };
            if let Some(fit) = self.templates.predict(bytes, list, &mut self.decoder.lists, &mut tables) {
                self.templates.memoize(&fit, &mut self.memo);
                self.took(fit.row, fit.length);
                continue;
            }
            let decoded = match self.decoder.decode(bytes, &mut tables) {
                Some(decoded) => {
                    self.templates.learn(bytes, &decoded, &self.decoder.shape);
                    decoded
                }
                None => match self.entry_around_frame() {
                    Some(decoded) => decoded,
                    None => return Ok(taken > 0),
                },
            };
            self.take(list, decoded);
        }
        Ok(true)
    }

    /// Puts a decoded entry where the machine would have put it.
    fn take(&mut self, list: u32, mut decoded: DecodedEntry) {
        let row = self.findings.rows.push(list, decoded.entry);
        let memoized = decoded.memoized.values();
        if decoded.memoize_entry
            && let Some(entry) = memoized.first_mut()
        {
            *entry = row;
        }
        for &value in &*memoized {
            self.memo.push(value);
        }
        self.took(row, decoded.length);
    }

    /// Moves past an entry of this many bytes.
    #[inline]
    fn took(&mut self, row: Value, length: usize) {
        self.stack.push(row);
        self.window.skip(length);
    }

    /// Decodes the entry ahead if only a frame instruction inside it makes its shape unusual. Writers start a frame every 64
    /// KiB, at any position.
    fn entry_around_frame(&mut self) -> Option<DecodedEntry> {
        let bytes = self.window.ahead();
        let at = self.decoder.stopped;
        let [op::FRAME, length @ ..] = *bytes.get(at..)?.first_chunk::<FRAME_HEAD>()? else { return None };
        let start = self.window.offset() + at as u64;
        // An overlapping frame is left to the machine, which refuses it.
        if self.frame.is_some_and(|(_, end)| end > start) {
            return None;
        }
        let rest = &bytes[at + FRAME_HEAD..];
        self.unframed.clear();
        self.unframed.extend_from_slice(&bytes[..at]);
        self.unframed.extend_from_slice(&rest[..rest.len().min(ENTRY_AHEAD)]);
        let mut tables = Tables { memo: &self.memo, heap: &mut self.heap, findings: &mut self.findings };
        let mut decoded = self.decoder.decode(&self.unframed, &mut tables)?;
        decoded.length += FRAME_HEAD;
        let end = start.saturating_add(FRAME_HEAD as u64).saturating_add(u64::from_le_bytes(length));
        self.frame = Some((start, end));
        Some(decoded)
    }

    fn top(&self, at: u64) -> Result<Value> {
        self.stack.last().copied().ok_or_else(|| empty_stack(at))
    }

    fn pop(&mut self, at: u64) -> Result<Value> {
        let start = self.below_top(at, 1)?;
        let value = self.stack[start];
        self.stack.truncate(start);
        Ok(value)
    }

    /// Stack height without the `count` values on top, all of which must be above the last mark.
    fn below_top(&self, at: u64, count: usize) -> Result<usize> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack.len().checked_sub(count).filter(|&start| start >= floor).ok_or_else(|| empty_stack(at))
    }

    fn pop_mark(&mut self, at: u64) -> Result<usize> {
        self.marks.pop().ok_or_else(|| Error::malformed(at, "expected a mark on the stack, found none"))
    }

    /// The list whose items are being built: the one below the last mark.
    #[inline]
    fn open_list(&self) -> u32 {
        let below = self.marks.last().and_then(|&mark| mark.checked_sub(1));
        match below.and_then(|below| self.stack.get(below)) {
            Some(&Value::List(index)) => index,
            _ => NO_LIST,
        }
    }

    fn recognize(&mut self, list: u32, items: &mut [Value]) {
        if self.options.recognize {
            self.findings.recognize(&mut self.heap, list, items);
        }
    }

    /// Moves the values from `start` on into the list or set below them.
    pub(super) fn extend_list(&mut self, at: u64, start: usize) -> Result<()> {
        let mut items = self.stack.split_off(start);
        let target = self.top(at)?;
        let index = match target {
            Value::List(index) | Value::Set(index) => {
                self.recognize(index, &mut items);
                index as usize
            }
            Value::Opaque(_) => return Ok(()),
            other => {
                return Err(Error::malformed(at, format!("expected a list to append to, found {}", other.describe())));
            }
        };
        self.heap.charge(items.len() * size_of::<Value>());
        let Some(list) = self.heap.lists.get_mut(index) else { return Err(empty_stack(at)) };
        let rows = consecutive_rows(&items);
        match (&mut *list, rows) {
            (Items::Values(values), Some(rows)) if values.is_empty() => *list = Items::Entries(rows),
            (Items::Entries(before), Some(rows)) if before.end == rows.start => before.end = rows.end,
            (Items::Values(values), _) => values.append(&mut items),
            (Items::Entries(before), _) => {
                let mut values: Vec<Value> = before.clone().map(Value::Entry).collect();
                values.append(&mut items);
                self.heap.charge(values.len() * size_of::<Value>());
                self.heap.lists[index] = Items::Values(values);
            }
        }
        Ok(())
    }

    /// Keys and values from `start` to the top of the stack.
    fn take_pairs(&mut self, at: u64, start: usize) -> Result<Vec<(Value, Value)>> {
        let items = &self.stack[start..];
        if items.len() % 2 == 1 {
            return Err(Error::malformed(at, "expected a value for each key, found a key without one"));
        }
        let pairs = items.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        self.stack.truncate(start);
        Ok(pairs)
    }

    /// Moves the keys and values from `start` on into the dictionary below them.
    pub(super) fn extend_dict(&mut self, at: u64, opcode: u8, start: usize) -> Result<()> {
        let mut added = self.take_pairs(at, start)?;
        let target = self.top(at)?;
        let index = match target {
            Value::Dict(index) => index as usize,
            Value::Opaque(_) => return Ok(()),
            other => {
                let message = format!("expected a dictionary to add to, found {}", other.describe());
                return Err(Error::malformed(at, message));
            }
        };
        self.heap.charge(added.len() * 2 * size_of::<Value>());
        match self.heap.dicts.get_mut(index).map(|dict| &mut dict.body) {
            Some(DictBody::Pairs(pairs)) => {
                // Writers fill an entry with one SETITEMS. Recognizing it here keeps the rows in the order of the file, since
                // the hot path adds its rows immediately, too.
                let whole_entry = opcode == op::SETITEMS
                    && pairs.is_empty()
                    && added.iter().any(|&(key, _)| key == Value::Str(name::ACTION));
                pairs.append(&mut added);
                let list = self.open_list();
                // A dictionary outside a list is not an entry, or becomes one when it is put into a list.
                if whole_entry && list != NO_LIST {
                    self.recognize(list, &mut [target]);
                }
                Ok(())
            }
            _ => Err(Error::malformed(at, "expected no change to an entry that is already in a list")),
        }
    }

    /// Refuses files whose objects take much more memory than their bytes.
    fn check_bill(&self) -> Result<()> {
        let limits = &self.options.limits;
        let stacks = self.stack.len() * size_of::<Value>() + self.marks.len() * size_of::<usize>();
        let bill = self.heap.charged() + (stacks + self.memo.bytes()) as u64;
        let at = self.window.offset();
        if bill > at.saturating_mul(limits.memory_per_byte).saturating_add(limits.base_memory) {
            let message = format!("{bill} bytes of objects from {at} bytes of input are more than any snapshot needs");
            return Err(Error::Limit { at, message });
        }
        let entries = (self.findings.rows.len() as u64).saturating_mul(BYTES_PER_ENTRY);
        if bill.saturating_add(entries) > limits.memory {
            let (memory, entries) = (Bytes(limits.memory), self.findings.rows.len());
            let message =
                format!("{entries} trace entries and counting take more than {memory}; --max-memory allows more");
            return Err(Error::Limit { at, message });
        }
        Ok(())
    }
}

fn empty_stack(at: u64) -> Error {
    Error::malformed(at, "expected a value on the stack, found none")
}

/// The rows of `items` when they are entries one after the other.
fn consecutive_rows(items: &[Value]) -> Option<std::ops::Range<u32>> {
    let &Value::Entry(first) = items.first()? else { return None };
    let consecutive = items.iter().zip(first..).all(|(&item, row)| item == Value::Entry(row));
    consecutive.then(|| first..first + items.len() as u32)
}
