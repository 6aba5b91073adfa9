//! The steps of a program: from annotations, or from what repeats.

use super::annotations::Annotations;
use super::repetition;
use super::sites::Sites;
use crate::error::{Error, Result};
use crate::model::{Snapshot, StrId};
use crate::replay::{History, Instant};
use indexmap::IndexMap;
use regex::Regex;
use std::fmt;

/// The steps of one device's history. A step reaches from the end of the one before it (the first one from the start
/// of the recording) to its own end, so that what happens between two annotations is part of the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The instant at which each step ends, in order.
    pub ends: Vec<Instant>,
    /// How they were found.
    pub source: StepSource,
}

/// How steps were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepSource {
    /// By `record_function` ranges of this name, with `N` in place of numbers that differ.
    Annotations(String),
    /// By the ranges that an expression asked for.
    Requested(String),
    /// Inferred: the allocations of this site return again and again at the same distance.
    Inferred(String),
}

impl StepSource {
    /// Whether steps are inferred rather than recorded.
    pub fn is_inferred(&self) -> bool {
        matches!(self, Self::Inferred(_))
    }
}

/// Why there are no steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSteps {
    /// The recording has no entries of this device.
    NoHistory,
    /// No annotation repeats, and neither does the history.
    NoRepetition,
}

impl fmt::Display for NoSteps {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NoHistory => "no history was recorded",
            Self::NoRepetition => "no annotation repeats, and neither do the allocations",
        })
    }
}

impl Steps {
    /// Finds the steps of a history: the ranges whose names match `pattern`, else those of the annotations that look
    /// most like steps (`ProfilerStep#N`, then `step_N` and the like, then whatever repeats on the outermost level),
    /// else the repetition of the allocations themselves.
    ///
    /// # Errors
    /// When `pattern` matches no range.
    pub fn find(
        snapshot: &Snapshot,
        history: &History,
        annotations: &Annotations,
        sites: &Sites<'_>,
        pattern: Option<&Regex>,
    ) -> Result<std::result::Result<Self, NoSteps>> {
        let by_ranges = match pattern {
            Some(pattern) => {
                let family = requested(snapshot, annotations, pattern)?;
                Some((family, StepSource::Requested(pattern.as_str().to_owned())))
            }
            None => families(snapshot, annotations).map(|family| {
                let name = family.name.clone();
                (family, StepSource::Annotations(name))
            }),
        };
        if history.entries() == 0 {
            return Ok(Err(NoSteps::NoHistory));
        }
        if let Some((family, source)) = by_ranges {
            return Ok(Ok(Self { ends: ends(snapshot, history, annotations, &family), source }));
        }
        let found = repetition::find(snapshot, history);
        Ok(found.map_or(Err(NoSteps::NoRepetition), |repetition| {
            Ok(Self { ends: repetition.ends, source: StepSource::Inferred(sites.site(repetition.stack)) })
        }))
    }

    /// Number of steps.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The step, counted from 0, that an instant belongs to; [`Steps::len`] after the last one.
    pub fn step_of(&self, instant: Instant) -> usize {
        self.ends.partition_point(|&end| end < instant)
    }
}

/// Ranges whose names differ in their number only.
#[derive(Clone, Debug)]
struct Family {
    /// Their name, with `N` in place of the number if it differs.
    name: String,
    /// Indexes into [`Annotations::ranges`], in the order of their starts.
    ranges: Vec<usize>,
    /// Microseconds in all of them.
    duration: i128,
    /// Depth of the outermost one.
    depth: usize,
}

/// How much a name looks like that of a step; the smallest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// What `torch.profiler` calls a step.
    ProfilerStep,
    /// `step_N`, `train_step 3`, `iteration-7`.
    Numbered,
    /// A repeated range that speaks of a step, such as `Optimizer.step#AdamW.step`.
    Named,
    /// Any other.
    Other,
}

impl Likeness {
    fn of(stem: &str, numbered: bool) -> Self {
        let words = stem.trim_end_matches(|next: char| !next.is_alphanumeric()).to_ascii_lowercase();
        let speaks_of_step = ["step", "iteration", "iter", "batch"].iter().any(|word| words.ends_with(word));
        match (stem, numbered && speaks_of_step) {
            ("ProfilerStep#", true) => Self::ProfilerStep,
            (_, true) => Self::Numbered,
            _ if words.contains("step") => Self::Named,
            _ => Self::Other,
        }
    }
}

/// The family of annotations that stands for steps. One numbered like steps counts even if there is a single one; of
/// the others those that return, on the outermost level on which any does.
fn families(snapshot: &Snapshot, annotations: &Annotations) -> Option<Family> {
    let mut families: IndexMap<&str, (Family, StrId)> = IndexMap::new();
    for (index, range) in annotations.ranges.iter().enumerate() {
        let name = snapshot.strings.get(range.name);
        let stem = name.trim_end_matches(|next: char| next.is_ascii_digit());
        let new = || {
            let family = Family { name: name.to_owned(), ranges: Vec::new(), duration: 0, depth: range.depth };
            (family, range.name)
        };
        let (family, first) = families.entry(stem).or_insert_with(new);
        if *first != range.name {
            family.name = format!("{stem}N");
        }
        family.ranges.push(index);
        family.duration += i128::from(range.end_us) - i128::from(range.start_us);
        family.depth = family.depth.min(range.depth);
    }
    let likeness = |stem: &str, name: &str| Likeness::of(stem, stem.len() < name.len());
    let steps = families.iter().filter_map(|(stem, (family, first))| {
        let likeness = likeness(stem, snapshot.strings.get(*first));
        let numbered = likeness <= Likeness::Numbered;
        // On other than the outermost level only what is numbered stands for steps.
        let depth = if numbered { 0 } else { family.depth };
        (numbered || family.ranges.len() > 1).then_some(((depth, likeness, -family.duration), family))
    });
    // The first one of equals, which makes the choice independent of anything but the file.
    steps.min_by_key(|&(rank, _)| rank).map(|(_, family)| family.clone())
}

/// The ranges that an expression asks for.
fn requested(snapshot: &Snapshot, annotations: &Annotations, pattern: &Regex) -> Result<Family> {
    let matching = |&index: &usize| pattern.is_match(snapshot.strings.get(annotations.ranges[index].name));
    let ranges: Vec<usize> = (0..annotations.ranges.len()).filter(matching).collect();
    if ranges.is_empty() {
        let known = super::when::known_names(snapshot, annotations);
        return Err(Error::Request(format!("expected annotations that match {:?}, {known}", pattern.as_str())));
    }
    Ok(Family { name: pattern.as_str().to_owned(), ranges, duration: 0, depth: 0 })
}

/// Where the ranges of a family end in a history. Those inside another one of the family are part of it; those that
/// were over before the first entry, and those whose end was not recorded, are none.
fn ends(snapshot: &Snapshot, history: &History, annotations: &Annotations, family: &Family) -> Vec<Instant> {
    let times = snapshot.entries.times().get(history.rows.clone()).unwrap_or(&[]);
    let first = times.first().copied().unwrap_or(i64::MAX);
    let mut over = i64::MIN;
    let mut ends = Vec::new();
    for range in family.ranges.iter().filter_map(|&index| annotations.ranges.get(index)) {
        let inside = range.start_us < over;
        if !inside && range.end_us != i64::MAX && range.end_us > first {
            ends.push(times.partition_point(|&time| time < range.end_us) as Instant);
        }
        over = over.max(range.end_us);
    }
    // Times of a damaged file can go back.
    ends.sort_unstable();
    ends
}
