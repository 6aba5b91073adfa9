//! JSON read by several threads is what one thread reads, errors included.

use crate::support::read_unpacked;
use memviz::Recording;
use memviz::analysis::peak::PeakOptions;
use memviz::facts::grouping::GroupBy;
use memviz::input::ReadOptions;
use memviz::report::{Source, info, peak};
use std::io::{Cursor, Read};

/// Everything that is known about a trace, or why it cannot be read.
fn answer(bytes: &[u8], threads: usize, allow_truncated: bool) -> String {
    let mut options = ReadOptions::default();
    options.allow_truncated = allow_truncated;
    options.on_one_thread = threads == 1;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let recording = pool.install(|| Recording::read(Cursor::new(bytes.to_vec()), &options));
    let recording = match recording {
        Ok(recording) => recording,
        Err(error) => return error.to_string(),
    };
    let source = Source { path: "a file", recording: &recording };
    let options = PeakOptions::default().by(GroupBy::Stack);
    let (peak, info) = (recording.peak(&options).unwrap(), recording.info(&[]).unwrap());
    let (peak, info) = (peak::json::peak(source, &peak), info::json::Info::of(source, &info));
    format!("{}\n{}", serde_json::to_string(&peak).unwrap(), serde_json::to_string(&info).unwrap())
}

/// A trace of some megabytes, in the layout of PyTorch.
fn large_trace() -> String {
    let bytes = read_unpacked("fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz");
    let text = String::from_utf8(bytes).unwrap();
    let start = text.find('[').map(|_| text.find("\"traceEvents\"").unwrap()).unwrap();
    let start = start + text[start..].find('[').unwrap() + 1;
    let end = text.rfind(']').unwrap();
    let events = &text[start..end];
    let copies = 6_000_000 / events.len() + 1;
    format!("{}{}{}", &text[..start], vec![events; copies].join(","), &text[end..])
}

#[test]
fn answers_do_not_depend_on_threads() {
    let trace = large_trace();
    let middle = trace.len() / 2 + trace[trace.len() / 2..].find("\"ph\": \"X\"").unwrap();
    let odd = |text: &str| format!("{}{text}{}", &trace[..middle], &trace[middle..]);
    let variants = [
        ("as it is", trace.clone()),
        ("with lines that look like events", odd(&format!("\"x\": [{}1],", "{},\n  {},\n".repeat(200_000)))),
        ("with an event that is wrong", odd("\"ph\": \"X\", \"cat\": \"cpu_op\", \"ts\": {}, ")),
        ("with something that is no event", odd("}, 7, {")),
        ("with two lists", trace.replace("\"traceEvents\"", "\"traceEvents\": [], \"traceEvents\"")),
        ("with the end of the list in its midst", odd("}], \"x\": [{")),
        ("on a single line", trace.replace('\n', " ")),
        ("cut off", trace[..middle].to_owned()),
        ("cut off behind a comma", trace[..trace[..middle].rfind(",\n").unwrap() + 2].to_owned()),
    ];
    for (what, text) in &variants {
        for allow_truncated in [false, true] {
            let alone = answer(text.as_bytes(), 1, allow_truncated);
            for threads in [2, 3, 8] {
                assert!(answer(text.as_bytes(), threads, allow_truncated) == alone, "{what}: {threads} threads differ");
            }
        }
    }
    assert!(answer(variants[0].1.as_bytes(), 2, false).len() > 10_000, "the trace is read");
}

/// This many bytes of white space after a start.
fn blanks(begin: &str, count: u64) -> impl Read + Send + 'static {
    Cursor::new(begin.as_bytes().to_vec()).chain(std::io::repeat(b' ').take(count))
}

#[test]
fn white_space_without_an_end_is_an_item_that_is_too_long() {
    for begin in ["{", "[", "[{", "{\"traceEvents\": [", "{\"traceEvents\": [{\"ph\": \"X\"},\n"] {
        let error = Recording::read(blanks(begin, 1 << 30), &ReadOptions::default()).map(|recording| recording.bytes);
        let error = error.expect_err("too long").to_string();
        assert!(error.contains("longer than the limit"), "{begin}: {error}");
    }
}
