//! The triage as a document that fits on one screen.

use super::words;
use crate::analysis::advice::Advice;
use crate::analysis::triage::{DeviceTriage, TriageReport};
use crate::facts::grouping::attribution::{Attribution, OTHER, Row};
use crate::facts::training::Category;
use crate::model::Format;
use crate::report::common::comparison::words as comparison;
use crate::report::common::document::{Document, Reader, Share, Tone, attributed};
use crate::report::common::next::Next;
use crate::report::common::notes;
use crate::report::common::words::{category, count, share};
use crate::report::{Source, percent};

/// Categories named below the bar.
const NAMED: usize = 5;
/// Maximum number of devices with a line below the first one.
const OTHERS: usize = 2;
/// Sites of a program that ran out of memory, whose screen also has what makes it fit.
const SITES_OF_FAILED: usize = 2;
const FINDINGS: usize = 4;
/// The same for a program that ran out of memory: why, and what makes it fit.
const FINDINGS_OF_FAILED: usize = 2;
/// The characters that fill the parts of the categories that are named in the bar, the largest first.
const FILLS: [&str; NAMED] = ["█", "▓", "▒", "░", "▚"];
/// The same for unknown memory, and for categories without a name.
const UNKNOWN: &str = "·";
const REST: &str = "▖";

pub(crate) fn document(source: Source<'_>, report: &TriageReport) -> Document {
    let mut document = Document::about("", source.path);
    let Some(first) = report.devices.get(report.first) else {
        document.nothing(source);
        document.file_notes(source);
        document.advice(source);
        return document;
    };
    verdict(&mut document, report, first);
    let most = words::most_reserved(first).map_or(String::new(), |most| format!("; {most}"));
    document.paragraph(format!("{} ({}){most}", words::held(first), notes::place(&first.peak)));
    document.file_notes(source);
    document.notes(notes::device(&first.peak));
    document.notes(words::outside(first));
    if !words::is_negligible(first) {
        categories(&mut document, &first.categories);
        let most = if first.failure.is_some() { SITES_OF_FAILED } else { usize::MAX };
        sites(&mut document, &first.peak.attribution, most);
    }
    let others = || report.devices.iter().filter(|device| device.peak.device != first.peak.device);
    // The verdict names those that differ most.
    let is_named = |device: &DeviceTriage| {
        report
            .comparison
            .as_ref()
            .is_some_and(|it| [it.most(), it.least()].iter().any(|named| named.device == device.peak.device))
    };
    let rest = || others().filter(|device| !is_named(device) && !words::is_negligible(device));
    let more = rest().skip(OTHERS).count();
    document.screen(|document| {
        rest().take(OTHERS).for_each(|device| document.paragraph(words::held_at_peak(device)));
        if more > 0 {
            document.toned(Tone::Dim, 0, format!("and {}", count(more, "more device")));
        }
    });
    let otherwise = words::otherwise(first, source.recording);
    if let Some(sentence) = otherwise.would_show {
        document.gap();
        document.toned(Tone::Dim, 0, sentence);
    }
    match &first.rescue {
        Some(rescue) => document.rescue(rescue, &first.advice, true),
        None => document.cures(&first.advice, first.failure.is_some()),
    }
    if let Some(nothing) = otherwise.nothing {
        document.gap();
        document.paragraph(words::nothing(nothing));
    }
    document.aside(|document| others().for_each(|device| other(document, device)));
    document.advice(source);
    document.commands(commands(first, source));
    document
}

/// The verdict on the most important device; before it, that the devices differ, which explains more unless a request failed.
fn verdict(document: &mut Document, report: &TriageReport, first: &DeviceTriage) {
    let verdict = words::verdict(first);
    let differ = report.comparison.as_ref().map(comparison::headline);
    let (title, other) = match differ {
        Some(differ) if first.failure.is_none() => (differ, Some(verdict)),
        differ => (verdict, differ),
    };
    document.flush_title(title);
    if let Some(other) = other {
        document.paragraph(other);
    }
}

fn other(document: &mut Document, device: &DeviceTriage) {
    if words::is_negligible(device) {
        return document.paragraph(words::held_at_peak(device));
    }
    document.flush_title(words::verdict(device));
    document.paragraph(format!("{} ({})", words::held(device), notes::place(&device.peak)));
    document.notes(notes::device(&device.peak));
    categories(document, &device.categories);
    sites(document, &device.peak.attribution, usize::MAX);
    match &device.rescue {
        Some(rescue) => document.rescue(rescue, &device.advice, true),
        None => document.cures(&device.advice, device.failure.is_some()),
    }
    device.nothing.as_ref().map(words::nothing).into_iter().for_each(|text| document.paragraph(text));
    let findings: Vec<String> = words::findings(device).into_iter().map(|line| line.text).collect();
    if !findings.is_empty() {
        document.paragraph(findings.join("; "));
    }
}

/// All categories as one bar, with the largest of them named below.
fn categories(document: &mut Document, categories: &Attribution) {
    let rows: Vec<&Row> = categories.rows.iter().filter(|row| row.label != OTHER && row.bytes > 0).collect();
    let total = categories.total_bytes;
    if total == 0 || rows.is_empty() {
        return;
    }
    let is_named =
        |index: usize, row: &Row| index == 0 || percent(row.bytes, total) >= 1.0 && (index < NAMED || is_unknown(row));
    // Categories without a name share a character.
    let rest = || rows.iter().enumerate().filter(|(index, row)| !is_named(*index, row));
    let bytes_of_rest = rest().map(|(_, row)| row.bytes).fold(0, u64::saturating_add);
    let first_of_rest = rest().next().map(|(index, _)| index);
    let part = |(index, row): (usize, &&Row)| {
        let is_named = is_named(index, row);
        let name = is_named.then(|| format!("{} {}", category(&row.label), share(row.bytes, total)));
        let of_rest = (first_of_rest == Some(index)).then(|| format!("others {}", share(bytes_of_rest, total)));
        Share {
            label: row.label.clone(),
            if_drawn: name.is_none(),
            name: name.or(of_rest),
            bytes: row.bytes,
            total,
            fill: match row.category {
                _ if !is_named => REST,
                Some(Category::Unknown) => UNKNOWN,
                _ => FILLS.get(index).copied().unwrap_or(REST),
            },
            tone: row.category.filter(|_| is_named).map_or(Tone::Dim, Tone::Hued),
        }
    };
    document.shares(rows.iter().enumerate().map(part).collect());
}

fn is_unknown(row: &Row) -> bool {
    row.category == Some(Category::Unknown)
}

/// The sites that hold the most; on a screen, at most this many. A few rows need no header, for which such a screen has no room.
fn sites(document: &mut Document, sites: &Attribution, most: usize) {
    let (others, mut rows): (Vec<&Row>, Vec<&Row>) = sites.rows.iter().partition(|row| row.label == OTHER);
    let others: Vec<&Row> = rows.split_off(most.min(rows.len())).into_iter().chain(others).collect();
    let [is_starred, is_starred_below] = [&rows, &others].map(|rows| rows.iter().any(|row| row.inferred));
    let mut table = attributed("site", rows.into_iter(), sites.total_bytes, false);
    // One screen has room only for groups with a name.
    let others = attributed("site", others.into_iter(), sites.total_bytes, false);
    for mut row in others.rows {
        row.reader = Reader::OfMarkdown;
        table.rows.push(row);
    }
    document.table(if most <= SITES_OF_FAILED { table.head(None) } else { table });
    if is_starred {
        document.below(notes::INFERRED_SITE);
    } else if is_starred_below {
        document.aside(|document| document.below(notes::INFERRED_SITE));
    }
}

fn commands(device: &DeviceTriage, source: Source<'_>) -> Vec<Next> {
    let path = source.path;
    let has_failed = device.failure.is_some();
    let most = if has_failed { FINDINGS_OF_FAILED } else { FINDINGS };
    let command = |line: words::Line| {
        let next = Next::new(line.command, &[path], line.options, line.text);
        if has_failed { next.clear() } else { next }
    };
    let mut lines: Vec<Next> = words::findings(device).into_iter().take(most).map(command).collect();
    if device.advice.iter().any(Advice::is_mechanical) {
        lines.push(Next::new("fix", &[path], "--source .", "write a change as a diff of the source code").clear());
    }
    if has_failed {
        return lines;
    }
    lines.extend(words::compared(device, path));
    // A profile of one instant has no report.
    if source.recording.snapshot.notes.format == Format::DeviceMemoryProfile {
        lines.push(Next::new("flamegraph", &[path], "-o memory.svg", "draw the whole profile"));
    } else {
        if cfg!(feature = "view") {
            lines.push(Next::new("view", &[path], "", "open the recording in the browser"));
        }
        lines.push(Next::new("report", &[path], "-o report.html", "write the full report as an HTML page"));
    }
    lines
}
