//! Sentences about simulations, the same in every format.

use crate::allocator::SettingsWarning;
use crate::analysis::simulate::{DeviceSimulation, SharedSettings, SimulateReport};
use crate::model::HOST_DEVICE;
use crate::model::bytes::Bytes;
use crate::report::common::notes;
use crate::report::common::words::{count, kept, listed, range};
use crate::simulation::{Difference, Outcome, Run, SettingsAdvice, Trust};

const VARIABLE: &str = "PYTORCH_CUDA_ALLOC_CONF";

pub fn name(run: &Run) -> String {
    if run.changes.is_empty() {
        return settings_name(run);
    }
    format!("changed program, {}", settings_name(run))
}

/// How far the figures of a row can be trusted; a dash if it has none.
pub fn trust(run: &Run) -> &'static str {
    if run.trust == Trust::Refused { "-" } else { run.trust.name() }
}

fn settings_name(run: &Run) -> String {
    match (run.is_recorded, run.alloc_conf.trim()) {
        (true, "") if run.is_default_assumed => "default settings (assumed)".to_owned(),
        (true, conf) if run.is_default_assumed => format!("{conf} (assumed)"),
        (true, "") => "recorded settings (defaults)".to_owned(),
        (true, conf) => format!("recorded settings ({conf})"),
        (false, "") => "defaults".to_owned(),
        (false, conf) => conf.to_owned(),
    }
}

/// What the settings of the recording are called: some recordings have none.
pub(super) fn own(run: &Run) -> &'static str {
    if run.is_default_assumed { "assumed settings" } else { "recorded settings" }
}

/// The first line about a device, without its name.
pub fn headline(device: &DeviceSimulation) -> String {
    if let Some(reason) = device.refused {
        return format!("cannot be simulated: {reason}");
    }
    let recorded = device.runs.first().map_or(String::new(), |run| match (&run.outcome, run.needs()) {
        (None, None) => format!("the {} cannot be simulated", own(run)),
        (_, None) => format!("the {} fail", own(run)),
        (None, Some(_)) => format!("the {} need {}", own(run), needed(run)),
        (Some(_), Some(needs)) => match device.capacity {
            // What the settings reserve until a request fails says nothing.
            Some(capacity) if needs > capacity => {
                format!(
                    "the {} need {}, more than the {} that the allocator can use",
                    own(run),
                    needed(run),
                    Bytes(capacity)
                )
            }
            _ => format!("the {} need {} and reserve {}", own(run), needed(run), reserved(run)),
        },
    });
    if let Some(changed) = device.changed() {
        let changes = listed(&changed.changes);
        let needs = |run: &Run| run.needs().map_or("fails".to_owned(), |_| format!("needs {}", needed(run)));
        return match &changed.outcome {
            Some(outcome) => {
                let verdict = device.capacity.map_or(String::new(), |capacity| verdict(outcome, capacity));
                let there = device.capacity.zip(changed.needs());
                let of = there.filter(|(capacity, needs)| needs <= capacity);
                let of = of.map_or(String::new(), |(capacity, _)| format!(" of {}", Bytes(capacity)));
                let but = there.filter(|(capacity, needs)| needs > capacity);
                let but =
                    but.map_or(String::new(), |(capacity, _)| format!(", but only {} is available", Bytes(capacity)));
                let without = device.runs.first().map_or(String::new(), |recorded| match recorded.needs() {
                    Some(_) if but.is_empty() => format!("; {}", needed(recorded)),
                    _ => format!("; {}", needs(recorded)),
                });
                let them = match (but.is_empty(), changed.changes.len()) {
                    (true, _) => "",
                    (false, 1) => " it",
                    (false, _) => " them",
                };
                format!("{verdict}{}{of} with {changes}{but}{without} without{them}", needs(changed))
            }
            None => format!("{recorded}; {changes} cannot be simulated"),
        };
    }
    match device.best() {
        Some(best) => {
            format!("{recorded}; {} needs {} and reserves {}", name(best), needed(best), reserved(best))
        }
        None => recorded,
    }
}

/// Whether a changed program fits the device, as the start of a headline.
fn verdict(outcome: &Outcome, capacity: u64) -> String {
    let fits = outcome.failure().is_none() && outcome.max_reserved <= capacity;
    (if fits { "fits: " } else { "does not fit: " }).to_owned()
}

/// How far simulated maxima are from the recorded ones, after what differs.
pub fn maxima(difference: &Difference) -> String {
    match difference.bytes() {
        0 => ", but its maxima are equal".to_owned(),
        bytes => format!(": its maxima differ by up to {}", Bytes(bytes)),
    }
}

/// How the simulation of the recorded settings compares with the recording.
pub fn error_bar(device: &DeviceSimulation) -> Option<String> {
    let difference = device.difference.as_ref()?;
    let (allocs, frees) = (difference.device_allocs, difference.device_frees);
    // For pinned host memory, the requests are not recorded.
    let (what, maxima_of) = match device.device {
        HOST_DEVICE => ("host allocation", "the maxima of memory in use and of reserved memory"),
        _ => ("device allocation", "all maxima"),
    };
    if difference.is_none() {
        let (allocs, frees) = (count(allocs.0, what), count(frees.0, "free"));
        let is_placed = device.runs.first().is_none_or(|run| run.reserved_range.is_none());
        let given = if is_placed {
            ""
        } else {
            " if segments are placed at their recorded addresses (the table does not assume this)"
        };
        let own = device.runs.first().map_or("recorded settings", own);
        let outcome = device.runs.first().and_then(|run| run.outcome.as_ref());
        let is_other = |outcome: &&Outcome| {
            (outcome.device_allocs, outcome.device_frees) != (difference.device_allocs.0, difference.device_frees.0)
        };
        let elsewhere = outcome.filter(is_other).map_or(String::new(), |outcome| {
            let place =
                if device.capacity.is_some() { "on the simulated device" } else { "on a device without a limit" };
            let end = if outcome.fails_at.is_some() { " before a request fails" } else { "" };
            let (allocs, frees) = (count(outcome.device_allocs, what), count(outcome.device_frees, "free"));
            let program = if device.changed().is_some() { "unchanged program" } else { "run" };
            format!("; in the table, the {program} with the {own} makes {allocs} and {frees} {place}{end}")
        });
        return Some(format!(
            "the simulation of the unchanged program reproduces what was recorded: {allocs}, {frees}, and {maxima_of} to the byte{given}{elsewhere}"
        ));
    }
    let place = difference.first.map_or(String::new(), |entry| format!(", from entry {entry} on"));
    let counts =
        [(format!("{what}s"), allocs), ("frees".to_owned(), frees)].into_iter().filter(|(_, pair)| pair.0 != pair.1);
    let counts: Vec<String> = counts.map(|(what, pair)| format!("{what} {} instead of {}", pair.0, pair.1)).collect();
    let counts = if counts.is_empty() { String::new() } else { format!("; {}", counts.join(", ")) };
    Some(format!("the simulation differs from the recording{place}{}{counts}", maxima(difference)))
}

pub fn capacity(device: &DeviceSimulation) -> Option<String> {
    let capacity = device.capacity?;
    let source = match device.context {
        Some(context) => format!("; {}", kept(capacity, context)),
        None if device.is_full_device => ", as a failed request shows".to_owned(),
        None => String::new(),
    };
    Some(format!("simulated device: {} for the allocator{source}", Bytes(capacity)))
}

/// The memory that the allocator released in the recording, if any.
pub fn releases(device: &DeviceSimulation) -> Option<String> {
    let releases = device.releases;
    let mut parts = Vec::new();
    if releases.empty_cache > 0 {
        let calls = count(releases.empty_cache, "call");
        let doubt = match releases.uncertain_calls {
            0 => "",
            1 if releases.empty_cache == 1 => "its stack was not recorded, so it may be a retry; ",
            1 => "the stack of one of them was not recorded, so it may be a retry; ",
            uncertain if uncertain == releases.empty_cache => {
                "their stacks were not recorded, so all of them may be retries; "
            }
            uncertain => &format!("the stacks of {uncertain} of them were not recorded, so these may be retries; "),
        };
        let simulated = if releases.empty_cache == 1 {
            "the call is simulated at its recorded position"
        } else {
            "each call is simulated at its recorded position"
        };
        parts.push(format!("{calls} to empty_cache ({doubt}{simulated})"));
    }
    if releases.retries > 0 {
        parts.push(format!("{} of cached memory before a retry", count(releases.retries, "release")));
    }
    if releases.uncertain > 0 {
        parts.push(match releases.uncertain {
            1 if releases.retries == 1 => "which has no stack and may be a call to empty_cache".to_owned(),
            1 => "1 of which has no stack and may be a call to empty_cache".to_owned(),
            more => format!("{more} of which have no stack and may be calls to empty_cache"),
        });
    }
    // A retry is simulated also if it releases nothing.
    let simulated = device.runs.first().and_then(|run| run.outcome.as_ref()).map_or(0, |outcome| outcome.retries);
    let without = if releases.retries > 0 && simulated > u64::from(releases.retries) {
        "; a retry that frees nothing is not recorded"
    } else {
        ""
    };
    (!parts.is_empty()).then(|| format!("recorded: {}{without}", parts.join(", ")))
}

pub fn limits(device: &DeviceSimulation) -> Vec<String> {
    let mut lines: Vec<String> = notes::anomalies(&device.anomalies).into_iter().collect();
    lines.extend(warnings(device.runs.iter()));
    lines.extend(device.expandable_conflicts.iter().map(|why| format!("expandable_segments:True: {why}")));
    lines.extend(doubts(device.runs.iter()));
    lines
}

/// Problems of a recording or of its settings.
pub fn alarms(device: &DeviceSimulation) -> Vec<String> {
    let recorded = device.runs.iter().filter(|run| run.is_recorded);
    notes::anomalies(&device.anomalies).into_iter().chain(warnings(recorded)).collect()
}

/// Problems of settings, each once: what a release lacks for all runs, others with the first of the runs that has them.
fn warnings<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<String> {
    let mut seen: Vec<SettingsWarning> = Vec::new();
    let mut lines = Vec::new();
    for run in runs {
        for &warning in &run.warnings {
            if seen.contains(&warning) {
                continue;
            }
            seen.push(warning);
            let text = notes::settings_warning(warning);
            lines.push(match warning {
                SettingsWarning::SinceRelease(..) => text,
                _ => format!("{}: {text}", name(run)),
            });
        }
    }
    lines
}

/// Why runs are not exact.
pub fn doubts<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for run in runs {
        let reason = match run.trust {
            Trust::Predicted => format!("rows marked predicted may not be exact: {}", run.because),
            Trust::Uncertain => format!("rows marked uncertain: {}", run.because),
            Trust::Exact | Trust::Refused => continue,
        };
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

/// Bytes from which on every device is large enough, with a sign if fewer may be enough.
pub fn needs(run: &Run) -> String {
    match (run.needs(), run.capacities.safe) {
        (Some(bytes), Some(_)) => Bytes(bytes).to_string(),
        (Some(bytes), None) => format!("<= {}", Bytes(bytes)),
        (None, _) => "-".to_owned(),
    }
}

fn needed(run: &Run) -> String {
    let bytes = Bytes(run.needs().unwrap_or(0));
    if run.capacities.safe.is_some() { bytes.to_string() } else { format!("at most {bytes}") }
}

/// What the column of needed bytes is.
pub const NEEDS: &str =
    "needs: any device with at least this much memory, on top of what CUDA itself uses, is large enough";

pub const RETRIES: &str =
    "retries: how many times the allocator frees its cached memory and tries again, which synchronizes the device";

/// What the columns of bytes are; pinned host memory has no device.
pub fn columns(device: &DeviceSimulation) -> Option<String> {
    let place = if device.capacity.is_some() { "on this device" } else { "on a device without a limit" };
    (device.device != HOST_DEVICE).then(|| format!("{NEEDS}; reserved: max_memory_reserved() {place}"))
}

/// What the column of inactive bytes is.
pub const INACTIVE: &str = "inactive: the highest value after any request or free, often not at the peak";

/// Why a program needs more than was reserved, if any does.
pub fn beyond(device: &DeviceSimulation) -> impl Iterator<Item = &'static str> {
    let is_beyond = |fails: bool| {
        let of_kind = device.runs.iter().filter_map(|run| Some((run.outcome.as_ref()?, run.needs()?)));
        let mut of_kind = of_kind.filter(|(outcome, _)| outcome.failure().is_some() == fails);
        of_kind.any(|(outcome, needs)| needs > outcome.max_reserved)
    };
    let fails = is_beyond(true).then_some(
        "the needs column exceeds the reserved column where a request fails on this device: reserved does not include the request that failed",
    );
    let starts_late = (device.completeness.has_baseline && is_beyond(false)).then_some(
        "the needs column exceeds the reserved column where a smaller device could not hold the free segments that the recording starts with",
    );
    fails.into_iter().chain(starts_late)
}

/// What the sign means.
pub const AT_MOST: &str = "<=: this much is enough; not all smaller sizes were tried";

/// The maximum of reserved memory, as a range if it depends on addresses.
pub fn reserved(run: &Run) -> String {
    match (&run.outcome, run.reserved_range) {
        (Some(_), Some((least, most))) => range(least, most),
        (Some(outcome), None) => Bytes(outcome.max_reserved).to_string(),
        (None, _) => "-".to_owned(),
    }
}

/// The effect of other settings on a recording, for answers with a line about it. `None` if the effect is too
/// small.
pub fn settings_advice(advice: &SettingsAdvice) -> Option<String> {
    let better = advice.better.as_ref()?;
    let (with, predicted) = (with(&better.alloc_conf), doubt(better.trust));
    let reserved = Bytes(better.reserved);
    Some(if advice.refused > 0 {
        let refused = count(advice.refused as u64, "failed request");
        let retries = match better.retries {
            0 => String::new(),
            retries => format!("; {} would be retried, which stalls the program", count(retries, "request")),
        };
        format!(
            "{with} would have served the {refused} on the same device, with {reserved} reserved{retries}{predicted}"
        )
    } else {
        format!("{with} would reserve {reserved} instead of {}{predicted}", Bytes(advice.recorded_reserved))
    })
}

/// The reserved memory with other settings at the instant of an answer, instead of the recorded bytes.
pub fn settings_then(advice: &SettingsAdvice) -> String {
    match &advice.better {
        Some(better) => format!(
            "{} would reserve {} here instead of {}{}",
            with(&better.alloc_conf),
            Bytes(better.reserved),
            Bytes(advice.recorded_reserved),
            doubt(better.trust)
        ),
        None => format!(
            "memviz simulated {}: none reserves significantly less here (memviz simulate FILE --sweep also shows which fit a smaller device)",
            count(advice.tried as u64, "other allocator setting")
        ),
    }
}

/// The allocator with the settings of an effect, as a phrase.
fn with(alloc_conf: &str) -> String {
    match alloc_conf.trim() {
        "" => "the allocator with default settings".to_owned(),
        conf => format!("the allocator with {conf}"),
    }
}

fn doubt(trust: Trust) -> &'static str {
    if trust == Trust::Exact { "" } else { " (predicted)" }
}

/// The bound below every row; changes to the program may go below it.
pub fn bound(device: &DeviceSimulation) -> Option<String> {
    let live = device.live_bytes.filter(|_| device.changed().is_none())?;
    let why = match device.device {
        // For pinned host memory, the requests are not recorded.
        HOST_DEVICE => {
            "the least that live blocks could have requested at the peak: the recording contains the sizes of blocks, which may be \
             requests rounded up to powers of two"
        }
        _ => "the peak of the bytes that live blocks requested, each rounded up",
    };
    Some(format!("no setting can go below {}, {why}", Bytes(live)))
}

/// Assumptions of the changes to the program, and their effect on allocated memory.
pub fn changes(device: &DeviceSimulation) -> Vec<String> {
    let Some((recorded, changed)) = device.runs.first().zip(device.changed()) else { return Vec::new() };
    let Some((before, after)) = recorded.outcome.as_ref().zip(changed.outcome.as_ref()) else { return Vec::new() };
    let (allocated, reserved) = (Bytes(after.max_allocated), Bytes(after.max_reserved));
    let peak = match (before.failure(), after.failure()) {
        (Some(_), Some(entry)) => {
            format!("predicted: the program runs out of memory with the changes too, at entry {entry}")
        }
        (None, Some(entry)) => {
            format!("predicted: the program runs out of memory only with the changes, at entry {entry}")
        }
        (Some(_), None) => format!(
            "{}: max_memory_allocated {allocated}, max_memory_reserved {reserved}; the program without the changes runs out of \
             memory",
            changed.trust.name(),
        ),
        (None, None) => format!(
            "{}: max_memory_allocated {allocated} instead of {}, max_memory_reserved {reserved} instead of {}",
            changed.trust.name(),
            Bytes(before.max_allocated),
            Bytes(before.max_reserved),
        ),
    };
    let assumed = changed.assumptions.iter().map(|assumption| format!("assumed: {assumption}"));
    std::iter::once(peak).chain(assumed).collect()
}

/// The command for settings.
pub fn export(alloc_conf: &str) -> String {
    match alloc_conf.trim() {
        "" => format!("unset {VARIABLE}"),
        conf => format!("export {VARIABLE}={conf}"),
    }
}

/// The recommendation for several devices, which share the settings of their process: a sentence, and the settings.
pub fn shared(report: &SimulateReport) -> (String, Option<String>) {
    let for_gpus = report.for_all();
    let gpu = report.compared().next().filter(|_| report.compared().nth(1).is_none());
    let host = report.devices.iter().find(|device| device.device == HOST_DEVICE);
    let alone = [gpu, host].into_iter().flatten().filter_map(DeviceSimulation::best);
    let all = for_gpus.iter().map(|it| it.alloc_conf).chain(alone.map(|best| best.alloc_conf.as_str()));
    let all: Vec<&str> = all.collect();
    let text = match &for_gpus {
        _ if all.is_empty() => "none of these settings saves memory on all of them together".to_owned(),
        Some(SharedSettings { before: u64::MAX, after, .. }) => {
            format!("in total, they reserve {} with:", Bytes(*after))
        }
        Some(SharedSettings { before, after, .. }) => {
            format!("in total, they reserve {} instead of {} with:", Bytes(*after), Bytes(*before))
        }
        None => "set these for all devices together:".to_owned(),
    };
    let settings: Vec<&str> = all.iter().copied().filter(|conf| !conf.trim().is_empty()).collect();
    let export = (!all.is_empty()).then(|| export(&settings.join(",")));
    (format!("all devices of a process share {VARIABLE}; {text}"), export)
}

/// The recommendation if no settings reserve significantly less, and settings to export for a smaller device, if any.
pub fn advice(device: &DeviceSimulation) -> Option<(String, Option<String>)> {
    if device.runs.len() < 2 || device.changed().is_some() {
        return None;
    }
    let works = |run: &Run| run.outcome.as_ref().is_some_and(|outcome| outcome.failure().is_none());
    if let Some(capacity) = device.capacity.filter(|_| !device.runs.iter().any(works)) {
        let least = device.runs.iter().filter_map(|run| Some((run.needs()?, run))).min_by_key(|&(needs, _)| needs);
        let least = least
            .map_or(String::new(), |(needs, run)| format!("{} needs the least, {}, but ", name(run), Bytes(needs)));
        let text =
            format!("does not fit with any of these settings: {least}the allocator can use only {}", Bytes(capacity));
        return Some((text, None));
    }
    if device.best().is_some() {
        return None;
    }
    if let Some((least, needs)) = device.least() {
        let text = format!(
            "none of these settings reserves significantly less; to run with as little as {} for the allocator, set:",
            Bytes(needs)
        );
        return Some((text, Some(export(&least.alloc_conf))));
    }
    let these = if device.has_notable_warned() { "the settings without a warning" } else { "these settings" };
    Some((format!("none of {these} saves more than 2%"), None))
}
