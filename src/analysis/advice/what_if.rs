//! Predicts what a device would need with some of its fixes, other settings or another size, and its memory over time.

use super::trial::Trial;
use super::{Advice, Alternative, Edit, Finding, Saving, Simulate, best, candidates};
use crate::analysis::scene::Column;
use crate::error::{Error, Result};
use crate::facts::device::Device;
use crate::input::alloc_conf::{parse, rest_of};
use crate::model::{AllocatorSettings, HOST_DEVICE};
use crate::replay::{Instant, Metric};
use crate::simulation::changes::{Change, Edited, Lifetimes};
use crate::simulation::{Program, Run, Setup, Simulator, Step, over_time};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::OnceLock;

options! {
    /// What to try: fixes of the list, other changes of the program, other allocator settings, or another device.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Attempt {
        /// Places in the list of fixes; the alternatives follow the list.
        pub fixes: Vec<usize>,
        /// Changes of the program that are not in the list.
        pub changes: Vec<Change>,
        /// The settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them; `None` for the recorded ones.
        pub alloc_conf: Option<String>,
        /// Bytes of the device: the total capacity in PyTorch's messages.
        pub capacity: Option<u64>,
    }
}

impl Attempt {
    /// Whether this is simulated on a device, as `memviz simulate` does. Fixes alone are measured without one.
    pub(crate) fn has_device(&self) -> bool {
        self.alloc_conf.is_some() || self.capacity.is_some() || !self.changes.is_empty()
    }
}

/// A device with its list of fixes; any of them can be tried, with any settings, on a device of any size.
pub struct WhatIf<'d, 'a> {
    device: &'d Device<'a>,
    trial: OnceLock<Trial<'d, 'a>>,
    list: Vec<(Advice, Edit)>,
}

/// A list of fixes under construction, in parts that take about as long as one simulation.
pub struct FixSearch<'d, 'a> {
    device: &'d Device<'a>,
    simulate: Simulate,
    /// Findings to simulate, once the finders have run.
    waiting: Option<std::vec::IntoIter<Finding>>,
    trial: Option<Trial<'d, 'a>>,
    list: Vec<(Advice, Edit)>,
}

/// A predicted counter at every instant of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverTime {
    /// Bytes right after each instant.
    after: Vec<u64>,
    /// The most bytes since the previous instant.
    highest: Vec<u64>,
}

struct Choice<'t> {
    /// The place that the fix takes in the list: its own, or that of the fix that it replaces.
    instead_of: usize,
    saving: &'t Saving,
    edit: Cow<'t, Edit>,
}

struct Prepared<'t> {
    simulator: Cow<'t, Simulator>,
    edited: Edited,
    settings: AllocatorSettings,
    is_recorded: bool,
}

impl<'d, 'a> FixSearch<'d, 'a> {
    pub fn of(device: &'d Device<'a>, simulate: Simulate) -> Self {
        Self { device, simulate, waiting: None, trial: None, list: Vec::new() }
    }

    /// Does the next part: runs the finders, simulates the program, then one fix at a time. Returns whether a part was left.
    pub fn step(&mut self) -> bool {
        let Some(waiting) = &mut self.waiting else {
            self.waiting = Some(candidates(self.device, true).into_iter());
            return true;
        };
        if waiting.len() == 0 {
            return false;
        }
        match &self.trial {
            None => self.trial = Some(self.simulate.trial(self.device)),
            Some(trial) => self.list.extend(waiting.next().and_then(|finding| trial.advice(finding))),
        }
        true
    }

    pub fn finish(mut self) -> WhatIf<'d, 'a> {
        while self.step() {}
        let list = self.trial.as_ref().map_or_else(Vec::new, |trial| best(trial, self.list));
        WhatIf { device: self.device, trial: self.trial.map_or_else(OnceLock::new, OnceLock::from), list }
    }
}

impl<'d, 'a> WhatIf<'d, 'a> {
    pub fn of(device: &'d Device<'a>, simulate: Simulate) -> Self {
        FixSearch::of(device, simulate).finish()
    }

    /// The list, as [`super::advice`] returns it.
    pub fn advice(&self) -> impl Iterator<Item = &Advice> {
        self.list.iter().map(|(advice, _)| advice)
    }

    /// The alternatives of the list, each with the place of the fix that it can replace. Their own places follow
    /// those of the list, in this order.
    pub fn alternatives(&self) -> impl Iterator<Item = (usize, &Alternative)> {
        let list = self.list.iter().enumerate();
        list.flat_map(|(place, (advice, _))| advice.alternatives.iter().map(move |other| (place, other)))
    }

    pub fn combines(&self, place: usize) -> bool {
        self.at(place).is_some_and(|fix| fix.edit.only_lives().is_some())
    }

    /// The joint saving of some fixes of the list; `None` if it is too small to mention.
    pub fn saving(&self, chosen: &[usize]) -> Result<Option<Saving>> {
        let edit = self.edit(chosen)?;
        Ok(match chosen {
            &[one] => self.at(one).map(|fix| fix.saving.clone()),
            _ => self.trial()?.saving(&edit),
        })
    }

    /// Runs the program with other changes, with other settings or on another device, and with some fixes of the list. Without
    /// fixes, this is the run of these changes and settings in [`SimulateReport`], but without the sizes of devices on which it works.
    ///
    /// [`SimulateReport`]: crate::analysis::simulate::SimulateReport
    pub fn run(&self, attempt: &Attempt) -> Result<Run> {
        let Prepared { simulator, edited, settings, is_recorded } = self.prepared(attempt)?;
        if attempt.fixes.is_empty() && attempt.changes.is_empty() {
            return Ok(simulator.run(&settings, is_recorded, 0));
        }
        Ok(simulator.run_changed(&edited, &attempt.changes, &settings, is_recorded, 0))
    }

    /// Bytes of the device of an attempt that the allocator can use; `None` for an unlimited device.
    pub fn usable(&self, attempt: &Attempt) -> Result<Option<u64>> {
        Ok(self.trial()?.usable(attempt.capacity))
    }

    /// A counter over time with an attempt, up to the request that ends the program, if one fails. `None` if the device
    /// is smaller than what the recording starts with. `None` for active and requested memory: a simulation completes
    /// each free where it is requested, and not entries later. `None` for reserved memory if the recording starts with
    /// free segments: those come from an earlier part of the program and cannot be compared. Otherwise, reserved memory
    /// depends on where the driver places segments, so it may grow at other requests than in the recording.
    ///
    /// # Errors
    /// If the list has no such fix; if a fix cannot be simulated, or not together with others; if PyTorch would
    /// refuse the settings; if nothing on the device can be simulated.
    pub fn over_time(&self, metric: Metric, attempt: &Attempt) -> Result<Option<OverTime>> {
        let Prepared { simulator, edited, settings, .. } = self.prepared(attempt)?;
        let is_known = match metric {
            Metric::Allocated => true,
            Metric::Active | Metric::Requested => false,
            Metric::Reserved => simulator.program.without_cache().is_none(),
        };
        let program = simulator.as_simulated(&edited.program, &settings).filter(|_| is_known);
        let history = self.device.history();
        // Steps that were not recorded here happen right after the previous instant.
        let instant = |step: &Step| edited.recorded_instant(step, history).unwrap_or(step.entry);
        Ok(program
            .map(|program| OverTime::of(&program, &simulator.setup(&settings), metric, history.entries(), instant)))
    }

    fn trial(&self) -> Result<&Trial<'d, 'a>> {
        if self.device.id() <= HOST_DEVICE {
            return Err(Error::Request("only GPU memory can be simulated here".to_owned()));
        }
        Ok(self.trial.get_or_init(|| Trial::new(self.device, None, 0)))
    }

    fn prepared(&self, attempt: &Attempt) -> Result<Prepared<'_>> {
        let mut edit = self.edit(&attempt.fixes)?;
        if !attempt.changes.is_empty() {
            edit.to_mut().changes.extend_from_slice(&attempt.changes);
        }
        let (simulator, edited, mut settings) = self.trial()?.changed(&edit).map_err(Error::Request)?;
        let mut is_recorded = edit.settings.is_none();
        if !attempt.has_device() {
            return Ok(Prepared { simulator: Cow::Borrowed(simulator), edited, settings, is_recorded });
        }
        if let Some(text) = &attempt.alloc_conf {
            if !is_recorded {
                let message = "this fix changes the allocator's settings; it cannot be simulated together with others";
                return Err(Error::Request(message.to_owned()));
            }
            let rest = rest_of(&self.device.snapshot().settings);
            settings = parse(text, rest).map_err(|error| Error::Request(error.to_string()))?;
            is_recorded = false;
        }
        Ok(Prepared { simulator: Cow::Owned(simulator.on_device(attempt.capacity)), edited, settings, is_recorded })
    }

    /// The fix, or the alternative, at a place.
    fn at(&self, place: usize) -> Option<Choice<'_>> {
        if let Some((advice, edit)) = self.list.get(place) {
            return Some(Choice { instead_of: place, saving: &advice.saving, edit: Cow::Borrowed(edit) });
        }
        let (instead_of, other) = self.alternatives().nth(place.checked_sub(self.list.len())?)?;
        Some(Choice { instead_of, saving: &other.saving, edit: Cow::Owned(other.lives.clone().into()) })
    }

    fn edit(&self, chosen: &[usize]) -> Result<Cow<'_, Edit>> {
        let wrong = |message: &str| Error::Request(message.to_owned());
        let none = || wrong("expected positions in the list of fixes, found one that is not in the list");
        let fixes = chosen.iter().map(|&place| self.at(place).ok_or_else(none));
        let mut fixes: Vec<Choice<'_>> = fixes.collect::<Result<_>>()?;
        if fixes.len() == 1 {
            return fixes.pop().map(|fix| fix.edit).ok_or_else(none);
        }
        let mut fixed = HashSet::new();
        if !fixes.iter().all(|fix| fixed.insert(fix.instead_of)) {
            return Err(wrong("expected at most one fix for each mistake, found two for the same one"));
        }
        let lives = fixes.iter().map(|fix| {
            fix.edit.only_lives().ok_or_else(|| wrong("one of these fixes cannot be simulated together with others"))
        });
        let lives: Vec<&Lifetimes> = lives.collect::<Result<_>>()?;
        Ok(Cow::Owned(Lifetimes::merged(lives.into_iter()).into()))
    }
}

impl OverTime {
    /// A counter of a simulated program at the instants of a recording with this number of entries; `instant` returns
    /// the instant of a step.
    pub(crate) fn of(
        program: &Program,
        setup: &Setup,
        metric: Metric,
        entries: u32,
        instant: impl Fn(&Step) -> Instant,
    ) -> Self {
        let last = entries as usize;
        let mut curve = Self { after: Vec::with_capacity(last + 1), highest: vec![0; last + 1] };
        let mut now = 0;
        let mut at = 0;
        let ends = over_time(program, setup, metric, |step, after, highest| {
            at = step.map_or(0, |step| instant(step) as usize).clamp(at, last);
            if curve.after.len() < at {
                curve.after.resize(at, now);
            }
            curve.highest[at] = curve.highest[at].max(highest);
            now = after;
        });
        // Nothing is known after the request that ends the program.
        let end = ends.map_or(last, |entry| (entry as usize).clamp(at, last));
        curve.after.resize(end + 1, now);
        curve.highest.truncate(end + 1);
        // Instants without a step keep the previous value, and a highest value is never below the value that stays.
        for (highest, after) in curve.highest.iter_mut().zip(&curve.after) {
            *highest = (*highest).max(*after);
        }
        curve
    }

    /// The most bytes in each column of a part of the recording, for the columns from [`Scene::instants`]; `None`
    /// after the request that ends the program.
    ///
    /// [`Scene::instants`]: crate::analysis::scene::Scene::instants
    pub fn columns(&self, columns: &[Column]) -> Vec<Option<u64>> {
        columns.iter().map(|column| self.most(column)).collect()
    }

    fn most(&self, &Column { first, last, begins_before }: &Column) -> Option<u64> {
        let (first, end) = (first as usize, (last as usize).saturating_add(1).min(self.highest.len()));
        // A column starts with the value that earlier steps left.
        let carried = self.after.get(first).copied()?;
        let carried = if begins_before { carried } else { 0 };
        let within = first + usize::from(begins_before);
        Some(self.highest.get(within..end).unwrap_or_default().iter().copied().fold(carried, u64::max))
    }

    /// Each instant with the most bytes since the one before, and the bytes right after it.
    pub(in crate::analysis) fn instants(&self) -> impl Iterator<Item = (Instant, i64, i64)> + '_ {
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let both = self.highest.iter().zip(&self.after);
        (0..).zip(both).map(move |(instant, (&highest, &after))| (instant, bytes(highest), bytes(after)))
    }

    /// The first instant with the peak.
    pub(in crate::analysis) fn peak_instant(&self) -> Instant {
        self.instants()
            .fold((0, i64::MIN), |most, (at, highest, _)| if highest > most.1 { (at, highest) } else { most })
            .0
    }

    pub fn peak(&self) -> u64 {
        self.highest.iter().copied().max().unwrap_or(0)
    }
}
