//! Programs that ran on an H100: what memviz says of them from their recordings alone, against what PyTorch counted there,
//! also under other settings and with less memory.

use crate::support::{assert_none, names, open, read_text};
use memviz::Recording;
use memviz::analysis::advice::Saving;
use memviz::analysis::simulate::SimulateOptions;
use memviz::analysis::triage::TriageOptions;
use memviz::input::alloc_conf::{Rest, parse};
use memviz::replay::Metric;
use memviz::simulation::{Run, Trust};
use serde_json::Value;

const FOLDER: &str = "fixtures/h100";
/// Limits on which a program fails although memviz predicts that it works: the driver puts segments where no placement that
/// memviz knows does.
const NOT_PREDICTED: [(&str, u64); 1] = [("gpt_amp", 874_512_384)];

/// Each program, its recording and the truth.
fn programs() -> impl Iterator<Item = (String, Recording, Value)> {
    names(FOLDER).into_iter().map(|name| {
        let recording = open(&format!("{FOLDER}/{name}/snapshot.pickle.gz"));
        let truth = serde_json::from_str(&read_text(&format!("{FOLDER}/{name}/truth.json"))).unwrap();
        (name, recording, truth)
    })
}

/// The recorded settings first.
fn runs(recording: &Recording, truth: &Value) -> Vec<Run> {
    let settings = truth["settings"].as_object().unwrap().keys().map(|conf| parse(conf, Rest::AfterLast).unwrap());
    let options = SimulateOptions::default().settings(settings.collect()).context(Some(0));
    recording.simulate(&options).unwrap().devices.remove(0).runs
}

fn bytes(truth: &Value, key: &str) -> u64 {
    truth[key].as_u64().unwrap()
}

#[test]
fn maxima_equal_the_counters_of_a_gpu() {
    for (name, recording, truth) in programs() {
        let maxima = recording.histories[0].maxima.map(|maximum| maximum.bytes);
        let keys = ["max_allocated_bytes", "max_active_bytes", "max_requested_bytes", "max_reserved_bytes"];
        let metrics = [Metric::Allocated, Metric::Active, Metric::Requested, Metric::Reserved];
        for (key, metric) in keys.into_iter().zip(metrics) {
            assert_eq!(maxima[metric as usize], truth[key].as_i64().unwrap(), "{name} {key}");
        }
        assert_eq!(recording.anomalies(), 0, "{name}");
    }
}

/// Figures that memviz calls exact are; others are in the range that it gives, or at most 0.1% off.
#[test]
fn other_settings_are_predicted_for_a_gpu() {
    let mut wrong = Vec::new();
    let mut exact = 0;
    for (name, recording, truth) in programs() {
        for run in &runs(&recording, &truth)[1..] {
            let outcome = run.outcome.as_ref().unwrap();
            let truth = &truth["settings"][&run.alloc_conf];
            let (allocated, reserved) = (bytes(truth, "max_allocated_bytes"), bytes(truth, "max_reserved_bytes"));
            let (least, most) = run.reserved_range.unwrap_or((outcome.max_reserved, outcome.max_reserved));
            let is_equal = (outcome.max_allocated, outcome.max_reserved) == (allocated, reserved);
            let is_near = (least - least / 1000..=most + most / 1000).contains(&reserved);
            if run.trust == Trust::Exact && !is_equal || !is_near {
                wrong.push(format!("{name} {}: {least} to {most}, not {reserved}", run.alloc_conf));
            }
            exact += u32::from(run.trust == Trust::Exact);
        }
    }
    assert_none(&wrong);
    assert!(exact >= 5, "{exact}");
}

/// A limit as large as memviz says is enough, with every placement of segments that it knows.
#[test]
fn the_smallest_device_is_predicted_for_a_gpu() {
    for (name, recording, truth) in programs() {
        let run = runs(&recording, &truth).remove(0);
        let (needs, outcome) = (run.needs().unwrap(), run.outcome.unwrap());
        assert_eq!(outcome.max_reserved, bytes(&truth, "max_reserved_bytes"), "{name}");
        for limit in truth["limits"]["fails"].as_array().unwrap() {
            let limit = limit.as_u64().unwrap();
            let is_known = NOT_PREDICTED.contains(&(name.as_str(), limit));
            assert_eq!(needs > limit, !is_known, "{name} fails with {limit}, and {needs} are said to be enough");
        }
    }
}

/// The peaks of the cured program.
#[test]
fn what_a_cure_saves_is_predicted_for_a_gpu() {
    let mut judged = 0;
    for (name, recording, truth) in programs().filter(|(.., truth)| truth["cured"].is_object()) {
        let advice = recording.triage(&TriageOptions::default()).unwrap().devices.remove(0).advice.remove(0);
        let Saving::Simulated { allocated, reserved, .. } = advice.saving else { panic!("{name}: not played") };
        let cured = &truth["cured"];
        let wanted = (bytes(cured, "max_allocated_bytes"), bytes(cured, "max_reserved_bytes"));
        assert_eq!((allocated.after, reserved.after), wanted, "{name}: {}", advice.change);
        judged += 1;
    }
    assert!(judged > 0);
}
