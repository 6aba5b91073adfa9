//! The values of a row.

use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Integer(i64),
    Real(f64),
    /// Text in UTF-8; its validity is not checked.
    Text(&'a [u8]),
    Blob(&'a [u8]),
}

impl Value<'_> {
    pub fn integer(self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(number) } else { None }
    }

    pub fn text(self) -> Option<String> {
        if let Self::Text(bytes) = self { Some(String::from_utf8_lossy(bytes).into_owned()) } else { None }
    }
}

/// Decodes the values at `places` of a row. Values past the last one of the row stay unchanged.
pub(super) fn decode<'a>(row: &'a [u8], places: &[usize], values: &mut [Value<'a>]) -> Result<()> {
    let cut = || Error::malformed(0, "the row is shorter than its header says");
    let (head, _) = varint(row).ok_or_else(cut)?;
    let head = usize::try_from(head).ok().filter(|&head| head <= row.len()).ok_or_else(cut)?;
    let (mut types, mut data) = row.split_at(head);
    // The header includes its own length.
    types = varint(types).ok_or_else(cut)?.1;
    let last = places.iter().copied().filter(|&place| place != usize::MAX).max();
    let mut place = 0;
    while !types.is_empty() && Some(place) <= last {
        let (kind, rest) = varint(types).ok_or_else(cut)?;
        types = rest;
        let bytes = length(kind)?;
        let (stored, rest) = data.split_at_checked(bytes).ok_or_else(cut)?;
        data = rest;
        for (wanted, value) in places.iter().zip(values.iter_mut()) {
            if *wanted == place {
                *value = of(kind, stored);
            }
        }
        place += 1;
    }
    Ok(())
}

fn length(kind: i64) -> Result<usize> {
    match kind {
        0 | 8 | 9 => Ok(0),
        1..=4 => Ok(kind as usize),
        5 => Ok(6),
        6 | 7 => Ok(8),
        12.. => Ok((kind as usize - 12) / 2),
        _ => Err(Error::malformed(0, format!("expected a known type of value, found {kind}"))),
    }
}

fn of(kind: i64, stored: &[u8]) -> Value<'_> {
    match kind {
        0 => Value::Null,
        8 => Value::Integer(0),
        9 => Value::Integer(1),
        7 => Value::Real(f64::from_bits(whole(stored).cast_unsigned())),
        1..=6 => Value::Integer(whole(stored)),
        _ if kind % 2 == 0 => Value::Blob(stored),
        _ => Value::Text(stored),
    }
}

/// A number in two's complement.
fn whole(stored: &[u8]) -> i64 {
    let is_negative = stored.first().is_some_and(|&first| first >= 0x80);
    stored.iter().fold(if is_negative { -1 } else { 0 }, |number, &byte| number << 8 | i64::from(byte))
}

/// A number of up to nine bytes and what follows it; `None` if the bytes end inside it.
pub(super) fn varint(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut number: u64 = 0;
    for place in 0..8 {
        let byte = *bytes.get(place)?;
        number = number << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some((number.cast_signed(), &bytes[place + 1..]));
        }
    }
    // All eight bits of the ninth byte count.
    let byte = *bytes.get(8)?;
    Some(((number << 8 | u64::from(byte)).cast_signed(), &bytes[9..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_each_length() {
        assert_eq!(varint(&[0x7f, 5]), Some((127, &[5][..])));
        assert_eq!(varint(&[0x81, 0x00]), Some((128, &[][..])));
        assert_eq!(varint(&[0xff; 9]), Some((-1, &[][..])));
        assert_eq!(varint(&[0xff; 8]), None);
        assert_eq!((whole(&[0xff]), whole(&[0x00, 0xff]), whole(&[0x80, 0, 0])), (-1, 255, -8_388_608));
    }

    #[test]
    fn rows_have_the_columns_asked_for() {
        // A header of five bytes: null, a byte, a text of two bytes, one.
        let row = [5, 0, 1, 17, 9, 0xfe, b'h', b'i'];
        let mut values = [Value::Blob(b"old"); 4];
        decode(&row, &[2, 1, 3, 9], &mut values).unwrap();
        assert_eq!(values, [Value::Text(b"hi"), Value::Integer(-2), Value::Integer(1), Value::Blob(b"old")]);
    }

    #[test]
    fn wrong_headers_are_refused() {
        for row in [&[][..], &[9, 1], &[0x80], &[2, 10], &[2, 4, 1], &[3, 0xff, 0xff]] {
            assert!(decode(row, &[0], &mut [Value::Null]).is_err(), "{row:?}");
        }
    }
}
