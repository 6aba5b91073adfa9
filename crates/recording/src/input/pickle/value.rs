//! Values of the pickle machine: eight-byte handles into one heap.
//!
//! Nothing is freed while a file is read, and no value owns another, so cycles and deep nesting in a malicious file are
//! harmless: dropping the heap needs no recursion, and code that walks it limits its own depth.

use crate::model::{FrameId, StackId, StrId};
use std::ops::Range;

/// A value on the machine's stack, in its memo or in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A memo slot that was never filled.
    Missing,
    None,
    Bool(bool),
    /// An integer that fits 32 bits.
    Int(i32),
    /// Any other integer, in [`Heap::longs`].
    Long(u32),
    /// In [`Heap::floats`].
    Float(u32),
    Str(StrId),
    /// In [`Heap::bytes`].
    Bytes(u32),
    List(u32),
    /// A set, stored as a list of its items.
    Set(u32),
    Dict(u32),
    Tuple(u32),
    /// Something that only running code can build: a class, an instance, a persistent ID or an extension object. It is a
    /// placeholder, and no code runs. The text says what it was.
    Opaque(StrId),
    /// A dictionary recognized as a trace entry: a row of the entry columns.
    Entry(u32),
    /// A dictionary recognized as a frame.
    Frame(FrameId),
    /// A list recognized as a stack.
    Stack(StackId),
}

#[derive(Debug)]
pub enum Items {
    Values(Vec<Value>),
    /// Consecutive rows of the entry columns: how the list of a million entries is stored.
    Entries(Range<u32>),
}

/// A dictionary, complete or under construction.
#[derive(Debug)]
pub struct Dict {
    /// Byte offset at which the dictionary starts.
    pub at: u64,
    pub body: DictBody,
    /// Whether it was checked and is neither a trace entry nor a frame.
    pub plain: bool,
}

/// The contents of a dictionary.
#[derive(Debug)]
pub enum DictBody {
    /// Keys and values in the order of the file. As in Python, the last of equal keys wins.
    Pairs(Vec<(Value, Value)>),
    /// Recognized and moved elsewhere.
    Moved(Value),
}

/// All objects that handles refer to.
#[derive(Debug, Default)]
pub struct Heap {
    pub lists: Vec<Items>,
    pub dicts: Vec<Dict>,
    pub tuples: Vec<Box<[Value]>>,
    pub longs: Vec<i128>,
    pub floats: Vec<f64>,
    pub bytes: Vec<Box<[u8]>>,
    /// Approximate bytes of memory for all objects; never decreases.
    charged: u64,
}

impl Heap {
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// Adds to the memory count, for items that callers add to containers themselves.
    pub fn charge(&mut self, bytes: usize) {
        self.charged += bytes as u64;
    }

    pub fn int(&mut self, value: i128) -> Value {
        if let Ok(small) = i32::try_from(value) {
            return Value::Int(small);
        }
        self.charge(size_of::<i128>());
        self.longs.push(value);
        Value::Long(self.longs.len() as u32 - 1)
    }

    pub fn float(&mut self, value: f64) -> Value {
        self.charge(size_of::<f64>());
        self.floats.push(value);
        Value::Float(self.floats.len() as u32 - 1)
    }

    pub fn byte_string(&mut self, value: &[u8]) -> Value {
        self.charge(size_of::<Box<[u8]>>() + value.len());
        self.bytes.push(value.into());
        Value::Bytes(self.bytes.len() as u32 - 1)
    }

    pub fn list(&mut self, items: Vec<Value>) -> u32 {
        self.charge(size_of::<Items>() + items.len() * size_of::<Value>());
        self.lists.push(Items::Values(items));
        self.lists.len() as u32 - 1
    }

    pub fn dict(&mut self, at: u64, pairs: Vec<(Value, Value)>) -> Value {
        self.charge(size_of::<Dict>() + pairs.len() * 2 * size_of::<Value>());
        self.dicts.push(Dict { at, body: DictBody::Pairs(pairs), plain: false });
        Value::Dict(self.dicts.len() as u32 - 1)
    }

    pub fn tuple(&mut self, items: &[Value]) -> Value {
        self.charge(size_of::<Box<[Value]>>() + size_of_val(items));
        self.tuples.push(items.into());
        Value::Tuple(self.tuples.len() as u32 - 1)
    }

    /// The integer of a value, if it is one. Booleans are integers, as in Python.
    pub fn as_int(&self, value: Value) -> Option<i128> {
        match value {
            Value::Int(value) => Some(i128::from(value)),
            Value::Long(index) => self.longs.get(index as usize).copied(),
            Value::Bool(value) => Some(i128::from(value)),
            _ => None,
        }
    }

    /// The value itself, or the result for a recognized dictionary.
    pub fn resolve(&self, value: Value) -> Value {
        match value {
            Value::Dict(index) => match self.dicts.get(index as usize).map(|dict| &dict.body) {
                Some(DictBody::Moved(moved)) => *moved,
                _ => value,
            },
            _ => value,
        }
    }
}

impl Value {
    /// The value's kind with an article, for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Missing => "nothing",
            Self::None => "None",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Long(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Str(_) => "a string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
            Self::Set(_) => "a set",
            Self::Dict(_) => "a dictionary",
            Self::Tuple(_) => "a tuple",
            Self::Opaque(_) => "an object that only running code can build",
            Self::Entry(_) => "a trace entry",
            Self::Frame(_) => "a stack frame",
            Self::Stack(_) => "a list of frames",
        }
    }
}
