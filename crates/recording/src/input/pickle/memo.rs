//! The machine's memo: values that later instructions refer to by number.
//!
//! Writers memoize every entry and every list of frames, so the memo of a large file has millions of slots, and mapping their
//! memory pages takes longer than filling them. So a slot has four bytes: the kind of value and its payload. The few values
//! that do not fit are stored separately.

use super::value::Value;
use crate::model::{FrameId, StackId, StrId};

/// Numbered values.
#[derive(Debug, Default)]
pub struct Memo {
    slots: Vec<Slot>,
    /// Values whose payload does not fit a slot.
    wide: Vec<Value>,
    /// Number of slots in use. Python numbers a MEMOIZE by this count, which differs from the number of slots only if a PUT
    /// left a gap.
    filled: usize,
}

/// A value in four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

/// Bits of the payload of a slot.
const PAYLOAD: u32 = 28;

mod kind {
    pub const PLAIN: u32 = 0;
    pub const INT: u32 = 1;
    pub const LONG: u32 = 2;
    pub const FLOAT: u32 = 3;
    pub const STR: u32 = 4;
    pub const BYTES: u32 = 5;
    pub const LIST: u32 = 6;
    pub const SET: u32 = 7;
    pub const DICT: u32 = 8;
    pub const TUPLE: u32 = 9;
    pub const OPAQUE: u32 = 10;
    pub const ENTRY: u32 = 11;
    pub const FRAME: u32 = 12;
    pub const STACK: u32 = 13;
    pub const WIDE: u32 = 14;
}

/// Values without a payload, by payload number.
const PLAIN: [Value; 4] = [Value::Missing, Value::None, Value::Bool(false), Value::Bool(true)];

impl Slot {
    const MISSING: Self = Self(0);

    /// The value as a slot, if its payload fits.
    #[inline]
    pub fn of(value: Value) -> Option<Self> {
        let (kind, payload) = match value {
            Value::Missing => (kind::PLAIN, 0),
            Value::None => (kind::PLAIN, 1),
            Value::Bool(bool) => (kind::PLAIN, 2 + u32::from(bool)),
            Value::Int(int) => (kind::INT, int as u32),
            Value::Long(index) => (kind::LONG, index),
            Value::Float(index) => (kind::FLOAT, index),
            Value::Str(id) => (kind::STR, id.0),
            Value::Bytes(index) => (kind::BYTES, index),
            Value::List(index) => (kind::LIST, index),
            Value::Set(index) => (kind::SET, index),
            Value::Dict(index) => (kind::DICT, index),
            Value::Tuple(index) => (kind::TUPLE, index),
            Value::Opaque(id) => (kind::OPAQUE, id.0),
            Value::Entry(row) => (kind::ENTRY, row),
            Value::Frame(id) => (kind::FRAME, id.0),
            Value::Stack(id) => (kind::STACK, id.0),
        };
        (payload >> PAYLOAD == 0).then_some(Self(kind << PAYLOAD | payload))
    }
}

impl Memo {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether every slot is in use, so that the next MEMOIZE uses the slot after them.
    pub fn is_dense(&self) -> bool {
        self.filled == self.slots.len()
    }

    /// The slot that the next MEMOIZE uses.
    pub fn next(&self) -> usize {
        self.filled
    }

    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>() + self.wide.len() * size_of::<Value>()
    }

    #[inline]
    pub fn get(&self, slot: usize) -> Option<Value> {
        let slot = self.slots.get(slot)?.0;
        let payload = slot & ((1 << PAYLOAD) - 1);
        Some(match slot >> PAYLOAD {
            kind::PLAIN => PLAIN.get(payload as usize).copied().filter(|&value| value != Value::Missing)?,
            kind::INT => Value::Int(payload as i32),
            kind::LONG => Value::Long(payload),
            kind::FLOAT => Value::Float(payload),
            kind::STR => Value::Str(StrId(payload)),
            kind::BYTES => Value::Bytes(payload),
            kind::LIST => Value::List(payload),
            kind::SET => Value::Set(payload),
            kind::DICT => Value::Dict(payload),
            kind::TUPLE => Value::Tuple(payload),
            kind::OPAQUE => Value::Opaque(StrId(payload)),
            kind::ENTRY => Value::Entry(payload),
            kind::FRAME => Value::Frame(FrameId(payload)),
            kind::STACK => Value::Stack(StackId(payload)),
            _ => self.wide.get(payload as usize).copied()?,
        })
    }

    /// Fills the slot after all others.
    #[inline]
    pub fn push(&mut self, value: Value) {
        let slot = Slot::of(value).unwrap_or_else(|| self.widen(value));
        self.slots.push(slot);
        self.filled += 1;
    }

    /// Fills several slots after all others.
    #[inline]
    pub fn extend(&mut self, slots: &[Slot]) {
        // An entry has two or three slots: a call to copy them costs more than a loop.
        self.slots.extend(slots.iter().copied());
        self.filled += slots.len();
    }

    /// Changes the value of a slot that is in use.
    #[inline]
    pub fn replace(&mut self, slot: usize, value: Value) {
        let value = Slot::of(value).unwrap_or_else(|| self.widen(value));
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = value;
        }
    }

    /// Fills a slot and returns whether it was in use before.
    pub fn put(&mut self, slot: usize, value: Value) -> bool {
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Slot::MISSING);
        }
        let was_in_use = self.slots[slot] != Slot::MISSING;
        self.filled += usize::from(!was_in_use);
        self.slots[slot] = Slot::of(value).unwrap_or_else(|| self.widen(value));
        was_in_use
    }

    /// A slot for a value that does not fit. After a quarter of a billion such values, which requires a file of many
    /// gigabytes, the slots of further ones stay empty, and a reference to one is an error.
    #[cold]
    fn widen(&mut self, value: Value) -> Slot {
        let index = self.wide.len() as u32;
        if index >> PAYLOAD != 0 {
            return Slot::MISSING;
        }
        self.wide.push(value);
        Slot(kind::WIDE << PAYLOAD | index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back() {
        let mut memo = Memo::default();
        let payloads = [0, 1, 2, (1 << PAYLOAD) - 1, 1 << PAYLOAD, u32::MAX - 1];
        let mut values = vec![Value::None, Value::Bool(false), Value::Bool(true), Value::Int(-1), Value::Int(i32::MIN)];
        for payload in payloads {
            values.extend([Value::Int(payload as i32), Value::Long(payload), Value::Float(payload)]);
            values.extend([
                Value::Str(StrId(payload)),
                Value::Bytes(payload),
                Value::List(payload),
                Value::Set(payload),
            ]);
            values.extend([Value::Dict(payload), Value::Tuple(payload), Value::Opaque(StrId(payload))]);
            values.extend([Value::Entry(payload), Value::Frame(FrameId(payload)), Value::Stack(StackId(payload))]);
        }
        for &value in &values {
            memo.push(value);
        }
        for (slot, &value) in values.iter().enumerate() {
            assert_eq!(memo.get(slot), Some(value));
        }
        assert_eq!((memo.len(), memo.next(), memo.is_dense()), (values.len(), values.len(), true));
    }

    #[test]
    fn gaps_are_no_values_and_are_counted() {
        let mut memo = Memo::default();
        assert!(!memo.put(2, Value::Int(7)));
        assert_eq!((memo.get(0), memo.get(2), memo.get(3)), (None, Some(Value::Int(7)), None));
        assert_eq!((memo.len(), memo.next(), memo.is_dense()), (3, 1, false));
        assert!(memo.put(2, Value::None), "in use");
        assert!(!memo.put(0, Value::None));
        assert_eq!((memo.get(2), memo.next()), (Some(Value::None), 2));
    }
}
