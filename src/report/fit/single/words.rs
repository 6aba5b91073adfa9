//! Sentences about plans, the same in every format.

pub use super::code::{code, export};
use crate::analysis::advice::Saving;
use crate::analysis::fit::{FIRST, FitFix, FitTogether};
use crate::model::bytes::Bytes;
use crate::report::common::notes::{self, duration};
use crate::report::common::words::{count, kept, listed};
use crate::report::common::{code_change, fixes, need};
use crate::report::simulate::words as simulate;
use crate::simulation::changes::Change;
use crate::simulation::plans::{DevicePlans, Plan, PlannedChange};
use crate::simulation::{DEFAULT_CONTEXT, Generation, Reach, Trust, UNPLACED};
use indexmap::IndexMap;

/// The separator of the parts of a plan.
const AND: &str = " + ";

/// The first line about a device, without its name, if no cure is enough.
fn headline(device: &DevicePlans, cures: &[FitFix], combined: [Option<&FitTogether>; 2]) -> String {
    if let Some(reason) = &device.refused {
        return match (&device.need, device.capacity) {
            (Some(bounds), Some(capacity)) => need::verdict(bounds, capacity),
            _ => format!("no plan: {reason}"),
        };
    }
    let needed = device.as_it_is.as_ref().map_or(0, |plan| device.measure(plan));
    let there = room_of(device, needed);
    let needed = Bytes(needed);
    match (device.fits, device.best(), closest(device, cures, combined)) {
        (true, ..) if device.is_partial => {
            format!("the recorded part fits: needs {needed}{there}")
        }
        (true, ..) => format!("fits: needs {needed}{there}"),
        (_, Some(best), _) => {
            format!("does not fit: needs {needed}{there}; {} {}", fits_with(!because(best).is_empty()), name(best))
        }
        (_, None, Some((least, changes))) => {
            let comes = if is_several(&changes) { "come" } else { "comes" };
            // Without any memory for the allocator, all of it is too much.
            let excess = match device.goal.bytes() {
                0 => String::new(),
                available => format!(", {} too much", Bytes(least.saturating_sub(available))),
            };
            format!(
                "does not fit: needs {needed}{there}; none of the changes tried makes the program fit; of those listed below, \
                 {changes} {comes} closest: the program then needs {}{excess}",
                Bytes(least)
            )
        }
        _ => format!("does not fit: needs {needed}{there}; none of the changes tried lowers that"),
    }
}

/// What comes closest if nothing makes the program fit, a cure of a known mistake or a plan, and the bytes that the program
/// then needs.
fn closest(device: &DevicePlans, cures: &[FitFix], combined: [Option<&FitTogether>; 2]) -> Option<(u64, String)> {
    let needs = |saving: &Saving, fits: Option<bool>| match saving {
        Saving::Simulated { needs, reserved, .. } if fits == Some(false) => Some(needs.unwrap_or(reserved.after)),
        _ => None,
    };
    let one =
        cures.iter().take(FIRST).enumerate().filter_map(|(index, cure)| {
            Some((needs(&cure.advice.saving, cure.fits)?, format!("change {}", index + 1)))
        });
    let several = combined.into_iter().flatten().filter_map(|together| {
        let bytes = needs(&together.fixes.saving, together.fits)?;
        let plan = together.plan.as_ref().map_or(String::new(), |plan| format!("{AND}{}", name(plan)));
        Some((bytes, format!("{}{plan}", places(together))))
    });
    let plan = device.nearest.as_ref().map(|plan| (device.measure(plan), name(plan)));
    let unchanged = device.as_it_is.as_ref().map_or(u64::MAX, |plan| device.measure(plan));
    let all = one.chain(plan).chain(several).filter(|&(bytes, _)| bytes < unchanged);
    all.min_by_key(|&(bytes, _)| bytes)
}

/// The memory of the device, in a phrase after what a program needs.
fn room_of(device: &DevicePlans, needed: u64) -> String {
    match (device.goal.bytes(), device.context) {
        (0, Some(context)) if context.is_assumed => format!(
            ", but the device has {}, and memviz assumes that CUDA itself uses {}; --context sets that amount",
            Bytes(context.bytes),
            Bytes(DEFAULT_CONTEXT)
        ),
        (0, Some(context)) => format!(", but all {} of the device is used outside the allocator", Bytes(context.bytes)),
        (bytes, _) if needed > bytes => format!(", but only {} is available", Bytes(bytes)),
        (bytes, _) => format!(" of {}", Bytes(bytes)),
    }
}

/// Whether a cure is enough, and how far you can trust this; if that is unknown because there is no plan, what the
/// cure saves in the recording.
pub fn cure(device: &DevicePlans, cure: &FitFix) -> String {
    if device.refused.is_some() {
        return fixes::effect(&cure.advice);
    }
    let unchanged = device.as_it_is.as_ref().map_or(u64::MAX, |plan| device.measure(plan));
    let helps = !matches!(cure.advice.saving, Saving::Simulated { needs: Some(needs), .. } if needs >= unchanged);
    let no = if helps { "not enough on its own:" } else { "does not help on its own:" };
    enough(&cure.advice.saving, cure.fits, ["fits with this change alone:", no])
}

/// Whether several cures are enough together, or what they save.
pub fn together(device: &DevicePlans, together: &FitTogether) -> String {
    let numbers: Vec<String> = together.fixes.places.iter().map(|place| (place + 1).to_string()).collect();
    let noun = if numbers.len() == 1 { "change" } else { "changes" };
    let with = together.plan.iter().flat_map(parts);
    let all: Vec<String> = [format!("{noun} {}", listed(&numbers))].into_iter().chain(with).collect();
    let all = listed(&all);
    if device.refused.is_some() {
        let saves = fixes::saves(&together.fixes.saving);
        return match saves.strip_prefix("saves ") {
            Some(what) => format!("{all} together save {what}"),
            None => format!("{all} together: {saves}"),
        };
    }
    let is_judged = matches!(together.fixes.saving, Saving::Simulated { .. }) && together.fits.is_some();
    let fits = if is_uncertain(device, together) { "the program probably fits: it" } else { "the program fits: it" };
    let enough = enough(&together.fixes.saving, together.fits, [fits, "the program does not fit: it"]);
    if is_judged {
        let time = together.plan.as_ref().and_then(recomputation).unwrap_or_default();
        format!("with {all} together, {enough}{time}")
    } else {
        format!("{all} together: {enough}")
    }
}

fn enough(saving: &Saving, fits: Option<bool>, [yes, no]: [&str; 2]) -> String {
    let (needs, trust) = match saving {
        Saving::Simulated { reserved, needs, reserved_trust, because, .. } => {
            let why = if *reserved_trust == Trust::Uncertain && !because.is_empty() {
                format!(": {because}")
            } else {
                String::new()
            };
            (Bytes(needs.unwrap_or(reserved.after)), format!("{}{why}", reserved_trust.name()))
        }
        Saving::NotSimulated { because, .. } => return format!("not simulated ({because})"),
    };
    match fits {
        Some(true) => format!("{yes} needs {needs} ({trust})"),
        Some(false) => format!("{no} needs {needs} ({trust})"),
        None => format!("needs {needs} up to the end of the recording ({trust})"),
    }
}

/// The verdict, with known mistakes cured first.
pub fn headline_with(device: &DevicePlans, cures: &[FitFix], combined: [Option<&FitTogether>; 2]) -> String {
    let enough = cures.iter().enumerate().find(|(_, cure)| cure.fits == Some(true));
    let one = enough.and_then(|(index, cure)| {
        let line = cure.advice.line.as_ref()?;
        let fits = fits_with(is_doubted(&cure.advice.saving));
        Some(format!("{fits} change {} below, at {}", index + 1, line.label))
    });
    let several = || {
        let together = combined.into_iter().flatten().find(|together| is_easiest(device, together))?;
        let fits = fits_with(is_uncertain(device, together));
        Some(match &together.plan {
            None => format!("{fits} {} changes together", together.fixes.places.len()),
            Some(plan) => format!("{fits} {} below{AND}{}", places(together), name(plan)),
        })
    };
    let Some(changes) = one.or_else(several).filter(|_| !device.fits && device.refused.is_none()) else {
        return headline(device, cures, combined);
    };
    let needed = device.as_it_is.as_ref().map_or(0, |plan| device.measure(plan));
    format!("does not fit: needs {}{}; {changes}", Bytes(needed), room_of(device, needed))
}

/// The verb of a headline about a change that is enough.
fn fits_with(is_doubted: bool) -> &'static str {
    if is_doubted { "probably fits with" } else { "fits with" }
}

/// Whether the bytes that a program needs with a cure are uncertain.
fn is_doubted(saving: &Saving) -> bool {
    matches!(saving, Saving::Simulated { reserved_trust: Trust::Uncertain, at_least: false, .. })
}

/// Whether the bytes that a program needs with several cures, or with cures and a plan, are uncertain.
fn is_uncertain(device: &DevicePlans, together: &FitTogether) -> bool {
    match &together.plan {
        // A lower bound of what a cure saves hides the doubts of a plan.
        Some(plan) => device.trust(plan) == Trust::Uncertain,
        None => is_doubted(&together.fixes.saving),
    }
}

/// Whether cures that are enough together, or with a plan, are easier than all plans.
fn is_easiest(device: &DevicePlans, together: &FitTogether) -> bool {
    let is_doubted =
        matches!(together.fixes.saving, Saving::Simulated { trust: Trust::Uncertain, at_least: false, .. });
    // A plan that comes with cures was compared with the others.
    together.fits == Some(true) && (device.plans.is_empty() || together.plan.is_some() || !is_doubted)
}

/// The numbers of cures in the list, in words.
fn places(together: &FitTogether) -> String {
    let numbers: Vec<String> = together.fixes.places.iter().map(|place| (place + 1).to_string()).collect();
    match numbers.split_last() {
        Some((last, [])) => format!("change {last}"),
        Some((last, others)) => format!("changes {} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Whether a name stands for several changes: `changes 1 and 2 + expandable_segments:True`.
fn is_several(name: &str) -> bool {
    name.starts_with("changes ")
}

/// The name of a plan that is combined with cures.
pub fn name_with(together: &FitTogether, plan: &Plan) -> String {
    format!("{}{AND}{}", places(together), name(plan))
}

pub fn name(plan: &Plan) -> String {
    let parts = parts(plan);
    if parts.is_empty() { "unchanged".to_owned() } else { parts.join(AND) }
}

/// The settings and changes of a plan, by their names.
pub fn parts(plan: &Plan) -> Vec<String> {
    plan.alloc_conf
        .as_deref()
        .map(settings)
        .into_iter()
        .chain(plan.changes.iter().map(|it| short(&it.change)))
        .collect()
}

pub(super) fn settings(alloc_conf: &str) -> String {
    match alloc_conf.trim() {
        "" => "default settings".to_owned(),
        conf => conf.to_owned(),
    }
}

/// The time that a plan costs, in a phrase; `None` if it costs none or that is unknown.
fn recomputation(plan: &Plan) -> Option<String> {
    let time = plan.recompute_us.filter(|&time| time > 0)?;
    Some(format!(", with {} of recomputation per forward pass", duration(time)))
}

/// A change by its name; only the last part of a path, which `memviz simulate` also takes.
pub fn short(change: &Change) -> String {
    match change {
        Change::Checkpoint { site, every } => {
            let site = site.rsplit('/').next().unwrap_or(site).to_owned();
            Change::Checkpoint { site, every: *every }.to_string()
        }
        change => change.to_string(),
    }
}

/// Which calls to checkpoint so that allocated memory stays below the limit, one line each.
pub fn below(device: &DevicePlans) -> Vec<String> {
    let goal = Bytes(device.goal.bytes());
    if let Some(reason) = &device.refused {
        return vec![format!(
            "memviz cannot determine which calls must be checkpointed to keep the peak below {goal}: {reason}"
        )];
    }
    if device.fits {
        return vec![format!("the peak is already within {goal}")];
    }
    let effect = |plan: &Plan| {
        let time = plan
            .recompute_us
            .map_or(String::new(), |time| format!(", {} of recomputation per forward pass", duration(time)));
        format!("{}: at most {} allocated{time}", name(plan), Bytes(plan.outcome.max_allocated))
    };
    let plans: Vec<String> = device.plans.iter().map(|plan| format!("below {goal} with {}", effect(plan))).collect();
    if !plans.is_empty() {
        return plans;
    }
    let nearest = device.nearest.as_ref().map_or(String::new(), |plan| format!("; closest: {}", effect(plan)));
    vec![format!("memviz found no functions to checkpoint that would bring the peak below {goal}{nearest}")]
}

/// Changes that would have made room for a refused request, in a sentence.
pub fn room(device: &DevicePlans) -> Option<String> {
    let best = device.best().filter(|_| device.unfinished.is_some())?;
    let as_it_is = device.as_it_is.as_ref().map_or(0, |plan| device.measure(plan));
    Some(format!(
        "{}: the failed step would need {} instead of {} (predicted, assuming that it continues like the last complete step)",
        name(best),
        Bytes(device.measure(best)),
        Bytes(as_it_is),
    ))
}

/// The basis of the number of tokens that fit.
pub const EVEN_GROWTH: &str =
    "assuming that each further token makes the same requests, with sizes that grow at the same rate";

/// How many tokens fit, if a cache grows with each.
fn generation(generation: &Result<Generation, &'static str>) -> String {
    let Generation { tensors, bytes_per_token, recorded, reach } = match generation {
        Ok(generation) => generation,
        Err(because) => {
            return format!(
                "a cache seems to grow with each token, but the number of tokens that fit is unknown: {because}"
            );
        }
    };
    let fit = match reach {
        Reach::Tokens(tokens) => format!("{tokens} fit"),
        Reach::Between(least, most) => format!("at least {least} fit, and no more than {most}"),
    };
    format!(
        "a cache of {} grows by {} with each token: {recorded} tokens recorded, {fit} (inferred, {EVEN_GROWTH})",
        count(*tensors as u64, "tensor"),
        Bytes(*bytes_per_token)
    )
}

/// How sizes that a failed step did not reach are simulated.
const RESIZED: &str = ", and the others have the sizes of the one that failed; sizes that it did not reach are upper bounds, so figures \
                       are, too";

/// The simulations, and the result of settings alone.
pub fn facts(device: &DevicePlans) -> Vec<String> {
    let mut lines: Vec<String> =
        device.capacity.zip(device.context).map(|(capacity, context)| kept(capacity, context)).into_iter().collect();
    lines.extend(device.need.as_ref().filter(|_| device.refused.is_some()).map(need::because));
    if let Some(difference) = &device.difference {
        lines.push(if difference.is_none() {
            // The figures below do not have the recorded addresses.
            let given = device.as_it_is.as_ref().filter(|plan| !plan.is_placed);
            let given = given.map_or(
                "",
                |_| " if segments are placed at their recorded addresses (the figures below do not assume this)",
            );
            format!("the simulation of the program as recorded reproduces the recorded maxima exactly{given}")
        } else {
            format!("the simulation differs from the recording{}", simulate::maxima(difference))
        });
    }
    if let Some(failed) = device.failed {
        lines.push(format!(
            "the device is the one on which the other run ran out of memory; {} before the failure match this recording{}",
            match failed.requests {
                all if all == failed.equal => format!("all {all} of its requests"),
                all => format!("{} of its {}", failed.equal, count(all as u64, "request")),
            },
            if failed.is_resized { RESIZED } else { "" }
        ));
    }
    if let Some(unfinished) = device.unfinished {
        lines.push(format!(
            "the program runs out of memory: the failed step is simulated as a repetition of the last complete one, which ends \
             at entry {} ({} of its {} requests match){}",
            unfinished.end,
            unfinished.equal,
            unfinished.requests,
            if unfinished.is_resized { RESIZED } else { "" }
        ));
    }
    lines.extend(device.generation.as_ref().map(generation));
    let by_settings = device.best().is_some_and(|best| best.changes.is_empty());
    if device.settings_tried > 0 && !by_settings {
        // The sweep lists more settings than those tried here.
        let (what, sweep) = match device.unfinished {
            None => ("the program", "lists them"),
            Some(_) => (
                "the whole step",
                "simulates only what was recorded, up to the failed request: a setting with which that succeeds may fail later in the step",
            ),
        };
        lines.push(format!(
            "none of the allocator settings that memviz tried makes {what} fit on its own; memviz simulate FILE --sweep {sweep}"
        ));
    }
    if let Some(time) = device.forward_us.filter(|_| !device.plans.is_empty() || device.nearest.is_some()) {
        lines.push(format!("a forward pass takes {} ({})", duration(time), code_change::TIMES));
    }
    lines
}

/// Notes about one device, one line each.
pub fn limits(device: &DevicePlans) -> Vec<String> {
    let mut lines: Vec<String> = notes::anomalies(&device.anomalies).into_iter().collect();
    let unplaced = device.as_it_is.as_ref().filter(|plan| !plan.is_placed).map_or("", |_| UNPLACED);
    let lacks = if device.lacks.is_empty() { unplaced } else { device.lacks };
    if !lacks.is_empty() && device.refused.is_none() {
        lines.push(format!("figures marked predicted may not be exact: {lacks}"));
    }
    if device.dropped_at_start > 0 && device.refused.is_none() {
        let unchanged = if device.unchanged_has_cache {
            "; the unchanged program is simulated with them, because a device that is large enough for it can hold them"
        } else {
            ": the unchanged program may need and reserve less without them"
        };
        lines.push(format!(
            "simulated without the {} of free segments that the recording starts with, which this device cannot hold{unchanged}",
            Bytes(device.dropped_at_start)
        ));
    }
    if device.is_partial && device.refused.is_none() {
        lines.push("the recording has no complete step: the program may need more at other times".to_owned());
    }
    if device.is_cut {
        lines.push("the recording is long: not all combinations were tried".to_owned());
    }
    lines
}

/// Which changes were not simulated and why, a line for each reason.
pub fn not_played(device: &DevicePlans) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<String>)> = Vec::new();
    for refusal in &device.not_played {
        match by_reason.iter_mut().find(|(because, _)| *because == refusal.because) {
            Some((_, changes)) => changes.push(refusal.change.to_string()),
            None => by_reason.push((&refusal.because, vec![refusal.change.to_string()])),
        }
    }
    let refused =
        by_reason.into_iter().map(|(because, changes)| format!("cannot simulate {} ({because})", changes.join(", ")));
    let untried = device.checkpoints_untried.then(|| {
        "did not try checkpointing (the recording does not contain the backward pass, so the peak with recomputation is unknown); \
         memviz checkpoint FILE shows what checkpointing saves in the forward passes"
            .to_owned()
    });
    untried.into_iter().chain(refused).collect()
}

/// The time that a plan costs.
pub fn time(plan: &Plan) -> String {
    match plan.recompute_us {
        Some(0) => "-".to_owned(),
        Some(time) => duration(time),
        None => "unknown".to_owned(),
    }
}

/// What the columns of bytes are.
pub const COLUMNS: &str = "reserved, allocated: max_memory_reserved() and max_memory_allocated(); if the program does not fit, \
                           the values that they would reach on a device without a limit";

/// Plans that work on the device, but not on all larger ones.
pub fn holes(device: &DevicePlans) -> Vec<String> {
    let works = |plan: &&Plan| plan.outcome.failure().is_none() && plan.outcome.max_reserved <= device.goal.bytes();
    let plans = device.plans.iter().filter(works);
    let beyond = plans.filter_map(|plan| Some((plan, plan.needs.filter(|&needs| needs > device.goal.bytes())?)));
    beyond
        .map(|(plan, needs)| {
            format!("{} fits this device, but not every larger device below {}", name(plan), Bytes(needs))
        })
        .collect()
}

/// The note below the times.
pub const TIMES: &str = "recompute: extra time for each forward pass, excluding copies to and from the host or between ranks, \
                         whose time is not recorded";

/// Changes of plans, each once, with the first plan that has it; those of the plan that comes with cures first.
pub fn changes<'p>(device: &'p DevicePlans, cured: Option<&'p Plan>) -> Vec<&'p PlannedChange> {
    let mut all: Vec<&PlannedChange> = Vec::new();
    for change in cured.into_iter().chain(&device.plans).chain(&device.nearest).flat_map(|plan| &plan.changes) {
        if !all.iter().any(|known| known.change == change.change) {
            all.push(change);
        }
    }
    all
}

/// Why a plan is uncertain; empty if there is no known reason.
pub fn because(plan: &Plan) -> String {
    let tight = plan.is_tight.then(|| "one more segment than simulated would not fit".to_owned());
    plan.doubts.iter().cloned().chain(tight).collect::<Vec<_>>().join("; ")
}

/// Why plans are uncertain, a line for each reason.
pub fn uncertain(device: &DevicePlans, with_plan: Option<&FitTogether>) -> Vec<String> {
    let cured =
        with_plan.and_then(|together| Some((name_with(together, together.plan.as_ref()?), together.plan.as_ref()?)));
    let plans = device.plans.iter().chain(&device.nearest).map(|plan| (name(plan), plan));
    let plans = cured.into_iter().chain(plans).filter(|(_, plan)| !because(plan).is_empty());
    let mut names: IndexMap<String, Vec<String>> = IndexMap::new();
    plans.for_each(|(name, plan)| names.entry(because(plan)).or_default().push(name));
    let line = |(because, names): (String, Vec<String>)| format!("uncertain: {} ({because})", names.join("; "));
    names.into_iter().map(line).collect()
}

/// Assumptions of plans, each once.
pub fn assumptions<'p>(device: &'p DevicePlans, cured: Option<&'p Plan>) -> Vec<&'p str> {
    let mut all: Vec<&str> = Vec::new();
    for assumption in cured.into_iter().chain(&device.plans).chain(&device.nearest).flat_map(|plan| &plan.assumptions) {
        if !all.contains(&assumption.as_str()) {
            all.push(assumption);
        }
    }
    all
}
