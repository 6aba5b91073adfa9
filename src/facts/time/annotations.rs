//! `record_function` ranges, combined from their recorded ends.

use crate::model::{Annotation, Snapshot, Stage, StrId};
use indexmap::IndexSet;
use std::cmp::Reverse;
use std::collections::HashMap;

/// A range. If an end was not recorded, the range started before the recording, or outlasts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnotationRange {
    /// Name of the range.
    pub name: StrId,
    /// Time of its start; `i64::MIN` if it started before the recording.
    pub start_us: i64,
    /// Time of its end; `i64::MAX` if it outlasts the recording.
    pub end_us: i64,
    /// Number of ranges around it.
    pub depth: usize,
}

/// Ranges nested deeper than this are left out of the ranges that enclose a time: no program nests as deep, and this bounds
/// memory for malicious files.
const MAX_DEPTH: usize = 32;
/// The most names that an error lists: they fit on a line.
const MOST_NAMES: usize = 8;

/// All ranges of a recording, and which of them enclose a time.
///
/// Ends carry no thread, so they are matched by name: an end closes the latest open range with its name.
#[derive(Clone, Debug, Default)]
pub struct Annotations {
    /// Ranges in the order of their starts, enclosing ranges first.
    pub ranges: Vec<AnnotationRange>,
    /// Chains of open ranges, innermost first: a range and its parent node. Parents precede children.
    nodes: Vec<(u32, Option<u32>)>,
    /// From each of these times on, the chain that starts at this node is open.
    changes: Vec<(i64, Option<u32>)>,
}

impl Annotations {
    /// Matches the recorded ends of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut ranges: Vec<AnnotationRange> = Vec::new();
        let mut open: HashMap<StrId, Vec<usize>> = HashMap::new();
        for event in &snapshot.annotations {
            let range = AnnotationRange { name: event.name, start_us: i64::MIN, end_us: i64::MAX, depth: 0 };
            let open = open.entry(event.name).or_default();
            match event.stage {
                Stage::Start => {
                    open.push(ranges.len());
                    ranges.push(AnnotationRange { start_us: event.time_us, ..range });
                }
                Stage::End => match open.pop() {
                    Some(index) => ranges[index].end_us = event.time_us,
                    None => ranges.push(AnnotationRange { end_us: event.time_us, ..range }),
                },
            }
        }
        // The sort is stable: ranges with the same start and end stay in the recorded order.
        ranges.sort_by_key(|range| (range.start_us, Reverse(range.end_us)));
        let mut annotations = Self { ranges, nodes: Vec::new(), changes: Vec::new() };
        annotations.nest();
        annotations
    }

    /// The recorded ends of those ranges of a snapshot that overlap `first..=last`, in the recorded order.
    pub(crate) fn recorded_within(snapshot: &Snapshot, (first, last): (i64, i64)) -> Vec<Annotation> {
        let all = &snapshot.annotations;
        let mut kept = vec![true; all.len()];
        let mut open: HashMap<StrId, Vec<usize>> = HashMap::new();
        for (index, event) in all.iter().enumerate() {
            let open = open.entry(event.name).or_default();
            if event.stage == Stage::Start {
                open.push(index);
                kept[index] = event.time_us <= last;
                continue;
            }
            let start = open.pop();
            let is_within = event.time_us >= first && start.is_none_or(|start| kept[start]);
            kept[index] = is_within;
            if let Some(start) = start {
                kept[start] = is_within;
            }
        }
        all.iter().zip(kept).filter(|(_, kept)| *kept).map(|(event, _)| *event).collect()
    }

    /// The ranges open at a time, outermost first. A range includes its start and excludes its end.
    pub fn enclosing(&self, time_us: i64) -> impl Iterator<Item = &AnnotationRange> {
        let after = self.changes.partition_point(|&(time, _)| time <= time_us);
        let mut next = after.checked_sub(1).and_then(|index| self.changes[index].1);
        let mut chain = Vec::new();
        while let Some(node) = next {
            let (range, parent) = self.nodes[node as usize];
            chain.push(range);
            next = parent;
        }
        chain.into_iter().rev().filter_map(|range| self.ranges.get(range as usize))
    }

    /// What the recording has instead of a requested annotation: `found a, b, c`.
    pub(crate) fn known_names(&self, snapshot: &Snapshot) -> String {
        let known: IndexSet<StrId> = self.ranges.iter().map(|range| range.name).collect();
        let names: Vec<&str> = known.iter().take(MOST_NAMES).map(|&name| snapshot.strings.get(name)).collect();
        let (names, more) = (names.join(", "), known.len().saturating_sub(MOST_NAMES));
        match (known.len(), more) {
            (0, _) => "found none".to_owned(),
            (_, 0) => format!("found {names}"),
            _ => format!("found {names} and {more} more"),
        }
    }

    /// The times at which the open ranges change, in order.
    pub fn changes(&self) -> impl Iterator<Item = i64> + '_ {
        self.changes.iter().map(|&(time, _)| time)
    }

    /// Walks over the sorted ranges and stores which are open from each time on, and how deep each range is nested.
    fn nest(&mut self) {
        let mut times: Vec<(i64, bool, u32)> = Vec::with_capacity(self.ranges.len() * 2);
        for (index, range) in self.ranges.iter().enumerate() {
            times.push((range.start_us, true, index as u32));
            times.push((range.end_us, false, index as u32));
        }
        // At the same time, ends come first, since a range excludes its end; then starts, in the order of the ranges.
        times.sort_unstable_by_key(|&(time, is_start, index)| (time, is_start, index));
        // Open ranges with their nodes, outermost first.
        let mut open: Vec<(u32, u32)> = Vec::new();
        for (time, is_start, index) in times {
            if is_start {
                let range = &mut self.ranges[index as usize];
                range.depth = open.len();
                if range.end_us > time && open.len() < MAX_DEPTH {
                    self.open(&mut open, index);
                }
            } else if let Some(position) = open.iter().rposition(|&(other, _)| other == index) {
                let inside = open.split_off(position);
                for &(range, _) in &inside[1..] {
                    self.open(&mut open, range);
                }
            }
            let chain = open.last().map(|&(_, node)| node);
            match self.changes.last_mut() {
                Some(last) if last.0 == time => last.1 = chain,
                _ => self.changes.push((time, chain)),
            }
        }
    }

    fn open(&mut self, open: &mut Vec<(u32, u32)>, range: u32) {
        let parent = open.last().map(|&(_, node)| node);
        open.push((range, self.nodes.len() as u32));
        self.nodes.push((range, parent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Annotation;

    fn annotations(events: &[(Stage, &str, i64)]) -> (Snapshot, Annotations) {
        let mut snapshot = Snapshot::default();
        for &(stage, name, time_us) in events {
            let name = snapshot.strings.intern(name);
            snapshot.annotations.push(Annotation { stage, name, device: 0, time_us });
        }
        let annotations = Annotations::of(&snapshot);
        (snapshot, annotations)
    }

    fn names(snapshot: &Snapshot, annotations: &Annotations, time: i64) -> Vec<String> {
        annotations.enclosing(time).map(|range| snapshot.strings.get(range.name).to_owned()).collect()
    }

    #[test]
    fn nested_ranges_enclose_in_order() {
        use Stage::{End, Start};
        let events = [
            (Start, "step", 1),
            (Start, "fwd", 2),
            (End, "fwd", 5),
            (Start, "bwd", 5),
            (End, "bwd", 8),
            (End, "step", 9),
        ];
        let (snapshot, annotations) = annotations(&events);
        assert_eq!(names(&snapshot, &annotations, 0), [""; 0]);
        assert_eq!(names(&snapshot, &annotations, 2), ["step", "fwd"]);
        assert_eq!(names(&snapshot, &annotations, 5), ["step", "bwd"]);
        assert_eq!(names(&snapshot, &annotations, 8), ["step"]);
        assert_eq!(names(&snapshot, &annotations, 9), [""; 0]);
        assert_eq!(annotations.ranges.iter().map(|range| range.depth).collect::<Vec<_>>(), [0, 1, 1]);
    }

    #[test]
    fn overlapping_ranges_are_not_lost() {
        use Stage::{End, Start};
        let events = [(Start, "a", 1), (Start, "b", 2), (End, "a", 3), (End, "b", 4)];
        let (snapshot, annotations) = annotations(&events);
        assert_eq!(names(&snapshot, &annotations, 2), ["a", "b"]);
        assert_eq!(names(&snapshot, &annotations, 3), ["b"]);
        assert_eq!(names(&snapshot, &annotations, 4), [""; 0]);
    }

    #[test]
    fn missing_ends_leave_ranges_open() {
        use Stage::{End, Start};
        let (snapshot, annotations) = annotations(&[(End, "before", 3), (Start, "after", 5)]);
        assert_eq!(names(&snapshot, &annotations, 1), ["before"]);
        assert_eq!(names(&snapshot, &annotations, 4), [""; 0]);
        assert_eq!(names(&snapshot, &annotations, 99), ["after"]);
    }
}
