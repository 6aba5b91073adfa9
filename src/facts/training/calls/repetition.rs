//! Calls that look like one, and rounds of a loop that look like calls.

use super::{Paths, RawCall, is_alloc, is_module_plumbing};
use crate::model::StackId;
use crate::replay::Track;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Splits an apparent call of a one-line function that allocates the same blocks again and again.
pub(super) fn split_repetitions(raw: &[RawCall], track: Track<'_>, paths: &Paths) -> Vec<RawCall> {
    let Track { snapshot, history } = track;
    let mut children = vec![0u32; raw.len()];
    for call in raw {
        if let Some(parent) = call.parent {
            children[parent] += 1;
        }
    }
    // A call that covers its whole parent repeats in the same way as the parent.
    let mut is_covered = vec![false; raw.len()];
    for call in raw {
        if let Some(parent) = call.parent
            && raw[parent].start == call.start
            && raw[parent].end == call.end
        {
            is_covered[parent] = true;
        }
    }
    let actions = track.actions();
    let mut calls = Vec::with_capacity(raw.len());
    let (mut entries, mut signatures) = (Vec::new(), Vec::new());
    for (index, call) in raw.iter().enumerate() {
        let one_line = call.first_line == call.last_line;
        if !one_line || is_covered[index] || is_module_plumbing(snapshot, call.frame) {
            calls.push(*call);
            continue;
        }
        entries.clear();
        entries.extend((call.start..call.end).filter(|&entry| is_alloc(actions, entry)));
        let signature = |&entry: &u32| {
            let requested = history.allocation_of(entry).map_or(0, |allocation| allocation.requested);
            (track.stack(entry), requested)
        };
        signatures.clear();
        signatures.extend(entries.iter().map(signature));
        let Some(period) = period(&signatures) else {
            calls.push(*call);
            continue;
        };
        // If each repetition is one call of the same child, the child is what is called repeatedly.
        let below = |stack: StackId| {
            let path = paths.of_stack[stack.index()].get(call.depth + 1..).unwrap_or(&[]);
            path.iter().find(|level| level.is_call).map(|level| level.node)
        };
        let last = &signatures[signatures.len() - period..];
        let child = below(last[0].0);
        let repeats_child = child.is_some() && last.iter().all(|&(stack, _)| below(stack) == child);
        if repeats_child && children[index] as usize >= signatures.len() / period {
            calls.push(*call);
            continue;
        }
        let first = signatures.len() % period;
        let mut starts: Vec<u32> = entries.iter().skip(first).step_by(period).copied().collect();
        // Allocations before the first complete repetition, such as a workspace on first use, belong to it.
        if let Some(start) = starts.first_mut() {
            *start = call.start;
        }
        for (position, &start) in starts.iter().enumerate() {
            let end = starts.get(position + 1).copied().unwrap_or(call.end);
            calls.push(RawCall { start, end, ..*call });
        }
    }
    calls
}

/// No further call.
const NO_CALL: usize = usize::MAX;

/// Joins apparent calls of a function that are rounds of a loop at its start: only the last round in each group continues
/// past the lines that all rounds have in common. There must be at least two such groups; otherwise, the last layer does
/// additional work.
pub(super) fn join_rounds(mut calls: Vec<RawCall>) -> Vec<RawCall> {
    // Most calls have no siblings, so each call is linked to its next sibling: a list for each key would cost more.
    let mut firsts = Vec::new();
    let mut next = vec![NO_CALL; calls.len()];
    let mut latest: HashMap<(u32, Option<usize>, u64), usize, RandomState> = HashMap::default();
    for (place, call) in calls.iter().enumerate() {
        match latest.insert((call.node, call.parent, call.first_line), place) {
            Some(before) => next[before] = place,
            None => firsts.push(place),
        }
    }
    let mut is_joined = vec![false; calls.len()];
    for first in firsts.into_iter().filter(|&first| next[first] != NO_CALL) {
        let places: Vec<usize> =
            std::iter::successors(Some(first), |&place| Some(next[place]).filter(|&next| next != NO_CALL)).collect();
        let last_lines: Vec<u64> = places.iter().map(|&place| calls[place].last_line).collect();
        let Some(rounds) = rounds(&last_lines) else { continue };
        for group in places.chunks(rounds) {
            let (first, last) = (group[0], group[group.len() - 1]);
            calls[first].end = calls[last].end;
            calls[first].last_line = calls[last].last_line;
            group[1..].iter().for_each(|&place| is_joined[place] = true);
        }
    }
    let mut is_joined = is_joined.into_iter();
    calls.retain(|_| is_joined.next() != Some(true));
    calls
}

/// How many rounds of a loop are one call, by the last line of each: those that continue further end a call.
fn rounds(last_lines: &[u64]) -> Option<usize> {
    let least = *last_lines.iter().min()?;
    let ends: Vec<usize> =
        last_lines.iter().enumerate().filter(|&(_, &line)| line > least).map(|(place, _)| place + 1).collect();
    let rounds = *ends.first()?;
    let is_regular = ends.iter().all(|end| end.is_multiple_of(rounds)) && last_lines.len().is_multiple_of(rounds);
    (rounds > 1 && is_regular && last_lines.len() >= 2 * rounds).then_some(rounds)
}

/// The shortest period of a sequence that repeats at least twice, up to its end. The beginning may differ by less than two
/// repetitions.
fn period<T: PartialEq>(sequence: &[T]) -> Option<usize> {
    // The failure function of Knuth, Morris and Pratt over the reversed sequence: for each length, the longest proper prefix
    // that is also a suffix.
    let at = |index: usize| &sequence[sequence.len() - 1 - index];
    let mut borders = vec![0usize; sequence.len()];
    for index in 1..sequence.len() {
        let mut border = borders[index - 1];
        while border > 0 && at(index) != at(border) {
            border = borders[border - 1];
        }
        borders[index] = border + usize::from(at(index) == at(border));
    }
    let lengths = (1..=sequence.len()).rev();
    let periods = lengths.map(|length| (length, length - borders[length - 1]));
    let fits = |&(length, period): &(usize, usize)| period * 2 <= length && sequence.len() - length < period * 2;
    periods.into_iter().find(fits).map(|(_, period)| period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_is_found_after_a_different_beginning() {
        assert_eq!(period(&[1, 2, 3, 1, 2, 3]), Some(3));
        assert_eq!(period(&[1, 9, 2, 3, 1, 2, 3, 1, 2, 3]), Some(3));
        assert_eq!(period(&[5, 5, 5]), Some(1));
        assert_eq!(period(&[1, 2, 3]), None);
        assert_eq!(period(&[1, 2, 3, 4, 4]), None, "what repeats must be nearly all of it");
        assert_eq!(period::<u8>(&[]), None);
    }

    #[test]
    fn rounds_of_a_loop_are_one_call() {
        assert_eq!(rounds(&[58, 69, 58, 69, 58, 58]), Some(2), "the last block has nothing behind its loop");
        assert_eq!(rounds(&[58, 58, 58, 69]), None, "the last layer does something more");
        assert_eq!(rounds(&[58, 69, 69, 58]), None);
        assert_eq!(rounds(&[58, 58, 58]), None);
        assert_eq!(rounds(&[]), None);
    }
}
