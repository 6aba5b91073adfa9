//! The graphs that calls without a backward pass leave live, and when each of the two fixes frees them: `no_grad`, or
//! storing a number instead of a tensor.
//!
//! With a number, a graph is freed as soon as no variable holds it. A recording does not show whether one does, since
//! the stored tensor holds the graph anyway; with a variable, the graph stays live until the next one is built. So
//! memviz simulates each fix with and without a variable: the saving with a variable is the least that it saves.

use super::kept_over_steps::sizes_of_inputs;
use super::model_calls::{ModelCall, born_in};
use super::variables::{Function, frame_of_function};
use super::{Finding, Fix, Rewrite, RuleKind};
use crate::facts::device::Device;
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, Instant, NEVER};
use crate::simulation::changes::{Editor, Lifetimes};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What a recording cannot show about a stored graph.
const UNKNOWN: &str = "a variable may keep the last graph until the next one is made, and the program may keep inputs";
/// The same for results under `no_grad`.
const UNKNOWN_RESULTS: &str = "the program may keep inputs, and results until the next ones are made";

#[derive(Clone, Copy, Debug)]
struct Kept {
    index: u32,
    made: Allocation,
    /// When a variable of the function that calls the model would free it.
    rebound: Instant,
    /// Whether it may be the input of the next call: it is allocated after the call and as large as an input of the first one.
    may_be_input: bool,
}

#[derive(Clone, Debug, Default)]
struct Graph {
    /// In order of allocation.
    blocks: Vec<Kept>,
    done: Instant,
    /// When the next call allocates its last block again: a variable of any function may hold the graph until then.
    again: Instant,
}

pub(super) struct Graphs<'d, 'a, 'c> {
    device: &'d Device<'a>,
    of_line: &'c [&'c ModelCall],
    all: Vec<Graph>,
    /// The inputs that the graphs keep: the place of the call, the block, and when its variable is rebound.
    inputs: Vec<(usize, u32, Instant)>,
}

impl<'d, 'a, 'c> Graphs<'d, 'a, 'c> {
    /// The blocks of the calls that outlive a variable and that are wanted; `inputs` are the blocks that only graphs keep.
    pub fn of(
        device: &'d Device<'a>,
        of_line: &'c [&'c ModelCall],
        inputs: Vec<(usize, u32, Instant)>,
        is_wanted: impl Fn(u32, &Allocation) -> bool,
    ) -> Self {
        let function = of_line.first().and_then(|call| Function::of(device, call.line, of_line));
        let entries = device.track.entries();
        let end = |place: usize| of_line.get(place + 1).map_or(entries, |next| next.start).min(of_line[place].scope);
        // Blocks that are allocated before the first call are inputs of the model.
        let first = of_line.first().map_or(0, |call| call.start);
        let before: HashSet<StackId> =
            born_in(device, 0, first).map(|(index, _)| device.track.stack_of(index as usize)).collect();
        let sizes = of_line.first().map(|first| sizes_of_inputs(device, first)).unwrap_or_default();
        let mut graphs = Vec::with_capacity(of_line.len());
        for (place, call) in of_line.iter().enumerate() {
            let next = of_line.get(place + 1);
            let made_again = next.map(|next| born_in(device, next.start, end(place + 1)));
            let made_again = made_again.into_iter().flatten();
            let again: HashMap<StackId, Instant> =
                made_again.map(|(index, made)| (device.track.stack_of(index as usize), made.born)).collect();
            let mut graph = Graph::default();
            for (index, made) in born_in(device, call.start, end(place)) {
                let stack = device.track.stack_of(index as usize);
                if before.contains(&stack) {
                    continue;
                }
                let again = again.get(&stack).copied();
                let Some(again) = again.or(next.is_none().then_some(entries)) else { continue };
                let rebound = function.as_ref().map_or(again, |function| function.released(call, next, again));
                if (made.born..made.freed).contains(&rebound) && is_wanted(index, &made) {
                    let may_be_input = made.born > call.end && sizes.contains(&made.requested);
                    graph.blocks.push(Kept { index, made, rebound, may_be_input });
                    (graph.done, graph.again) = (graph.done.max(made.born), graph.again.max(again));
                }
            }
            graphs.push(graph);
        }
        // Blocks that a call leaves live are allocated before the next call, like inputs.
        let of_graphs: HashSet<u32> =
            graphs.iter().flat_map(|graph| graph.blocks.iter().map(|kept| kept.index)).collect();
        let inputs = inputs.into_iter().filter(|(_, index, _)| !of_graphs.contains(index)).collect();
        Self { device, of_line, all: graphs, inputs }
    }

    /// A number is stored. If a variable holds the last result, its graph stays live until the next one is built.
    fn stored(&self, is_bound: bool) -> Lifetimes {
        let gone = |graph: &Graph| if is_bound { graph.again } else { graph.done };
        let of_graph = |graph: &Graph| {
            let at = gone(graph);
            let blocks = graph.blocks.iter().filter(|kept| at < kept.made.freed && !(is_bound && kept.may_be_input));
            blocks.map(|kept| (kept.index, at)).collect::<Vec<_>>()
        };
        let mut lives = Lifetimes { freed: self.all.iter().flat_map(of_graph).collect(), ..Lifetimes::default() };
        // The holder of the results may also hold the inputs.
        lives.freed.extend(self.inputs.iter().filter(|_| !is_bound).filter_map(|&(place, index, rebound)| {
            let at = self.all.get(place).map_or(rebound, |graph| gone(graph).max(rebound));
            (at < self.device.track.allocation(index as usize)?.freed).then_some((index, at))
        }));
        lives
    }

    fn without(&self, known: &BTreeMap<u32, Instant>, is_bound: bool) -> Lifetimes {
        let mut freed = known.clone();
        for (call, graph) in self.of_line.iter().zip(&self.all) {
            for (place, kept) in graph.blocks.iter().enumerate() {
                // The program may keep its inputs.
                if is_bound && kept.may_be_input {
                    continue;
                }
                freed.entry(kept.index).or_insert_with(|| {
                    // Blocks allocated in the middle of a line are not results.
                    let next = graph.blocks.get(place + 1).filter(|_| kept.made.born > call.end);
                    match next.filter(|next| self.line(next.index) == self.line(kept.index)) {
                        Some(next) => next.made.born,
                        None if is_bound => kept.rebound,
                        None => graph.done,
                    }
                });
            }
        }
        for &(_, index, rebound) in self.inputs.iter().filter(|_| !is_bound) {
            freed.entry(index).or_insert(rebound);
        }
        let ends = |index: u32| self.device.track.allocation(index as usize).map_or(NEVER, |made| made.freed);
        Lifetimes { freed: freed.into_iter().filter(|&(index, at)| at < ends(index)).collect(), ..Lifetimes::default() }
    }

    fn line(&self, index: u32) -> Option<FrameId> {
        self.device.sites().site_frame(self.device.track.stack_of(index as usize))
    }

    fn released_by_modules(&self) -> BTreeMap<u32, Instant> {
        let passes = self.of_line.iter().map(|call| call.start..call.end).collect();
        let kept = self.all.iter().zip(self.of_line).flat_map(|(graph, call)| {
            graph.blocks.iter().filter(|kept| kept.made.born <= call.end).map(|kept| kept.index)
        });
        Editor::new(self.device).releases_without_backward(passes, &kept.collect::<Vec<_>>()).into_iter().collect()
    }

    fn store_a_number(&self) -> Fix {
        // The scalar of `mse_loss` shares the storage of all losses, so `detach()` alone may keep much more than a number.
        Fix::up_to(
            "store a number (.item()), not a tensor with its graph",
            ["values.append(tensor.item())  # for a tensor with several elements: tensor.detach().cpu()"],
            self.stored(true),
            self.stored(false),
            UNKNOWN,
        )
        .by(Rewrite::StoreOnCpu)
    }

    /// The fix that builds no graph; `known` says when blocks would be freed, where the caller knows that better.
    fn make_no_graph(&self, known: Option<&Lifetimes>) -> Fix {
        let mut all = self.released_by_modules();
        all.extend(known.into_iter().flat_map(|lives| lives.freed.iter().copied()));
        Fix::up_to(
            "run the model under torch.no_grad() where no backward pass follows",
            ["with torch.no_grad():  # around the forward pass and its loss"],
            self.without(&all, true),
            self.without(&all, false),
            UNKNOWN_RESULTS,
        )
    }

    /// The line, in the function that calls the model, that allocates the newest block of a graph.
    pub fn line_of_results(&self) -> Option<FrameId> {
        let newest =
            self.all.iter().zip(self.of_line).find_map(|(graph, call)| Some((graph.blocks.last()?, call.line)));
        let (newest, line) = newest?;
        frame_of_function(self.device, self.device.track.stack_of(newest.index as usize), line)
    }

    /// Graphs that no backward pass frees, with both fixes; `known` says when blocks would be freed under `no_grad`,
    /// where the caller knows that better.
    pub fn finding(&self, line: Option<FrameId>, evidence: String, known: Option<&Lifetimes>) -> Finding {
        // Under `no_grad`, a line that does not call the model would store the same graph.
        let stacks = self.of_line.first().map(|call| self.device.track.stack(call.start));
        let frames = stacks.map_or(&[][..], |stack| self.device.snapshot().stacks.frame_ids(stack));
        let calls = line.is_some_and(|line| frames.contains(&line));
        let no_graph = self.make_no_graph(known).by(calls.then_some(Rewrite::NoGrad));
        finding(line, evidence, vec![no_graph, self.store_a_number()])
    }

    /// The same next to a loss: backward needs the graph of the model, so only storing a number is a fix.
    pub fn finding_beside_loss(&self, line: Option<FrameId>, evidence: String) -> Finding {
        finding(line, evidence, vec![self.store_a_number()])
    }
}

fn finding(line: Option<FrameId>, evidence: String, fixes: Vec<Fix>) -> Finding {
    Finding { kind: RuleKind::RetainedGraph, line, evidence, cost: None, fixes }
}
