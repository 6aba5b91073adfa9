//! Findings, in the words of the commands that report them, each with its location.

use super::json;
use crate::analysis::advice::{Advice, Changes, Saving, WhatIf};
#[cfg(feature = "view")]
use crate::analysis::advice::{FixSearch, Simulate};
use crate::analysis::checkpoint::{CheckpointOptions, CheckpointReport};
use crate::analysis::fragmentation::{FragmentationOptions, FragmentationReport};
use crate::analysis::leaks::{DeviceLeaks, LeakOptions, LeakReport};
use crate::analysis::ledger::LedgerReport;
use crate::analysis::oom::{DeviceOoms, OomOptions, OomReport};
use crate::analysis::triage::{DeviceTriage, Finding, TriageOptions, TriageReport};
use crate::error::Result;
use crate::facts::device::Devices;
use crate::facts::time::when::When;
use crate::model::{CPU_DEVICE, DeviceId};
#[cfg(feature = "view")]
use crate::parallel;
use crate::replay::Instant;
use crate::report::common::fixes;
use crate::report::oom::words as oom;
use crate::report::page::{findings as page, verdict};
use crate::report::triage::words as triage;
use crate::sorting::SortRows;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Found {
    kind: &'static str,
    severity: &'static str,
    device: DeviceId,
    sentence: String,
    lines: Vec<String>,
    code: Vec<String>,
    command: &'static str,
    options: &'static str,
    instant: Option<Instant>,
    from: Option<Instant>,
    to: Option<Instant>,
    /// The cure, if the finding has one.
    cure: Option<Cure>,
    /// Other cures of the same mistake, each instead of this one.
    alternatives: Vec<Other>,
}

/// A cure instead of another one.
#[derive(Serialize)]
struct Other {
    sentence: String,
    lines: Vec<String>,
    code: Vec<String>,
    cure: Option<Cure>,
}

#[derive(Serialize)]
struct Cure {
    /// Its place in the list of its device; alternatives follow the list.
    place: usize,
    /// Whether it can be combined with others.
    combines: bool,
    saves_allocated_bytes: u64,
    saves_reserved_bytes: u64,
}

const ALARM: &str = "alarm";
const NOTE: &str = "note";
const OOMS: usize = 10;

/// All findings, computed at once: a page contains them, so that it shows them before its engine has found them again.
///
/// # Errors
/// Like the analyses that it runs.
#[cfg(feature = "view")]
pub(crate) fn all_findings(devices: &Devices<'_>) -> Result<String> {
    let cures = parallel::map(devices.all(), |device| {
        let mut search = FixSearch::of(device, Simulate::All);
        while search.step() {}
        (device.id(), search.finish())
    });
    findings(devices, &cures.into_iter().collect())
}

/// All findings; the most important device is first.
///
/// # Errors
/// Like the analyses that it runs.
pub fn findings(devices: &Devices<'_>, cures: &BTreeMap<DeviceId, WhatIf<'_, '_>>) -> Result<String> {
    let changes = |cures: &WhatIf<'_, '_>| Changes { advice: cures.advice().cloned().collect(), rescue: None };
    let advice = cures.iter().map(|(&device, cures)| (device, changes(cures))).collect();
    let (options, leaks) = (TriageOptions::default(), LeakReport::of(devices, &LeakOptions::default())?);
    let report = TriageReport::without_advice(devices, &options, &leaks)?.with_advice(advice);
    let ooms = OomReport::of(devices, &OomOptions::default().explained(Some(OOMS)))?;
    let mut order: Vec<usize> = (0..report.devices.len()).collect();
    order.sort_rows_by_key(|&index| index != report.first);
    let mut found = Vec::new();
    for device in order.into_iter().filter_map(|index| report.devices.get(index)) {
        let id = device.peak.device;
        // A profiler trace of a GPU also has the CPU's memory, often a few bytes: the page shows it, but it is no finding.
        let is_aside = id == CPU_DEVICE && report.devices.iter().any(|other| other.peak.device != CPU_DEVICE);
        if !is_aside {
            found.push(Found {
                sentence: triage::verdict(device),
                command: "triage",
                ..Found::new("verdict", device.failure.is_some(), device)
            });
        }
        if let Some(ooms) = ooms.devices.iter().find(|ooms| ooms.device == id) {
            failures(device, ooms, &mut found);
        }
        found.extend(LedgerReport::known(devices, &[id]).iter().map(|ledger| {
            let page::Finding { title, lines, .. } = page::whole_device(ledger);
            Found { sentence: title, lines, command: "ledger", ..Found::new("ledger", false, device) }
        }));
        let list = cures.get(&id);
        let advice = device.advice.iter().enumerate();
        found.extend(advice.map(|(place, advice)| cure(device, advice, list.map(|list| (list, place)))));
        for finding in &device.findings {
            found.push(match finding {
                Finding::Fragmentation { .. } | Finding::Stranded(_) | Finding::Free { .. } => {
                    fragmentation(devices, device, finding)
                }
                Finding::Growth { .. } => growth(device, &leaks, finding),
                Finding::Activations { .. } => activations(devices, device, finding)?,
            });
        }
    }
    if let (Some(comparison), Some(first)) = (&report.comparison, report.devices.get(report.first)) {
        let page::Finding { title, lines, .. } = page::differ(comparison);
        found.push(Found { sentence: title, lines, command: "peak", ..Found::new("devices", false, first) });
    }
    Ok(json(&found))
}

impl Found {
    fn new(kind: &'static str, is_alarm: bool, device: &DeviceTriage) -> Self {
        Self {
            kind,
            severity: if is_alarm { ALARM } else { NOTE },
            device: device.peak.device,
            sentence: String::new(),
            lines: Vec::new(),
            code: Vec::new(),
            command: "",
            options: "",
            instant: Some(device.peak.instant),
            from: None,
            to: None,
            cure: None,
            alternatives: Vec::new(),
        }
    }

    /// The same, in the words of the triage.
    fn said(self, finding: &Finding) -> Self {
        let triage::Line { text, command, options } = triage::finding(finding);
        Self { sentence: text, command, options, ..self }
    }
}

fn failures(device: &DeviceTriage, ooms: &DeviceOoms, found: &mut Vec<Found>) {
    for failed in ooms.ooms.iter().take(OOMS) {
        let page::Finding { title, mut lines, .. } = page::failure(ooms, failed);
        lines.extend(failed.advice.iter().map(|advice| oom::advice(failed, advice).text));
        let instant = Some(failed.moment.instant);
        found.push(Found { sentence: title, lines, command: "oom", instant, ..Found::new("oom", true, device) });
    }
}

fn cure(device: &DeviceTriage, advice: &Advice, list: Option<(&WhatIf<'_, '_>, usize)>) -> Found {
    let cure = list.and_then(|(list, place)| Cure::of(&advice.saving, list, place));
    let mut lines = vec![fixes::effect(advice), advice.evidence.clone()];
    if device.failure.is_some() {
        lines.push(fixes::INCLUDES.to_owned());
    }
    Found {
        sentence: fixes::change(advice),
        lines,
        code: advice.code.clone(),
        cure,
        alternatives: list.map_or_else(Vec::new, |(list, place)| alternatives(list, place)),
        ..Found::new("advice", false, device)
    }
}

fn alternatives(list: &WhatIf<'_, '_>, place: usize) -> Vec<Other> {
    let places = (list.advice().count()..).zip(list.alternatives());
    let of_place = places.filter(|(_, (instead_of, _))| *instead_of == place);
    let other = of_place.map(|(own, (_, other))| Other {
        sentence: other.change.clone(),
        lines: vec![fixes::saves(&other.saving)],
        code: other.code.clone(),
        cure: Cure::of(&other.saving, list, own),
    });
    other.collect()
}

impl Cure {
    /// The simulation; `None` if it was not possible.
    fn of(saving: &Saving, list: &WhatIf<'_, '_>, place: usize) -> Option<Self> {
        let Saving::Simulated { allocated, reserved, .. } = saving else { return None };
        let (saves_allocated_bytes, saves_reserved_bytes) = (allocated.by(), reserved.by());
        Some(Self { place, combines: list.combines(place), saves_allocated_bytes, saves_reserved_bytes })
    }
}

/// The free memory that live blocks keep reserved at the instant of the triage.
fn fragmentation(devices: &Devices<'_>, device: &DeviceTriage, finding: &Finding) -> Found {
    let said = Found::new("fragmentation", false, device).said(finding);
    let options = FragmentationOptions {
        at: Some(device.failure.map_or(When::Peak, |_| When::Oom)),
        top: Some(1),
        devices: vec![device.peak.device],
        ..FragmentationOptions::default()
    };
    let report = FragmentationReport::of(devices, &options).ok();
    let instant = report.and_then(|report| Some(report.devices.first()?.moment.instant));
    Found { instant: instant.or(said.instant), ..said }
}

/// Memory that grows, from the first counted end of a step to the last one.
fn growth(device: &DeviceTriage, leaks: &LeakReport, finding: &Finding) -> Found {
    let is_leak = matches!(finding, Finding::Growth { is_leak: true, .. });
    let said = Found::new(if is_leak { "leak" } else { "growth" }, false, device).said(finding);
    let of_device = |leaks: &&DeviceLeaks| leaks.device == device.peak.device;
    let Some(leaks) = leaks.devices.iter().find(of_device) else { return said };
    let lines = page::leak(leaks).map(|finding| finding.lines).unwrap_or_default();
    let from = leaks.ends.first().map(|end| end.instant);
    Found { lines, from, to: leaks.ends.last().map(|end| end.instant), ..said }
}

/// The memory of activations, and the best that checkpointing can do about it.
fn activations(devices: &Devices<'_>, device: &DeviceTriage, finding: &Finding) -> Result<Found> {
    let lines = if let Some(known) = &device.checkpoint {
        verdict::savings(known).into_iter().collect()
    } else {
        let options = CheckpointOptions::best_in_brief(vec![device.peak.device]);
        CheckpointReport::of(devices, &options)?.devices.iter().filter_map(verdict::savings).collect()
    };
    Ok(Found { lines, ..Found::new("activations", false, device).said(finding) })
}
