//! Pickles as different writers produce them: Python's pickler in protocols 2 and 4, PyTorch's C++ pickler, and possible
//! writers that do not exist yet.

use std::collections::HashMap;
use std::rc::Rc;

/// A Python object. Containers have an identity, so that one object can be in several places.
#[derive(Clone, Debug)]
pub enum Node {
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    List(Rc<Vec<Node>>),
    Tuple(Rc<Vec<Node>>),
    Dict(Rc<Vec<(Node, Node)>>),
}

impl Node {
    pub fn str(text: impl Into<String>) -> Self {
        Self::Str(text.into())
    }

    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(Rc::new(items.into_iter().collect()))
    }

    pub fn tuple(items: impl IntoIterator<Item = Self>) -> Self {
        Self::Tuple(Rc::new(items.into_iter().collect()))
    }

    pub fn dict<'k>(pairs: impl IntoIterator<Item = (&'k str, Self)>) -> Self {
        Self::Dict(Rc::new(pairs.into_iter().map(|(key, value)| (Self::str(key), value)).collect()))
    }
}

/// The objects in the memo, and how they get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memo {
    /// Strings only; containers in several places are written out each time.
    Strings,
    /// Strings and containers, by slot number.
    Put,
    /// The same, but the slot of this number stays empty.
    PutAround(u32),
    /// Strings and containers, by MEMOIZE.
    Memoize,
}

/// How integers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integers {
    /// In the shortest form, as every real writer does.
    Shortest,
    /// In every form that holds them, by turns.
    EveryForm,
}

/// How strings in several places are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strings {
    /// Once, and referred to from then on: what Python does with one object.
    Once,
    /// The same for keys, but values are written out each time: Python does this with strings that PyTorch creates
    /// anew for each entry.
    ValuesAfresh,
}

/// A way to write pickles.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub protocol: u8,
    pub memo: Memo,
    pub integers: Integers,
    pub strings: Strings,
    /// Items of a list that are appended at once.
    pub batch: usize,
    /// Whether a list of one item is written as a list of many.
    pub always_mark: bool,
    /// Opcodes in a frame.
    pub frame: Option<usize>,
}

/// The pickle of `root`.
pub fn write(root: &Node, style: Style) -> Vec<u8> {
    let mut writer =
        Writer { style, opcodes: Vec::new(), strings: HashMap::new(), containers: HashMap::new(), slots: 0, turn: 0 };
    writer.node(root);
    writer.opcode(b'.', &[]);
    let mut bytes = vec![0x80, style.protocol];
    for frame in writer.opcodes.chunks(style.frame.unwrap_or(usize::MAX)) {
        let frame_bytes = frame.concat();
        if style.frame.is_some() {
            bytes.push(0x95);
            bytes.extend((frame_bytes.len() as u64).to_le_bytes());
        }
        bytes.extend(frame_bytes);
    }
    bytes
}

struct Writer {
    style: Style,
    /// One instruction each, with its operand.
    opcodes: Vec<Vec<u8>>,
    /// Memo slots of strings.
    strings: HashMap<String, u32>,
    /// Memo slots of containers, by address.
    containers: HashMap<usize, u32>,
    /// Number of used memo slots.
    slots: u32,
    /// Number of integers written.
    turn: usize,
}

impl Writer {
    fn opcode(&mut self, code: u8, operand: &[u8]) {
        let mut opcode = vec![code];
        opcode.extend(operand);
        self.opcodes.push(opcode);
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::Bool(value) => self.opcode(if *value { 0x88 } else { 0x89 }, &[]),
            Node::Int(value) => self.int(*value),
            Node::Float(value) => self.opcode(b'G', &value.to_be_bytes()),
            Node::Str(text) => self.text(text),
            Node::List(items) => {
                if !self.known(Rc::as_ptr(items).addr()) {
                    self.opcode(b']', &[]);
                    self.remember(Rc::as_ptr(items).addr());
                    self.items(items);
                }
            }
            Node::Dict(pairs) => {
                if !self.known(Rc::as_ptr(pairs).addr()) {
                    self.opcode(b'}', &[]);
                    self.remember(Rc::as_ptr(pairs).addr());
                    self.pairs(pairs);
                }
            }
            Node::Tuple(items) => {
                if !self.known(Rc::as_ptr(items).addr()) {
                    self.tuple(items);
                    self.remember(Rc::as_ptr(items).addr());
                }
            }
        }
    }

    fn items(&mut self, items: &[Node]) {
        for batch in items.chunks(self.style.batch) {
            if batch.len() == 1 && !self.style.always_mark {
                self.node(&batch[0]);
                self.opcode(b'a', &[]);
            } else {
                self.opcode(b'(', &[]);
                for item in batch {
                    self.node(item);
                }
                self.opcode(b'e', &[]);
            }
        }
    }

    fn pairs(&mut self, pairs: &[(Node, Node)]) {
        if let [(key, value)] = pairs {
            self.node(key);
            self.value(value);
            self.opcode(b's', &[]);
        } else if !pairs.is_empty() {
            self.opcode(b'(', &[]);
            for (key, value) in pairs {
                self.node(key);
                self.value(value);
            }
            self.opcode(b'u', &[]);
        }
    }

    fn value(&mut self, value: &Node) {
        match value {
            Node::Str(text) if self.style.strings == Strings::ValuesAfresh => self.text_afresh(text),
            other => self.node(other),
        }
    }

    fn tuple(&mut self, items: &[Node]) {
        if items.len() > 3 {
            self.opcode(b'(', &[]);
        }
        for item in items {
            self.node(item);
        }
        let code = match items.len() {
            0 => b')',
            1 => 0x85,
            2 => 0x86,
            3 => 0x87,
            _ => b't',
        };
        self.opcode(code, &[]);
    }

    fn text(&mut self, text: &str) {
        if let Some(&slot) = self.strings.get(text) {
            return self.get(slot);
        }
        self.text_afresh(text);
    }

    fn text_afresh(&mut self, text: &str) {
        let length = text.len() as u32;
        match u8::try_from(length) {
            Ok(length) if self.style.protocol >= 4 => self.opcode(0x8c, &[&[length], text.as_bytes()].concat()),
            _ => self.opcode(b'X', &[&length.to_le_bytes(), text.as_bytes()].concat()),
        }
        let slot = self.put();
        self.strings.insert(text.to_owned(), slot);
    }

    /// Refers to a container that was written before; false if it was not.
    fn known(&mut self, address: usize) -> bool {
        let slot = self.containers.get(&address).copied();
        slot.inspect(|&slot| self.get(slot)).is_some()
    }

    fn remember(&mut self, address: usize) {
        if self.style.memo != Memo::Strings {
            let slot = self.put();
            self.containers.insert(address, slot);
        }
    }

    fn get(&mut self, slot: u32) {
        match u8::try_from(slot) {
            Ok(slot) => self.opcode(b'h', &[slot]),
            Err(_) => self.opcode(b'j', &slot.to_le_bytes()),
        }
    }

    /// Puts the last written object into the memo.
    fn put(&mut self) -> u32 {
        let count = self.slots;
        self.slots += 1;
        let slot = match self.style.memo {
            Memo::PutAround(empty) if count >= empty => count + 1,
            _ => count,
        };
        match (self.style.memo, u8::try_from(slot)) {
            (Memo::Memoize, _) => self.opcode(0x94, &[]),
            (_, Ok(slot)) => self.opcode(b'q', &[slot]),
            (_, Err(_)) => self.opcode(b'r', &slot.to_le_bytes()),
        }
        slot
    }

    fn int(&mut self, value: i128) {
        let mut forms: Vec<Vec<u8>> = Vec::new();
        if let Ok(value) = u8::try_from(value) {
            forms.push(vec![b'K', value]);
        }
        if let Ok(value) = u16::try_from(value) {
            forms.push([&[b'M'][..], &value.to_le_bytes()].concat());
        }
        if let Ok(value) = i32::try_from(value) {
            forms.push([&[b'J'][..], &value.to_le_bytes()].concat());
        }
        let word = value.to_le_bytes();
        let shortest = (1..word.len()).find(|&length| sign_extended(&word[..length]) == value).unwrap_or(word.len());
        forms.push([&[0x8a, shortest as u8][..], &word[..shortest]].concat());
        if self.style.integers == Integers::Shortest {
            return self.opcodes.push(forms.swap_remove(0));
        }
        for length in [9, 16].into_iter().filter(|&length| length > shortest) {
            forms.push([&[0x8a, length as u8][..], &word[..length]].concat());
        }
        forms.push([&[0x8b, shortest as u8, 0, 0, 0][..], &word[..shortest]].concat());
        forms.push(format!("I{value}\n").into_bytes());
        forms.push(format!("L{value}L\n").into_bytes());
        self.turn += 1;
        let form = self.turn % forms.len();
        self.opcodes.push(forms.swap_remove(form));
    }
}

/// The integer for two's complement bytes, least significant first.
fn sign_extended(bytes: &[u8]) -> i128 {
    let negative = bytes.last().is_some_and(|&last| last >= 0x80);
    let mut word = if negative { [0xff; 16] } else { [0; 16] };
    word[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(word)
}
