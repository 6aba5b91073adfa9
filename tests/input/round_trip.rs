//! Random histories, written as pickles in many styles and read back: everything that was written must be there.

use crate::support::allocator_model::{Config, Entry, Expandable, Log, Moment};
use crate::support::pickle_writer::{self, Integers, Memo, Node, Strings, Style};
use crate::support::programs::{EPOCH, Recording, SITES, plain_or_expandable, programs};
use crate::support::snapshot_file::{Facts, File, Impossible, Version};
use memviz::input::{EntryObserver, ReadOptions, read_observed, read_stream};
use memviz::model::trace_entry::TraceEntry;
use memviz::model::{Action, Snapshot};
use memviz::replay::{HeadStart, History, replay};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_pickle::{HashableValue, SerOptions};
use std::io::Cursor;
use std::rc::Rc;

proptest! {
    #[test]
    fn written_snapshots_are_read_back(file in files(), style in styles()) {
        let bytes = pickle_writer::write(&file.pickle(), style);
        let length = bytes.len() as u64;
        let (input, head_start) = read_observed(Cursor::new(bytes), &ReadOptions::default(), HeadStart::default())?;
        let notes = &input.snapshot.notes;
        prop_assert_eq!((input.bytes, notes.bytes, notes.protocol), (length, length, Some(style.protocol)));
        prop_assert!(notes.unknown_keys.is_empty() && notes.unknown_actions.is_empty(), "{:?}", notes);
        same_facts(&input.snapshot, &file)?;

        let histories = replay(&input.snapshot);
        same_histories(&head_start.finish(&input.snapshot), &histories)?;
        if file.version == Version::V2_15 && !file.host {
            same_histories(&histories, &replay(&file.recording.snapshot()))?;
        }
    }

    #[test]
    fn files_of_serde_pickle_are_read(file in files(), old in any::<bool>()) {
        let options = if old { SerOptions::new().proto_v2() } else { SerOptions::new() };
        let bytes = serde_pickle::value_to_vec(&serde_value(&file.pickle()), options)?;
        let input = read_stream(Cursor::new(bytes), &ReadOptions::default())?;
        same_facts(&input.snapshot, &file)?;
    }

    /// The ways to write a file differ only in what the reader processes on its hot path. A gap at the first memo slot keeps
    /// every entry off it.
    #[test]
    fn both_read_paths_agree(file in files(), style in styles()) {
        let read = |style| read_stream(Cursor::new(pickle_writer::write(&file.pickle(), style)), &ReadOptions::default());
        let hot = read(style)?.snapshot;
        let apart = read(Style { protocol: 2, memo: Memo::PutAround(0), frame: None, ..style })?.snapshot;
        let (hot_facts, apart_facts) = (Facts::of(&hot), Facts::of(&apart));
        prop_assert_eq!(hot_facts.entries, apart_facts.entries);
        prop_assert_eq!(hot_facts.segments, apart_facts.segments);
        same_histories(&replay(&hot), &replay(&apart))?;
    }

    /// Entries with an unknown key are read step by step between others.
    #[test]
    fn entries_with_unknown_keys_are_read_in_their_places(file in files(), style in styles(), every in 1..4usize) {
        let (pickle, count) = with_unknown_keys(&file.pickle(), every);
        let bytes = pickle_writer::write(&pickle, style);
        let (input, head_start) = read_observed(Cursor::new(bytes), &ReadOptions::default(), HeadStart::default())?;
        let snapshot = &input.snapshot;
        prop_assert_eq!(snapshot.notes.unknown_keys.get("trace entry.color").copied().unwrap_or(0), count);
        same_facts(snapshot, &file)?;
        same_histories(&head_start.finish(snapshot), &replay(snapshot))?;
    }

    #[test]
    fn observers_see_every_row(file in files(), style in styles()) {
        let bytes = pickle_writer::write(&file.pickle(), style);
        let (input, seen) = read_observed(Cursor::new(bytes), &ReadOptions::default(), Seen::default())?;
        // Files without times get them when all has been read.
        let timeless = |entry: TraceEntry| TraceEntry { time_us: 0, ..entry };
        let seen: Vec<_> = seen.0.into_iter().map(timeless).collect();
        prop_assert_eq!(seen, input.snapshot.entries.rows(0..usize::MAX).map(timeless).collect::<Vec<_>>());
    }

    /// A file that was cut off yields the beginning of each trace.
    #[test]
    fn truncated_files_yield_the_beginning(
        file in files(),
        style in styles(),
        at in any::<prop::sample::Index>(),
        between_batches in any::<bool>(),
    ) {
        let mut bytes = pickle_writer::write(&file.pickle(), style);
        // At least the header of a frame and the first opcode are left.
        let all = 12..bytes.len();
        let behind_items = all.clone().filter(|&end| !between_batches || b"ae".contains(&bytes[end - 1]));
        let ends: Vec<_> = behind_items.collect();
        prop_assume!(!ends.is_empty());
        bytes.truncate(*at.get(&ends));
        let length = bytes.len() as u64;
        prop_assert!(read_stream(Cursor::new(bytes.clone()), &ReadOptions::default()).is_err());

        let mut options = ReadOptions::default();
        options.allow_truncated = true;
        let snapshot = read_stream(Cursor::new(bytes), &options)?.snapshot;
        prop_assert_eq!(snapshot.notes.truncated_at, Some(length));
        let (read, written) = (Facts::of(&snapshot), file.facts());
        for trace in &snapshot.traces {
            let read: Vec<_> = read.entries.iter().filter(|entry| entry.device == trace.device).collect();
            let written: Vec<_> = written.entries.iter().filter(|entry| entry.device == trace.device).collect();
            prop_assert!(written.starts_with(&read), "device {}", trace.device);
            prop_assert!(trace.truncated || read.is_empty() || read.len() == written.len());
        }
        prop_assert!(read.segments.iter().all(|segment| written.segments.contains(segment)));
        prop_assert!(written.annotations.starts_with(&read.annotations));
    }

    /// Numbers that cannot be a size, address or stream are errors, in any form.
    #[test]
    fn impossible_numbers_are_refused(
        file in files(),
        style in styles(),
        row in any::<prop::sample::Index>(),
        key in prop::sample::select(vec!["addr", "size", "stream"]),
        instead in impossible_numbers(),
    ) {
        let entries = &file.recording.logs[0].entries;
        prop_assume!(!entries.is_empty());
        let row = row.index(entries.len());
        let entry = entries[row];
        prop_assume!(key != "addr" || entry.action != Action::Oom);
        let truth = match key {
            "addr" => entry.addr,
            "size" => entry.size,
            _ => entry.stream,
        };
        let number = instead.number(truth.into());
        let file = File { impossible: Some((row, key, instead)), ..file };
        let bytes = pickle_writer::write(&file.pickle(), style);
        let message = match read_stream(Cursor::new(bytes), &ReadOptions::default()) {
            Ok(_) => return Err(TestCaseError::fail("the file was read")),
            Err(error) => error.to_string(),
        };
        let expected = format!("expected a non-negative 64-bit integer for \"{key}\", found {number}");
        prop_assert!(message.ends_with(&expected), "{}", message);
    }
}

fn files() -> impl Strategy<Value = File> {
    let expandable = prop_oneof![4 => plain_or_expandable(), 1 => Just(Expandable::OutsidePrivatePools)];
    let recording = (programs(expandable, true), vec(prop_oneof![Just(0), 0..1000usize], 3))
        .prop_map(|(program, cut)| program.run().cut(&cut));
    let recording = prop_oneof![3 => recording, 1 => monotonous_recordings()];
    let version = prop::sample::select(vec![Version::V2_0, Version::V2_3, Version::V2_15, Version::V2_15]);
    let name = (0..5usize).prop_map(|step| format!("ProfilerStep#{step}"));
    let annotations = vec((any::<bool>(), name, 0..3, EPOCH..EPOCH + 1_000_000), 0..20);
    let layout = (any::<bool>(), 0..3usize, vec(any::<u8>(), 16), any::<bool>(), any::<bool>());
    (recording, version, annotations, layout).prop_map(
        |(recording, version, annotations, (host, idle, key_order, shared_stacks, pools_as_lists))| File {
            recording,
            version,
            host: host && version == Version::V2_15,
            annotations: if version == Version::V2_15 { annotations } else { Vec::new() },
            idle,
            key_order,
            shared_stacks,
            pools_as_lists,
            impossible: None,
        },
    )
}

/// Long runs of entries that differ in nothing but their numbers, as in a training loop, each run from another call
/// site. The first entry of a run has another list of frames than the others, see [`File::shared_stacks`].
fn monotonous_recordings() -> impl Strategy<Value = Recording> {
    vec((prop::sample::select(vec![2, 4, 5]), 1..60usize), 1..8).prop_map(|runs| {
        let ops = runs
            .into_iter()
            .flat_map(|(site, length)| std::iter::once(site).chain(std::iter::repeat_n(SITES + site, length)));
        let entry = |(op, addr)| Entry { action: Action::Alloc, addr, size: 70_000, stream: 0, private_pool: 0, op };
        let entries: Vec<_> = ops.zip((1 << 42..).step_by(1 << 20)).map(entry).collect();
        let moments = vec![Moment::default(); entries.len() + 1];
        let config =
            Config { expandable: Expandable::Never, max_split_size: None, divisions: [0; 16], capacity: 0, spacing: 0 };
        Recording { config, logs: vec![Log { entries, moments, segments: Vec::new() }] }
    })
}

/// The snapshot with one more key in every N-th entry of each device, and the number of these entries.
fn with_unknown_keys(snapshot: &Node, every: usize) -> (Node, u64) {
    let mut count = 0;
    let mut entry = |(index, entry): (usize, &Node)| match entry {
        Node::Dict(pairs) if index.is_multiple_of(every) => {
            count += 1;
            let color = (Node::str("color"), Node::str("red"));
            Node::Dict(Rc::new(pairs.iter().cloned().chain([color]).collect()))
        }
        other => other.clone(),
    };
    let mut list = |list: &Node| match list {
        Node::List(entries) => Node::list(entries.iter().enumerate().map(&mut entry)),
        other => other.clone(),
    };
    let changed = match snapshot {
        Node::Dict(pairs) => Node::Dict(Rc::new(
            pairs
                .iter()
                .map(|(key, value)| match (key, value) {
                    (Node::Str(name), Node::List(lists)) if name == "device_traces" => {
                        (key.clone(), Node::list(lists.iter().map(&mut list)))
                    }
                    (Node::Str(name), trace) if name == "host_traces" => (key.clone(), list(trace)),
                    _ => (key.clone(), value.clone()),
                })
                .collect(),
        )),
        other => other.clone(),
    };
    (changed, count)
}

fn impossible_numbers() -> impl Strategy<Value = Impossible> {
    let numbers = prop_oneof![i128::from(i64::MIN)..0, -300..0i128, (1 << 64)..i128::MAX];
    prop_oneof![Just(Impossible::Negated), numbers.prop_map(Impossible::Any)]
}

fn styles() -> impl Strategy<Value = Style> {
    let usual = vec![(2, Memo::Strings), (2, Memo::Put), (4, Memo::Put), (4, Memo::Memoize)];
    let gap = (0..1000u32).prop_map(|empty| (2, Memo::PutAround(empty)));
    let memo = prop_oneof![4 => prop::sample::select(usual), 1 => gap];
    let integers = prop_oneof![3 => Just(Integers::Shortest), 1 => Just(Integers::EveryForm)];
    // Python appends a thousand items at once.
    let batch = prop_oneof![2 => Just(1000), 1 => 1..50usize];
    let frame = prop_oneof![2 => Just(None), 1 => (1..200usize).prop_map(Some)];
    let strings = prop_oneof![Just(Strings::Once), Just(Strings::ValuesAfresh)];
    (memo, integers, strings, batch, any::<bool>(), frame).prop_map(
        |((protocol, memo), integers, strings, batch, always_mark, frame)| Style {
            protocol,
            memo,
            integers,
            strings,
            batch,
            always_mark,
            frame: frame.filter(|_| protocol >= 4),
        },
    )
}

/// Keeps every row it is shown.
#[derive(Default)]
struct Seen(Vec<TraceEntry>);

impl EntryObserver for Seen {
    fn observe(&mut self, _list: u32, first_row: usize, entries: &[TraceEntry]) {
        assert_eq!(first_row, self.0.len());
        self.0.extend(entries);
    }
}

fn same_facts(snapshot: &Snapshot, file: &File) -> TestCaseResult {
    let (read, written) = (Facts::of(snapshot), file.facts());
    prop_assert_eq!(read.entries, written.entries);
    prop_assert_eq!(read.segments, written.segments);
    prop_assert_eq!(read.annotations, written.annotations);
    prop_assert_eq!(format!("{:?}", read.settings), format!("{:?}", written.settings));
    Ok(())
}

fn same_histories(left: &[History], right: &[History]) -> TestCaseResult {
    prop_assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        prop_assert_eq!(left.device, right.device);
        prop_assert_eq!(&left.allocations, &right.allocations);
        prop_assert_eq!((left.start, left.end, left.maxima), (right.start, right.end, right.maxima));
        prop_assert_eq!(&left.anomalies, &right.anomalies);
        prop_assert_eq!(left.completeness, right.completeness);
    }
    Ok(())
}

/// The same object for serde-pickle, which has no identity: shared objects are repeated.
fn serde_value(node: &Node) -> serde_pickle::Value {
    use serde_pickle::Value;
    match node {
        Node::Bool(value) => Value::Bool(*value),
        Node::Int(value) => i64::try_from(*value).map_or_else(|_| big_integer(*value), Value::I64),
        Node::Float(value) => Value::F64(*value),
        Node::Str(text) => Value::String(text.clone()),
        Node::List(items) => Value::List(items.iter().map(serde_value).collect()),
        Node::Tuple(items) => Value::Tuple(items.iter().map(serde_value).collect()),
        Node::Dict(pairs) => {
            let key = |key: &Node| match key {
                Node::Str(text) => HashableValue::String(text.clone()),
                other => panic!("{other:?} is no key of a snapshot"),
            };
            Value::Dict(pairs.iter().map(|(name, value)| (key(name), serde_value(value))).collect())
        }
    }
}

/// serde-pickle's integers beyond 64 bits are of a type that it does not export; its reader makes them.
fn big_integer(value: i128) -> serde_pickle::Value {
    let bytes = [&[0x80, 2, 0x8a, 16][..], &value.to_le_bytes(), b"."].concat();
    serde_pickle::value_from_slice(&bytes, serde_pickle::DeOptions::new()).expect("a pickle of one integer")
}

/// The last entry of a list may be a separate batch, written without a mark: a cut in it is not between two devices.
#[test]
fn a_cut_into_the_last_entry_is_noticed() {
    let entry = |addr: i128| {
        let size = Node::Int(2 << 20);
        Node::dict([
            ("action", Node::str("alloc")),
            ("addr", Node::Int(addr)),
            ("size", size),
            ("stream", Node::Int(0)),
        ])
    };
    let trace = Node::list([entry(1 << 40), entry(2 << 40), entry(3 << 40)]);
    let traces = Node::list([Node::list([]), trace]);
    let root = Node::dict([("segments", Node::list([])), ("device_traces", traces)]);
    let style = Style {
        protocol: 2,
        memo: Memo::Strings,
        integers: Integers::Shortest,
        strings: Strings::Once,
        batch: 2,
        always_mark: false,
        frame: None,
    };
    let bytes = pickle_writer::write(&root, style);
    let mut options = ReadOptions::default();
    options.allow_truncated = true;
    let mut lengths = [0; 4];
    for end in 12..bytes.len() {
        let Ok(read) = read_stream(Cursor::new(bytes[..end].to_vec()), &options) else { continue };
        let Some(trace) = read.snapshot.traces.iter().find(|trace| trace.device == 1) else { continue };
        lengths[trace.rows.len()] += 1;
        assert!(trace.truncated || trace.rows.is_empty() || trace.rows.len() == 3, "{end}: {trace:?}");
    }
    assert!(lengths[1..].iter().all(|&count| count > 0), "{lengths:?}");
}
