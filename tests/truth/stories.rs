//! Small programs with one classic mistake each, and the same programs fixed: memviz must find the mistake with its line, and
//! the bytes that the fix saves must equal the difference of the two. It must not report the mistake for the fixed programs,
//! and no mistake for the healthy ones.

use crate::support::{REQUIRE_CORPUS, assert_none, names, open, read_text, skipped};
use memviz::Recording;
use memviz::analysis::advice::{Advice, Lowered, Saving, Simulate};
use memviz::analysis::fit::{FitPlans, FitTogether};
use memviz::analysis::simulate::SimulateOptions;
use memviz::analysis::triage::TriageOptions;
use memviz::input::alloc_conf::{parse, rest_of};
use memviz::simulation::Trust;
use memviz::simulation::plans::PlanOptions;
use serde_json::Value;
use std::path::Path;

/// A few of them, which belong to the repository.
const FIXTURE: &str = "fixtures/stories";
/// All, which only some machines have.
const MORE: &str = "../shared/stories";
/// A program with two mistakes, and with neither.
const TOGETHER: &str = "fixtures/together/two_mistakes_gpt2";

/// Of the peak, in thousandths.
const MOST_OFF: u64 = 20;
/// Of what the cured program needs, in thousandths.
const MOST_OFF_NEEDS: u64 = 50;
/// How much of it may be too much with a plan, in thousandths: a program whose cache of keys and values is allocated first places
/// its blocks in two segments less than simulated.
const MOST_TOO_MUCH: u64 = 100;
/// Bytes.
const SMALL_DEVICE: u64 = 64 << 20;

struct Case {
    name: String,
    story: Value,
    advice: Vec<Advice>,
}

#[test]
fn stories_of_the_repository_are_found() {
    assert_none(&problems(FIXTURE));
}

#[test]
fn all_stories_are_found() {
    if !Path::new(MORE).is_dir() {
        let required = std::env::var(REQUIRE_CORPUS).is_ok_and(|value| value == "1");
        assert!(!required, "{REQUIRE_CORPUS}=1, but there is no {MORE}");
        return skipped(&format!("there is no {MORE}; {REQUIRE_CORPUS}=1 makes that a failure"));
    }
    assert_none(&problems(MORE));
}

/// The device that a program needs with the cure is the one that the cured program needs, both according to `fit`.
#[test]
fn fit_predicts_the_memory_of_a_fixed_program() {
    let compared: Vec<Result<(), String>> = pairs().filter_map(|(root, name)| needs(root, &name)).collect();
    assert!(compared.len() > 20, "{} pairs were compared", compared.len());
    assert_none(&compared.into_iter().filter_map(Result::err).collect::<Vec<String>>());
}

/// Two mistakes cured at once need what the program needs that has neither.
#[test]
fn fit_predicts_the_memory_of_two_fixes_together() {
    let options = PlanOptions::default().capacity(Some(SMALL_DEVICE)).context(Some(0));
    let ask = |name: &str| {
        let recording: Recording = open(&format!("{TOGETHER}_{name}/snapshot.pickle.gz"));
        FitPlans::of(&recording.devices(), &options).unwrap()
    };
    let together = ask("flawed").together.into_iter().flatten().next().expect("two cures");
    assert_eq!(together.fixes.places, [0, 1]);
    let Saving::Simulated { needs, allocated, .. } = together.fixes.saving else { panic!("not played") };
    let cured = ask("cured").plans.devices.remove(0).as_it_is.unwrap();
    assert_eq!((needs, allocated.after), (cured.needs, cured.outcome.max_allocated));
}

/// Fixes with a plan need what the fixed program needs with that plan: at most 5% less, and at most 10% more unless the result is uncertain.
/// On a device that is large enough for them, the fixed program with that plan runs.
#[test]
fn fit_predicts_the_memory_of_fixes_with_a_plan() {
    let compared: Vec<(bool, Option<String>)> = pairs().flat_map(|(root, name)| with_plan(root, &name)).collect();
    for fits in [false, true] {
        assert!(compared.iter().any(|&(it, _)| it == fits), "no pair with a plan was compared, fits: {fits}");
    }
    assert_none(&compared.into_iter().filter_map(|(_, problem)| problem).collect::<Vec<String>>());
}

/// The flawed programs that have a cured one beside them, with their folder.
fn pairs() -> impl Iterator<Item = (&'static str, String)> {
    let roots = [FIXTURE, MORE].into_iter().filter(|root| Path::new(root).is_dir());
    let flawed = |root| names(root).into_iter().filter(|name| name.ends_with("_flawed")).map(move |name| (root, name));
    roots.flat_map(flawed).filter(|(root, name)| Path::new(&format!("{root}/{}", cured(name))).is_dir())
}

/// Shares of the memory that a program needs, in percent.
const SHARES: [u64; 3] = [45, 60, 80];

/// The plans with fixes on devices of several sizes: whether they fit, and what is wrong with them. None if other
/// mistakes are fixed as well.
fn with_plan(root: &str, name: &str) -> Vec<(bool, Option<String>)> {
    let story: Value = serde_json::from_str(&read_text(&format!("{root}/{name}/story.json"))).unwrap();
    let flawed: Recording = open(&format!("{root}/{name}/snapshot.pickle.gz"));
    let fixed: Recording = open(&format!("{root}/{}/snapshot.pickle.gz", cured(name)));
    let needed = story["flawed_peak_reserved_bytes"].as_u64().unwrap_or(0);
    let sizes = SHARES.iter().map(|share| needed / 100 * share).chain([SMALL_DEVICE]);
    let ask = |capacity: u64| {
        let options = PlanOptions::default().capacity(Some(capacity)).context(Some(0));
        let mut plans = FitPlans::of(&flawed.devices(), &options).unwrap();
        let FitTogether { fixes, plan, fits, .. } = plans.with_plan.remove(0)?;
        let (plan, fits) = (plan.unwrap(), fits.unwrap());
        let mut stories = fixes.places.iter().map(|&place| plans.fixes[0][place].advice.kind.name());
        if !stories.all(|name| Some(name) == story["story"].as_str()) {
            return None;
        }
        let Saving::Simulated { needs: Some(said), trust, .. } = fixes.saving else { return None };
        let changes = plan.changes.into_iter().map(|planned| planned.change).collect();
        let mut options = SimulateOptions::default().changes(changes).capacity(Some(capacity)).context(Some(0));
        let rest = rest_of(&fixed.snapshot.settings);
        options.settings.extend(plan.alloc_conf.as_ref().map(|conf| parse(conf, rest).unwrap()));
        let simulated = fixed.simulate(&options).unwrap().devices.remove(0);
        // The changed program with the recorded settings, then with others; without changes, the other settings.
        let run = simulated.runs.last()?;
        let truth = run.needs()?;
        let most_off = truth / 1000 * MOST_OFF_NEEDS;
        let is_too_much = trust != Trust::Uncertain && said > truth + truth / 1000 * MOST_TOO_MUCH;
        let is_off = said + most_off < truth || is_too_much;
        let has_failed = fits && run.outcome.as_ref().is_none_or(|outcome| outcome.failure().is_some());
        let what = format!("{name}, {capacity} bytes: fixed, with the plan, it needs {truth} bytes, not {said}");
        Some((fits, (is_off || has_failed).then_some(what)))
    };
    sizes.filter_map(ask).collect()
}

fn cured(flawed: &str) -> String {
    flawed.replace("_flawed", "_cured")
}

/// Whether the device that `fit` names for a cure is that of the cured program; `None` if it names none.
fn needs(root: &str, name: &str) -> Option<Result<(), String>> {
    let story: Value = serde_json::from_str(&read_text(&format!("{root}/{name}/story.json"))).unwrap();
    // So small that nothing fits: the needs of each program are searched.
    let options = PlanOptions::default().capacity(Some(SMALL_DEVICE)).context(Some(0));
    let ask = |name: &str| {
        let recording: Recording = open(&format!("{root}/{name}/snapshot.pickle.gz"));
        FitPlans::of(&recording.devices(), &options).unwrap()
    };
    let flawed = ask(name);
    let mut cures = flawed.fixes.into_iter().flatten();
    let cure = cures.find(|cure| Some(cure.advice.kind.name()) == story["story"].as_str())?;
    let Saving::Simulated { needs: Some(said), trust, .. } = cure.advice.saving else { return None };
    let truth = ask(&cured(name)).plans.devices.iter().find_map(|device| device.as_it_is.as_ref()?.needs)?;
    let is_off = trust != Trust::Uncertain && said.abs_diff(truth) > truth / 1000 * MOST_OFF_NEEDS;
    Some(if is_off { Err(format!("{name}: the cured program needs {truth} bytes, not {said}")) } else { Ok(()) })
}

fn problems(root: &str) -> Vec<String> {
    let folders = names(root).into_iter().filter(|name| Path::new(&format!("{root}/{name}/story.json")).is_file());
    let cases: Vec<Case> = folders.map(|name| case(root, name)).collect();
    assert!(!cases.is_empty(), "{root} has no stories");
    cases.iter().flat_map(judge).collect()
}

fn case(root: &str, name: String) -> Case {
    let story = serde_json::from_str(&read_text(&format!("{root}/{name}/story.json"))).unwrap();
    let recording: Recording = open(&format!("{root}/{name}/snapshot.pickle.gz"));
    let options = TriageOptions::default().simulate(Simulate::All);
    let advice = recording.triage(&options).unwrap().devices.into_iter().flat_map(|device| device.advice);
    Case { name, story, advice: advice.collect() }
}

fn judge(case: &Case) -> Vec<String> {
    let Case { name, story, advice } = case;
    let kind = story["story"].as_str().unwrap();
    let problem = |text: String| vec![format!("{name}: {text}")];
    if kind == "healthy" {
        return advice.iter().map(|advice| format!("{name}: healthy, but {}", advice.change)).collect();
    }
    let own = advice.iter().find(|advice| advice.kind.name() == kind);
    match (story["variant"].as_str(), own) {
        (Some("flawed"), None) => problem(format!("{kind} is not found")),
        (Some("flawed"), Some(own)) => [place(own, story), bytes(own, story)].concat(),
        (_, Some(own)) => problem(format!("cured, but {}", own.change)),
        (_, None) => Vec::new(),
    }
    .into_iter()
    .map(|text| if text.starts_with(name.as_str()) { text } else { format!("{name}: {text}") })
    .collect()
}

/// The culprit's line, or another that an answer may name.
fn place(advice: &Advice, story: &Value) -> Vec<String> {
    let also = story["culprit_also"].as_array().cloned().unwrap_or_default();
    let is_named = |culprit: &Value| {
        advice.line.as_ref().is_some_and(|line| {
            line.file.ends_with(&format!("/{}", culprit["file"].as_str().unwrap()))
                && Some(line.line) == culprit["line"].as_u64()
        })
    };
    if is_named(&story["culprit"]) || also.iter().any(is_named) {
        return Vec::new();
    }
    vec![format!("blames {:?}, not {}", advice.line, story["culprit"])]
}

fn bytes(advice: &Advice, story: &Value) -> Vec<String> {
    let own = figures(&advice.saving, story, story);
    let others = advice.alternatives.iter().flat_map(|other| {
        let all = story["alternatives"].as_array().into_iter().flatten();
        let truth = all.into_iter().find(|truth| other.change.contains(truth["cure"].as_str().unwrap()));
        truth.map_or_else(Vec::new, |truth| figures(&other.saving, story, truth))
    });
    let told =
        |truth: &&Value| advice.alternatives.iter().any(|other| other.change.contains(truth["cure"].as_str().unwrap()));
    let missing = story["alternatives"].as_array().into_iter().flatten().filter(|truth| !told(truth));
    let missing = missing.map(|truth| format!("{} is no alternative", truth["cure"]));
    own.into_iter().chain(others).chain(missing).collect()
}

/// What is wrong with the savings: uncertain savings may be off, but a lower bound must hold.
fn figures(saving: &Saving, story: &Value, truth: &Value) -> Vec<String> {
    let Saving::Simulated { allocated, reserved, trust, reserved_trust, at_least, .. } = saving else {
        return vec!["not played".to_owned()];
    };
    let is_off = |metric: &str, said: &Lowered, trust: Trust, is_bound: bool| {
        let wanted = truth[format!("saves_peak_{metric}_bytes")].as_u64().unwrap();
        let flawed = story[format!("flawed_peak_{metric}_bytes")].as_u64().unwrap();
        let most_off = flawed.saturating_sub(wanted) / 1000 * MOST_OFF;
        let is_off =
            trust != Trust::Uncertain && said.by().abs_diff(wanted) > most_off || is_bound && said.by() > wanted;
        is_off.then(|| format!("{} bytes {metric} are said to be saved, not {wanted}", said.by()))
    };
    let allocated = is_off("allocated", allocated, *trust, *at_least);
    allocated.into_iter().chain(is_off("reserved", reserved, *reserved_trust, false)).collect()
}
