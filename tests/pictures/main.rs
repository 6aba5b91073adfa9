//! Pictures: what they show is true, they are safe and small, and a browser draws them.
#![cfg(feature = "cli")]

#[path = "../support/mod.rs"]
mod support;

mod browser;
mod synthetic;

use memviz::Recording;
use memviz::analysis::checkpoint::CurveOptions;
use memviz::analysis::{CheckpointOptions, DeviceTimeline, FlameOptions, GroupBy, PeakOptions, TimelineOptions, XAxis};
use memviz::input::ReadOptions;
use memviz::replay::{Metric, Track};
use memviz::report::flamegraph::folded;
use memviz::report::fragmentation::BlockColor;
use memviz::report::page::Page;
use memviz::report::{Source, checkpoint, flamegraph, fragmentation, plot_columns, timeline};
use rayon::prelude::*;
use roxmltree::Document;
use std::collections::BTreeMap;
use support::{Case, assert_none, cases, fixture, names};

/// Bytes that no picture exceeds.
const MAX_BYTES: usize = 500_000;
/// Bands of a timeline.
const TOP: usize = 10;

/// Every kind of picture of a recording, by name.
fn pictures(recording: &Recording) -> Vec<(&'static str, String)> {
    let source = Source { path: "snapshot.pickle", recording };
    let mut out = Vec::new();
    let mut text = |name, write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        out.push((name, String::from_utf8(bytes).unwrap()));
    };
    for (name, axis) in [("timeline", XAxis::Time), ("timeline by entry", XAxis::Entry)] {
        let report = recording.timeline(&timeline_options(recording, axis)).unwrap();
        text(name, &|out| timeline::draw(source, &report).write(out).unwrap());
    }
    let flame = recording.flame(&FlameOptions::default()).unwrap();
    text("flame graph", &|out| flamegraph::draw(source, &flame).write(out).unwrap());
    let map = recording.segment_map(&PeakOptions::default()).unwrap();
    for (name, color) in [("segments by state", BlockColor::State), ("segments by site", BlockColor::Group(TOP))] {
        text(name, &|out| fragmentation::draw(source, &map, color).write(out).unwrap());
    }
    let curves = CurveOptions::default().axis(XAxis::Entry).columns(plot_columns(recording.histories.len()));
    let options = CheckpointOptions::default().curves(Some(curves));
    let report = recording.checkpoint(&options).unwrap();
    text("checkpoint", &|out| checkpoint::draw(source, &report).write(out).unwrap());
    let overview = recording.overview(&timeline_options(recording, XAxis::Time)).unwrap();
    let page = Page { source, overview: &overview };
    text("report", &|out| page.svg(out).unwrap());
    out
}

fn timeline_options(recording: &Recording, axis: XAxis) -> TimelineOptions {
    let peak = PeakOptions::default().top(Some(TOP));
    TimelineOptions::default().peak(peak).axis(axis).columns(plot_columns(recording.histories.len())).inactive(false)
}

fn page(recording: &Recording) -> [String; 2] {
    let overview = recording.overview(&timeline_options(recording, XAxis::Time)).unwrap();
    let page = Page { source: Source { path: "snapshot.pickle", recording }, overview: &overview };
    let (mut markdown, mut html) = (Vec::new(), Vec::new());
    page.markdown(&mut markdown).unwrap();
    page.html(&mut html).unwrap();
    [markdown, html].map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn every_picture_is_safe_and_small() {
    let mut problems = flaws_of(&cases(support::FIXTURES));
    for (name, recording) in synthetic::all() {
        problems.extend(flaws(name, &recording));
    }
    assert_none(&problems);
}

#[test]
fn pictures_of_many_devices_are_small() {
    let one = support::open(&fixture("gpt_train"));
    let mut problems = Vec::new();
    for count in [8, 64] {
        let recording = synthetic::on_devices(&one, count);
        assert_eq!(recording.anomalies(), 0);
        problems.extend(flaws(&format!("{count} devices"), &recording));
        let [markdown, html] = page(&recording);
        // What one comment on GitHub takes.
        assert!(markdown.len() < 65_536, "{count} devices: {} bytes of Markdown", markdown.len());
        assert!(html.len() < 2 * MAX_BYTES, "{count} devices: {} bytes of HTML", html.len());
    }
    assert_none(&problems);
}

/// Frames are cut at a number, but never all of them, and none without its callers.
#[test]
fn equally_wide_frames_are_drawn() {
    let recording = synthetic::on_devices(&synthetic::equal_stacks(1000), 8);
    let flame = recording.flame(&FlameOptions::default()).unwrap();
    let mut svg = Vec::new();
    flamegraph::draw(Source { path: "snapshot.pickle", recording: &recording }, &flame).write(&mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    let frames = Document::parse(&svg).unwrap().descendants().filter(|node| node.has_attribute("data-bytes")).count();
    assert!(frames > 400, "only {frames} frames");
}

/// A segment without a hole shows none, however narrow its blocks are.
#[test]
fn full_segments_look_full() {
    let recording = synthetic::packed();
    let map = recording.segment_map(&PeakOptions::default()).unwrap();
    let mut svg = Vec::new();
    let source = Source { path: "snapshot.pickle", recording: &recording };
    fragmentation::draw(source, &map, BlockColor::State).write(&mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    let document = Document::parse(&svg).unwrap();
    let rectangles = document.descendants().filter(|node| node.has_tag_name("rect"));
    let solid = rectangles.filter(|node| node.attribute("fill-opacity") == Some("1"));
    let painted: f64 = solid.map(|node| node.attribute("width").unwrap().parse::<f64>().unwrap()).sum();
    assert!(painted > 700.0, "{painted} of 740 pixels are painted");
}

#[test]
fn pictures_of_broken_recordings_are_safe_and_small() {
    let mut problems = Vec::new();
    let mut read = 0;
    for name in names(support::MALFORMED) {
        let path = format!("{}/{name}", support::MALFORMED);
        let mut options = ReadOptions::default();
        options.allow_truncated = true;
        if let Ok(recording) = Recording::open(path.as_ref(), &options) {
            read += 1;
            problems.extend(flaws(&path, &recording));
        }
    }
    assert_none(&problems);
    assert!(read >= 10, "only {read} of the broken recordings could be read in part");
}

#[test]
fn pictures_of_the_corpus_are_safe_and_small() {
    let Some(cases) = support::corpus_cases() else { return };
    assert_none(&flaws_of(&cases));
}

fn flaws_of(cases: &[Case]) -> Vec<String> {
    cases.par_iter().flat_map_iter(|case| flaws(&case.path, &support::open(&case.path))).collect()
}

fn flaws(name: &str, recording: &Recording) -> Vec<String> {
    let flaws = pictures(recording).into_iter().filter_map(|(kind, svg)| {
        let flaw = flaw(&svg)?;
        Some(format!("{name}: {kind}: {flaw}"))
    });
    flaws.collect()
}

/// What is wrong with a picture, if anything.
fn flaw(svg: &str) -> Option<String> {
    const ELEMENTS: [&str; 11] =
        ["svg", "style", "g", "title", "path", "rect", "text", "line", "circle", "polyline", "polygon"];
    if svg.len() > MAX_BYTES {
        return Some(format!("{} bytes", svg.len()));
    }
    let document = match Document::parse(svg) {
        Ok(document) => document,
        Err(error) => return Some(error.to_string()),
    };
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        if !ELEMENTS.contains(&name) {
            return Some(format!("<{name}>"));
        }
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            if name.starts_with("on") || name.contains("href") || name == "style" || value.contains("url(") {
                return Some(format!("{name}={value:?}"));
            }
            let is_number = !matches!(name, "data-label" | "fill" | "stroke" | "d" | "font-family" | "transform");
            if is_number && (value.contains("NaN") || value.contains("inf")) {
                return Some(format!("{name}={value:?}"));
            }
        }
        if name == "style" && node.text().is_some_and(|style| style.contains("@import") || style.contains("url")) {
            return Some("a style sheet with references".to_owned());
        }
        let text = node.text().unwrap_or_default();
        let is_bad = |next: char| {
            (next.is_control() && next != '\n') || matches!(next, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        if text.contains(is_bad) {
            return Some(format!("text {text:?}"));
        }
    }
    None
}

#[test]
fn pages_take_no_markup_from_names() {
    let recordings = synthetic::all();
    let (_, recording) = recordings.iter().find(|(name, _)| *name == "hostile labels").unwrap();
    let [markdown, html] = page(recording);
    let parser = pulldown_cmark::Parser::new_ext(&markdown, pulldown_cmark::Options::ENABLE_TABLES);
    let mut rendered = String::new();
    pulldown_cmark::html::push_html(&mut rendered, parser);
    for (page, html) in [("HTML", html.as_str()), ("Markdown", rendered.as_str())] {
        for dangerous in ["<script", "<a ", "<!--"] {
            assert!(!html.contains(dangerous), "{dangerous} in the {page}");
        }
        assert!(html.contains("&lt;script&gt;"), "the label is not there at all in the {page}");
    }
    assert!(!markdown.contains(['\u{202e}', '\u{0}', '\u{1b}']) && !html.contains(['\u{202e}', '\u{0}', '\u{1b}']));
}

#[test]
fn bands_at_the_peak_are_the_rows_of_peak() {
    let mut problems = Vec::new();
    for case in cases(support::FIXTURES) {
        let recording = support::open(&case.path);
        let peaks = recording.peak(&PeakOptions::default()).unwrap();
        let report = recording.timeline(&timeline_options(&recording, XAxis::Time)).unwrap();
        let source = Source { path: "snapshot.pickle", recording: &recording };
        let mut svg = Vec::new();
        timeline::draw(source, &report).write(&mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        let document = Document::parse(&svg).unwrap();
        let bands = document.descendants().filter(|node| node.has_tag_name("path") && node.has_attribute("data-label"));
        let mut drawn = bands.map(|node| {
            let number = node.attribute("data-peak-bytes").unwrap().parse::<u64>().unwrap();
            (node.attribute("data-label").unwrap().to_owned(), number)
        });
        for (peak, timeline) in peaks.devices.iter().zip(&report.devices) {
            let drawn: BTreeMap<String, u64> = drawn.by_ref().take(timeline.bands.len()).collect();
            let sum: u64 = drawn.values().sum();
            if i64::try_from(sum) != Ok(peak.at.allocated) {
                problems.push(format!("{}: bands sum to {sum}, the peak is {}", case.path, peak.at.allocated));
            }
            let rows: BTreeMap<&str, u64> =
                peak.attribution.rows.iter().map(|row| (row.label.as_str(), row.bytes)).collect();
            let own = |label: &str| rows.get(label).copied().unwrap_or(0);
            for (label, &bytes) in drawn.iter().filter(|(label, _)| *label != "(other)") {
                if bytes != own(label) {
                    problems.push(format!("{}: {label} is {bytes}, not {}", case.path, own(label)));
                }
            }
            for row in peak.attribution.rows.iter().take(TOP) {
                if !drawn.contains_key(&row.label) {
                    problems.push(format!("{}: no band for {}", case.path, row.label));
                }
            }
        }
        assert_eq!(drawn.next(), None, "{}", case.path);
    }
    assert_none(&problems);
}

/// The dot on the peak lies on the highest point of the highest band.
#[test]
fn the_highest_point_drawn_is_the_peak() {
    for name in ["gpt_train", "oom", "fragmented", "resnet_train", "expandable_live", "tiny"] {
        let recording = support::open(&fixture(name));
        for axis in [XAxis::Time, XAxis::Entry] {
            let report = recording.timeline(&timeline_options(&recording, axis)).unwrap();
            let mut svg = Vec::new();
            let source = Source { path: "snapshot.pickle", recording: &recording };
            timeline::draw(source, &report).write(&mut svg).unwrap();
            let svg = String::from_utf8(svg).unwrap();
            let document = Document::parse(&svg).unwrap();
            let top = document.descendants().find(|node| node.has_attribute("data-label")).unwrap();
            let highest = heights(top.attribute("d").unwrap()).into_iter().fold(f64::MAX, f64::min);
            let dot = document.descendants().find(|node| node.has_tag_name("circle")).unwrap();
            let y: f64 = dot.attribute("cy").unwrap().parse().unwrap();
            assert!((y - highest).abs() < 0.15, "{name}: the dot is at {y}, the curve reaches {highest}");
            assert_eq!(dot.attribute("data-peak-bytes").unwrap(), report.devices[0].peak.at.allocated.to_string());
        }
    }
}

/// The y coordinates that a path of `M`, `h`, `v`, `H`, `V` and `z` goes through.
fn heights(path: &str) -> Vec<f64> {
    let mut y = 0.0;
    let mut heights = Vec::new();
    let commands = path.split_inclusive(|next: char| next.is_ascii_alphabetic());
    let mut command = ' ';
    for part in commands {
        let (numbers, next) = part.split_at(part.len() - 1);
        let number = |at: usize| numbers.split(' ').nth(at).and_then(|text| text.parse::<f64>().ok());
        match command {
            'M' => y = number(1).unwrap(),
            'v' => {
                y += number(0).unwrap();
                heights.push(y);
            }
            _ => {}
        }
        command = next.chars().next().unwrap();
    }
    heights
}

/// Each sample is the true composition of memory at an instant, no instant of its stretch is higher, and together they
/// reach the maximum.
#[test]
fn samples_lose_no_peak() {
    let names = ["gpt_train", "oom", "multi_gpu", "side_stream", "gpt_late", "private_pool", "fragmented_nocrash"];
    for name in names {
        let recording = support::open(&fixture(name));
        for (axis, columns) in [(XAxis::Time, 61), (XAxis::Entry, 7), (XAxis::Entry, 5000)] {
            for (metric, by) in [
                (Metric::Allocated, GroupBy::Site),
                (Metric::Active, GroupBy::Stream),
                (Metric::Requested, GroupBy::File),
                (Metric::Reserved, GroupBy::Pool),
            ] {
                let peak = PeakOptions::default().top(Some(3)).metric(metric).by(by);
                let report = recording
                    .timeline(&TimelineOptions::default().peak(peak).axis(axis).columns(columns).inactive(false))
                    .unwrap();
                for device in &report.devices {
                    let history = recording.history(device.peak.device).unwrap();
                    let what = format!("{name} device {} {} in {columns}", device.peak.device, metric.name());
                    sums(device, metric, &what);
                    let highest = device.columns.iter().map(|column| column.counters.get(metric)).max();
                    assert_eq!(highest, Some(history.maxima[metric as usize].bytes), "{what}");
                    let reserved = device.columns.iter().map(|column| column.max_reserved).max();
                    assert_eq!(reserved, Some(history.maxima[Metric::Reserved as usize].bytes), "{what}");
                    if axis == XAxis::Entry {
                        nothing_between_is_higher(&recording, device, metric, &what);
                    }
                }
            }
        }
    }
}

/// With the band of what is inactive, all bands of the active bytes sum to what is reserved.
#[test]
fn active_and_inactive_are_reserved() {
    let recording = support::open(&fixture("side_stream"));
    let peak = PeakOptions::default().metric(Metric::Active).top(Some(2));
    let options = TimelineOptions::default().peak(peak).axis(XAxis::Entry).columns(300).inactive(true);
    for device in recording.timeline(&options).unwrap().devices {
        assert_eq!(device.bands[0].label, memviz::analysis::timeline::INACTIVE);
        for (index, column) in device.columns.iter().enumerate() {
            let sum: u64 = device.bands.iter().map(|band| band.bytes[index]).sum();
            assert_eq!(i64::try_from(sum), Ok(column.counters.reserved), "column {index}");
        }
    }
}

fn sums(device: &DeviceTimeline, metric: Metric, what: &str) {
    for (index, column) in device.columns.iter().enumerate() {
        let sum: u64 = device.bands.iter().map(|band| band.bytes[index]).sum();
        assert_eq!(i64::try_from(sum), Ok(column.counters.get(metric)), "{what}, column {index}");
    }
}

fn nothing_between_is_higher(recording: &Recording, device: &DeviceTimeline, metric: Metric, what: &str) {
    let history = recording.history(device.peak.device).unwrap();
    let columns = device.columns.len();
    let last = history.entries() as usize;
    Track::new(&recording.snapshot, history).walk(|instant, counters| {
        let column = instant as usize * columns / (last + 1);
        let shown = device.columns[column].counters.get(metric);
        assert!(counters.get(metric) <= shown, "{what}: instant {instant} is higher than its column");
    });
}

#[test]
fn pictures_are_the_same_at_any_number_of_threads() {
    let path = fixture("multi_gpu");
    for command in [
        &["timeline"] as &[&str],
        &["flamegraph"],
        &["fragmentation", "--format", "svg"],
        &["report", "--format", "svg"],
    ] {
        let runs = ["1", "2", "8"].map(|threads| {
            let run = support::memviz(&[command, &[path.as_str(), "-o", "-", "--threads", threads]].concat());
            run.expect(0).stdout.clone()
        });
        assert!(runs.iter().all(|run| *run == runs[0] && run.len() > 1000), "{command:?}");
    }
}

#[test]
fn folded_stacks_sum_to_the_peak() {
    for case in cases(support::FIXTURES) {
        let recording = support::open(&case.path);
        for all_frames in [false, true] {
            let report = recording.flame(&FlameOptions::default().all_frames(all_frames)).unwrap();
            let mut text = Vec::new();
            folded::write(&report, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let mut sum = 0;
            for line in text.lines() {
                let (stack, bytes) = line.rsplit_once(' ').unwrap();
                assert!(!stack.is_empty() && stack.split(';').all(|frame| !frame.is_empty()), "{line}");
                sum += bytes.parse::<i64>().unwrap();
            }
            let peaks: i64 = report.devices.iter().map(|device| device.peak.at.allocated).sum();
            assert_eq!(sum, peaks, "{}", case.path);
        }
    }
}

#[test]
fn bad_requests_are_refused_in_one_line() {
    let path = fixture("tiny");
    let run = |args: &[&str]| support::memviz(&[args, &[path.as_str()]].concat());
    run(&["timeline", "--by", "function"]).expect_error("cannot be stacked");
    run(&["fragmentation", "--by", "function", "--format", "svg"]).expect_error("overlap");
    run(&["report"]).expect_error("expected -o with a name in .svg, .md or .html");
    run(&["report", "-o", "report.txt"]).expect_error("found report.txt");
    run(&["timeline", "--from", "oom"]).expect_error("no oom");
}
