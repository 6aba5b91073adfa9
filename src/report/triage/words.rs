//! Sentences of the triage.

use crate::Recording;
use crate::analysis::oom::Cause;
use crate::analysis::triage::{DeviceTriage, Failure, Finding, LeftBehind, Nothing};
use crate::facts::code::sites::NO_STACK;
use crate::facts::training::{Category, Phase};
use crate::model::CPU_DEVICE;
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use crate::report::checkpoint::words as checkpointed;
use crate::report::common::advice::{Advice, advice};
use crate::report::common::code_change;
use crate::report::common::next::Next;
use crate::report::common::notes::{self, device_name, safe, signed};
use crate::report::common::words::{category, count, share, starred};
use crate::report::ledger::words as ledger;
use crate::report::simulate::words as simulate;
use crate::simulation::SettingsAdvice;

pub(crate) struct Line {
    pub text: String,
    pub command: &'static str,
    pub options: &'static str,
}

impl Line {
    fn new(text: impl Into<String>, command: &'static str) -> Self {
        Self { text: text.into(), command, options: "" }
    }
}

/// The verdict on a device, in a sentence without a full stop.
pub(crate) fn verdict(device: &DeviceTriage) -> String {
    let peak = &device.peak;
    if is_negligible(device) {
        let most = signed(peak.at.get(Metric::Allocated));
        return format!("No GPU memory was recorded, and next to no CPU memory: {most} at its peak");
    }
    let during = during(device);
    let mut text = match &device.failure {
        Some(failure) => format!("Out of memory{during}{}: {}", first_of(failure), failed(failure)),
        // That there is no history is a note.
        None if peak.completeness.no_entries => {
            format!("{} is allocated at dump time", signed(peak.at.get(Metric::Allocated)))
        }
        None if peak.has_only_markers => {
            let allocated = signed(peak.at.get(Metric::Allocated));
            format!(
                "Nothing was allocated or freed while recording, as far as entries were kept: {allocated} allocated"
            )
        }
        None if peak.is_single() => {
            format!("Only one entry was kept: {} allocated", signed(peak.at.get(Metric::Allocated)))
        }
        None if peak.is_early(Metric::Allocated) => {
            let allocated = signed(peak.at.get(Metric::Allocated));
            format!("The recording starts at its peak of {allocated} allocated")
        }
        None => format!("Peak of {} allocated{during}", signed(peak.at.get(Metric::Allocated))),
    };
    if let Some(row) = device.categories.rows.first().filter(|row| row.label != Category::Unknown.name()) {
        let is_old = row.label == Category::BeforeRecording.name();
        let what = if is_old { "from before the recording" } else { category(&row.label) };
        // A failed request is preceded by other figures: this one says what the share refers to.
        let base = if device.failure.is_some() { " of allocated memory" } else { "" };
        text += &format!("; {}{base} is {what}", share(row.bytes, device.categories.total_bytes));
    }
    if let Some(bytes) = device.findings.iter().find_map(leaked) {
        text += &format!("; leaks {} per step", signed(bytes));
    }
    safe(&text)
}

/// Whether this is CPU memory of a profiler trace of which so little was recorded that nothing follows from it.
pub(crate) fn is_negligible(device: &DeviceTriage) -> bool {
    device.peak.device == CPU_DEVICE && device.peak.at.get(Metric::Allocated).max(0).unsigned_abs() < LITTLE
}

/// What to record to see the category of most of the memory, if it is unknown: a sentence without a full stop.
fn would_show(device: &DeviceTriage) -> Option<&'static str> {
    let bytes_of = |category: Category| {
        let row = device.categories.rows.iter().find(|row| row.label == category.name());
        row.map_or(0, |row| row.bytes)
    };
    let unknown = bytes_of(Category::Unknown);
    let most = unknown.saturating_add(bytes_of(Category::BeforeRecording));
    // A change that saves some of it shows more about its use.
    let is_most = most > device.categories.total_bytes / 2 && device.advice.is_empty();
    (is_most && unknown > 0).then_some(if device.has_phases {
        "neither stacks nor the phases of the steps show what most of the memory is for"
    } else {
        "neither stacks nor the order of entries shows what most of the memory is for; annotations named \"forward\", \
         \"backward\" and \"optimizer\" (torch.profiler.record_function) would show it"
    })
}

/// Bytes that a leak leaves behind in each step.
pub(crate) fn leaked(finding: &Finding) -> Option<i64> {
    match finding {
        Finding::Growth { is_leak: true, bytes_per_step, .. } => Some(*bytes_per_step),
        _ => None,
    }
}

/// The phase and the step: ` in the backward pass of step 3`.
fn during(device: &DeviceTriage) -> String {
    let (phase, of) = match device.during.phase {
        Some(Phase::Optimizer) => ("in the optimizer phase", "of"),
        Some(Phase::Data) => ("while loading data", "in"),
        Some(Phase::Forward) => ("in the forward pass", "of"),
        Some(Phase::Backward) => ("in the backward pass", "of"),
        Some(Phase::Other) | None => return String::new(),
    };
    // Annotated steps have names, which are in the line below; programs count them from 0 or 1.
    match device.during.step.filter(|_| device.peak.annotations.is_empty()) {
        Some(step) => format!(" {phase} {of} step {step}"),
        None => format!(" {phase}"),
    }
}

/// What else used the device when a request failed, if it is known.
pub(crate) fn outside(device: &DeviceTriage) -> Vec<String> {
    device.ledger.as_ref().and_then(ledger::outside).into_iter().collect()
}

/// Which one is described if several requests failed.
fn first_of(failure: &Failure) -> String {
    let failures = count(failure.failed_requests as u64, "failed request");
    match failure.failed_requests {
        ..=1 => String::new(),
        _ if failure.is_all_kept => {
            format!(
                " (the first of {failures}; before the next one, next to nothing was freed: something keeps the first attempt)"
            )
        }
        _ => format!(" (the first of {failures})"),
    }
}

fn failed(failure: &Failure) -> String {
    let Failure { driver_bytes, cause, is_limited, .. } = *failure;
    let (requested, device_free, capacity) =
        (failure.requested_bytes, failure.device_free_bytes, failure.capacity_bytes);
    let is_segment_too_large = device_free >= requested;
    let segment = format!(": a new segment takes {}, and no inactive block is large enough", Bytes(driver_bytes));
    let too_little =
        format!(": a new segment takes {}, which is too much even with inactive memory", Bytes(driver_bytes));
    let [requested, device_free, capacity] = [requested, device_free, capacity].map(Bytes);
    let there = if is_limited && cause == Cause::Unknown {
        "of device memory that nothing else uses"
    } else {
        "that PyTorch can use"
    };
    let free = format!("tried to allocate {requested}, {device_free} free of the {capacity} {there}");
    let why = match cause {
        Cause::Capacity if is_segment_too_large => &too_little,
        Cause::Capacity => ": not enough, even with inactive memory",
        Cause::Fragmentation if is_segment_too_large => &segment,
        Cause::Fragmentation => ": enough with inactive memory, but fragmented",
        Cause::PrivatePool => {
            ": enough with inactive memory, but the request's private pool cannot use that of other pools"
        }
        Cause::Leak => "; accumulating memory fills the device",
        Cause::OtherProcess => ": another process on the device holds memory",
        Cause::Limit => ": the process is limited to part of the device",
        Cause::Unknown if is_limited => ": a limit on the process probably caused the failure",
        Cause::Unknown => "",
    };
    format!("{free}{why}")
}

/// What a device holds and has reserved, for a line below the verdict.
pub(crate) fn held(device: &DeviceTriage) -> String {
    if device.peak.is_empty() {
        return notes::headline(&device.peak);
    }
    let [allocated, reserved] = [Metric::Allocated, Metric::Reserved].map(|metric| device.peak.at.get(metric));
    // The memory of the CPU, memory timelines and profiles of one instant have no reserved bytes.
    let is_known = reserved != 0 || allocated == 0;
    let reserved = if is_known { format!(", {} reserved", signed(reserved)) } else { String::new() };
    let all = device.device_bytes.map(|all| format!(" ({})", Bytes(all))).unwrap_or_default();
    format!("{}{all}: {} allocated{reserved}", device_name(device.peak.device), signed(allocated))
}

/// What a device holds at its peak, for a device of which nothing else is shown.
pub(crate) fn held_at_peak(device: &DeviceTriage) -> String {
    let held = held(device);
    match &device.peak {
        peak if peak.is_empty() => held,
        peak if peak.completeness.no_entries => format!("{held} at dump time"),
        _ => format!("{held} at its peak"),
    }
}

/// The maximum of reserved memory elsewhere in the recording, if it is higher: savings are relative to it, except those that make
/// room for a failed request.
pub(crate) fn most_reserved(device: &DeviceTriage) -> Option<String> {
    let most = device.peak.maxima[Metric::Reserved as usize].bytes;
    let shown = [device.peak.at.reserved, most].map(signed);
    (device.failure.is_none() && most > device.peak.at.reserved && shown[0] != shown[1])
        .then(|| format!("max reserved {}", shown[1]))
}

/// The text if no change is recommended.
pub(crate) struct Otherwise<'d> {
    /// How to record more.
    pub better: Option<Advice>,
    /// What to record to see the use of most of the memory; `None` for the text of the lines that record more.
    pub would_show: Option<&'static str>,
    /// Why there is nothing to change, if the rest explains less.
    pub nothing: Option<&'d Nothing>,
}

/// The text for a device if no change is recommended.
pub(crate) fn otherwise<'d>(device: &'d DeviceTriage, recording: &Recording) -> Otherwise<'d> {
    let better = advice(recording);
    // Programs without PyTorch have no ranges to mark.
    let is_foreign = recording.snapshot.notes.format.is_one_instant();
    let would_show = would_show(device).filter(|_| !is_foreign && better.is_none());
    let is_told = better.is_some() || would_show.is_some();
    let nothing = device.nothing.as_ref().filter(|nothing| !is_told || !nothing.is_unknown());
    Otherwise { better, would_show, nothing }
}

/// Less memory is not worth advice on what to reduce.
const LITTLE: u64 = 1 << 20;

pub(crate) fn nothing(nothing: &Nothing) -> String {
    match nothing {
        Nothing::Weights { total, .. } | Nothing::Training { total, .. } | Nothing::Unknown { total, .. }
            if *total < LITTLE =>
        {
            format!("Nothing to change: only {} is allocated", Bytes(*total))
        }
        Nothing::Weights { bytes, total } => format!(
            "No known mistake found. Weights take up {}, {} of allocated memory: a smaller dtype, or fewer weights on this device, \
             would reduce this",
            Bytes(*bytes),
            share(*bytes, *total)
        ),
        Nothing::Training { bytes, states, total } => {
            let (what, less) = if *states > 0 {
                (
                    "Weights, gradients and optimizer state",
                    "an optimizer with less state, or sharding across several GPUs,",
                )
            } else {
                ("Weights and gradients", "sharding across several GPUs")
            };
            let (bytes, share) = (Bytes(*bytes), share(*bytes, *total));
            format!("No known mistake found. {what} are {bytes}, {share} of allocated memory: {less} would reduce this")
        }
        Nothing::Unknown { label, bytes, total, .. } if label == NO_STACK => format!(
            "No known mistake found. The largest share, {} ({}), has no Python stack, as in a backward pass whose lines cannot be \
             inferred",
            Bytes(*bytes),
            share(*bytes, *total)
        ),
        Nothing::Unknown { label, is_of_weights, bytes, total, .. } => {
            let (bytes, share, place) = (Bytes(*bytes), share(*bytes, *total), safe(label));
            let preposition = if label.starts_with("backward of ") { "in" } else { "at" };
            let less = if *is_of_weights { "fewer weights" } else { "smaller inputs" };
            format!(
                "No known mistake found. The largest share, {bytes} ({share}), is allocated {preposition} {place}; {less} \
                 or a smaller dtype there would reduce this"
            )
        }
    }
}

/// The findings of a device, the failed request first.
pub(crate) fn findings(device: &DeviceTriage) -> Vec<Line> {
    let failed = device.failure.iter().map(|_| Line::new("why it failed, and what would have helped", "oom"));
    let planned = device.rescue.as_ref().map(|_| Line::new("what makes it fit", "fit"));
    let found = device.findings.iter().map(|found| found_on(device, found));
    failed.chain(planned).chain(found).chain(device.settings.as_ref().and_then(settings)).collect()
}

/// A finding, with the saving of the best function to checkpoint.
pub(crate) fn found_on(device: &DeviceTriage, found: &Finding) -> Line {
    let mut line = finding(found);
    if line.command == "fragmentation" {
        line.options = if device.failure.is_some() { "--at oom" } else { "--at peak" };
    }
    let checkpoint = device.checkpoint.as_ref().filter(|_| matches!(found, Finding::Activations { .. }));
    if let Some((checkpoint, best)) = checkpoint.and_then(|it| Some((it, it.candidates.first()?))) {
        let function = safe(&code_change::function(&best.label, &best.change));
        line.text += &format!("; with {function} checkpointed: {}", checkpointed::effect(checkpoint, best));
    }
    line
}

pub(crate) fn settings(advice: &SettingsAdvice) -> Option<Line> {
    Some(Line { options: "--sweep", ..Line::new(simulate::settings_advice(advice)?, "simulate") })
}

/// The command that shows what steps leave behind.
pub(crate) fn compared(device: &DeviceTriage, path: &str) -> Option<Next> {
    let LeftBehind { steps: [first, last], instants } = device.left_behind.as_ref()?;
    let [from, to] = instants.each_ref().map(|instant| format!("{path}@{instant}"));
    let steps = if first == last { first.clone() } else { format!("{first} to {last}") };
    Some(Next::new("diff", &[&from, &to], "", format!("what is left behind from {steps}")))
}

pub(crate) fn finding(finding: &Finding) -> Line {
    match finding {
        Finding::Fragmentation { pinned_free, reserved } => Line::new(
            format!(
                "live blocks keep {} of free memory reserved, of {} reserved in total",
                Bytes(*pinned_free),
                Bytes(*reserved)
            ),
            "fragmentation",
        ),
        Finding::Stranded(stranded) => Line::new(notes::stranded(stranded), "fragmentation"),
        Finding::Free { free, reserved } => {
            Line::new(format!("{} of {} reserved is free", Bytes(*free), Bytes(*reserved)), "fragmentation")
        }
        Finding::Growth { is_leak, label, inferred, bytes_per_step, places } => {
            let what = if *is_leak { "leaks" } else { "grows by" };
            let more = if *places > 1 { format!(" and {}", count(places - 1, "more site")) } else { String::new() };
            let place = starred(&safe(label), *inferred);
            Line::new(format!("{what} {} per step at {place}{more}", signed(*bytes_per_step)), "leaks")
        }
        Finding::Activations { bytes, older, total } if older * 2 > *bytes => Line::new(
            format!(
                "activations hold {} ({}), most of them kept by earlier forward passes; run these passes under torch.no_grad() if no \
                 backward follows",
                Bytes(*bytes),
                share(*bytes, *total)
            ),
            "peak",
        ),
        Finding::Activations { bytes, total, .. } => {
            Line::new(format!("activations hold {} ({})", Bytes(*bytes), share(*bytes, *total)), "checkpoint")
        }
    }
}
