//! `memviz excerpt`: a part of a recording is a recording, with the figures of the whole.

use crate::support::{fixture, memviz};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

#[test]
fn a_part_has_the_figures_of_the_whole() {
    let folder = TempDir::new().unwrap();
    let part = folder.path().join("part.pickle").into_os_string().into_string().unwrap();
    let windows: [(&str, &[&str]); 6] = [
        ("gpt_train", &["--from", "entry:2000", "--to", "entry:2939"]),
        ("gpt_train", &["--from", "step:2", "--to", "step:2"]),
        ("multi_gpu", &["--device", "1"]),
        ("expandable", &["--from", "entry:99", "--to", "end"]),
        ("oom", &["--from", "entry:50", "--to", "oom"]),
        ("side_stream", &["--from", "time:0s", "--to", "entry:700"]),
    ];
    for (name, window) in windows {
        let whole = fixture(name);
        memviz(&[&["excerpt", "-q", "--force", "-o", &part, &whole], window].concat()).expect(0);
        // PyTorch's page reads protocols 2 to 4.
        assert_eq!(fs::read(&part).unwrap()[..2], [0x80, 4], "{name}");
        for metric in ["allocated", "active", "requested", "reserved"] {
            let devices = |path: &str, window: &[&str]| {
                let args = ["peak", "--format", "json", "--metric", metric, path];
                memviz(&[&args, window].concat()).json()["devices"].as_array().unwrap().clone()
            };
            let (of_whole, of_part) = (devices(&whole, window), devices(&part, &[]));
            assert_eq!(of_whole.len(), of_part.len());
            for (of_whole, of_part) in of_whole.iter().zip(&of_part) {
                for key in ["maxima", "end"] {
                    assert_eq!(of_whole[key], of_part[key], "{name} {metric} {key}");
                }
                let time = |device: &Value| device["peak"]["time_us"].clone();
                assert_eq!(time(of_whole), time(of_part), "{name}");
                assert_eq!(of_whole["attribution"]["total_bytes"], of_part["attribution"]["total_bytes"], "{name}");
            }
        }
    }
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let trace = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";
    let tiny = fixture("tiny");
    for (args, part) in [
        (&["excerpt", trace, "-o", "part.pickle"] as &[&str], "expected a CUDA memory snapshot"),
        (&["excerpt", &tiny, "--from", "end", "--to", "start", "-o", "part.pickle"], "expected --from before --to"),
        (&["excerpt", &tiny, "--from", "entry:99", "-o", "part.pickle"], "has no entry 99"),
        (&["excerpt", &tiny, "-o", "part.json"], "found part.json"),
    ] {
        memviz(args).expect_error(part);
    }
    assert!(!fs::exists("part.pickle").unwrap());
}
