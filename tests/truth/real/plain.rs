//! Pickles as plain objects: a decoder that shares nothing with memviz's own, for data that Python's pickler wrote.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A Python object. Containers are shared, as they are in the file.
#[derive(Clone, Debug)]
pub enum Object {
    None,
    Bool(bool),
    Int(i128),
    /// Its value is not needed.
    Float,
    Text(Rc<str>),
    List(Rc<RefCell<Vec<Object>>>),
    Tuple(Rc<Vec<Object>>),
    Dict(Rc<RefCell<Vec<(Object, Object)>>>),
}

impl Object {
    /// The value of a key; the last of equal ones.
    pub fn get(&self, key: &str) -> Option<Self> {
        let Self::Dict(pairs) = self else { return None };
        let pairs = pairs.borrow();
        let named = |(name, _): &&(Self, Self)| matches!(name, Self::Text(text) if **text == *key);
        pairs.iter().rev().find(named).map(|(_, value)| value.clone()).filter(|value| !matches!(value, Self::None))
    }

    /// The items of a list or tuple; none for anything else.
    pub fn items(&self) -> Vec<Self> {
        match self {
            Self::List(items) => items.borrow().clone(),
            Self::Tuple(items) => items.to_vec(),
            _ => Vec::new(),
        }
    }

    pub fn int(&self, key: &str) -> Option<i128> {
        match self.get(key)? {
            Self::Int(value) => Some(value),
            _ => None,
        }
    }

    /// An integer, if it exists and is not negative.
    pub fn unsigned(&self, key: &str) -> u64 {
        self.int(key).and_then(|value| u64::try_from(value).ok()).unwrap_or_else(|| panic!("no {key} in {self:?}"))
    }

    /// A text; empty if there is none.
    pub fn text(&self, key: &str) -> Rc<str> {
        match self.get(key) {
            Some(Self::Text(text)) => text,
            _ => "".into(),
        }
    }

    pub fn is_true(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Self::Bool(true)))
    }
}

/// Decodes a pickle of protocol 2 to 5.
///
/// Panics on anything that Python does not write for such data.
pub fn unpickle(bytes: &[u8]) -> Object {
    let mut machine = Machine { bytes, at: 0, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
    while machine.step() {}
    machine.stack.pop().expect("a pickle leaves an object")
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Object>,
    marks: Vec<usize>,
    memo: HashMap<usize, Object>,
}

impl Machine<'_> {
    /// Runs one instruction; false at the last one.
    fn step(&mut self) -> bool {
        let object = match self.take(1)[0] {
            b'.' => return false,
            0x80 => return self.take(1).len() == 1,
            0x95 => return self.take(8).len() == 8,
            b'(' => {
                self.marks.push(self.stack.len());
                return true;
            }
            b'N' => Object::None,
            0x88 => Object::Bool(true),
            0x89 => Object::Bool(false),
            b'K' => Object::Int(self.number(1) as i128),
            b'M' => Object::Int(self.number(2) as i128),
            b'J' => Object::Int(i128::from(self.number(4) as u32 as i32)),
            0x8a => {
                let length = self.number(1);
                let value = self.number(length) as i128;
                let negative = length > 0 && value >> (8 * length - 1) & 1 == 1;
                Object::Int(if negative { value - (1 << (8 * length)) } else { value })
            }
            b'G' => {
                self.take(8);
                Object::Float
            }
            0x8c => self.text(1),
            b'X' => self.text(4),
            0x8d => self.text(8),
            b']' => Object::List(Rc::default()),
            b'}' => Object::Dict(Rc::default()),
            b')' => Object::Tuple(Rc::default()),
            length @ 0x85..=0x87 => {
                let start = self.stack.len() - usize::from(length - 0x84);
                Object::Tuple(Rc::new(self.stack.split_off(start)))
            }
            b't' => Object::Tuple(Rc::new(self.above_mark())),
            b'a' => {
                let items = self.stack.split_off(self.stack.len() - 1);
                return self.extend(items);
            }
            b'e' | b'u' => {
                let items = self.above_mark();
                return self.extend(items);
            }
            b's' => {
                let items = self.stack.split_off(self.stack.len() - 2);
                return self.extend(items);
            }
            0x94 => return self.put(self.memo.len()),
            b'q' => {
                let slot = self.number(1);
                return self.put(slot);
            }
            b'r' => {
                let slot = self.number(4);
                return self.put(slot);
            }
            b'h' => {
                let slot = self.number(1);
                self.memo[&slot].clone()
            }
            b'j' => {
                let slot = self.number(4);
                self.memo[&slot].clone()
            }
            other => panic!("byte {}: instruction 0x{other:02x} is not one of plain data", self.at - 1),
        };
        self.stack.push(object);
        true
    }

    fn take(&mut self, count: usize) -> &[u8] {
        self.at += count;
        &self.bytes[self.at - count..self.at]
    }

    fn number(&mut self, bytes: usize) -> usize {
        self.take(bytes).iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
    }

    fn text(&mut self, bytes: usize) -> Object {
        let length = self.number(bytes);
        Object::Text(String::from_utf8_lossy(self.take(length)).into())
    }

    fn above_mark(&mut self) -> Vec<Object> {
        let mark = self.marks.pop().expect("a mark");
        self.stack.split_off(mark)
    }

    /// Puts items into the list, or keys and values into the dictionary, on top of the stack.
    fn extend(&mut self, items: Vec<Object>) -> bool {
        match self.stack.last() {
            Some(Object::List(list)) => list.borrow_mut().extend(items),
            Some(Object::Dict(dict)) => {
                let pairs = items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
                dict.borrow_mut().extend(pairs);
            }
            other => panic!("{other:?} takes no items"),
        }
        true
    }

    fn put(&mut self, slot: usize) -> bool {
        let object = self.stack.last().expect("an object").clone();
        self.memo.insert(slot, object);
        true
    }
}
