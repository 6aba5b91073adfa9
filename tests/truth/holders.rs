//! What `fixtures/holders/mistakes.py` holds, against the programs without the mistakes, and a walk against PyTorch's own list of
//! live blocks.

use crate::support::open;
use memviz::analysis::advice::{Advice, RuleKind, Saving};
use memviz::analysis::leaks::LeakOptions;
use memviz::analysis::leaks::growth::Verdict;
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::triage::TriageOptions;
use memviz::replay::Metric;
use memviz::{GroupBy, Recording, When};
use std::fs;

/// Each mistake, with the peaks that PyTorch counted with it and without it.
const MISTAKES: [(&str, RuleKind, u64, u64); 10] = [
    ("exceptions", RuleKind::Held, 392_180_224, 224_407_040),
    ("attribute", RuleKind::Held, 504_406_016, 235_970_560),
    ("optimizers", RuleKind::Held, 244_662_272, 194_232_320),
    ("slices", RuleKind::Held, 273_686_528, 106_635_264),
    ("reference", RuleKind::OptimizerStatesOfFrozen, 384_928_768, 277_928_960),
    ("cast", RuleKind::DuplicateModel, 97_837_056, 55_812_096),
    ("mask", RuleKind::AttentionMatrix, 154_289_664, 121_783_808),
    ("logits", RuleKind::LastLogits, 203_507_200, 77_678_080),
    ("hooks", RuleKind::Held, 663_821_824, 462_498_304),
    ("collected", RuleKind::AccumulatingMetrics, 709_894_144, 89_137_152),
];
/// Programs that look like one of them.
const HEALTHY: [&str; 4] = ["prompt", "pooled", "gan", "cache"];
/// A saving may differ from the truth by 1/N.
const PART: u64 = 50;

fn recording(name: &str) -> Recording {
    open(&format!("fixtures/holders/{name}.pickle.gz"))
}

/// The advice of these rules.
fn found(recording: &Recording) -> Vec<Advice> {
    let report = recording.triage(&TriageOptions::default()).unwrap();
    let advice = report.devices.into_iter().flat_map(|device| device.advice);
    advice.filter(|advice| MISTAKES.iter().any(|mistake| mistake.1 == advice.kind)).collect()
}

#[test]
fn a_mistake_is_named_at_the_line_that_stores_with_what_it_costs() {
    let source = fs::read_to_string(format!("{}/fixtures/holders/mistakes.py", env!("CARGO_MANIFEST_DIR"))).unwrap();
    for (name, kind, flawed, fixed) in MISTAKES {
        let recording = recording(name);
        let peak = |recording: &Recording| recording.histories[0].maxima[Metric::Allocated as usize].bytes as u64;
        assert_eq!(peak(&recording), flawed, "{name}");
        assert_eq!(peak(&self::recording(&format!("{name}_fixed"))), fixed, "{name}");
        let wanted = source.lines().position(|line| line.ends_with(&format!("# mistake: {name}"))).unwrap() as u64 + 1;
        let found = found(&recording);
        let [advice] = &found[..] else { panic!("{name}: expected one finding, found {found:?}") };
        assert_eq!(advice.kind, kind, "{name}");
        assert_eq!(advice.line.as_ref().map(|line| line.line), Some(wanted), "{name}");
        let Saving::Simulated { allocated, at_least, .. } = &advice.saving else { panic!("{name}: not simulated") };
        let (told, truth) = (allocated.by(), flawed - fixed);
        assert!(told <= truth + truth / PART, "{name}: {told} for {truth}");
        assert!(*at_least || told + truth / PART >= truth, "{name}: {told} for {truth}");
    }
}

#[test]
fn a_program_without_the_mistake_has_no_finding() {
    let fixed = MISTAKES.iter().map(|(name, ..)| format!("{name}_fixed"));
    for name in fixed.chain(HEALTHY.map(ToOwned::to_owned)) {
        assert_eq!(found(&recording(&name)), [], "{name}");
    }
}

#[test]
fn a_leak_says_what_holds_it() {
    for (name, holder) in [
        ("held_sessions_flawed", "answer.self.sessions[*][*][*]"),
        ("held_checkpoints_flawed", "checkpoints[*]['layers.*.linear1.weight']"),
    ] {
        let recording = open(&format!("fixtures/stories/{name}/snapshot.pickle.gz"));
        let report = recording.leaks(&LeakOptions::default()).unwrap();
        let leaks = report.devices[0].rows.iter().filter(|row| row.verdict == Verdict::Leak);
        let holders: Vec<&str> = leaks.filter_map(|row| row.holder.as_deref()).collect();
        assert!(holders.contains(&holder), "{name}: {holders:?}");
    }
}

#[test]
fn rows_of_holders_sum_to_the_total_and_name_parameters() {
    for (name, ..) in MISTAKES {
        let recording = recording(name);
        for by in [GroupBy::Holder, GroupBy::HolderRoot] {
            let options = PeakOptions::default().by(by).top(None);
            let peak = recording.peak(&options).unwrap();
            let device = &peak.devices[0];
            let sum: u64 = device.attribution.rows.iter().map(|row| row.bytes).sum();
            assert_eq!(sum as i64, device.at.allocated, "{name} by {}", by.name());
        }
        let end = recording.peak(&PeakOptions::default().by(GroupBy::Holder).at(Some(When::End))).unwrap();
        let rows = &end.devices[0].attribution.rows;
        assert!(rows.iter().all(|row| row.label != "(freed before the references were walked)"), "{name}");
    }
    let at_peak = recording("optimizers").peak(&PeakOptions::default().by(GroupBy::Holder).top(None)).unwrap();
    let rows = &at_peak.devices[0].attribution.rows;
    let states = rows.iter().filter(|row| row.label.starts_with("optimizers.first.state["));
    assert_eq!(states.map(|row| row.bytes).sum::<u64>(), 24 * 2 * (512 * 512 + 512) * 4);
}

#[test]
fn only_recordings_with_holders_have_groups_of_them() {
    let refused = open(&crate::support::fixture("tiny")).peak(&PeakOptions::default().by(GroupBy::Holder)).unwrap_err();
    assert!(refused.to_string().contains("expected holders"), "{refused}");
}
