//! Sums over rows, and the buffers in which their kernel stages them.
//!
//! A gradient that is summed over many rows, such as that of a bias, is divided among thread blocks that combine their
//! results in a buffer: `gpu_reduce_kernel` requests the buffer and one counter for each column of blocks, and frees both at
//! once. When it does so, and with which sizes, depends only on the numbers of columns and rows (`setReduceConfig` in
//! PyTorch's `aten/src/ATen/native/cuda/Reduce.cuh`), and on how many threads the device runs at once.

use super::align::Request;
use crate::model::gpu::Threads;
use crate::simulation::{Program, StepKind};
use crate::sorting::SortRows;
use std::collections::{HashMap, HashSet};

/// Bytes of an element while it is summed: 16-bit numbers are summed as `float`.
const SUMMED: u64 = 4;
/// Sizes of elements that outputs may have, the likeliest first.
const ELEMENTS: [u64; 2] = [4, 2];
/// The most threads of a block; of a warp; and the elements that a thread reads at once.
const THREADS: u64 = 512;
const WARP: u64 = 32;
const VECTOR: u64 = 4;
/// The least number of rows for each thread of a divided sum; and the number of rows from which a sum is divided.
const LEAST_ROWS: u64 = 16;
const MOST_ROWS: u64 = 256;
/// Number of requests that may be between gradients and their copies.
const NEAR: usize = 8;
/// Number of live blocks that are examined, from the last one back, to find the input of a sum.
const LOOKED_AT: usize = 24;

/// The buffer of a sum, and its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staging {
    /// Bytes of partial sums.
    pub buffer: u64,
    /// Bytes of counters.
    pub counters: u64,
}

/// A sum over rows into a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Bytes of the result.
    pub output: u64,
    /// Bytes of one of its elements.
    pub element: u64,
    pub rows: u64,
    /// Bytes of the gradient of the weight before it; 0 if it is not the sum of a bias.
    pub weight: u64,
    /// Whether forward has what may be the result of that matrix product.
    pub has_product: bool,
}

impl Sum {
    /// The buffers in which the kernel stages the sum; `None` if a thread block sums a column alone.
    pub fn staging(self, device: Threads) -> Option<Staging> {
        let outputs = self.output / self.element;
        let vector = [VECTOR, 2].into_iter().find(|&wide| outputs.is_multiple_of(wide)).unwrap_or(1);
        let (columns, most) = (outputs / vector, THREADS / vector);
        let power = |length: u64| if length < most { 1 << length.max(1).ilog2() } else { most };
        let (wide, high) = (power(columns), power(self.rows));
        let height = high.min(most / wide.min(WARP));
        let width = wide.min(most / height);
        // Warps of a block share a column if each of its threads has enough work.
        if self.rows < (height * LEAST_ROWS).min(MOST_ROWS) {
            return None;
        }
        let of_thread = self.rows.div_ceil(height);
        let grid = columns.div_ceil(width);
        let at_once = device.processors * (device.each / (width * height));
        if of_thread < MOST_ROWS || grid > at_once || grid == 0 {
            return None;
        }
        let pieces = at_once.div_ceil(grid).min(of_thread.div_ceil(LEAST_ROWS)).max(of_thread.div_ceil(MOST_ROWS));
        let buffer = SUMMED.checked_mul(outputs)?.checked_mul(pieces)?.checked_mul(width * vector)?;
        (pieces > 1).then_some(Staging { buffer, counters: SUMMED * grid })
    }
}

/// The possible kinds of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// The sums that it may be the result of, the likeliest first.
    pub sums: Vec<Sum>,
    /// The buffers that follow, if there are some.
    pub staging: Option<Staging>,
    /// Whether it is one of those buffers.
    pub is_buffer: bool,
}

/// The kind of each request of a run.
pub fn roles(program: &Program, requests: &[Request], device: Threads) -> Vec<Role> {
    let mut roles = vec![Role::default(); requests.len()];
    let mut live = Live::default();
    let mut done = 0;
    let products: HashSet<u64> = requests.iter().filter(|it| it.may_be_product).map(|it| it.bytes).collect();
    for (place, request) in requests.iter().enumerate() {
        let step = request.step as usize;
        for step in &program.steps[done..step] {
            if matches!(step.kind, StepKind::Free | StepKind::RequestFree) {
                live.free(step.allocation);
            }
        }
        done = step;
        if !request.has_stack && request.bytes > 0 && !roles[place].is_buffer {
            let staging = staging(program, step + 1);
            let mut sums = sums(requests, place, staging.is_some(), &live);
            for sum in sums.iter_mut().filter(|sum| sum.weight > 0) {
                sum.has_product = products.contains(&(sum.rows * sum.output));
            }
            sums.retain(|sum| sum.staging(device) == staging && !is_copied_from(*sum, &roles[..place]));
            if staging.is_some() && !sums.is_empty() {
                roles[place + 1..].iter_mut().take(2).for_each(|buffer| buffer.is_buffer = true);
            }
            (roles[place].sums, roles[place].staging) = (sums, staging);
        }
        live.alloc(program.steps[step].allocation, request.bytes);
    }
    // Rows are the tokens of a batch: most sums of a program have the same number of rows.
    let mut votes: HashMap<u64, u32> = HashMap::new();
    for sum in roles.iter().flat_map(|role| &role.sums).filter(|sum| sum.weight > 0) {
        *votes.entry(sum.rows).or_default() += 1;
    }
    // Under autocast, 16-bit gradients are copied to those of parameters.
    let is_copied = |place: usize, sum: &Sum| {
        let next = &requests[place + 1..requests.len().min(place + 1 + NEAR)];
        sum.element == 2 && [sum.output, sum.weight].iter().all(|of| next.iter().any(|it| it.bytes == 2 * of))
    };
    let of_biases = || roles.iter().enumerate().filter(|(_, role)| role.sums.iter().any(|sum| sum.has_product));
    let copied = of_biases().filter(|(place, role)| role.sums.iter().any(|sum| is_copied(*place, sum))).count();
    let is_mixed = copied * 4 > of_biases().count();
    for (place, role) in roles.iter_mut().enumerate() {
        let rank = |sum: &Sum| {
            let votes = votes.get(&sum.rows).copied().unwrap_or(0);
            (sum.has_product, sum.weight > 0, is_mixed && is_copied(place, sum), votes)
        };
        role.sums.sort_rows_by_key(|sum| std::cmp::Reverse(rank(sum)));
    }
    roles
}

/// Whether what looks like a sum is a copy of one in 16 bits, shortly before.
fn is_copied_from(sum: Sum, before: &[Role]) -> bool {
    let is_half = |it: &Sum| {
        it.element == 2
            && sum.weight > 0
            && (2 * it.output, 2 * it.weight, it.rows) == (sum.output, sum.weight, sum.rows)
    };
    before.iter().rev().take(NEAR).any(|role| role.sums.iter().any(is_half))
}

/// The two requests at a step, if they are a buffer and counters: both freed at once.
pub fn staging(program: &Program, step: usize) -> Option<Staging> {
    let [buffer, counters, first, second] = program.steps.get(step..step + 4)? else { return None };
    let is_free = |wanted: u32| [first, second].iter().any(|it| it.kind == StepKind::Free && it.allocation == wanted);
    let are_asked = buffer.kind == StepKind::Alloc && counters.kind == StepKind::Alloc;
    let is_staging = are_asked && is_free(buffer.allocation) && is_free(counters.allocation);
    is_staging.then_some(Staging { buffer: buffer.bytes, counters: counters.bytes })
}

/// The sums that a request may be the result of, the likeliest of each kind first.
fn sums(requests: &[Request], place: usize, is_staged: bool, live: &Live) -> Vec<Sum> {
    let output = requests[place].bytes;
    let elements = || ELEMENTS.into_iter().filter(|&element| output.is_multiple_of(element));
    let rows_of = |bytes: u64| Some(bytes / output).filter(|&rows| rows > 1 && bytes.is_multiple_of(output));
    let before = |places: usize| place.checked_sub(places).map(|at| &requests[at]).filter(|it| !it.has_stack);
    let last = before(1).map_or(0, |it| it.bytes);
    let mut sums = Vec::new();
    // The gradients of a matrix product come before the sum of its bias: of the input, if anything wants it, then of the weight.
    if let Some(inputs) = rows_of(last) {
        // The first product requests the library's workspace between them.
        let of_input = [before(2), before(3)].into_iter().flatten().map(|it| it.bytes).filter(|&bytes| bytes != last);
        for (of_input, element) in of_input.flat_map(|of_input| elements().map(move |element| (of_input, element))) {
            let rows = of_input / (inputs * element);
            if rows > 1 && of_input.is_multiple_of(inputs * element) && live.has(rows * output) {
                sums.push(Sum { output, element, rows, weight: last, has_product: false });
            }
        }
        if sums.is_empty() {
            for rows in live.recent().filter_map(rows_of) {
                let read = elements().filter(|element| live.has(rows * inputs * element));
                sums.extend(read.map(|element| Sum { output, element, rows, weight: last, has_product: false }));
            }
        }
    }
    if is_staged {
        for rows in live.recent().filter_map(rows_of) {
            sums.extend(elements().map(|element| Sum { output, element, rows, weight: 0, has_product: false }));
        }
        return sums;
    }
    // Checks the requests after the input. Two equal ones belong to the weight and the bias of a normalization.
    let is_twice = requests.get(place + 1).is_some_and(|next| next.bytes == output);
    let summed = [before(1), before(2)].into_iter().flatten().filter_map(|it| rows_of(it.bytes)).max();
    if let Some(rows) = summed.filter(|_| !is_twice) {
        sums.extend(elements().take(1).map(|element| Sum { output, element, rows, weight: 0, has_product: false }));
    }
    sums
}

/// Live blocks.
#[derive(Default)]
struct Live {
    /// In the order in which they were requested.
    blocks: Vec<(u32, u64)>,
    sizes: HashMap<u64, u32>,
}

impl Live {
    fn alloc(&mut self, allocation: u32, bytes: u64) {
        self.blocks.push((allocation, bytes));
        *self.sizes.entry(bytes).or_default() += 1;
    }

    fn free(&mut self, allocation: u32) {
        if let Some(at) = self.blocks.iter().rposition(|&(other, _)| other == allocation) {
            let (_, bytes) = self.blocks.remove(at);
            if let Some(count) = self.sizes.get_mut(&bytes) {
                *count -= 1;
            }
        }
    }

    fn has(&self, bytes: u64) -> bool {
        self.sizes.get(&bytes).is_some_and(|&count| count > 0)
    }

    /// Sizes of the most recent ones, the last one first.
    fn recent(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks.iter().rev().take(LOOKED_AT).map(|&(_, bytes)| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A100: Threads = Threads { processors: 108, each: 2048 };

    fn sum(outputs: u64, rows: u64) -> Option<Staging> {
        Sum { output: 4 * outputs, element: 4, rows, weight: 0, has_product: false }.staging(A100)
    }

    /// Requests that a vision transformer with 768 features made.
    #[test]
    fn buffers_have_the_sizes_that_pytorch_requests() {
        for rows in [3200, 6272, 12544_u64] {
            let pieces = rows.div_ceil(64);
            assert_eq!(sum(768, rows), Some(Staging { buffer: 4 * 768 * 128 * pieces, counters: 24 }), "{rows} rows");
        }
        assert_eq!(sum(768, 1000), None, "too few rows for each thread");
    }

    /// The device runs 1728 such blocks of threads at once.
    #[test]
    fn a_sum_in_one_piece_is_not_staged() {
        let of_blocks = |blocks: u64| sum(128 * blocks, 1024);
        assert_eq!(of_blocks(1728), None, "a block of threads for each column");
        assert!(of_blocks(1727).is_some(), "two of them share a column");
        assert_eq!(of_blocks(1729), None, "more columns than blocks at once");
    }
}
