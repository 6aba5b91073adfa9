//! Whether recordings are ranks of one run: whether they run the same code, at the same time.
//!
//! This cannot be proven, so it is assumed unless something contradicts it.

use super::code::Lines;
use super::number::says_rank;
use super::outliers::MIN_RANKS;
use crate::model::DeviceId;
use crate::wire::ranks::{RankLine, RankSource, RankSummary};
use indexmap::IndexMap;
use std::collections::{BTreeMap, HashMap};

/// Programs that share a smaller fraction of their lines run different code. Ranks of one run share nearly all lines,
/// stages of a pipeline the code of their layers; different programs share next to nothing by chance.
const SAME_CODE: f64 = 0.2;
/// Clocks of machines differ by less than this, in microseconds.
const CLOCKS_DIFFER: i64 = 1_000_000;
/// Number of programs that are distinguished; further ones count as the last one.
const MAX_PROGRAMS: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Relation {
    /// Ranks of one run, as far as is known.
    #[default]
    Ranks,
    /// They run different code: the rows of each program, without recordings that do not show enough of their code. There may be
    /// more programs: small ones may share lines by chance.
    Programs(Vec<Vec<usize>>),
    /// Their recordings start with the same entries: dumps of one process.
    Dumps,
    /// One after the other on the same devices: runs of one program, or dumps of one run.
    Apart {
        /// The shortest time between two of them, in microseconds.
        shortest_gap_us: i64,
        longest_gap_us: i64,
    },
}

impl Relation {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ranks => "ranks",
            Self::Programs(_) => "programs",
            Self::Dumps => "dumps",
            Self::Apart { .. } => "apart",
        }
    }

    pub(super) fn of(lines: &[RankLine], members: &[usize]) -> Self {
        let mut recordings: IndexMap<(&str, u64), RecordingRanks> = IndexMap::new();
        for (row, rank) in members.iter().filter_map(|&row| Some((row, lines.get(row)?.rank()?))) {
            recordings.entry((&rank.path, rank.rank)).or_default().add(row, rank);
        }
        let recordings: Vec<RecordingRanks> = recordings.into_values().collect();
        let programs = programs(&recordings);
        if programs.len() > 1 {
            return Self::Programs(programs);
        }
        if recordings.len() < 2 || recordings.iter().any(|recording| recording.claims_rank) {
            return Self::Ranks;
        }
        apart(&recordings).unwrap_or_default()
    }
}

impl Relation {
    /// The rows in `members` that are ranks of one run: all, or those of the program that most of them run, if these
    /// are enough to detect an outlier. Other recordings that are included by mistake do not hide outliers.
    pub fn comparable<'r>(&'r self, members: &'r [usize]) -> &'r [usize] {
        match self {
            Self::Ranks => members,
            Self::Programs(programs) => {
                let largest = programs.iter().max_by_key(|rows| rows.len());
                largest
                    .filter(|rows| rows.len() >= MIN_RANKS && rows.len() * 2 > members.len())
                    .map_or(&[], Vec::as_slice)
            }
            Self::Dumps | Self::Apart { .. } => &[],
        }
    }
}

/// Whether rows themselves state that they are ranks.
pub(super) fn claim_ranks<'r>(mut ranks: impl Iterator<Item = &'r RankSummary>) -> bool {
    ranks.any(claims_rank)
}

fn claims_rank(rank: &RankSummary) -> bool {
    rank.rank_source == RankSource::Recorded || says_rank(&rank.path)
}

#[derive(Default)]
struct RecordingRanks {
    rows: Vec<usize>,
    lines: Option<Lines>,
    /// First and last time of each device; `None` if it has none.
    times: BTreeMap<DeviceId, Option<(i64, i64)>>,
    claims_rank: bool,
}

impl RecordingRanks {
    fn add(&mut self, row: usize, rank: &RankSummary) {
        self.rows.push(row);
        self.times.insert(rank.device, rank.time_us);
        self.claims_rank |= claims_rank(rank);
        if let Some(code) = &rank.code {
            match &mut self.lines {
                Some(lines) => lines.join(&code.lines()),
                None => self.lines = Some(code.lines()),
            }
        }
    }

    fn span(&self) -> Option<(i64, i64)> {
        let times = self.times.values().copied().collect::<Option<Vec<_>>>()?;
        let (first, last) = (times.iter().map(|it| it.0).min()?, times.iter().map(|it| it.1).max()?);
        Some((first, last))
    }
}

/// The rows of each program. A recording belongs to the first program whose code it shares; recordings that do not show their
/// code belong to none.
fn programs(recordings: &[RecordingRanks]) -> Vec<Vec<usize>> {
    let mut programs: Vec<(&Lines, Vec<usize>)> = Vec::new();
    for recording in recordings {
        let Some(lines) = &recording.lines else { continue };
        if lines.overlap(lines).is_none() {
            continue;
        }
        let is_full = programs.len() == MAX_PROGRAMS;
        let shares = |known: &Lines| known.overlap(lines).is_none_or(|overlap| overlap >= SAME_CODE);
        match programs.iter_mut().find(|(known, _)| shares(known)) {
            Some((_, rows)) => rows.extend(&recording.rows),
            None if is_full => {
                if let Some((_, rows)) = programs.last_mut() {
                    rows.extend(&recording.rows);
                }
            }
            None => programs.push((lines, recording.rows.clone())),
        }
    }
    programs.into_iter().map(|(_, rows)| rows).collect()
}

/// How recordings of one program on the same devices are ordered in time, if they do not overlap.
fn apart(recordings: &[RecordingRanks]) -> Option<Relation> {
    let first = recordings.first()?;
    let same_devices = recordings.iter().all(|recording| recording.times.keys().eq(first.times.keys()));
    let mut spans = recordings.iter().map(RecordingRanks::span).collect::<Option<Vec<_>>>()?;
    if !same_devices {
        return None;
    }
    let begins = |recording: &RecordingRanks| -> HashMap<DeviceId, Option<i64>> {
        recording.times.iter().map(|(&device, times)| (device, times.map(|(first, _)| first))).collect()
    };
    if recordings.iter().all(|recording| begins(recording) == begins(first)) {
        return Some(Relation::Dumps);
    }
    spans.sort_unstable();
    let length = |(first, last): (i64, i64)| last.saturating_sub(first);
    let gap = |pair: &[(i64, i64)]| {
        let gap = pair[1].0.saturating_sub(pair[0].1);
        // If machines have different clocks, recordings of one run may seem not to overlap, but by no more than their length.
        (gap >= CLOCKS_DIFFER && gap >= length(pair[0]).max(length(pair[1]))).then_some(gap)
    };
    let gaps = spans.windows(2).map(gap).collect::<Option<Vec<i64>>>()?;
    Some(Relation::Apart { shortest_gap_us: *gaps.iter().min()?, longest_gap_us: *gaps.iter().max()? })
}
