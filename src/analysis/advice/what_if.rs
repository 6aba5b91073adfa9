//! The cures of a device, and its memory over time with some of them.

use super::trial::Trial;
use super::{Advice, Plays, Remedy, Saving, found};
use crate::analysis::scene::Column;
use crate::error::{Error, Result};
use crate::facts::device::Device;
use crate::play::changes::{Edited, Lives};
use crate::play::{Setup, over_time};
use crate::replay::Metric;
use std::borrow::Cow;

/// A device with its list of cures, of which any can be tried.
pub struct WhatIf<'d, 'a> {
    device: &'d Device<'a>,
    found: Option<(Trial<'d, 'a>, Vec<(Advice, Remedy)>)>,
}

/// A counter at every instant of a recording, as it would have been.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverTime {
    /// Bytes right after each instant.
    after: Vec<u64>,
    /// The most bytes since the instant before.
    highest: Vec<u64>,
}

impl<'d, 'a> WhatIf<'d, 'a> {
    /// The cures of a device.
    pub fn of(device: &'d Device<'a>, plays: Plays) -> Self {
        Self { device, found: found(device, plays, |_| true) }
    }

    fn list(&self) -> &[(Advice, Remedy)] {
        self.found.as_ref().map_or(&[], |(_, list)| list)
    }

    /// The list, as [`super::advice`] has it.
    pub fn advice(&self) -> impl Iterator<Item = &Advice> {
        self.list().iter().map(|(advice, _)| advice)
    }

    /// Whether one of the list can be tried together with others.
    pub fn combines(&self, place: usize) -> bool {
        matches!(self.list().get(place), Some((_, Remedy::Lives(_))))
    }

    /// What some of the list save together; `None` where that is too little to mention.
    ///
    /// # Errors
    /// As [`WhatIf::over_time`].
    pub fn saving(&self, chosen: &[usize]) -> Result<Option<Saving>> {
        let (trial, remedy) = self.chosen(chosen)?;
        Ok(match chosen {
            &[one] => self.list().get(one).map(|(advice, _)| advice.saving.clone()),
            _ => trial.saving(&remedy),
        })
    }

    /// A counter over time with some of the list. `None` for active and requested memory: a simulation completes each free where
    /// it is requested, not entries later. `None` for reserved memory where the recording starts with free segments: what an
    /// earlier part of the program left there cannot be compared. Elsewhere, reserved memory depends on where the driver places
    /// segments, so it may grow at other requests than in the recording.
    ///
    /// # Errors
    /// When the list has no such cure, one of them cannot be simulated, or not together with others.
    pub fn over_time(&self, metric: Metric, chosen: &[usize]) -> Result<Option<OverTime>> {
        let (trial, remedy) = self.chosen(chosen)?;
        let (testbed, edited, settings) = trial.changed(&remedy).map_err(Error::Request)?;
        let is_known = match metric {
            Metric::Allocated => true,
            Metric::Active | Metric::Requested => false,
            Metric::Reserved => testbed.program.without_cache().is_none(),
        };
        Ok(is_known.then(|| self.play(metric, &edited, &testbed.setup(&settings))))
    }

    /// The trial, and one remedy for all that is chosen.
    fn chosen(&self, chosen: &[usize]) -> Result<(&Trial<'d, 'a>, Cow<'_, Remedy>)> {
        let wrong = |message: &str| Error::Request(message.to_owned());
        let none = || wrong("expected places in the list of cures, found another");
        let (trial, list) = self.found.as_ref().ok_or_else(none)?;
        let remedy = |&place: &usize| list.get(place).map(|(_, remedy)| remedy).ok_or_else(none);
        let remedies: Vec<&Remedy> = chosen.iter().map(remedy).collect::<Result<_>>()?;
        if let [one] = remedies[..] {
            return Ok((trial, Cow::Borrowed(one)));
        }
        let lives = remedies.into_iter().map(|remedy| match remedy {
            Remedy::Lives(lives) => Ok(lives),
            _ => Err(wrong("one of these cures cannot be simulated together with others")),
        });
        let lives: Vec<&Lives> = lives.collect::<Result<_>>()?;
        Ok((trial, Cow::Owned(Remedy::Lives(Lives::merged(lives.into_iter())))))
    }

    fn play(&self, metric: Metric, edited: &Edited, setup: &Setup) -> OverTime {
        let history = self.device.history();
        let last = history.entries() as usize;
        let mut curve = OverTime { after: Vec::with_capacity(last + 1), highest: vec![0; last + 1] };
        let mut now = 0;
        let mut at = 0;
        over_time(&edited.program, setup, metric, |step, after, highest| {
            // What was not recorded here happens right after the instant before.
            let instant = step.map_or(0, |step| edited.recorded_instant(step, history).unwrap_or(step.entry) as usize);
            at = instant.clamp(at, last);
            if curve.after.len() < at {
                curve.after.resize(at, now);
            }
            curve.highest[at] = curve.highest[at].max(highest);
            now = after;
        });
        curve.after.resize(last + 1, now);
        // Where nothing happens there is what there was before, and a highest value is never below what stays.
        for (highest, after) in curve.highest.iter_mut().zip(&curve.after) {
            *highest = (*highest).max(*after);
        }
        curve
    }
}

impl OverTime {
    /// The most bytes in each column of a part of the recording, given those that [`Scene::instants`] has.
    ///
    /// [`Scene::instants`]: crate::analysis::scene::Scene::instants
    pub fn columns(&self, columns: &[Column]) -> Vec<u64> {
        columns.iter().map(|column| self.most(column)).collect()
    }

    fn most(&self, &Column { first, last, begins_before }: &Column) -> u64 {
        let (first, end) = (first as usize, (last as usize).saturating_add(1).min(self.highest.len()));
        // What a column begins with is what was left by what happened before.
        let carried = self.after.get(first).copied().filter(|_| begins_before).unwrap_or(0);
        let within = first + usize::from(begins_before);
        self.highest.get(within..end).unwrap_or_default().iter().copied().fold(carried, u64::max)
    }

    /// The most bytes at any time.
    pub fn peak(&self) -> u64 {
        self.highest.iter().copied().max().unwrap_or(0)
    }
}
