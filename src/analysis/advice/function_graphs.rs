//! Finds graphs that a function leaves live, without a backward pass through them: `total += similarity(outputs)`.

use super::Finding;
use super::graphs::Graphs;
use super::kept_over_steps::{Kept, LEAST_COLLECTED, LONGEST_LINE, SMALL, inputs, is_freed_by_backward, is_of_forward};
use super::model_calls::ModelCall;
use super::variables::frame_of_function;
use crate::facts::device::Device;
use crate::facts::training::Role;
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::replay::Allocation;
use std::collections::{BTreeMap, HashSet};

/// Minimum number of intermediates that a function leaves live if autograd keeps them.
const LEAST_INTERMEDIATES: usize = 3;

/// The graph of a function with a small result, called by the function that calls the model: several of its intermediates outlive it
/// over two more calls. No variable of a function that has returned holds them, so autograd does.
pub(super) fn graph_of_function<'c>(
    device: &Device<'_>,
    of_line: &[&ModelCall],
    outlived: Vec<Kept<'c>>,
) -> Option<Finding> {
    let stack = |index: u32| device.track.stack_of(index as usize);
    let kept = |Kept { call, blocks }: Kept<'c>| -> Option<(FrameId, Kept<'c>)> {
        let line = |index: u32| frame_of_function(device, stack(index), call.line);
        // The caller's own line may keep its result in a variable.
        let is_inner = |index: u32| {
            let own = device.sites().site_frame(stack(index));
            device.roles().role(stack(index)) == Role::Plain && own.is_some() && own != line(index)
        };
        let mut lines: BTreeMap<FrameId, Vec<(u32, Allocation)>> = BTreeMap::new();
        for (index, made) in
            blocks.into_iter().filter(|(index, made)| is_inner(*index) && !is_freed_by_backward(device, made))
        {
            if let Some(line) = line(index) {
                lines.entry(line).or_default().push((index, made));
            }
        }
        let bytes =
            |blocks: &[(u32, Allocation)]| blocks.iter().map(|(_, made)| made.size).fold(0, u64::saturating_add);
        let (of_line, blocks) = lines.into_iter().max_by_key(|(_, blocks)| bytes(blocks))?;
        let stacks: HashSet<StackId> = blocks.iter().map(|&(index, _)| stack(index)).collect();
        let newest = blocks.last()?.0;
        let behind = (newest..).map_while(|index| Some((index, device.track.allocation(index as usize)?)));
        let result =
            behind.take_while(|(index, _)| line(*index) == Some(of_line)).take(LONGEST_LINE).last()?.1.requested;
        let largest = blocks.iter().map(|(_, made)| made.requested).max()?;
        let is_graph = blocks.len() >= LEAST_INTERMEDIATES && stacks.len() > 1;
        (is_graph && result.saturating_mul(SMALL) <= largest).then_some((of_line, Kept { call, blocks }))
    };
    let kept: Vec<(FrameId, Kept<'_>)> = outlived.into_iter().filter_map(kept).collect();
    let &(line, ref first) =
        kept.first().filter(|_| kept.len() >= LEAST_COLLECTED && kept.len() * 2 >= of_line.len())?;
    let stacks: HashSet<StackId> = first.blocks.iter().map(|&(index, _)| stack(index)).collect();
    let is_wanted = |index: u32, made: &Allocation| {
        stacks.contains(&stack(index)) && !is_freed_by_backward(device, made) || is_of_forward(device, index, made)
    };
    let graphs = Graphs::of(device, of_line, inputs(device, of_line), is_wanted);
    let most = kept.iter().map(|(_, kept)| kept.bytes()).max()?;
    let evidence = format!(
        "the function that this line calls leaves up to {} of intermediates alive in every step: its result is stored with its graph, \
         and no backward pass goes through it",
        Bytes(most)
    );
    Some(graphs.finding_beside_loss(Some(line), evidence))
}
