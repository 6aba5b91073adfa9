//! The same snapshot in other forms: as JSON, in a `torch.save` file, and what only looks like one.

use super::{error, read};
use crate::support::{open, read_unpacked};
use memviz::Recording;
use memviz::input::ReadOptions;
use memviz::report::Source;
use memviz::report::info::json::Info;
use std::io::{Cursor, Write};

const JSON: &str = "fixtures/reports/snapshot.json";

fn json() -> serde_json::Value {
    serde_json::from_slice(&read_unpacked(JSON)).unwrap()
}

fn pickle() -> Vec<u8> {
    serde_pickle::to_vec(&json(), serde_pickle::SerOptions::new()).unwrap()
}

/// Everything but the size of the file and its form.
fn facts(recording: &Recording) -> (Vec<memviz::replay::Counters>, usize, usize, serde_json::Value) {
    let ends = recording.histories.iter().flat_map(|history| [history.start, history.end]);
    let report = recording.info(&[]).unwrap();
    let info = serde_json::to_value(Info::of(Source { path: "a file", recording }, &report)).unwrap();
    (ends.collect(), recording.snapshot.stacks.len(), recording.snapshot.entries.len(), info["devices"].clone())
}

/// The members that `torch.save` writes beside the pickle.
fn saved(pickle: &[u8], more: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let marks: [(&str, &[u8]); 5] = [
        ("data.pkl", pickle),
        (".format_version", b"1"),
        ("byteorder", b"little"),
        ("version", b"3\n"),
        (".data/serialization_id", b"1234567890123456789012345678901234567890"),
    ];
    for (name, bytes) in marks.iter().chain(more) {
        archive.start_file(format!("snapshot/{name}"), options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[test]
fn a_snapshot_as_json_is_read_like_its_pickle() {
    let of_json = open(JSON);
    assert_eq!(of_json.snapshot.notes.protocol, None);
    assert_eq!(facts(&of_json), facts(&read(&pickle()).unwrap()));
    let indented = serde_json::to_vec_pretty(&json()).unwrap();
    assert_eq!(facts(&read(&indented).unwrap()), facts(&of_json));
    let segments = serde_json::to_vec(&json()["segments"]).unwrap();
    assert!(read(&segments).unwrap().snapshot.notes.segments_only);
}

#[test]
fn a_snapshot_as_json_that_is_cut_off_is_read_up_to_the_cut() {
    let whole = read_unpacked(JSON);
    let part = &whole[..whole.len() * 3 / 4];
    assert!(error(part).contains("the file ends in the middle of the snapshot"), "{}", error(part));
    let mut options = ReadOptions::default();
    options.allow_truncated = true;
    let recording = Recording::read(Cursor::new(part.to_vec()), &options).unwrap();
    assert_eq!(recording.snapshot.notes.truncated_at, Some(part.len() as u64));
    assert!(!recording.is_complete());
}

#[test]
fn a_snapshot_in_a_torch_save_file_is_read() {
    assert_eq!(facts(&read(&saved(&pickle(), &[])).unwrap()), facts(&open(JSON)));
    for more in [("data/0", &[0u8; 8][..]), ("other", b"1"), (".storage_alignment", &[b'6'; 65])] {
        let model = error(&saved(&pickle(), &[more]));
        assert!(model.contains("a torch.save file with tensors"), "{more:?}: {model}");
    }
}

#[test]
fn a_page_of_profile_plot_is_named() {
    let page = read_unpacked("fixtures/reports/profile_plot_page.html.gz");
    assert!(error(&page).contains("profile_plot") && error(&page).contains("export_chrome_trace"), "{}", error(&page));
}

#[test]
fn traces_of_other_programs_are_named() {
    let xprof = br#"{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[
        {"ph":"M","pid":3,"name":"process_name","args":{"name":"/device:TPU:0"}},
        {"ph":"X","pid":3,"tid":1,"ts":1,"dur":2,"name":"fusion"}]}"#;
    assert!(error(xprof).contains("XProf") && error(xprof).contains("save_device_memory_profile"), "{}", error(xprof));
}
