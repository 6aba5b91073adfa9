//! Finds forward passes that keep the outputs of their modules.
//!
//! Without a backward pass, the stacks do not show whether a forward ran under `no_grad`, but the blocks that it keeps do:
//! under `no_grad`, the output of a module is freed as soon as the next module has run, and except for caches, blocks from
//! early in the forward are not live at its end. With gradients enabled, autograd keeps what backward would need.

use super::periods::{Period, Periods};
use super::phases::Phase;
use super::role::{Role, Roles};
use crate::facts::code::frames::installed_path;
use crate::facts::code::sites::Sites;
use crate::model::{Action, FrameId, StackId};
use crate::replay::{Instant, Track};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// One call of a model: consecutive entries inside modules.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// The instant before its first entry.
    start: Instant,
    /// The instant of its last allocation: after it, the blocks of the call are freed unless they are kept.
    last: Instant,
    /// Whether it keeps the outputs of its modules.
    keeps: bool,
}

/// The calls of models in forwards without a following backward pass, in order.
#[derive(Default)]
pub(super) struct Forwards(Vec<Call>);

/// How many of the blocks from the first half of a call must be live at its end, and which fraction: numerator and
/// denominator. A cache of keys and values keeps two of about a dozen.
const LEAST_KEPT: u32 = 4;
const LEAST_SHARE: (u32, u32) = (3, 10);

/// A program may enable gradients within a call, for example if it trains only its last rounds. The rest of the call is
/// tested in halves as long as they contain this many blocks, and so many of their first half must be kept: a single module
/// has fewer.
const LEAST_PART: usize = 64;
const LEAST_KEPT_OF_PART: u32 = 16;

/// Parts of PyTorch that compile and tune a model on its first call. Their allocations do not belong to the model.
const COMPILERS: [&str; 5] = [
    "torch/_inductor/runtime/",
    "torch/_inductor/fx_passes/",
    "torch/_inductor/select_algorithm.py",
    "torch/_inductor/autotune_process.py",
    "torch/_subclasses/",
];

impl Forwards {
    pub(super) fn of(track: Track<'_>, sites: &Sites<'_>, periods: &Periods, roles: &Roles, frees_tell: bool) -> Self {
        let mut reader = Reader { track, sites, roles, frees_tell, compiling: HashMap::default(), calls: Vec::new() };
        let mut next = 0;
        while let Some((number, period)) = periods.from(Phase::Forward, next) {
            next = number + 1;
            if periods.next(Phase::Backward, number).is_none() {
                reader.read(period);
            }
        }
        Self(reader.calls)
    }

    /// Whether a block allocated at an instant outlives a call of the model that keeps the outputs of its modules.
    pub(super) fn keeps(&self, born: Instant, freed: Instant) -> bool {
        self.outlived_by(born, freed).is_some_and(|(_, call)| call.keeps)
    }

    /// The number of the call that a block outlives, if the call does not keep the outputs of its modules.
    pub(super) fn outlived(&self, born: Instant, freed: Instant) -> Option<usize> {
        self.outlived_by(born, freed).filter(|(_, call)| !call.keeps).map(|(index, _)| index)
    }

    fn outlived_by(&self, born: Instant, freed: Instant) -> Option<(usize, &Call)> {
        let index = self.0.partition_point(|call| call.start < born).checked_sub(1)?;
        self.0.get(index).filter(|call| born <= call.last && freed > call.last).map(|call| (index, call))
    }
}

/// A block that a call allocated.
#[derive(Clone, Copy)]
struct Block {
    born: Instant,
    freed: Instant,
    checkpointed: bool,
}

struct Reader<'a> {
    track: Track<'a>,
    sites: &'a Sites<'a>,
    roles: &'a Roles,
    frees_tell: bool,
    compiling: HashMap<StackId, bool, RandomState>,
    calls: Vec<Call>,
}

impl Reader<'_> {
    /// Reads the calls of one period.
    fn read(&mut self, period: Period) {
        let mut blocks: Vec<Block> = Vec::new();
        let mut start = period.start;
        for entry in period.start..period.end {
            let comes = match self.track.action(entry) {
                Some(Action::Alloc) => true,
                Some(Action::FreeRequested) if self.frees_tell => false,
                _ => continue,
            };
            let stack = self.track.stack(entry);
            match self.roles.role(stack) {
                Role::Module if comes && !self.is_compiling(stack) => {
                    let block = self.track.history.allocation_of(entry);
                    let checkpointed = self.roles.is_checkpointed(stack);
                    blocks.extend(block.map(|block| Block { born: block.born, freed: block.freed, checkpointed }));
                }
                Role::Module | Role::Silent => {}
                _ => {
                    self.finish(start, &mut blocks);
                    start = entry + 1;
                }
            }
        }
        self.finish(start, &mut blocks);
    }

    fn finish(&mut self, start: Instant, blocks: &mut Vec<Block>) {
        let Some(&Block { born: last, .. }) = blocks.last() else { return };
        // With activation checkpointing, only the output of a checkpointed part is kept: what stays inside is no evidence.
        blocks.retain(|block| !block.checkpointed || block.freed > last);
        let keeps = |part: &[Block], least: u32| {
            let early = &part[..part.len() / 2];
            let kept = early.iter().filter(|block| block.freed > last).count() as u32;
            let (numerator, denominator) = LEAST_SHARE;
            kept >= least && kept * denominator >= early.len() as u32 * numerator
        };
        let keeps_all = keeps(blocks, LEAST_KEPT);
        self.calls.push(Call { start, last, keeps: keeps_all });
        let mut part = &blocks[blocks.len() / 2..];
        while !keeps_all && part.len() >= LEAST_PART {
            if keeps(part, LEAST_KEPT_OF_PART) {
                self.calls.push(Call { start: part[0].born.saturating_sub(1), last, keeps: true });
                break;
            }
            part = &part[part.len() / 2..];
        }
        blocks.clear();
    }

    fn is_compiling(&mut self, stack: StackId) -> bool {
        let sites = self.sites;
        *self.compiling.entry(stack).or_insert_with(|| {
            let snapshot = sites.snapshot();
            let compiles = |&frame: &FrameId| {
                let file = snapshot.stacks.frame(frame).map_or("", |frame| snapshot.strings.get(frame.filename));
                let path = installed_path(file).unwrap_or("").replace('\\', "/");
                COMPILERS.iter().any(|compiler| path.starts_with(compiler))
            };
            snapshot.stacks.frame_ids(stack).iter().any(compiles)
        })
    }
}
