//! Scales a program to a number that was not recorded.

use super::align::{Request, StackNumbers, Values, align};
use super::growth::{Point, Size, size_at, staging_at};
use super::staged::Staged;
use super::sums::{Role, Sum, roles, staging};
use crate::allocator::SizeRules;
use crate::facts::gpu::Gpu;
use crate::model::gpu::Threads;
use crate::replay::Track;
use crate::simulation::{Program, StepKind};
use std::collections::HashSet;
use std::sync::Arc;

/// One request in this many counts as many.
const MANY: usize = 20;
/// The number of GPU models that recordings most likely come from. Others are tried if these explain nothing.
const LIKELY: usize = 5;

/// A run: its number, and its program.
#[derive(Debug)]
pub struct Run {
    /// The number, such as the batch size.
    pub value: u64,
    /// The recorded requests.
    pub program: Program,
    /// The requests of it, without the buffers of sums.
    pub requests: Vec<Request>,
    /// The kind of each request.
    pub roles: Vec<Role>,
}

/// Runs of one program, with their matching requests.
#[derive(Debug)]
pub struct Scaling {
    /// Two or more, ascending by number.
    runs: Vec<Run>,
    /// For each run, then for each other, the place in the other of each request.
    partners: Vec<Vec<Vec<Option<u32>>>>,
    /// What the device runs at once, as buffers of sums show.
    device: Threads,
}

/// How well two runs match, in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    /// Requests that are in both.
    pub matched: u64,
    /// Requests of the first that are not in the second, and the other way round.
    pub alone: (u64, u64),
    /// The first request, by its entry in each run, that does not match the other run.
    pub first: Option<(u32, u32)>,
}

impl Matching {
    /// Number of requests of the run that has more.
    pub fn longest(&self) -> u64 {
        self.matched + self.alone.0.max(self.alone.1)
    }
}

/// A program with computed sizes.
#[derive(Clone, Debug)]
pub struct Scaled {
    pub program: Program,
    /// The run that defines the order of requests, as an index into [`Scaling::runs`].
    pub template: usize,
    /// Requests that are only in the run that defines the order, or whose sizes follow no rule: they were scaled with
    /// the number.
    pub unmatched: u64,
    /// The most bytes of the latter that are live at once, after rounding.
    pub unmatched_bytes: u64,
    /// The most bytes at once of requests whose rule has as many parameters as there are recordings.
    pub weak_bytes: u64,
    /// Whether there are many of these requests.
    pub are_weak: bool,
    /// Buffers of sums that the run that defines the order does not have, or that are no longer needed.
    pub staged: Staged,
    /// Further buffers that may be needed, for requests that look like a sum.
    pub perhaps: Staged,
}

impl Scaled {
    /// The whole program, with the buffers of sums, and the recorded counterpart of each of its allocations.
    pub fn whole(&self) -> (Program, Vec<Option<usize>>) {
        self.staged.apply(self.program.clone())
    }
}

impl Scaling {
    /// Aligns the programs of runs: each with its number, ascending. `threads` is the number of threads that the
    /// device runs at once, unless the runs show something else.
    pub fn of(runs: Vec<(u64, Track<'_>, Program)>, threads: Option<Threads>) -> Self {
        let asked = |by_line: bool| -> Vec<Vec<Request>> {
            let mut numbers = StackNumbers::new(by_line);
            runs.iter().map(|(_, track, program)| numbers.requests(*track, program)).collect()
        };
        let by_line = asked(true);
        let asked = if have_same_lines(&by_line) { by_line } else { asked(false) };
        let (device, roles) = device(&runs, &asked, threads);
        let mut read = Vec::with_capacity(runs.len());
        for ((value, _, program), (requests, roles)) in runs.into_iter().zip(asked.into_iter().zip(roles)) {
            let kept = requests.into_iter().zip(roles).filter(|(_, role)| !role.is_buffer);
            let (requests, roles) = kept.unzip();
            read.push(Run { value, program, requests, roles });
        }
        let runs = read;
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
        Self { runs, partners, device }
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

    /// The same, from only the first `known` runs.
    pub(super) fn at_from(&self, value: u64, known: usize, rules: &SizeRules) -> Scaled {
        self.in_order_of(self.template(value, known), value, known, rules)
    }

    /// The same in the order of requests of another run.
    pub(super) fn in_order_of(&self, template: usize, value: u64, known: usize, rules: &SizeRules) -> Scaled {
        let run = &self.runs[template];
        let mut program = run.program.clone();
        let steps = Arc::make_mut(&mut program.steps);
        let mut is_unmatched = vec![false; program.allocations];
        let mut is_weak = vec![false; program.allocations];
        let (mut unmatched, mut weak) = (0, 0);
        let (mut staged, mut perhaps) = (Staged::default(), Staged::default());
        let mut points: Vec<Point> = Vec::with_capacity(self.runs.len());
        for (place, request) in run.requests.iter().enumerate() {
            points.clear();
            points.extend(
                self.same(template, place, known)
                    .map(|(other, at)| (self.runs[other].value, self.runs[other].requests[at].bytes)),
            );
            let size = match request.step as usize {
                at if is_staging(&run.program, at) => staging_at(&points, value),
                // There is a counter for each column, independent of the number of rows.
                at if points.len() == 1 && at > 0 && is_staging(&run.program, at - 1) => {
                    Size { bytes: request.bytes, follows: true, is_weak: false }
                }
                _ => size_at(&points, value),
            };
            let step = &mut steps[request.step as usize];
            step.bytes = size.bytes;
            weak += usize::from(size.is_weak);
            if let Some(is_weak) = is_weak.get_mut(step.allocation as usize) {
                *is_weak = size.is_weak;
            }
            if !size.follows {
                unmatched += 1;
                if let Some(is_unmatched) = is_unmatched.get_mut(step.allocation as usize) {
                    *is_unmatched = true;
                }
            }
            let entry = step.entry;
            let (sum, other) = self.sum(template, place, known, value);
            if let Some(staging) = other.and_then(|other| other.staging(self.device))
                && !sum.is_some_and(|(sum, _)| sum.staging(self.device) == Some(staging))
            {
                perhaps.added.insert(entry, staging);
            }
            match sum {
                Some((sum, true)) => match (sum.staging(self.device), run.roles[place].staging) {
                    (Some(staging), Some(_)) => {
                        steps[request.step as usize + 1].bytes = staging.buffer;
                        steps[request.step as usize + 2].bytes = staging.counters;
                    }
                    (Some(staging), None) => _ = staged.added.insert(entry, staging),
                    (None, Some(_)) => {
                        let buffers = &run.program.steps[request.step as usize + 1..request.step as usize + 3];
                        staged.gone.extend(buffers.iter().map(|step| step.entry));
                    }
                    (None, None) => {}
                },
                Some((sum, false)) => {
                    perhaps.added.extend(sum.staging(self.device).map(|staging| (entry, staging)));
                }
                None => {}
            }
        }
        let unmatched_bytes = most_of(&program, rules, &is_unmatched);
        let weak_bytes = most_of(&program, rules, &is_weak);
        let are_weak = weak * MANY > run.requests.len();
        Scaled { program, template, unmatched, unmatched_bytes, weak_bytes, are_weak, staged, perhaps }
    }

    /// The requests of the first runs that match one of a run, including itself: run and place.
    fn same(&self, template: usize, place: usize, known: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let partners = self.partners[template].iter().enumerate().take(known).skip(self.first(known, template));
        partners.filter_map(move |(other, partners)| {
            if other == template { Some((other, place)) } else { Some((other, partners[place]? as usize)) }
        })
    }

    /// The first run that represents other numbers: at 1, copies and broadcasts disappear, so two other runs are
    /// better.
    fn first(&self, known: usize, template: usize) -> usize {
        usize::from(known > 2 && template > 0 && self.runs[0].value == 1)
    }

    /// The sum that a request is the result of, at a number, and whether that is certain; and a sum with another
    /// element size, if that is as likely.
    fn sum(&self, template: usize, place: usize, known: usize, value: u64) -> (Option<(Sum, bool)>, Option<Sum>) {
        self.find_sum(template, place, known, value)
            .map_or((None, None), |(sum, is_sure, other)| (Some((sum, is_sure)), other))
    }

    fn find_sum(&self, template: usize, place: usize, known: usize, value: u64) -> Option<(Sum, bool, Option<Sum>)> {
        let roles =
            self.same(template, place, known).map(|(other, at)| (self.runs[other].value, &self.runs[other].roles[at]));
        let all: Vec<(u64, &Role)> = roles.filter(|(_, role)| !role.is_buffer).collect();
        // A buffer shows a sum. Without one, the request must look like a sum in every run.
        let staged: Vec<(u64, &Role)> = all.iter().copied().filter(|(_, role)| role.staging.is_some()).collect();
        let is_staged = staged.iter().any(|(_, role)| !role.sums.is_empty());
        let &(recorded, role) = if is_staged { staged.first()? } else { all.first()? };
        // Rows depend on a power of the number: constant, proportional, or like the pixels of a picture with that side.
        let rows_at = |sum: Sum, power: u32, value: u64| {
            let [to, from] = [value, recorded].map(|it| u128::from(it).saturating_pow(power));
            u64::try_from(u128::from(sum.rows).saturating_mul(to).div_ceil(from.max(1))).unwrap_or(u64::MAX)
        };
        let agrees = |sum: Sum, power: u32, (value, role): (u64, &Role)| {
            let rows = rows_at(sum, power, value);
            let is_same = |it: &Sum| {
                (it.output, it.element, it.rows) == (sum.output, sum.element, rows)
                    && (is_staged || it.weight == sum.weight)
            };
            role.sums.iter().any(is_same)
        };
        let ways = [1, 2, 0].into_iter().flat_map(|power| role.sums.iter().map(move |&sum| (sum, power)));
        let agreeing = |&(sum, power): &(Sum, u32)| {
            let count = |of: &[(u64, &Role)]| of.iter().filter(|&&it| agrees(sum, power, it)).count();
            (count(&staged), count(&all))
        };
        // The candidate with which the most buffers agree; among equals the first one, which is the likeliest.
        let ways: Vec<(Sum, u32)> = ways.collect();
        let best = *ways.iter().rev().max_by_key(|way| agreeing(way))?;
        let (of_staged, of_all) = agreeing(&best);
        let is_other = |way: &&(Sum, u32)| {
            let (sum, power) = **way;
            sum.has_product && sum.element != best.0.element && power == best.1 && agreeing(way) == (of_staged, of_all)
        };
        let other = ways.iter().find(is_other).map(|&(sum, power)| Sum { rows: rows_at(sum, power, value), ..sum });
        let is_likely = if is_staged { of_staged == staged.len() } else { of_all == all.len() };
        let (sum, power) = best;
        let is_sure = is_staged || sum.has_product;
        is_likely.then(|| (Sum { rows: rows_at(sum, power, value), ..sum }, is_sure, other))
    }

    /// The run whose number is nearest by ratio; if two are equally near, the larger one.
    fn template(&self, value: u64, known: usize) -> usize {
        let ratio = |run: &Run| {
            let (low, high) = (run.value.min(value), run.value.max(value));
            high as f64 / (low as f64).max(0.5)
        };
        let first = if value > 1 { self.first(known, 1) } else { 0 };
        let runs = self.runs[..known].iter().enumerate().skip(first);
        let nearest = runs.rev().min_by(|(_, a), (_, b)| ratio(a).total_cmp(&ratio(b)));
        nearest.map_or(0, |(index, _)| index)
    }
}

/// Whether most requests of each run are made at lines of the first one.
pub(super) fn have_same_lines(asked: &[Vec<Request>]) -> bool {
    let lines: HashSet<u32> = asked.iter().take(1).flatten().map(|request| request.stack).collect();
    asked.iter().all(|requests| {
        let stacked = || requests.iter().filter(|request| request.has_stack);
        stacked().filter(|request| lines.contains(&request.stack)).count() * 2 >= stacked().count()
    })
}

/// The number of threads that the device runs at once: the one that explains the most buffers; and the resulting kind
/// of each request.
fn device(
    runs: &[(u64, Track<'_>, Program)],
    asked: &[Vec<Request>],
    assumed: Option<Threads>,
) -> (Threads, Vec<Vec<Role>>) {
    let read = |device: Threads| -> Vec<Vec<Role>> {
        let of =
            |((_, _, program), requests): (&(u64, Track<'_>, Program), &Vec<Request>)| roles(program, requests, device);
        runs.iter().zip(asked).map(of).collect()
    };
    let explained = |roles: &[Vec<Role>]| roles.iter().flatten().filter(|role| role.is_buffer).count();
    let mut known: Vec<Threads> = Vec::new();
    for gpu in Gpu::known() {
        if !known.contains(&gpu.threads) {
            known.push(gpu.threads);
        }
    }
    let first = assumed.unwrap_or(known[0]);
    let mut best = (first, read(first));
    let has_buffers = |program: &Program| (0..program.steps.len()).any(|step| staging(program, step).is_some());
    if !runs.iter().any(|(_, _, program)| has_buffers(program)) {
        return best;
    }
    for (place, device) in known.into_iter().enumerate().filter(|&(_, device)| device != first) {
        if place >= LIKELY && explained(&best.1) > 0 {
            break;
        }
        let roles = read(device);
        if explained(&roles) > explained(&best.1) {
            best = (device, roles);
        }
    }
    best
}

/// Whether a step requests a buffer in which a sum over many rows is staged: the kernel allocates it together with one
/// counter for each of its columns of threads, and frees both at once (`gpu_reduce_kernel`).
fn is_staging(program: &Program, step: usize) -> bool {
    const LARGEST_COUNTERS: u64 = 64 << 10;
    let Some([buffer, counters, first, second]) = program.steps.get(step..step + 4) else { return false };
    let frees = [first, second].map(|free| (free.kind, free.allocation));
    counters.kind == StepKind::Alloc
        && counters.bytes <= LARGEST_COUNTERS.min(buffer.bytes)
        && frees.contains(&(StepKind::Free, buffer.allocation))
        && frees.contains(&(StepKind::Free, counters.allocation))
}

/// The maximum of the bytes of some allocations that are live at once.
fn most_of(program: &Program, rules: &SizeRules, wanted: &[bool]) -> u64 {
    let mut sizes = vec![0; wanted.len()];
    let (mut live, mut most) = (0u64, 0u64);
    for step in program.steps.iter() {
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
