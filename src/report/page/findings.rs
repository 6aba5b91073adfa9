//! Findings in words: why memory ran out, how devices differ, and what leaks.

use super::Page;
use crate::analysis::leaks::DeviceLeaks;
use crate::analysis::leaks::growth::Verdict;
use crate::analysis::ledger::DeviceLedger;
use crate::analysis::oom::{DeviceOoms, Oom};
use crate::analysis::peak::comparison::Comparison;
use crate::analysis::peak::comparison::GroupShares;
use crate::model::bytes::Bytes;
use crate::report::common::comparison::words as comparison;
use crate::report::common::notes::{self, device_name, signed};
use crate::report::common::words::{cause, count, starred};
use crate::report::leaks::words as leaks;
use crate::report::ledger::words as ledger_words;
use crate::report::oom::words as oom_words;

/// Failed requests shown in full; later ones mostly repeat them.
const OOMS: usize = 3;
const LEAKS: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub title: String,
    pub lines: Vec<String>,
    pub is_failure: bool,
}

/// Failed requests with their causes, what else uses the devices, how devices differ, then leaks; empty if there are none.
pub fn findings(page: &Page<'_>) -> Vec<Finding> {
    let ooms = page.overview.oom.devices.iter().flat_map(failures);
    let ooms = ooms.chain(page.overview.ledgers.iter().map(whole_device));
    let leaks = page.overview.leaks.devices.iter().filter_map(leak);
    ooms.chain(page.overview.peak.comparison.as_ref().map(differ)).chain(leaks).collect()
}

/// What uses the memory of a device when most of it is in use. The bytes add up to the bytes in use.
pub fn whole_device(device: &DeviceLedger) -> Finding {
    let rows = device.highest().map(|ledger| ledger.rows.as_slice()).unwrap_or_default();
    let lines = rows.iter().map(|row| format!("{} {}", signed(row.bytes), row.holder.label()));
    Finding {
        title: ledger_words::headline(device),
        lines: lines.chain(ledger_words::doubts(device)).collect(),
        is_failure: false,
    }
}

/// Which device holds the most, and what causes the difference.
pub fn differ(comparison: &Comparison) -> Finding {
    let columns = comparison::columns(comparison, usize::MAX);
    let line = |row: &GroupShares| {
        let share =
            |&index: &usize| format!("{} on {}", Bytes(row.bytes[index]), comparison::column(comparison, index));
        let shares: Vec<String> = columns.iter().map(share).collect();
        format!("{}: {}", starred(&row.label, row.inferred), shares.join(", "))
    };
    Finding {
        title: comparison::headline(comparison),
        lines: comparison.rows.iter().map(line).collect(),
        is_failure: false,
    }
}

fn failures(device: &DeviceOoms) -> impl Iterator<Item = Finding> {
    let told = device.ooms.iter().take(OOMS).map(|oom| failure(device, oom));
    let more = device.failed.saturating_sub(device.ooms.len().min(OOMS));
    let name = device_name(device.device);
    let more = (more > 0).then(|| Finding {
        title: format!("{name}: {} failed", count(more as u64, "more request")),
        lines: Vec::new(),
        is_failure: true,
    });
    told.chain(more)
}

pub fn failure(device: &DeviceOoms, oom: &Oom) -> Finding {
    let name = device_name(device.device);
    let (bytes, cause) = (Bytes(oom.request.bytes), cause(oom.cause.name()));
    let place = notes::position(&oom.moment, device.entries, &device.completeness);
    let mut lines = vec![format!("{} ({place})", oom_words::requester(oom))];
    lines.extend(oom.evidence.iter().map(|evidence| oom_words::evidence(oom, evidence).text));
    Finding { title: format!("{name}: out of memory, {bytes} requested; cause: {cause}"), lines, is_failure: true }
}

pub fn leak(device: &DeviceLeaks) -> Option<Finding> {
    let leaking = device.rows.iter().filter(|row| row.verdict == Verdict::Leak);
    let sites = leaking
        .take(LEAKS)
        .map(|row| format!("{}: {}", starred(&row.label, row.inferred), leaks::behavior(device, row)));
    let sites: Vec<String> = sites.collect();
    if sites.is_empty() {
        return None;
    }
    let facts = leaks::steps(device).into_iter().chain(leaks::course(device));
    let facts = facts.chain(leaks::full(device));
    let title = format!("{}: {}", device_name(device.device), leaks::headline(device));
    Some(Finding { title, lines: facts.chain(sites).collect(), is_failure: false })
}
