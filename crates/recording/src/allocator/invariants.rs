//! Invariants of the model after every request, tested on random programs with random settings.

use super::blocks::{BlockId, NONE, State};
use super::model::{Allocator, Request};
use super::{Limits, Placement, SizeRules};
use crate::model::{AllocatorSettings, PoolId, SegmentType};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
enum Op {
    Alloc { bytes: u64, stream: u64, private: u64 },
    Free { pick: usize },
    RequestFree { pick: usize },
    EmptyCache,
    ReleasePool { private: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![1..4096u64, 1..=2 * MIB, MIB..12 * MIB, 8 * MIB..70 * MIB];
    let pools = (prop::sample::select(vec![0, 0, 7]), prop::sample::select(vec![0, 0, 0, 1, 2]));
    prop_oneof![
        24 => (bytes, pools).prop_map(|(bytes, (stream, private))| Op::Alloc { bytes, stream, private }),
        16 => (0..1000usize).prop_map(|pick| Op::Free { pick }),
        4 => (0..1000usize).prop_map(|pick| Op::RequestFree { pick }),
        1 => Just(Op::EmptyCache),
        1 => (1..3u64).prop_map(|private| Op::ReleasePool { private }),
    ]
}

fn settings() -> impl Strategy<Value = AllocatorSettings> {
    let mib = |range: std::ops::Range<u64>| prop::option::of(range.prop_map(|even| even * 2 * MIB));
    let divisions = prop_oneof![Just([0; 16]), Just([4; 16]), Just([8; 16])];
    let fraction = prop::option::of(prop_oneof![Just(0.5), Just(0.9)]);
    (any::<bool>(), mib(16..40), mib(6..16), mib(2..40), divisions, fraction, 0.1..0.9f64, any::<bool>()).prop_map(
        |(expandable, max_split, large, rounding, divisions, memory_fraction, threshold, throws_on_oom)| {
            AllocatorSettings {
                expandable_segments: expandable,
                max_split_size: max_split,
                large_segment_size: large,
                max_non_split_rounding: rounding,
                roundup_power2_divisions: divisions,
                memory_fraction,
                garbage_collection_threshold: threshold,
                throws_on_oom,
                ..AllocatorSettings::default()
            }
        },
    )
}

fn placement() -> impl Strategy<Value = Placement> {
    prop::sample::select(vec![Placement::LowestFree, Placement::Arenas, Placement::Ascending, Placement::Descending])
}

fn private(number: u64) -> Option<PoolId> {
    (number > 0).then_some((0, number))
}

fn check(allocator: &Allocator) -> Result<(), TestCaseError> {
    let blocks = || (0u32..).zip(&allocator.blocks).filter(|(_, block)| block.state != State::Gone);
    let (mut allocated, mut active, mut requested, mut reserved) = (0, 0, 0, 0);
    for (index, block) in blocks() {
        prop_assert!(block.size > 0);
        if block.state != State::Unmapped {
            reserved += block.size;
        }
        if matches!(block.state, State::Allocated | State::Pending) {
            active += block.size;
            requested += block.requested;
            prop_assert!(block.requested <= block.size);
        }
        if block.state == State::Allocated {
            allocated += block.size;
        }
        let pool = &allocator.pools[block.pool as usize];
        prop_assert_eq!(pool.free.get(&(block.size, block.addr)) == Some(&index), block.state == State::Free);
        prop_assert_eq!(pool.unmapped.get(&block.addr) == Some(&index), block.state == State::Unmapped);
        prop_assert_eq!(allocator.pending.contains(&index), block.state == State::Pending);
        if block.next != NONE {
            let next = &allocator.blocks[block.next as usize];
            prop_assert_eq!(next.previous, index);
            prop_assert_eq!(block.addr + block.size, next.addr, "blocks of a segment tile it");
            prop_assert_eq!((block.pool, block.range), (next.pool, next.range));
            let is_idle = matches!(block.state, State::Free | State::Unmapped);
            prop_assert!(!(is_idle && block.state == next.state), "neighbors that should be one block");
        }
    }
    let listed: usize = allocator.pools.iter().map(|pool| pool.free.len() + pool.unmapped.len()).sum();
    let idle = blocks().filter(|(_, block)| matches!(block.state, State::Free | State::Unmapped)).count();
    prop_assert_eq!(listed, idle, "lists name blocks that are gone");
    let stats = allocator.stats();
    prop_assert_eq!(
        (stats.allocated, stats.active, stats.requested, stats.reserved),
        (allocated, active, requested, reserved)
    );
    prop_assert_eq!(allocator.used, reserved, "all segments and pages are whole 2 MiB here");
    prop_assert!(stats.reserved <= stats.reserved_peak && stats.reserved_peak <= allocator.limits().capacity.limit());
    let mut spans: Vec<(u64, u64)> = blocks().map(|(_, block)| (block.addr, block.addr + block.size)).collect();
    spans.sort_unstable();
    prop_assert!(spans.is_sorted_by(|one, next| one.1 <= next.0), "blocks overlap");
    Ok(())
}

proptest! {
    #[test]
    fn the_model_holds_together_after_every_request(
        ops in prop::collection::vec(op(), 0..160),
        settings in settings(),
        placement in placement(),
        capacity in prop::sample::select(vec![64 * MIB, 200 * MIB, 1024 * MIB]),
    ) {
        let rules = SizeRules::device(&settings);
        let limits = Limits::of(&settings, Some(capacity), Some(capacity + 40 * MIB));
        let mut allocator = Allocator::new(rules.clone(), limits, placement, 0);
        let mut held: Vec<BlockId> = Vec::new();
        for op in ops {
            match op {
                Op::Alloc { bytes: requested, stream, private: number } => {
                    let bytes = rules.round(requested);
                    let kind = if rules.is_large(bytes) { SegmentType::Large } else { SegmentType::Small };
                    let pool = allocator.pool(stream, private(number), kind);
                    let is_capturing = number > 0;
                    let before = *allocator.stats();
                    let request = Request { pool, bytes, requested, is_capturing, address: None };
                    if let Some(block) = allocator.alloc(request) {
                        prop_assert!(allocator.size(block) >= bytes);
                        held.push(block);
                    } else {
                        prop_assert_eq!(allocator.stats().allocated, before.allocated);
                    }
                }
                Op::Free { pick } if !held.is_empty() => {
                    let block = held.swap_remove(pick % held.len());
                    allocator.free(block);
                    let after = *allocator.stats();
                    allocator.free(block);
                    prop_assert_eq!(after, *allocator.stats(), "freed twice");
                }
                Op::RequestFree { pick } if !held.is_empty() => {
                    let pick = pick % held.len();
                    allocator.request_free(held[pick]);
                }
                Op::EmptyCache => allocator.empty_cache(),
                Op::ReleasePool { private: number } => allocator.release_pool((0, number)),
                Op::Free { .. } | Op::RequestFree { .. } => {}
            }
            check(&allocator)?;
        }
    }
}
