//! The JSON of `memviz triage`.

use crate::analysis::triage::{DeviceTriage, Failure, Finding, TriageReport};
use crate::facts::grouping::attribution::Attribution;
use crate::report::Source;
use crate::report::common::fixes::AdviceRow;
use crate::report::common::json::{CounterBytes, Head, keys};
use crate::report::common::notes;
use crate::report::common::rescue::OomFit;
use crate::report::triage::words;
use crate::simulation::SettingsAdvice;
use serde::Serialize;

keys! { schema
    /// `memviz triage`, one device.
    pub struct TriageDevice<'a>(device: &'a DeviceTriage) {
        let peak = &device.peak;
        let settings = device.settings.as_ref().and_then(FindingRow::of_settings);
        /// Device, -1 for pinned host memory, -2 for memory of the CPU.
        pub device: i32 = peak.device,
        /// The verdict, in a sentence.
        pub verdict: String = words::verdict(device),
        /// Whether this device's history is complete.
        pub complete_history: bool = peak.completeness.is_complete(),
        /// What is missing, in words.
        pub notes: Vec<String> = notes::device(peak),
        /// The entry that leads to the selected instant: the first failed request, or the peak; null if there is none.
        pub entry: Option<u32> = peak.entry,
        /// The part of a training step; null if unknown.
        pub phase: Option<&'static str> = device.during.phase.map(crate::facts::training::Phase::name),
        /// The step, counted from 1; null if unknown.
        pub step: Option<usize> = device.during.step,
        /// Counters at that instant.
        pub at: CounterBytes = (&peak.at).into(),
        /// Bytes of the device, from its samples or the device properties of a trace; null if unknown.
        pub device_bytes: Option<u64> = device.device_bytes,
        /// The first failed request; null if none failed.
        pub failure: Option<Failure> = device.failure,
        /// The memory, by category.
        pub categories: &'a Attribution = &device.categories,
        /// The sites that hold the most; the rest are one row.
        pub sites: &'a Attribution = &peak.attribution,
        /// What deserves a closer look.
        pub findings: Vec<FindingRow> =
            device.findings.iter().map(|found| FindingRow::of(device, found)).chain(settings).collect(),
        /// Changes to the program, the largest saving first.
        pub advice: Vec<AdviceRow> = device.advice.iter().map(AdviceRow::of).collect(),
        /// Whether a program that ran out of memory fits, and with what; null if no request failed, or if that takes long.
        pub fit: Option<OomFit> = device.rescue.as_ref().map(|rescue| OomFit::of(rescue, &device.advice)),
        /// Why there is nothing to change, in words; null if there is something, or if unknown.
        pub nothing: Option<String> = device.nothing.as_ref().map(words::nothing),
    }
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
    let devices = report.devices.iter().map(TriageDevice::of).collect();
    Head::of::<TriageReport>(source, report.comparison.as_ref(), devices)
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
