//! The JSON of `memviz triage`.

use crate::analysis::triage::{DeviceTriage, Failure, Finding, TriageReport};
use crate::facts::grouping::attribution::Attribution;
use crate::play::SettingsAdvice;
use crate::report::Source;
use crate::report::common::cures::AdviceRow;
use crate::report::common::json::{CounterBytes, Head};
use crate::report::common::notes;
use crate::report::triage::words;
use serde::Serialize;

/// `memviz triage`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TriageDevice<'a> {
    /// Device, -1 for pinned host memory, -2 for memory of the CPU.
    pub device: i32,
    /// The verdict, in a sentence.
    pub verdict: String,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// What is missing, in words.
    pub notes: Vec<String>,
    /// The entry that leads to the selected instant: the first failed request, or the peak; null if there is none.
    pub entry: Option<u32>,
    /// The part of a training step; null if unknown.
    pub phase: Option<&'static str>,
    /// The step, counted from 1; null if unknown.
    pub step: Option<usize>,
    /// Counters at that instant.
    pub at: CounterBytes,
    /// Bytes of the device, from its samples or the device properties of a trace; null if unknown.
    pub device_bytes: Option<u64>,
    /// The first failed request; null if none failed.
    pub failure: Option<Failure>,
    /// The memory, by category.
    pub categories: &'a Attribution,
    /// The sites that hold the most; the rest are one row.
    pub sites: &'a Attribution,
    /// What deserves a closer look.
    pub findings: Vec<FindingRow>,
    /// Changes to the program, the largest saving first.
    pub advice: Vec<AdviceRow>,
    /// Why there is nothing to change, in words; null if there is something, or if unknown.
    pub nothing: Option<String>,
}

/// Something that deserves a closer look.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingRow {
    /// The kind of finding.
    pub kind: FindingKind,
    /// Bytes of the finding; per step for leaks and growth.
    pub bytes: i64,
    /// The site of the finding; null if it concerns all sites.
    pub label: Option<String>,
    /// The same in words.
    pub text: String,
    /// The command that shows more.
    pub command: &'static str,
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Free memory that live blocks keep reserved, or much free memory if no history was recorded.
    Fragmentation,
    /// Free memory that only one side stream or pool can use.
    Stranded,
    /// Blocks that are never freed.
    Leak,
    /// Blocks that accumulate.
    Growth,
    /// Memory that activation checkpointing could free.
    Activations,
    /// Reserved memory that other allocator settings save; the label is their string.
    Settings,
}

pub(crate) fn triage<'a>(source: Source<'a>, report: &'a TriageReport) -> Head<'a, TriageDevice<'a>> {
    let devices = report.devices.iter().map(TriageDevice::from).collect();
    Head::of::<TriageReport>(source, report.comparison.as_ref(), devices)
}

impl<'a> From<&'a DeviceTriage> for TriageDevice<'a> {
    fn from(device: &'a DeviceTriage) -> Self {
        let peak = &device.peak;
        let settings = device.settings.as_ref().and_then(FindingRow::of_settings);
        Self {
            device: peak.device,
            verdict: words::verdict(device),
            complete_history: peak.completeness.is_complete(),
            notes: notes::device(peak),
            entry: peak.entry,
            phase: device.during.phase.map(crate::facts::training::Phase::name),
            step: device.during.step,
            at: (&peak.at).into(),
            device_bytes: device.device_bytes,
            failure: device.failure,
            categories: &device.categories,
            sites: &peak.attribution,
            findings: device.findings.iter().map(|found| FindingRow::of(device, found)).chain(settings).collect(),
            advice: device.advice.iter().map(AdviceRow::from).collect(),
            nothing: device.nothing.as_ref().map(words::nothing),
        }
    }
}

impl FindingRow {
    fn of(device: &DeviceTriage, finding: &Finding) -> Self {
        let words::Line { text, command, .. } = words::found_on(device, finding);
        let (kind, bytes, label) = match finding {
            Finding::Fragmentation { pinned_free, .. } => (FindingKind::Fragmentation, *pinned_free as i64, None),
            Finding::Stranded(stranded) => {
                (FindingKind::Stranded, stranded.free_bytes as i64, stranded.first_used.clone())
            }
            Finding::Free { free, .. } => (FindingKind::Fragmentation, *free as i64, None),
            Finding::Growth { is_leak, label, bytes_per_step, .. } => {
                let kind = if *is_leak { FindingKind::Leak } else { FindingKind::Growth };
                (kind, *bytes_per_step, Some(label.clone()))
            }
            Finding::Activations { bytes, .. } => (FindingKind::Activations, *bytes as i64, None),
        };
        Self { kind, bytes, label, text, command }
    }

    /// Other allocator settings, with the bytes that they save.
    fn of_settings(settings: &SettingsAdvice) -> Option<Self> {
        let words::Line { text, command, .. } = words::settings(settings)?;
        let better = settings.better.as_ref()?;
        let bytes = settings.recorded_reserved.saturating_sub(better.reserved) as i64;
        Some(Self { kind: FindingKind::Settings, bytes, label: Some(better.alloc_conf.clone()), text, command })
    }
}
