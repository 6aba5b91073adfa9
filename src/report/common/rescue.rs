//! What lets a failed request succeed, and whether the whole step then fits, in words and in JSON.

use super::document::{Document, Tone};
use super::words::{count, listed};
use super::{code_change, fixes, need};
use crate::analysis::advice::{Advice, Effect, Measure, Rescue, Way};
use crate::model::bytes::Bytes;
use crate::report::fit::single::words as plans;
use crate::report::simulate::words as simulate;
use crate::simulation::changes::Change;
use crate::simulation::plans::Verdict;
use serde::Serialize;

/// Number of ways on a first screen, and of lines of code.
const WAYS: usize = 2;
const LINES: usize = 1;

/// Whether a program that ran out of memory fits, and with what.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OomFit {
    /// Bytes that the allocator could use when the request failed.
    pub capacity_bytes: u64,
    /// Bounds of the bytes that the unchanged program needs: lower and upper; the latter is null if nothing bounds it from above.
    pub need_bytes: (u64, Option<u64>),
    /// `fits_with` if the whole step fits with one of the changes, otherwise that of the unchanged program: `fits`, `fits_if`,
    /// `cannot_fit` or `unknown`.
    pub verdict: &'static str,
    /// The reasons for both bounds, in words.
    pub because: String,
    /// What helps on its own, what lets the request succeed first.
    pub fixes: Vec<OomFix>,
    /// The fewest of these changes with which the whole step fits, if it does with none alone; otherwise those that let the request
    /// succeed together, if none does alone.
    pub together: Option<OomFixes>,
}

/// A change, and what it does for a failed request.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OomFix {
    /// The change, in words.
    pub change: String,
    /// Its place in `advice`, if it is one of these.
    pub advice: Option<usize>,
    /// The lines to write.
    pub code: String,
    #[serde(flatten)]
    pub effect: OomEffect,
}

/// Several of the changes together.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OomFixes {
    /// Their places in `fixes`.
    pub places: Vec<usize>,
    #[serde(flatten)]
    pub effect: OomEffect,
}

/// What changes do for a failed request and the step around it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OomEffect {
    /// Bytes that they save when the request fails.
    pub saves_bytes: u64,
    /// Whether the request succeeds; null if unknown.
    pub serves_request: Option<bool>,
    /// Bytes reserved once it has succeeded; null if it fails, or if unknown.
    pub reserved_bytes: Option<u64>,
    /// Bounds of what the whole step needs.
    pub need_bytes: (u64, Option<u64>),
    /// Whether the whole step fits; null if unknown.
    pub fits: Option<bool>,
    /// Whether the simulation may be far off.
    pub uncertain: bool,
}

impl OomEffect {
    fn of(rescue: &Rescue, effect: &Effect) -> Self {
        Self {
            saves_bytes: effect.saves,
            serves_request: if effect.fails { Some(false) } else { effect.served.map(|_| true) },
            reserved_bytes: effect.served,
            need_bytes: (effect.low, effect.high),
            fits: match rescue.verdict(effect) {
                Verdict::Fits => Some(true),
                Verdict::CannotFit => Some(false),
                Verdict::FitsIf | Verdict::Unknown => None,
            },
            uncertain: effect.is_uncertain,
        }
    }
}

impl OomFit {
    pub fn of(rescue: &Rescue, advice: &[Advice]) -> Self {
        let need::FitNeed { need_bytes, verdict, because } = need::FitNeed::of(&rescue.need, rescue.capacity);
        let fix = |way: &Way| OomFix {
            change: change(way, advice),
            advice: if let Measure::Fix(place) = way.change { Some(place) } else { None },
            code: code(way, advice).join("\n"),
            effect: OomEffect::of(rescue, &way.effect),
        };
        let together = |(places, effect): &(Vec<usize>, Effect)| OomFixes {
            places: places.clone(),
            effect: OomEffect::of(rescue, effect),
        };
        Self {
            capacity_bytes: rescue.capacity,
            need_bytes,
            verdict: if rescue.sure().is_some() { "fits_with" } else { verdict },
            because,
            fixes: rescue.ways.iter().map(fix).collect(),
            together: rescue.together.as_ref().map(together),
        }
    }
}

/// What to change.
fn change(way: &Way, advice: &[Advice]) -> String {
    match &way.change {
        Measure::Fix(place) => advice.get(*place).map_or(String::new(), fixes::change),
        Measure::Checkpoint(held) => {
            let function = code_change::function(&held.label, &held.change);
            format!("checkpoint {function} ({})", count(held.calls as u64, "call"))
        }
        Measure::Settings(conf) => format!("set {conf}"),
        Measure::Plan(plan) => {
            let settings = plan.alloc_conf.as_deref().filter(|conf| !conf.trim().is_empty());
            let settings = settings.map(|conf| format!("set {conf}"));
            let parts: Vec<String> =
                settings.into_iter().chain(plan.changes.iter().map(|it| instruction(&it.change))).collect();
            parts.join(", and ")
        }
    }
}

/// A change to the program as an instruction.
fn instruction(change: &Change) -> String {
    match change {
        Change::Checkpoint { site, every: 1 } => format!("checkpoint {site}"),
        Change::Checkpoint { site, every } => format!("checkpoint one of every {every} calls of {site}"),
        Change::ShardParameters { ranks } => {
            format!("shard parameters, gradients and optimizer states over {ranks} ranks")
        }
        Change::ShardGradients { ranks } => format!("shard gradients and optimizer states over {ranks} ranks"),
        Change::ShardOptimizer { ranks, .. } => format!("shard the optimizer states over {ranks} ranks"),
        Change::Optimizer(optimizer) => format!("use the optimizer {}", optimizer.name()),
        Change::OffloadOptimizer => "keep the optimizer states on the CPU".to_owned(),
        Change::OffloadActivations => "keep the tensors that are saved for backward on the CPU".to_owned(),
        Change::Inference => "run forward passes only, under torch.no_grad()".to_owned(),
        Change::ChunkLoss { pieces } => format!("compute logits and loss in {pieces} chunks of tokens"),
        Change::Accumulate { passes } => {
            format!("accumulate the gradients of {passes} passes, each with a batch that is {passes} times smaller")
        }
    }
}

/// The lines that make the change.
fn code(way: &Way, advice: &[Advice]) -> Vec<String> {
    match &way.change {
        Measure::Fix(place) => advice.get(*place).map_or_else(Vec::new, |advice| advice.code.clone()),
        Measure::Checkpoint(held) => vec![code_change::change(&held.change).1.to_owned()],
        Measure::Settings(conf) => vec![simulate::export(conf)],
        Measure::Plan(plan) => {
            let lines = plan.changes.iter().flat_map(|change| {
                let (_, code) = plans::code(change);
                code.lines().map(str::to_owned).collect::<Vec<_>>()
            });
            plans::export(plan).map(|(_, export)| export).into_iter().chain(lines).collect()
        }
    }
}

/// Whether the unchanged program fits.
fn unchanged(rescue: &Rescue) -> String {
    let Rescue { need: bounds, capacity, .. } = rescue;
    let verdict = if bounds.low > *capacity { "no" } else { "it failed although that was available" };
    let above = if bounds.high.is_none() { "; no upper bound is known" } else { "" };
    let upper = match need::conditions(bounds) {
        conditions if conditions.is_empty() || bounds.high.is_none() => String::new(),
        conditions => format!(" if {conditions}"),
    };
    format!("unchanged: {verdict}, needs {}{upper}{above}", need::range(bounds, *capacity))
}

/// What a change does for the request and for the whole step.
fn effect(rescue: &Rescue, effect: &Effect, fix: Option<&Advice>) -> String {
    let capacity = Bytes(rescue.capacity);
    let probably = if effect.is_uncertain { "probably " } else { "" };
    let saves = match effect.saves {
        0 => String::new(),
        bytes => format!("saves {}: ", Bytes(bytes)),
    };
    // With the whole step, the request succeeds.
    match (rescue.verdict(effect), effect.high) {
        (Verdict::Fits, Some(high)) => {
            return format!("{saves}the step {probably}fits (needs {} at most)", Bytes(high));
        }
        (Verdict::FitsIf, Some(high)) => {
            return format!("{saves}on that condition, the step {probably}fits in {}", Bytes(high));
        }
        _ => {}
    }
    let whole = match (rescue.verdict(effect), effect.high) {
        (Verdict::Unknown, Some(high)) => format!("; step: up to {}", Bytes(high)),
        (Verdict::Unknown, None) => "; step: unknown".to_owned(),
        _ => String::new(),
    };
    match (effect.served, effect.fails) {
        (Some(_), _) => format!("{saves}the request {probably}succeeds{whole}"),
        (None, true) => {
            let needs = if effect.low > 0 { effect.low } else { effect.high.unwrap_or(0) };
            format!("{saves}not enough on its own (at least {} of {capacity})", Bytes(needs))
        }
        (None, false) if effect.saves > 0 => format!("{saves}whether the request succeeds is unknown"),
        (None, false) => fix.map_or_else(|| "effect unknown".to_owned(), fixes::effect),
    }
}

impl Document {
    /// What lets a failed request succeed, the best first. On a first screen, only the first change comes with its code.
    pub(crate) fn rescue(&mut self, rescue: &Rescue, advice: &[Advice], is_brief: bool) {
        let most = if is_brief { WAYS } else { usize::MAX };
        self.section(match rescue.ways.len() {
            all if all > most => format!("Will it fit (the first {most} of {all} changes)"),
            _ => "Will it fit".to_owned(),
        });
        self.toned(Tone::Plain, 2, unchanged(rescue));
        if !is_brief {
            self.detail(2, need::because(&rescue.need));
        }
        for (number, way) in (1..).zip(rescue.ways.iter().take(most)) {
            let fix = if let Measure::Fix(place) = way.change { advice.get(place) } else { None };
            self.number(number, 2, Tone::Bold, change(way, advice));
            self.detail(5, effect(rescue, &way.effect, fix));
            if let Some(fix) = fix.filter(|_| !is_brief) {
                if way.effect != Effect::default() {
                    self.detail(5, fixes::effect(fix));
                }
                self.detail(5, &fix.evidence);
            }
            let code = code(way, advice);
            if !is_brief || number == 1 && code.len() <= LINES {
                self.code(7, &code);
            }
            for other in fix.filter(|_| !is_brief).iter().flat_map(|fix| &fix.alternatives) {
                self.detail(5, fixes::instead(other));
                self.code(7, &other.code);
            }
        }
        if let Some((places, of_all)) = &rescue.together {
            let places: Vec<String> = places.iter().map(|place| (place + 1).to_string()).collect();
            let effect = effect(rescue, of_all, None);
            self.toned(Tone::Plain, 2, format!("changes {} together: {effect}", listed(&places)));
        }
    }
}
