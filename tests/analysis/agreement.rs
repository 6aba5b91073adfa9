//! No two answers say different things: what one place computes, all others show.

use crate::support::{FIXTURES, assert_none, fixture, names, open};
use memviz::analysis::advice::{Advice, Saving, Simulate};
use memviz::analysis::fit::FitPlans;
use memviz::analysis::fragmentation::FragmentationOptions;
use memviz::analysis::leaks::LeakOptions;
use memviz::analysis::leaks::growth::Verdict;
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::simulate::SimulateOptions;
use memviz::analysis::timeline::{Band, DeviceTimeline, LEAKS, TimelineOptions};
use memviz::analysis::triage::TriageOptions;
use memviz::facts::grouping::GroupBy;
use memviz::simulation::plans::PlanOptions;
use std::collections::BTreeMap;
use std::path::Path;

const STORIES: &str = "fixtures/stories";

fn story(name: &str) -> String {
    format!("{STORIES}/{name}/snapshot.pickle.gz")
}

fn timeline(path: &str) -> DeviceTimeline {
    open(path).timeline(&TimelineOptions::default()).unwrap().devices.remove(0)
}

const LEAKING: [&str; 4] = [
    "retained_graph_gpt_flawed",
    "retained_graph_statistic_flawed",
    "retained_graph_intermediate_flawed",
    "retained_graph_history_flawed",
];

/// A picture shows the leaks that `leaks` finds, and its categories are those of `peak`, with the leaks in them.
#[test]
fn pictures_have_the_leaks_and_categories_of_other_answers() {
    let recordings = ["leak", "leak_slow", "leak_t201", "leak_t231"].map(fixture).into_iter();
    for path in recordings.chain(LEAKING.map(story)) {
        let (recording, timeline) = (open(&path), timeline(&path));
        let leaks = recording.leaks(&LeakOptions::default()).unwrap().devices.remove(0);
        let per_step: i64 = timeline.bands.iter().filter_map(|band| band.leak).sum();
        assert_eq!(u64::try_from(per_step).unwrap(), leaks.leaking.bytes, "{path}");

        let by_category = PeakOptions::default().by(GroupBy::Category);
        let peak = recording.peak(&by_category).unwrap().devices.remove(0);
        assert_eq!(peak.instant, timeline.peak.instant, "{path}");
        let mut shown: BTreeMap<&str, u64> = BTreeMap::new();
        for band in &timeline.categories() {
            *shown.entry(band.category.unwrap().name()).or_default() += band.bytes_there;
        }
        let rows = peak.attribution.rows.iter().map(|row| (row.label.as_str(), row.bytes));
        shown.retain(|_, bytes| *bytes > 0);
        assert_eq!(shown, rows.collect(), "{path}");
    }
}

/// `leak_slow` forgets a tensor in every step, and the same line has others: of the line's blocks, only those leak.
#[test]
fn only_blocks_that_leak_are_shown_as_leaks() {
    let timeline = timeline(&fixture("leak_slow"));
    let leaking = |band: &&Band| band.label == LEAKS;
    let categories = timeline.categories();
    let blocks: u64 = categories.iter().filter(leaking).map(|band| band.blocks_there).sum();
    assert_eq!(blocks, 39, "one of each step up to the peak in the last but one");
    // The graphs of a statistic: at the peak, in the last step, all of them are live, next to batches and weights of the same lines.
    let path = story("retained_graph_statistic_flawed");
    let timeline = self::timeline(&path);
    let leaks = open(&path).leaks(&LeakOptions::default()).unwrap().devices.remove(0);
    let live: u64 = leaks.rows.iter().filter(|row| row.verdict == Verdict::Leak).map(|row| row.live_bytes).sum();
    let categories = timeline.categories();
    let bytes: u64 = categories.iter().filter(leaking).map(|band| band.bytes_there).sum();
    assert!(bytes.abs_diff(live) < 64 << 10, "{bytes}, not {live}");
}

/// The strip above a picture counts the steps that all other answers count.
#[test]
fn pictures_count_the_steps_of_other_answers() {
    let mut problems = Vec::new();
    let mut runs = 0;
    for name in names(STORIES) {
        let path = story(&name);
        let Some(run) = timeline(&path).run else { continue };
        runs += 1;
        let steps = open(&path).leaks(&LeakOptions::default()).unwrap().devices[0].step_count();
        if run.steps.len() != steps {
            problems.push(format!("{name}: {} steps, not {steps}", run.steps.len()));
        }
    }
    assert!(runs > 10, "{runs}");
    assert_none(&problems);
}

/// Settings are worth a change by one rule: where `simulate --sweep` recommends some, `fragmentation` and triage do.
#[test]
fn settings_are_recommended_by_one_rule() {
    for name in ["fp32_logits_shifted_flawed", "fp32_logits_scores_flawed"] {
        let recording = open(&story(name));
        let sweep = recording.simulate(&SimulateOptions::default().sweep(true)).unwrap();
        let best = &sweep.devices[0].best().expect("settings that reserve less").alloc_conf;
        let answer = recording.fragmentation(&FragmentationOptions::default().simulate(true)).unwrap();
        let better = answer.devices[0].settings.as_ref().expect("simulated").better.as_ref();
        assert_eq!(better.map(|better| &better.alloc_conf), Some(best), "{name}");
        let triage = recording.triage(&TriageOptions::default()).unwrap();
        let better = triage.devices[0].settings.as_ref().and_then(|settings| settings.better.as_ref());
        assert_eq!(better.map(|better| &better.alloc_conf), Some(best), "{name}");
    }
}

/// `fit` lists the fixes of `memviz FILE`, with the same figures; it adds only what each needs on a device.
#[test]
fn fit_lists_the_fixes_of_triage() {
    let folders = [STORIES, FIXTURES, "fixtures/together", "fixtures/changes"];
    let paths = folders
        .iter()
        .flat_map(|&root| names(root).into_iter().map(move |name| format!("{root}/{name}/snapshot.pickle.gz")));
    let mut problems = Vec::new();
    let mut fixes = 0;
    for path in paths.filter(|path| Path::new(path).is_file()) {
        let recording = open(&path);
        let options = PlanOptions::default().capacity(Some(1 << 20)).context(Some(0));
        let Ok(fit) = FitPlans::of(&recording.devices(), &options) else { continue };
        let triage = recording.triage(&TriageOptions::default().simulate(Simulate::All)).unwrap();
        for (plans, cures) in fit.plans.devices.iter().zip(fit.fixes).filter(|(plans, _)| !plans.fits) {
            let listed = triage.devices.iter().find(|device| device.peak.device == plans.device);
            let listed = listed.map_or(&[][..], |device| &device.advice[..]);
            let mut own: Vec<Advice> = cures.into_iter().map(|cure| cure.advice).collect();
            for advice in &mut own {
                forget_needs(advice);
            }
            fixes += own.len();
            if own != listed {
                problems.push(format!("{path}, device {}: {own:?}\ninstead of {listed:?}", plans.device));
            }
        }
    }
    assert!(fixes > 60, "{fixes}");
    assert_none(&problems);
}

fn forget_needs(advice: &mut Advice) {
    let savings = std::iter::once(&mut advice.saving).chain(advice.alternatives.iter_mut().map(|it| &mut it.saving));
    for saving in savings {
        if let Saving::Simulated { needs, .. } = saving {
            *needs = None;
        }
    }
}
