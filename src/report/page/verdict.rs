//! The first part of a report: the verdict, and what can be done about it.

use super::Page;
use crate::analysis::advice::Advice;
use crate::analysis::checkpoint::DeviceCheckpoint;
use crate::analysis::oom::DeviceOoms;
use crate::analysis::triage::{DeviceTriage, Finding};
use crate::model::DeviceId;
use crate::report::checkpoint::words as checkpoint;
use crate::report::common::code_change::function;
use crate::report::common::fixes;
use crate::report::common::notes::device_name;
use crate::report::common::words::count;
use crate::report::fit::single::words as plan;
use crate::report::oom::words as oom;
use crate::report::simulate::words as simulate;
use crate::report::triage::words as triage;
use crate::simulation::SettingsAdvice;
use crate::sorting::SortRows;
use indexmap::IndexMap;

/// Further devices that are listed on one line each.
const OTHERS: usize = 5;

/// The verdict on the device to look at first, in a sentence, and whether it is bad news.
pub fn verdict(page: &Page<'_>) -> Option<(String, bool)> {
    let first = first(page)?;
    let sentence = triage::verdict(first);
    let sentence = match page.overview.triage.devices.len() {
        0 | 1 => sentence,
        _ => format!("{}: {}", device_name(first.peak.device), uncapitalised(&sentence)),
    };
    Some((format!("{sentence}."), first.failure.is_some()))
}

/// A sentence after a colon.
fn uncapitalised(sentence: &str) -> String {
    let mut rest = sentence.chars();
    rest.next().map_or(String::new(), |first| first.to_lowercase().chain(rest).collect())
}

fn first<'p>(page: &Page<'p>) -> Option<&'p DeviceTriage> {
    page.overview.triage.devices.get(page.overview.triage.first)
}

pub fn others(page: &Page<'_>) -> Vec<String> {
    let triage = &page.overview.triage;
    let others = || triage.devices.iter().enumerate().filter(|(index, _)| *index != triage.first);
    let mut lines: Vec<String> = others().take(OTHERS).map(|(_, device)| triage::held_at_peak(device)).collect();
    let more = others().skip(OTHERS).count();
    if more > 0 {
        lines.push(format!("and {}", count(more, "more device")));
    }
    lines
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remedy {
    pub text: String,
    /// The lines of Python that do it; empty if the program decides them, or if another command shows them.
    pub code: Vec<String>,
    /// Alternatives, each with its lines of Python.
    pub others: Vec<(String, Vec<String>)>,
}

impl From<String> for Remedy {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<&Advice> for Remedy {
    fn from(advice: &Advice) -> Self {
        let others = advice.alternatives.iter().map(|other| (fixes::instead(other), other.code.clone()));
        Self { text: fixes::sentence(advice), code: advice.code.clone(), others: others.collect() }
    }
}

/// What the savings mean, if that needs to be said: after a failed request, they are parts of more than the peak.
pub fn meaning(page: &Page<'_>) -> Option<&'static str> {
    let of_failure = |device: &DeviceTriage| device.failure.is_some() && !device.advice.is_empty();
    page.overview.triage.devices.iter().any(of_failure).then_some(fixes::INCLUDES)
}

/// What would help, with its saving; then, in one line, what was tried and would not help. A remedy that helps several
/// devices equally is listed once.
pub fn remedies(page: &Page<'_>) -> Vec<Remedy> {
    let overview = page.overview;
    let mut remedies: IndexMap<String, (Remedy, Vec<DeviceId>)> = IndexMap::new();
    let mut devices: Vec<&DeviceTriage> = overview.triage.devices.iter().collect();
    devices.sort_rows_by_key(|device| first(page).map(|first| first.peak.device) != Some(device.peak.device));
    let mut without_effect: Vec<String> = Vec::new();
    for device in devices {
        let id = device.peak.device;
        let ooms = overview.oom.devices.iter().find(|ooms| ooms.device == id);
        let cures = device.advice.iter().take(fixes::MOST).map(Remedy::from);
        let others = ooms
            .into_iter()
            .flat_map(served)
            .chain(device.checkpoint.as_ref().and_then(savings))
            .chain(leak(device).filter(|_| device.advice.iter().all(|it| !it.kind.piles_up())))
            .chain(device.settings.as_ref().and_then(settings_advice));
        for remedy in cures.chain(others.map(Remedy::from)) {
            let (_, devices) = remedies.entry(remedy.text.clone()).or_insert_with(|| (remedy, Vec::new()));
            if devices.last() != Some(&id) {
                devices.push(id);
            }
        }
        for text in ooms.into_iter().flat_map(not_served) {
            if !without_effect.contains(&text) {
                without_effect.push(text);
            }
        }
    }
    if remedies.is_empty() {
        let reasons = first(page).map_or(Vec::new(), |first| without_remedy(page, first));
        return reasons.into_iter().map(Remedy::from).chain(no_effect(&without_effect)).collect();
    }
    let all = overview.triage.devices.len();
    let of_devices = |(remedy, devices): (Remedy, Vec<DeviceId>)| Remedy {
        text: of_devices(&devices, all) + &remedy.text,
        ..remedy
    };
    remedies.into_values().map(of_devices).chain(no_effect(&without_effect)).collect()
}

/// What was tried, or is often recommended, and does not help: one line.
fn no_effect(without_effect: &[String]) -> Option<Remedy> {
    (!without_effect.is_empty()).then(|| Remedy::from(without_effect.join("; ")))
}

/// Why there is nothing to do, or what would show more.
fn without_remedy(page: &Page<'_>, device: &DeviceTriage) -> Vec<String> {
    let otherwise = triage::otherwise(device, page.source.recording);
    let better = otherwise.better.map(|advice| {
        let code = if advice.code.is_empty() { "" } else { "; memviz record prints code that records more" };
        capitalised(&advice.missing) + code
    });
    let would_show = otherwise.would_show.map(capitalised);
    better.into_iter().chain(would_show).chain(otherwise.nothing.map(triage::nothing)).collect()
}

/// A separate line.
fn capitalised(sentence: &str) -> String {
    let mut rest = sentence.chars();
    rest.next().map_or(String::new(), |first| first.to_uppercase().chain(rest).collect())
}

/// The prefix of a line that applies only to these devices.
fn of_devices(devices: &[DeviceId], all: usize) -> String {
    match devices.len() {
        _ if all == 1 => String::new(),
        number if number == all => "All devices: ".to_owned(),
        _ => devices.iter().map(|&device| device_name(device)).collect::<Vec<_>>().join(", ") + ": ",
    }
}

/// The saving of other allocator settings. The explanation of a failed request states whether they would have served it.
fn settings_advice(advice: &SettingsAdvice) -> Option<String> {
    let text = simulate::settings_advice(advice).filter(|_| advice.refused == 0)?;
    Some(format!("{text}; memviz simulate FILE --sweep tries more settings and shows how to set them"))
}

/// Settings that would have served the first failed request, and changes that would make room for it, in simulation.
fn served(device: &DeviceOoms) -> Vec<String> {
    let room = device.plans.as_ref().and_then(plan::room);
    of_first(device, true).chain(room.map(|room| format!("{room}; memviz fit shows the Python code"))).collect()
}

/// Settings that would not have served it.
fn not_served(device: &DeviceOoms) -> impl Iterator<Item = String> + '_ {
    of_first(device, false)
}

fn of_first(device: &DeviceOoms, helps: bool) -> impl Iterator<Item = String> + '_ {
    let all = device.ooms.first().into_iter().flat_map(|first| first.advice.iter().map(move |advice| (first, advice)));
    all.filter(move |(_, advice)| advice.helps() == helps).map(|(first, advice)| oom::advice(first, advice).text)
}

/// The best candidate for checkpointing, or why there is none.
pub fn savings(device: &DeviceCheckpoint) -> Option<String> {
    let best = device.candidates.first()?;
    let cost = checkpoint::cost(device, best).map_or(String::new(), |cost| format!("; {cost}"));
    Some(format!("checkpoint {}: {}{cost}", function(&best.label, &best.change), checkpoint::effect(device, best)))
}

/// The memory to release: leaks. Longer inputs and caches also grow.
fn leak(device: &DeviceTriage) -> Option<String> {
    let finding = device.findings.iter().find(|finding| matches!(finding, Finding::Growth { is_leak: true, .. }))?;
    Some(format!("free the memory that {}", triage::finding(finding).text))
}
