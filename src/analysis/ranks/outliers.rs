//! The distribution of values of many ranks, and the outliers.
//!
//! The robust z-score of a value is `0.6745 * (value - median) / MAD`, where MAD is the median absolute deviation (Iglewicz
//! and Hoaglin, "How to Detect and Handle Outliers", 1993): unlike the mean and the standard deviation, it is not affected by
//! outliers. Ranks of one run often have equal peaks, and if more than half are equal, MAD is 0. The mean absolute deviation
//! is then used instead: `(value - median) / (1.2533 * mean deviation)`.

use serde::Serialize;

/// Fewer values than this are not judged.
pub const MIN_RANKS: usize = 4;
/// Values that differ from the median by less than this fraction of it are not outliers, even if the others differ less.
pub const MIN_SHARE: f64 = 0.01;

/// The median absolute deviation of a normal distribution, in standard deviations: its third quartile.
const MAD_OF_NORMAL: f64 = 0.6745;
/// The standard deviation of a normal distribution, in mean absolute deviations: the root of half of pi.
const DEVIATION_BY_MEAN: f64 = 1.2533;

/// The unit of deviations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// The median absolute deviation divided by 0.6745, which is the standard deviation of a normal distribution.
    MedianDeviation,
    /// The mean absolute deviation times 1.2533, for the same reason: used if more than half of the values are equal.
    MeanDeviation,
    /// All values are equal.
    AllEqual,
}

/// How a figure is distributed over ranks, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub count: usize,
    /// The lowest value, and the first row that has it.
    pub min: (i64, usize),
    /// The median; if two values are in the middle, their mean rounded down.
    pub median: i64,
    /// The highest value, and the first row that has it.
    pub max: (i64, usize),
    /// The unit of deviations in scores.
    pub scale: Scale,
}

impl Scale {
    /// A value with at least this score, above or below, is an outlier: 3.5, as the authors suggest. With the mean deviation,
    /// one of four values that differs from three equal ones has a score of 3.2, so the threshold is 3.0 there.
    pub fn threshold(self) -> f64 {
        if self == Self::MeanDeviation { 3.0 } else { 3.5 }
    }
}

impl Spread {
    /// The distribution of `values`; `rows` are their rows. `None` if there are no values.
    pub fn of(values: &[i64], rows: &[usize]) -> Option<Self> {
        let pairs = || values.iter().copied().zip(rows.iter().copied());
        let min = pairs().min_by_key(|&(value, _)| value)?;
        let max = pairs().rev().max_by_key(|&(value, _)| value)?;
        let twice_median = twice_median(values.iter().map(|&value| i128::from(value)).collect())?;
        let (scale, _) = deviation(values, twice_median);
        Some(Self { count: values.len(), min, median: twice_median.div_euclid(2) as i64, max, scale })
    }

    /// The highest value divided by the median: 1 if all are equal. `None` if the median is not positive.
    pub fn skew(&self) -> Option<f64> {
        (self.median > 0).then(|| self.max.0 as f64 / self.median as f64)
    }
}

/// Index, score and median of each outlier, in order.
pub fn outliers(values: &[i64]) -> Vec<(usize, f64, i64)> {
    let Some(twice_median) = twice_median(values.iter().map(|&value| i128::from(value)).collect()) else {
        return Vec::new();
    };
    let (scale, unit) = deviation(values, twice_median);
    if values.len() < MIN_RANKS || scale == Scale::AllEqual {
        return Vec::new();
    }
    let least = (twice_median as f64).abs() / 2.0 * MIN_SHARE;
    let judge = |(index, &value): (usize, &i64)| {
        let distance = (2 * i128::from(value) - twice_median) as f64 / 2.0;
        let score = distance / unit;
        let stands_out = score.abs() >= scale.threshold() && distance.abs() >= least;
        stands_out.then_some((index, score, twice_median.div_euclid(2) as i64))
    };
    values.iter().enumerate().filter_map(judge).collect()
}

/// Twice the median, which is a whole number.
fn twice_median(mut values: Vec<i128>) -> Option<i128> {
    values.sort_unstable();
    let upper = *values.get(values.len() / 2)?;
    Some(if values.len().is_multiple_of(2) { values[values.len() / 2 - 1] + upper } else { 2 * upper })
}

/// The unit of deviations from a median, and the bytes for a score of 1.
fn deviation(values: &[i64], twice_median_of_values: i128) -> (Scale, f64) {
    let doubled: Vec<i128> =
        values.iter().map(|&value| (2 * i128::from(value) - twice_median_of_values).abs()).collect();
    let mean = doubled.iter().sum::<i128>() as f64 / 2.0 / values.len().max(1) as f64;
    match twice_median(doubled) {
        Some(four_times @ 1..) => (Scale::MedianDeviation, four_times as f64 / 4.0 / MAD_OF_NORMAL),
        _ if mean > 0.0 => (Scale::MeanDeviation, DEVIATION_BY_MEAN * mean),
        _ => (Scale::AllEqual, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[i64]) -> Vec<usize> {
        outliers(values).into_iter().map(|(index, ..)| index).collect()
    }

    #[test]
    fn spreads_are_exact() {
        let spread = Spread::of(&[7, 1, 4, 9], &[10, 11, 12, 13]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), ((1, 11), 5, (9, 13)));
        assert_eq!(Spread::of(&[5, 3, 5, 3], &[0, 1, 2, 3]).map(|it| (it.min.1, it.max.1)), Some((1, 0)));
        assert_eq!(Spread::of(&[-3, -2], &[0, 1]).unwrap().median, -3, "-2.5 rounded down");
        assert_eq!(Spread::of(&[], &[]), None);
        let extreme = Spread::of(&[i64::MIN, i64::MAX, i64::MAX], &[0, 1, 2]).unwrap();
        assert_eq!((extreme.median, extreme.skew()), (i64::MAX, Some(1.0)));
        assert_eq!(Spread::of(&[0, 0, 5], &[0, 1, 2]).unwrap().skew(), None);
    }

    #[test]
    fn the_score_is_that_of_iglewicz_and_hoaglin() {
        // Median 5, deviations 4 3 2 1 0 1 2 3 95: their median is 2.
        let values = [1, 2, 3, 4, 5, 6, 7, 8, 100];
        let [(8, score, 5)] = outliers(&values)[..] else { panic!("{:?}", outliers(&values)) };
        assert!((score - 0.6745 * 95.0 / 2.0).abs() < 1e-9, "{score}");
    }

    #[test]
    fn where_most_are_equal_the_mean_deviation_counts() {
        // For example eight ranks, five of which are equal: only the distant one is an outlier.
        let values = [3974, 3974, 3974, 3563, 3974, 6469, 3974, 3148];
        assert_eq!(found(&values), [5]);
        assert_eq!(Spread::of(&values, &[0; 8]).unwrap().scale, Scale::MeanDeviation);
        assert_eq!(found(&[100, 100, 100, 200]), [3]);
        assert_eq!(found(&[100, 100, 100, 50]), [3]);
        assert_eq!(found(&[0, 0, 0, 0, 1]), [4]);
    }

    #[test]
    fn few_ranks_and_small_differences_are_not_judged() {
        assert_eq!(found(&[]), [] as [usize; 0]);
        assert_eq!(found(&[100, 100, 900]), [] as [usize; 0]);
        assert_eq!(found(&[100; 16]), [] as [usize; 0]);
        assert_eq!(found(&[100_000, 100_000, 100_000, 100_000, 100_000, 100_512]), [] as [usize; 0]);
        assert_eq!(found(&[100_000, 100_001, 100_002, 100_003, 100_004, 101_100]), [5]);
    }

    #[test]
    fn extreme_values_do_no_harm() {
        assert_eq!(found(&[0, 0, 0, 0, 0, i64::MAX]), [5]);
        assert_eq!(found(&[i64::MIN, i64::MIN, i64::MAX, i64::MAX]), [] as [usize; 0]);
        assert_eq!(found(&[i64::MIN, 0, 1, 2, i64::MAX]), [0, 4]);
    }
}
