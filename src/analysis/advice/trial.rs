//! Simulates fixes, to measure what they save.

use super::{Advice, Alternative, CodeLine, Edit, Finding, Fix};
use crate::facts::device::Device;
use crate::model::bytes::Bytes;
use crate::model::{AllocatorSettings, FrameId};
use crate::replay::Metric;
use crate::simulation::changes::{Chosen, Edited, Editor, Lifetimes};
use crate::simulation::{Outcome, Program, Simulator, Trust, program, simulate};

/// A saving below this fraction (1/N) of the peak, or of fewer bytes, is not reported.
const NOTABLE_PART: u64 = 100;
const NOTABLE_BYTES: u64 = 8 << 20;
/// Two figures count as equal if they differ by at most N thousandths of the remaining peak: allocated, reserved.
const SAME: [u64; 2] = [20, 30];
/// The fixed program places its blocks elsewhere, and the allocator gives some of them more than requested: a lower bound of the
/// allocated bytes that it saves leaves 1/N of the remaining peak for that. Between programs and their fixed twins, the difference
/// was at most 1/380.
const PLACEMENT_PART: u64 = 200;
/// Why a saving is a lower bound: with the change, usage is highest at the start of the recording, which no change lowers.
const FROM_THE_START: &str =
    "with the change, the peak is where the recording starts; what the change would save before that is unknown";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saving {
    Simulated {
        allocated: Lowered,
        /// The same of reserved bytes.
        reserved: Lowered,
        /// The size of the smallest device, as far as known, on which the program always works with the fix, in bytes
        /// that the allocator can use. `None` if it was not computed.
        needs: Option<u64>,
        /// How far you can trust the allocated bytes.
        trust: Trust,
        /// How far you can trust the reserved bytes: less if the recording starts with free segments. Then both
        /// programs are simulated without these segments, and the difference is the saving of the fix.
        reserved_trust: Trust,
        /// Why the allocated bytes cannot be trusted further; empty if they are exact.
        because: String,
        /// Whether this is a lower bound: a further saving depends on facts that the recording does not show.
        at_least: bool,
    },
    NotSimulated {
        because: String,
        /// Upper bound of the bytes that it saves at the peak of allocated memory; 0 if unknown.
        at_most: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lowered {
    pub before: u64,
    pub after: u64,
}

impl Lowered {
    /// Bytes saved; 0 where there is no saving.
    pub fn by(self) -> u64 {
        self.before.saturating_sub(self.after)
    }

    /// Bytes that are needed in addition; 0 where there are none.
    pub fn adds(self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    fn is_notable(self) -> bool {
        self.by() >= NOTABLE_BYTES && self.by() >= self.before / NOTABLE_PART
    }
}

impl Saving {
    /// The larger of both savings in bytes; without a simulation, the upper bound.
    pub fn most(&self) -> u64 {
        match self {
            Self::Simulated { allocated, reserved, .. } => allocated.by().max(reserved.by()),
            Self::NotSimulated { at_most, .. } => *at_most,
        }
    }

    /// Bytes saved at the peak of allocated memory; `None` without a simulation.
    pub fn allocated(&self) -> Option<u64> {
        match self {
            Self::Simulated { allocated, .. } => Some(allocated.by()),
            Self::NotSimulated { .. } => None,
        }
    }

    /// Lowers a lower bound by what the placement of blocks may add to the remaining peak.
    fn leave_room_for_placement(&mut self) {
        if let Self::Simulated { allocated, at_least: true, .. } = self {
            allocated.after = allocated.after.saturating_add(allocated.after / PLACEMENT_PART).min(allocated.before);
        }
    }
}

pub(super) struct Trial<'d, 'a> {
    device: &'d Device<'a>,
    editor: Editor<'d, 'a>,
    /// The program and its result under the recorded settings, or why it cannot be simulated.
    simulator: Result<(Simulator, Outcome), &'static str>,
    /// The most bytes that the program reserves if it starts without free segments; `None` if it starts with none anyway.
    without_cache: Option<u64>,
    /// Number of simulated steps in the search for the smallest device of each fix.
    budget: u64,
}

impl<'d, 'a> Trial<'d, 'a> {
    /// Prepares simulations; an obstacle is the reason why nothing is simulated.
    pub fn new(device: &'d Device<'a>, obstacle: Option<&'static str>, budget: u64) -> Self {
        let program = obstacle.map_or_else(|| program(device), Err);
        let simulator = program.map(|program| {
            let mut simulator = Simulator::new(device.track, program, None, None);
            // How much a program needs is measured on an unlimited device.
            simulator.capacity = None;
            let outcome = simulate(&simulator.program, &simulator.setup(&simulator.settings));
            (simulator, outcome)
        });
        let without_cache =
            simulator.as_ref().ok().and_then(|(simulator, _)| reserved_without_cache(simulator, &simulator.program));
        Self { device, editor: Editor::new(device), simulator, without_cache, budget }
    }

    /// A finding with the saving of its fix; `None` if the saving is too small.
    pub fn advice(&self, finding: Finding) -> Option<(Advice, Edit)> {
        let Finding { kind, line, evidence, cost, fixes } = finding;
        let mut fixes = fixes.into_iter();
        let Fix { change, code, edit, most, rewrite } = fixes.next()?;
        let mut saving = self.saving_of(&edit, most)?;
        let others = fixes.filter_map(|Fix { change, code, edit, most, rewrite }| {
            let mut saving = self.saving_of(&edit, most)?;
            saving.leave_room_for_placement();
            Some(Alternative { change, code, rewrite, saving, lives: edit.lives })
        });
        let alternatives = others.collect();
        let policy = kind.policy();
        let is_worth_it = match &saving {
            Saving::Simulated { allocated, reserved, .. } => {
                policy.least_part_reserved.is_none_or(|part| reserved.by() >= reserved.before / part)
                    && (!policy.must_lower_allocated || allocated.is_notable())
            }
            Saving::NotSimulated { .. } => !policy.must_be_simulated,
        };
        if !is_worth_it {
            return None;
        }
        if let Saving::Simulated { trust, reserved_trust, because, .. } = &mut saving {
            if policy.is_reserved_uncertain {
                *reserved_trust = Trust::Uncertain;
            }
            let is_cut = self.simulator.as_ref().is_ok_and(|(simulator, _)| !simulator.program.refusals.is_empty());
            if is_cut && policy.piles_up && *trust != Trust::Uncertain {
                (*trust, *reserved_trust) = (Trust::Uncertain, Trust::Uncertain);
                "the program ran out of memory, so what it would have done next is unknown".clone_into(because);
            }
        }
        saving.leave_room_for_placement();
        let line = line.and_then(|frame| self.line(frame));
        let copies = self.copies(&edit).filter(|_| policy.copies_results);
        Some((Advice { kind, line, change, evidence, cost, copies, code, rewrite, saving, alternatives }, edit))
    }

    /// Bytes that a fix copies to the CPU: all results that the program collects there.
    fn copies(&self, edit: &Edit) -> Option<u64> {
        let lives = edit.only_lives()?;
        let requested =
            |&(index, _): &(u32, _)| self.device.track.allocation(index as usize).map(|made| made.requested);
        Some(lives.freed.iter().filter_map(requested).fold(0, u64::saturating_add))
    }

    /// The least that a fix saves: an uncertain lower bound if it may save notably more.
    fn saving_of(&self, edit: &Edit, most: Option<(Lifetimes, &'static str)>) -> Option<Saving> {
        let mut saving = self.saving(edit)?;
        let Some((most, unknown)) = most else { return Some(saving) };
        let most = self.saving(&most.into());
        if let Saving::Simulated { allocated, reserved, trust, reserved_trust, because, at_least, .. } = &mut saving
            && let Some(Saving::Simulated { allocated: best, reserved: best_reserved, .. }) = most
        {
            let differs = |one: Lowered, other: Lowered, most: u64| {
                one.after.abs_diff(other.after).saturating_mul(1000) > one.after.min(other.after).saturating_mul(most)
            };
            if differs(*reserved, best_reserved, SAME[1]) {
                *reserved_trust = Trust::Uncertain;
            }
            if differs(*allocated, best, SAME[0]) {
                (*trust, *reserved_trust, *at_least) = (Trust::Uncertain, Trust::Uncertain, true);
                let (best, best_reserved) = (Bytes(best.by()), Bytes(best_reserved.by()));
                *because = format!("{unknown}; the change saves at most {best} allocated, {best_reserved} reserved");
            }
        }
        Some(saving)
    }

    /// Drops fixes that are part of a leak: if memory accumulates, another fix counts only if it lowers the peak of
    /// allocated memory, and still does so once the leak is fixed.
    pub fn drop_parts_of_a_leak(&self, all: &mut Vec<(Advice, Edit)>) {
        let Some((leak, fixed)) = all.first().cloned() else { return };
        let Some(fixed) = fixed.only_lives() else { return };
        if !leak.kind.piles_up() {
            return;
        }
        let Saving::Simulated { allocated: Lowered { after: alone, .. }, .. } = leak.saving else { return };
        let saves_more = |edit: &Edit| {
            if edit.settings.is_some() || edit.unsimulated.is_some() {
                return true;
            }
            let lives = if edit.changes.is_empty() {
                Lifetimes::merged([fixed, &edit.lives].into_iter())
            } else {
                fixed.clone()
            };
            match self.saving(&Edit { lives, changes: edit.changes.clone(), ..Edit::default() }) {
                Some(Saving::Simulated { allocated, .. }) => {
                    Lowered { before: alone, after: allocated.after }.is_notable()
                }
                _ => true,
            }
        };
        let is_own =
            |saving: &Saving| !matches!(saving, Saving::Simulated { allocated, .. } if !allocated.is_notable());
        let mut is_first = true;
        all.retain(|(advice, edit)| std::mem::take(&mut is_first) || is_own(&advice.saving) && saves_more(edit));
    }

    fn line(&self, frame: FrameId) -> Option<CodeLine> {
        let snapshot = self.device.snapshot();
        let data = snapshot.stacks.frame(frame)?;
        let text = |id| snapshot.strings.get(id).to_owned();
        let label = self.device.sites().label(frame);
        Some(CodeLine { label, file: text(data.filename), line: data.line, function: text(data.name), text: None })
    }

    /// The saving of a fix; `None` if it is too small to mention.
    pub fn saving(&self, edit: &Edit) -> Option<Saving> {
        let (simulator, before) = match &self.simulator {
            Ok(simulator) => simulator,
            Err(because) => return self.not_simulated(edit, (*because).to_owned()),
        };
        let (_, edited, settings) = match self.changed(edit) {
            Ok(changed) => changed,
            Err(because) => return self.not_simulated(edit, because),
        };
        let settings = &settings;
        let changed = |edited: &Edited| {
            let mut run = simulator.run_changed(edited, &[], settings, true, self.budget);
            let is_at_start = |outcome: &Outcome| {
                let start = || simulate(&edited.program.up_to(1), &simulator.setup(settings)).max_allocated;
                !self.device.history().completeness.is_complete() && outcome.max_allocated <= start()
            };
            if run.trust == Trust::Predicted && run.outcome.as_ref().is_some_and(is_at_start) {
                run.trust = Trust::Uncertain;
                FROM_THE_START.clone_into(&mut run.because);
            }
            (run, reserved_without_cache(simulator, &edited.program))
        };
        let (run, without_cache) = if edit.settings.is_some() {
            (simulator.run(settings, false, self.budget), None)
        } else {
            let (run, without_cache) = changed(&edited);
            // Emptying the cache also releases the segments that were free at the start.
            (run, without_cache.filter(|_| edit.lives.emptied.is_empty()))
        };
        let Some(after) = run.outcome else { return self.not_simulated(edit, run.because) };
        let recorded = self.recorded(before);
        // What a simulation gets wrong, it gets wrong with and without the fix: the recorded peak is reduced by the difference. An
        // exact result needs no such correction, and the recorded settings may not be simulated as exactly.
        let lowered = |recorded: u64, (before, after): (u64, u64)| match run.trust {
            Trust::Exact => Lowered { before: recorded, after },
            _ => Lowered {
                before: recorded,
                after: recorded
                    .saturating_sub(before.saturating_sub(after))
                    .saturating_add(after.saturating_sub(before)),
            },
        };
        let allocated = lowered(recorded[0], (before.max_allocated, after.max_allocated));
        let lean = self.without_cache.zip(without_cache);
        let reserved = lowered(recorded[1], lean.unwrap_or((before.max_reserved, after.max_reserved)));
        let is_placed = run
            .reserved_range
            .is_none_or(|(least, most)| (most - least).saturating_mul(1000) <= least.saturating_mul(SAME[1]));
        let reserved_trust = if without_cache.is_none() && is_placed { run.trust } else { Trust::Uncertain };
        // A figure that depends on memory from before the recording does not justify a change.
        let is_notable =
            |lowered: Lowered, simulated: u64| lowered.is_notable() && lowered.by() >= simulated / NOTABLE_PART;
        let is_worth_it = (is_notable(allocated, before.max_allocated)
            || is_notable(reserved, before.max_reserved) && reserved_trust == run.trust)
            // A change that raises one peak by as much as it lowers the other is not a fix.
            && reserved.adds() < allocated.by().max(1)
            && allocated.adds() < reserved.by().max(1);
        let needs = run.capacities.enough.filter(|_| self.budget > 0);
        is_worth_it.then_some(Saving::Simulated {
            allocated,
            reserved,
            needs,
            trust: run.trust,
            reserved_trust,
            at_least: run.because == FROM_THE_START || edit.lives.at_least,
            because: run.because,
        })
    }

    /// The recorded peaks, allocated and reserved, from which the simulated saving of a fix is subtracted. If a
    /// request failed, the peaks of the simulation, which include that request.
    fn recorded(&self, simulated: &Outcome) -> [u64; 2] {
        let is_whole = |(simulator, _): &(Simulator, Outcome)| simulator.program.refusals.is_empty();
        if !self.simulator.as_ref().is_ok_and(is_whole) {
            return [simulated.max_allocated, simulated.max_reserved];
        }
        let maxima = &self.device.history().maxima;
        [Metric::Allocated, Metric::Reserved].map(|metric| maxima[metric as usize].bytes.max(0).unsigned_abs())
    }

    /// The program with a fix, and the settings that it runs with; an error says why it cannot be simulated.
    pub fn changed(&self, edit: &Edit) -> Result<(&Simulator, Edited, AllocatorSettings), String> {
        let (simulator, _) = self.simulator.as_ref().map_err(|because| (*because).to_owned())?;
        if let Some(because) = edit.unsimulated {
            return Err(because.to_owned());
        }
        let edited = self.editor.apply_with_lives(&simulator.program, &edit.changes, &edit.lives);
        let settings = edit.settings.as_ref().unwrap_or(&simulator.settings).clone();
        Ok((simulator, edited.map_err(|refusal| refusal.because)?, settings))
    }

    /// The simulator of the program; `None` if it cannot be simulated.
    pub fn simulator(&self) -> Option<&Simulator> {
        self.simulator.as_ref().ok().map(|(simulator, _)| simulator)
    }

    /// The program with checkpointed calls; `None` if they keep nothing.
    pub fn checkpointed(&self, chosen: &Chosen) -> Option<Program> {
        Some(self.editor.checkpoint_calls(&self.simulator()?.program, chosen)?.program)
    }

    /// Bytes that the allocator can use on a device of this size, or of the recorded one: see [`Simulator::on_device`].
    pub fn usable(&self, capacity: Option<u64>) -> Option<u64> {
        self.simulator.as_ref().ok().and_then(|(simulator, _)| simulator.device(capacity).0)
    }

    /// An upper bound for a fix that is not simulated; `None` if even that is too small.
    fn not_simulated(&self, edit: &Edit, because: String) -> Option<Saving> {
        let highest = self.device.history().maxima[Metric::Allocated as usize];
        let Some(at_most) = edit.only_lives().and_then(|lives| lives.at_most(self.device, highest.instant)) else {
            return Some(Saving::NotSimulated { because, at_most: 0 });
        };
        let before = highest.bytes.max(0).unsigned_abs();
        let is_worth_it = Lowered { before, after: before.saturating_sub(at_most) }.is_notable();
        let because = format!("{because} (at most {} of {} allocated)", Bytes(at_most), Bytes(before));
        is_worth_it.then_some(Saving::NotSimulated { because, at_most })
    }
}

/// The most bytes that a program reserves under the recorded settings if it starts without its free segments; `None`
/// if it starts with none anyway.
fn reserved_without_cache(simulator: &Simulator, program: &Program) -> Option<u64> {
    Some(simulate(&program.without_cache()?, &simulator.setup(&simulator.settings)).max_reserved)
}
