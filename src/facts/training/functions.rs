//! Which lines of a file belong to the same function.
//!
//! A frame has its current line and the name of its function, but not the line where the function starts: in a file with
//! several modules, all of the functions are named `forward`. Functions are ranges of lines that do not overlap. Two lines
//! certainly belong to different functions if
//!
//! - the function of one line calls the function of the other line,
//! - there is code between them that belongs to neither,
//! - another place calls only the function of the first line, or continues at completely different lines from there.
//!
//! Nothing else counts as evidence: without evidence, the lines belong to one function.

use super::role::{Role, Roles};
use crate::model::{FrameId, Snapshot, StackId, StrId};
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

/// The function of every Python frame of a snapshot.
pub(super) struct Functions {
    of_frame: Vec<u32>,
}

/// The Python frames of a stack, outermost first, and the positions of those that are calls of modules.
pub(super) struct PythonStack {
    pub(super) frames: Vec<FrameId>,
    pub(super) calls: Vec<usize>,
}

/// Between a call of a module and the next there are at least the lines that define a class and its `forward`.
const NEXT_CLASS: u64 = 5;
/// The branches of an `if` are closer to the lines before it.
const FAR: u64 = 8;
/// The most names of called modules in a file; the lines of each are compared with the lines of all others. Programs have a
/// few.
const MOST_NAMES: usize = 32;

impl Functions {
    /// Distinguishes the functions of a snapshot, given each of its stacks.
    pub(super) fn of(snapshot: &Snapshot, roles: &Roles, stacks: &[PythonStack]) -> Self {
        let mut names = Names::of(snapshot, stacks);
        let seen = Seen::of(snapshot, roles, stacks, &names);
        let mut next = names.lines.len() as u32;
        // For each name, the number of its second range, and the boundaries of its ranges.
        let mut parted: HashMap<u32, (u32, Vec<u64>), RandomState> = HashMap::default();
        for (name, lines) in (0..).zip(&mut names.lines).filter(|(_, lines)| !lines.is_empty()) {
            lines.sort_unstable();
            lines.dedup();
            let cuts = cuts(lines, seen.differing(name, lines));
            if !cuts.is_empty() {
                let first = next;
                next += cuts.len() as u32;
                parted.insert(name, (first, cuts));
            }
        }
        let mut of_frame = names.of_frame;
        for (id, function) in (0..).zip(&mut of_frame) {
            let Some((first, cuts)) = parted.get(function) else { continue };
            let line = snapshot.stacks.frame(FrameId(id)).map_or(0, |frame| frame.line);
            let before = cuts.partition_point(|&cut| cut <= line) as u32;
            // The first range keeps the number of the name.
            if let Some(before) = before.checked_sub(1) {
                *function = first + before;
            }
        }
        Self { of_frame }
    }

    /// The number of a Python frame's function.
    pub(super) fn get(&self, frame: FrameId) -> u32 {
        self.of_frame.get(frame.index()).copied().unwrap_or(u32::MAX)
    }
}

/// Python frames by file and name.
struct Names {
    /// For each frame, the number of its file and name.
    of_frame: Vec<u32>,
    /// The lines of each, if modules are called by that name.
    lines: Vec<Vec<u64>>,
    /// For each file, the names of called modules, at most [`MOST_NAMES`].
    called_in: HashMap<StrId, Vec<u32>, RandomState>,
}

impl Names {
    fn of(snapshot: &Snapshot, stacks: &[PythonStack]) -> Self {
        let mut known: HashMap<(StrId, StrId), u32, RandomState> = HashMap::default();
        let name = |id: u32| {
            let Some(frame) = snapshot.stacks.frame(FrameId(id)) else { return u32::MAX };
            let next = known.len() as u32;
            *known.entry((frame.filename, frame.name)).or_insert(next)
        };
        let of_frame: Vec<u32> = (0..snapshot.stacks.frame_count() as u32).map(name).collect();
        let mut names = Self { lines: vec![Vec::new(); known.len()], of_frame, called_in: HashMap::default() };
        let mut called: HashSet<u32, RandomState> = HashSet::default();
        for stack in stacks {
            for &id in stack.calls.iter().filter_map(|&position| stack.frames.get(position)) {
                let (Some(frame), Some(name)) = (snapshot.stacks.frame(id), names.get(id)) else { continue };
                let called_here = names.called_in.entry(frame.filename).or_default();
                if called.insert(name) && called_here.len() < MOST_NAMES {
                    called_here.push(name);
                }
            }
        }
        for &id in stacks.iter().flat_map(|stack| &stack.frames) {
            let Some(name) = names.get(id).filter(|name| called.contains(name)) else { continue };
            if let (Some(lines), Some(frame)) = (names.lines.get_mut(name as usize), snapshot.stacks.frame(id)) {
                lines.push(frame.line);
            }
        }
        names
    }

    fn get(&self, frame: FrameId) -> Option<u32> {
        self.of_frame.get(frame.index()).copied().filter(|&name| name != u32::MAX)
    }

    fn is_called(&self, name: u32) -> bool {
        self.lines.get(name as usize).is_some_and(|lines| !lines.is_empty())
    }
}

/// Evidence from stacks about the lines of one name.
#[derive(Default)]
struct Seen {
    /// The lines of one name below one place, by the number of both.
    below: Vec<Vec<u64>>,
    /// For each name, the numbers of it with its places.
    of_name: HashMap<u32, Vec<u32>, RandomState>,
    /// For each name, its number below a place, its line, and its number below that.
    nested: HashMap<u32, HashSet<(u32, u64, u32), RandomState>, RandomState>,
    /// For each name, lines of other names that no frame of this name encloses.
    apart: HashMap<u32, HashSet<u64, RandomState>, RandomState>,
}

impl Seen {
    fn of(snapshot: &Snapshot, roles: &Roles, stacks: &[PythonStack], names: &Names) -> Self {
        let mut seen = Self::default();
        let mut nodes: HashMap<(u32, u32), u32, RandomState> = HashMap::default();
        let mut places: HashMap<(u32, u64), u32, RandomState> = HashMap::default();
        for (stack, python) in stacks.iter().enumerate() {
            // The engine calls functions that were defined inside other functions.
            let is_again = matches!(roles.role(StackId(stack as u32)), Role::Backward | Role::Recompute);
            let mut place = 0;
            // For each enclosing name, its innermost frame: node and line.
            let mut around: HashMap<u32, (u32, u64), RandomState> = HashMap::default();
            for &id in &python.frames {
                let (Some(frame), Some(name)) = (snapshot.stacks.frame(id), names.get(id)) else { continue };
                let next = nodes.len() as u32;
                let node = *nodes.entry((place, name)).or_insert(next);
                if node == next {
                    seen.below.push(Vec::new());
                    seen.of_name.entry(name).or_default().push(node);
                }
                let next = places.len() as u32;
                place = *places.entry((node, frame.line)).or_insert(next) + 1;
                for &other in names.called_in.get(&frame.filename).into_iter().flatten() {
                    if other != name && !is_again && !around.contains_key(&other) && is_defined(snapshot, frame.name) {
                        seen.apart.entry(other).or_default().insert(frame.line);
                    }
                }
                if !names.is_called(name) {
                    continue;
                }
                if let Some(lines) = seen.below.get_mut(node as usize)
                    && lines.last() != Some(&frame.line)
                {
                    lines.push(frame.line);
                }
                if let Some((outer, line)) = around.insert(name, (node, frame.line)) {
                    seen.nested.entry(name).or_default().insert((outer, line, node));
                }
            }
        }
        for lines in &mut seen.below {
            lines.sort_unstable();
            lines.dedup();
        }
        seen
    }

    /// Pairs of lines of one name, the lower one first, that belong to different functions.
    fn differing(&self, name: u32, lines: &[u64]) -> Vec<(u64, u64)> {
        let mut pairs = Vec::new();
        for &(outer, line, inner) in self.nested.get(&name).into_iter().flatten() {
            let (around, inside) = (self.lines_of(outer), self.lines_of(inner));
            // A function that calls itself has its own lines below it.
            if inside.iter().any(|line| around.binary_search(line).is_ok()) {
                continue;
            }
            let behind = inside.partition_point(|&other| other < line);
            pairs.extend(behind.checked_sub(1).map(|before| (inside[before], line)));
            pairs.extend(inside.get(behind).map(|&after| (line, after)));
        }
        for &line in self.apart.get(&name).into_iter().flatten() {
            let behind = lines.partition_point(|&other| other < line);
            if let (Some(before), Some(&after)) = (behind.checked_sub(1), lines.get(behind))
                && after != line
            {
                pairs.push((lines[before], after));
            }
        }
        pairs.extend(self.diverging(name));
        pairs
    }

    fn lines_of(&self, node: u32) -> &[u64] {
        self.below.get(node as usize).map_or(&[], Vec::as_slice)
    }

    /// Pairs of lines where the lines below one place are the start of those below another place, or where two places
    /// continue differently after the same start.
    fn diverging(&self, name: u32) -> Vec<(u64, u64)> {
        let of_name = self.of_name.get(&name).into_iter().flatten();
        let mut sets: Vec<&[u64]> =
            of_name.map(|&node| self.lines_of(node)).filter(|lines| !lines.is_empty()).collect();
        sets.sort_unstable();
        sets.dedup();
        let known: HashSet<&[u64], RandomState> = sets.iter().copied().collect();
        let mut pairs = Vec::new();
        for set in &sets {
            let steps = set.windows(2).enumerate().filter(|(_, pair)| pair[1] - pair[0] >= NEXT_CLASS);
            pairs.extend(steps.filter(|&(at, _)| known.contains(&set[..=at])).map(|(_, pair)| (pair[0], pair[1])));
        }
        for two in sets.windows(2) {
            let same = two[0].iter().zip(two[1]).take_while(|(a, b)| a == b).count();
            let (one, other) = (&two[0][same..], &two[1][same..]);
            let Some(&last) = same.checked_sub(1).and_then(|last| two[0].get(last)) else { continue };
            let (Some(&next), Some(&other_next)) = (one.first(), other.first()) else { continue };
            let is_far = next - last >= FAR && other_next - last >= FAR;
            if is_far && one.iter().all(|line| other.binary_search(line).is_err()) {
                pairs.extend([(last, next), (last, other_next)]);
            }
        }
        pairs
    }
}

/// Whether a function has a `def` or is the top-level code of a module: other functions are within the lines of one that has.
fn is_defined(snapshot: &Snapshot, name: StrId) -> bool {
    let name = snapshot.strings.get(name);
    !name.starts_with('<') || name == "<module>"
}

/// Lines at or before which functions start, but after the previous line, so that each pair is separated: the narrowest pairs
/// first, and if several positions are possible, at the widest gap.
fn cuts(lines: &[u64], mut differing: Vec<(u64, u64)>) -> Vec<u64> {
    differing.sort_unstable_by_key(|&(low, high)| (high - low, low));
    differing.dedup();
    let mut cuts: Vec<u64> = Vec::new();
    for (low, high) in differing {
        let next = cuts.partition_point(|&cut| cut <= low);
        if cuts.get(next).is_some_and(|&cut| cut <= high) {
            continue;
        }
        let first = lines.partition_point(|&line| line < low);
        let mut widest: Option<(u64, u64)> = None;
        for step in lines[first..].windows(2).take_while(|step| step[1] <= high) {
            let width = step[1] - step[0];
            if widest.is_none_or(|(known, _)| width > known) {
                widest = Some((width, step[1]));
            }
        }
        cuts.extend(widest.map(|(_, behind)| behind));
        cuts.sort_unstable();
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_parted_where_they_are_farthest_from_each_other() {
        let lines = [54, 55, 68, 70, 113, 114, 115, 131];
        assert_eq!(cuts(&lines, vec![(70, 115), (119, 131), (115, 131)]), [113, 131]);
        assert_eq!(
            cuts(&lines, vec![(55, 68), (54, 115)]),
            [68],
            "the narrow pair is parted, and with it the wide one"
        );
        assert!(cuts(&lines, Vec::new()).is_empty());
        assert!(cuts(&[], vec![(1, 9)]).is_empty());
    }
}
