//! Writes a pickle, opcode by opcode.
//!
//! Protocol 4, which Python writes by default: PyTorch's own page, too, reads no later one.

use std::io::{self, Write};

pub struct Pickle<'w> {
    out: io::BufWriter<&'w mut dyn Write>,
    /// Number of memo slots in use.
    slots: u32,
}

/// The position of an object in the memo, to refer to it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl<'w> Pickle<'w> {
    /// Starts a pickle.
    /// Fails if writing fails; this also applies to all methods.
    pub fn new(out: &'w mut dyn Write) -> io::Result<Self> {
        let mut pickle = Self { out: io::BufWriter::new(out), slots: 0 };
        pickle.write(&[0x80, 4])?;
        Ok(pickle)
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.write(b".")?;
        self.out.flush()
    }

    /// `True` or `False`.
    pub fn boolean(&mut self, value: bool) -> io::Result<()> {
        self.write(if value { b"\x88" } else { b"\x89" })
    }

    pub fn float(&mut self, value: f64) -> io::Result<()> {
        self.write(b"G")?;
        self.write(&value.to_be_bytes())
    }

    pub fn integer(&mut self, value: impl Into<i128>) -> io::Result<()> {
        let value = value.into();
        if let Ok(byte) = u8::try_from(value) {
            return self.write(&[b'K', byte]);
        }
        if let Ok(word) = u16::try_from(value) {
            let [low, high] = word.to_le_bytes();
            return self.write(&[b'M', low, high]);
        }
        if let Ok(word) = i32::try_from(value) {
            self.write(b"J")?;
            return self.write(&word.to_le_bytes());
        }
        // Two's complement in the fewest bytes, including the sign.
        let bits = if value < 0 { i128::BITS - value.leading_ones() } else { i128::BITS - value.leading_zeros() };
        let length = bits / 8 + 1;
        self.write(&[0x8a, length as u8])?;
        self.write(&value.to_le_bytes()[..length as usize])
    }

    pub fn text(&mut self, text: &str) -> io::Result<()> {
        if let Ok(length) = u8::try_from(text.len()) {
            self.write(&[0x8c, length])?;
        } else {
            let length = u32::try_from(text.len()).map_err(|_| io::Error::other("a string of 4 GiB or more"))?;
            self.write(b"X")?;
            self.write(&length.to_le_bytes())?;
        }
        self.write(text.as_bytes())
    }

    /// Puts the last written object into the memo. Containers must be put there before their items are written.
    pub fn remember(&mut self) -> io::Result<Slot> {
        let slot = self.slots;
        self.slots = slot.checked_add(1).ok_or_else(|| io::Error::other("more objects than a pickle can name"))?;
        self.write(b"\x94")?;
        Ok(Slot(slot))
    }

    pub fn again(&mut self, Slot(slot): Slot) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(slot) {
            return self.write(&[b'h', byte]);
        }
        self.write(b"j")?;
        self.write(&slot.to_le_bytes())
    }

    pub fn list(&mut self) -> io::Result<()> {
        self.write(b"]")
    }

    pub fn dictionary(&mut self) -> io::Result<()> {
        self.write(b"}")
    }

    /// Starts the items of the container that was just written.
    pub fn begin(&mut self) -> io::Result<()> {
        self.write(b"(")
    }

    pub fn append(&mut self) -> io::Result<()> {
        self.write(b"e")
    }

    /// Adds alternating keys and values to a dictionary.
    pub fn set(&mut self) -> io::Result<()> {
        self.write(b"u")
    }

    pub fn pair(&mut self, (first, second): (u64, u64)) -> io::Result<()> {
        self.integer(first)?;
        self.integer(second)?;
        self.write(b"\x86")
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(write: impl FnOnce(&mut Pickle<'_>) -> io::Result<()>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut pickle = Pickle::new(&mut out).unwrap();
        write(&mut pickle).unwrap();
        pickle.finish().unwrap();
        out
    }

    #[test]
    fn integers_are_read_as_they_were() {
        let edges = [0, 255, 256, 65535, 65536, i128::from(i32::MAX), i128::from(u64::MAX), i128::from(i64::MIN)];
        for value in edges.into_iter().flat_map(|edge| [edge, edge + 1, edge - 1, -edge]) {
            let bytes = written(|pickle| pickle.integer(value));
            let read = serde_pickle::value_from_slice(&bytes, serde_pickle::DeOptions::new()).unwrap();
            let read = match read {
                serde_pickle::Value::I64(read) => read.to_string(),
                serde_pickle::Value::Int(read) => read.to_string(),
                other => panic!("{other:?}"),
            };
            assert_eq!(read, value.to_string());
        }
    }

    #[test]
    fn containers_and_the_memo_are_read_as_written() {
        let bytes = written(|pickle| {
            pickle.list()?;
            pickle.remember()?;
            pickle.begin()?;
            for item in 0..300u64 {
                pickle.text(&item.to_string())?;
                let slot = pickle.remember()?;
                pickle.dictionary()?;
                pickle.begin()?;
                pickle.again(slot)?;
                pickle.pair((item, 1 << 40))?;
                pickle.set()?;
                pickle.boolean(item == 7)?;
                pickle.float(0.25)?;
            }
            pickle.append()
        });
        let read: serde_json::Value = serde_pickle::from_slice(&bytes, serde_pickle::DeOptions::new()).unwrap();
        let item = |item: u64| {
            let text = item.to_string();
            [json!(text), json!({ text: [item, 1u64 << 40] }), json!(item == 7), json!(0.25)]
        };
        assert_eq!(read, (0..300).flat_map(item).collect::<serde_json::Value>());
    }
}
