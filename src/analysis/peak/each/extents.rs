//! Where steps, phases and annotations start and end on a device.

use super::kind::{Each, OUTSIDE};
use crate::error::{Error, Result};
use crate::facts::device::Device;
use crate::facts::time::annotations::{AnnotationRange, Annotations};
use crate::facts::training::steps::{StepSource, Steps, without_numbers};
use crate::facts::training::{Phase, PhaseSpan};
use crate::model::{DeviceId, Snapshot, StrId, device_words};
use crate::replay::{Instant, Maximum};
use regex_lite::Regex;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    name: Name,
    /// Its place among the ranges of its name, counted from 0.
    number: u32,
    pub from: Instant,
    pub to: Instant,
    pub inferred: bool,
    /// Whether a part of it was not recorded.
    pub cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Annotation(StrId),
    Phase(Phase),
    /// A step without its own name.
    Step,
    Outside,
}

impl Extent {
    pub fn label(&self, snapshot: &Snapshot) -> String {
        let number = u64::from(self.number) + 1;
        match (self.name, number) {
            (Name::Step, _) => format!("step {number}"),
            (_, 1) => self.name(snapshot).to_owned(),
            _ => format!("{}#{number}", self.name(snapshot)),
        }
    }

    /// Its name without numbers, which it shares with similar ranges.
    pub fn family(&self, snapshot: &Snapshot) -> String {
        match self.name {
            Name::Step => "step N".to_owned(),
            _ => without_numbers(self.name(snapshot)).into_owned(),
        }
    }

    fn name<'s>(&self, snapshot: &'s Snapshot) -> &'s str {
        match self.name {
            Name::Annotation(name) => snapshot.strings.get(name),
            Name::Phase(phase) => phase.name(),
            Name::Step => "step",
            Name::Outside => OUTSIDE,
        }
    }
}

#[derive(Debug)]
pub struct Extents {
    pub steps: Option<Steps>,
    /// The ranges, in no particular order.
    pub extents: Vec<Extent>,
}

/// Finds the ranges of a device.
///
/// # Errors
/// If there are none, with a hint on how to record them.
pub fn find(device: &Device<'_>, each: &Each) -> Result<Extents> {
    match each {
        Each::Step => steps(device),
        Each::Phase => Ok(Extents { steps: None, extents: phases(device)? }),
        Each::Annotation(pattern) => Ok(Extents { steps: None, extents: annotations(device, pattern.as_ref())? }),
    }
}

/// How the name of a step is written, each with its number.
const STEP: &str = "f\"step_{n}\"";

/// The error for ranges that a recording does not have, and how to record them.
fn unknown(device: DeviceId, what: &str, name: &str) -> Error {
    let how = format!("to mark them, run each one in torch.profiler.record_function({name})");
    Error::Request(format!("{}: {what}; {how}", device_words(device)))
}

/// Steps with numbered annotations extend from the start to the end of the annotation, other steps from the end of the
/// previous one: the annotation that marks them may cover only a part of the step, such as `Optimizer.step#AdamW.step`.
fn steps(device: &Device<'_>) -> Result<Extents> {
    let Some(steps) = device.steps().ok().filter(|steps| steps.are_steps()) else {
        return Err(unknown(device.id(), "no steps found", STEP));
    };
    if steps.is_empty() {
        return Err(unknown(device.id(), "no step ends within the recording", STEP));
    }
    let mut recorded = match &steps.source {
        StepSource::Annotations(name) => ending(device, name),
        StepSource::Requested(_) | StepSource::Inferred { .. } => HashMap::new(),
    };
    let inferred = steps.source.is_inferred();
    let mut before = 0;
    let mut extents = Vec::with_capacity(steps.len());
    for (number, &end) in (0..).zip(&steps.ends) {
        let named = recorded.get_mut(&end).and_then(Vec::pop);
        let whole = before > 0 || device.history().completeness.is_complete();
        let unnamed = Extent { name: Name::Step, number, from: before, to: end, inferred, cut: !whole };
        extents.push(named.unwrap_or(unnamed));
        before = end;
    }
    Ok(Extents { steps: Some(steps.clone()), extents })
}

/// The numbered annotations of a family by the instant at which they end, the first one of each list last.
fn ending(device: &Device<'_>, family: &str) -> HashMap<Instant, Vec<Extent>> {
    let family = without_numbers(family);
    let is_wanted = |name: StrId| {
        let name = device.snapshot().strings.get(name);
        name.ends_with(|last: char| last.is_ascii_digit()) && without_numbers(name) == family
    };
    let mut ending: HashMap<Instant, Vec<Extent>> = HashMap::new();
    for extent in recorded(device, is_wanted) {
        ending.entry(extent.to).or_default().push(extent);
    }
    for extents in ending.values_mut() {
        extents.reverse();
    }
    ending
}

fn phases(device: &Device<'_>) -> Result<Vec<Extent>> {
    let phases = device.phases();
    if phases.spans.iter().all(|span| span.phase == Phase::Other) {
        return Err(unknown(device.id(), "phases are unknown", "\"forward\""));
    }
    let mut numbers: HashMap<Phase, u32> = HashMap::new();
    let complete = device.history().completeness.is_complete();
    let extent = |span: &PhaseSpan| {
        let next = numbers.entry(span.phase).or_default();
        let number = *next;
        *next += 1;
        Extent {
            name: Name::Phase(span.phase),
            number,
            from: span.start,
            to: span.end,
            inferred: !span.recorded,
            cut: span.start == 0 && !complete,
        }
    };
    Ok(phases.spans.iter().map(extent).collect())
}

fn annotations(device: &Device<'_>, pattern: Option<&Regex>) -> Result<Vec<Extent>> {
    let (snapshot, annotations) = (device.snapshot(), device.annotations());
    if annotations.ranges.is_empty() {
        return Err(unknown(device.id(), "the recording has no annotations", "\"NAME\""));
    }
    let name = |name: StrId| snapshot.strings.get(name);
    let extents = recorded(device, |id| pattern.is_none_or(|pattern| pattern.is_match(name(id))));
    if extents.is_empty() {
        let matching = pattern.map_or(String::new(), |pattern| format!(" that matches {:?}", pattern.as_str()));
        let known = annotations.known_names(snapshot);
        let device = device.id();
        return Err(Error::Request(format!("expected an annotation{matching} on {}, {known}", device_words(device))));
    }
    Ok(extents)
}

/// The annotations with these names that are open at some time between the first and the last entry of a device, in
/// their order.
fn recorded(device: &Device<'_>, is_wanted: impl Fn(StrId) -> bool) -> Vec<Extent> {
    let (times, annotations) = (device.track.times(), device.annotations());
    let (Some(&first), Some(&last)) = (times.first(), times.last()) else { return Vec::new() };
    let mut wanted: HashMap<StrId, bool> = HashMap::new();
    let instant = |time: i64| times.partition_point(|&entry| entry < time) as Instant;
    let mut extents = Vec::new();
    for (range, number) in numbered(annotations) {
        let AnnotationRange { name, start_us, end_us, .. } = *range;
        let concerns = start_us <= last && end_us > first;
        if concerns && *wanted.entry(name).or_insert_with(|| is_wanted(name)) {
            let from = instant(start_us);
            extents.push(Extent {
                name: Name::Annotation(name),
                number,
                from,
                // Times in a damaged file can go backwards.
                to: instant(end_us).max(from),
                inferred: false,
                cut: start_us == i64::MIN || end_us == i64::MAX,
            });
        }
    }
    extents
}

fn numbered(annotations: &Annotations) -> impl Iterator<Item = (&AnnotationRange, u32)> {
    let mut numbers: HashMap<StrId, u32> = HashMap::new();
    annotations.ranges.iter().map(move |range| {
        let next = numbers.entry(range.name).or_default();
        let number = *next;
        *next += 1;
        (range, number)
    })
}

/// Clips each range to a window, and drops those outside it.
pub fn clip(extents: &mut Vec<Extent>, (first, last): (Instant, Instant)) {
    extents.retain_mut(|extent| {
        let was_empty = extent.from == extent.to;
        (extent.from, extent.to) = (extent.from.max(first), extent.to.min(last));
        extent.from < extent.to || (was_empty && extent.from == extent.to)
    });
}

/// The period between ranges that contains the highest instant of a window, if it is in none of them.
pub fn outside(extents: &[Extent], window: (Instant, Instant), highest: Maximum) -> Option<Extent> {
    let at = highest.instant;
    let (mut from, mut to) = window;
    for extent in extents {
        match extent {
            extent if extent.to < at => from = from.max(extent.to),
            extent if extent.from > at => to = to.min(extent.from),
            _ => return None,
        }
    }
    Some(Extent { name: Name::Outside, number: 0, from, to, inferred: false, cut: false })
}
