//! Which rank a file is from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a rank's number is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RankSource {
    /// From the recording itself: `distributedInfo` of a profiler trace.
    Recorded,
    /// From the path.
    Path,
    /// It is the place among the inputs, counted from 0.
    Order,
}

/// A rank's number and where it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankNumber {
    /// The number.
    pub rank: u64,
    /// Where it is from.
    pub source: RankSource,
}

/// Longest number in a name that is taken for a rank where the name does not say so: what is longer is a time.
const DIGITS: usize = 6;

/// The ranks of files by their paths, which is all there is before they are read.
///
/// - The number behind `rank` (`rank5`, `rank_5`, `rank-5`), in the file's name or else in the folder next to it.
/// - Where names without `rank` have numbers that tell them apart, the last one in the name (`mem.5.pickle`).
/// - Otherwise the place in the list.
pub fn rank_numbers(paths: &[&str]) -> Vec<RankNumber> {
    let named: Vec<Option<u64>> = paths.iter().map(|path| number_behind_rank(path)).collect();
    let plain: Vec<Option<u64>> = paths.iter().map(|path| last_number(path)).collect();
    let mut numbers: Vec<Option<u64>> =
        named.iter().zip(&plain).filter(|(named, _)| named.is_none()).map(|(_, &plain)| plain).collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    let plain_tell = numbers.len() == count && numbers.iter().all(Option::is_some);
    let number = |(index, (named, plain)): (usize, (Option<u64>, Option<u64>))| {
        let (rank, source) = match named.or(plain.filter(|_| plain_tell)) {
            Some(rank) => (rank, RankSource::Path),
            None => (index as u64, RankSource::Order),
        };
        RankNumber { rank, source }
    };
    named.into_iter().zip(plain).enumerate().map(number).collect()
}

/// The number behind the word `rank` in the innermost part of a path that has one.
fn number_behind_rank(path: &str) -> Option<u64> {
    path.rsplit(['/', '\\']).find_map(|part| {
        let lower = part.to_ascii_lowercase();
        lower.rmatch_indices("rank").find_map(|(at, word)| {
            let is_word = !lower[..at].ends_with(|before: char| before.is_alphanumeric());
            let behind = &lower[at + word.len()..];
            let behind = behind.strip_prefix(['_', '-', '.', '=']).unwrap_or(behind);
            let digits = behind.find(|next: char| !next.is_ascii_digit()).unwrap_or(behind.len());
            behind[..digits].parse().ok().filter(|_| is_word)
        })
    })
}

/// The last number in a file's name, which ends where its extensions begin.
fn last_number(path: &str) -> Option<u64> {
    let name = path.rsplit(['/', '\\']).next()?;
    // `mem.5.pickle.gz`: an extension begins with a letter.
    let mut stem = name;
    while let Some((before, extension)) = stem.rsplit_once('.') {
        if before.is_empty() || !extension.starts_with(|first: char| first.is_ascii_alphabetic()) {
            break;
        }
        stem = before;
    }
    let end = stem.rfind(|next: char| next.is_ascii_digit())? + 1;
    let start = stem[..end]
        .rfind(|next: char| !next.is_ascii_digit())
        .map_or(0, |at| at + stem[at..].chars().next().map_or(1, char::len_utf8));
    stem[start..end].parse().ok().filter(|_| end - start <= DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(paths: &[&str]) -> Vec<(u64, RankSource)> {
        rank_numbers(paths).into_iter().map(|number| (number.rank, number.source)).collect()
    }

    #[test]
    fn a_name_that_says_rank_is_believed() {
        for (path, rank) in [
            ("rank5.pickle", 5),
            ("run2/iteration_10/rank7_memory_snapshot.pickle", 7),
            ("node1-rank-12.pickle.gz", 12),
            ("RANK_3.pickle", 3),
            ("out/rank=4/snapshot.pickle", 4),
            ("out\\rank9\\snapshot.pickle", 9),
            ("rank1/rank2.pickle", 2),
        ] {
            assert_eq!(numbers(&[path]), [(rank, RankSource::Path)], "{path}");
        }
        assert_eq!(numbers(&["pagerank3/a.pickle", "b.pickle"]), [(0, RankSource::Order), (1, RankSource::Order)]);
        let huge = "rank99999999999999999999999.pickle";
        assert_eq!(numbers(&[huge]), [(0, RankSource::Order)]);
    }

    #[test]
    fn other_numbers_count_where_they_tell_files_apart() {
        let path = RankSource::Path;
        assert_eq!(numbers(&["mem.0.pickle", "mem.1.pickle.gz"]), [(0, path), (1, path)]);
        assert_eq!(numbers(&["step10_host3.json", "step10_host4.json"]), [(3, path), (4, path)]);
        assert_eq!(numbers(&["é7é.pickle", "é8é.pickle"]), [(7, path), (8, path)]);
        let order = RankSource::Order;
        assert_eq!(numbers(&["a_10.pickle", "b_10.pickle"]), [(0, order), (1, order)]);
        assert_eq!(numbers(&["a_1.pickle", "snapshot.pickle"]), [(0, order), (1, order)]);
        assert_eq!(numbers(&["20261121103000.pickle", "20261121103001.pickle"]), [(0, order), (1, order)]);
        assert_eq!(numbers(&["x.pickle", "rank7.pickle"]), [(0, order), (7, path)]);
    }
}
