//! Exported files sum to memviz's answers and to PyTorch's counters.
#![cfg(all(feature = "firefox", feature = "parquet", feature = "perfetto", feature = "pprof", feature = "speedscope"))]

use crate::support::protobuf::Fields;
use crate::support::{Case, FIXTURES, assert_none, cases, open};
use memviz::Recording;
use memviz::analysis::export::{COUNTERS, Label, SamplesOptions, SamplesReport, TracksOptions};
use memviz::analysis::peak::PeakOptions;
use memviz::facts::time::when::When;
use memviz::model::DeviceId;
use memviz::replay::Metric;
use memviz::report::Source;
use memviz::report::export::{perfetto, pprof};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::io::Read;

const TRACES: &str = "fixtures/traces";

/// Every recording that the repository has, and what PyTorch said about it.
fn recordings() -> Vec<(String, Option<Case>)> {
    let mut all: Vec<_> = cases(FIXTURES).into_iter().map(|case| (case.path.clone(), Some(case))).collect();
    for folder in crate::support::names(TRACES) {
        let files = crate::support::names(&format!("{TRACES}/{folder}"));
        let recordings = files.into_iter().filter(|file| !file.starts_with("truth"));
        all.extend(recordings.map(|file| (format!("{TRACES}/{folder}/{file}"), None)));
    }
    assert!(all.len() > 110, "only {} recordings were found", all.len());
    all
}

/// A profile as a program that does not know memviz reads it.
#[derive(Default)]
struct Profile {
    types: Vec<String>,
    comments: Vec<String>,
    samples: Vec<SampleRead>,
}

#[derive(Default)]
struct SampleRead {
    /// By type.
    values: BTreeMap<String, u64>,
    labels: BTreeMap<String, String>,
    /// Functions, files and lines, innermost first.
    stack: Vec<(String, String, u64)>,
}

impl Profile {
    fn of(recording: &Recording, options: &SamplesOptions) -> Self {
        let report = recording.samples(options).unwrap();
        let mut file = Vec::new();
        pprof::write(Source { path: "folder/snapshot.pickle", recording }, &report, &mut file).unwrap();
        Self::read(&file)
    }

    fn read(file: &[u8]) -> Self {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        let profile = Fields::read(&bytes);
        let strings: Vec<String> = profile.texts(6).collect();
        assert_eq!(strings[0], "", "the format asks for that");
        let text = |number: u64| strings[number as usize].clone();
        let types: Vec<String> = profile.messages(1).map(|value| text(value.number(1))).collect();
        let by_id = |field: u64| -> BTreeMap<u64, Fields> {
            profile.messages(field).map(|message| (message.number(1), message)).collect()
        };
        let (locations, functions) = (by_id(4), by_id(5));
        assert!(!locations.contains_key(&0) && !functions.contains_key(&0), "0 stands for none");
        let sample = |message: Fields| {
            let values = message.packed(2);
            assert_eq!(values.len(), types.len());
            let label = |label: Fields| {
                let value = label.number(2);
                (text(label.number(1)), if value == 0 { label.number(3).to_string() } else { text(value) })
            };
            let frame = |id: u64| {
                let line = locations[&id].messages(4).next().unwrap();
                let function = &functions[&line.number(1)];
                (text(function.number(2)), text(function.number(4)), line.number(2))
            };
            SampleRead {
                values: types.iter().cloned().zip(values).collect(),
                labels: message.messages(3).map(label).collect(),
                stack: message.packed(1).into_iter().map(frame).collect(),
            }
        };
        assert_eq!(text(profile.number(14)), "inuse_space");
        let comments = profile.numbers(13).map(text).collect();
        Self { samples: profile.messages(2).map(sample).collect(), comments, types }
    }

    fn of_device(&self, device: DeviceId) -> impl Iterator<Item = &SampleRead> {
        let device = device.to_string();
        self.samples.iter().filter(move |sample| sample.labels["device"] == device)
    }

    /// The sum of a type; `None` if there is no such type.
    fn sum(&self, device: DeviceId, kind: &str) -> Option<u64> {
        let is_there = self.types.iter().any(|known| known == kind);
        is_there.then(|| self.of_device(device).map(|sample| sample.values[kind]).sum())
    }

    /// Sums by the values of a label.
    fn by(&self, device: DeviceId, label: &str, kind: &str) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for sample in self.of_device(device).filter(|sample| sample.values[kind] > 0) {
            *sums.entry(sample.labels.get(label).cloned().unwrap_or_default()).or_default() += sample.values[kind];
        }
        sums
    }
}

#[test]
fn profiles_sum_to_what_memviz_answers() {
    let problems = |(path, _): &(String, Option<Case>)| {
        let recording = open(path);
        let mut problems = Vec::new();
        for metric in Metric::ALL {
            let peak = PeakOptions::default().metric(metric);
            let profile = Profile::of(&recording, &SamplesOptions::default().peak(peak.clone()));
            for device in &recording.peak(&peak).unwrap().devices {
                let (held, expected) = (profile.sum(device.device, "inuse_space"), device.attribution.total_bytes);
                let blocks: u64 = device.attribution.rows.iter().map(|row| row.blocks).sum();
                if held != Some(expected) || profile.sum(device.device, "inuse_objects") != Some(blocks) {
                    problems.push(format!("{path}: device {}, {metric:?}: {held:?}, {expected}", device.device));
                }
            }
            for label in Label::ALL {
                // If there are no such rows, there is no such label.
                let Ok(report) = recording.peak(&peak.clone().by(label.group())) else {
                    let labeled = profile.samples.iter().find(|sample| sample.labels.contains_key(label.name()));
                    problems.extend(labeled.map(|_| format!("{path}: {metric:?} by {label:?}")));
                    continue;
                };
                for device in report.devices {
                    let rows = device.attribution.rows.iter().filter(|row| row.bytes > 0);
                    let rows: BTreeMap<String, u64> = rows.map(|row| (row.label.clone(), row.bytes)).collect();
                    let sums = profile.by(device.device, label.name(), "inuse_space");
                    if sums != rows {
                        problems.push(format!("{path}: {metric:?} by {label:?}: {sums:?}, {rows:?}"));
                    }
                }
            }
        }
        problems
    };
    assert_none(&recordings().par_iter().flat_map_iter(problems).collect::<Vec<_>>());
}

/// `memory_stats` counts all allocations.
#[test]
fn profiles_count_what_pytorch_allocated() {
    let (mut problems, mut compared) = (Vec::new(), 0);
    for case in recordings().into_iter().filter_map(|(_, case)| case).filter(|case| case.own_truth) {
        let recording = open(&case.path);
        let profile = Profile::of(&recording, &SamplesOptions::default());
        for history in recording.histories.iter().filter(|history| history.device >= 0) {
            let counted = &case.truth["devices"][history.device as usize]["memory_stats"];
            if !history.completeness.is_complete() || counted.is_null() {
                continue;
            }
            let sums = ["alloc_space", "alloc_objects"].map(|kind| profile.sum(history.device, kind));
            let expected =
                ["allocated_bytes.all.allocated", "allocation.all.allocated"].map(|key| counted[key].as_u64());
            compared += 1;
            if sums != expected {
                problems.push(format!("{} device {}: {sums:?}, {expected:?}", case.path, history.device));
            }
        }
    }
    assert_none(&problems);
    assert!(compared > 70, "only {compared} devices were compared");
}

#[test]
fn windows_sum_to_the_whole() {
    let recording = open(&crate::support::fixture("multi_gpu"));
    let profile = |from: When, to: When| {
        let peak = PeakOptions::default().from(Some(from)).to(Some(to));
        Profile::of(&recording, &SamplesOptions::default().peak(peak))
    };
    let whole = profile(When::Start, When::End);
    let parts = [profile(When::Start, When::Entry(700)), profile(When::Entry(700), When::End)];
    for device in [0, 1] {
        for kind in ["alloc_space", "alloc_objects"] {
            let sum: u64 = parts.iter().map(|part| part.sum(device, kind).unwrap()).sum();
            assert_eq!(whole.sum(device, kind), Some(sum), "{kind} of device {device}");
            assert!(parts.iter().all(|part| part.sum(device, kind) > Some(0)));
        }
    }
}

#[test]
fn stacks_have_functions_files_and_lines() {
    let recording = open(&crate::support::fixture("gpt_train"));
    let profile = Profile::of(&recording, &SamplesOptions::default());
    let all = SamplesOptions::default().all_frames(true);
    let all = Profile::of(&recording, &all);
    let deepest = |profile: &Profile| profile.samples.iter().map(|sample| sample.stack.len()).max().unwrap();
    assert!(deepest(&profile) < deepest(&all), "frames that calls only pass through are left out");
    assert_eq!(profile.sum(0, "inuse_space"), all.sum(0, "inuse_space"));
    let root = ("cases.py <module>", "/home/user/train/cases.py");
    let mut with_line = 0;
    for sample in &profile.samples {
        let (function, file, line) = sample.stack.last().unwrap();
        with_line += usize::from((function.as_str(), file.as_str()) == root && *line == 867);
    }
    assert!(with_line > 20, "{with_line} of {}", profile.samples.len());
    let backward = |sample: &&SampleRead| sample.stack[0].0 == "backward of minigpt.py forward (inferred)";
    let backward = profile.samples.iter().find(backward).expect("backward of a line of forward");
    assert_eq!(backward.stack[0].1, backward.stack[1].1, "both have the file of forward");
    assert_eq!(backward.stack[0].2, backward.stack[1].2);
    assert_eq!(backward.labels["phase"], "backward");
    assert!(["1", "2", "3"].contains(&backward.labels["step"].as_str()), "{:?}", backward.labels);
}

#[test]
fn profiles_name_missing_data() {
    let comments = |name: &str| {
        let recording = open(&crate::support::fixture(name));
        let profile = Profile::of(&recording, &SamplesOptions::default());
        (profile.comments.join("\n"), profile.types)
    };
    let (late, types) = comments("gpt_late");
    assert!(late.contains("Device 0: incomplete history"), "{late}");
    assert_eq!(types, ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]);
    let (state, types) = comments("no_history");
    assert!(state.contains("Device 0: no history was recorded"), "{state}");
    assert_eq!(types, ["inuse_objects", "inuse_space"], "nobody knows what was allocated");
}

#[test]
fn traces_reach_the_maxima_and_end_as_the_recording_does() {
    let problems = |(path, _): &(String, Option<Case>)| {
        let recording = open(path);
        // One instant is not a trace.
        let Ok(report) = recording.tracks(&TracksOptions::default()) else { return Vec::new() };
        let mut file = Vec::new();
        perfetto::write(Source { path, recording: &recording }, &report, &SamplesReport::default(), &mut file).unwrap();
        let trace = Trace::read(&file);
        let mut problems: Vec<String> = trace.problems.iter().map(|problem| format!("{path}: {problem}")).collect();
        for device in &report.devices {
            let history = recording.history(device.device).unwrap();
            let group = memviz::report::device_name(device.device);
            for metric in COUNTERS {
                let found = trace.counters.get(&(group.clone(), metric.name().to_owned())).copied();
                let expected = (history.maxima[metric as usize].bytes, history.end.get(metric));
                let is_known = device.metrics.contains(&metric);
                if found != is_known.then_some(expected) {
                    problems.push(format!("{path}: {group} {metric:?}: {found:?}, {expected:?}"));
                }
            }
        }
        problems
    };
    assert_none(&recordings().par_iter().flat_map_iter(problems).collect::<Vec<_>>());
}

#[test]
fn traces_have_slices_of_annotations_steps_and_phases() {
    let recording = open(&crate::support::fixture("annotated"));
    let report = recording.tracks(&TracksOptions::default()).unwrap();
    let mut file = Vec::new();
    perfetto::write(Source { path: "x", recording: &recording }, &report, &SamplesReport::default(), &mut file)
        .unwrap();
    let trace = Trace::read(&file);
    let devices = recording.devices();
    let times = recording.snapshot.entries.times();
    let ranges = devices.annotations().ranges.iter().filter(|range| range.start_us <= *times.last().unwrap());
    let mut expected: Vec<(String, u64, u64)> = ranges
        .map(|range| {
            let name = recording.snapshot.strings.get(range.name).to_owned();
            (name, range.start_us as u64 * 1000, range.end_us as u64 * 1000)
        })
        .collect();
    let mut found = trace.slices["annotations"].clone();
    expected.sort();
    found.sort();
    assert!(expected.len() > 10);
    assert_eq!(found, expected);
    let names = |track: &str| trace.slices[track].iter().map(|slice| slice.0.clone()).collect::<Vec<_>>();
    assert_eq!(names("steps"), ["step 1", "step 2", "step 3"]);
    assert!(names("phases").starts_with(&["data".to_owned(), "forward".to_owned()]), "{:?}", names("phases"));
    let failed = open(&crate::support::fixture("oom")).tracks(&TracksOptions::default()).unwrap();
    assert_eq!(failed.devices[0].failures.len(), 1);
}

/// A trace as a program that does not know memviz reads it.
#[derive(Default)]
struct Trace {
    /// The highest and the last value of each counter, by the names of its group and of the counter.
    counters: BTreeMap<(String, String), (i64, i64)>,
    /// Name, start and end in nanoseconds of slices that ended, by the names of their tracks.
    slices: BTreeMap<String, Vec<(String, u64, u64)>>,
    problems: Vec<String>,
}

impl Trace {
    fn read(file: &[u8]) -> Self {
        let mut trace = Self::default();
        let mut tracks: BTreeMap<u64, (String, String, bool)> = BTreeMap::new();
        let mut open: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
        let mut now: BTreeMap<u64, u64> = BTreeMap::new();
        let mut names: BTreeMap<u64, String> = BTreeMap::new();
        for packet in Fields::read(file).messages(1) {
            for track in packet.messages(60) {
                let name = track.texts(2).next().unwrap();
                let group = tracks.get(&track.number(5)).map(|parent| parent.0.clone()).unwrap_or_default();
                let is_new = tracks.insert(track.number(1), (name, group, track.messages(8).count() == 1)).is_none();
                assert!(is_new && track.number(1) > 0);
            }
            for entry in packet.messages(12).flat_map(|interned| interned.messages(2).collect::<Vec<_>>()) {
                let is_new = names.insert(entry.number(1), entry.texts(2).next().unwrap()).is_none();
                assert!(is_new, "a name that returns is written once");
            }
            for event in packet.messages(11) {
                let (id, time) = (event.number(11), packet.number(8));
                let (name, group, is_counter) = &tracks[&id];
                let last = now.insert(id, time).unwrap_or(0);
                if time < last {
                    trace.problems.push(format!("{name}: {time} behind {last}"));
                }
                match event.number(9) {
                    1 => open.entry(id).or_default().push((names[&event.number(10)].clone(), time)),
                    2 => {
                        let (slice, start) = open.get_mut(&id).unwrap().pop().expect("it began");
                        trace.slices.entry(name.clone()).or_default().push((slice, start, time));
                    }
                    3 => assert_eq!(name, "failed requests"),
                    4 => {
                        assert!(is_counter);
                        let value = event.numbers(30).next().unwrap() as i64;
                        let known = trace.counters.entry((group.clone(), name.clone())).or_insert((value, value));
                        *known = (known.0.max(value), value);
                    }
                    kind => panic!("an event of type {kind}"),
                }
            }
        }
        trace
    }
}
