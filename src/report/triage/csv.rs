//! The triage as CSV: a line for each figure.

use crate::analysis::triage::{Finding, TriageReport};
use crate::replay::Metric;
use crate::report::common::csv::{Lines, cell};
use crate::report::common::fixes;
use std::io::{self, Write};

const HEAD: &str = "device,kind,label,bytes,inferred";

pub(crate) fn write(report: &TriageReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    for device in &report.devices {
        let number = device.peak.device.to_string();
        let mut line = |kind: &str, label: &str, bytes: String, inferred: bool| {
            csv.line([&number, kind, &cell(label), &bytes, &inferred.to_string()])
        };
        for metric in Metric::ALL {
            line("held", metric.name(), device.peak.at.get(metric).to_string(), false)?;
        }
        if let Some(failure) = &device.failure {
            line("failed_request", failure.cause.name(), failure.requested_bytes.to_string(), false)?;
        }
        for (kind, rows) in [("category", &device.categories.rows), ("site", &device.peak.attribution.rows)] {
            for row in rows {
                line(kind, &row.label, row.bytes.to_string(), row.inferred)?;
            }
        }
        for advice in &device.advice {
            line(
                &format!("advice_{}", advice.kind.name()),
                &fixes::change(advice),
                advice.saving.most().to_string(),
                false,
            )?;
        }
        for finding in &device.findings {
            match finding {
                Finding::Fragmentation { pinned_free, .. } => {
                    line("fragmentation", "", pinned_free.to_string(), false)?;
                }
                Finding::Stranded(stranded) => {
                    line(
                        "stranded",
                        stranded.first_used.as_deref().unwrap_or_default(),
                        stranded.free_bytes.to_string(),
                        false,
                    )?;
                }
                Finding::Free { free, .. } => line("free", "", free.to_string(), false)?,
                Finding::Growth { is_leak, label, inferred, bytes_per_step, .. } => {
                    let kind = if *is_leak { "leak_per_step" } else { "growth_per_step" };
                    line(kind, label, bytes_per_step.to_string(), *inferred)?;
                }
                Finding::Activations { bytes, .. } => {
                    line("activations", "", bytes.to_string(), true)?;
                }
            }
        }
        if let Some((settings, better)) = device.settings.as_ref().and_then(|it| Some((it, it.better.as_ref()?))) {
            let saved = settings.recorded_reserved.saturating_sub(better.reserved);
            line("settings", &better.alloc_conf, saved.to_string(), false)?;
        }
    }
    csv.end()
}
