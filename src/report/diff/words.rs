//! What reports say about two recordings, in words and numbers; shared by text, Markdown and pictures.

use crate::analysis::diff::settings::NO_SETTINGS;
use crate::analysis::diff::{Asked, CodePlace, DeviceDiff, DiffInputDevice, DiffReport, DiffRow, Fate, Growth};
use crate::analysis::diff::{GrowthLimit, Lives, Parting, SettingDiff};
use crate::analysis::peak::DevicePeak;
use crate::facts::grouping::GroupBy;
use crate::facts::segments::figures::Figures;
use crate::model::Format;
use crate::model::bytes::Bytes;
use crate::replay::{Bound, Counters, Metric};
use crate::report::Sources;
use crate::report::common::notes::{self, device_name, safe, signed};
use crate::report::common::words::count;

pub struct Figure {
    pub name: &'static str,
    /// The value in the base; `None` if it is unknown.
    pub base: Option<String>,
    pub new: Option<String>,
    pub delta: Option<String>,
}

pub fn delta(bytes: i64) -> String {
    let sign = if bytes > 0 { "+" } else { "" };
    format!("{sign}{}", signed(bytes))
}

pub fn headline(device: &DeviceDiff) -> String {
    let metric = device.metric();
    let (base, new) = (&device.base.peak, &device.new.peak);
    let name = match (base.device, new.device) {
        (base, new) if base == new => device_name(new),
        (base, new) => format!("{} ({} in the base)", device_name(new), lower(&device_name(base))),
    };
    let peak = if are_at_peak(device) { "peak " } else { "" };
    let (from, to) = (base.at.get(metric), new.at.get(metric));
    let values = match device.delta_bytes {
        0 => format!("{} in both", signed(to)),
        bytes => format!("{} -> {}, {}{}", signed(from), signed(to), delta(bytes), share(bytes, from)),
    };
    format!("{name}: {peak}{} {values}", metric.name())
}

fn are_at_peak(device: &DeviceDiff) -> bool {
    let metric = device.metric() as usize;
    let is_peak = |side: &DiffInputDevice| {
        !side.peak.completeness.no_entries && side.peak.maxima[metric].instant == side.peak.instant
    };
    is_peak(&device.base) && is_peak(&device.new)
}

fn lower(text: &str) -> String {
    text.replace("Device", "device").replace("Pinned", "pinned")
}

/// A change in percent of the base, in parentheses.
fn share(bytes: i64, base: i64) -> String {
    if base <= 0 { String::new() } else { format!(" ({:+.1}%)", bytes as f64 * 100.0 / base as f64) }
}

pub fn places(sources: Sources<'_>, device: &DeviceDiff) -> [String; 2] {
    let sides = [("base", sources.base, &device.base), ("new", sources.new, &device.new)];
    sides.map(|(name, source, side)| {
        // Programs count steps from 0 or 1, so the annotation of this one may have another number.
        let step = source.path.rsplit_once("@step:").map_or(String::new(), |(_, step)| {
            format!(" (step {}, counted from 1)", safe(step.split(':').next().unwrap_or_default()))
        });
        format!("{name}{step}: {}", notes::place(&side.peak))
    })
}

/// The fate of all blocks from one instant of a recording to the other.
pub fn lives(lives: &Lives) -> String {
    let [born, freed, survived] = [lives.born, lives.freed, lives.survived].map(|share| Bytes(share.bytes));
    format!("{born} allocated in between and still live, {freed} freed, {survived} survived (live at both instants)")
}

/// Where two recordings diverge, and what was requested there.
pub fn parting(parting: &Parting) -> String {
    let [base, new] = parting.sides().map(|(name, asked)| request(name, asked));
    format!("{} {base}, and {new}", alike(parting.alike))
}

/// What precedes the first requests that differ.
pub fn alike(requests: usize) -> String {
    match requests {
        0 => "the first requests differ:".to_owned(),
        1 => "the first request is the same; then".to_owned(),
        _ => format!("the first {requests} requests are the same; then"),
    }
}

/// The first request that differs, of the side with this name; `None` if the side ends there.
pub fn request(name: &str, asked: Option<&Asked>) -> String {
    let Some(Asked { entry, bytes, failed, site, .. }) = asked else { return format!("{name} ends") };
    let asks = if *failed { "fails to allocate" } else { "requests" };
    format!("{name} {asks} {} at {} (entry {entry})", Bytes(*bytes), safe(site))
}

/// What both devices' histories lack, one line each; gaps of both are reported once.
pub fn limits(device: &DeviceDiff) -> Vec<String> {
    let (base, new) = (notes::device(&device.base.peak), notes::device(&device.new.peak));
    let mut lines = of_both(&base, &new, device.lives.is_some());
    let side = without_stacks(device);
    lines.extend(side.map(|side| {
        format!("{side}: no stacks were recorded, so rows cannot be compared by {}", device.by().option())
    }));
    lines.extend(notes::grouping(device.by()).map(str::to_owned));
    lines
}

/// Lines about both sides: each says which it is about, unless both are one recording.
fn of_both(base: &[String], new: &[String], is_one: bool) -> Vec<String> {
    let shared = |line: &String| match new.contains(line) {
        true if is_one => line.clone(),
        true => format!("both: {line}"),
        false => format!("base: {line}"),
    };
    let in_new = new.iter().filter(|line| !base.contains(line)).map(|line| format!("new: {line}"));
    base.iter().map(shared).chain(in_new).collect()
}

pub fn files(sources: Sources<'_>, report: &DiffReport) -> Vec<String> {
    let [base, new] = [sources.base, sources.new].map(|source| notes::source(source.recording));
    let mut lines = of_both(&base, &new, report.is_of_instants());
    let by = report.devices.first().map_or_else(GroupBy::default, DeviceDiff::by);
    lines.extend(report.formats.and_then(|formats| unlike(formats, by)));
    lines
}

/// A note about comparing a trace with a snapshot.
fn unlike((base, new): (Format, Format), by: GroupBy) -> Option<String> {
    let has = |format| base == format || new == format;
    let words = match by {
        _ if has(Format::MemoryTimeline) => "a memory timeline has categories instead of lines, stacks and operators",
        GroupBy::Site => {
            "a profiler trace names functions by their first line, so a snapshot's lines are counted under the first line of their function, if the trace shows it"
        }
        GroupBy::Stack => "stacks of a profiler trace contain operators and modules, so none matches a snapshot's",
        GroupBy::Operator => "a snapshot has operators only in C++ stacks (stacks=\"all\")",
        GroupBy::NnModule => "a snapshot does not record calls of nn.Module",
        GroupBy::Stream | GroupBy::Pool => "a profiler trace records neither streams nor pools",
        _ => return None,
    };
    Some(words.to_owned())
}

/// Devices that cannot be compared, one line each.
pub fn unpaired(report: &DiffReport) -> Vec<String> {
    let line = |device: &i32, which| format!("{}: only in {which}, not compared", device_name(*device));
    let base = report.only_base.iter().map(|device| line(device, "the base"));
    base.chain(report.only_new.iter().map(|device| line(device, "the new recording"))).collect()
}

/// Counters and fragmentation of both sides. Facts about a whole recording are left out if both sides are the same recording.
pub fn figures(device: &DeviceDiff) -> Vec<Figure> {
    let (base, new) = (&device.base.peak, &device.new.peak);
    let figure = |name, from: Option<i64>, to: Option<i64>| {
        let grown = from.zip(to).filter(|(from, to)| from != to);
        let delta = grown.map(|(from, to)| delta(to.wrapping_sub(from)));
        let is_known = from.is_some() || to.is_some();
        is_known.then(|| Figure { name, base: from.map(signed), new: to.map(signed), delta })
    };
    // Without a history, only the state at dump time is known.
    let if_history = |side: &DevicePeak, bytes: i64| (!side.completeness.no_entries).then_some(bytes);
    let history = |name, from, to| figure(name, if_history(base, from), if_history(new, to));
    let if_recorded = |side: &DevicePeak, bytes: i64| (!side.completeness.no_reserved).then_some(bytes);
    let reserved_bytes = |name, from, to| figure(name, if_recorded(base, from), if_recorded(new, to));
    let maxima: [Counters; 2] = [base.maxima.into(), new.maxima.into()];
    let names = ["allocated, maximum", "active, maximum", "requested, maximum", "reserved, maximum"];
    let maximum = |(name, metric)| {
        let of = |side: &DevicePeak, maxima: &Counters| {
            let is_known = metric != Metric::Reserved || !side.completeness.no_reserved;
            if_history(side, maxima.get(metric)).filter(|_| is_known)
        };
        figure(name, of(base, &maxima[0]), of(new, &maxima[1]))
    };
    let is_one = device.lives.is_some();
    let mut figures: Vec<Figure> = names.into_iter().zip(Metric::ALL).filter(|_| !is_one).filter_map(maximum).collect();
    let [reserved, inactive] = if are_at_peak(device) {
        ["reserved, at the peak", "inactive, at the peak"]
    } else {
        ["reserved, at the instant", "inactive, at the instant"]
    };
    figures.extend(reserved_bytes(reserved, base.at.reserved, new.at.reserved));
    let (from, to) = (device.base.figures.as_ref(), device.new.figures.as_ref());
    let mut bytes = |name, value: fn(&Figures) -> u64| {
        let (from, to) = (from.map(value), to.map(value));
        let grown = from.zip(to).filter(|(from, to)| from != to);
        let shown = |bytes: Option<u64>| bytes.map(|bytes| Bytes(bytes).to_string());
        let delta = grown.map(|(from, to)| delta(to.wrapping_sub(from) as i64));
        figures.push(Figure { name, base: shown(from), new: shown(to), delta });
    };
    if device.base.figures.is_some() || device.new.figures.is_some() {
        bytes(inactive, |figures| figures.inactive);
        bytes("largest free block", |figures| figures.largest_free_block);
        bytes("non-releasable", |figures| figures.pinned_free);
        bytes("rounding loss", |figures| figures.active().wrapping_sub(figures.requested));
        let share = |figures: &Figures| figures.inactive_share() * 100.0;
        let (from, to) = (from.map(share), to.map(share));
        let shown = |share: Option<f64>| share.map(|share| format!("{share:.1}%"));
        let delta =
            from.zip(to).filter(|_| shown(from) != shown(to)).map(|(from, to)| format!("{:+.1} points", to - from));
        figures.push(Figure { name: "inactive share", base: shown(from), new: shown(to), delta });
    }
    if is_one {
        return figures;
    }
    figures.extend(figure("allocated, end", Some(base.end.allocated), Some(new.end.allocated)));
    figures.extend(reserved_bytes("reserved, end", base.end.reserved, new.end.reserved));
    if base.baseline.allocated != 0 || new.baseline.allocated != 0 {
        figures.extend(history("allocated, start", base.baseline.allocated, new.baseline.allocated));
    }
    figures
}

/// The fate of a row, if its numbers do not show it.
pub fn fate(device: &DeviceDiff, row: &DiffRow) -> String {
    match (row.fate, &row.base_label) {
        // Rows without code, such as `(no stack)`: their memory may have a line in the other recording.
        (Fate::New | Fate::Vanished, _) if row.label.starts_with('(') => String::new(),
        (Fate::New | Fate::Vanished, _) if without_stacks(device).is_some() => String::new(),
        (Fate::New, _) => " (new)".to_owned(),
        (Fate::Vanished, _) => " (gone)".to_owned(),
        // Without this, a change of 0 bytes would look like none.
        (Fate::Changed, None) if row.delta_bytes == 0 => {
            format!(" ({}, was {})", count(row.new_blocks, "block"), row.base_blocks)
        }
        (Fate::Changed, None) => String::new(),
        (Fate::Changed, Some(label)) => moved(label, &row.label),
    }
}

/// Where a row was in the base, if its label differs.
pub fn moved(base_label: &str, label: &str) -> String {
    match (CodePlace::of_line(base_label), CodePlace::of_line(label)) {
        _ if base_label == label => String::new(),
        (Some(base), Some(new)) if base.file == new.file => format!(" (was line {})", base.line),
        _ => format!(" (was {base_label})"),
    }
}

/// What `(new)` and `(gone)` mean, if rows have them: the line itself may be in both programs.
pub fn fates(device: &DeviceDiff) -> Option<String> {
    let marked = |mark: &str| device.rows.iter().any(|row| fate(device, row) == mark);
    // The table of two instants has no such marks.
    if device.lives.is_some() {
        return None;
    }
    let at = if are_at_peak(device) { "peak" } else { "instant" };
    let marks = match (marked(" (new)"), marked(" (gone)")) {
        (true, true) => "(new), (gone)",
        (true, false) => "(new)",
        (false, true) => "(gone)",
        (false, false) => return None,
    };
    Some(format!("{marks}: the row holds memory at the {at} of only one recording"))
}

/// The side without stacks, if only one side has them and rows are code: no row can be found on both sides.
fn without_stacks(device: &DeviceDiff) -> Option<&'static str> {
    match (device.base.has_stacks, device.new.has_stacks) {
        _ if !device.by().is_by_code() => None,
        (true, false) => Some("new"),
        (false, true) => Some("base"),
        _ => None,
    }
}

/// Lines among the rows that run a library's model.
pub fn library_lines(device: &DeviceDiff) -> Option<String> {
    let mut lines = [&device.base.library_below[..], &device.new.library_below].concat();
    lines.sort();
    lines.dedup();
    lines.retain(|line| device.rows.iter().any(|row| row.label.contains(line.as_str())));
    notes::other_lines(&lines)
}

/// The rows that are not shown.
pub fn unchanged(device: &DeviceDiff) -> Option<String> {
    let rows = count(device.unchanged.rows, "row");
    let bytes =
        if device.by().is_inclusive() { String::new() } else { format!(", {}", signed(device.unchanged.bytes)) };
    (device.unchanged.rows > 0).then(|| format!("{rows} unchanged{bytes}"))
}

pub fn setting(setting: &SettingDiff) -> String {
    let value = |value: &Option<String>| match value.as_deref() {
        None => "not recorded".to_owned(),
        Some("") => "empty".to_owned(),
        Some(value) => value.to_owned(),
    };
    let name = if setting.name == NO_SETTINGS { "allocator settings" } else { &setting.name };
    format!("{name}: {} -> {}", value(&setting.base), value(&setting.new))
}

/// Whether memory grew by more than a limit, and where.
pub fn exceeded_growth(report: &DiffReport, limit: GrowthLimit) -> String {
    let beyond = report.devices.iter().filter(|device| device.growth(limit) == Growth::Beyond);
    let grown = beyond.map(|device| {
        let delta = device.delta_bytes;
        format!("{} by {} ({delta} bytes)", device_name(device.new.peak.device), signed(delta))
    });
    format!("memory grew by more than {limit}: {}", grown.collect::<Vec<_>>().join(", "))
}

/// Why it is unknown whether memory grew by more than a limit.
pub fn unknown_growth(report: &DiffReport, limit: GrowthLimit) -> String {
    let question = format!("cannot tell whether memory grew by more than {limit}");
    let unknown = report.devices.iter().find(|device| device.growth(limit) == Growth::Unknown);
    let reason = match (unknown, report.only_base.first(), report.only_new.first()) {
        (Some(device), ..) => {
            let side = |name: &str, side: &DiffInputDevice| {
                if let Some(doubt) = &side.doubt {
                    return Some(format!("in the {name}, {}", crate::report::check::words::doubt(doubt)));
                }
                let bound = side.bound?;
                let metric = side.peak.metric.name();
                let reasons = notes::device(&side.peak).join("; ");
                let what = match bound {
                    Bound::Lower => "a lower bound",
                    Bound::Upper => "an upper bound",
                    Bound::Unknown => "unknown",
                };
                Some(format!("{metric} in the {name} is {what} ({reasons})"))
            };
            let reasons: Vec<String> =
                side("base", &device.base).into_iter().chain(side("new recording", &device.new)).collect();
            let reasons = if reasons.is_empty() {
                "one of the recordings contradicts itself".to_owned()
            } else {
                reasons.join("; ")
            };
            format!("{}: {reasons}", lower(&device_name(device.new.device())))
        }
        (None, Some(&device), _) => {
            format!("{} is only in the base; --device selects the devices to compare", lower(&device_name(device)))
        }
        (None, None, Some(&device)) => {
            format!(
                "{} is only in the new recording; --device selects the devices to compare",
                lower(&device_name(device))
            )
        }
        (None, None, None) => "there is no device to compare".to_owned(),
    };
    format!("{question}: {reason}")
}
