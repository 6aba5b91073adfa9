//! Which rank a file is from.

use crate::wire::ranks::RankSource;
use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankNumber {
    pub rank: u64,
    pub source: RankSource,
}

/// The most digits of a number in a name that may be a rank if the name does not say so: a longer one is a time.
const DIGITS: usize = 6;

const OTHER_WORDS: [&str; 12] =
    ["step", "steps", "iter", "iteration", "epoch", "batch", "pid", "job", "port", "seed", "run", "attempt"];

/// Months as `strftime("%b")` writes them, which start a time: `host_Nov_21_10_30_00.pickle`.
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Numbers up to this may be ranks even if other ranks are missing; higher numbers count only if there are enough
/// files, see [`SPARSE`], since they are usually process IDs.
const SMALL: u64 = 999;
/// Ranks above [`SMALL`] may be at most this many times the number of files.
const SPARSE: u64 = 4;

/// The ranks of files from their paths, the only information before they are read.
///
/// - The number after `rank` (`rank5`, `rank_5`, `rank-5`), in the file's name, or else in the name of its folder.
/// - The six-digit number before `_step_`, as torchtitan writes it (`000005_step_10.pickle`).
/// - If the other names differ from each other only in numbers, the last number in each (`host5.pickle`); in a single name, a
///   number that is not part of a word (`mem.5.pickle`). Times, steps and process IDs do not count, and neither does one of
///   several coordinates (`TP-1-DP-0`).
/// - Otherwise, the position in the list.
pub fn rank_numbers(paths: &[&str]) -> Vec<RankNumber> {
    let named: Vec<Option<u64>> =
        paths.iter().map(|path| number_behind_rank(path).or_else(|| number_before_step(path))).collect();
    let plain: Vec<Option<Number>> = paths.iter().map(|path| last_number(path)).collect();
    let unnamed = || named.iter().zip(&plain).filter(|(named, _)| named.is_none()).map(|(_, plain)| plain);
    let count = unnamed().count();
    let mut numbers: Vec<u64> = unnamed().flatten().map(|number| number.value).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let is_padded = unnamed().flatten().all(|number| number.is_padded);
    let largest = if is_padded { u64::MAX } else { SMALL.max(SPARSE * count as u64) };
    let others: HashSet<Vec<String>> =
        paths.iter().zip(&named).filter(|(_, named)| named.is_none()).map(|(path, _)| without_numbers(path)).collect();
    // A number that is part of a word in a single name may be anything: `memory_ctx128.pickle`.
    let are_alike = others.len() == 1 && (count > 1 || unnamed().flatten().all(|number| number.is_word));
    let plain_tell = are_alike && numbers.len() == count && numbers.last().is_none_or(|&last| last <= largest);
    let number = |(index, (named, plain)): (usize, (Option<u64>, Option<Number>))| {
        let plain = plain.filter(|_| plain_tell).map(|number| number.value);
        let (rank, source) = match named.or(plain) {
            Some(rank) => (rank, RankSource::Path),
            None => (index as u64, RankSource::Order),
        };
        RankNumber { rank, source }
    };
    named.into_iter().zip(plain).enumerate().map(number).collect()
}

/// The six-digit number at the start of a file's name, before `_step_`.
fn number_before_step(path: &str) -> Option<u64> {
    let (digits, rest) = file_name(path).split_at_checked(6)?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number && rest.starts_with("_step_"))
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

pub(super) fn says_rank(path: &str) -> bool {
    number_behind_rank(path).is_some() || number_before_step(path).is_some()
}

/// The number after the word `rank` in the innermost part of a path that contains one.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    value: u64,
    /// Whether it was written with leading zeros, unlike process IDs.
    is_padded: bool,
    /// Whether no letter is next to it.
    is_word: bool,
}

fn stem(path: &str) -> String {
    // `mem.5.pickle.gz`: an extension starts with a letter.
    let mut stem = file_name(path);
    while let Some((before, extension)) = stem.rsplit_once('.') {
        if before.is_empty() || !extension.starts_with(|first: char| first.is_ascii_alphabetic()) {
            break;
        }
        stem = before;
    }
    stem.to_ascii_lowercase()
}

/// The parts of a file's name between its numbers, without extensions.
fn without_numbers(path: &str) -> Vec<String> {
    let stem = stem(path);
    let parts = stem.split(|next: char| next.is_ascii_digit()).filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

fn last_number(path: &str) -> Option<Number> {
    let stem = stem(path);
    let parts = parts(&stem);
    let word = |index: usize| parts.get(index).copied().unwrap_or_default();
    let is_number = |index: usize| word(index).starts_with(|first: char| first.is_ascii_digit());
    let is_coordinate = |index: usize| ["tp", "dp", "pp", "ep", "cp"].contains(&word(index)) && is_number(index + 1);
    if (0..parts.len()).filter(|&index| is_coordinate(index)).count() > 1 {
        return None;
    }
    // Numbers that belong to a time: after a month, or three two-digit numbers in a row.
    let is_pair = |index: usize| word(index).len() == 2 && is_number(index);
    let is_year = |index: usize| word(index).len() == 4 && is_pair(index + 1) && is_pair(index + 2);
    let is_date = |index: usize| is_number(index) && (is_year(index) || word(index).len() == 8);
    let begins_time = |index: usize| {
        (MONTHS.contains(&word(index)) && is_pair(index + 1)) || is_date(index) || (index..index + 3).all(is_pair)
    };
    let mut end_of_time = 0;
    let mut found = None;
    for index in 0..parts.len() {
        if begins_time(index) {
            end_of_time =
                (index + 1..parts.len()).find(|&next| !is_pair(next) && word(next).len() != 6).unwrap_or(parts.len());
        }
        let part = word(index);
        let is_other = index > 0 && OTHER_WORDS.contains(&word(index - 1));
        // `8b` is the size of a model.
        let has_letters = !part.bytes().all(|byte| byte.is_ascii_digit());
        if is_number(index) && index >= end_of_time && !is_other && !has_letters && part.len() <= DIGITS {
            let is_padded = part.len() > 1 && part.starts_with('0');
            let is_word = stem.split(|next: char| !next.is_alphanumeric()).any(|word| word == part);
            found = part.parse().ok().map(|value| Number { value, is_padded, is_word });
        }
    }
    found
}

/// Words and numbers of a name: `node3_step-10` is `node`, `3`, `step`, `10`. A number followed by letters is one part with
/// them.
fn parts(stem: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in stem.split(|next: char| !next.is_ascii_alphanumeric()) {
        let digits = part.find(|first: char| first.is_ascii_digit()).unwrap_or(part.len());
        let (word, number) = part.split_at(digits);
        parts.extend([word, number].into_iter().filter(|part| !part.is_empty()));
    }
    parts
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
        assert_eq!(numbers(&["forward_ctx128.pickle", "backward_ctx256.pickle"]), [(0, order), (1, order)]);
        assert_eq!(numbers(&["memory_ctx128_fullstep.pickle.gz"]), [(0, order)], "no other name has another number");
        assert_eq!(numbers(&["mem.5.pickle", "rank7.pickle"]), [(5, path), (7, path)]);
        assert_eq!(numbers(&["20261121103000.pickle", "20261121103001.pickle"]), [(0, order), (1, order)]);
        assert_eq!(numbers(&["x.pickle", "rank7.pickle"]), [(0, order), (7, path)]);
    }
    #[test]
    fn names_of_frameworks_are_read() {
        /// A framework, its file names, and their ranks: `None` if only the order remains.
        type Row = (&'static str, &'static [&'static str], Option<&'static [u64]>);
        let table: &[Row] = &[
            (
                "torchtitan",
                &["step_000000000010/000005_step_10.pickle", "step_000000000010_exit/000012_step_10.pickle"],
                Some(&[5, 12]),
            ),
            ("torchtitan before", &["iteration_10/rank3_memory_snapshot.pickle"], Some(&[3])),
            ("torchtitan traces", &["traces/iteration_10/rank11_trace.json.gz"], Some(&[11])),
            ("Megatron-LM", &["oom_rank-7_snapshot.pickle", "oom_rank-8_snapshot.pickle"], Some(&[7, 8])),
            ("Megatron-Bridge", &["memory_trace_0.pickle", "memory_trace_5.pickle"], Some(&[0, 5])),
            ("Megatron-Bridge, failed", &["memory_trace_oom_rank-6.pickle"], Some(&[6])),
            ("verl", &["20261121/actor_rank2_pid48213.pickle", "20261121/actor_rank3_pid48214.pickle"], Some(&[2, 3])),
            ("composer", &["rank4.25.memory_snapshot.pickle"], Some(&[4])),
            ("composer, failed", &["rank4.25_snapshot.pickle"], Some(&[4])),
            ("lmms-engine", &["oom_rank1.pickle", "snapshot_train_end_rank2.pickle"], Some(&[1, 2])),
            ("sglang", &["1763720000.12-TP-2-memory.pickle", "1763720000.14-TP-3-memory.pickle"], Some(&[2, 3])),
            (
                "sglang, replicated",
                &["1763720000.1-TP-2-DP-0-memory.pickle", "1763720000.1-TP-2-DP-1-memory.pickle"],
                None,
            ),
            ("PyTorch's recipe", &["node1_Nov_21_10_30_07.pickle", "node1_Nov_21_10_30_09.pickle"], None),
            ("the same with a process", &["node1.48213.snapshot.pickle", "node1.48214.snapshot.pickle"], None),
            ("axolotl", &["snapshot.pickle", "profiler_trace.json"], None),
            ("vLLM", &["load_model/snapshot.pickle", "kv_cache/snapshot.pickle"], None),
        ];
        for (framework, names, ranks) in table {
            let expected: Vec<(u64, RankSource)> = match ranks {
                Some(ranks) => ranks.iter().map(|&rank| (rank, RankSource::Path)).collect(),
                None => (0..names.len() as u64).map(|place| (place, RankSource::Order)).collect(),
            };
            assert_eq!(numbers(names), expected, "{framework}");
        }
    }

    #[test]
    fn times_steps_sizes_and_processes_are_no_ranks() {
        for names in [
            ["snapshot_step_100.pickle", "snapshot_step_200.pickle"],
            ["mem_2026-11-21_10-30-00.pickle", "mem_2026-11-21_10-30-07.pickle"],
            ["mem_20261121_103000.pickle", "mem_20261121_103007.pickle"],
            ["llama-8b.pickle", "llama-70b.pickle"],
            ["mem_pid71.pickle", "mem_pid72.pickle"],
            ["mem.4194.pickle", "mem.4201.pickle"],
            ["epoch3.pickle", "epoch4.pickle"],
        ] {
            assert_eq!(numbers(&names), [(0, RankSource::Order), (1, RankSource::Order)], "{names:?}");
        }
        let many: Vec<String> = (0..2000).map(|rank| format!("memory_trace_{rank}.pickle")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(numbers(&many)[1999], (1999, RankSource::Path));
        let padded = ["mem_004096.pickle", "mem_008000.pickle"];
        assert_eq!(numbers(&padded), [(4096, RankSource::Path), (8000, RankSource::Path)]);
    }
}
