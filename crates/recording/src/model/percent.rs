//! Percentages as people type them, stored exactly: a budget must not depend on the rounding of a float.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

const UNITS: u64 = 1_000_000;

/// A percentage of something, to a millionth of a percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u64);

impl Percent {
    pub const ALL: Self = Self(100 * UNITS);

    /// This percentage of a number of bytes, rounded down.
    pub fn of(self, bytes: u64) -> u64 {
        let part = u128::from(bytes) * u128::from(self.0) / u128::from(Self::ALL.0);
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    pub fn covers(self, part: u64, whole: u64) -> bool {
        u128::from(part) * u128::from(Self::ALL.0) <= u128::from(whole) * u128::from(self.0)
    }

    /// The percentage as a fraction: 1 is 100%; it may be higher.
    pub fn share(self) -> f64 {
        self.0 as f64 / Self::ALL.0 as f64
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{}.{:06}", self.0 / UNITS, self.0 % UNITS);
        out.pad(&format!("{}%", digits.trim_end_matches('0').trim_end_matches('.')))
    }
}

impl FromStr for Percent {
    type Err = Error;

    /// Reads `30%`, `2.5 %` or `30`.
    ///
    /// # Errors
    /// If the text is not a percentage, is finer than a millionth of a percent, or exceeds a million percent.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::Request(format!("expected a percentage such as 30% or 2.5%, found {text:?}"));
        let number = text.strip_suffix('%').unwrap_or(text).trim_end();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| (1..=6).contains(&text.len()) && text.bytes().all(|next| next.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(bad());
        }
        let whole: u64 = whole.parse().map_err(|_| bad())?;
        let fraction: u64 = format!("{fraction:0<6}").parse().map_err(|_| bad())?;
        Ok(Self(whole * UNITS + fraction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(text: &str) -> Percent {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn reads_percentages_as_people_type_them() {
        for (text, shown) in
            [("30%", "30%"), ("30", "30%"), ("2.50 %", "2.5%"), ("0.000001%", "0.000001%"), ("0", "0%")]
        {
            assert_eq!(percent(text).to_string(), shown);
        }
        for bad in
            ["", "%", "-1%", "+1%", "1e2%", ".5%", "5.%", "1.2.3%", "0.0000001%", "1000000%", "30%%", " 30%", "NaN"]
        {
            let error = bad.parse::<Percent>().expect_err(bad).to_string();
            assert!(error.contains("30%") && error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn parts_are_exact() {
        assert_eq!(percent("90%").of(80 << 30), 77_309_411_328);
        assert_eq!(percent("33.333333%").of(3), 0);
        assert_eq!(percent("100%").of(u64::MAX), u64::MAX);
        assert_eq!(percent("200%").of(u64::MAX), u64::MAX);
        // As floats, a third and these two would be equal.
        assert!(percent("50%").covers(1 << 62, 1 << 63));
        assert!(!percent("50%").covers((1 << 62) + 1, 1 << 63));
        assert!(percent("0%").covers(0, 0) && percent("0%").covers(0, 5) && !percent("0%").covers(1, 5));
    }
}
