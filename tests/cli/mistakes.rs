//! Mistakes of users: each results in one line, exit code 2, and advice.

use crate::support::{fixture, memviz};
use std::fs;
use std::io::Write;
use tempfile::TempDir;

const TRACE: &str = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";

/// Files that are not recordings: name, contents, and what the error must say.
fn files() -> Vec<(&'static str, Vec<u8>, [&'static str; 2])> {
    let dump = "torch.cuda.memory._dump_snapshot";
    let archive = || {
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for name in ["model/data.pkl", "model/data/0", "model/version"] {
            archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            archive.write_all(b"3").unwrap();
        }
        archive.finish().unwrap().into_inner()
    };
    let state = serde_json::json!({"epoch": 3, "model": {"weight": [1, 2]}});
    let state = serde_pickle::to_vec(&state, serde_pickle::SerOptions::new()).unwrap();
    let trace = br#"{"traceEvents": [{"ph": "X", "name": "aten::mm", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}"#;
    vec![
        (
            "train.log",
            b"Traceback (most recent call last):\n  File \"x.py\"\n".to_vec(),
            ["a text file, such as a log", dump],
        ),
        ("loss.csv", b"step,loss\n1,2.5\n".to_vec(), ["a table", dump]),
        ("train.py", b"import torch\n".to_vec(), ["a text file", dump]),
        ("timeline.svg", b"<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>".to_vec(), ["a picture (SVG)", dump]),
        ("page.html", b"<html><body></body></html>".to_vec(), ["without a recording", "trace_plot"]),
        ("model.pt", archive(), ["torch.save", dump]),
        ("state.pkl", state, ["not a memory snapshot", dump]),
        ("run.nsys-rep", b"NVIDIA Tegra Profiler Report 2024".to_vec(), ["Nsight Systems", "nsys export"]),
        ("run.sqlite", b"SQLite format 3\0....".to_vec(), ["an SQLite database", "memviz nsys"]),
        ("lfs.pickle", b"version https://git-lfs.github.com/spec/v1\n".to_vec(), ["a Git LFS pointer", "git lfs pull"]),
        ("model.safetensors", b"\x20\0\0\0\0\0\0\0{\"w\":{}}".to_vec(), ["safetensors", dump]),
        ("trace.json", trace.to_vec(), ["without memory events", "profile_memory=True"]),
        ("empty.pickle", Vec::new(), ["empty", ""]),
    ]
}

#[test]
fn errors_name_the_format_of_other_files_and_a_next_step() {
    let folder = TempDir::new().unwrap();
    for (name, contents, parts) in files() {
        let path = folder.path().join(name).into_os_string().into_string().unwrap();
        fs::write(&path, contents).unwrap();
        let run = memviz(&["peak", &path]);
        for part in parts {
            run.expect_error(part);
        }
    }
}

#[test]
fn usual_mistakes_are_one_line_that_names_the_fix() {
    let tiny = fixture("tiny");
    let tiny = tiny.as_str();
    let folder = TempDir::new().unwrap();
    let folder = folder.path().to_str().unwrap();
    for (args, fix) in [
        (&["peek", tiny] as &[&str], "'peak'"),
        (&["peak"], "<INPUT>"),
        (&["--source", ".", tiny], "a command or FILE before --source"),
        (&["peak", "no/such.pickle"], "no/such.pickle: No such file"),
        (&["peak", folder], "memviz ranks"),
        (&["peak", tiny, tiny], "run memviz diff"),
        (&["peak", tiny, "--by", "sites"], "'site'"),
        (&["peak", tiny, "--topp", "3"], "'--top'"),
        (&["peak", tiny, "--tpo", "3"], "'--top'"),
        (&["peak", tiny, "--top", "few"], "'--top <N>': expected a whole number"),
        (&["peak", tiny, "--threads", "0"], "expected a whole number from 1 to 256"),
        (&["fragmentation", tiny, "--over-time", "--at", "oom"], "cannot be used with '--at <WHEN>'"),
        (&["peak", tiny, "--at", "time:3600"], "the recording ends at"),
        (&["fit", tiny, tiny], "more than once"),
        (&["simulate", tiny, "--checkpoint", "nothing"], "checkpoint:nothing"),
        (&["peak", tiny, "--metric", "alloc"], "'allocated'"),
        (&["peak", tiny, "--format", "yaml"], "markdown"),
        (&["peak", tiny, "--device", "7"], "recorded devices (0)"),
        (&["peak", tiny, "--device", "cuda:0"], "a device number or all"),
        (&["peak", tiny, "--at", "5"], "entry:5"),
        (&["peak", tiny, "--from", "5s"], "time:5s"),
        (&["peak", tiny, "--at", "oom"], "no oom entry"),
        (
            &["peak", tiny, "--include", "("],
            "'--include <REGEX>': expected a regular expression: found open group without closing",
        ),
        (&["diff", tiny, tiny, "--exclude", "["], "'--exclude <REGEX>': expected a regular expression"),
        (&["fit", tiny, "--conf", "max_split_size_mb:64"], "'--alloc-conf'"),
        (&["simulate", tiny, "--conf", "max_split_size_mb:64"], "'--alloc-conf'"),
        (
            &["fit", tiny, "--gpu", "a100"],
            "expected one of a100-40gb, a100-80gb, or the path of a profiler trace, found",
        ),
        (&["fit", tiny, "--gpu", "tpu"], "h100-80gb, h200"),
        (&["peak", tiny, "-o", "no/such/peak.txt"], "no/such/peak.txt: the folder no/such does not exist"),
        (&["diff", tiny], "<NEW>"),
        (&["report", tiny, "-o", "report.pdf"], ".svg, .md or .html"),
        (&["flamegraph", tiny, "--format", "json"], "folded"),
        (&["check", tiny], "--max-peak 40GiB"),
        (&["check", tiny, "--max-peak", "40"], "40GiB or 40MiB"),
        (&["check", tiny, "--max-reserved", "512"], "512MiB"),
        (&["check", tiny, "--max-peak", "40G"], "40GiB"),
        (&["check", tiny, "--max-peak", "90%"], "capacity"),
        (&["check", tiny, "--max-fragmentation", "0.2"], "a percentage such as 30%"),
        (&["check", tiny, "--max-site", "attention"], "REGEX=SIZE"),
        (&["simulate", tiny, "--alloc-conf", "expandable_segment:True"], "\"expandable_segment\""),
        (&["simulate", tiny, "--alloc-conf", "expandable_segments:true"], "True or False for \"expandable_segments\""),
        (&["simulate", tiny, "--alloc-conf", "max_split_size_mb:10"], "of at least 20 for \"max_split_size_mb\""),
        (&["simulate", tiny, "--alloc-conf", "max_split_size_mb:17592186044416"], "\"max_split_size_mb\""),
        (&["simulate", tiny, "--alloc-conf", "roundup_power2_divisions:3"], "powers of two"),
        (&["simulate", tiny, "--alloc-conf", "roundup_power2_divisions:[256:3]"], "powers of two"),
        (&["simulate", tiny, "--alloc-conf", "garbage_collection_threshold:1.5"], "between 0 and 1"),
        (&["simulate", tiny, "--alloc-conf", "large_segment_size_mb:10"], "above 10"),
        (&["simulate", tiny, "--alloc-conf", "per_process_memory_fraction:2"], "from 0 to 1"),
        (&["simulate", tiny, "--alloc-conf", "backend:other"], "native or cudaMallocAsync"),
        (&["simulate", tiny, "--alloc-conf", "expandable_segments"], "a value after a colon"),
        (&["simulate", tiny, "--capacity", "80"], "80GiB"),
        (&["leaks", tiny, "--steps", "Step"], "an annotation that matches \"Step\""),
        (&["peak", tiny, "-o", "peak.png"], ".txt, .json, .csv or .md"),
        (&["timeline", tiny, "-o", "timeline.md"], ".svg"),
        (&["peak", tiny, "--format", "json", "-o", "peak.csv"], ".json"),
        (&["peak", tiny, "--open"], "--open needs -o with a file name ending in .txt"),
        (&["peak", tiny, "--from", "step_3"], "annotation:step_3"),
        (&["simulate", tiny, "--capacity", "24"], "24GiB"),
        (&["leaks", tiny, "--capacity", "80"], "80GiB"),
        (&["check", tiny, "--max-leak", "64"], "64MiB"),
        (&["check", tiny, "--max-site", "attention=2"], "2GiB"),
        (&["diff", tiny, tiny, "--fail-on-growth", "64"], "64MiB"),
        (&["peak", tiny, "--by", "annotation"], "record_function"),
        (&["peak", &fixture("no_history"), "--by", "function"], "context=\"all\""),
        (&["peak", tiny, "--by", "operator"], "stacks=\"all\""),
        (&["peak", tiny, "--by", "nn-module"], "with_stack=True"),
        (&["timeline", tiny, "--by", "phase"], "forward, backward or optimizer"),
        (&["peak", TRACE, "--by", "stream"], "a snapshot (other files have no streams)"),
        (&["timelin", tiny], "'timeline'"),
        #[cfg(not(feature = "png"))]
        (&["timeline", tiny, "-o", "timeline.png"], "--features png"),
    ] {
        memviz(args).expect_error(fix);
    }
}
