//! Recordings from real programs on real GPUs, which only some machines have, compared with a second way to compute the
//! figures.
//!
//! Nothing that memviz decoded is compared with itself: [`plain`] decodes pickles, [`geometry`] replays them, and [`sums`]
//! adds up everything else from the bytes. [`Kind::of`] determines the kind of a file, and so how memviz must treat it. Every
//! file is either compared or refused with the words for its kind.
//!
//! Not compared, since there is no second way:
//! - a device whose trace contradicts its segments: the test then checks that memviz finds a contradiction, too;
//! - requested and active bytes of traces and timelines, which record neither;
//! - reserved bytes of timelines and of the CPU, which record none.
//!
//! If nothing shows how large a block from before the recording is, the difference to the highest possible maximum is
//! compared.

mod geometry;
mod plain;
mod sums;

use crate::support::{REQUIRE_CORPUS, assert_none, names, read_unpacked, skipped};
use geometry::Four;
use memviz::Recording;
use memviz::input::ReadOptions;
use memviz::model::{CPU_DEVICE, StrId};
use memviz::replay::{Counters, History, Metric};
use plain::{Object, unpickle};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use sums::Curve;

/// Their folders; the second one has files of other kinds.
const REAL: [&str; 2] = ["../shared/real", "../shared/real2"];

/// Names of the recordings; empty if the machine does not have them, which is printed.
fn recordings() -> Vec<String> {
    let (there, missing): (Vec<&str>, Vec<&str>) = REAL.into_iter().partition(|folder| Path::new(folder).is_dir());
    for folder in missing {
        let required = std::env::var(REQUIRE_CORPUS).is_ok_and(|value| value == "1");
        assert!(!required, "{REQUIRE_CORPUS}=1, but there is no {folder}");
        skipped(&format!("there is no {folder}; {REQUIRE_CORPUS}=1 makes that a failure"));
    }
    let is_recording = |name: &String| ![".md", ".py"].iter().any(|extension| name.ends_with(extension));
    let of = |folder: &str| {
        names(folder).into_iter().filter(is_recording).map(move |name| format!("{folder}/{name}")).collect::<Vec<_>>()
    };
    there.into_iter().flat_map(of).collect()
}

/// The kind of a file, determined without memviz.
enum Kind {
    Snapshot(Object),
    /// Its memory events.
    Trace(Vec<Value>),
    Timeline(Value),
    Profile(Vec<u8>),
    /// Nothing that could be read, and words that a line about it must have.
    Other(&'static [&'static str]),
}

impl Kind {
    fn of(bytes: Vec<u8>) -> Self {
        // A profile starts with a message of a few bytes.
        if matches!(bytes[..], [b'\n', 4..=22, 8, ..]) {
            return Self::Profile(bytes);
        }
        // An XSpace starts with a message of two thousand bytes or more.
        if bytes.starts_with(b"\n") && bytes.get(1).is_some_and(|&length| length >= 0x80) {
            return Self::Other(&["an XProf profile", "save_device_memory_profile"]);
        }
        let text = std::str::from_utf8(&bytes).map_or("", str::trim_start);
        match text.bytes().next().unwrap_or(bytes[0]) {
            0x80 => Self::Snapshot(unpickle(&bytes)),
            b'v' if text.starts_with("version https://git-lfs") => Self::Other(&["a Git LFS pointer", "git lfs pull"]),
            b'<' if text.contains("alloc_data = {") => Self::Other(&["a page of an old _memory_viz.py", "trace_plot"]),
            b'<' => match page_content(text) {
                Some(pickle) => Self::Snapshot(unpickle(&pickle)),
                None => Self::Other(&["an HTML page that contains only a picture", ".raw.json.gz"]),
            },
            b'{' if text.contains("\"schema\"") && text.contains("\"nodes\"") => {
                Self::Other(&["a PyTorch execution trace", "torch.profiler.pro"])
            }
            b'{' | b'[' if !text.contains("\"ph\"") => Self::Timeline(serde_json::from_str(text).unwrap()),
            b'{' | b'[' => match sums::memory_events(text) {
                // Where memory was recorded, nothing was allocated.
                events if events.is_empty() && !text.contains("\"profile_memory\": 1") => {
                    Self::Other(&["a profiler trace without memory events", "profile_memory=True"])
                }
                events => Self::Trace(events),
            },
            b'N' if bytes.starts_with(b"NVIDIA ") => Self::Other(&["an Nsight Systems report", "nsys export"]),
            other => panic!("what a file is that begins with 0x{other:02x} is not known here"),
        }
    }
}

/// The base64 in a page of `_memory_viz.py trace_plot`, decoded. It ends with zeros after the end of the pickle.
fn page_content(page: &str) -> Option<Vec<u8>> {
    let (_, behind) = page.split_once("\"base64\":")?;
    let base64 = behind.trim_start().strip_prefix('"')?.split('"').next()?;
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for value in base64.chars().filter_map(|character| alphabet.find(character)) {
        (bits, count) = (bits << 6 | value as u32, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

fn four(counters: &Counters) -> Four {
    let Counters { allocated, active, requested, reserved } = *counters;
    Four { allocated, active, requested, reserved }
}

fn maxima(history: &History) -> Four {
    let of = |metric: Metric| history.maxima[metric as usize].bytes;
    Four {
        allocated: of(Metric::Allocated),
        active: of(Metric::Active),
        requested: of(Metric::Requested),
        reserved: of(Metric::Reserved),
    }
}

/// What was found, file by file.
#[derive(Default)]
struct Findings {
    problems: Vec<String>,
    /// Devices of snapshots, of traces, of timelines and of profiles that were compared.
    compared: [usize; 4],
    /// Devices that contradict themselves.
    contradicting: usize,
    /// Files that were refused.
    refused: usize,
}

impl Findings {
    fn file(&mut self, path: &str) {
        let opened = Recording::open(path.as_ref(), &ReadOptions::default());
        let kind = Kind::of(read_unpacked(path));
        let recording = match (&kind, opened) {
            (Kind::Other(words), opened) => return self.refused(path, opened, words),
            (_, Ok(recording)) => recording,
            (_, Err(error)) => return self.problems.push(format!("{path}: {error}")),
        };
        match &kind {
            Kind::Snapshot(file) => self.snapshot(path, &recording, file),
            Kind::Trace(file) => self.trace(path, &recording, file),
            Kind::Timeline(file) => self.timeline(path, &recording, file),
            Kind::Profile(file) => self.profile(path, &recording, file),
            Kind::Other(_) => {}
        }
    }

    fn equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, ours: &T, theirs: &T) {
        if ours != theirs {
            self.problems.push(format!("{what}: {ours:?}, another way {theirs:?}"));
        }
    }

    fn refused(&mut self, path: &str, opened: Result<Recording, memviz::Error>, words: &[&str]) {
        self.refused += 1;
        match opened {
            Ok(_) => self.problems.push(format!("{path}: it was read")),
            Err(error) => {
                let line = error.to_string();
                if line.contains('\n') || !words.iter().all(|part| line.contains(part)) {
                    self.problems.push(format!("{path}: expected {words:?} in {line:?}"));
                }
            }
        }
    }

    fn snapshot(&mut self, path: &str, recording: &Recording, file: &Object) {
        let mut devices: Vec<i128> =
            geometry::segments(file).iter().filter_map(|segment| segment.int("device")).collect();
        // A device that holds nothing at the dump may have entries.
        devices.extend((0..64).filter(|&device| !geometry::trace(file, device).is_empty()).map(i128::from));
        devices.sort_unstable();
        devices.dedup();
        let known: Vec<i128> = recording.histories.iter().map(|history| history.device.into()).collect();
        self.equal(&format!("{path}: devices"), &known, &devices);
        for history in &recording.histories {
            let name = format!("{path}: device {}", history.device);
            self.entries(&name, recording, history, &geometry::trace(file, history.device));
            match geometry::play(file, history.device) {
                Err(reason) => {
                    self.contradicting += 1;
                    if history.anomalies.total() == 0 {
                        self.problems.push(format!("{name}: {reason}, and memviz saw none"));
                    }
                }
                Ok(played) => {
                    self.compared[0] += 1;
                    self.equal(&format!("{name}: anomalies"), &history.anomalies.total(), &0);
                    self.equal(&format!("{name}: before"), &four(&history.start), &played.start);
                    self.equal(&format!("{name}: end"), &four(&history.end), &played.end);
                    self.equal(&format!("{name}: maxima"), &maxima(history), &played.maxima);
                    let more = history.completeness.baseline_uncertain_bytes;
                    let is_bounded = (played.unsettled > 0) == (more > 0) && more <= (played.unsettled as u64) << 20;
                    if !is_bounded {
                        let blocks = played.unsettled;
                        self.problems.push(format!("{name}: {more} bytes of {blocks} blocks are uncertain"));
                    }
                }
            }
        }
    }

    /// Entries as they were read, with their stacks and texts.
    fn entries(&mut self, name: &str, recording: &Recording, history: &History, trace: &[Object]) {
        let snapshot = &recording.snapshot;
        let text = |id: StrId| snapshot.strings.get(id);
        self.equal(&format!("{name}: entries"), &(history.entries() as usize), &trace.len());
        for (index, (ours, theirs)) in snapshot.entries.rows(history.rows.clone()).zip(trace).enumerate() {
            let number = |key: &str| theirs.int(key).unwrap_or(0);
            let context = snapshot.contexts.get(ours.context);
            let addr = if theirs.int("device_free").is_some() { number("device_free") } else { number("addr") };
            let texts = ["compile_context", "user_metadata"].map(|key| theirs.text(key).to_string());
            let read = (ours.action.name(), i128::from(ours.addr), i128::from(ours.size), i128::from(context.stream));
            let expected = (&*theirs.text("action"), addr, number("size"), number("stream"));
            let mut is_equal = read == expected && texts == [context.compile_context, context.user_metadata].map(text);
            is_equal &= theirs.int("time_us").is_none_or(|time| time == i128::from(ours.time_us));
            let frames = theirs.get("frames").map(|frames| frames.items()).unwrap_or_default();
            let read = snapshot.stacks.frames(ours.stack);
            is_equal &= frames.len() == snapshot.stacks.frame_ids(ours.stack).len()
                && read.zip(&frames).all(|(ours, theirs)| {
                    let line = theirs.int("line") == Some(ours.line.into());
                    line && text(ours.filename) == &*theirs.text("filename") && text(ours.name) == &*theirs.text("name")
                });
            if !is_equal {
                self.problems.push(format!("{name}: entry {index} was read as another"));
                return;
            }
        }
    }

    fn trace(&mut self, path: &str, recording: &Recording, events: &[Value]) {
        let mut devices = sums::of_trace(events);
        for history in &recording.histories {
            let name = format!("{path}: device {}", history.device);
            let device = (history.device != CPU_DEVICE).then_some(i64::from(history.device));
            let Some((mut allocated, reserved)) = devices.remove(&device) else {
                self.problems.push(format!("{name} is not in the file"));
                continue;
            };
            // Totals of the CPU go on from earlier sessions, and never lose what was freed in between.
            if device.is_none() && allocated.start > history.start.allocated {
                let before = allocated.start - history.start.allocated;
                allocated.start -= before;
                allocated.end -= before;
                allocated.highest -= before;
            }
            if history.anomalies.total() > 0 {
                self.contradicting += 1;
                continue;
            }
            self.compared[1] += 1;
            self.curve(&format!("{name}: allocated"), history, Metric::Allocated, allocated);
            if device.is_some() {
                self.curve(&format!("{name}: reserved"), history, Metric::Reserved, reserved);
            }
        }
        let left: Vec<_> = devices.into_keys().collect();
        self.equal(&format!("{path}: devices left out"), &left, &Vec::new());
    }

    fn curve(&mut self, name: &str, history: &History, metric: Metric, expected: Curve) {
        let [start, end] = [&history.start, &history.end].map(|counters| counters.get(metric));
        let highest = history.maxima[metric as usize].bytes;
        self.equal(name, &Curve { start, end, highest }, &expected);
    }

    fn timeline(&mut self, path: &str, recording: &Recording, file: &Value) {
        let [history] = &recording.histories[..] else { panic!("{path}: a timeline has one device") };
        self.compared[2] += 1;
        self.curve(path, history, Metric::Allocated, sums::of_timeline(file));
    }

    fn profile(&mut self, path: &str, recording: &Recording, file: &[u8]) {
        let devices = sums::of_profile(file);
        let held = recording.histories.iter().map(|history| history.end.allocated).filter(|&bytes| bytes > 0);
        let (mut held, mut expected): (Vec<i64>, Vec<i64>) = (held.collect(), devices.into_values().collect());
        held.sort_unstable();
        expected.sort_unstable();
        self.compared[3] += held.len();
        self.equal(&format!("{path}: bytes of each device"), &held, &expected);
    }
}

#[test]
fn real_recordings_lead_to_the_same_figures_another_way() {
    let files = recordings();
    // This test is one of the last, and takes longest: on every core.
    let next = AtomicUsize::new(0);
    let compare = || {
        let mut findings = Findings::default();
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            findings.file(path);
        }
        findings
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let all: Vec<Findings> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(compare)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let problems: Vec<String> = all.iter().flat_map(|findings| &findings.problems).cloned().collect();
    assert_none(&problems);
    let compared = [0, 1, 2, 3].map(|kind| all.iter().map(|findings| findings.compared[kind]).sum::<usize>());
    let contradicting: usize = all.iter().map(|findings| findings.contradicting).sum();
    let refused: usize = all.iter().map(|findings| findings.refused).sum();
    let [snapshots, traces, timelines, profiles] = compared;
    let enough = snapshots >= 30 && traces >= 8 && timelines >= 3 && profiles >= 1;
    assert!(
        files.is_empty() || enough && contradicting <= 3,
        "{compared:?} devices of {} files were compared, {contradicting} contradict themselves, {refused} were refused",
        files.len()
    );
}
