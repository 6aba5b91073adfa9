//! Protocol buffers: the fields of a message in a slice.

use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    Number(u64),
    /// Text, a message, or numbers packed together.
    Bytes(Message<'a>),
    /// A number of fixed width, which profiles do not use.
    Fixed,
}

impl<'a> Field<'a> {
    /// The value of a field that is a number.
    ///
    /// # Errors
    /// If it is not a number.
    pub fn number(self, at: u64) -> Result<u64> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err(Error::malformed(at, "expected a number in the profile, found another kind of field")),
        }
    }

    /// The value of a field that is text or a message.
    ///
    /// # Errors
    /// If it is neither.
    pub fn message(self, at: u64) -> Result<Message<'a>> {
        match self {
            Self::Bytes(message) => Ok(message),
            _ => Err(Error::malformed(at, "expected text or a message in the profile, found another kind of field")),
        }
    }

    /// Appends the numbers of a repeated field: one, or several packed together.
    ///
    /// # Errors
    /// If it contains no numbers, or is cut off.
    pub fn numbers(self, at: u64, into: &mut Vec<u64>) -> Result<()> {
        match self {
            Self::Number(number) => into.push(number),
            Self::Bytes(mut packed) => {
                while !packed.rest.is_empty() {
                    into.push(packed.varint()?);
                }
            }
            Self::Fixed => {
                return Err(Error::malformed(
                    at,
                    "expected variable-length numbers in the profile, found fixed-length ones",
                ));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    rest: &'a [u8],
    at: u64,
}

impl<'a> Message<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, at: 0 }
    }

    /// What is left of it.
    pub fn bytes(self) -> &'a [u8] {
        self.rest
    }

    /// Where the next field begins in the profile.
    pub fn at(self) -> u64 {
        self.at
    }

    /// The number of the next field, and its value; `None` at the end.
    ///
    /// # Errors
    /// If the message ends inside the field, or the field's kind is unknown.
    pub fn next(&mut self) -> Result<Option<(u64, Field<'a>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let at = self.at;
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => self.take(8).map(|_| Field::Fixed)?,
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Field::Fixed)?,
            kind => {
                return Err(Error::malformed(at, format!("expected a field of a profile, found one of kind {kind}")));
            }
        };
        Ok(Some((tag >> 3, field)))
    }

    fn take(&mut self, length: u64) -> Result<Self> {
        let taken = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let Some((taken, rest)) = taken else {
            let left = self.rest.len();
            return Err(Error::malformed(self.at, format!("expected {length} bytes of a profile, found {left}")));
        };
        let message = Self { rest: taken, at: self.at };
        self.rest = rest;
        self.at += length;
        Ok(message)
    }

    /// The next number of variable length.
    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for (index, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f).checked_shl(7 * index as u32).unwrap_or(0);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                self.at += index as u64 + 1;
                return Ok(value);
            }
        }
        Err(Error::malformed(self.at, "expected a number of up to ten bytes in the profile, found none"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_width_are_read() {
        for (bytes, value) in [
            (&[0u8][..], 0),
            (&[0x7f], 127),
            (&[0x80, 0x01], 128),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], u64::MAX),
        ] {
            assert_eq!(Message::new(bytes).varint().ok(), Some(value));
            assert!(Message::new(&bytes[..bytes.len() - 1]).varint().is_err(), "cut off");
        }
        assert!(Message::new(&[0x80; 11]).varint().is_err());
    }

    #[test]
    fn a_field_does_not_reach_beyond_its_message() {
        let mut outer = Message::new(&[0x0a, 2, 0x08, 5, 0x10, 7]);
        let (number, field) = outer.next().ok().flatten().expect("a field");
        let mut inner = field.message(0).expect("a message");
        assert_eq!(number, 1);
        assert_eq!(inner.next().ok().flatten(), Some((1, Field::Number(5))));
        assert_eq!(inner.next().ok(), Some(None));
        assert_eq!(outer.next().ok().flatten(), Some((2, Field::Number(7))));
        for bad in [&[0x0a, 3, 0x08, 5][..], &[0x0a], &[0x0b], &[0x09, 1, 2], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f]] {
            assert!(Message::new(bad).next().is_err(), "{bad:?}");
        }
    }
}
