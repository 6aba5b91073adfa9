//! The steps of a program: from annotations, or from the iterations of its loop.

use super::iterations::{IterationFinder, IterationKind, Iterations, Pass, StepRange};
use crate::error::{Error, Result};
use crate::facts::code::frames::FrameKind;
use crate::facts::code::sites::Sites;
use crate::facts::time::annotations::{AnnotationRange, Annotations};
use crate::facts::training::{CallPaths, Phase, Phases, Roles};
use crate::model::{Snapshot, StrId, Strings};
use crate::replay::{Instant, Track};
use crate::sorting::SortRows;
use indexmap::IndexMap;
use regex_lite::Regex;
use std::borrow::Cow;
use std::collections::HashSet;

/// The steps of one device's history. A step extends from the end of the previous one (the first one from the start of the
/// recording) to its own end, so everything between two annotations is part of the second one's step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The instant at which each step ends, in order.
    pub ends: Vec<Instant>,
    /// The name of each step, if they have numbers of their own, each another one; otherwise empty.
    names: Vec<String>,
    /// How they were found.
    pub source: StepSource,
    /// Annotated ranges that are named like steps but are not: they contain no backward pass although others do.
    pub left_out: usize,
    /// Steps without entries: the device was idle in them, or they use another clock.
    pub idle: usize,
}

/// How steps were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepSource {
    /// By `record_function` ranges with this name; `N` replaces numbers that differ.
    Annotations(String),
    /// By the ranges that match the user's expression.
    Requested(String),
    /// Inferred: iterations of the program's loop.
    Inferred {
        /// The event that marks an iteration.
        kind: IterationKind,
        /// The user's line that calls it, if it is known.
        site: Option<String>,
    },
}

impl StepSource {
    /// Whether steps are inferred rather than recorded.
    pub fn is_inferred(&self) -> bool {
        matches!(self, Self::Inferred { .. })
    }
}

/// Why there are no steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSteps {
    /// The recording has no entries for this device.
    NoHistory,
    /// No annotation names them, and there is no recognizable loop around forward and backward.
    Unknown,
}

/// The ranges that mark steps in a recording, computed once for all devices.
#[derive(Clone, Debug)]
pub(crate) struct StepRule {
    named: Option<Named>,
    /// Ranges of an optimizer's `step`, as PyTorch names them.
    optimizers: Vec<(StrId, (i64, i64))>,
}

/// Ranges that are named like steps.
#[derive(Clone, Debug)]
struct Named {
    /// Start, end and name, in the order of their ends.
    ranges: Vec<(i64, i64, StrId)>,
    source: StepSource,
}

/// The ranges that the user selects as steps.
#[derive(Clone, Debug)]
pub(crate) struct RequestedSteps(Named);

impl RequestedSteps {
    /// The ranges whose names match `pattern`.
    ///
    /// # Errors
    /// If there are none.
    pub(crate) fn of(snapshot: &Snapshot, annotations: &Annotations, pattern: &Regex) -> Result<Self> {
        let chosen = requested(snapshot, annotations, pattern)?;
        Ok(Self(Named::of(annotations, chosen, StepSource::Requested(pattern.as_str().to_owned()))))
    }

    /// The steps of one device.
    pub(crate) fn steps(&self, track: Track<'_>) -> std::result::Result<Steps, NoSteps> {
        let Self(Named { ranges, source }) = self;
        let ranges = Times::of(track)?.instants(ranges).collect();
        Ok(Steps::of_ranges(ranges, source.clone(), 0, &track.snapshot.strings))
    }
}

impl StepRule {
    /// The annotations that look most like steps (`ProfilerStep#N`, then `step_N` and the like). If there are none, or they
    /// contain nothing that a step does, the history of each device decides.
    pub(crate) fn of(snapshot: &Snapshot, annotations: &Annotations) -> Self {
        let family = likely_steps(snapshot, annotations);
        let named = family.map(|family| Named::of(annotations, family.ranges, StepSource::Annotations(family.name)));
        let is_optimizer = |range: &&AnnotationRange| {
            range.end_us != i64::MAX && snapshot.strings.get(range.name).starts_with("Optimizer.step#")
        };
        let optimizers = annotations.ranges.iter().filter(is_optimizer);
        Self { named, optimizers: optimizers.map(|range| (range.name, (range.start_us, range.end_us))).collect() }
    }

    /// The steps of one device.
    pub(crate) fn steps(
        &self,
        track: Track<'_>,
        sites: &Sites<'_>,
        roles: &Roles,
        phases: &Phases,
    ) -> std::result::Result<Steps, NoSteps> {
        let times = Times::of(track)?;
        let call_paths = CallPaths::of(sites, roles);
        let finder = IterationFinder { track, sites, roles, call_paths: &call_paths, phases };
        let optimizers = self.optimizer_steps(&times);
        let passes = finder.passes(&optimizers);
        if let Some(steps) =
            self.named.as_ref().and_then(|named| named.steps(&times, phases, &passes, &track.snapshot.strings))
        {
            return Ok(steps);
        }
        let iterations = match (finder.iterations(&passes), optimizers.last()) {
            (Some(iterations), _) => iterations,
            // Without a backward pass, the optimizer's steps are the only evidence.
            (None, Some(last)) if passes.is_empty() => Iterations {
                kind: IterationKind::Optimizer,
                ends: optimizers.iter().map(|range| range.end).collect(),
                place: None,
                range: Some(last.name).filter(|&name| optimizers.iter().all(|range| range.name == name)),
            },
            (None, _) => finder.model_calls().filter(|_| passes.is_empty()).ok_or(NoSteps::Unknown)?,
        };
        let name = iterations.range.filter(|&name| {
            let ranges = optimizers.iter().filter(|range| range.name == name);
            ranges.count() == iterations.ends.len()
        });
        let site = || {
            let mut frames = call_paths.frames(iterations.place?).map(|(frame, _)| frame);
            Some(sites.label(frames.find(|&frame| sites.kind(frame) == FrameKind::User)?))
        };
        let source = match name {
            Some(name) => StepSource::Annotations(track.snapshot.strings.get(name).to_owned()),
            None => StepSource::Inferred { kind: iterations.kind, site: site() },
        };
        let mut ends = iterations.ends;
        // Times of a damaged file can go back.
        ends.sort_unstable();
        Ok(Steps { ends, names: Vec::new(), source, left_out: 0, idle: 0 })
    }

    /// The optimizer steps that PyTorch annotated and that ended during the recording.
    fn optimizer_steps(&self, times: &Times<'_>) -> Vec<StepRange> {
        let ended = self.optimizers.iter().filter(|(_, range)| times.holds(*range));
        let mut steps: Vec<StepRange> =
            ended.map(|&(name, range)| StepRange { name, end: times.instant(range.1) }).collect();
        steps.sort_unstable_by_key(|step| step.end);
        steps
    }
}

impl Named {
    /// The annotations with these indexes, which are in the order of their starts. Annotations inside another one are part of
    /// it, and those whose end was not recorded are not steps. If only the start is missing, it is unknown what is inside.
    fn of(annotations: &Annotations, chosen: Vec<usize>, source: StepSource) -> Self {
        let mut over = i64::MIN;
        let mut ranges = Vec::new();
        for range in chosen.into_iter().filter_map(|index| annotations.ranges.get(index)) {
            if range.end_us == i64::MAX {
                continue;
            }
            if range.start_us == i64::MIN {
                ranges.push((range.start_us, range.end_us, range.name));
            } else if range.start_us >= over {
                ranges.push((range.start_us, range.end_us, range.name));
                over = range.end_us;
            }
        }
        ranges.sort_rows_by_key(|&(_, end, _)| end);
        Self { ranges, source }
    }

    /// The ranges that can be steps; `None` if the steps in the recording are elsewhere. If there are more ranges than
    /// backward passes, ranges without one are not steps.
    fn steps(&self, times: &Times<'_>, phases: &Phases, passes: &[Pass], strings: &Strings) -> Option<Steps> {
        let ranges: Vec<(Instant, Instant, StrId)> = times.instants(&self.ranges).collect();
        let trains = |&&(start, end, _): &&(Instant, Instant, StrId)| {
            let next = passes.partition_point(|pass| pass.entries.end <= start);
            passes.get(next).is_some_and(|pass| pass.entries.start < end)
        };
        let has_forward = |&(start, end, _): &(Instant, Instant, StrId)| {
            let spans = &phases.spans[phases.spans.partition_point(|span| span.end <= start)..];
            spans.iter().take_while(|span| span.start < end).any(|span| span.phase == Phase::Forward)
        };
        let training = ranges.iter().filter(trains).count();
        let shows_forward = phases.spans.iter().any(|span| span.phase == Phase::Forward);
        let elsewhere =
            if passes.is_empty() { shows_forward && !ranges.iter().any(has_forward) } else { training == 0 };
        if elsewhere || ranges.is_empty() {
            return None;
        }
        let is_too_many = !passes.is_empty() && ranges.len() > passes.len();
        let kept = ranges.iter().filter(|range| !is_too_many || trains(range)).copied().collect::<Vec<_>>();
        let left_out = ranges.len() - kept.len();
        Some(Steps::of_ranges(kept, self.source.clone(), left_out, strings))
    }
}

/// The times at which the entries of a device were recorded.
struct Times<'a> {
    all: &'a [i64],
    first: i64,
    /// Whether the times are entry numbers: PyTorch 2.0 records no times.
    numbered: bool,
}

impl<'a> Times<'a> {
    fn of(track: Track<'a>) -> std::result::Result<Self, NoSteps> {
        let all = track.times();
        Ok(Self { all, first: *all.first().ok_or(NoSteps::NoHistory)?, numbered: !track.has_times() })
    }

    /// Whether a range ended after the first entry.
    fn holds(&self, (_, end): (i64, i64)) -> bool {
        !self.numbered && end > self.first
    }

    fn instant(&self, time: i64) -> Instant {
        self.all.partition_point(|&entry| entry < time) as Instant
    }

    /// Ranges as instants, without those that ended before the first entry.
    fn instants<'r>(&'r self, ranges: &'r [(i64, i64, StrId)]) -> impl Iterator<Item = (Instant, Instant, StrId)> + 'r {
        let held = ranges.iter().filter(|&&(start, end, _)| self.holds((start, end)));
        held.map(|&(start, end, name)| (self.instant(start), self.instant(end), name))
    }
}

impl Steps {
    /// The steps for ranges, from their start to their end.
    fn of_ranges(
        mut ranges: Vec<(Instant, Instant, StrId)>,
        source: StepSource,
        left_out: usize,
        strings: &Strings,
    ) -> Self {
        // Times of a damaged file can go back.
        ranges.sort_rows_by_key(|&(_, end, _)| end);
        let idle = ranges.iter().filter(|(start, end, _)| start == end).count();
        let is_numbered = |&id: &StrId| strings.get(id).ends_with(|last: char| last.is_ascii_digit());
        let ids: HashSet<StrId> = ranges.iter().map(|&(_, _, name)| name).filter(is_numbered).collect();
        let name = |&(_, _, name): &(Instant, Instant, StrId)| strings.get(name).to_owned();
        let names = if ids.len() == ranges.len() { ranges.iter().map(name).collect() } else { Vec::new() };
        Self { ends: ranges.into_iter().map(|(_, end, _)| end).collect(), names, source, left_out, idle }
    }

    /// What a step is called, given its number, which counts from 1: by its annotation, if that has a number of its own.
    pub fn name(&self, number: usize) -> String {
        let kind = if self.are_steps() { "step" } else { "iteration" };
        self.annotation(number).map_or_else(|| format!("{kind} {number}"), str::to_owned)
    }

    /// The end of a step, as commands name it.
    pub fn end(&self, number: usize) -> String {
        self.annotation(number)
            .map_or_else(|| format!("step:{number}:end"), |annotation| format!("annotation:{annotation}:end"))
    }

    fn annotation(&self, number: usize) -> Option<&str> {
        self.names.get(number.checked_sub(1)?).map(String::as_str)
    }

    /// Whether they are steps of training or inference; otherwise they are iterations of a loop that can be anything.
    pub fn are_steps(&self) -> bool {
        !matches!(self.source, StepSource::Inferred { kind: IterationKind::Loop, .. })
    }

    /// The step that contains an entry, counted from 1.
    pub(crate) fn containing(&self, entry: u32) -> Option<usize> {
        let step = self.ends.partition_point(|&end| end <= entry);
        (step < self.ends.len()).then_some(step + 1)
    }

    /// Number of steps.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// Ranges whose names differ only in their number.
#[derive(Clone, Debug)]
struct Family {
    /// Their name; `N` replaces the number if it differs.
    name: String,
    /// Indexes into [`Annotations::ranges`], in the order of their starts.
    ranges: Vec<usize>,
    /// Total microseconds of all ranges.
    duration: i128,
    /// Depth of the outermost one.
    depth: usize,
}

/// How much a name looks like that of a step, the most likely kind first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// The name that `torch.profiler` gives to steps.
    ProfilerStep,
    /// `step_N`, `train_step 3`, `iteration-7`.
    Numbered,
    /// A repeated range with a constant name that contains the word step.
    Named,
}

impl Likeness {
    /// `None` if it is not a step: other names that people choose, and PyTorch's own annotations of optimizers, data loaders
    /// and the compiler.
    fn of(stem: &str, numbered: bool) -> Option<Self> {
        const OWN: [&str; 6] = ["Optimizer.", "enumerate(DataLoader)", "autograd::", "aten::", "torch::", "nccl:"];
        if OWN.iter().any(|own| stem.starts_with(own)) || stem.contains("(dynamo_timed)") {
            return None;
        }
        let words = stem.trim_end_matches(|next: char| !next.is_alphanumeric()).to_ascii_lowercase();
        let speaks_of_step = ["step", "iteration", "iter", "batch"].iter().any(|word| words.ends_with(word));
        match (stem, numbered) {
            _ if !speaks_of_step => None,
            ("ProfilerStep#", true) => Some(Self::ProfilerStep),
            (_, true) => Some(Self::Numbered),
            (_, false) => Some(Self::Named),
        }
    }
}

/// A name with an `N` in place of each number.
pub(crate) fn without_numbers(name: &str) -> Cow<'_, str> {
    if !name.contains(|next: char| next.is_ascii_digit()) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len());
    for part in name.chars().collect::<Vec<_>>().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
        if part[0].is_ascii_digit() { text.push('N') } else { text.extend(part) }
    }
    Cow::Owned(text)
}

/// The family of annotations that is named like steps. A numbered one counts even if there is only one range; others if they
/// repeat, on the outermost level on which any does.
fn likely_steps(snapshot: &Snapshot, annotations: &Annotations) -> Option<Family> {
    let mut families: IndexMap<Cow<'_, str>, (Family, StrId, Likeness)> = IndexMap::new();
    for (index, range) in annotations.ranges.iter().enumerate() {
        let name = snapshot.strings.get(range.name);
        let stem = name.trim_end_matches(|next: char| next.is_ascii_digit());
        let Some(likeness) = Likeness::of(stem, stem.len() < name.len()) else { continue };
        // Steps may be numbered anew in each epoch: `epoch0_step3` and `epoch1_step3` belong to one family.
        let stem = if likeness == Likeness::Numbered { without_numbers(stem) } else { Cow::Borrowed(stem) };
        let new = || {
            let family = Family { name: name.to_owned(), ranges: Vec::new(), duration: 0, depth: range.depth };
            (family, range.name, likeness)
        };
        let joint = format!("{stem}N");
        let (family, first, _) = families.entry(stem).or_insert_with(new);
        if *first != range.name {
            family.name = joint;
        }
        family.ranges.push(index);
        family.duration += i128::from(range.end_us) - i128::from(range.start_us);
        family.depth = family.depth.min(range.depth);
    }
    let steps = families.into_values().filter_map(|(family, _, likeness)| {
        let numbered = likeness <= Likeness::Numbered;
        // Below the outermost level, only numbered ranges count as steps.
        let depth = if numbered { 0 } else { family.depth };
        (numbered || family.ranges.len() > 1).then_some(((depth, likeness, -family.duration), family))
    });
    // The first of equal ones, so that the choice depends only on the file.
    steps.min_by_key(|&(rank, _)| rank).map(|(_, family)| family)
}

/// The ranges that match an expression.
fn requested(snapshot: &Snapshot, annotations: &Annotations, pattern: &Regex) -> Result<Vec<usize>> {
    let matching = |&index: &usize| pattern.is_match(snapshot.strings.get(annotations.ranges[index].name));
    let ranges: Vec<usize> = (0..annotations.ranges.len()).filter(matching).collect();
    if ranges.is_empty() {
        let known = annotations.known_names(snapshot);
        return Err(Error::Request(format!("expected an annotation that matches {:?}, {known}", pattern.as_str())));
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
