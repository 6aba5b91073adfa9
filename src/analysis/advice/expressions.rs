//! **An expression** allocates a whole tensor several times: `x = (x.to(dtype) - mean) / std`. Each operator of such a line
//! releases the result of the previous one. The fix computes in place, or in the tensor's own dtype.

use super::rules::Evidence;
use super::whole_copies::{function, goes_behind, line};
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::Phase;
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, Metric};
use crate::simulation::changes::Lifetimes;

/// Tensors are reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 20;
/// A cast changes the size of an element by one of these factors.
const FACTORS: [u64; 3] = [2, 4, 8];
/// Number of blocks that are examined to find the released tensor: the most recent ones.
const LOOKED_AT: usize = 64;
/// The most results of an expression that starts with a cast.
const LONGEST_CAST: usize = 4;
const UNKNOWN_OPERATOR: &str = "the recording does not show whether the operators have in-place forms";
const UNKNOWN_DTYPE: &str = "the recording does not show whether the tensor's own dtype is precise enough";

/// The results of the operators on one line, each computed from the previous one.
struct Chain {
    line: FrameId,
    results: Vec<u32>,
}

/// One finding, for the expression whose results are live at the peak.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let history = device.history();
    let peak = history.maxima[Metric::Allocated as usize];
    let least = (u64::try_from(peak.bytes).unwrap_or(0) / NOTABLE_PART).max(1);
    let large = (0u32..).zip(&history.allocations).filter(|(_, made)| made.size >= least);
    let mut chains: Vec<Chain> = Vec::new();
    for (index, made) in large {
        let at = line(device, index).filter(|_| function(device, index, made).is_some());
        let Some(at) = at else { continue };
        match chains.last_mut() {
            Some(chain) if chain.line == at && continues(device, chain, index) => chain.results.push(index),
            _ => chains.push(Chain { line: at, results: vec![index] }),
        }
    }
    let is_at_peak = |chain: &&Chain| {
        chain.results.iter().filter(|&&index| block(device, index).allocated_at(peak.instant)).count() >= 2
    };
    let found = chains.iter().filter(is_at_peak).find_map(|chain| {
        let is_even = is_even(chain, &chains);
        origin(device, chain, is_even).and_then(|origin| finding(device, chain, origin, is_even, &chains))
    });
    found.into_iter().collect()
}

fn block(device: &Device<'_>, index: u32) -> Allocation {
    device.history().allocations[index as usize]
}

/// Whether a block has the size of the last result, and that result is released right after the block is allocated.
fn continues(device: &Device<'_>, chain: &Chain, index: u32) -> bool {
    chain.results.last().is_some_and(|&last| {
        block(device, last).requested == block(device, index).requested && goes_behind(device, last, index, chain.line)
    })
}

#[derive(Clone, Copy, Debug)]
enum Origin {
    /// A tensor that is released with it.
    Rebound(u32),
    /// A cast of a tensor that stays live.
    Cast,
}

/// The origin of an expression, if it has one; `is_even` says whether every run of its line makes as many results.
fn origin(device: &Device<'_>, chain: &Chain, is_even: bool) -> Option<Origin> {
    source(device, chain).map(Origin::Rebound).or_else(|| (is_even && is_cast(device, chain)).then_some(Origin::Cast))
}

/// Whether every run of a line makes as many results. A loop that repeats one allocation makes one chain of all of them.
fn is_even(chain: &Chain, chains: &[Chain]) -> bool {
    let alike = chains.iter().filter(|other| other.line == chain.line);
    alike.map(|other| other.results.len()).all(|length| length == chain.results.len())
}

/// Whether an expression starts with a cast of a tensor that plain code made, and that stays live: its results follow each other
/// directly.
fn is_cast(device: &Device<'_>, chain: &Chain) -> bool {
    let (Some(&first), Some(&last)) = (chain.results.first(), chain.results.last()) else { return false };
    let is_direct = chain.results.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let is_kept = |index: u32| device.phases().at(block(device, index).freed) == Phase::Backward;
    let copy = block(device, first).requested;
    let is_source = |index: u32| {
        let from = block(device, index);
        FACTORS.iter().any(|&factor| from.requested.saturating_mul(factor) == copy)
            && from.freed > block(device, last).born
            && line(device, index) != Some(chain.line)
            && function(device, index, &from).is_some()
    };
    (2..=LONGEST_CAST).contains(&chain.results.len())
        && is_direct
        && !chain.results.iter().any(|&index| is_kept(index))
        && (0..first).rev().take(LOOKED_AT).any(is_source)
}

/// The tensor that an expression starts from: another line allocated it, and the expression's line rebinds its variable.
fn source(device: &Device<'_>, chain: &Chain) -> Option<u32> {
    let (&first, &last) = (chain.results.first()?, chain.results.last()?);
    (0..first).rev().take(LOOKED_AT).find(|&index| {
        let (source, copy) = (block(device, index).requested, block(device, first).requested);
        let is_cast = || {
            FACTORS.iter().any(|&factor| source.saturating_mul(factor) == copy || copy.saturating_mul(factor) == source)
        };
        (source == copy || is_cast())
            && line(device, index) != Some(chain.line)
            && lines_around(device, last, chain).any(|at| goes_behind(device, index, last, at))
    })
}

/// The line of an expression, and the lines that call its function: a caller may bind the result to the variable that it passed.
fn lines_around<'d>(device: &'d Device<'_>, last: u32, chain: &Chain) -> impl Iterator<Item = FrameId> + 'd {
    let frames = device.snapshot().stacks.frame_ids(device.track.stack_of(last as usize)).iter().copied();
    let from = chain.line;
    frames.skip_while(move |&frame| frame != from).filter(|&frame| device.sites().is_own(frame))
}

/// The finding for an expression, with all chains that its line computes.
fn finding(device: &Device<'_>, named: &Chain, from: Origin, is_even: bool, chains: &[Chain]) -> Option<Finding> {
    let (mut in_place, mut uncast) = (Lifetimes::default(), Some(Lifetimes::default()));
    for chain in chains.iter().filter(|chain| chain.line == named.line) {
        let (Some(origin), Some(&first), Some(&last)) =
            (origin(device, chain, is_even), chain.results.first(), chain.results.last())
        else {
            continue;
        };
        let Origin::Rebound(source) = origin else {
            in_place.removed.extend(&chain.results[1..]);
            in_place.freed.push((first, block(device, last).freed.saturating_sub(1)));
            uncast = None;
            continue;
        };
        let is_cast = block(device, source).requested != block(device, first).requested;
        let (place, copies) = if is_cast { (first, &chain.results[1..]) } else { (source, &chain.results[..]) };
        in_place.removed.extend(copies);
        in_place.freed.push((place, block(device, last).freed.saturating_sub(1)));
        uncast = uncast.zip(cast_back(device, last, source).filter(|_| is_cast)).map(|(mut uncast, back)| {
            uncast.removed.extend(chain.results.iter().copied().chain([back]));
            uncast.freed.push((source, block(device, back).freed.saturating_sub(1)));
            uncast
        });
    }
    let change =
        "use in-place operators, if each element of a result depends only on the corresponding element of the input";
    let is_cast = match from {
        Origin::Rebound(source) => block(device, source).requested != block(device, *named.results.first()?).requested,
        Origin::Cast => true,
    };
    // A recording contains neither the dtypes nor the operators.
    let code = if is_cast {
        "x = x.to(dtype).sub_(mean).div_(std)  # if it was (x.to(dtype) - mean) / std"
    } else {
        "x = x.sub_(mean).div_(std)  # if it was (x - mean) / std"
    };
    let in_place = Fix::new(change, [code], Lifetimes { doubt: Some(UNKNOWN_OPERATOR), ..in_place });
    let uncast = uncast.map(|uncast| {
        let code = "x = x.sub_(mean).div_(std)  # if it was ((x.to(dtype) - mean) / std).to(x.dtype)";
        Fix::new(
            "compute in place, in the tensor's own dtype",
            [code],
            Lifetimes { doubt: Some(UNKNOWN_DTYPE), ..uncast },
        )
    });
    Some(Finding {
        kind: RuleKind::Temporary,
        line: Some(named.line),
        evidence: format!(
            "this line allocates {} tensors of {} one after the other; {} are live at the peak",
            named.results.len(),
            Bytes(block(device, *named.results.first()?).size),
            if named.results.len() == 2 { "both" } else { "two of them" }
        ),
        cost: None,
        fixes: std::iter::once(in_place).chain(uncast).collect(),
    })
}

/// The result of an expression after the cast back to the dtype of the source, if nothing else is computed from it.
fn cast_back(device: &Device<'_>, last: u32, source: u32) -> Option<u32> {
    let history = device.history();
    let after = last + 1..history.allocations.len() as u32;
    let back =
        after.take(LOOKED_AT).find(|&index| block(device, index).requested == block(device, source).requested)?;
    let next = history.allocations.get(back as usize + 1).map_or(history.entries(), |next| next.born);
    let gone = block(device, last).freed;
    (gone > block(device, back).born && gone <= next).then_some(back)
}
