//! Reading: recordings are read in every form that people have files in; broken and malicious files, and files that are not
//! recordings, are refused.

mod bounds;
mod containers;
mod forms;
mod hostile;
mod keys;
mod metadata;
#[cfg(feature = "nsys")]
mod nsys;
mod old_traces;
mod oracles;
mod pages;
mod profiles;
mod round_trip;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod traces;

use memviz::Recording;
use memviz::input::ReadOptions;
use memviz::report::Source;
use memviz::report::info::json;
use std::io::Cursor;

/// Reads a recording from memory.
fn read(bytes: &[u8]) -> memviz::Result<Recording> {
    Recording::read(Cursor::new(bytes.to_vec()), &ReadOptions::default())
}

/// The notes of every report about a recording's file.
fn notes(recording: &Recording) -> String {
    let report = recording.info(&[]).unwrap();
    json::Info::of(Source { path: "a file", recording }, &report).head.input.notes.join("\n")
}

/// The error for these bytes, which is one line.
#[track_caller]
fn error(bytes: &[u8]) -> String {
    let error = read(bytes).map(|recording| recording.bytes).expect_err("an error").to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn errors_name_the_format_and_a_next_step() {
    let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 4494887\n";
    assert!(error(lfs).contains("git lfs pull"), "{}", error(lfs));
    let nsys = b"NVIDIA Tegra Profiler Report 2024@6@2";
    assert!(error(nsys).contains("nsys export --type sqlite") && error(nsys).contains("memviz nsys"));
    // The same inside of a container that memviz opens.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, nsys).unwrap();
    assert_eq!(error(&gzip.finish().unwrap()), error(nsys));
    for (begin, words) in [
        (&b"SQLite format 3\0...."[..], "an SQLite database"),
        (b"\x89PNG\r\n\x1a\n....", "a picture"),
        (b"\xfd7zXZ\0...", "xz -d"),
    ] {
        assert!(error(begin).contains(words), "{}", error(begin));
    }
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for name in ["model/data.pkl", "model/data/0"] {
        archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
    }
    let archive = archive.finish().unwrap().into_inner();
    assert!(error(&archive).contains("torch.save"), "{}", error(&archive));
}

#[test]
fn a_trace_without_memory_events_says_how_to_record_them() {
    let text =
        r#"{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}"#;
    let error = error(text.as_bytes());
    assert!(
        error.contains("a profiler trace without memory events") && error.contains("profile_memory=True"),
        "{error}"
    );
}

#[test]
fn a_list_of_segments_is_a_state_without_a_history() {
    let block = serde_json::json!({"size": 512, "requested_size": 100, "address": 4096, "state": "active_allocated",
        "frames": [{"filename": "model.py", "line": 3, "name": "make"}]});
    let free =
        serde_json::json!({"size": 2_096_640, "requested_size": 0, "address": 4608, "state": "inactive", "frames": []});
    let segments = serde_json::json!([{"device": 1, "address": 4096, "total_size": 2_097_152, "allocated_size": 512,
        "active_size": 512, "requested_size": 100, "stream": 0, "segment_type": "small", "segment_pool_id": [0, 0],
        "is_expandable": false, "frames": [], "blocks": [block, free]}]);
    let pickle = serde_pickle::to_vec(&segments, serde_pickle::SerOptions::new()).unwrap();
    let recording = read(&pickle).unwrap();
    let history = recording.history(1).unwrap();
    assert_eq!((history.end.allocated, history.end.reserved, history.end.requested), (512, 2_097_152, 100));
    assert!(recording.snapshot.notes.segments_only);
    let notes = notes(&recording);
    assert!(notes.contains("torch.cuda.memory_snapshot()"), "{notes}");
    let report = recording.peak(&memviz::analysis::peak::PeakOptions::default()).unwrap();
    assert_eq!(report.devices[0].attribution.rows[0].label, "model.py:3 make");
}
