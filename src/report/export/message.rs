//! Protocol buffers: the fields of a message, one after the other.
//!
//! memviz writes only numbers, texts and nested messages; for these, this is shorter than a description of the formats would
//! be, and compiles quickly.

use std::io::{self, Write};

/// A number as a varint.
const NUMBER: u64 = 0;
/// A length, followed by that many bytes.
const BYTES: u64 = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Adds a number; 0 is the value of a missing field.
    pub(super) fn number(&mut self, field: u32, number: u64) -> &mut Self {
        if number != 0 {
            self.number_or_zero(field, number);
        }
        self
    }

    /// Adds a number, even if it is 0: as one of several in a field, or if 0 is not the same as unknown.
    pub(super) fn number_or_zero(&mut self, field: u32, number: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | NUMBER);
        self.varint(number);
        self
    }

    /// Adds several numbers to one field.
    pub(super) fn numbers(&mut self, field: u32, numbers: impl IntoIterator<Item = u64>) -> &mut Self {
        let mut packed = Self::default();
        for number in numbers {
            packed.varint(number);
        }
        self.bytes(field, &packed.0)
    }

    pub(super) fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    /// Adds a message that `fill` builds.
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut message = Self::default();
        fill(&mut message);
        self.bytes(field, &message.0)
    }

    /// Adds the fields of another message.
    pub(super) fn append(&mut self, fields: &Self) -> &mut Self {
        self.0.extend_from_slice(&fields.0);
        self
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Writes the message, and starts an empty one.
    pub(super) fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.0)?;
        self.0.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_protocol_buffers_are() {
        let mut message = Message::default();
        message.number(1, 150).number(2, 0).number_or_zero(2, 0).text(2, "testing");
        message.message(3, |inner| {
            inner.number(1, 150);
        });
        message.numbers(4, [3, 270, 86942]);
        let expected: &[&[u8]] = &[
            &[0x08, 0x96, 0x01],
            &[0x10, 0x00],
            &[0x12, 0x07, b't', b'e', b's', b't', b'i', b'n', b'g'],
            &[0x1a, 0x03, 0x08, 0x96, 0x01],
            &[0x22, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05],
        ];
        assert_eq!(message.0, expected.concat());
    }
}
