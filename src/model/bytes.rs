//! Byte counts for people: written as PyTorch writes them, and read back from flags.

use std::fmt;

/// A number of bytes, displayed as PyTorch does in its own messages: `512 bytes`, `20.00 KiB`, `4.15 GiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            bytes if bytes < KIB => format!("{bytes} bytes"),
            bytes if bytes < MIB => format!("{:.2} KiB", bytes as f64 / KIB as f64),
            bytes if bytes < GIB => format!("{:.2} MiB", bytes as f64 / MIB as f64),
            bytes => format!("{:.2} GiB", bytes as f64 / GIB as f64),
        };
        out.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_like_pytorch() {
        assert_eq!(Bytes(0).to_string(), "0 bytes");
        assert_eq!(Bytes(1023).to_string(), "1023 bytes");
        assert_eq!(Bytes(1024).to_string(), "1.00 KiB");
        assert_eq!(Bytes(20 << 20).to_string(), "20.00 MiB");
        assert_eq!(Bytes(4_453_794_816).to_string(), "4.15 GiB");
    }
}
