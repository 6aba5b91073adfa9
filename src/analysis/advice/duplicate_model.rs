//! A second copy of the weights that stays on the device: a state dict that was loaded or copied there.

use super::{Finding, Remedy, Story};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase};
use crate::model::StackId;
use crate::model::bytes::Bytes;
use crate::play::changes::Lives;
use crate::replay::{Allocation, NEVER};
use std::collections::{BTreeMap, HashMap};

/// Of the bytes of a copy, at least such a share in percent has the sizes of parameters.
const LEAST_LIKE: u64 = 90;
/// A copy has so many blocks at least.
const LEAST_BLOCKS: usize = 4;

/// How a copy of a state dict comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Way {
    /// `torch.load`.
    Loaded,
    /// `copy.deepcopy` of plain tensors: those of a model are parameters, which are copied elsewhere.
    Copied,
}

/// One finding for each line that makes a copy which stays while the model is trained or called.
pub(super) fn find(device: &Device<'_>) -> Vec<Finding> {
    let mut ways: HashMap<StackId, Option<Way>> = HashMap::new();
    let phases = device.phases();
    let used = |made: &Allocation| {
        phases.spans.iter().any(|span| span.phase == Phase::Forward && made.born <= span.start && made.freed > span.end)
    };
    let mut copies: BTreeMap<(Way, u32), Vec<(u32, Allocation)>> = BTreeMap::new();
    for (index, made) in (0u32..).zip(&device.history().allocations) {
        let stack = device.track.stack_of(index as usize);
        let Some(way) = *ways.entry(stack).or_insert_with(|| way(device, stack)) else { continue };
        let Some(line) = device.sites().site_frame(stack).filter(|_| used(made)) else { continue };
        copies.entry((way, line.0)).or_default().push((index, *made));
    }
    if copies.is_empty() {
        return Vec::new();
    }
    copies.into_iter().filter_map(|((way, line), blocks)| finding(device, way, line, &blocks)).collect()
}

fn finding(device: &Device<'_>, way: Way, line: u32, blocks: &[(u32, Allocation)]) -> Option<Finding> {
    // The model's own, of each size: what it works with is not among the copies.
    let mut own: HashMap<u64, usize> = HashMap::new();
    let is_copy = |index: u32| blocks.binary_search_by_key(&index, |&(index, _)| index).is_ok();
    for (index, made) in (0u32..).zip(&device.history().allocations) {
        let category = device.categories().get(index as usize).category;
        let is_weight = matches!(category, Category::Parameter | Category::Buffer | Category::ModelState);
        if is_weight && !is_copy(index) && made.freed == NEVER {
            *own.entry(made.requested).or_default() += 1;
        }
    }
    let total: u64 = blocks.iter().map(|(_, made)| made.size).fold(0, u64::saturating_add);
    let like = blocks.iter().filter(|(_, made)| {
        own.get_mut(&made.requested).is_some_and(|count| {
            let is_left = *count > 0;
            *count = count.saturating_sub(1);
            is_left
        })
    });
    let like: Vec<&(u32, Allocation)> = like.collect();
    let like_bytes: u64 = like.iter().map(|(_, made)| made.size).fold(0, u64::saturating_add);
    if like.len() < LEAST_BLOCKS || like_bytes.saturating_mul(100) < total.saturating_mul(LEAST_LIKE) {
        return None;
    }
    let (cure, code) = match way {
        Way::Loaded => (
            "load the state dict on the CPU, and delete it once the model has loaded it",
            vec!["checkpoint = torch.load(path, map_location=\"cpu\")", "del checkpoint  # after load_state_dict"],
        ),
        Way::Copied => (
            "keep the copy of the state dict on the CPU",
            vec!["best = {name: value.cpu() for name, value in model.state_dict().items()}"],
        ),
    };
    let lives = Lives { removed: blocks.iter().map(|&(index, _)| index).collect(), ..Lives::default() };
    Some(Finding {
        story: Story::DuplicateModel,
        line: Some(crate::model::FrameId(line)),
        cure: cure.to_owned(),
        evidence: format!("{} allocated here match the sizes of the weights and stay alive beside them", Bytes(total)),
        cost: None,
        code: code.into_iter().map(str::to_owned).collect(),
        remedy: Remedy::Lives(lives),
    })
}

/// Whether a stack makes a part of a state dict.
fn way(device: &Device<'_>, stack: StackId) -> Option<Way> {
    let snapshot = device.snapshot();
    let mut found = None;
    for frame in snapshot.stacks.frames(stack) {
        let file = snapshot.strings.get(frame.filename).replace('\\', "/");
        match snapshot.strings.get(frame.name) {
            "load" | "_load" if file.ends_with("torch/serialization.py") => return Some(Way::Loaded),
            "__deepcopy__" if file.ends_with("torch/nn/parameter.py") => return None,
            "__deepcopy__" if file.ends_with("torch/_tensor.py") => found = Some(Way::Copied),
            "forward" | "_apply" => return None,
            _ => {}
        }
    }
    found
}
