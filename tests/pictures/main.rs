//! Pictures: they are correct, safe and small, and a browser draws them.
#![cfg(feature = "cli")]

#[path = "../support/mod.rs"]
mod support;

mod browser;
mod speedscope;
mod synthetic;

use memviz::Recording;
use memviz::analysis::checkpoint::CheckpointOptions;
use memviz::analysis::checkpoint::CurveOptions;
use memviz::analysis::flame::FlameOptions;
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::timeline::Band;
use memviz::analysis::timeline::{DeviceTimeline, TimelineOptions, XAxis};
use memviz::facts::grouping::GroupBy;
use memviz::facts::time::when::When;
use memviz::facts::training::Phase;
use memviz::input::ReadOptions;
use memviz::replay::{Metric, Track};
use memviz::report::flamegraph::folded;
use memviz::report::page::Page;
use memviz::report::{Source, checkpoint, flamegraph, fragmentation, plot_columns, timeline};
use rayon::prelude::*;
use roxmltree::Document;
use std::collections::BTreeMap;
use support::{Case, assert_none, cases, fixture, names};

/// Bytes that no picture exceeds.
const MAX_BYTES: usize = 500_000;
/// Text is legible in the column of a GitHub issue, which is as wide as a picture: nothing is scaled down.
const SMALLEST_TEXT: f64 = 10.0;
const COLUMN: &str = "900";
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
    text("segments", &|out| fragmentation::draw(source, &map, TOP).write(out).unwrap());
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

/// The number of frames is limited, but some are always drawn, and none without its callers.
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

/// The verdict and what to do come first, and segments appear only if free ranges matter.
#[test]
fn a_report_says_first_what_matters() {
    let texts = |name: &str, args: &[&str]| {
        let path = fixture(name);
        let run = support::memviz(&[&["report"][..], &[path.as_str(), "--format", "svg", "-o", "-"], args].concat());
        let svg = run.expect(0).stdout.clone();
        let document = Document::parse(&svg).unwrap();
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        texts.filter_map(|node| node.text().map(|text| text.trim().to_owned())).collect::<Vec<_>>()
    };
    let place = |texts: &[String], start: &str| texts.iter().position(|text| text.starts_with(start));
    let oom = texts("oom", &[]);
    let places =
        ["Out of memory in the backward pass", "What to do", "Memory over time", "Device 0: what holds the memory"]
            .map(|start| place(&oom, start).unwrap());
    assert!(places.is_sorted() && places[0] < 3, "{places:?}");
    let timelines = oom.iter().filter(|text| text.starts_with("Memory over time")).count();
    assert_eq!(timelines, 1, "a second timeline");
    assert_eq!(place(&oom, "Segments and their free blocks"), None);
    let fragmented = texts("fragmented", &[]);
    assert!(place(&fragmented, "Segments and their free blocks").is_some());
    let leak = texts("leak", &[]);
    assert!(leak.iter().take(4).any(|text| text.contains("leaks")), "{:?}", &leak[..4]);
    // A part, another instant, fewer bands.
    let args = ["--from", "entry:1000", "--to", "entry:4000", "--at", "entry:1500", "--top", "2"];
    let part = texts("gpt_train", &args);
    assert!(part.iter().any(|text| text.contains("entry 1500 of 9107")));
    assert!(!part.iter().any(|text| text.starts_with("the whole recording")));
    assert!(part.len() < texts("gpt_train", &[]).len());
}

/// If no instant is requested, segments are those at the first failed request, or else at the instant with the most inactive
/// memory.
#[test]
fn segments_are_shown_where_holes_matter() {
    for (name, fails) in [("fragmented", true), ("oom", true), ("fragmented_nocrash", false), ("gpt_train", false)] {
        let recording = support::open(&fixture(name));
        let map = recording.segment_map(&PeakOptions::default()).unwrap().devices.remove(0);
        assert_eq!((map.failed.is_some(), map.is_most_inactive), (fails, !fails), "{name}");
        let mut most = i64::MIN;
        let history = recording.history(0).unwrap();
        Track::new(&recording.snapshot, history)
            .walk(|_, counters| most = most.max(counters.reserved - counters.active));
        let here = map.peak.at.reserved - map.peak.at.active;
        assert!(if fails { here <= most } else { here == most }, "{name}: {here} of {most}");
        let free: u64 = map.figures.iter().map(|figures| figures.inactive).sum();
        assert_eq!(i64::try_from(free), Ok(here), "{name}");
    }
}

#[test]
fn blocks_of_segments_are_named_by_category_and_site() {
    let recording = support::open(&fixture("oom"));
    let source = Source { path: "snapshot.pickle", recording: &recording };
    for (by, first) in [
        (GroupBy::Category, "activations\n"),
        (GroupBy::Site, "activations\n"),
        (GroupBy::Phase, "forward\nactivations\n"),
    ] {
        let map = recording.segment_map(&PeakOptions::default().by(by)).unwrap();
        let mut svg = Vec::new();
        fragmentation::draw(source, &map, TOP).write(&mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        let titles: Vec<&str> = svg.split("<title>").skip(1).filter_map(|rest| rest.split("</title>").next()).collect();
        let is_named = |title: &&str| title.starts_with(&format!("{first}minigpt.py:"));
        assert!(titles.iter().any(is_named), "{by:?}: {titles:?}");
        assert!(titles.iter().all(|title| title.lines().count() >= 3), "{by:?}: {titles:?}");
    }
}

/// Devices of one kind share a scale, unless one of them would be hardly visible.
#[test]
fn devices_share_a_scale_of_bytes() {
    let recording = support::open(&fixture("multi_gpu"));
    let source = Source { path: "snapshot.pickle", recording: &recording };
    let report = recording.timeline(&TimelineOptions::default()).unwrap();
    assert_eq!(report.devices.len(), 2);
    let mut svg = Vec::new();
    timeline::draw(source, &report).write(&mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    assert_eq!(svg.matches(">\n3 GiB\n<").count(), 2, "{svg}");
}

/// A segment without free memory shows none, however narrow its blocks are.
#[test]
fn full_segments_look_full() {
    let recording = synthetic::packed();
    let map = recording.segment_map(&PeakOptions::default().at(Some(When::Peak))).unwrap();
    let mut svg = Vec::new();
    let source = Source { path: "snapshot.pickle", recording: &recording };
    fragmentation::draw(source, &map, TOP).write(&mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    let document = Document::parse(&svg).unwrap();
    let rectangles = document.descendants().filter(|node| node.has_tag_name("rect"));
    let in_use = rectangles.filter(|node| node.attribute("fill-opacity") == Some("0.55"));
    let painted: f64 = in_use.map(|node| node.attribute("width").unwrap().parse::<f64>().unwrap()).sum();
    assert!((painted - 508.0).abs() < 1.0, "{painted} of 508 pixels are painted");
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
    if document.root_element().attribute("width") != Some(COLUMN) {
        return Some(format!("width {:?}", document.root_element().attribute("width")));
    }
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        if !ELEMENTS.contains(&name) {
            return Some(format!("<{name}>"));
        }
        let size = node.attribute("font-size").map(|size| size.parse::<f64>().unwrap_or(0.0));
        if size.is_some_and(|size| size < SMALLEST_TEXT) {
            return Some(format!("text of {size:?} pixels"));
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
fn names_cannot_add_markup_to_pages() {
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

/// A band of a picture: its label, its category, and the bytes at the selected instant.
fn drawn_bands(svg: &str) -> Vec<(String, Option<String>, u64)> {
    let document = Document::parse(svg).unwrap();
    let bands = document.descendants().filter(|node| node.has_attribute("data-label"));
    let band = |node: roxmltree::Node<'_, '_>| {
        let bytes = node.attribute("data-bytes").unwrap().parse::<u64>().unwrap();
        (node.attribute("data-label").unwrap().to_owned(), node.attribute("data-category").map(str::to_owned), bytes)
    };
    bands.map(band).collect()
}

/// Bands of sites sum to the rows of categories, and those with one site to the rows of sites, at the first failed request or
/// at the peak.
#[test]
fn bands_are_the_rows_of_peak() {
    let mut problems = Vec::new();
    for case in cases(support::FIXTURES) {
        let recording = support::open(&case.path);
        let report = recording.timeline(&timeline_options(&recording, XAxis::Time)).unwrap();
        let source = Source { path: "snapshot.pickle", recording: &recording };
        let mut svg = Vec::new();
        timeline::draw(source, &report).write(&mut svg).unwrap();
        let mut drawn = drawn_bands(&String::from_utf8(svg).unwrap()).into_iter();
        for timeline in &report.devices {
            let at = timeline.peak.entry.map_or(When::Start, When::Entry);
            let rows = |by| {
                let devices = vec![timeline.peak.device];
                let options = PeakOptions::default().at(Some(at.clone())).by(by).devices(devices);
                let attribution = recording.peak(&options).unwrap().devices.remove(0).attribution;
                attribution.rows.into_iter().map(|row| (row.label, row.bytes)).collect::<BTreeMap<String, u64>>()
            };
            let mut found = [BTreeMap::new(), BTreeMap::new()];
            for (label, category, bytes) in drawn.by_ref().take(timeline.bands.len()) {
                *found[0].entry(category.unwrap()).or_insert(0) += bytes;
                *found[1].entry(label).or_insert(0) += bytes;
            }
            let [mut categories, mut sites] = found;
            categories.retain(|_, bytes| *bytes > 0);
            if categories != rows(GroupBy::Category) {
                problems.push(format!("{}: {categories:?} are not the rows by category", case.path));
            }
            let others = sites.remove("(other)").unwrap_or(0);
            let rows = rows(GroupBy::Site);
            let mut missing = 0;
            for (label, row) in &rows {
                match sites.get(label).copied().unwrap_or(0) {
                    bytes if bytes > *row => problems.push(format!("{}: {label} is {bytes} of {row}", case.path)),
                    bytes => missing += row - bytes,
                }
            }
            if missing != others {
                problems.push(format!("{}: {missing} bytes of sites are missing, others are {others}", case.path));
            }
        }
        assert_eq!(drawn.next(), None, "{}", case.path);
    }
    assert_none(&problems);
}

/// The rest is never the largest band if sites differ at all.
#[test]
fn the_rest_is_never_the_largest_band() {
    let mut problems = Vec::new();
    for case in cases(support::FIXTURES) {
        let report = support::open(&case.path);
        let report = report.timeline(&timeline_options(&report, XAxis::Time)).unwrap();
        for device in &report.devices {
            let area = |band: &&Band| band.bytes.iter().map(|&bytes| u128::from(bytes)).sum::<u128>();
            let (others, own): (Vec<&Band>, Vec<&Band>) = device.bands.iter().partition(|band| band.label == "(other)");
            let largest = |bands: &[&Band]| bands.iter().map(area).max().unwrap_or(0);
            if largest(&others) > largest(&own) {
                problems.push(format!("{} device {}", case.path, device.peak.device));
            }
        }
    }
    assert_none(&problems);
}

/// Parameters, gradients and optimizer states are below memory that changes.
#[test]
fn memory_that_stays_is_below() {
    let recording = support::open(&fixture("gpt_train"));
    let report = recording.timeline(&timeline_options(&recording, XAxis::Time)).unwrap();
    let from_the_bottom = report.devices[0].bands.iter().rev().map(|band| band.category.unwrap().name());
    let mut order: Vec<&str> = from_the_bottom.collect();
    order.dedup();
    let names = ["parameter", "gradient", "optimizer_state", "activation", "temporary"];
    let places: Vec<usize> = names.iter().map(|name| order.iter().position(|other| other == name).unwrap()).collect();
    assert!(places.is_sorted() && order.len() < 12, "{order:?}");
}

/// Elements of a picture with their meaning and color.
fn painted(svg: &str) -> Vec<((String, String), String)> {
    let document = Document::parse(svg).unwrap();
    let text = |node: &roxmltree::Node<'_, '_>, name: &str| node.attribute(name).unwrap_or_default().to_owned();
    let bands = document.descendants().filter(|node| node.has_attribute("data-label"));
    bands.map(|node| ((text(&node, "data-label"), text(&node, "data-category")), text(&node, "fill"))).collect()
}

/// Empty if the recording cannot be grouped like this.
fn timeline_picture(recording: &Recording, options: &TimelineOptions) -> Option<String> {
    let report = recording.timeline(options).ok()?;
    let mut svg = Vec::new();
    timeline::draw(Source { path: "snapshot.pickle", recording }, &report).write(&mut svg).unwrap();
    String::from_utf8(svg).ok()
}

#[test]
fn each_color_of_a_picture_means_one_thing() {
    let check = |case: &Case| {
        let recording = support::open(&case.path);
        let mut problems = Vec::new();
        for by in [GroupBy::Site, GroupBy::File, GroupBy::Category] {
            let options = timeline_options(&recording, XAxis::Time);
            let peak = options.peak.clone().by(by);
            let options = options.peak(peak);
            let mut means: BTreeMap<String, (String, String)> = BTreeMap::new();
            let Some(svg) = timeline_picture(&recording, &options) else { continue };
            for (meaning, color) in painted(&svg) {
                let known = means.entry(color.clone()).or_insert_with(|| meaning.clone());
                if *known != meaning {
                    problems.push(format!("{} by {}: {color} is {known:?} and {meaning:?}", case.path, by.name()));
                }
            }
        }
        problems
    };
    let problems: Vec<String> = cases(support::FIXTURES).par_iter().flat_map_iter(check).collect();
    assert_none(&problems);
}

/// Squares of a legend with the name after each.
fn legend(svg: &str) -> Vec<(String, String)> {
    let document = Document::parse(svg).unwrap();
    let is_square = |node: &roxmltree::Node<'_, '_>| {
        node.has_tag_name("rect") && ["width", "height"].iter().all(|side| node.attribute(*side) == Some("11"))
    };
    let squares = document.descendants().filter(is_square);
    let named = squares.filter_map(|square| {
        let name = square.next_siblings().skip(1).find(roxmltree::Node::is_element)?;
        let color = square.attribute("fill")?.to_owned();
        Some((name.text()?.trim().to_owned(), color)).filter(|_| name.has_tag_name("text"))
    });
    named.collect()
}

/// A legend has each color and each name once, and the same on all devices. Timelines are tested by their bands.
#[test]
fn each_color_of_a_legend_means_one_thing() {
    let seen = std::sync::atomic::AtomicUsize::new(0);
    let check = |case: &Case| {
        let recording = support::open(&case.path);
        let mut problems = Vec::new();
        for (kind, svg) in pictures(&recording) {
            if kind.starts_with("timeline") || kind == "report" {
                continue;
            }
            let mut names: BTreeMap<String, String> = BTreeMap::new();
            let mut colors: BTreeMap<String, String> = BTreeMap::new();
            for (name, color) in legend(&svg) {
                seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let known = names.entry(color.clone()).or_insert_with(|| name.clone());
                if *known != name {
                    problems.push(format!("{}: {kind}: {color} is {known:?} and {name:?}", case.path));
                }
                let known = colors.entry(name.clone()).or_insert_with(|| color.clone());
                if *known != color {
                    problems.push(format!("{}: {kind}: {name:?} is {known} and {color}", case.path));
                }
            }
        }
        problems
    };
    let problems: Vec<String> = cases(support::FIXTURES).par_iter().flat_map_iter(check).collect();
    assert_none(&problems);
    assert!(seen.into_inner() > 500);
}

/// The picture by category has one color for a category, for every recording.
#[test]
fn a_category_has_one_color_in_all_pictures() {
    let mut colors: BTreeMap<String, String> = BTreeMap::new();
    for name in ["gpt_train", "oom", "gpt_train_ckpt", "multi_gpu", "leak", "fragmented"] {
        let recording = support::open(&fixture(name));
        let options = timeline_options(&recording, XAxis::Time);
        let peak = options.peak.clone().by(GroupBy::Category);
        let options = options.peak(peak);
        for ((label, _), color) in painted(&timeline_picture(&recording, &options).unwrap()) {
            assert_eq!(*colors.entry(label.clone()).or_insert_with(|| color.clone()), color, "{label} in {name}");
        }
    }
    assert!(colors.len() > 7, "{colors:?}");
}

/// At least this fraction of a timeline is between the start of the first step and the end of the last one.
const STEPS_SHARE: f64 = 0.6;

#[test]
fn steps_take_most_of_the_width() {
    assert_none(&narrow_steps(&cases(support::FIXTURES)));
}

#[test]
fn steps_of_the_corpus_take_most_of_the_width() {
    let Some(cases) = support::corpus_cases() else { return };
    assert_none(&narrow_steps(&cases));
}

fn narrow_steps(cases: &[Case]) -> Vec<String> {
    let narrow = |case: &Case| {
        let recording = support::open(&case.path);
        let devices = recording.devices();
        let report = recording.timeline(&timeline_options(&recording, XAxis::Time)).unwrap();
        let origin = devices.all().iter().filter_map(|device| device.track.times().first()).min().copied();
        // First and last x of the steps of a device.
        let steps = |timeline: &DeviceTimeline| {
            let device = devices.get(timeline.peak.device).unwrap();
            let spans = &device.phases().spans;
            let first = spans.iter().find(|span| span.phase == Phase::Forward)?.start;
            let works = |phase| !matches!(phase, Phase::Other | Phase::Data);
            let last = spans.iter().rev().find(|span| works(span.phase))?.end - 1;
            let x = |entry: u32| match timeline.axis.counts {
                XAxis::Entry => i64::from(entry) + 1,
                XAxis::Time => device.track.times()[entry as usize] - origin.unwrap(),
            };
            Some((x(first), x(last)))
        };
        // Devices share their time.
        let all = report.devices.iter().filter_map(steps).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let flaw = |timeline: &DeviceTimeline| {
            let own = steps(timeline)?;
            let axes = [Some(&timeline.axis), timeline.run.as_ref().map(|run| &run.axis)];
            axes.into_iter().flatten().find_map(|axis| {
                let (first, last) = if axis.counts == XAxis::Time { all? } else { own };
                let share = (axis.position(last + 1) - axis.position(first)) / axis.columns() as f64;
                (share < STEPS_SHARE).then(|| format!("{}: {share:.2} of the width: {axis:?}", case.path))
            })
        };
        report.devices.iter().filter_map(flaw).collect::<Vec<_>>()
    };
    cases.par_iter().flat_map_iter(narrow).collect()
}

/// The dot on the peak is on the highest point of the highest band.
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
            let dot = document.descendants().find(|node| node.has_attribute("data-peak-bytes")).unwrap();
            let y: f64 = dot.attribute("cy").unwrap().parse().unwrap();
            assert!((y - highest).abs() < 0.15, "{name}: the dot is at {y}, the curve reaches {highest}");
            let peak = report.devices[0].peak.maxima[Metric::Allocated as usize].bytes;
            assert_eq!(dot.attribute("data-peak-bytes").unwrap(), peak.to_string());
        }
    }
}

/// The y coordinates in a path of `M`, `h`, `v`, `H`, `V` and `z`.
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

/// Each sample is the true composition of memory at an instant, no instant of its period is higher, and together they
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
                    // Where one step is shown, the strip above it shows all of them.
                    let whole = device.run.as_ref().map_or(&device.columns, |run| &run.columns);
                    let highest = whole.iter().map(|column| column.counters.get(metric)).max();
                    assert_eq!(highest, Some(history.maxima[metric as usize].bytes), "{what}");
                    let reserved = whole.iter().map(|column| column.max_reserved).max();
                    assert_eq!(reserved, Some(history.maxima[Metric::Reserved as usize].bytes), "{what}");
                    if axis == XAxis::Entry {
                        nothing_between_is_higher(&recording, device, metric, &what);
                    }
                }
            }
        }
    }
}

/// With the band for inactive memory, all bands of active bytes sum to reserved memory.
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
    let (first, last) = device.axis.range();
    Track::new(&recording.snapshot, history).walk(|instant, counters| {
        if (first..=last).contains(&i64::from(instant)) {
            let shown = device.columns[device.axis.column(i64::from(instant))].counters.get(metric);
            assert!(counters.get(metric) <= shown, "{what}: instant {instant} is higher than its column");
        }
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
    run(&["report", "-o", "report.txt"]).expect_error("found report.txt");
    run(&["timeline", "--from", "oom"]).expect_error("no oom");
}
