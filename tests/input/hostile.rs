//! Broken and malicious files: the message, that memviz runs nothing, and that its memory stays small.
//!
//! `fixtures/README.md` lists the files and `fixtures/generate_malformed.py` makes them; [`EXPECTED`] says what becomes
//! of each.

use crate::support::{self, MALFORMED, fixture, names, read_unpacked};
use memviz::analysis::leaks::LeakOptions;
use memviz::analysis::peak::PeakOptions;
use memviz::input::ReadOptions;
use memviz::replay::{History, Metric, Track};
use memviz::report::{AnswerFormat, Rows, Source, TextStyle};
use memviz::{Error, Recording};
use std::fmt::Debug;
use std::fs;
use std::io::{Cursor, Read};
use std::path::Path;

/// What the command inside the `os-system` files would create.
const MARKER: &str = "/tmp/memviz-was-executed";

/// Which kind of error, by the name of its variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Empty,
    NotASnapshot,
    Compression,
    Malformed,
    Truncated,
    Limit,
}

impl Kind {
    fn of(error: &Error) -> Self {
        match error {
            Error::Empty => Self::Empty,
            Error::NotASnapshot(_) | Error::Foreign(_) => Self::NotASnapshot,
            Error::Compression { .. } => Self::Compression,
            Error::Malformed { .. } => Self::Malformed,
            Error::Truncated { .. } => Self::Truncated,
            Error::Limit { .. } => Self::Limit,
            other => panic!("no error of a file: {other}"),
        }
    }
}

/// What becomes of a file.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// An error of a kind, with these words in its message.
    Error(Kind, &'static str),
    /// The figures of the sample history come out.
    Analyzed(Sample),
}

/// How a changed sample history differs from the original.
#[derive(Clone, Copy, Debug)]
struct Sample {
    entries: u32,
    peak_entry: u32,
    anomalies: &'static [(&'static str, u64)],
    unknown_keys: &'static [(&'static str, u64)],
    unknown_actions: &'static [(&'static str, u64)],
}

/// The sample itself.
const SAMPLE: Sample = Sample { entries: 15, peak_entry: 9, anomalies: &[], unknown_keys: &[], unknown_actions: &[] };
/// Figures of the sample, whatever was added to it.
const SAMPLE_PEAK: i64 = 4_350_976;
const SAMPLE_RESERVED: i64 = 23_068_672;
const SAMPLE_END: i64 = 3_150_848;

use Kind::{Compression, Empty, Limit, Malformed, NotASnapshot, Truncated};
use Outcome::{Analyzed, Error as Refused};

/// Every file, in order of name.
const EXPECTED: &[(&str, Outcome)] = &[
    ("binunicode8-past-end.pickle", Refused(Limit, "byte 13: an item of 4611686018427387904 bytes")),
    ("empty.pickle", Refused(Empty, "empty")),
    ("frame-past-end.pickle", Refused(Malformed, "byte 2: a frame claims to end at byte 1099511627787")),
    (
        "free-of-unknown-address.pickle",
        Analyzed(Sample { entries: 17, peak_entry: 11, anomalies: &[("free_of_unknown", 2)], ..SAMPLE }),
    ),
    ("gzip-bomb.pickle.gz", Refused(Limit, "bytes of objects")),
    ("gzip-corrupt.pickle.gz", Refused(Malformed, "byte 2955: ")),
    ("gzip-truncated.pickle.gz", Refused(Truncated, "byte 2953: the file ends in the middle of")),
    ("gzip-wrong-checksum.pickle.gz", Refused(Compression, "damaged gzip data after 7491 decompressed bytes")),
    ("long4-negative-length.pickle", Refused(Malformed, "byte 14: expected a length, found -1")),
    ("long4-past-end.pickle", Refused(Limit, "byte 19: an item of 2147483647 bytes")),
    ("memo-index-4-billion.pickle", Refused(Malformed, "byte 14: expected a value in memo slot 4294967295")),
    ("memo-put-4-billion.pickle", Refused(Malformed, "byte 12: expected a memo slot below 12, found 4294967294")),
    ("nested-lists-1m.pickle.gz", Refused(Limit, "bytes of objects")),
    ("not-a-snapshot-list-of-ints.pickle", Refused(NotASnapshot, "the pickle contains a list")),
    ("not-a-snapshot-model.pickle", Refused(NotASnapshot, "\"segments\" and \"device_traces\"")),
    ("os-system-inside-snapshot.pickle", Analyzed(Sample { unknown_keys: &[("snapshot.plugin", 1)], ..SAMPLE })),
    ("os-system.pickle", Refused(NotASnapshot, "an object that only running code can build")),
    (
        "overlapping-alloc-small-pool.pickle",
        Analyzed(Sample { entries: 18, peak_entry: 12, anomalies: &[("overlapping_alloc", 1)], ..SAMPLE }),
    ),
    (
        "overlapping-alloc.pickle",
        Analyzed(Sample { entries: 18, peak_entry: 12, anomalies: &[("overlapping_alloc", 1)], ..SAMPLE }),
    ),
    ("protocol-9.pickle", Refused(Malformed, "byte 0: expected a pickle protocol of 0 to 5, found 9")),
    ("random-bytes.bin", Refused(Malformed, "byte 0: ")),
    ("repeated-entry-list.pickle.gz", Refused(Malformed, "expected a device from -1 to 127, found 128")),
    ("repeated-long-entry-list.pickle.gz", Refused(Limit, "more records than the file has bytes")),
    ("self-referencing-dict.pickle", Refused(Malformed, "expected a list for \"segments\", found a dictionary")),
    ("self-referencing-segments.pickle", Refused(Malformed, "expected \"device\" in a segment, found none")),
    ("self-referencing-unknown-key.pickle", Analyzed(Sample { unknown_keys: &[("snapshot.parent", 1)], ..SAMPLE })),
    ("truncated-in-device-traces.pickle", Refused(Truncated, "byte 4982: the file ends in the middle of")),
    ("truncated-in-segments.pickle", Refused(Truncated, "byte 1462: the file ends in the middle of")),
    (
        "unknown-action.pickle",
        Analyzed(Sample { entries: 17, peak_entry: 11, unknown_actions: &[("pool_trim", 2)], ..SAMPLE }),
    ),
    (
        "unknown-keys.pickle",
        Analyzed(Sample {
            unknown_keys: &[
                ("block.tags", 1),
                ("frame.column", 1),
                ("segment.numa_node", 1),
                ("snapshot.provenance", 1),
                ("trace entry.priority", 2),
            ],
            ..SAMPLE
        }),
    ),
    (
        "wrong-type-annotation-stage-unknown.pickle",
        Refused(Malformed, "byte 1982: expected \"START\" or \"END\" for \"stage\", found \"MIDDLE\""),
    ),
    (
        "wrong-type-block-state-unknown.pickle",
        Refused(Malformed, "byte 327: expected a block state for \"state\", found \"active_forever\""),
    ),
    (
        "wrong-type-device-traces-int.pickle",
        Refused(Malformed, "expected a list for \"device_traces\", found an integer"),
    ),
    (
        "wrong-type-entry-addr-negative.pickle",
        Refused(Malformed, "byte 883: expected a non-negative 64-bit integer for \"addr\", found -4096"),
    ),
    (
        "wrong-type-entry-size-string.pickle",
        Refused(Malformed, "byte 883: expected an integer for \"size\", found a string"),
    ),
    (
        "wrong-type-frame-line-string.pickle",
        Refused(Malformed, "byte 222: expected an integer for \"line\", found a string"),
    ),
    (
        "wrong-type-frames-int.pickle",
        Refused(Malformed, "byte 883: expected a list of frames for \"frames\", found an integer"),
    ),
    (
        "wrong-type-segment-address-float.pickle",
        Refused(Malformed, "byte 28: expected an integer for \"address\", found a float"),
    ),
    ("wrong-type-segments-string.pickle", Refused(Malformed, "expected a list for \"segments\", found a string")),
];

/// Files for which `allow_truncated` makes a difference, with the offset of the cut. All others give the same result.
const CUT: &[(&str, u64)] = &[
    ("gzip-truncated.pickle.gz", 2953),
    ("truncated-in-device-traces.pickle", 4982),
    ("truncated-in-segments.pickle", 1462),
];

/// Files that cost a careless reader gigabytes.
#[cfg(all(feature = "cli", target_os = "linux"))]
const BOMBS: &[&str] = &[
    "binunicode8-past-end.pickle",
    "gzip-bomb.pickle.gz",
    "long4-past-end.pickle",
    "memo-put-4-billion.pickle",
    "nested-lists-1m.pickle.gz",
    "repeated-entry-list.pickle.gz",
    "repeated-long-entry-list.pickle.gz",
];

#[test]
fn every_file_is_expected() {
    let expected: Vec<&str> = EXPECTED.iter().map(|row| row.0).collect();
    assert_eq!(names(MALFORMED), expected);
    let readme = support::read_text("fixtures/README.md");
    let unlisted: Vec<_> = expected.iter().filter(|file| !readme.contains(&format!("| `{file}` |"))).collect();
    assert!(unlisted.is_empty(), "fixtures/README.md does not list {unlisted:?}");
}

#[test]
fn broken_files_are_named_and_odd_ones_analysed() {
    for (file, outcome) in EXPECTED {
        let path = format!("{MALFORMED}/{file}");
        check(file, outcome, Recording::open(path.as_ref(), &ReadOptions::default()));
    }
}

/// A pipe delivers bytes in arbitrary parts, so neither answers nor errors may depend on where reads end.
#[test]
fn outcomes_do_not_depend_on_how_bytes_arrive() {
    for (file, outcome) in EXPECTED {
        let bytes = fs::read(format!("{MALFORMED}/{file}")).unwrap();
        if bytes.len() > 10_000 {
            continue;
        }
        check(file, outcome, Recording::read(Dripping { bytes, at: 0, step: 1 }, &ReadOptions::default()));
        let bytes = fs::read(format!("{MALFORMED}/{file}")).unwrap();
        check(file, outcome, Recording::read(Dripping { bytes, at: 0, step: 7 }, &ReadOptions::default()));
    }
}

#[cfg(feature = "cli")]
#[test]
fn the_binary_reports_each_on_one_line() {
    for (file, outcome) in EXPECTED {
        let path = format!("{MALFORMED}/{file}");
        for command in ["peak", "info"] {
            let run = support::memviz(&[command, &path]);
            match outcome {
                Refused(_, message) => {
                    run.expect_error(message);
                    assert!(run.stderr.starts_with(&format!("memviz: {path}: ")), "{:?}", run.stderr);
                }
                Analyzed(sample) => {
                    run.expect(0);
                    assert_eq!(run.stderr, "", "{file}");
                    // The test of the library checks which ones.
                    let says_so = run.stdout.contains("the recording contradicts itself");
                    assert!(sample.anomalies.is_empty() || says_so, "{file}: {command}: {}", run.stdout);
                    for (name, _) in [sample.unknown_keys, sample.unknown_actions].concat() {
                        assert!(run.stdout.contains(name), "{file}: {command} does not mention {name}: {}", run.stdout);
                    }
                }
            }
        }
    }
}

#[test]
fn nothing_in_a_file_is_executed() {
    let files: Vec<&str> = names_containing("os-system");
    assert_eq!(files.len(), 2);
    let _ = fs::remove_file(MARKER);
    for file in files {
        let path = format!("{MALFORMED}/{file}");
        let bytes = fs::read(&path).unwrap();
        let command = format!("touch {MARKER}");
        assert!(contains(&bytes, command.as_bytes()), "{file} no longer holds {command:?}");
        for allow_truncated in [false, true] {
            let mut options = ReadOptions::default();
            options.allow_truncated = allow_truncated;
            if let Ok(recording) = Recording::open(path.as_ref(), &options) {
                analyze(&recording);
            }
        }
        #[cfg(feature = "cli")]
        for command in ["peak", "info"] {
            support::memviz(&[command, "--allow-truncated", "--format", "json", &path]);
        }
    }
    assert!(!Path::new(MARKER).exists(), "a file was executed: {MARKER} exists");
}

#[test]
fn allow_truncated_changes_nothing_but_cuts() {
    for (file, outcome) in EXPECTED {
        // Its checksum comes after what is read then.
        if *file == "gzip-wrong-checksum.pickle.gz" {
            continue;
        }
        let mut options = ReadOptions::default();
        options.allow_truncated = true;
        let result = Recording::open(format!("{MALFORMED}/{file}").as_ref(), &options);
        match CUT.iter().find(|row| row.0 == *file) {
            None => check(file, outcome, result),
            Some(&(_, at)) => {
                let recording = result.unwrap_or_else(|error| panic!("{file}: {error}"));
                assert_eq!(recording.snapshot.notes.truncated_at, Some(at), "{file}");
                assert!(!recording.snapshot.segments.is_empty(), "{file}: segments before the cut are there");
                assert!(!recording.is_complete(), "{file}");
                assert_eq!(recording.anomalies(), 0, "{file}");
                analyze(&recording);
            }
        }
    }
}

#[cfg(feature = "cli")]
#[test]
fn partial_results_say_that_they_are() {
    for (file, at) in CUT {
        let path = format!("{MALFORMED}/{file}");
        for command in ["peak", "info"] {
            let sentence = format!("the file is cut off at byte {at}");
            support::memviz(&[command, &path]).expect_error("--allow-truncated");
            for format in ["text", "markdown"] {
                let run = support::memviz(&[command, "--allow-truncated", "--format", format, &path]);
                run.expect(0);
                assert!(run.stdout.contains(&sentence), "{file}: {format} does not say {sentence:?}: {}", run.stdout);
            }
            let json = support::memviz(&[command, "--allow-truncated", "--format", "json", &path]).json();
            let note = json["input"]["notes"][0].as_str().unwrap_or_default();
            assert!(note.contains(&sentence), "{file}: {note:?}");
            assert_eq!(json["input"]["complete_history"], false, "{file}");
        }
    }
}

/// The entries before a cut are worth as much as they are in the whole file.
#[test]
fn entries_before_a_cut_are_replayed() {
    check_cuts_in_traces("multi_gpu");
}

/// As above, with the cut in the only list of the file: a writer puts no mark around a single item.
#[test]
fn entries_before_a_cut_are_replayed_for_a_single_device() {
    check_cuts_in_traces("gpt_train");
}

/// As above, for a recording that started late: its baseline is partly known, which is not a contradiction.
#[test]
fn entries_before_a_cut_are_replayed_for_a_late_recording() {
    check_cuts_in_traces("cuda_graph");
}

#[test]
fn a_wrong_checksum_is_never_passed_over_in_silence() {
    let mut options = ReadOptions::default();
    options.allow_truncated = true;
    let path = format!("{MALFORMED}/gzip-wrong-checksum.pickle.gz");
    if let Ok(recording) = Recording::open(path.as_ref(), &options) {
        let text = render(AnswerFormat::Text, TextStyle::default(), &recording);
        let said = text.contains("damaged") || text.contains("checksum");
        assert!(said, "nothing says that the file is damaged: {text}");
    }
}

/// Every prefix is an error that says where the file ends. With the option it is analyzed, and the result is consistent.
/// Nothing ever panics.
#[test]
fn prefixes_of_recordings_are_handled() {
    const STRIDE: usize = 97;
    let files = [fixture("tiny"), fixture("cuda_graph"), fixture("pinned_t215"), fixture("tiny_t201")];
    let protocol_2 = format!("{}/protocols_t231/snapshot_p2.pickle.gz", support::FIXTURES);
    for path in files.iter().chain([&protocol_2]) {
        let bytes = read_unpacked(path);
        let mut segments = 0;
        let mut entries = 0;
        for length in (0..bytes.len()).step_by(STRIDE) {
            let prefix = &bytes[..length];
            match read(prefix, false) {
                Err(Error::Empty) if length == 0 => {}
                Err(Error::Truncated { at, .. }) => assert_eq!(at, length as u64, "{path}"),
                other => panic!("{path}: {length} bytes: {}", outcome_of(&other)),
            }
            match read(prefix, true) {
                Ok(recording) => {
                    assert_eq!(recording.snapshot.notes.truncated_at, Some(length as u64), "{path}");
                    analyze(&recording);
                    let found = recording.snapshot.segments.len();
                    assert!(found >= segments, "{path}: {found} segments in {length} bytes, {segments} in fewer");
                    segments = found;
                    let found = entries_of(&recording);
                    assert!(found >= entries, "{path}: {found} entries in {length} bytes, {entries} in fewer");
                    entries = found;
                }
                Err(Error::Empty | Error::Truncated { .. } | Error::NotASnapshot(_)) if segments == 0 => {}
                other => panic!("{path}: {length} bytes: {}", outcome_of(&other)),
            }
        }
        let whole = read(&bytes, false).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(segments, whole.snapshot.segments.len(), "{path}: the last prefix holds every segment");
    }
}

/// Bytes after the compressed data of a gzip file: checksum and length.
const TRAILER: usize = 8;

#[test]
fn a_cut_off_checksum_is_noticed() {
    let bytes = fs::read(fixture("tiny")).unwrap();
    for missing in 1..=TRAILER {
        assert!(read(&bytes[..bytes.len() - missing], false).is_err(), "{missing} bytes are missing");
    }
}

#[test]
fn prefixes_of_compressed_recordings_are_handled() {
    for path in [fixture("tiny"), fixture("cuda_graph"), fixture("pinned_t215")] {
        let gzip = fs::read(&path).unwrap();
        let plain = read_unpacked(&path);
        let zstd = zstd::encode_all(&plain[..], 3).unwrap();
        for bytes in [&gzip, &zstd] {
            // The bytes after the data have a separate test.
            for length in (0..bytes.len() - TRAILER).step_by(97) {
                let refused = read(&bytes[..length], false);
                assert!(refused.is_err(), "{path}: {length} bytes are not all of it");
                for result in [refused, read(&bytes[..length], true)] {
                    match result {
                        Ok(recording) => analyze(&recording),
                        Err(Error::Request(message)) => panic!("{path}: {length} bytes: {message}"),
                        Err(_) => {}
                    }
                }
            }
            assert!(read(bytes, false).is_ok(), "{path}");
        }
    }
}

/// Names come from strangers: they may contain terminal commands, line breaks and table markup.
#[test]
fn names_cannot_break_out_of_reports() {
    let recording = recording_with_hostile_names();
    let text = [
        render(AnswerFormat::Text, TextStyle::default(), &recording),
        render(
            AnswerFormat::Text,
            TextStyle { width: Some(80), color: false, advice: true, ..TextStyle::default() },
            &recording,
        ),
        render(AnswerFormat::Markdown, TextStyle::default(), &recording),
    ];
    for text in &text {
        let control = text.chars().find(|next| next.is_control() && *next != '\n');
        assert_eq!(control, None, "{text}");
        assert!(!text.contains('\u{202e}'), "text runs backwards: {text}");
        assert!(text.contains("\\u{1b}[31mX"), "the annotation is shown, escaped: {text}");
    }
    let rows: Vec<&str> = text[2].lines().filter(|line| line.starts_with('|') && line.contains(".py")).collect();
    assert!(!rows.is_empty());
    for row in rows {
        let bars = row.replace("\\|", "").matches('|').count();
        assert_eq!(bars, 5, "four columns: {row}");
    }

    let report = recording.peak(&PeakOptions::default()).unwrap();
    let mut out = Vec::new();
    report.csv(&mut out).unwrap();
    let mut csv = csv::Reader::from_reader(&out[..]);
    let labels: Vec<String> = csv.records().map(|record| record.unwrap()[4].to_owned()).collect();
    let expected: Vec<&str> = report.devices[0].attribution.rows.iter().map(|row| row.label.as_str()).collect();
    assert_eq!(labels, expected.iter().map(|label| memviz::report::safe(label)).collect::<Vec<_>>());

    let json: serde_json::Value =
        serde_json::from_str(&render(AnswerFormat::Json, TextStyle::default(), &recording)).unwrap();
    assert_eq!(json["devices"][0]["peak"]["annotations"][0], "\u{1b}[31mX");
    assert_eq!(json["devices"][0]["attribution"]["rows"][0]["label"], expected[0]);
}

#[cfg(feature = "cli")]
#[test]
fn names_cannot_break_out_of_errors() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("snapshot.pickle");
    fs::write(&path, snapshot_with_hostile_names()).unwrap();
    let run = support::memviz(&["peak", "--at", "annotation:nothing", path.to_str().unwrap()]);
    run.expect_error("[31mX");
    assert!(!run.stderr.trim_end().contains(char::is_control), "{:?}", run.stderr);
}

/// An address space of 400 MB: several times what any of these files needs, less than what each requests.
#[cfg(all(feature = "cli", target_os = "linux"))]
#[test]
fn hostile_files_stay_within_bounds() {
    use std::process::Command;
    const KIBIBYTES: u32 = 400_000;
    let limited = |kibibytes: u32, args: &[&str]| {
        Command::new("sh")
            .args(["-c", &format!("ulimit -v {kibibytes} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_memviz")])
            .args(args)
            // Otherwise the reserved address space of threads would count.
            .env("MALLOC_ARENA_MAX", "1")
            .output()
    };
    // The shell exists, and its limit works.
    match limited(1_000, &["--version"]) {
        Err(error) => return support::skipped(&format!("no sh: {error}")),
        Ok(output) if output.status.success() => return support::skipped("ulimit -v has no effect here"),
        Ok(_) => {}
    }
    for file in BOMBS {
        let path = format!("{MALFORMED}/{file}");
        for option in ["--quiet", "--allow-truncated"] {
            let run: support::Run = limited(KIBIBYTES, &["peak", option, &path]).unwrap().into();
            let message = EXPECTED.iter().find_map(|row| match row.1 {
                Refused(_, message) if row.0 == *file => Some(message),
                _ => None,
            });
            run.expect_error(message.unwrap_or_else(|| panic!("{file} is expected to be refused")));
        }
    }
}

/// Hands out a few bytes at a time.
struct Dripping {
    bytes: Vec<u8>,
    at: usize,
    step: usize,
}

impl Read for Dripping {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = &self.bytes[self.at..];
        let count = buffer.len().min(left.len()).min(self.step);
        buffer[..count].copy_from_slice(&left[..count]);
        self.at += count;
        Ok(count)
    }
}

fn read(bytes: &[u8], allow_truncated: bool) -> memviz::Result<Recording> {
    let mut options = ReadOptions::default();
    options.allow_truncated = allow_truncated;
    Recording::read(Cursor::new(bytes.to_vec()), &options)
}

fn entries_of(recording: &Recording) -> u32 {
    recording.histories.iter().map(History::entries).sum()
}

fn names_containing(part: &str) -> Vec<&'static str> {
    EXPECTED.iter().map(|row| row.0).filter(|file| file.contains(part)).collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn outcome_of(result: &memviz::Result<Recording>) -> String {
    match result {
        Ok(_) => "was analyzed".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(file: &str, outcome: &Outcome, result: memviz::Result<Recording>) {
    match (outcome, result) {
        (Refused(kind, part), Err(error)) => {
            assert_eq!(Kind::of(&error), *kind, "{file}: {error}");
            let message = error.to_string();
            assert!(message.contains(part), "{file}: expected {part:?} in {message:?}");
            assert_eq!(message.lines().count(), 1, "{file}: {message:?}");
        }
        (Analyzed(sample), Ok(recording)) => check_sample(file, sample, &recording),
        (_, result) => panic!("{file}: expected {outcome:?}, but it {}", outcome_of(&result)),
    }
}

#[track_caller]
fn check_sample(file: &str, sample: &Sample, recording: &Recording) {
    let report = recording.peak(&PeakOptions::default()).unwrap();
    assert_eq!(report.devices.len(), 1, "{file}");
    let device = &report.devices[0];
    let notes = &recording.snapshot.notes;
    assert_eq!(device.entries, sample.entries, "{file}: entries");
    assert_eq!(device.entry, Some(sample.peak_entry), "{file}: entry of the peak");
    assert_eq!(device.at.allocated, SAMPLE_PEAK, "{file}: peak");
    assert_eq!(device.maxima[Metric::Allocated as usize].bytes, SAMPLE_PEAK, "{file}: maximum allocated");
    assert_eq!(device.maxima[Metric::Reserved as usize].bytes, SAMPLE_RESERVED, "{file}: maximum reserved");
    assert_eq!(device.end.allocated, SAMPLE_END, "{file}: end");
    let anomalies = device.anomalies.kinds().map(|anomaly| (anomaly.kind.name(), anomaly.count));
    assert_eq!(anomalies.collect::<Vec<_>>(), sample.anomalies, "{file}: anomalies");
    let counts = |counts: &indexmap::IndexMap<String, u64>| {
        let mut counts: Vec<_> = counts.iter().map(|(name, &count)| (name.clone(), count)).collect();
        counts.sort();
        counts
    };
    let owned = |counts: &[(&str, u64)]| counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
    let expected: Vec<(String, u64)> = owned(sample.unknown_keys);
    assert_eq!(counts(&notes.unknown_keys), expected, "{file}: unknown keys");
    let expected: Vec<(String, u64)> = owned(sample.unknown_actions);
    assert_eq!(counts(&notes.unknown_actions), expected, "{file}: unknown actions");
    analyze(recording);
}

/// Asks every question, and checks that rows sum to the total.
fn analyze(recording: &Recording) {
    recording.info(&[]).expect("every recording can be summarized");
    for metric in Metric::ALL {
        let report = recording.peak(&PeakOptions::default().metric(metric)).expect("every one has a peak");
        for device in &report.devices {
            let sum: u64 = device.attribution.rows.iter().map(|row| row.bytes).sum();
            assert_eq!(sum, device.attribution.total_bytes);
            assert_eq!(i64::try_from(sum), Ok(device.at.get(metric)));
        }
    }
    let leaks = recording.leaks(&LeakOptions::default()).expect("every recording can be searched for leaks");
    assert_eq!(leaks.devices.len(), recording.histories.len());
    for format in AnswerFormat::ALL {
        render(format, TextStyle::default(), recording);
    }
}

/// Peak and summary in one.
fn render(format: AnswerFormat, style: TextStyle, recording: &Recording) -> String {
    let source = Source { path: "file", recording };
    let mut out = Vec::new();
    format.write(&recording.peak(&PeakOptions::default()).unwrap(), source, style, &mut out).unwrap();
    let peak = out.len();
    format.write(&recording.info(&[]).unwrap(), source, style, &mut out).unwrap();
    format.write(&recording.leaks(&LeakOptions::default()).unwrap(), source, style, &mut out).unwrap();
    let mut text = String::from_utf8(out).expect("output is UTF-8");
    // Two JSON objects one after the other are not a recording.
    if text.starts_with('{') {
        text.truncate(peak);
    }
    text
}

/// Cuts a recording that is complete, or starts with a baseline, in its traces, and compares the rest with the same entries
/// of the whole.
fn check_cuts_in_traces(name: &str) {
    let path = fixture(name);
    let bytes = read_unpacked(&path);
    let whole = read(&bytes, false).unwrap();
    let position = |key: &[u8]| bytes.windows(key.len()).position(|window| window == key).unwrap();
    let (start, end) = (position(b"device_traces"), position(b"allocator_settings"));
    assert!(start < end, "{name}: traces come before settings");
    let mut most = 0;
    for tenth in 1..10 {
        let cut = start + (end - start) * tenth / 10;
        let recording = read(&bytes[..cut], true).unwrap_or_else(|error| panic!("{name}: {cut} bytes: {error}"));
        let mut truncated = 0;
        let mut replayed = 0;
        for history in &recording.histories {
            let original = whole.histories.iter().find(|original| original.device == history.device).unwrap();
            let entries = history.entries();
            replayed += entries;
            truncated += u32::from(history.completeness.truncated);
            assert_eq!(history.anomalies.total(), 0, "{name}: {cut} bytes");
            if entries > 0 && original.completeness.is_complete() {
                let expected = Track::new(&whole.snapshot, original).counters_at(entries);
                assert_eq!(
                    history.end, expected,
                    "{name}: {cut} bytes, {entries} entries of device {}",
                    history.device
                );
                let rest = original.entries() - entries;
                assert_eq!(history.completeness.truncated, rest > 0, "{name}: {cut} bytes leave out {rest} entries");
            }
        }
        assert_eq!(truncated, 1, "{name}: the cut at {cut} is inside one list");
        assert!(replayed > most, "{name}: {replayed} entries in {cut} bytes, {most} in fewer");
        most = replayed;
    }
    let all = entries_of(&whole);
    assert!(most > all * 4 / 5, "{name}: {most} of {all} entries lie before the last cut");
}

fn recording_with_hostile_names() -> Recording {
    read(&snapshot_with_hostile_names(), false).expect("names may be anything")
}

/// A sample history whose names hold what terminals, Markdown and CSV take for their own.
fn snapshot_with_hostile_names() -> Vec<u8> {
    let mut bytes = fs::read(format!("{MALFORMED}/overlapping-alloc.pickle")).unwrap();
    let names: [(&[u8], &[u8]); 3] = [
        (b"/home/user/train/train.py", b"/home/\x1b[31muser/\"|`\n<b.py"),
        (b"step_0", b"\x1b[31mX"),
        (b"forward", b"f\xe2\x80\xae\r`|"),
    ];
    for (harmless, hostile) in names {
        assert_eq!(harmless.len(), hostile.len());
        let starts = |&at: &usize| bytes[at..].starts_with(harmless);
        let places: Vec<usize> = (0..=bytes.len() - harmless.len()).filter(starts).collect();
        assert_eq!(places.len(), 1, "each name is written once, and referred to afterwards");
        bytes[places[0]..places[0] + hostile.len()].copy_from_slice(hostile);
    }
    bytes
}
