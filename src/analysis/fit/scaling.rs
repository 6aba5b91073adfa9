//! A program at another number than it was recorded with.

use super::align::{Request, StackNumbers, Values, align};
use super::growth::{Point, Size, size_at, staging_at};
use crate::allocator::SizeRules;
use crate::play::{Program, StepKind};
use crate::replay::Track;

/// A run: the number that it differs from others in, and its program.
#[derive(Debug)]
pub struct Run {
    /// The number, such as the batch size.
    pub value: u64,
    /// What was asked for.
    pub program: Program,
    /// The requests of it.
    pub requests: Vec<Request>,
}

/// Runs of one program, and which of their requests are the same.
#[derive(Debug)]
pub struct Scaling {
    /// Two or more, ascending by number.
    runs: Vec<Run>,
    /// For each run, then for each other, the place in the other of each request.
    partners: Vec<Vec<Vec<Option<u32>>>>,
}

/// How well two runs match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    /// Requests that are in both.
    pub matched: u64,
    /// Requests of the first that are not in the second, and the other way round.
    pub alone: (u64, u64),
    /// The first request, in each run by its entry, that is not in the same place of the other.
    pub first: Option<(u32, u32)>,
}

impl Matching {
    /// Requests of the run that has more.
    pub fn longest(&self) -> u64 {
        self.matched + self.alone.0.max(self.alone.1)
    }
}

/// A program with sizes that were worked out.
#[derive(Clone, Debug)]
pub struct Scaled {
    /// The program.
    pub program: Program,
    /// The run that gave the order of requests, as an index into [`Scaling::runs`].
    pub template: usize,
    /// Requests that are only in the run that gave the order, or whose sizes follow no rule: they were scaled with the
    /// number.
    pub unmatched: u64,
    /// The most bytes of the latter that are there at once, rounded.
    pub unmatched_bytes: u64,
}

impl Scaling {
    /// Aligns the programs of runs: each with its number, ascending.
    pub fn of(runs: Vec<(u64, Track<'_>, Program)>) -> Self {
        let mut numbers = StackNumbers::default();
        let read = |(value, track, program): (u64, Track<'_>, Program)| {
            let requests = numbers.requests(track, &program);
            Run { value, program, requests }
        };
        let runs: Vec<Run> = runs.into_iter().map(read).collect();
        let mut partners: Vec<Vec<Vec<Option<u32>>>> =
            runs.iter().map(|run| vec![vec![None; run.requests.len()]; runs.len()]).collect();
        for first in 0..runs.len() {
            for second in first + 1..runs.len() {
                let values = Values { first: runs[first].value, second: runs[second].value };
                for (a, b) in align(&runs[first].requests, &runs[second].requests, values) {
                    partners[first][second][a as usize] = Some(b);
                    partners[second][first][b as usize] = Some(a);
                }
            }
        }
        Self { runs, partners }
    }

    /// The runs, ascending by number.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// How well two of the runs match.
    pub fn matching(&self, first: usize, second: usize) -> Matching {
        let partners = &self.partners[first][second];
        let matched = partners.iter().flatten().count();
        let in_order = partners.iter().zip(0..).position(|(partner, place)| *partner != Some(place));
        let longest = partners.len().max(self.runs[second].requests.len());
        let place = in_order.unwrap_or(partners.len());
        let entry = |run: usize| {
            let Run { program, requests, .. } = &self.runs[run];
            let request = requests.get(place).or(requests.last());
            request.map_or(0, |request| program.steps[request.step as usize].entry)
        };
        Matching {
            matched: matched as u64,
            alone: ((partners.len() - matched) as u64, (self.runs[second].requests.len() - matched) as u64),
            first: (place < longest).then(|| (entry(first), entry(second))),
        }
    }

    /// The program at a number: requests in the order of the run whose number is nearest.
    pub fn at(&self, value: u64, rules: &SizeRules) -> Scaled {
        self.at_from(value, self.runs.len(), rules)
    }

    /// The same, as the first so many runs alone tell.
    pub(super) fn at_from(&self, value: u64, known: usize, rules: &SizeRules) -> Scaled {
        self.in_order_of(self.template(value, known), value, known, rules)
    }

    /// The same in the order of requests of another run.
    pub(super) fn in_order_of(&self, template: usize, value: u64, known: usize, rules: &SizeRules) -> Scaled {
        let run = &self.runs[template];
        let mut program = run.program.clone();
        let mut is_unmatched = vec![false; program.allocations];
        let mut unmatched = 0;
        let mut points: Vec<Point> = Vec::with_capacity(self.runs.len());
        for (place, request) in run.requests.iter().enumerate() {
            points.clear();
            for (other, partners) in self.partners[template].iter().enumerate().take(known) {
                let partner = if other == template { Some(place as u32) } else { partners[place] };
                let partner = partner.and_then(|partner| self.runs[other].requests.get(partner as usize));
                points.extend(partner.map(|partner| (self.runs[other].value, partner.bytes)));
            }
            let size = match request.step as usize {
                at if is_staging(&run.program, at) => staging_at(&points, value),
                // There is a counter for each column, however many rows there are.
                at if points.len() == 1 && at > 0 && is_staging(&run.program, at - 1) => {
                    Size { bytes: request.bytes, follows: true }
                }
                _ => size_at(&points, value),
            };
            let step = &mut program.steps[request.step as usize];
            step.bytes = size.bytes;
            if !size.follows {
                unmatched += 1;
                if let Some(is_unmatched) = is_unmatched.get_mut(step.allocation as usize) {
                    *is_unmatched = true;
                }
            }
        }
        let unmatched_bytes = most_of(&program, rules, &is_unmatched);
        Scaled { program: program.with_its_loop(), template, unmatched, unmatched_bytes }
    }

    /// The run whose number is nearest by ratio; of two the larger.
    fn template(&self, value: u64, known: usize) -> usize {
        let ratio = |run: &Run| {
            let (low, high) = (run.value.min(value), run.value.max(value));
            high as f64 / (low as f64).max(0.5)
        };
        let nearest =
            self.runs[..known].iter().enumerate().rev().min_by(|(_, a), (_, b)| ratio(a).total_cmp(&ratio(b)));
        nearest.map_or(0, |(index, _)| index)
    }
}

/// Whether a step asks for a buffer in which a sum over many rows is staged: the kernel takes it together with one
/// counter for each of its columns of threads, and gives both back at once (`gpu_reduce_kernel`).
fn is_staging(program: &Program, step: usize) -> bool {
    const LARGEST_COUNTERS: u64 = 64 << 10;
    let Some([buffer, counters, first, second]) = program.steps.get(step..step + 4) else { return false };
    let frees = [first, second].map(|free| (free.kind, free.allocation));
    counters.kind == StepKind::Alloc
        && counters.bytes <= LARGEST_COUNTERS.min(buffer.bytes)
        && frees.contains(&(StepKind::Free, buffer.allocation))
        && frees.contains(&(StepKind::Free, counters.allocation))
}

/// The most bytes of some allocations that are there at once.
fn most_of(program: &Program, rules: &SizeRules, wanted: &[bool]) -> u64 {
    let mut sizes = vec![0; wanted.len()];
    let (mut live, mut most) = (0u64, 0u64);
    for step in &program.steps {
        let Some(size) = sizes.get_mut(step.allocation as usize).filter(|_| wanted[step.allocation as usize]) else {
            continue;
        };
        match step.kind {
            StepKind::Alloc => {
                *size = rules.round(step.bytes);
                live = live.saturating_add(*size);
                most = most.max(live);
            }
            StepKind::Free | StepKind::RequestFree | StepKind::CompleteFree => {
                live = live.saturating_sub(std::mem::take(size));
            }
            StepKind::Refused | StepKind::EmptyCache | StepKind::ReleasePool => {}
        }
    }
    most
}
