//! `memviz oom` for people.

use super::words as oom_words;
use crate::analysis::advice::Advice as Cure;
use crate::analysis::oom::{Advice, Cause, DeviceOoms, Oom, OomReport};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::document::{Document, Tone};
use crate::report::common::next::Next;
use crate::report::common::notes::{self, device_name};
use crate::report::common::words;
use crate::report::fragmentation::document::{figure, figure_table, figures};

/// Failed requests that are shown in full; for a program that catches hundreds, the first ones are representative.
const IN_FULL: usize = 10;
/// Rows of what holds the memory on a screen, at a failed request and at the peak that is shown instead.
const ROWS: usize = 3;
const PEAK_ROWS: usize = 10;

pub(crate) fn document(source: Source<'_>, report: &OomReport) -> Document {
    let title = if report.count() == 0 { "Failed requests in" } else { "Out of memory in" };
    let mut document = Document::about(title, source.path);
    document.file_notes(source);
    if report.devices.is_empty() {
        document.nothing(source);
        return document;
    }
    if report.count() == 0 {
        let (why, shown) = (notes::no_oom(source.recording, report.elsewhere), oom_words::instead(report));
        document.paragraph(format!("{why}; showing {shown} instead:"));
        document.gap();
    }
    let is_snapshot = source.recording.snapshot.notes.format.has_segments();
    document.each(report.devices.iter(), |document, device| match &device.peak {
        Some(peak) => document.peak(peak, is_snapshot, PEAK_ROWS),
        None => ooms(document, device),
    });
    report.comparison.iter().for_each(|comparison| document.comparison(comparison));
    document.advice(source);
    document.next(next(source, report));
    document
}

/// The command to run next, by the reason why the first request failed.
fn next(source: Source<'_>, report: &OomReport) -> Vec<Next> {
    let Some(first) = report.devices.iter().flat_map(|device| &device.ooms).next() else { return Vec::new() };
    // A sweep is suggested only if some settings serve the request.
    let served = first.advice.iter().any(Advice::is_of_settings);
    let settings = Next::new("simulate", &[source.path], "--sweep", "memory needed under other allocator settings");
    let settings = served.then_some(settings);
    let fit = |about: &str| Next::new("fit", &[source.path], "", about);
    let has_plans = report.devices.iter().any(|device| device.rescue.is_some());
    let more = match first.cause {
        Cause::Capacity if has_plans => Some(fit("what would free enough memory, and the Python code for it")),
        Cause::Fragmentation => {
            Some(Next::new("fragmentation", &[source.path], "--at oom", "which lines keep free memory reserved"))
        }
        Cause::Capacity => None,
        Cause::Leak | Cause::PrivatePool | Cause::OtherProcess | Cause::Limit | Cause::Unknown => return Vec::new(),
    };
    let (first, second) = if first.cause == Cause::Fragmentation { (settings, more) } else { (more, settings) };
    first.into_iter().chain(second).map(Next::clear).collect()
}

fn ooms(document: &mut Document, device: &DeviceOoms) {
    let name = device_name(device.device);
    if device.ooms.is_empty() {
        document.title(format!("{name}: {}", notes::failures(0)));
    }
    // A leak is shown before the memory that the allocator lacked because of it.
    let mut first = device.cures.as_slice();
    let mut one = |document: &mut Document, oom: &Oom| {
        let title = format!("{name}: out of memory, {} requested", Bytes(oom.request.bytes));
        document.heading(title, notes::position(&oom.moment, device.entries, &device.completeness));
        document.notes(notes::ooms(device));
        let cures = if oom.cause == Cause::Leak { std::mem::take(&mut first) } else { &[] };
        failed(document, oom, if device.rescue.is_some() { &[] } else { cures });
    };
    let (earliest, later) = device.ooms.split_at(device.ooms.len().min(1));
    for oom in earliest {
        one(document, oom);
    }
    document.all(|document| {
        later.iter().take(IN_FULL - 1).for_each(|oom| {
            document.gap();
            one(document, oom);
        });
    });
    match &device.rescue {
        Some(rescue) => {
            document.brief(|document| document.rescue(rescue, &device.cures, true));
            document.all(|document| document.rescue(rescue, &device.cures, false));
        }
        None => cures(document, first, device.failed > 0),
    }
    let more = device.failed.saturating_sub(device.ooms.len().min(IN_FULL));
    if more > 0 {
        document.all(|document| {
            document.gap();
            document.paragraph(format!("{name}: {} later; --format csv lists all", notes::failures(more)));
        });
    }
    document.brief(|document| {
        document.toned(Tone::Dim, 0, not_shown(device));
    });
}

/// What a screen has no room for.
fn not_shown(device: &DeviceOoms) -> String {
    let more = device.failed.saturating_sub(1);
    let later = if more > 0 { format!("{}, ", words::count(more, "more failed request")) } else { String::new() };
    format!("{later}stacks and the allocator's figures: --all shows them")
}

/// The changes, on a screen only the first.
fn cures(document: &mut Document, cures: &[Cure], has_failed: bool) {
    document.brief(|document| {
        document.cures(&cures[..cures.len().min(1)], has_failed);
        if cures.len() > 1 {
            let more = words::count((cures.len() - 1) as u64, "more change");
            document.toned(Tone::Dim, 2, format!("{more}; --all shows them"));
        }
    });
    document.all(|document| document.cures(cures, has_failed));
}

fn failed(document: &mut Document, oom: &Oom, changes: &[Cure]) {
    document.fact(format!("cause: {}", words::cause(oom.cause.name())));
    document.items(oom.evidence.iter().map(|evidence| oom_words::evidence(oom, evidence).text));
    cures(document, changes, true);
    document.brief(|document| document.fact(oom_words::figures(oom)));
    document.all(|document| all_figures(document, oom));
    document.fact(format!("{}, from the {}", oom_words::requester(oom), oom_words::serving(oom)));
    document.all(|document| {
        document.frames(6, &oom.request.stack);
        document.facts(oom_words::request(oom));
    });
    // What corrects a leak is below, with what these would do.
    if !oom.advice.is_empty() && oom.cause != Cause::Leak {
        let helps: Vec<&Advice> = oom.advice.iter().filter(|advice| advice.helps()).collect();
        let words = |advice: &Advice| oom_words::advice(oom, advice).text;
        if !helps.is_empty() {
            document.brief(|document| {
                document.section("What would have helped");
                document.items(helps.iter().copied().map(words));
            });
        }
        document.all(|document| {
            document.section(match (helps.is_empty(), helps.len() == oom.advice.len()) {
                (_, true) => "What would have helped",
                (true, _) => "What would not have helped",
                _ => "What would and would not have helped",
            });
            document.items(oom.advice.iter().map(words));
        });
    }
    document.section(format!("What holds the memory, by {}", oom.attribution.by.option()));
    document.attribution(&oom.attribution, true, ROWS);
    if let Some(holders) = &oom.holders {
        document.section("What keeps it");
        document.attribution(holders, true, ROWS);
    }
    if oom.cause == Cause::Fragmentation {
        document.all(|document| document.pinning(oom.attribution.by, &oom.pinning, usize::MAX));
    }
}

fn all_figures(document: &mut Document, oom: &Oom) {
    document.gap();
    let mut table = figure_table();
    figure(&mut table, "requested", oom.request.bytes, "");
    if oom.request.driver_bytes != oom.request.bytes {
        figure(&mut table, "new segment", oom.request.driver_bytes, "");
    }
    figure(&mut table, "device free", oom.device_free, "");
    figures(&mut table, &oom.figures);
    let segments = words::count(oom.retry.segments, "segment");
    figure(&mut table, "released for retry", oom.retry.bytes, segments);
    document.table(table);
    document.gap();
}
