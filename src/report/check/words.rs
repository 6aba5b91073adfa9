//! What reports say about budgets, in words; the same in every format.

use crate::analysis::check::CheckReport;
use crate::analysis::check::{Amount, Basis, Check, CheckKind, CheckVerdict};
use crate::analysis::leaks::MIN_STEPS;
use crate::facts::code::sites::NO_STACK;
use crate::facts::doubts::Doubt;
use crate::model::bytes::Bytes;
use crate::model::{CPU_DEVICE, DeviceId, Format, HOST_DEVICE};
use crate::report::common::json::InputHead;
use crate::report::common::notes;
use crate::report::common::words::count;
use indexmap::IndexMap;

/// One input and its result. The recording itself need not be kept.
#[derive(Clone, Debug)]
pub struct CheckedInput {
    pub path: String,
    /// The data that every answer has about its input, and the checks; or why the input could not be read.
    pub answer: Result<(InputHead<'static>, CheckReport), String>,
}

impl CheckedInput {
    /// Its checks; none if it could not be read.
    pub fn checks(&self) -> &[Check] {
        self.answer.as_ref().map(|(_, report)| report.checks.as_slice()).unwrap_or_default()
    }

    pub fn verdict(&self) -> CheckVerdict {
        self.answer.as_ref().map_or(CheckVerdict::Unknown, |(_, report)| report.verdict())
    }

    pub fn notes(&self) -> Vec<String> {
        let Ok((head, report)) = &self.answer else { return Vec::new() };
        let mut lines = head.notes.clone();
        for device in &report.devices {
            let failed = (device.failed_requests > 0).then(|| {
                format!("{}: the program may need more than was measured", notes::failures(device.failed_requests))
            });
            let own = notes::device(&device.peak).into_iter().chain(failed);
            lines.extend(own.map(|line| format!("{}: {line}", notes::device_name(device.peak.device))));
        }
        lines
    }
}

/// The verdict about several inputs together: unknown if any is unknown, otherwise failed if any failed.
pub fn verdict(inputs: &[CheckedInput]) -> CheckVerdict {
    let has = |verdict| inputs.iter().any(|input| input.verdict() == verdict);
    match (has(CheckVerdict::Unknown), has(CheckVerdict::Failed)) {
        (true, _) => CheckVerdict::Unknown,
        (_, true) => CheckVerdict::Failed,
        _ => CheckVerdict::Passed,
    }
}

/// The result for one input: `2 of 3 budgets exceeded, 1 cannot be judged`.
pub fn summary(checks: &[Check]) -> String {
    let number = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let budgets = checks.len() - number(CheckVerdict::Shown);
    let all = count(budgets as u64, "budget");
    match (number(CheckVerdict::Failed), number(CheckVerdict::Unknown)) {
        (0, 0) if checks.is_empty() => "measured, no budget set".to_owned(),
        (0, 0) if budgets == 0 => "compared with the baseline, no budget set".to_owned(),
        (0, 0) if budgets == 1 => "1 budget met".to_owned(),
        (0, 0) if budgets == 2 => "both budgets met".to_owned(),
        (0, 0) => format!("all {all} met"),
        (_, 0) if budgets == 1 => "1 budget exceeded".to_owned(),
        (0, _) if budgets == 1 => "1 budget cannot be judged".to_owned(),
        (failed, 0) => format!("{failed} of {all} exceeded"),
        (0, unknown) => format!("{unknown} of {all} cannot be judged"),
        (failed, unknown) => format!("{failed} of {all} exceeded, {unknown} cannot be judged"),
    }
}

/// The name of a check, with its entry in front: `train step: max-peak`, `max-site attention\.py`.
pub fn name(check: &Check) -> String {
    let kind = match &check.kind {
        CheckKind::MaxSite(which) | CheckKind::MaxResidue(which) => format!("{} {which}", check.kind.name()),
        kind => kind.name().to_owned(),
    };
    match &check.budget {
        Some(budget) => format!("{budget}: {kind}"),
        None => kind,
    }
}

/// The device of a budget in a table: its number, or the kind of host memory.
pub fn device(check: &Check) -> String {
    match check.device {
        Some(CPU_DEVICE) => "cpu".to_owned(),
        Some(HOST_DEVICE) => "pinned".to_owned(),
        Some(device) => device.to_string(),
        None => "-".to_owned(),
    }
}

/// The same, followed by the device.
pub fn title(check: &Check) -> String {
    match check.device {
        Some(device) => format!("{} on {}", name(check), lower_first(&notes::device_name(device))),
        None => name(check),
    }
}

/// The same below the path of the input. An entry of `memviz.toml` without a name has the name of its input.
pub fn title_below(path: &str, check: &Check) -> String {
    let title = title(check);
    let named = title.strip_prefix(path).and_then(|rest| rest.strip_prefix(": ")).map(str::to_owned);
    named.unwrap_or(title)
}

/// `Device 0` in the middle of a sentence; `CPU memory` stays.
fn lower_first(name: &str) -> String {
    match name.strip_prefix("Device").or(name.strip_prefix("Pinned")) {
        Some(rest) => format!("{}{rest}", name[..name.len() - rest.len()].to_ascii_lowercase()),
        None => name.to_owned(),
    }
}

/// An amount as shown; `-` if there is none.
pub fn amount(amount: Option<Amount>) -> String {
    match amount {
        Some(Amount::Bytes(bytes)) => Bytes(bytes).to_string(),
        Some(Amount::Share(share)) => percent(share),
        None => "-".to_owned(),
    }
}

/// The measured value; a bound has its sign in front.
pub fn measured(check: &Check) -> String {
    let (measured, bound) = check.measured();
    let sign = match bound {
        Some("lower") => "\u{2265} ",
        Some(_) => "\u{2264} ",
        None => "",
    };
    format!("{sign}{}", amount(measured))
}

/// The remaining budget, with its sign; `-` if the check was not judged.
pub fn headroom(check: &Check) -> String {
    if let Some(bytes) = check.headroom_bytes() {
        let size = Bytes(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
        // The more memory was in use, the less is left.
        let bound = match check.measured().1 {
            Some("lower") => "\u{2264} ",
            Some(_) => "\u{2265} ",
            None => "",
        };
        return format!("{bound}{}{size}", if bytes < 0 { "-" } else { "+" });
    }
    match (check.limit, check.measured().0) {
        (Some(Amount::Share(limit)), Some(Amount::Share(share))) => {
            let sign = if check.verdict == CheckVerdict::Failed { "-" } else { "+" };
            format!("{sign}{:.2} points", (limit - share).abs() * 100.0)
        }
        _ => "-".to_owned(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// By how much a limit was exceeded, to the byte: `4.15 GiB (4453794816 bytes), 1 byte over 4.15 GiB`.
pub fn excess(check: &Check) -> String {
    let (measured, limit) = (measured(check), amount(check.limit));
    match (check.measured().0, check.headroom_bytes()) {
        (Some(Amount::Bytes(bytes)), Some(headroom)) => {
            let over = headroom.unsigned_abs();
            let over = match u64::try_from(over) {
                Ok(1) => "1 byte".to_owned(),
                Ok(over) => Bytes(over).to_string(),
                Err(_) => format!("{over} bytes"),
            };
            let exact = if bytes < 1024 { String::new() } else { format!(" ({bytes} bytes)") };
            let least = if check.measured().1 == Some("lower") { "at least " } else { "" };
            let what = if check.verdict == CheckVerdict::Shown { "baseline" } else { "limit" };
            format!("{measured}{exact}, {least}{over} over the {what} of {limit}")
        }
        _ => format!("{measured}, more than the limit of {limit}"),
    }
}

/// The meaning of the bytes of the sites that caused an exceeded limit.
pub fn basis(check: &Check) -> &'static str {
    match check.culprits.basis {
        Basis::Held => "what holds it",
        Basis::Grown => "what grew since the baseline",
        Basis::Reserved => "what the segments were reserved for",
        Basis::Pinned => "what keeps free memory from being released",
        Basis::Leaked => "what leaks, per step",
        Basis::Born => "what is left behind",
    }
}

pub fn star(check: &Check) -> Option<&'static str> {
    check.culprits.sites.iter().any(|site| site.inferred).then_some(notes::INFERRED_SITE)
}

/// A note that other answers show lines of a library instead of some of these sites.
pub fn library_below(check: &Check) -> Option<String> {
    notes::other_lines(&check.culprits.library_below)
}

/// The note about a limit on sites that matches no site: most likely a mistake in the expression.
pub fn no_match(check: &Check) -> Option<&'static str> {
    (check.matching_sites == Some(0)).then_some("matches no recorded site that holds memory at the peak")
}

/// The meaning of sites without a stack, if a row of a snapshot has them.
pub(crate) fn no_stacks(input: &CheckedInput, check: &Check) -> Option<&'static str> {
    let is_snapshot = input.answer.as_ref().is_ok_and(|(head, _)| head.format == Format::CudaSnapshot.name());
    (is_snapshot && check.culprits.sites.iter().any(|site| site.label == NO_STACK)).then_some(notes::NO_STACKS)
}

/// What an exceeded limit on sites does not count.
pub(crate) fn not_counted(check: &Check) -> Option<String> {
    let unknown = check.doubt.as_ref().filter(|doubt| matches!(doubt, Doubt::UnknownStacks(_)))?;
    Some(format!("\u{2265}: {}", doubt(unknown)))
}

/// The checks that cannot be judged for the same reason, on the same device: their names, and the reason.
pub(crate) fn unknown(checks: &[Check]) -> Vec<(String, String)> {
    let mut groups: IndexMap<(Option<DeviceId>, String), Vec<&Check>> = IndexMap::new();
    for check in checks.iter().filter(|check| check.verdict == CheckVerdict::Unknown) {
        // What makes the peak uncertain is also why the figures at the peak are.
        let because = check.doubt.as_ref().map(|doubt| match doubt {
            Doubt::PeakNotExact(inner) => inner,
            doubt => doubt,
        });
        groups.entry((check.device, because.map(doubt).unwrap_or_default())).or_default().push(check);
    }
    let told = |((_, because), checks): ((Option<DeviceId>, String), Vec<&Check>)| {
        let Some((last, others)) = checks.split_last() else { return (String::new(), because) };
        let others: Vec<String> = others.iter().map(|check| name(check)).collect();
        match others.as_slice() {
            [] => (title(last), last.doubt.as_ref().map(doubt).unwrap_or_default()),
            others => (format!("{} and {}", others.join(", "), title(last)), because),
        }
    };
    groups.into_iter().map(told).collect()
}

/// A line about the sites that are not named.
pub fn left_out(check: &Check) -> Option<String> {
    match check.culprits.left_out {
        0 => None,
        number => Some(count(number as u64, "more site")),
    }
}

/// Why a figure is not known exactly.
#[allow(clippy::too_many_lines, reason = "a sentence for each doubt")]
pub fn doubt(doubt: &Doubt) -> String {
    match doubt {
        Doubt::NothingRecorded => {
            "nothing was allocated on any device while recording, or recording was off".to_owned()
        }
        Doubt::NoGpuMemory => {
            "kernels ran on a GPU, but its memory was not recorded; --device -2 judges the memory of the CPU".to_owned()
        }
        Doubt::NoSuchDevice(known) if known.is_empty() => "the recording has no data on any device".to_owned(),
        Doubt::NoSuchDevice(known) => {
            let known: Vec<String> = known.iter().map(i32::to_string).collect();
            format!("the recording has no such device; it has {}", known.join(", "))
        }
        Doubt::Contradicts(number) => {
            let noun = if *number == 1 { "anomaly" } else { "anomalies" };
            format!("the recording contradicts itself ({number} {noun})")
        }
        Doubt::CountersDiffer => {
            "the recorded counters of PyTorch differ from those of the entries, so entries are missing or wrong; info lists them".to_owned()
        }
        Doubt::DeviceMissing(device) => {
            format!("PyTorch counted memory on device {device}, and the file contains nothing else of it")
        }
        Doubt::NoCounters => {
            "the file lacks PyTorch's own counters, which torch_memviz.record writes, so it may lack its beginning".to_owned()
        }
        Doubt::NoHistory => "no history was recorded, and only the state at dump time is known".to_owned(),
        Doubt::Overflowed => "the ring buffer dropped entries, and memory may have been higher before the recorded part".to_owned(),
        Doubt::RingFull => {
            "the ring buffer is full and may have dropped entries, and memory may have been higher before the recorded part".to_owned()
        }
        Doubt::LostBeginning => {
            "earlier entries are missing, because a ring buffer dropped them or recording was paused (some blocks or segments from before the start of the \
             recording have stacks), and memory may have been higher before the recorded part"
                .to_owned()
        }
        Doubt::LateStart => {
            "memory was in use at the start of the recording (it started late, or a ring buffer dropped earlier entries), \
             so the peak may have been earlier; with --accept-late-start, memviz judges only the recorded part"
                .to_owned()
        }
        Doubt::CutOff => "the file was cut off, and memory may have been higher in the missing part".to_owned(),
        Doubt::WhileProfiling => "PyTorch counts CPU memory only while a profiler is on, so other memory is missing".to_owned(),
        Doubt::NoTotals => "the trace has no running totals, so the memory in use before it is unknown".to_owned(),
        Doubt::Sampled => "memory is known at some instants only; it may have been higher in between".to_owned(),
        Doubt::UnrecordedFrees => {
            "PyTorch 2.0 does not record frees of blocks from before the recording: the true value may be higher"
                .to_owned()
        }
        Doubt::FreedLeftOut => {
            "the page shows no freed block: trace_plot -f leaves them out, and memory may have been higher".to_owned()
        }
        Doubt::NoFreeRequested => "free_requested was not recorded: the true value may be lower".to_owned(),
        Doubt::UncertainSizes(bytes) => {
            let bytes = Bytes(*bytes);
            format!(
                "the sizes of some blocks from before the recording are unknown: the true value may be up to {bytes} higher"
            )
        }
        Doubt::NoReserved => "a memory timeline does not record reserved memory".to_owned(),
        Doubt::PeakNotExact(inner) => format!("the instant of the peak is not known exactly: {}", self::doubt(inner)),
        Doubt::UnknownStacks(bytes) => {
            let bytes = Bytes(*bytes);
            format!(
                "{bytes} at the peak has no Python stack (backward has none) or is from before the recording, and may belong \
                 to these sites"
            )
        }
        Doubt::TooFewSteps(0) => "no steps were found; --steps names the annotations that mark them".to_owned(),
        Doubt::TooFewSteps(steps) => {
            format!("{} found; record {MIN_STEPS} or more", count(*steps as u64, "step"))
        }
        Doubt::UnknownLeaks(bytes) => {
            format!("{} that steps leave behind has no stack, and may be part of a leak", Bytes(*bytes))
        }
        Doubt::LostLeaks(bytes) => {
            let bytes = Bytes(*bytes);
            format!(
                "{bytes} that steps leave behind has the same stack as older blocks whose entries were lost, and may be part of a leak"
            )
        }
        Doubt::EmptySteps(steps) => {
            let steps = count(*steps as u64, "step");
            format!("{steps} found, but without entries; annotations and entries may use different clocks")
        }
        Doubt::Refused(reason) => reason.clone(),
        Doubt::UnknownAction(action) => {
            format!("entries with the unknown action {action:?} were skipped; a newer version of memviz may know it")
        }
        Doubt::UnknownKey(key) => format!("the unknown key {key} was ignored; a newer version of memviz may know it"),
        Doubt::Malformed(what) => what.clone(),
        Doubt::NoSettings => {
            "the allocator settings are missing, although this release of PyTorch writes them, and sizes depend on them"
                .to_owned()
        }
        Doubt::MemoryLeftOut(events) => format!("{} left out", were(*events)),
        Doubt::SizesFromValues(place) => {
            format!("rehearsed; some sizes depend on values read from the device, which a rehearsal does not know ({place})")
        }
        Doubt::UncertainWorkspaces(bytes) => {
            let bytes = Bytes(*bytes);
            format!("rehearsed; some workspaces that cuDNN planned without a device may be up to {bytes} larger")
        }
        Doubt::Followed => {
            "more data follows the recording in the same file, and only the recording was read".to_owned()
        }
        Doubt::NoStacks => "recorded without stacks, so a ring buffer may have dropped entries unnoticed, and memory \
                            may have been higher before the recorded part"
            .to_owned(),
        Doubt::SegmentsNotRecorded => {
            "blocks from before the recording are in segments that were never recorded: the true value may be higher"
                .to_owned()
        }
        Doubt::LooseSites => "the recording does not show reliably which lines its memory belongs to".to_owned(),
        Doubt::NoLines => {
            "no stack of the recording names a file, so it does not show which lines hold memory".to_owned()
        }
        Doubt::NotInBaseline => "the baseline does not have this device".to_owned(),
        Doubt::OnlyInBaseline => "the baseline has this device, and the recording has no data on it".to_owned(),
        Doubt::BaselineNotExact => "the baseline's own figure is not exact".to_owned(),
    }
}

/// `1 memory event was`, `2 memory events were`.
fn were(events: u64) -> String {
    format!("{} {}", count(events, "memory event"), if events == 1 { "was" } else { "were" })
}
