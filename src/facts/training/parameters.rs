//! The blocks that are parameters, and their number by size: gradients and optimizer states have the same sizes.
//!
//! For most parameters, the stack shows it. Other blocks persist from before the first backward pass, and are parameters if
//! there are exactly as many of a size as gradients without a parameter: every gradient belongs to a parameter of its size.

use super::category::{Category, Evidence};
use super::origin::{Origin, Origins};
use super::periods::{Cursor, Periods};
use super::phases::Phase;
use super::replacements::Replacements;
use super::role::{Role, Roles};
use super::workspace;
use crate::replay::{History, NEVER, Track};
use crate::sorting::SortRows;
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Counts of parameters and gradients of one size.
#[derive(Default)]
struct Size {
    /// Parameters known by their stacks that are live when the first backward pass starts, or at the end if there is none.
    known: u32,
    /// The most gradients of this size that one backward pass leaves.
    gradients: u32,
    /// The last counted backward pass, and the gradients that it leaves.
    last: (usize, u32),
    /// Blocks that may be parameters, those with the best evidence first.
    candidates: [Vec<u32>; 3],
}

/// The parameters of one device.
pub(super) struct Parameters {
    sizes: HashMap<u64, u32, RandomState>,
    /// Parameters, and optimizer states that sizes distinguish from them, by allocation.
    found: Vec<Option<(Category, Evidence)>>,
    /// Blocks that may be parameters, buffers, gradients or optimizer states.
    open: HashSet<u32, RandomState>,
}

impl Parameters {
    #[allow(clippy::too_many_lines, reason = "one pass over blocks and one over sizes, with what both need")]
    pub(super) fn of(
        track: Track<'_>,
        periods: &Periods,
        origins: &Origins,
        roles: &Roles,
        replacements: &Replacements,
    ) -> Self {
        let history = track.history;
        let first = periods.from(Phase::Backward, 0).map(|(_, period)| period);
        let mut sizes: HashMap<u64, Size, RandomState> = HashMap::default();
        let mut found: Vec<Option<(Category, Evidence)>> = vec![None; history.allocations.len()];
        let mut cursor = Cursor::new(periods);
        for (index, allocation, stack) in track.allocations() {
            let origin = origins.get(stack);
            let entry = History::entry_before(allocation.born);
            let place = entry.and_then(|entry| cursor.find(entry));
            let early = first.is_none_or(|first| allocation.born <= first.start);
            // Without a backward pass, blocks that are live at the end persist.
            let persists =
                early && first.map_or(allocation.freed == NEVER, |first| first.outlived_by(allocation.freed));
            let mut evident = |evidence| {
                found[index as usize] = Some((Category::Parameter, evidence));
                if persists {
                    sizes.entry(allocation.requested).or_default().known += 1;
                }
            };
            let rank = match origin {
                Origin::Moved(Some(Category::Parameter)) => {
                    evident(Evidence::ModuleApply);
                    continue;
                }
                // Constructors allocate scratch tensors, too.
                Origin::Constructed(Category::Parameter) if persists || !early => {
                    evident(Evidence::Constructor);
                    continue;
                }
                Origin::Loaded if persists && first.is_none() => {
                    evident(Evidence::Loading);
                    continue;
                }
                Origin::Named(Category::Parameter) if persists => {
                    evident(Evidence::Named);
                    continue;
                }
                Origin::Moved(None) | Origin::Loaded => 0,
                Origin::Built | Origin::ModuleBuilt => 1,
                Origin::Elsewhere | Origin::Function => 2,
                _ => continue,
            };
            let may_be_workspace = workspace::is_workspace_size(allocation.requested) && allocation.freed == NEVER;
            match place {
                Some((number, period)) if period.phase == Phase::Backward => {
                    let leaves_gradient = matches!(origin, Origin::Elsewhere | Origin::Function)
                        && roles.role(stack) != Role::Recompute
                        && period.outlived_by(allocation.freed)
                        && !may_be_workspace;
                    if leaves_gradient {
                        let size = sizes.entry(allocation.requested).or_default();
                        size.last = (number, if size.last.0 == number { size.last.1 + 1 } else { 1 });
                        size.gradients = size.gradients.max(size.last.1);
                    }
                }
                // The stack of an older block belongs to a step, not to the construction of a model.
                None if matches!(
                    roles.role(stack),
                    Role::Module | Role::Backward | Role::Recompute | Role::Optimizer
                ) => {}
                _ if persists && !(may_be_workspace && rank == 2 && place.is_some()) => {
                    sizes.entry(allocation.requested).or_default().candidates[rank].push(index);
                }
                _ => {}
            }
        }
        let mut counts: HashMap<u64, u32, RandomState> = HashMap::default();
        let mut open: HashSet<u32, RandomState> = HashSet::default();
        for (bytes, size) in sizes {
            let mut missing = size.gradients.saturating_sub(size.known);
            let (mut settled, mut possible) = (0, 0);
            // A parameter is live whenever it gets a gradient.
            let last = periods.get(size.last.0).filter(|_| size.gradients > 0);
            let is_there = |&&index: &&u32| {
                let freed = history.allocations.get(index as usize).map_or(0, |allocation| allocation.freed);
                let freed = replacements.ends(history, index, freed);
                last.is_none_or(|last| last.begins_before(freed))
            };
            let makes_gradients = first.is_none() || size.gradients > 0;
            if !makes_gradients && size.known == 0 {
                let class = &size.candidates[2];
                if let Some((parameters, divided)) = divided_with_gradients(class, bytes, replacements) {
                    settled = parameters;
                    for (index, verdict) in divided {
                        found[index as usize] = Some(verdict);
                    }
                }
            }
            for class in &size.candidates {
                let class: Vec<u32> = class.iter().filter(is_there).copied().collect();
                possible += class.len() as u32;
                if missing == 0 || class.is_empty() {
                    continue;
                }
                // There are more than needed: it is unknown which of them are parameters, unless the optimizer shows it.
                if class.len() as u32 > missing {
                    let Some(divided) = divided(&class, bytes, missing, replacements) else { break };
                    settled += missing;
                    missing = 0;
                    for (index, verdict) in divided {
                        found[index as usize] = Some(verdict);
                    }
                    continue;
                }
                missing -= class.len() as u32;
                settled += class.len() as u32;
                let verdict = (Category::Parameter, Evidence::GradientCount);
                for index in class {
                    found[index as usize] = Some(verdict);
                }
            }
            if size.gradients > 0 || size.known > 0 {
                let may_be = |index: &u32| found[*index as usize].is_none() && may_stay(history, replacements, *index);
                open.extend(size.candidates.iter().flatten().copied().filter(may_be));
            }
            // Even if it is unknown which of several blocks are the parameters, their number is known.
            let count = size.known + if missing == 0 { settled } else { settled.max(possible) };
            if count > 0 {
                counts.insert(bytes, count);
            }
        }
        Self { sizes: counts, found, open }
    }

    /// The category of an allocation that is a parameter, or was distinguished from parameters of its size.
    pub(super) fn verdict(&self, allocation: usize) -> Option<(Category, Evidence)> {
        self.found.get(allocation).copied().flatten()
    }

    /// Whether an allocation has the size of parameters and stays live, without evidence for one category.
    pub(super) fn is_open(&self, allocation: usize) -> bool {
        self.open.contains(&(allocation as u32))
    }

    /// The highest possible number of parameters of exactly this many bytes.
    pub(super) fn of_size(&self, requested: u64) -> u32 {
        self.sizes.get(&requested).copied().unwrap_or(0)
    }
}

/// Whether a block, or the last block that replaces it, is never freed.
fn may_stay(history: &History, replacements: &Replacements, index: u32) -> bool {
    let Some(allocation) = history.allocations.get(index as usize) else { return false };
    replacements.ends(history, index, allocation.freed) == NEVER
}

/// Blocks of one size that the optimizer replaces in a step, by the line that allocates the new ones, with the last new block
/// of each line; the blocks that it changes in place; and the period of the step.
struct Replaced {
    by_line: Vec<(Vec<u32>, u32)>,
    in_place: Vec<u32>,
    period: u32,
}

impl Replaced {
    /// How one step of the optimizer treats the blocks of a class; `None` if several steps replace them, or none does.
    fn of(class: &[u32], replacements: &Replacements) -> Option<Self> {
        let mut in_place = Vec::new();
        let mut by_line: BTreeMap<_, (Vec<u32>, u32)> = BTreeMap::new();
        let mut period = None;
        for &index in class {
            let Some(replacement) = replacements.replacement(index) else {
                in_place.push(index);
                continue;
            };
            // One step of the optimizer frees them all.
            if *period.get_or_insert(replacement.period) != replacement.period {
                return None;
            }
            let (blocks, last) = by_line.entry(replacement.line?).or_default();
            blocks.push(index);
            *last = (*last).max(replacement.index);
        }
        let mut by_line: Vec<(Vec<u32>, u32)> = by_line.into_values().collect();
        by_line.sort_rows_by_key(|&(_, last)| last);
        Some(Self { by_line, in_place, period: period? })
    }

    /// Whether each line replaces this many blocks.
    fn replaces(&self, count: usize) -> bool {
        self.by_line.iter().all(|(blocks, _)| blocks.len() == count)
    }
}

type Verdict = (u32, (Category, Evidence));

/// Distinguishes parameters from optimizer states of their size by the first optimizer step in a recording that starts late:
/// the optimizer allocates new moments, and changes parameters with them.
fn divided(class: &[u32], bytes: u64, missing: u32, replacements: &Replacements) -> Option<Vec<Verdict>> {
    let mut replaced = Replaced::of(class, replacements).filter(|replaced| replaced.replaces(missing as usize))?;
    let parameter = |evidence| move |index: u32| (index, (Category::Parameter, evidence));
    match replaced.in_place.len() {
        // Computing with the new moments changes the other blocks in place.
        count if count == missing as usize && replacements.computes_on(replaced.period, bytes) => {
            let in_place = std::mem::take(&mut replaced.in_place).into_iter().map(parameter(Evidence::ChangedInPlace));
            Some(made_anew(replaced).chain(in_place).collect())
        }
        // Both moments are allocated before the step that they determine.
        0 if replaced.by_line.len() > 2 => {
            let (parameters, _) = replaced.by_line.pop()?;
            Some(made_anew(replaced).chain(parameters.into_iter().map(parameter(Evidence::MadeLast))).collect())
        }
        _ => None,
    }
}

/// The same if backward adds to gradients that are as old: the blocks changed in place are parameters and gradients.
fn divided_with_gradients(class: &[u32], bytes: u64, replacements: &Replacements) -> Option<(u32, Vec<Verdict>)> {
    let mut replaced = Replaced::of(class, replacements)?;
    let count = replaced.by_line.first()?.0.len();
    let is_divided = replaced.replaces(count)
        && replaced.in_place.len() == 2 * count
        && replacements.computes_on(replaced.period, bytes);
    is_divided.then(|| {
        let open = std::mem::take(&mut replaced.in_place);
        let open = open.into_iter().map(|index| (index, (Category::ModelState, Evidence::ParameterSize)));
        (count as u32, made_anew(replaced).chain(open).collect())
    })
}

fn made_anew(replaced: Replaced) -> impl Iterator<Item = Verdict> {
    let anew = replaced.by_line.into_iter().flat_map(|(blocks, _)| blocks);
    anew.map(|index| (index, (Category::OptimizerState, Evidence::MadeAnew)))
}
