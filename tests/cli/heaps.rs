//! Heap profiles in traces for Perfetto: they show what was requested, with the totals of `peak`.

use crate::support::protobuf::Fields;
use crate::support::{fixture, memviz};
use std::collections::BTreeMap;
use std::fs;
use tempfile::TempDir;

/// The heap profiles of a trace: bytes by name, and the total number of frames in their stacks.
fn heaps(args: &[&str]) -> (BTreeMap<String, u64>, usize) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.perfetto-trace").into_os_string().into_string().unwrap();
    memviz(&[&["export", "-q", "-o", &path], args].concat()).expect(0);
    let (mut heaps, mut frames) = (BTreeMap::new(), 0);
    for packet in Fields::read(&fs::read(&path).unwrap()).messages(1) {
        for names in packet.messages(12) {
            frames += names.messages(7).map(|stack| stack.numbers(2).count()).sum::<usize>();
        }
        for dump in packet.messages(37).flat_map(|profile| profile.messages(5).collect::<Vec<_>>()) {
            let name = dump.texts(11).next().unwrap();
            heaps.insert(name, dump.messages(2).map(|sample| sample.number(2)).sum());
        }
    }
    (heaps, frames)
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
