//! Aligns the requests of two runs.
//!
//! Two runs of one program that differ in a number, such as the batch size, request memory in the same order, at the
//! same lines, with sizes that are equal or grow with the number. A few requests are only in one of them: from some
//! size on, kernels use staging buffers, and copies are made. Backward passes have no Python stack, so sizes must
//! help. The longest common subsequence is searched twice: first among requests whose sizes are equal or multiples of
//! the number or of its square, then, between those, among requests on one line.

use crate::model::{Frame, Snapshot, StackId};
use crate::replay::Track;
use crate::simulation::{Program, Step, StepKind};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The most differences that are searched for at once; if there are more, the best path so far is kept, and the search
/// continues after it.
const MOST_DIFFERENCES: usize = 1000;

/// A request, as far as alignment needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its step in the program.
    pub step: u32,
    /// Number of its stack, the same in all aligned runs.
    pub stack: u32,
    /// Whether that stack identifies the request.
    pub has_stack: bool,
    /// Whether a matrix product may have been called there: no layer of another kind was.
    pub may_be_product: bool,
    /// Number of its stream and pool, in the order of their first use.
    pub pool: u16,
    /// Requested bytes.
    pub bytes: u64,
}

/// Numbers for stacks, the same for stacks with the same lines in all recordings.
#[derive(Debug)]
pub struct StackNumbers {
    /// Whether lines count in addition to functions.
    by_line: bool,
    frames: HashMap<(String, String, u64), u32>,
    stacks: HashMap<Vec<u32>, u32>,
    /// Frames that only one of the recordings has: if outermost, they do not count, since they launched the program.
    launchers: HashSet<u32>,
}

/// Files of PyTorch whose innermost frames call other operators than matrix products, and their functions that do call one.
const OTHER_LAYERS: [&str; 8] = [
    "conv.py",
    "batchnorm.py",
    "normalization.py",
    "activation.py",
    "dropout.py",
    "pooling.py",
    "sparse.py",
    "functional.py",
];
const ATTENTION: [&str; 2] = ["multi_head_attention_forward", "_in_projection_packed"];

fn may_be_product(snapshot: &Snapshot, stack: StackId) -> bool {
    let Some(innermost) = snapshot.stacks.frames(stack).next() else { return false };
    let file = snapshot.strings.get(innermost.filename);
    let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
    !OTHER_LAYERS.contains(&file) || ATTENTION.contains(&snapshot.strings.get(innermost.name))
}

impl StackNumbers {
    /// Numbers by function, and also by line if requested: a line that was inserted above moves all others.
    pub fn new(by_line: bool) -> Self {
        Self { by_line, frames: HashMap::new(), stacks: HashMap::new(), launchers: HashSet::new() }
    }

    /// The same for two recordings that were launched in different ways.
    pub fn without_launchers(by_line: bool, runs: [(Track<'_>, &Program); 2]) -> Self {
        let mut numbers = Self::new(by_line);
        let [one, other] = runs.map(|(track, program)| {
            let asks = program.steps.iter().filter(|step| step.kind == StepKind::Alloc);
            let stacks: HashSet<StackId> = asks.map(|step| track.stack(step.entry)).collect();
            stacks.into_iter().flat_map(|stack| numbers.frames(track.snapshot, stack)).collect::<HashSet<u32>>()
        });
        numbers.launchers = one.symmetric_difference(&other).copied().collect();
        numbers
    }

    /// The requests of a program, in order.
    pub fn requests(&mut self, track: Track<'_>, program: &Program) -> Vec<Request> {
        let mut numbers: HashMap<StackId, (u32, bool)> = HashMap::new();
        let asks = (0..).zip(program.steps.iter()).filter(|(_, step)| step.kind == StepKind::Alloc);
        let request = |(at, step): (u32, &Step)| {
            let stack = track.stack(step.entry);
            let number = || (self.number(track.snapshot, stack), may_be_product(track.snapshot, stack));
            let (number, may_be_product) = *numbers.entry(stack).or_insert_with(number);
            let has_stack = stack != StackId::EMPTY;
            Request { step: at, stack: number, has_stack, may_be_product, pool: step.pool, bytes: step.bytes }
        };
        asks.map(request).collect()
    }

    fn number(&mut self, snapshot: &Snapshot, stack: StackId) -> u32 {
        let mut frames = self.frames(snapshot, stack);
        while frames.last().is_some_and(|outermost| self.launchers.contains(outermost)) {
            frames.pop();
        }
        let next = self.stacks.len() as u32;
        *self.stacks.entry(frames).or_insert(next)
    }

    /// Numbers of the frames of a stack, innermost first.
    fn frames(&mut self, snapshot: &Snapshot, stack: StackId) -> Vec<u32> {
        let frame = |frame: &Frame| {
            // Runs may be in different folders.
            let file = snapshot.strings.get(frame.filename);
            let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
            let key = (
                file.to_owned(),
                snapshot.strings.get(frame.name).to_owned(),
                if self.by_line { frame.line } else { 0 },
            );
            let next = self.frames.len() as u32;
            *self.frames.entry(key).or_insert(next)
        };
        snapshot.stacks.frames(stack).map(frame).collect()
    }
}

/// Two runs: the numbers that they differ in.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// The number of the first run.
    pub first: u64,
    /// The number of the second run.
    pub second: u64,
}

impl Values {
    /// Whether sizes are equal, or multiples of the number.
    fn are_multiples(self, first: u64, second: u64) -> bool {
        first == second || product(first, self.second) == product(second, self.first)
    }

    /// Whether sizes are multiples of its square.
    fn are_squares(self, first: u64, second: u64) -> bool {
        let times = |bytes: u64, by: u64| product(bytes, by).checked_mul(u128::from(by));
        times(first, self.second).is_some_and(|bytes| times(second, self.first) == Some(bytes))
    }

    /// Whether sizes are between equal and multiples of the square.
    fn are_between(self, first: u64, second: u64) -> bool {
        let (low, high, by, to) = if self.first <= self.second {
            (first, second, self.first, self.second)
        } else {
            (second, first, self.second, self.first)
        };
        let square = |value: u64| u128::from(value) * u128::from(value);
        low <= high && u128::from(high).saturating_mul(square(by)) <= u128::from(low).saturating_mul(square(to))
    }
}

fn product(bytes: u64, by: u64) -> u128 {
    u128::from(bytes) * u128::from(by)
}

/// Pairs of equal requests: their places in both lists, ascending in both.
pub fn align(first: &[Request], second: &[Request], values: Values) -> Vec<(u32, u32)> {
    let is_line = |a: &Request, b: &Request| a.stack == b.stack && a.pool == b.pool;
    let is_multiple = |a: usize, b: usize| {
        let (a, b) = (&first[a], &second[b]);
        is_line(a, b) && values.are_multiples(a.bytes, b.bytes)
    };
    let is_plain = |a: usize, b: usize| {
        let (a, b) = (&first[a], &second[b]);
        is_line(a, b) && (values.are_multiples(a.bytes, b.bytes) || values.are_squares(a.bytes, b.bytes))
    };
    let is_between = |a: usize, b: usize| {
        let (a, b) = (&first[a], &second[b]);
        is_line(a, b) && (a.has_stack || values.are_between(a.bytes, b.bytes))
    };
    let mut sure = Vec::new();
    common(0..first.len(), 0..second.len(), &is_plain, &mut sure);
    let mut pairs = Vec::new();
    let mut behind = (0, 0);
    for pair in sure.into_iter().chain([(first.len(), second.len())]) {
        common(behind.0..pair.0, behind.1..pair.1, &is_between, &mut pairs);
        pairs.push(pair);
        behind = (pair.0 + 1, pair.1 + 1);
    }
    // A buffer next to a request, which only one run allocates, may have a size with which it is mistaken for the request.
    for at in 0..pairs.len() - 1 {
        let (a, b) = pairs[at];
        let before = at.checked_sub(1).map_or((0, 0), |before| (pairs[before].0 + 1, pairs[before].1 + 1));
        let after = pairs[at + 1];
        if !is_multiple(a, b) {
            let other = (before.1..after.1).map(|other| (a, other));
            let mut others = other.chain((before.0..after.0).map(|other| (other, b)));
            pairs[at] = others.find(|&(a, b)| is_multiple(a, b)).unwrap_or((a, b));
        }
    }
    pairs.pop();
    pairs.into_iter().map(|(a, b)| (a as u32, b as u32)).collect()
}

/// Adds a longest common subsequence of two ranges.
fn common(
    first: Range<usize>,
    second: Range<usize>,
    same: &impl Fn(usize, usize) -> bool,
    pairs: &mut Vec<(usize, usize)>,
) {
    let (mut a, mut b) = (first.start, second.start);
    while a < first.end && b < second.end {
        let search = Search { rows: first.end - a, columns: second.end - b, same: |x, y| same(a + x, b + y) };
        let found = search.run();
        pairs.extend(found.pairs.into_iter().map(|(x, y)| (a + x, b + y)));
        a += found.end.0;
        b += found.end.1;
    }
}

/// Myers' greedy search for the fewest differences: a path through a grid from its first corner to the last, where moving
/// along a row or a column is a difference, and a diagonal move is an equal pair.
struct Search<F> {
    rows: usize,
    columns: usize,
    same: F,
}

/// A path through the field, up to `end`.
struct Found {
    pairs: Vec<(usize, usize)>,
    end: (usize, usize),
}

impl<F: Fn(usize, usize) -> bool> Search<F> {
    /// The path to the last corner; if that takes too many differences, the path that leads furthest.
    fn run(&self) -> Found {
        // A diagonal contains the points where rows minus columns is `offset`. For each diagonal, the furthest row reached by
        // paths with this many differences is stored.
        let mut reach = vec![0; 2 * MOST_DIFFERENCES + 3];
        let middle = MOST_DIFFERENCES + 1;
        let mut earlier: Vec<Vec<usize>> = Vec::new();
        let mut best = (0, 0, 0);
        for differences in 0..=MOST_DIFFERENCES {
            for diagonal in (middle - differences..=middle + differences).step_by(2) {
                let mut row = match differences {
                    0 => 0,
                    _ => step(&reach, diagonal, middle, differences).0,
                };
                let mut column = row + middle - diagonal;
                while row < self.rows && column < self.columns && (self.same)(row, column) {
                    row += 1;
                    column += 1;
                }
                reach[diagonal] = row;
                if row <= self.rows && column <= self.columns && row + column >= best.0 + best.1 {
                    best = (row, column, differences);
                }
            }
            if (best.0, best.1) == (self.rows, self.columns) {
                break;
            }
            earlier.push(reach[middle - differences..=middle + differences].to_vec());
        }
        Found { pairs: walk_back(&earlier, best, middle), end: (best.0, best.1) }
    }
}

/// Where a path with one more difference enters a diagonal, and the diagonal that it comes from.
fn step(reach: &[usize], diagonal: usize, middle: usize, differences: usize) -> (usize, usize) {
    let is_lowest = diagonal == middle - differences;
    let is_highest = diagonal == middle + differences;
    if is_lowest || (!is_highest && reach[diagonal - 1] < reach[diagonal + 1]) {
        (reach[diagonal + 1], diagonal + 1)
    } else {
        (reach[diagonal - 1] + 1, diagonal - 1)
    }
}

/// The pairs on the path to a place that took this many differences.
fn walk_back(
    earlier: &[Vec<usize>],
    (row, column, differences): (usize, usize, usize),
    middle: usize,
) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let (mut row, mut column) = (row, column);
    let mut all = vec![0; 2 * MOST_DIFFERENCES + 3];
    for differences in (1..=differences).rev() {
        let before = &earlier[differences - 1];
        all[middle + 1 - differences..middle + differences].copy_from_slice(before);
        let (entered, from) = step(&all, middle + row - column, middle, differences);
        while row > entered {
            (row, column) = (row - 1, column - 1);
            pairs.push((row, column));
        }
        row = all[from];
        column = row + middle - from;
    }
    while row > 0 {
        (row, column) = (row - 1, column - 1);
        pairs.push((row, column));
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(all: &[(u32, u64)]) -> Vec<Request> {
        let request = |(step, &(stack, bytes)): (u32, &(u32, u64))| Request {
            step,
            stack,
            has_stack: stack > 0,
            may_be_product: true,
            pool: 0,
            bytes,
        };
        (0..).zip(all).map(request).collect()
    }

    const DOUBLED: Values = Values { first: 4, second: 8 };

    #[test]
    fn requests_that_one_run_alone_has_are_left_out() {
        let first = requests(&[(1, 100), (0, 40), (0, 64), (2, 30), (3, 7)]);
        let second = requests(&[(1, 200), (0, 80), (0, 9), (0, 64), (4, 5), (2, 60), (3, 10)]);
        assert_eq!(align(&first, &second, DOUBLED), [(0, 0), (1, 1), (2, 3), (3, 5), (4, 6)]);
    }

    #[test]
    fn without_a_stack_sizes_decide() {
        let first = requests(&[(0, 100), (0, 10)]);
        let second = requests(&[(0, 50), (0, 10)]);
        assert_eq!(align(&first, &second, DOUBLED), [(1, 1)]);
    }

    #[test]
    fn a_buffer_is_not_taken_for_the_request_beside_it() {
        // The second run takes a buffer of four times the size that the first requested.
        let first = requests(&[(0, 10), (0, 7)]);
        let second = requests(&[(0, 20), (0, 40), (0, 7)]);
        assert_eq!(align(&first, &second, DOUBLED), [(0, 0), (1, 2)]);
    }

    #[test]
    fn many_differences_are_gone_through_in_pieces() {
        let first: Vec<(u32, u64)> = (0..4000).map(|number| (number, 8)).collect();
        let second: Vec<(u32, u64)> = (0..4000).flat_map(|number| [(number, 8), (9000 + number, 8)]).collect();
        let pairs = align(&requests(&first), &requests(&second), DOUBLED);
        assert_eq!(pairs.len(), 4000);
        assert!(pairs.iter().all(|&(a, b)| b == 2 * a));
    }
}
