//! Which part of a history a timeline shows large.

use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::error::Result;
use crate::facts::device::{Device, Devices};
use crate::facts::time::when::When;
use crate::facts::training::Phase;
use crate::model::Action;
use crate::replay::{History, Instant};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StepSpan {
    /// Where the first step starts: at the first forward pass, or at the start of the recording.
    pub start: Instant,
    pub ends: Vec<Instant>,
    /// Number of steps: those of all answers. More ends are of what follows the last step, such as a step that the recording
    /// does not contain in full.
    pub known: usize,
}

impl StepSpan {
    /// The steps; a single one if only the activity of the program is known. `None` if that is unknown, too.
    pub fn of(device: &Device<'_>) -> Option<Self> {
        let spans = &device.phases().spans;
        let works = |phase| matches!(phase, Phase::Forward | Phase::Backward | Phase::Optimizer);
        let known = device.steps().map(|steps| steps.ends.clone()).unwrap_or_default();
        let start = spans.iter().find(|span| span.phase == Phase::Forward).map(|span| span.start);
        let start = start.filter(|&start| known.first().is_none_or(|&end| start < end));
        let start = start.or_else(|| known.first().map(|_| 0))?;
        let last_work = spans.iter().rev().find(|span| works(span.phase)).map_or(0, |span| span.end);
        let actions = device.track.actions();
        let last_oom =
            actions.iter().rposition(|&action| action == Action::Oom).map_or(0, |entry| entry as Instant + 1);
        let (mut ends, known) = (known.clone(), known.len());
        // What follows the last step is shown like a step if it does the work of one.
        let end = last_work.max(last_oom);
        if ends.last().is_none_or(|&last| last < end) {
            ends.push(end);
        }
        Some(Self { start, ends, known })
    }

    pub fn end(&self) -> Instant {
        self.ends.last().copied().unwrap_or(self.start)
    }

    /// The step that contains an instant, counted from 1, and its start and end, if there are several; no number for what
    /// follows the last step.
    pub fn around(&self, instant: Instant) -> Option<(Option<usize>, (Instant, Instant))> {
        let step = self.ends.partition_point(|&end| end < instant);
        let end = *self.ends.get(step).filter(|_| self.ends.len() > 1 && instant >= self.start)?;
        let start = step.checked_sub(1).map_or(self.start, |before| self.ends[before]);
        Some(((step < self.known).then_some(step + 1), (start, end)))
    }
}

/// The peak of each device, or its first failed request if there is one in the window and nothing else is requested.
pub(crate) fn peaks_or_failures(recording: &Devices<'_>, options: &PeakOptions) -> Result<PeakReport> {
    let mut report = PeakReport::of(recording, options)?;
    if options.at.is_some() {
        return Ok(report);
    }
    for peak in &mut report.devices {
        let Some(failed) = recording.get(peak.device).and_then(|device| first_failure(device, peak)) else { continue };
        let at = Some(When::Entry(failed));
        let at_failure = PeakOptions { at, devices: vec![peak.device], ..options.clone() };
        if let Some(found) = PeakReport::of(recording, &at_failure)?.devices.pop() {
            *peak = found;
        }
    }
    Ok(report)
}

/// The entry of the first failed request within the window of a peak.
fn first_failure(device: &Device<'_>, peak: &DevicePeak) -> Option<u32> {
    let (from, to) = peak.window.unwrap_or((0, device.history().entries()));
    let actions = device.track.actions().get(from as usize..to as usize)?;
    let entry = actions.iter().position(|&action| action == Action::Oom)?;
    History::entry_before(from + entry as Instant + 1)
}
