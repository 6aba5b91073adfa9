//! The maximum of allocated memory, in less time than a full simulation.

use super::player::{Player, Setup, simulate};
use super::program::{Program, StepKind};
use crate::allocator::Request;

/// `max_memory_allocated()` of a simulation, in bytes: the same result as [`simulate`], in less time.
///
/// A block of the small pool has the size of its rounded request wherever it is, and so has every block of an expandable
/// segment, since the rest of a free block is split off. If no request can fail and no segment is released, the pools do not
/// affect each other, so only regular segments of the large pool have to be simulated.
pub(crate) fn most_allocated(program: &Program, setup: &Setup) -> u64 {
    let gives_back = |kind: StepKind| matches!(kind, StepKind::EmptyCache | StepKind::ReleasePool | StepKind::Refused);
    if !setup.limits.is_endless() || program.steps.iter().any(|step| gives_back(step.kind)) {
        return simulate(program, setup).max_allocated;
    }
    let mut player = Player::new(program, setup);
    let rules = &setup.rules;
    // Bytes of the blocks that are not placed, by allocation.
    let mut sizes = vec![0u64; program.allocations];
    let mut unplaced = 0u64;
    let mut most = player.allocator.stats().allocated;
    for step in program.steps.iter() {
        let Some(size) = sizes.get_mut(step.allocation as usize) else { continue };
        match step.kind {
            StepKind::Alloc => {
                let bytes = rules.round(step.bytes);
                if rules.is_large(bytes) && !rules.splits_always() {
                    let [_, pool] = player.pools[step.pool as usize];
                    let request = Request { pool, bytes, requested: step.bytes, is_capturing: false, address: None };
                    player.blocks[step.allocation as usize] = player.allocator.alloc(request);
                } else {
                    *size = bytes;
                    unplaced = unplaced.saturating_add(bytes);
                }
                most = most.max(unplaced.saturating_add(player.allocator.stats().allocated));
            }
            StepKind::RequestFree | StepKind::Free | StepKind::CompleteFree => {
                unplaced -= std::mem::take(size);
                let block = &mut player.blocks[step.allocation as usize];
                match step.kind {
                    StepKind::RequestFree => block.iter().for_each(|&block| player.allocator.request_free(block)),
                    _ => block.take().into_iter().for_each(|block| player.allocator.free(block)),
                }
            }
            StepKind::Refused | StepKind::EmptyCache | StepKind::ReleasePool => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recording;
    use crate::input::ReadOptions;
    use crate::replay::Track;

    #[test]
    fn the_most_allocated_is_that_of_a_whole_play() {
        let names =
            ["gpt_train", "expandable", "side_stream", "private_pool", "gpt_late", "fragmented", "conf_max_split"];
        for name in names {
            let path = format!("fixtures/snapshots/{name}/snapshot.pickle.gz");
            let recording = Recording::open(path.as_ref(), &ReadOptions::default()).unwrap();
            for history in &recording.histories {
                let track = Track::new(&recording.snapshot, history);
                let program = Program::of(track).unwrap();
                let setup = Setup::new(&recording.snapshot.settings, None, 0);
                assert_eq!(most_allocated(&program, &setup), simulate(&program, &setup).max_allocated, "{name}");
            }
        }
    }
}
