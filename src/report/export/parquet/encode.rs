//! Values of a column as the bytes of a page.

use crate::analysis::export::{TableColumn, Values};
use foldhash::fast::RandomState;
use indexmap::IndexSet;

pub(super) const PLAIN: i64 = 0;
pub(super) const RLE: i64 = 3;
const DELTA: i64 = 5;
const DICTIONARY: i64 = 8;
/// Numbers in a block of differences, and in each of its parts, which have different widths.
const BLOCK: usize = 128;
const PART: usize = 32;
const MOST_NUMBERS: usize = 1 << 16;

pub(super) struct Encoded {
    pub encoding: i64,
    pub page: Vec<u8>,
    /// The number of values in the dictionary, and the values.
    pub dictionary: Option<(usize, Vec<u8>)>,
}

impl Encoded {
    pub(super) fn of(column: &TableColumn, from: usize, to: usize) -> Self {
        let present = column.present.as_ref().map(|present| &present[from..to]);
        let mut page = Vec::new();
        if let Some(present) = present {
            let levels = packed(present.iter().map(|&is_there| u64::from(is_there)), present.len(), 1);
            page.extend((levels.len() as u32).to_le_bytes());
            page.extend(levels);
        }
        let is_there = |at: usize| present.is_none_or(|present| present[at]);
        match &column.values {
            Values::Rising(all) => Self::differences(page, &kept(&all[from..to], is_there)),
            Values::Whole(all) => Self::numbers(page, &kept(&all[from..to], is_there)),
            Values::Unsigned(all) => {
                let signed: Vec<i64> = kept(&all[from..to], is_there).into_iter().map(u64::cast_signed).collect();
                Self::numbers(page, &signed)
            }
            Values::Flags(all) => {
                let flags = kept(&all[from..to], is_there);
                page.extend(bits(flags.iter().map(|&flag| u64::from(flag)), flags.len(), 1));
                Self { encoding: PLAIN, page, dictionary: None }
            }
            Values::Lines(all) => {
                let there = all[from..to].iter().enumerate().filter(|(at, _)| is_there(*at));
                for (_, text) in there {
                    put(text, &mut page);
                }
                Self { encoding: PLAIN, page, dictionary: None }
            }
            Values::Text(texts, all) => Self::texts(page, texts, &kept(&all[from..to], is_there)),
        }
    }

    /// Numbers as places in a dictionary, if they repeat; otherwise as differences.
    fn numbers(page: Vec<u8>, numbers: &[i64]) -> Self {
        let mut distinct = IndexSet::<i64, RandomState>::default();
        let most = MOST_NUMBERS.min(numbers.len() / 2);
        let mut places = Vec::with_capacity(numbers.len());
        for &number in numbers {
            places.push(distinct.insert_full(number).0 as u64);
            if distinct.len() > most {
                return Self::differences(page, numbers);
            }
        }
        let dictionary = distinct.iter().flat_map(|number| number.to_le_bytes()).collect();
        Self::places(page, &places, (distinct.len(), dictionary))
    }

    fn texts(mut page: Vec<u8>, texts: &[String], rows: &[u32]) -> Self {
        let mut used = IndexSet::<u32, RandomState>::default();
        let places: Vec<u64> = rows.iter().map(|&row| used.insert_full(row).0 as u64).collect();
        if used.len() > rows.len() / 2 {
            for &row in rows {
                put(&texts[row as usize], &mut page);
            }
            return Self { encoding: PLAIN, page, dictionary: None };
        }
        let mut dictionary = Vec::new();
        for &row in &used {
            put(&texts[row as usize], &mut dictionary);
        }
        Self::places(page, &places, (used.len(), dictionary))
    }

    fn places(mut page: Vec<u8>, places: &[u64], dictionary: (usize, Vec<u8>)) -> Self {
        // Some readers require at least one bit.
        let width = width(dictionary.0.saturating_sub(1) as u64).max(1);
        page.push(width);
        page.extend(packed(places.iter().copied(), places.len(), width));
        Self { encoding: DICTIONARY, page, dictionary: Some(dictionary) }
    }

    /// Differences from the previous number, minus the least difference of a block.
    fn differences(mut page: Vec<u8>, numbers: &[i64]) -> Self {
        varint(BLOCK as u64, &mut page);
        varint((BLOCK / PART) as u64, &mut page);
        varint(numbers.len() as u64, &mut page);
        varint(zigzag(numbers.first().copied().unwrap_or(0)), &mut page);
        let all: Vec<i64> = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        for block in all.chunks(BLOCK) {
            let least = block.iter().copied().min().unwrap_or(0);
            varint(zigzag(least), &mut page);
            let above: Vec<u64> =
                block.iter().map(|difference| difference.wrapping_sub(least).cast_unsigned()).collect();
            let parts = || above.chunks(PART);
            let widths: Vec<u8> = parts().map(|part| width(part.iter().copied().max().unwrap_or(0))).collect();
            page.extend((0..BLOCK / PART).map(|part| widths.get(part).copied().unwrap_or(0)));
            for (part, &width) in parts().zip(&widths) {
                let padded = part.iter().copied().chain(std::iter::repeat(0)).take(PART);
                page.extend(bits(padded, PART, width));
            }
        }
        Self { encoding: DELTA, page, dictionary: None }
    }
}

/// A text with its length in front.
fn put(text: &str, bytes: &mut Vec<u8>) {
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn kept<T: Copy>(values: &[T], is_there: impl Fn(usize) -> bool) -> Vec<T> {
    values.iter().enumerate().filter(|(at, _)| is_there(*at)).map(|(_, &value)| value).collect()
}

fn width(number: u64) -> u8 {
    (u64::BITS - number.leading_zeros()) as u8
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

fn varint(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Numbers of the same width, the lowest bits first.
fn bits(numbers: impl Iterator<Item = u64>, count: usize, width: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((count * usize::from(width)).div_ceil(8));
    let (mut waiting, mut filled) = (0_u128, 0_u32);
    for number in numbers {
        waiting |= u128::from(number) << filled;
        filled += u32::from(width);
        while filled >= 8 {
            bytes.push(waiting as u8);
            waiting >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        bytes.push(waiting as u8);
    }
    bytes
}

/// The same as one run of groups of eight.
fn packed(numbers: impl Iterator<Item = u64>, count: usize, width: u8) -> Vec<u8> {
    let groups = count.div_ceil(8);
    let mut bytes = Vec::new();
    varint((groups as u64) << 1 | 1, &mut bytes);
    bytes.extend(bits(numbers.chain(std::iter::repeat(0)).take(groups * 8), groups * 8, width));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_packed_from_the_lowest() {
        // The example of Parquet's documentation: 0 to 7 in three bits each.
        assert_eq!(bits(0..8, 8, 3), [0b1000_1000, 0b1100_0110, 0b1111_1010]);
        assert_eq!(packed([1, 0, 1].into_iter(), 3, 1), [3, 0b101]);
        assert_eq!(bits([u64::MAX, 1].into_iter(), 2, 64).len(), 16);
    }

    #[test]
    fn differences_are_those_of_the_documentation() {
        // 1, 2, 3, 4, 5: the least difference is 1, and the other differences are 0.
        let encoded = Encoded::differences(Vec::new(), &[1, 2, 3, 4, 5]);
        assert_eq!(encoded.page, [0x80, 0x01, 4, 5, 2, 2, 0, 0, 0, 0]);
    }
}
