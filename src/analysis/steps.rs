//! The steps of a program: from annotations, or from what repeats.

use super::annotations::Annotations;
use super::repetition;
use super::sites::Sites;
use crate::error::{Error, Result};
use crate::model::{Snapshot, StrId};
use crate::replay::{History, Instant};
use indexmap::IndexMap;
use regex::Regex;
use std::borrow::Cow;

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
    /// There are no annotations, and the allocations do not repeat.
    NoAnnotations,
    /// No annotation repeats, and neither do the allocations.
    NoRepetition,
}

/// What stands for steps in a recording: worked out once for all its devices.
#[derive(Clone, Debug)]
pub(super) enum StepRule {
    /// Ranges that end at these times, in order.
    Ranges(Vec<i64>, StepSource),
    /// Whatever repeats. Holds what to say when nothing does.
    Repetition(NoSteps),
}

impl StepRule {
    /// The ranges whose names match `pattern`, else those of the annotations that look most like steps
    /// (`ProfilerStep#N`, then `step_N` and the like, then whatever repeats on the outermost level), else the
    /// repetition of the allocations themselves.
    ///
    /// # Errors
    /// When `pattern` matches no range.
    pub(super) fn of(snapshot: &Snapshot, annotations: &Annotations, pattern: Option<&Regex>) -> Result<Self> {
        let (ranges, source) = match (pattern, likely_steps(snapshot, annotations)) {
            (Some(pattern), _) => {
                (requested(snapshot, annotations, pattern)?, StepSource::Requested(pattern.as_str().to_owned()))
            }
            (None, Some(family)) => (family.ranges, StepSource::Annotations(family.name)),
            (None, None) if annotations.ranges.is_empty() => return Ok(Self::Repetition(NoSteps::NoAnnotations)),
            (None, None) => return Ok(Self::Repetition(NoSteps::NoRepetition)),
        };
        // Ranges come in the order of their starts. Those inside another one are part of it, and those whose end was not
        // recorded are no steps. Where only the start is missing nobody knows what is inside.
        let mut over = i64::MIN;
        let mut ends = Vec::new();
        for range in ranges.into_iter().filter_map(|index| annotations.ranges.get(index)) {
            if range.end_us == i64::MAX {
                continue;
            }
            if range.start_us == i64::MIN {
                ends.push(range.end_us);
            } else if range.start_us >= over {
                ends.push(range.end_us);
                over = range.end_us;
            }
        }
        ends.sort_unstable();
        Ok(Self::Ranges(ends, source))
    }

    /// The steps of one device.
    pub(super) fn steps(
        &self,
        snapshot: &Snapshot,
        history: &History,
        sites: &Sites<'_>,
    ) -> std::result::Result<Steps, NoSteps> {
        let times = snapshot.entries.times().get(history.rows.clone()).unwrap_or(&[]);
        let Some(&first) = times.first() else { return Err(NoSteps::NoHistory) };
        match self {
            Self::Ranges(ends, source) => {
                // Those that were over before the first entry are none.
                let ends = &ends[ends.partition_point(|&end| end <= first)..];
                let mut ends: Vec<Instant> =
                    ends.iter().map(|&end| times.partition_point(|&time| time < end) as Instant).collect();
                // Times of a damaged file can go back.
                ends.sort_unstable();
                Ok(Steps { ends, source: source.clone() })
            }
            Self::Repetition(otherwise) => {
                let found = repetition::find(snapshot, history).ok_or(*otherwise)?;
                Ok(Steps { ends: found.ends, source: StepSource::Inferred(sites.site(found.stack)) })
            }
        }
    }
}

impl Steps {
    /// Number of steps.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
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

/// A name with an `N` in place of each number.
pub(super) fn without_numbers(name: &str) -> Cow<'_, str> {
    if !name.contains(|next: char| next.is_ascii_digit()) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len());
    for part in name.chars().collect::<Vec<_>>().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
        if part[0].is_ascii_digit() { text.push('N') } else { text.extend(part) }
    }
    Cow::Owned(text)
}

/// The family of annotations that stands for steps. One numbered like steps counts even if there is a single one; of
/// the others those that return, on the outermost level on which any does.
fn likely_steps(snapshot: &Snapshot, annotations: &Annotations) -> Option<Family> {
    let mut families: IndexMap<Cow<'_, str>, (Family, StrId)> = IndexMap::new();
    for (index, range) in annotations.ranges.iter().enumerate() {
        let name = snapshot.strings.get(range.name);
        let stem = name.trim_end_matches(|next: char| next.is_ascii_digit());
        // Steps are numbered anew in each epoch: `epoch0_step3` and `epoch1_step3` are of one family.
        let stem = match Likeness::of(stem, stem.len() < name.len()) {
            Likeness::Numbered => without_numbers(stem),
            _ => Cow::Borrowed(stem),
        };
        let new = || {
            let family = Family { name: name.to_owned(), ranges: Vec::new(), duration: 0, depth: range.depth };
            (family, range.name)
        };
        let joint = format!("{stem}N");
        let (family, first) = families.entry(stem).or_insert_with(new);
        if *first != range.name {
            family.name = joint;
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
fn requested(snapshot: &Snapshot, annotations: &Annotations, pattern: &Regex) -> Result<Vec<usize>> {
    let matching = |&index: &usize| pattern.is_match(snapshot.strings.get(annotations.ranges[index].name));
    let ranges: Vec<usize> = (0..annotations.ranges.len()).filter(matching).collect();
    if ranges.is_empty() {
        let known = super::when::known_names(snapshot, annotations);
        return Err(Error::Request(format!("expected annotations that match {:?}, {known}", pattern.as_str())));
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_are_numbered_anew_in_each_epoch_are_one_family() {
        assert_eq!(without_numbers("epoch0_step"), "epochN_step");
        assert_eq!(without_numbers("run12/epoch3_iter"), "runN/epochN_iter");
        assert_eq!(without_numbers("step_"), "step_");
    }
}
