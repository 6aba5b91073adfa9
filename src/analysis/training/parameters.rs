//! Which blocks are parameters, and how many of each size there are: what gradients and optimizer states mirror.
//!
//! Most say so by their stack. Others persist from before the first backward pass on, and are parameters if there are
//! exactly as many of a size as gradients that no parameter explains yet: every gradient belongs to a parameter of its
//! size.

use super::category::{Category, Evidence};
use super::origin::{Origin, Origins};
use super::phases::Phase;
use super::role::{Role, Roles};
use super::stretches::{Cursor, Stretches};
use super::workspace;
use crate::model::Snapshot;
use crate::replay::{History, NEVER};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// What is known about the parameters of one size.
#[derive(Default)]
struct Size {
    /// Those that are known by their stacks and live when the first backward pass begins, or at the end without one.
    known: u32,
    /// The most gradients of this size that one backward pass leaves.
    gradients: u32,
    /// The backward pass counted last, and what it left.
    last: (usize, u32),
    /// Blocks that may be parameters, those with the best reason first.
    candidates: [Vec<u32>; 3],
}

/// The parameters of one device.
pub(super) struct Parameters {
    sizes: HashMap<u64, u32, RandomState>,
    /// Parameters by allocation.
    found: HashMap<u32, Evidence, RandomState>,
}

impl Parameters {
    pub(super) fn of(
        snapshot: &Snapshot,
        history: &History,
        stretches: &Stretches,
        origins: &Origins,
        roles: &Roles,
    ) -> Self {
        let first = stretches.from(Phase::Backward, 0).map(|(_, stretch)| stretch);
        let mut sizes: HashMap<u64, Size, RandomState> = HashMap::default();
        let mut found: HashMap<u32, Evidence, RandomState> = HashMap::default();
        let mut cursor = Cursor::new(stretches);
        for (index, allocation) in history.allocations.iter().enumerate() {
            let stack = history.stack_of(snapshot, index);
            let origin = origins.get(stack);
            let entry = History::entry_before(allocation.born);
            let place = entry.and_then(|entry| cursor.find(entry));
            let early = first.is_none_or(|first| allocation.born <= first.start);
            // Without a backward pass, what is there at the end persists.
            let persists =
                early && first.map_or(allocation.freed == NEVER, |first| first.outlived_by(allocation.freed));
            let mut evident = |evidence| {
                found.insert(index as u32, evidence);
                if persists {
                    sizes.entry(allocation.requested).or_default().known += 1;
                }
            };
            let rank = match origin {
                Origin::Moved(Some(Category::Parameter)) => {
                    evident(Evidence::ModuleApply);
                    continue;
                }
                // Constructors make scratch tensors, too.
                Origin::Constructed(Category::Parameter) if persists || !early => {
                    evident(Evidence::Constructor);
                    continue;
                }
                Origin::Loaded if persists && first.is_none() => {
                    evident(Evidence::Loading);
                    continue;
                }
                Origin::Moved(None) | Origin::Loaded => 0,
                Origin::Built => 1,
                Origin::Elsewhere => 2,
                _ => continue,
            };
            let may_be_workspace = workspace::is_size(allocation.requested) && allocation.freed == NEVER;
            match place {
                Some((number, stretch)) if stretch.phase == Phase::Backward => {
                    let leaves_gradient = origin == Origin::Elsewhere
                        && roles.role(stack) != Role::Recompute
                        && stretch.outlived_by(allocation.freed)
                        && !may_be_workspace;
                    if leaves_gradient {
                        let size = sizes.entry(allocation.requested).or_default();
                        size.last = (number, if size.last.0 == number { size.last.1 + 1 } else { 1 });
                        size.gradients = size.gradients.max(size.last.1);
                    }
                }
                _ if persists && !(may_be_workspace && rank == 2 && place.is_some()) => {
                    sizes.entry(allocation.requested).or_default().candidates[rank].push(index as u32);
                }
                _ => {}
            }
        }
        let mut counts: HashMap<u64, u32, RandomState> = HashMap::default();
        for (bytes, size) in sizes {
            let mut missing = size.gradients.saturating_sub(size.known);
            let (mut settled, mut possible) = (0, 0);
            // A parameter is there whenever it gets a gradient.
            let last = stretches.get(size.last.0).filter(|_| size.gradients > 0);
            let is_there = |&&index: &&u32| {
                let freed = history.allocations.get(index as usize).map_or(0, |allocation| allocation.freed);
                last.is_none_or(|last| last.begins_before(freed))
            };
            for class in &size.candidates {
                let class: Vec<u32> = class.iter().filter(is_there).copied().collect();
                possible += class.len() as u32;
                if missing == 0 || class.is_empty() {
                    continue;
                }
                // More than are missing: which of them are parameters nobody can tell.
                if class.len() as u32 > missing {
                    break;
                }
                missing -= class.len() as u32;
                settled += class.len() as u32;
                found.extend(class.into_iter().map(|index| (index, Evidence::GradientCount)));
            }
            // Where it is open which of several blocks are the parameters, they are there all the same.
            let count = size.known + if missing == 0 { settled } else { settled.max(possible) };
            if count > 0 {
                counts.insert(bytes, count);
            }
        }
        Self { sizes: counts, found }
    }

    /// What shows that an allocation is a parameter.
    pub(super) fn evidence(&self, allocation: usize) -> Option<Evidence> {
        self.found.get(&(allocation as u32)).copied()
    }

    /// Parameters of exactly this many bytes, at most.
    pub(super) fn of_size(&self, requested: u64) -> u32 {
        self.sizes.get(&requested).copied().unwrap_or(0)
    }
}
