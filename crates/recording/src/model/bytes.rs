//! Byte counts for people: formatted as PyTorch formats them, and parsed from options.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// A number of bytes, displayed as PyTorch does in its own messages: `512 bytes`, `20.00 KiB`, `4.15 GiB`. Sizes are unsigned;
/// counters and differences are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes<N = u64>(pub N);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

impl<N: Copy + Into<i128>> fmt::Display for Bytes<N> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number: i128 = self.0.into();
        let sign = if number < 0 { "-" } else { "" };
        let text = match number.unsigned_abs() {
            bytes if bytes < KIB.into() => format!("{sign}{bytes} bytes"),
            bytes if bytes < MIB.into() => format!("{sign}{:.2} KiB", bytes as f64 / KIB as f64),
            bytes if bytes < GIB.into() => format!("{sign}{:.2} MiB", bytes as f64 / MIB as f64),
            bytes => format!("{sign}{:.2} GiB", bytes as f64 / GIB as f64),
        };
        out.pad(&text)
    }
}

impl Bytes {
    /// Parses a size close to the memory of a device: a number below 1 MiB without a unit, other than 0, is refused, since
    /// the unit was probably forgotten.
    ///
    /// # Errors
    /// If the text is not a size, or is implausible.
    pub fn of_device(text: &str) -> Result<Self, Error> {
        Self::unless_bare(text, MIB)
    }

    /// Parses the total memory of a device, which cannot be 0.
    ///
    /// # Errors
    /// If the text is not a size, or is implausible.
    pub fn of_capacity(text: &str) -> Result<Self, Error> {
        match Self::of_device(text)? {
            Self(0) => Err(Error::Request(format!("expected the memory of a device, such as 80GiB, found {text:?}"))),
            size => Ok(size),
        }
    }

    /// Parses additional bytes of a program: no block is smaller than 512 bytes, so a number below 512 without a unit, other
    /// than 0, is refused, since the unit was probably forgotten.
    ///
    /// # Errors
    /// If the text is not a size, or is implausible.
    pub fn of_blocks(text: &str) -> Result<Self, Error> {
        Self::unless_bare(text, 512)
    }

    /// Parses a size that must have a unit if it is smaller than `least`.
    fn unless_bare(text: &str, least: u64) -> Result<Self, Error> {
        let size: Self = text.parse()?;
        let is_bare = text.bytes().all(|next| next.is_ascii_digit());
        if is_bare && (1..least).contains(&size.0) {
            let message =
                format!("expected a unit, such as {text}GiB or {text}MiB, found {text:?} (write {text}B for bytes)");
            return Err(Error::Request(message));
        }
        Ok(size)
    }
}

impl FromStr for Bytes {
    type Err = Error;

    /// Parses a size as people type it: `40GiB`, `1.5 MiB`, `512`. `KiB`, `MiB`, `GiB` and `TiB`, which PyTorch prints, are
    /// powers of 1024; `KB`, `MB`, `GB` and `TB` are powers of 1000. A fraction of a byte is rounded to the nearest byte.
    ///
    /// # Errors
    /// If the text is not a size, or the size exceeds 2^64.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::Request(format!("expected a size such as 40GiB, 512MiB or 1048576, found {text:?}"));
        let number = text.trim_end_matches(|next: char| next.is_ascii_alphabetic());
        let unit = match text[number.len()..].to_ascii_lowercase().as_str() {
            "" | "b" | "byte" | "bytes" => 1,
            "kib" => KIB,
            "mib" => MIB,
            "gib" => GIB,
            "tib" => TIB,
            "kb" => 1000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(bad()),
        };
        let (whole, fraction) = number.trim_end().split_once('.').unwrap_or((number.trim_end(), "0"));
        // Twenty digits after the point are finer than a byte in any unit, and fit 128 bits.
        let digits = |text: &str| (1..=20).contains(&text.len()) && text.bytes().all(|next| next.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || (unit == 1 && number.contains('.')) {
            return Err(bad());
        }
        let whole: u64 = whole.parse().map_err(|_| bad())?;
        let fraction = format!("0.{fraction}").parse::<f64>().map_err(|_| bad())?;
        let fraction = (fraction * unit as f64).round() as u64;
        whole.checked_mul(unit).and_then(|bytes| bytes.checked_add(fraction)).map(Self).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes_as_people_type_them() {
        let size = |text: &str| text.parse::<Bytes>().map(|bytes| bytes.0).ok();
        assert_eq!(size("0"), Some(0));
        assert_eq!(size("512"), Some(512));
        assert_eq!(size("512 bytes"), Some(512));
        assert_eq!(size("20.00 KiB"), Some(20 << 10));
        assert_eq!(size("1.5MiB"), Some(3 << 19));
        assert_eq!(size("40GiB"), Some(40 << 30));
        assert_eq!(size("80gib"), Some(80 << 30));
        assert_eq!(size("2TiB"), Some(2 << 40));
        assert_eq!(size("40GB"), Some(40_000_000_000));
        assert_eq!(size("1.5 kB"), Some(1500));
        assert_eq!(size("18446744073709551615"), Some(u64::MAX));
        for bad in [
            "",
            "GiB",
            "10XB",
            "40G",
            "-1",
            "+1",
            "1e9",
            "1.5",
            "1.",
            ".5GiB",
            "1.2.3GiB",
            "4,5GiB",
            "18446744073709551616",
            "16777216TiB",
            "18446745TB",
            " 1",
            "NaN",
            "inf",
            "٤GiB",
        ] {
            let error = bad.parse::<Bytes>().map(|bytes| bytes.0).expect_err(bad).to_string();
            assert!(error.contains("40GiB") && error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn displays_like_pytorch() {
        assert_eq!(Bytes(0).to_string(), "0 bytes");
        assert_eq!(Bytes(1023).to_string(), "1023 bytes");
        assert_eq!(Bytes(1024).to_string(), "1.00 KiB");
        assert_eq!(Bytes(20 << 20).to_string(), "20.00 MiB");
        assert_eq!(Bytes(4_453_794_816_u64).to_string(), "4.15 GiB");
        assert_eq!(Bytes(-(3_i64 << 19)).to_string(), "-1.50 MiB");
    }
}
