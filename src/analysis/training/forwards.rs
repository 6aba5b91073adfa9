//! Which forwards keep what their modules make.
//!
//! Without a backward pass nothing says whether a forward ran under `no_grad`. What it keeps does: under `no_grad` the
//! output of a module is gone as soon as the next has run, and what was made early is not there at the end, but for a
//! cache. With grad, autograd keeps what backward would need.

use super::phases::Phase;
use super::role::{Role, Roles};
use super::stretches::{Stretch, Stretches};
use crate::model::{Action, Snapshot};
use crate::replay::{History, Instant};

/// One call of a model: entries one after another inside modules.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// The instant before its first entry.
    start: Instant,
    /// The instant of its last allocation: from here on what it made is dropped, unless it is kept.
    last: Instant,
    /// Whether it keeps what its modules make.
    keeps: bool,
}

/// The calls of models in forwards that no backward pass follows, in order.
#[derive(Default)]
pub(super) struct Forwards(Vec<Call>);

/// So many blocks must be there at the end of those that the first half of a call made, and such a share: as numerator
/// and denominator. A cache of keys and values keeps two of about a dozen.
const LEAST_KEPT: u32 = 4;
const LEAST_SHARE: (u32, u32) = (3, 10);

impl Forwards {
    pub(super) fn of(
        snapshot: &Snapshot,
        history: &History,
        stretches: &Stretches,
        roles: &Roles,
        frees_tell: bool,
    ) -> Self {
        let mut calls = Vec::new();
        let mut next = 0;
        while let Some((number, stretch)) = stretches.from(Phase::Forward, next) {
            next = number + 1;
            if stretches.next(Phase::Backward, number).is_none() {
                read(snapshot, history, roles, frees_tell, stretch, &mut calls);
            }
        }
        Self(calls)
    }

    /// Whether a block made at an instant outlives a call of the model that keeps what its modules make.
    pub(super) fn keeps(&self, born: Instant, freed: Instant) -> bool {
        self.call(born).is_some_and(|call| call.keeps && freed > call.last)
    }

    fn call(&self, born: Instant) -> Option<&Call> {
        let index = self.0.partition_point(|call| call.start < born).checked_sub(1)?;
        self.0.get(index).filter(|call| born <= call.last)
    }
}

/// Appends the calls of one stretch.
fn read(
    snapshot: &Snapshot,
    history: &History,
    roles: &Roles,
    frees_tell: bool,
    stretch: Stretch,
    calls: &mut Vec<Call>,
) {
    let mut blocks: Vec<Block> = Vec::new();
    let mut start = stretch.start;
    for entry in stretch.start..stretch.end {
        let row = history.rows.start + entry as usize;
        let comes = match snapshot.entries.actions().get(row) {
            Some(Action::Alloc) => true,
            Some(Action::FreeRequested) if frees_tell => false,
            _ => continue,
        };
        let stack = snapshot.entries.stack(row);
        match roles.role(stack) {
            Role::Module if comes => {
                if let Some(allocation) = history.allocation_of(entry) {
                    let checkpointed = roles.is_checkpointed(stack);
                    blocks.push(Block { born: allocation.born, freed: allocation.freed, checkpointed });
                }
            }
            Role::Module | Role::Silent => {}
            _ => {
                finish(start, &mut blocks, calls);
                start = entry + 1;
            }
        }
    }
    finish(start, &mut blocks, calls);
}

/// What a call made.
#[derive(Clone, Copy)]
struct Block {
    born: Instant,
    freed: Instant,
    checkpointed: bool,
}

fn finish(start: Instant, blocks: &mut Vec<Block>, calls: &mut Vec<Call>) {
    let Some(&Block { born: last, .. }) = blocks.last() else { return };
    // Under activation checkpointing only what leaves a part is kept: what stays inside says nothing.
    blocks.retain(|block| !block.checkpointed || block.freed > last);
    let early = &blocks[..blocks.len() / 2];
    let kept = early.iter().filter(|block| block.freed > last).count() as u32;
    let (numerator, denominator) = LEAST_SHARE;
    let keeps = kept >= LEAST_KEPT && kept * denominator >= early.len() as u32 * numerator;
    calls.push(Call { start, last, keeps });
    blocks.clear();
}
