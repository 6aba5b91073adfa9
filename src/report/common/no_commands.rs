//! Writes JSON without text that a workflow runner would interpret as commands.

use serde::Serialize;
use std::io::{self, Write};

/// Writes one object on separate lines.
pub(crate) fn write(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(NoCommands::new(out), value)?;
    writeln!(out)
}

/// Writes JSON without `##[` and `##vso[`, which a workflow runner interprets as commands anywhere in a log: they can occur
/// only in strings, where the last character can be written as a numeric escape. As in [`safe`](super::notes::safe), any
/// letters may be in between.
pub(crate) struct NoCommands<'w> {
    out: &'w mut dyn Write,
    /// Number of `#` right before, or before the letters right before, up to two.
    signs: usize,
}

impl<'w> NoCommands<'w> {
    pub(crate) fn new(out: &'w mut dyn Write) -> Self {
        Self { out, signs: 0 }
    }
}

impl Write for NoCommands<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut from = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            if byte == b'[' && self.signs == 2 {
                self.out.write_all(&bytes[from..at])?;
                self.out.write_all(b"\\u005b")?;
                from = at + 1;
            }
            self.signs = match byte {
                b'#' => (self.signs + 1).min(2),
                // Letters that are not ASCII consist of other bytes.
                _ if self.signs == 2 && (byte.is_ascii_alphanumeric() || !byte.is_ascii()) => 2,
                _ => 0,
            };
        }
        self.out.write_all(&bytes[from..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_hold_no_commands_and_read_the_same() {
        let mut out = Vec::new();
        let value = ["##[error]x", "#[a] ##", "[", "###[b]", "##vso[task]", "##V\u{ad}SO[x]", "##vso [c]"];
        serde_json::to_writer(NoCommands::new(&mut out), &value).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains("##[") && !text.to_lowercase().contains("##vso["), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), value);
    }
}
