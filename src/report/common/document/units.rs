//! Sizes in a column of a table, all in one unit, so that they can be compared at a glance.

const UNITS: [(u128, &str); 4] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")];
const GIB: u128 = 1 << 30;

/// A unit and a number of decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    bytes: u128,
    name: &'static str,
    decimals: usize,
}

impl Unit {
    /// The unit of the largest of these sizes; `None` if there are none.
    pub(super) fn of(sizes: impl Iterator<Item = i128> + Clone) -> Option<Self> {
        let sizes = sizes.map(i128::unsigned_abs);
        let largest = sizes.clone().max()?;
        let (bytes, name) = UNITS.into_iter().find(|&(unit, _)| largest >= unit).unwrap_or((1, "bytes"));
        let decimals = match bytes {
            1 => 0,
            // The third decimal tells whole MiB.
            GIB if sizes.clone().any(|size| size > 0 && size < GIB / 10) => 3,
            _ => 2,
        };
        Some(Self { bytes, name, decimals })
    }

    /// A size with its unit. `<0.01 MiB` stands for a size that would be shown as nothing.
    pub(super) fn shown(self, size: i128) -> String {
        let Self { bytes, name, decimals } = self;
        let sign = if size < 0 { "-" } else { "" };
        let number = match size.unsigned_abs() {
            0 => "0".to_owned(),
            size => format!("{:.decimals$}", size as f64 / bytes as f64),
        };
        if size != 0 && number.bytes().all(|digit| matches!(digit, b'0' | b'.')) {
            return format!("{sign}<{}1 {name}", &number[..number.len() - 1]);
        }
        format!("{sign}{number} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sizes: &[i128]) -> Vec<String> {
        let unit = Unit::of(sizes.iter().copied()).unwrap();
        sizes.iter().map(|&size| unit.shown(size)).collect()
    }

    #[test]
    fn a_column_has_one_unit() {
        assert_eq!(shown(&[4 << 30, 512 << 20]), ["4.00 GiB", "0.50 GiB"]);
        assert_eq!(shown(&[4 << 30, 5 << 20, 512, 0]), ["4.000 GiB", "0.005 GiB", "<0.001 GiB", "0 GiB"]);
        assert_eq!(shown(&[1000 << 20, 16 << 10, -(3 << 20)]), ["1000.00 MiB", "0.02 MiB", "-3.00 MiB"]);
        assert_eq!(shown(&[8, 160]), ["8 bytes", "160 bytes"]);
        assert_eq!(shown(&[0]), ["0 bytes"]);
        assert_eq!(Unit::of(std::iter::empty()), None);
    }
}
