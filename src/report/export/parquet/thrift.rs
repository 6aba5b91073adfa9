//! Thrift's compact protocol, in which Parquet describes itself.

/// Types of fields.
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// A struct under construction, with its fields in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    fn field(&mut self, number: u8, kind: u8) {
        // Consecutive numbers differ by less than 16.
        self.bytes.push((number - self.last) << 4 | kind);
        self.last = number;
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn zigzag(&mut self, number: i64) {
        self.varint((number << 1 ^ number >> 63).cast_unsigned());
    }

    fn list(&mut self, number: u8, length: usize, kind: u8) {
        self.field(number, LIST);
        if length < 15 {
            self.bytes.push((length as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            self.varint(length as u64);
        }
    }

    fn binary(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn number32(&mut self, field: u8, number: i64) -> &mut Self {
        self.field(field, I32);
        self.zigzag(number);
        self
    }

    pub(super) fn number(&mut self, field: u8, number: i64) -> &mut Self {
        self.field(field, I64);
        self.zigzag(number);
        self
    }

    pub(super) fn numbers(&mut self, field: u8, numbers: &[i64]) -> &mut Self {
        self.list(field, numbers.len(), I32);
        for &number in numbers {
            self.zigzag(number);
        }
        self
    }

    pub(super) fn text(&mut self, field: u8, text: &str) -> &mut Self {
        self.field(field, BINARY);
        self.binary(text.as_bytes());
        self
    }

    pub(super) fn texts(&mut self, field: u8, texts: &[&str]) -> &mut Self {
        self.list(field, texts.len(), BINARY);
        for text in texts {
            self.binary(text.as_bytes());
        }
        self
    }

    pub(super) fn inner(&mut self, field: u8, inner: Self) -> &mut Self {
        self.field(field, STRUCT);
        self.bytes.extend(inner.finish());
        self
    }

    pub(super) fn structs(&mut self, field: u8, structs: Vec<Self>) -> &mut Self {
        self.list(field, structs.len(), STRUCT);
        for one in structs {
            self.bytes.extend(one.finish());
        }
        self
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}
