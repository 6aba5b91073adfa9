//! Memory left behind between two instants.

use super::budget::ResidueLimit;
use super::measure::Measured;
use crate::analysis::diff::lives::{self, LivesOfGroup};
use crate::error::{Error, Result};
use crate::facts::device::{Device, Devices};
use crate::facts::doubts::{self, Doubt, Leaves};
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Inference};
use crate::facts::time::when::{Purpose, When};
use crate::replay::{Instant, Metric};

/// Memory allocated between two instants and live at the second one.
pub(super) struct Residue {
    pub(super) measured: Measured,
    pub(super) sites: Vec<LivesOfGroup>,
}

/// Measures it. The history before the first instant does not matter if that instant is known. A late start may be
/// accepted, as for other limits.
pub(super) fn of(
    recording: &Devices<'_>,
    device: &Device<'_>,
    limit: &ResidueLimit,
    accepts_late_start: bool,
) -> Residue {
    let unknown = |doubt| Residue { measured: Measured::unknown(doubt), sites: Vec::new() };
    let between = match instants(device, limit).and_then(|between| hold_entries(recording, limit, between)) {
        Ok(between) => between,
        Err(error) => return unknown(Doubt::Refused(error.to_string())),
    };
    let is_counted = |when: &When| !matches!(when, When::Entry(_) | When::Time(_) | When::Annotation(_) | When::End);
    let depends_on_start = between.0 == 0 || [&limit.from, &limit.to].into_iter().any(is_counted);
    let completeness = &device.history().completeness;
    let doubt = match doubts::of_device(device.track) {
        Some((doubt, Leaves::Nothing)) => Some(doubt),
        _ if completeness.no_entries => Some(Doubt::NoHistory),
        _ if completeness.truncated => Some(Doubt::CutOff),
        _ if completeness.sampled => Some(Doubt::Sampled),
        // The start, the peak and the steps refer to the kept history.
        Some((doubt, _)) if depends_on_start => Some(doubt),
        _ if depends_on_start && !accepts_late_start => doubts::late_start(device.track),
        _ => None,
    };
    if let Some(doubt) = doubt {
        return unknown(doubt);
    }
    let filter = Filter::default();
    let grouper = Grouper::new(device, device.sites(), &filter, GroupBy::Site);
    let grouper = grouper.inferring(device, Inference::On, Metric::Allocated);
    let (all, sites) = lives::of_groups(&grouper, Metric::Allocated, between);
    let bytes = all.born.bytes;
    let measured = if completeness.no_free_requested {
        Measured { at_least: None, at_most: Some(bytes), doubt: Some(Doubt::NoFreeRequested) }
    } else {
        Measured::exact(bytes)
    };
    Residue { measured, sites }
}

/// Refuses instants between which no device has an entry: nothing can be left behind there, so every limit would be met. If
/// only this device was idle, that is an answer.
fn hold_entries(
    recording: &Devices<'_>,
    limit: &ResidueLimit,
    (from, to): (Instant, Instant),
) -> Result<(Instant, Instant)> {
    let has_entries = |device: &Device<'_>| instants(device, limit).is_ok_and(|(from, to)| from < to);
    if from < to || recording.all().iter().any(has_entries) {
        return Ok((from, to));
    }
    let between = &limit.between;
    Err(Error::Request(format!("expected a range with entries in it, found {between}, which is empty")))
}

fn instants(device: &Device<'_>, limit: &ResidueLimit) -> Result<(Instant, Instant)> {
    let from = device.instant(&limit.from, Metric::Allocated, Purpose::At)?;
    let to = device.instant(&limit.to, Metric::Allocated, Purpose::At)?;
    if from > to {
        let (between, id) = (&limit.between, device.id());
        return Err(Error::Request(format!(
            "expected the earlier instant first on device {id}, found {between}; swap them"
        )));
    }
    Ok((from, to))
}
