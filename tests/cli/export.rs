//! `memviz export`: what other programs read from its files, and what it refuses.

use crate::support::{fixture, memviz, skipped};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// When these are 1, a program that reads the files has to be there.
const REQUIRE_PPROF: &str = "MEMVIZ_REQUIRE_PPROF";
pub const REQUIRE_PERFETTO: &str = "MEMVIZ_REQUIRE_PERFETTO";
const REQUIRE_DUCKDB: &str = "MEMVIZ_REQUIRE_DUCKDB";
const REQUIRE_FIREFOX_PROFILER: &str = "MEMVIZ_REQUIRE_FIREFOX_PROFILER";

fn export(folder: &TempDir, name: &str, args: &[&str]) -> String {
    let path = folder.path().join(name).into_os_string().into_string().unwrap();
    memviz(&[&["export", "-q", "-o", &path], args].concat()).expect(0);
    path
}

/// Whether a program answers; that it is missing is announced.
pub fn is_there(program: &str, args: &[&str], require: &str) -> bool {
    let run =
        Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if run.is_ok_and(|status| status.success()) {
        return true;
    }
    assert!(!std::env::var(require).is_ok_and(|value| value == "1"), "{require}=1, but {program} {args:?} fails");
    skipped(&format!("{program} {args:?} fails; {require}=1 makes that a failure"));
    false
}

/// The nodes of `go tool pprof -top`: bytes that each holds itself.
fn top(args: &[&str]) -> BTreeMap<String, i64> {
    let options = ["tool", "pprof", "-top", "-unit=B", "-nodecount=1000000", "-nodefraction=0", "-edgefraction=0"];
    let run = Command::new("go").args(options).args(args).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{args:?}: {}", String::from_utf8_lossy(&run.stderr));
    let (_, nodes) = text.split_once("cum%\n").unwrap_or_else(|| panic!("{args:?}: {text}"));
    let node = |line: &str| {
        let mut words = line.split_whitespace();
        let bytes = words.next().unwrap().trim_end_matches('B').parse().unwrap();
        (words.skip(4).collect::<Vec<_>>().join(" "), bytes)
    };
    nodes.lines().map(node).collect()
}

#[test]
fn pprof_of_go_sums_to_the_same() {
    if !is_there("go", &["tool", "pprof", "-h"], REQUIRE_PPROF) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let total = |path: &str, args: &[&str]| -> i64 {
        let answer = memviz(&[&["peak", "--format", "json"], args, &[path]].concat()).json();
        let devices = answer["devices"].as_array().unwrap();
        devices.iter().map(|device| device["attribution"]["total_bytes"].as_i64().unwrap()).sum()
    };
    let sum = |args: &[&str]| top(args).values().sum::<i64>();
    for name in ["tiny", "gpt_train", "gpt_train_ckpt", "multi_gpu", "oom", "no_history", "private_pool", "pools_t215"]
    {
        let recording = fixture(name);
        let file = export(&folder, &format!("{name}.pb.gz"), &[&recording]);
        assert_eq!(sum(&["-sample_index=inuse_space", &file]), total(&recording, &[]), "{name}");
        let at_end = export(&folder, &format!("{name}.end.pb.gz"), &[&recording, "--at", "end"]);
        assert_eq!(sum(&[&at_end]), total(&recording, &["--at", "end"]), "{name} at its end");
    }
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().unwrap();
    let (base, new) = (path("gpt_train.pb.gz"), path("gpt_train_ckpt.pb.gz"));
    let difference = total(&fixture("gpt_train_ckpt"), &[]) - total(&fixture("gpt_train"), &[]);
    assert_eq!(sum(&["-diff_base", &base, &new]), difference);
    assert_eq!(sum(&["-diff_base", &base, &base]), 0);
    // A label is what rows are grouped by, and a step is a number.
    let activations = memviz(&["peak", "--by", "category", "--format", "json", &fixture("gpt_train")]).json();
    let rows = activations["devices"][0]["attribution"]["rows"].as_array().unwrap().clone();
    let activation = rows.iter().find(|row| row["label"] == "activation").unwrap();
    assert_eq!(Value::from(sum(&["-tagfocus=category=^activation$", &base])), activation["bytes"]);
    let steps = [1, 2].map(|step| sum(&[&format!("-tagfocus=step={step}"), &base]));
    assert_eq!(steps.iter().sum::<i64>(), total(&fixture("gpt_train"), &[]), "{steps:?}");
    // With lines, nodes are what memviz calls sites.
    let lines = top(&["-lines", "-focus=minigpt.py", &base]);
    assert!(
        lines.keys().any(|line| line.starts_with("minigpt.py forward ") && line.contains("/minigpt.py:")),
        "{lines:?}"
    );
}

/// Reads traces with the classes of Perfetto itself, which know every field.
const READ_TRACE: &str = r#"
import json, sys
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

def unknown(message):
    inner = (item for field, value in message.ListFields() if field.message_type
             for item in ([value] if hasattr(value, "ListFields") else value))
    return len(UnknownFieldSet(message)) + sum(map(unknown, inner))

trace = schema.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
assert unknown(trace) == 0
tracks, highest, open_slices = {}, {}, {}
heaps, blocks = {}, {}
for packet in trace.packet:
    if packet.HasField("track_descriptor"):
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor
    if packet.HasField("track_event"):
        event = packet.track_event
        track = tracks[event.track_uuid]
        if event.type == event.TYPE_COUNTER:
            assert track.counter.unit == track.counter.UNIT_SIZE_BYTES
            name = f"{tracks[track.parent_uuid].name} {track.name}"
            highest[name] = max(highest.get(name, event.counter_value), event.counter_value)
        elif event.type in (event.TYPE_SLICE_BEGIN, event.TYPE_SLICE_END):
            if event.type == event.TYPE_SLICE_BEGIN:
                assert packet.sequence_flags == 2 and event.name_iid
                numbers = {word.name: word.uint_value for word in event.debug_annotations}
                if "id" in numbers:
                    blocks[numbers["id"]] = numbers["bytes"]
            step = 1 if event.type == event.TYPE_SLICE_BEGIN else -1
            open_slices[event.track_uuid] = open_slices.get(event.track_uuid, 0) + step
            assert open_slices[event.track_uuid] >= 0
    for dump in packet.profile_packet.process_dumps:
        data = packet.interned_data
        stacks = {stack.iid: stack.frame_ids for stack in data.callstacks}
        frames = {frame.iid: frame for frame in data.frames}
        names = {name.iid: name.str.decode() for name in data.function_names}
        mappings = {mapping.iid for mapping in data.mappings}
        assert packet.sequence_flags == 2 and packet.timestamp >= dump.timestamp
        assert any(track.process.pid == dump.pid for track in tracks.values())
        for sample in dump.samples:
            assert all(frames[frame].mapping_id in mappings and names[frames[frame].function_name_id] for frame in stacks[sample.callstack_id])
        heaps[dump.heap_name] = sum(sample.self_allocated - sample.self_freed for sample in dump.samples)
print(json.dumps({"highest": highest, "heaps": heaps, "blocks": sum(blocks.values())}))
"#;

#[test]
fn speedscope_gets_stacks_that_sum_to_the_same() {
    let folder = TempDir::new().unwrap();
    for name in ["tiny", "gpt_train", "multi_gpu", "no_history", "private_pool", "annotated"] {
        let file = export(&folder, &format!("{name}.speedscope.json"), &[&fixture(name)]);
        let file: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
        let frames = file["shared"]["frames"].as_array().unwrap();
        let profiles = file["profiles"].as_array().unwrap();
        for profile in profiles {
            let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
            assert_eq!(samples.len(), weights.len());
            let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
            assert_eq!((profile["unit"].as_str(), profile["endValue"].as_u64()), (Some("bytes"), Some(sum)));
            let numbers = samples.iter().flat_map(|stack| stack.as_array().unwrap());
            assert!(numbers.map(|number| number.as_u64().unwrap()).all(|number| number < frames.len() as u64));
        }
        let answer = memviz(&["peak", "--format", "json", &fixture(name)]).json();
        let held = profiles.iter().filter(|profile| !profile["name"].as_str().unwrap().contains("while recording"));
        let held: Vec<&Value> = held.map(|profile| &profile["endValue"]).collect();
        let devices = answer["devices"].as_array().unwrap();
        let totals: Vec<&Value> = devices.iter().map(|device| &device["attribution"]["total_bytes"]).collect();
        assert_eq!(held, totals, "{name}");
    }
    // The outermost frame comes first.
    let file = export(&folder, "order.speedscope.json", &[&fixture("tiny")]);
    let file: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let outermost = file["profiles"][0]["samples"][0][0].as_u64().unwrap() as usize;
    assert!(file["shared"]["frames"][outermost]["name"].as_str().unwrap().contains("<module>"), "{file}");
}

#[test]
fn prometheus_gets_the_figures_of_the_answers() {
    for name in ["tiny", "gpt_train", "multi_gpu", "oom", "no_history"] {
        let path = fixture(name);
        let text = memviz(&["export", "--format", "prometheus", &path]).stdout;
        let lines: BTreeMap<&str, i64> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(key, value)| (key, value.parse().unwrap()))
            .collect();
        let answer = memviz(&["peak", "--by", "category", "--format", "json", &path]).json();
        for device in answer["devices"].as_array().unwrap() {
            let labels = format!("file=\"snapshot.pickle.gz\",device=\"{}\"", device["device"]);
            for counter in ["allocated", "active", "requested", "reserved"] {
                let key = format!("memviz_max_bytes{{{labels},counter=\"{counter}\"}}");
                let is_known = name != "no_history";
                let max = is_known.then(|| device["maxima"][format!("{counter}_bytes")].as_i64().unwrap());
                assert_eq!(lines.get(key.as_str()).copied(), max, "{key}");
                let end = device["end"][format!("{counter}_bytes")].as_i64();
                assert_eq!(lines.get(key.replace("max", "end").as_str()).copied(), end, "{key}");
            }
            for row in device["attribution"]["rows"].as_array().unwrap() {
                let key = format!("memviz_held_bytes{{{labels},category={}}}", row["label"]);
                assert_eq!(lines.get(key.as_str()).copied(), row["bytes"].as_i64(), "{key}");
            }
            let failed = lines.get(format!("memviz_failed_requests{{{labels}}}").as_str());
            let is_known = name != "no_history";
            assert_eq!(failed.map(|&failed| failed > 0), is_known.then_some(name == "oom"));
        }
        // Each metric is announced once, before its lines.
        let names = |prefix: &str| text.lines().filter(|line| line.starts_with(prefix)).count();
        assert_eq!((names("# HELP memviz_"), names("# TYPE memviz_")), (6, 6));
    }
}

#[test]
fn perfetto_knows_every_field() {
    if !is_there("python3", &["-c", "import perfetto"], REQUIRE_PERFETTO) {
        return;
    }
    let folder = TempDir::new().unwrap();
    for name in ["annotated", "multi_gpu", "oom", "tiny_t201", "gpt_late"] {
        let file = export(&folder, &format!("{name}.perfetto-trace"), &[&fixture(name), "--blocks", "5"]);
        let run = Command::new("python3").args(["-c", READ_TRACE, &file]).output().unwrap();
        assert!(run.status.success(), "{name}: {}", String::from_utf8_lossy(&run.stderr));
        let found: Value = serde_json::from_slice(&run.stdout).unwrap();
        let highest = &found["highest"];
        let answer = memviz(&["peak", "--format", "json", &fixture(name)]).json();
        for device in answer["devices"].as_array().unwrap() {
            for metric in ["allocated", "requested", "reserved"] {
                let counter = format!("Device {} {metric}", device["device"]);
                assert_eq!(device["maxima"][format!("{metric}_bytes")], highest[&counter], "{name}: {counter}");
            }
            // Weighted stacks sum to the memory held at the peak.
            let heap = format!("Device {}: held at the peak", device["device"]);
            assert_eq!(found["heaps"][heap], device["attribution"]["total_bytes"], "{name}");
        }
        if name == "oom" {
            // The largest blocks of the whole recording, each with its bytes.
            let tables = tables(&fixture(name));
            let largest =
                "SELECT sum(bytes)::BIGINT FROM (SELECT bytes FROM 'allocations.parquet' ORDER BY bytes DESC LIMIT 5)";
            if has_duckdb() {
                assert_eq!(duckdb(&tables, &[largest])[0][0][0], found["blocks"]);
            }
        }
    }
}

#[test]
fn names_and_flags_decide_the_format() {
    let folder = TempDir::new().unwrap();
    let tiny = fixture("tiny");
    let begins = |path: &str| fs::read(path).unwrap()[..2].to_vec();
    assert_eq!(begins(&export(&folder, "A.PB.GZ", &[&tiny])), [0x1f, 0x8b]);
    assert_eq!(begins(&export(&folder, "a.pftrace", &[&tiny]))[0], 0x0a);
    assert_eq!(begins(&export(&folder, "a.prof", &[&tiny, "--format", "pprof"])), [0x1f, 0x8b]);
    let twice = ["b.pb.gz", "c.pb.gz"].map(|name| fs::read(export(&folder, name, &[&tiny])).unwrap());
    assert_eq!(twice[0], twice[1], "one recording, one file");
}

#[test]
fn unsuitable_formats_are_refused() {
    let tiny = fixture("tiny");
    for (args, part) in [
        (
            &["export", &tiny] as &[&str],
            ".perfetto-trace, .speedscope.json, .firefox.json, .folded, .parquet or .prom, or --format; found no output file",
        ),
        (&["export", &tiny, "-o", "a.gz"], ".folded, .parquet or .prom, or --format; found a.gz"),
        (&["export", &tiny, "-o", ".pb.gz"], "found .pb.gz"),
        (&["export", &tiny, "-o", "a.pb.gz", "--format", "perfetto"], ".perfetto-trace for --format perfetto"),
        (&["export", &tiny, "--format", "arrow"], "pprof, perfetto, speedscope, firefox, folded, parquet, prometheus"),
        (
            &["export", &tiny, "-o", "a.parquet", "--at", "end"],
            "expected a format that takes --at, such as pprof, found parquet",
        ),
        (
            &["export", &tiny, "-o", "a.firefox.json", "--from", "end"],
            "expected a format that takes --from or --to, such as pprof, found firefox",
        ),
        (&["export", &tiny, "-o", "a.pb.gz", "--table", "entries"], "expected --format parquet for --table"),
        (&["export", &tiny, "-o", "a.pb.gz", "--blocks", "5"], "expected --format perfetto for --blocks"),
        (
            &["export", &tiny, "-o", "tables/", "--table", "entries"],
            "expected no --table: a folder receives all tables, as Parquet",
        ),
        (&["export", &tiny, "-o", "a.parquet", "--metric", "active"], "a format that takes --metric"),
        (&["export", &tiny, "-o", "a.parquet", "--include", "a"], "a format that takes --include"),
        (&["export", &tiny, "-o", "a.parquet", "--all-frames"], "a format that takes --all-frames"),
        (&["export", &tiny, "-o", "a.pb.gz", "--from", "end", "--to", "start"], "--from before --to"),
        (&["export", &tiny, "-o", "a.pftrace", "--from", "end", "--to", "start"], "--from before --to"),
        (&["export", &tiny, "-o", "a.pb.gz", "--at", "oom"], "no oom entry"),
        (&["export", &fixture("no_history"), "-o", "a.pftrace"], "expected a history"),
        (&["peak", &tiny, "-o", "a.pb.gz", "--format", "json"], ".json for --format json"),
    ] {
        memviz(args).expect_error(part);
    }
    assert!(!fs::exists("a.pb.gz").unwrap() && !fs::exists("a.pftrace").unwrap());
}

/// memviz recognizes its own exported files and does not read them as recordings.
#[test]
fn a_profile_is_not_a_recording() {
    let folder = TempDir::new().unwrap();
    let file = export(&folder, "a.pb.gz", &[&fixture("tiny")]);
    memviz(&["peak", &file]).expect_error("a pprof profile, but not of device memory");
}

/// Answers of the database to queries in a folder: a row of numbers and texts each.
pub fn duckdb(folder: &TempDir, queries: &[&str]) -> Vec<Vec<Vec<Value>>> {
    const ASK: &str = "import duckdb, json, sys\nprint(json.dumps([duckdb.execute(query).fetchall() for query in sys.argv[1:]], default=lambda it: int(it) if hasattr(it, '__int__') else str(it)))";
    let run = Command::new("python3").args(["-c", ASK]).args(queries).current_dir(folder.path()).output().unwrap();
    assert!(run.status.success(), "{queries:?}: {}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).unwrap()
}

pub fn has_duckdb() -> bool {
    is_there("python3", &["-c", "import duckdb"], REQUIRE_DUCKDB)
}

/// All tables of a recording, in a folder.
fn tables(recording: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let path = format!("{}/", folder.path().display());
    memviz(&["export", "-q", recording, "-o", &path]).expect(0);
    folder
}

#[test]
fn sums_in_duckdb_are_those_of_memviz() {
    if !has_duckdb() {
        return;
    }
    for name in ["tiny", "gpt_train", "multi_gpu", "oom", "no_history", "expandable", "private_pool", "annotated"] {
        let recording = fixture(name);
        let folder = tables(&recording);
        let answer = memviz(&["peak", "--by", "category", "--no-infer", "--format", "json", &recording]).json();
        let mut rows = Vec::new();
        for device in answer["devices"].as_array().unwrap() {
            for row in device["attribution"]["rows"].as_array().unwrap() {
                let category = row["label"].as_str().unwrap().to_owned();
                rows.push((device["device"].as_i64().unwrap(), category, row["bytes"].as_i64().unwrap()));
            }
        }
        rows.sort();
        let held = duckdb(
            &folder,
            &[
                "SELECT device, category, sum(bytes)::BIGINT FROM 'allocations.parquet' WHERE live_at_peak GROUP BY ALL ORDER BY ALL",
                "SELECT device, max(allocated_after), max(active_after), max(requested_after), max(reserved_after), count(*) \
                 FROM 'entries.parquet' GROUP BY device ORDER BY device",
                "SELECT count(*) FROM 'stacks.parquet' JOIN 'frames.parquet' USING (frame_id)",
                "SELECT count(*) FROM 'stacks.parquet'",
                "SELECT count(*) FROM 'allocations.parquet' a LEFT JOIN 'entries.parquet' e \
                 ON a.device = e.device AND a.alloc_entry = e.entry WHERE NOT from_before AND e.addr IS DISTINCT FROM a.addr",
            ],
        );
        let found: Vec<(i64, String, i64)> = held[0]
            .iter()
            .map(|row| (row[0].as_i64().unwrap(), row[1].as_str().unwrap().to_owned(), row[2].as_i64().unwrap()))
            .collect();
        let mut found = found;
        found.sort();
        assert_eq!(found, rows, "{name}");
        for row in &held[1] {
            let device =
                answer["devices"].as_array().unwrap().iter().find(|device| device["device"] == row[0]).unwrap();
            for (at, counter) in ["allocated", "active", "requested", "reserved"].into_iter().enumerate() {
                // Maxima may be those before the first entry.
                let maximum = device["maxima"][format!("{counter}_bytes")].as_i64();
                assert!(row[at + 1].is_null() || row[at + 1].as_i64() <= maximum, "{name}: {counter}");
                assert!(name != "gpt_train" || row[at + 1].as_i64() == maximum, "{name}: {counter}");
            }
            assert!(row[5].as_i64().unwrap() > 0);
        }
        assert_eq!(held[2], held[3], "{name}: every frame of a stack is there");
        assert_eq!(held[4][0][0], 0, "{name}: allocations are where their entries say");
    }
}

#[test]
fn a_table_of_ranks_is_read_again() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let ranks = "fixtures/snapshots/ranks8";
    memviz(&["ranks", "-q", ranks, "-o", &path("ranks.parquet")]).expect(0);
    let compared = |input: &str| memviz(&["ranks", "--format", "csv", input]).stdout;
    assert_eq!(compared(&path("ranks.parquet")), compared(ranks));
    // In a folder, it is found by its extension.
    assert_eq!(compared(&folder.path().display().to_string()), compared(ranks));
    // Another table is named as such.
    export(&folder, "other.parquet", &[&fixture("tiny")]);
    let run = memviz(&["ranks", &path("other.parquet")]);
    assert!(run.stderr.contains("did not write"), "{}", run.stderr);
    run.expect(2);
    memviz(&["peak", &path("ranks.parquet")]).expect_error("memviz ranks reads those that it wrote");
    // Damaged ones are refused in a line, wherever the damage is.
    let table = fs::read(path("ranks.parquet")).unwrap();
    for at in (0..table.len()).step_by(table.len() / 60) {
        let mut damaged = table.clone();
        damaged[at] ^= 0x55;
        fs::write(path("damaged.parquet"), &damaged).unwrap();
        let run = memviz(&["ranks", "-q", &path("damaged.parquet")]);
        assert!(
            run.code == Some(0) || run.code == Some(2) && run.stderr.starts_with("memviz: "),
            "{at}: {}",
            run.stderr
        );
    }
    if has_duckdb() {
        let figures = "SELECT count(*), max(allocated_max), sum(ooms)::BIGINT FROM 'ranks.parquet' WHERE line = 'rank'";
        let answer = duckdb(&folder, &[figures]);
        let lines = memviz(&["ranks", "--format", "json", ranks]).stdout;
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let ranks: Vec<Value> = lines.filter(|line| line["line"] == "rank").collect();
        let highest = ranks.iter().map(|rank| rank["maxima"]["allocated_bytes"].as_i64().unwrap()).max().unwrap();
        assert_eq!(Value::from(answer[0][0].clone()), serde_json::json!([ranks.len(), highest, 0]));
    }
}

/// Every query of the book: in a folder with the tables that it names.
#[test]
fn queries_of_the_book_have_answers() {
    if !has_duckdb() {
        return;
    }
    let folder = tables(&fixture("gpt_train"));
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir(folder.path().join("ranks")).unwrap();
    for (node, ranks) in [("node0", "rank[0-3]"), ("node1", "rank[4-7]")] {
        let recordings = format!("fixtures/snapshots/ranks8/{ranks}.pickle.gz");
        memviz(&["ranks", "-q", &recordings, "-o", &path(&format!("ranks/{node}.parquet"))]).expect(0);
    }
    let year = "runs/date=2026-11-25/job=4711";
    fs::create_dir_all(folder.path().join(year)).unwrap();
    memviz(&["ranks", "-q", &fixture("oom"), "-o", &path(&format!("{year}/node17.parquet"))]).expect(0);
    memviz(&["ranks", "-q", &fixture("oom_t201"), "-o", &path("ranks/oom.parquet")]).expect(0);
    let page = fs::read_to_string("docs/src/databases.md").unwrap();
    let queries: Vec<&str> = page.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(queries.len() >= 6, "{}", queries.len());
    let asked: Vec<&str> =
        queries.iter().flat_map(|query| query.split_inclusive(';')).filter(|one| one.contains(';')).collect();
    for (query, answer) in asked.iter().zip(duckdb(&folder, &asked)) {
        assert!(!answer.is_empty() || query.trim_start().starts_with("COPY"), "{query}");
    }
    // What a query wrote is read again.
    let joined = memviz(&["ranks", "--format", "csv", &path("all.jsonl")]);
    assert_eq!(
        joined.stdout.lines().count(),
        memviz(&["ranks", "--format", "csv", &path("ranks")]).stdout.lines().count()
    );
}

#[test]
fn the_firefox_profiler_gets_every_block() {
    let folder = TempDir::new().unwrap();
    for name in ["tiny", "gpt_train", "multi_gpu", "gpt_late", "tiny_t201"] {
        let file = export(&folder, &format!("{name}.firefox.json"), &[&fixture(name)]);
        let file: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let answer = memviz(&["peak", "--format", "json", &fixture(name)]).json();
        let threads = file["threads"].as_array().unwrap();
        for (device, thread) in answer["devices"].as_array().unwrap().iter().zip(threads) {
            let allocations = &thread["nativeAllocations"];
            let column = |name: &str| allocations[name].as_array().unwrap();
            let mut live = BTreeMap::new();
            let (mut sum, mut highest) = (0, 0);
            for (weight, address) in column("weight").iter().zip(column("memoryAddress")) {
                let (weight, address) = (weight.as_i64().unwrap(), address.as_u64().unwrap());
                sum += weight;
                highest = highest.max(sum);
                if weight < 0 {
                    assert_eq!(live.remove(&address), Some(-weight), "{name}: what is freed was allocated");
                } else {
                    assert_eq!(live.insert(address, weight), None, "{name}: nothing is allocated twice");
                }
            }
            assert_eq!(device["end"]["allocated_bytes"].as_i64(), Some(sum), "{name}");
            assert_eq!(device["maxima"]["allocated_bytes"].as_i64(), Some(highest), "{name}");
            for table in ["nativeAllocations", "stackTable", "frameTable", "funcTable"] {
                let length = thread[table]["length"].as_u64().unwrap() as usize;
                let columns = thread[table].as_object().unwrap().values().filter_map(Value::as_array);
                assert!(columns.into_iter().all(|column| column.len() == length), "{name}: {table}");
            }
        }
    }
    if !is_there("profiler-cli", &["--version"], REQUIRE_FIREFOX_PROFILER) {
        return;
    }
    let file = folder.path().join("gpt_train.firefox.json").display().to_string();
    let cli = |args: &[&str]| {
        // The session starts in the background, which may take a moment.
        let run = || {
            Command::new("profiler-cli").args(args).env("HOME", folder.path()).stdin(Stdio::null()).output().unwrap()
        };
        let mut last = run();
        for _ in 0..20 {
            if last.status.success() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(500));
            last = run();
        }
        String::from_utf8(last.stdout).unwrap()
    };
    let load =
        Command::new("profiler-cli").args(["load", &file]).env("HOME", folder.path()).stdin(Stdio::null()).output();
    load.unwrap();
    let strategy = ["--strategy", "native-retained-allocations", "--json"];
    let retained: Value = serde_json::from_str(&cli(&[&["thread", "samples"], &strategy[..]].concat())).unwrap();
    let counter: Value = serde_json::from_str(&cli(&["counter", "info", "c-0", "--json"])).unwrap();
    cli(&["stop"]);
    let answer = memviz(&["peak", "--format", "json", &fixture("gpt_train")]).json();
    let device = &answer["devices"][0];
    assert_eq!(retained["categoryBreakdown"]["totalSamples"], device["end"]["allocated_bytes"]);
    assert_eq!(counter["stats"][0]["value"], device["maxima"]["allocated_bytes"]);
}

#[test]
fn folded_stacks_are_those_of_flamegraph() {
    let folder = TempDir::new().unwrap();
    let file = export(&folder, "a.folded", &[&fixture("gpt_train")]);
    let other = memviz(&["flamegraph", "--format", "folded", &fixture("gpt_train")]).stdout;
    assert_eq!(fs::read_to_string(file).unwrap(), other);
}
