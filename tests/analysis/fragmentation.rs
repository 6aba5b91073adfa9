//! Fragmentation: at every instant the parts sum to the counters, and releasable memory is what the allocator releases.

use crate::support::allocator_model::{Config, Expandable, Held, Log, MIB, Moment, Op};
use crate::support::programs::{Program, plain_or_expandable, programs};
use crate::support::{self, assert_none, cases, fixture, open};
use memviz::Recording;
use memviz::analysis::fragmentation::{DeviceFragmentation, FragmentationOptions, FragmentationReport};
use memviz::analysis::oom::OomOptions;
use memviz::facts::device::Devices;
use memviz::facts::grouping::GroupBy;
use memviz::facts::segments::figures::Figures;
use memviz::facts::segments::layout::{Layout, Sweep};
use memviz::facts::time::when::When;
use memviz::input::Compression;
use memviz::model::trace_entry::TraceEntry;
use memviz::model::{Action, Snapshot, TraceEntries};
use memviz::replay::{History, Instant, Track, replay};
use memviz::report::{AnswerFormat, Source, TextStyle};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::collections::BTreeMap;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn parts_sum_to_the_counters_at_random_entries(
        program in programs(plain_or_expandable(), false),
        picks in vec(any::<prop::sample::Index>(), 6),
        cut in vec(0..=1000usize, 3),
    ) {
        let recording = program.run().cut(&cut);
        let snapshot = recording.snapshot();
        let histories = replay(&snapshot);
        for history in &histories {
            let log = &recording.logs[history.device as usize];
            for pick in &picks {
                let instant = pick.index(log.moments.len()) as Instant;
                let device = at(&snapshot, history, instant, GroupBy::Stack);
                parts_are_consistent(&device)?;
                if history.completeness.baseline_uncertain_bytes == 0 {
                    same_as_model(&device, history, &log.moments[instant as usize], instant)?;
                }
            }
        }
    }

    /// `empty_cache`, and the retry before an OOM, release everything that no block keeps.
    #[test]
    fn releasable_memory_is_what_the_allocator_releases(program in programs(any_segments(), false)) {
        let recording = program.run();
        let snapshot = recording.snapshot();
        for history in &replay(&snapshot) {
            for (entry, bytes) in releases(&recording.logs[history.device as usize]) {
                let figures = figures(&snapshot, history, entry);
                prop_assert_eq!(figures.releasable, bytes, "before entry {}", entry);
            }
        }
    }

    /// Without a group's blocks, what only it pins is no longer pinned, and nothing else is released.
    #[test]
    fn memory_pinned_by_one_group_is_released_without_it(
        program in programs(plain_or_expandable(), false),
        pick in any::<prop::sample::Index>(),
    ) {
        let recording = program.run();
        let snapshot = recording.snapshot();
        let Some(history) = replay(&snapshot).into_iter().next() else { return Ok(()) };
        let instant = pick.index(history.entries() as usize + 1) as Instant;
        let layout = Layout::at(Track::new(&snapshot, &history), instant);
        let before = Figures::of(&history, &layout);
        for row in at(&snapshot, &history, instant, GroupBy::Pool).pinning.rows {
            let private = !row.label.contains("default");
            let is_private = |index: usize| {
                let addr = history.allocations[index].addr;
                layout.segment_of(addr).is_some_and(|segment| segment.pool != Some((0, 0)))
            };
            // Pools share no segments, so each group alone pins what it pins.
            prop_assert_eq!(row.alone_free_bytes, row.pinned_free_bytes);
            let after = Figures::of(&history, &layout.without(|index| is_private(index) == private));
            prop_assert_eq!(after.pinned_free, before.pinned_free - row.pinned_free_bytes);
        }
    }

    #[test]
    fn a_sweep_may_go_back_and_forth(
        program in programs(plain_or_expandable(), false),
        picks in vec(any::<prop::sample::Index>(), 1..12),
    ) {
        let snapshot = program.run().snapshot();
        for history in &replay(&snapshot) {
            let mut sweep = Sweep::new(Track::new(&snapshot, history));
            for pick in &picks {
                let instant = pick.index(history.entries() as usize + 1) as Instant;
                prop_assert_eq!(sweep.at(instant), Layout::at(Track::new(&snapshot, history), instant));
            }
        }
    }

    /// Rows over time omit no peak, and each is exact at its instant.
    #[test]
    fn rows_over_time_are_exact_and_keep_every_peak(
        program in programs(plain_or_expandable(), false),
        points in 1..40u32,
    ) {
        let snapshot = program.run().snapshot();
        for history in &replay(&snapshot) {
            let options = FragmentationOptions::default().points(Some(points));
            let report = FragmentationReport::of(&Devices::of(&snapshot, std::slice::from_ref(history)), &options).unwrap();
            let rows = report.devices[0].over_time.as_ref().unwrap();
            let mut inactive = vec![history.start.reserved - history.start.active];
            Track::new(&snapshot, history).walk(|_, counters| inactive.push(counters.reserved - counters.active));
            for row in rows {
                prop_assert_eq!(row.figures, figures(&snapshot, history, row.moment.instant));
                prop_assert_eq!(row.figures.inactive as i64, inactive[row.moment.instant as usize]);
            }
            prop_assert!(rows.windows(2).all(|pair| pair[0].moment.instant < pair[1].moment.instant));
            prop_assert!(rows.len() <= points as usize + 6);
            let length = (history.entries().div_ceil(points) as usize).max(1);
            for (part, window) in inactive[1..].chunks(length).enumerate() {
                let highest = *window.iter().max().unwrap();
                let (first, last) = (part * length + 1, part * length + window.len());
                let inside = |instant: usize| (first..=last).contains(&instant) || (part == 0 && instant == 0);
                let shown = rows.iter().filter(|row| inside(row.moment.instant as usize));
                prop_assert!(shown.map(|row| row.figures.inactive as i64).max() >= Some(highest));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever a file contains, there is an answer in every format, and its parts are consistent.
    #[test]
    fn nonsense_is_survived(
        program in programs(any_segments(), true),
        changes in vec((any::<prop::sample::Index>(), 0..3usize, number()), 1..12),
        of_segments in vec((any::<prop::sample::Index>(), 0..4usize, number()), 0..4),
        pick in any::<prop::sample::Index>(),
        truncated in any::<bool>(),
    ) {
        let mut snapshot = program.run().snapshot();
        let mut entries: Vec<TraceEntry> = snapshot.entries.rows(0..snapshot.entries.len()).collect();
        if entries.is_empty() {
            return Ok(());
        }
        for (index, column, value) in changes {
            let entry = &mut entries[index.index(snapshot.entries.len())];
            match column {
                0 => entry.action = Action::ALL[value as usize % Action::ALL.len()],
                1 => entry.addr = value,
                _ => entry.size = value,
            }
        }
        snapshot.entries = TraceEntries::default();
        snapshot.entries.extend(&entries);
        for (index, field, value) in of_segments {
            let count = snapshot.segments.len();
            if count == 0 {
                break;
            }
            let segment = &mut snapshot.segments[index.index(count)];
            match (field, segment.blocks.first_mut()) {
                (0, _) => segment.total_size = value,
                (1, Some(block)) => block.size = value,
                (2, Some(block)) => block.requested_size = value,
                (_, Some(block)) => block.address = value,
                _ => {}
            }
        }
        for trace in &mut snapshot.traces {
            trace.truncated = truncated;
        }
        let histories = replay(&snapshot);
        for history in &histories {
            let instant = pick.index(history.entries() as usize + 1) as Instant;
            let device = at(&snapshot, history, instant, GroupBy::Stack);
            let figures = &device.figures;
            prop_assert_eq!(figures.reserved, figures.allocated + figures.pending_free + figures.inactive);
            prop_assert_eq!(figures.inactive, figures.releasable + figures.pinned_free);
            let charged: u64 = device.pinning.rows.iter().map(|row| row.pinned_free_bytes).sum();
            prop_assert_eq!(charged, figures.pinned_free);
        }
        let recording = Recording { snapshot, histories, compression: Compression::None, bytes: 0, device_file: None };
        let source = Source { path: "nonsense", recording: &recording };
        let options = FragmentationOptions::default().points(Some(9)).top(Some(2));
        let over_time = recording.fragmentation(&options).unwrap();
        let fragmentation = recording.fragmentation(&options.points(None)).unwrap();
        let ooms = recording.oom(&OomOptions::default().top(Some(2))).unwrap();
        let style = TextStyle { width: Some(60), color: true, advice: false, ..TextStyle::default() };
        for format in AnswerFormat::ALL {
            let mut out = Vec::new();
            format.write(&over_time, source, style, &mut out).unwrap();
            format.write(&fragmentation, source, style, &mut out).unwrap();
            format.write(&ooms, source, style, &mut out).unwrap();
            prop_assert!(!out.is_empty());
        }
    }
}

/// Numbers as no allocator would write them, and some that it could.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..3u64, u64::MAX - 2..=u64::MAX, 0..64 * MIB, Just(i64::MAX as u64), Just(1u64 << 42)]
}

/// The same on recordings that PyTorch wrote: at the counters' maxima and at the end, by every grouping whose rows sum.
#[test]
fn parts_sum_to_the_counters_in_every_fixture() {
    let mut problems = Vec::new();
    for case in cases(support::FIXTURES) {
        let recording = open(&case.path);
        for history in &recording.histories {
            let instants = history.maxima.iter().map(|maximum| maximum.instant).chain([history.entries()]);
            for (instant, by) in instants.zip([GroupBy::Site, GroupBy::Stack, GroupBy::Pool, GroupBy::Stream]) {
                let device = at(&recording.snapshot, history, instant, by);
                let what = parts_are_consistent(&device).err();
                problems.extend(what.map(|what| format!("{} instant {instant}: {what}", case.path)));
            }
        }
    }
    assert_none(&problems);
}

/// What the retry before each OOM released, in recordings that PyTorch wrote, is what was releasable.
#[test]
fn retries_give_back_what_is_releasable() {
    let mut seen = 0;
    for name in ["fragmented", "oom", "oom_forward", "oom_expandable", "oom_t201", "oom_t215", "oom_t231", "oom_capped"]
    {
        let recording = open(&fixture(name));
        let (snapshot, history) = (&recording.snapshot, &recording.histories[0]);
        let report = recording.oom(&OomOptions::default()).unwrap();
        for oom in &report.devices[0].ooms {
            let entry = oom.moment.entry.unwrap();
            let actions = &snapshot.entries.actions()[history.rows.clone()];
            let gives_back =
                |&entry: &u32| matches!(actions[entry as usize], Action::SegmentFree | Action::SegmentUnmap);
            let run = (0..entry).rev().take_while(gives_back);
            let first = run.last();
            assert!(oom.retry.bytes > 0, "{name}");
            assert_eq!(figures(snapshot, history, first.unwrap()).releasable, oom.retry.bytes, "{name}");
            seen += 1;
        }
    }
    assert_eq!(seen, 8);
}

/// Segments that PyTorch lists at the dump; completely free ones separately.
#[test]
fn the_end_is_what_the_snapshot_lists() {
    for name in ["fragmented_nocrash", "no_history", "state_only", "private_pool", "gpt_train", "empty_cache"] {
        let recording = open(&fixture(name));
        let device = by_when(&recording, When::End);
        let segments = recording.snapshot.segments_of(0);
        let is_free = |segment: &&memviz::model::Segment| segment.active_size == 0;
        let releasable: u64 = segments.iter().filter(is_free).map(|segment| segment.total_size).sum();
        let reserved: u64 = segments.iter().map(|segment| segment.total_size).sum();
        let active: u64 = segments.iter().map(|segment| segment.active_size).sum();
        let figures = &device.figures;
        assert_eq!((figures.reserved, figures.active()), (reserved, active), "{name}");
        assert_eq!(figures.releasable, releasable, "{name}");
        assert_eq!(figures.pinned_free, reserved - active - releasable, "{name}");
        assert_eq!(figures.segments as usize, segments.len(), "{name}");
    }
}

#[test]
fn nothing_reserved() {
    let recording = open(&fixture("empty"));
    assert!(recording.fragmentation(&FragmentationOptions::default()).unwrap().devices.is_empty());
    // Before the first entry of a complete recording there is no memory, but there is a device.
    let device = by_when(&open(&fixture("tiny")), When::Start);
    assert_eq!(device.figures, Figures::default());
    assert_eq!(device.figures.inactive_share().to_bits(), 0f64.to_bits());
    assert!(device.pinning.rows.is_empty() && device.pools.is_empty() && device.segments.is_empty());
    assert!(device.free_blocks.is_empty() && device.used_blocks.is_empty());
}

#[test]
fn one_block() {
    // A segment of 20 MiB for a block of 4 MiB, for which one byte less was requested.
    let device = simulated(&[alloc(4 * MIB - 1)], Expandable::Never);
    let figures = &device.figures;
    assert_eq!((figures.reserved, figures.allocated, figures.inactive), (20 * MIB, 4 * MIB, 16 * MIB));
    assert_eq!((figures.pinned_free, figures.releasable, figures.rounding()), (16 * MIB, 0, 1));
    assert_eq!(device.pinning.rows.len(), 1);
    let row = &device.pinning.rows[0];
    assert_eq!((row.bytes, row.blocks, row.pinned_free_bytes), (4 * MIB, 1, 16 * MIB));
    assert_eq!((row.alone_free_bytes, row.worst_block_bytes), (16 * MIB, 16 * MIB));
    let class = device.free_blocks[0];
    assert_eq!((class.min_bytes, class.max_bytes(), class.blocks), (16 * MIB, 32 * MIB - 1, 1));
}

#[test]
fn everything_free() {
    let device = simulated(&[alloc(4 * MIB), Op::Free { pick: 0 }], Expandable::Never);
    assert_eq!(device.figures.releasable, 20 * MIB);
    assert_eq!(device.figures.inactive, 20 * MIB);
    assert_eq!(device.pinning.pinned_free_bytes, 0);
    assert!(device.pinning.rows.is_empty());
}

#[test]
fn everything_pinned() {
    let on_side_stream = Op::Alloc { size: 4 * MIB, stream: 7, private_pool: 0 };
    let in_private_pool = Op::Alloc { size: 4 * MIB, stream: 0, private_pool: 1 };
    let device = simulated(&[alloc(4 * MIB), on_side_stream, in_private_pool], Expandable::Never);
    let figures = &device.figures;
    assert_eq!((figures.reserved, figures.inactive, figures.pinned_free), (60 * MIB, 48 * MIB, 48 * MIB));
    let pools: Vec<_> = device.pools.iter().map(|pool| (pool.pool, pool.stream, pool.figures.pinned_free)).collect();
    let expected = [((0, 0), 0), ((0, 0), 7), ((0, 1), 0)];
    assert_eq!(pools, expected.map(|(pool, stream)| (Some(pool), Some(stream), 16 * MIB)));
    assert_eq!(device.pinning.rows.iter().map(|row| row.alone_free_bytes).sum::<u64>(), 48 * MIB);
}

#[test]
fn everything_full_pins_nothing() {
    let device = simulated(&[alloc(32 * MIB), alloc(64 * MIB)], Expandable::Never);
    assert_eq!(device.figures.reserved, device.figures.allocated);
    assert_eq!(device.pinning, memviz::facts::segments::pinning::Pinning::default());
    assert!(device.free_blocks.is_empty());
}

/// Two blocks share a segment: each is attributed half, and neither pins it alone. The odd byte of an odd count goes to the
/// first.
#[test]
fn shared_pins_are_split_equally() {
    let device = simulated(&[alloc(2 * MIB), alloc(6 * MIB)], Expandable::Never);
    let rows = &device.pinning.rows;
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!((row.pinned_free_bytes, row.alone_free_bytes, row.blocks), (6 * MIB, 0, 1));
    }
    let device = simulated(&[alloc(2 * MIB), alloc(2 * MIB), alloc(2 * MIB)], Expandable::Never);
    let charged: Vec<u64> = device.pinning.rows.iter().map(|row| row.pinned_free_bytes).collect();
    assert_eq!(charged.iter().sum::<u64>(), 14 * MIB);
    assert_eq!(charged[0], 14 * MIB / 3 + 1);
}

/// With expandable segments a block pins its pages of 20 MiB, and no more.
#[test]
fn expandable_segments_pin_pages() {
    // 100 MiB are mapped; of the first two blocks the one across the first page boundary stays.
    let ops = [alloc(18 * MIB), alloc(4 * MIB), alloc(78 * MIB), Op::Free { pick: 0 }, Op::Free { pick: 1 }];
    let device = simulated(&ops, Expandable::Always);
    let figures = &device.figures;
    assert_eq!((figures.reserved, figures.allocated), (100 * MIB, 4 * MIB));
    assert_eq!((figures.pinned_free, figures.releasable), (36 * MIB, 60 * MIB));
    assert_eq!(device.pinning.rows[0].worst_block_bytes, 36 * MIB);
}

#[test]
fn without_history_the_state_at_the_dump_is_shown() {
    for name in ["no_history", "state_only", "no_history_t201"] {
        let recording = open(&fixture(name));
        let device = by_when(&recording, When::Peak);
        assert!(!device.figures.eq(&Figures::default()), "{name}");
        assert_eq!(i64::try_from(device.figures.reserved), Ok(recording.histories[0].end.reserved), "{name}");
    }
}

/// Blocks that are in no segment count in no figure, and are reported.
#[test]
fn contradictions_are_shown() {
    let recording = open(&format!("{}/overlapping-alloc.pickle", support::MALFORMED));
    let history = &recording.histories[0];
    let strays = (0..=history.entries()).map(|instant| at(&recording.snapshot, history, instant, GroupBy::Site).stray);
    let stray = strays.max().unwrap();
    assert!(stray.0 > 0 && stray.1 > 0, "{stray:?}");
}

#[test]
fn rows_beyond_the_top_are_summed_up() {
    let recording = open(&fixture("fragmented"));
    let report = |top| {
        let at = Some(When::Oom);
        recording.fragmentation(&FragmentationOptions::default().at(at).top(top)).unwrap()
    };
    let (all, two) = (report(None), report(Some(2)));
    let (all, two) = (&all.devices[0].pinning, &two.devices[0].pinning);
    assert!(all.rows.len() > 3);
    assert_eq!(two.rows.len(), 3);
    assert_eq!(two.rows[2].label, "(other)");
    let sum = |rows: &[memviz::facts::segments::pinning::PinningRow]| {
        rows.iter().map(|row| row.pinned_free_bytes).sum::<u64>()
    };
    assert_eq!((sum(&all.rows), sum(&two.rows)), (all.pinned_free_bytes, all.pinned_free_bytes));
    let blocks = |rows: &[memviz::facts::segments::pinning::PinningRow]| rows.iter().map(|row| row.blocks).sum::<u64>();
    assert_eq!((blocks(&all.rows), blocks(&two.rows)), (all.blocks, all.blocks));
}

fn any_segments() -> impl Strategy<Value = Expandable> {
    prop_oneof![plain_or_expandable(), Just(Expandable::OutsidePrivatePools)]
}

fn alloc(size: u64) -> Op {
    Op::Alloc { size, stream: 0, private_pool: 0 }
}

/// The end of a program on one device.
fn simulated(ops: &[Op], expandable: Expandable) -> DeviceFragmentation {
    let config = Config { expandable, max_split_size: None, divisions: [0; 16], capacity: 1 << 30, spacing: 2 * MIB };
    let snapshot = Program { config, devices: vec![ops.to_vec()] }.run().snapshot();
    let history = &replay(&snapshot)[0];
    let device = at(&snapshot, history, history.entries(), GroupBy::Stack);
    parts_are_consistent(&device).unwrap();
    device
}

fn by_when(recording: &Recording, when: When) -> DeviceFragmentation {
    let options = FragmentationOptions::default().at(Some(when));
    recording.fragmentation(&options).unwrap().devices.remove(0)
}

fn at(snapshot: &Snapshot, history: &History, instant: Instant, by: GroupBy) -> DeviceFragmentation {
    let at = Some(History::entry_before(instant).map_or(When::Start, When::Entry));
    let options = FragmentationOptions::default().at(at).by(by);
    let devices = Devices::of(snapshot, std::slice::from_ref(history));
    // If the recording does not show such groups, sites are used.
    let report = FragmentationReport::of(&devices, &options);
    report.or_else(|_| FragmentationReport::of(&devices, &options.by(GroupBy::Site))).unwrap().devices.remove(0)
}

fn figures(snapshot: &Snapshot, history: &History, instant: Instant) -> Figures {
    Figures::of(history, &Layout::at(Track::new(snapshot, history), instant))
}

/// Everything that must sum up.
fn parts_are_consistent(device: &DeviceFragmentation) -> TestCaseResult {
    let figures = &device.figures;
    let counters = &device.counters;
    prop_assert_eq!(device.stray, (0, 0));
    prop_assert_eq!(i64::try_from(figures.reserved), Ok(counters.reserved));
    prop_assert_eq!(i64::try_from(figures.active()), Ok(counters.active));
    prop_assert_eq!(i64::try_from(figures.allocated), Ok(counters.allocated));
    prop_assert_eq!(i64::try_from(figures.requested), Ok(counters.requested));
    prop_assert_eq!(figures.reserved, figures.allocated + figures.pending_free + figures.inactive);
    prop_assert_eq!(figures.inactive, figures.releasable + figures.pinned_free);

    let segments = device.segments.iter().fold(Figures::default(), |sum, segment| sum.plus(&segment.figures));
    let pools = device.pools.iter().fold(Figures::default(), |sum, pool| sum.plus(&pool.figures));
    prop_assert_eq!(&segments, figures);
    prop_assert_eq!(&pools, figures);
    let reserved: u64 = device.segments.iter().map(|segment| segment.segment.size).sum();
    prop_assert_eq!(reserved, figures.reserved);

    let rows = &device.pinning.rows;
    prop_assert_eq!(device.pinning.pinned_free_bytes, figures.pinned_free);
    prop_assert_eq!(rows.iter().map(|row| row.pinned_free_bytes).sum::<u64>(), figures.pinned_free);
    prop_assert_eq!(rows.iter().map(|row| row.blocks).sum::<u64>(), device.pinning.blocks);
    for row in rows {
        prop_assert!(row.alone_free_bytes <= row.pinned_free_bytes, "{:?}", row);
        prop_assert!(row.worst_block_bytes <= row.pinned_free_bytes, "{:?}", row);
    }

    let free = &device.free_blocks;
    prop_assert_eq!(free.iter().map(|class| class.bytes).sum::<u64>(), figures.inactive);
    prop_assert_eq!(free.iter().map(|class| class.blocks).sum::<u64>(), figures.free_blocks);
    let of_pools = device.pools.iter().flat_map(|pool| &pool.free_blocks);
    prop_assert_eq!(of_pools.map(|class| class.bytes).sum::<u64>(), figures.inactive);
    if let Some(last) = free.last() {
        prop_assert!((last.min_bytes..=last.max_bytes()).contains(&figures.largest_free_block));
    }
    let lost: i64 = device.used_blocks.iter().map(memviz::facts::segments::figures::SizeClass::rounding).sum();
    prop_assert_eq!(lost, figures.rounding());
    Ok(())
}

/// What the model of the allocator knows, computed page by page.
fn same_as_model(device: &DeviceFragmentation, history: &History, moment: &Moment, instant: Instant) -> TestCaseResult {
    let [allocated, active, requested, reserved] = moment.counters();
    let figures = &device.figures;
    prop_assert_eq!(
        [figures.allocated, figures.active(), figures.requested, figures.reserved],
        [allocated, active, requested, reserved]
    );
    let mut spans: Vec<(u64, u64, bool)> = history
        .segments
        .iter()
        .filter(|span| span.reserved_at(instant))
        .map(|span| (span.addr, span.end(), span.expandable))
        .collect();
    spans.sort_unstable();
    spans.dedup_by(|next, run| {
        let touches = run.2 && next.2 && run.1 == next.0;
        if touches {
            run.1 = next.1;
        }
        touches
    });

    let (mut pinned, mut largest) = (0, 0);
    // Charges in bytes times the number of blocks that share them, summed up by block.
    let mut charged: BTreeMap<u64, f64> = BTreeMap::new();
    for (start, end, expandable) in spans {
        let held: Vec<&Held> = moment.held.iter().filter(|held| (start..end).contains(&held.addr)).collect();
        let mut free_from = start;
        for held in &held {
            largest = largest.max(held.addr - free_from);
            free_from = held.addr + held.size;
        }
        largest = largest.max(end - free_from);

        let page = match expandable {
            false => end - start,
            true if held.iter().any(|held| held.size <= MIB) => 2 * MIB,
            true => 20 * MIB,
        };
        for from in (start..end).step_by(page as usize) {
            let to = (from + page).min(end);
            let overlap = |held: &Held| (held.addr + held.size).min(to).saturating_sub(held.addr.max(from));
            let inside: Vec<&&Held> = held.iter().filter(|held| overlap(held) > 0).collect();
            let used: u64 = inside.iter().map(|held| overlap(held)).sum();
            let free = to - from - used;
            if free == 0 || inside.is_empty() {
                continue;
            }
            pinned += free;
            for held in &inside {
                *charged.entry(held.addr).or_default() += free as f64 / inside.len() as f64;
            }
        }
    }
    prop_assert_eq!(figures.pinned_free, pinned);
    prop_assert_eq!(figures.largest_free_block, largest);
    prop_assert_eq!(device.pinning.blocks as usize, charged.len());
    // Whole bytes are attributed, so each block may be off by less than one for each of its two pages.
    let worst = charged.values().copied().fold(0.0, f64::max);
    let found = device.pinning.rows.iter().map(|row| row.worst_block_bytes).max().unwrap_or(0);
    prop_assert!((found as f64 - worst).abs() < 2.0, "{} instead of {}", found, worst);
    Ok(())
}

/// Runs of entries that release segments, as the number of the first entry and the total bytes.
fn releases(log: &Log) -> Vec<(Instant, u64)> {
    let gives_back = |action| matches!(action, Action::SegmentFree | Action::SegmentUnmap);
    let mut runs: Vec<(Instant, u64)> = Vec::new();
    let mut before = None;
    for (index, entry) in (0..).zip(&log.entries) {
        if gives_back(entry.action) {
            match runs.last_mut().filter(|_| before == Some(entry.op)) {
                Some(run) => run.1 += entry.size,
                None => runs.push((index, entry.size)),
            }
        }
        before = gives_back(entry.action).then_some(entry.op);
    }
    runs
}
