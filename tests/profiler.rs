//! Profiler traces against what PyTorch itself counted.

mod support;

use memviz::analysis::{GroupBy, PeakOptions};
use memviz::model::CPU_DEVICE;
use memviz::replay::Metric;
use serde_json::Value;
use support::{names, open, read_text};

#[test]
fn operators_probe() {
    for folder in ["profiler_traces", "profiler_traces_t231", "profiler_traces_t215", "profiler_traces_t201"] {
        let folder = format!("../shared/corpus/{folder}");
        for file in names(&folder).into_iter().filter(|file| file.ends_with(".trace.json.gz")) {
            let stem = file.strip_suffix(".trace.json.gz").unwrap();
            let truth: Value = serde_json::from_str(&read_text(&format!("{folder}/truth_{stem}.json"))).unwrap();
            let recording = open(&format!("{folder}/{file}"));
            println!("{folder}/{file} anomalies {}", recording.anomalies());
            if let Some(max) = truth["max_memory_allocated"].as_i64() {
                let history = recording.history(0).unwrap();
                assert_eq!(history.maxima[Metric::Allocated as usize].bytes, max);
                assert_eq!(history.end.allocated, truth["memory_allocated"].as_i64().unwrap());
                assert_eq!(history.end.reserved, truth["memory_reserved"].as_i64().unwrap());
            }
            for (device, prefix) in [(0, "device"), (CPU_DEVICE, "cpu")] {
                let Some(history) = recording.history(device) else { continue };
                let (mut same, mut differ, mut absent) = (0, 0, vec![]);
                for row in truth["key_averages"].as_array().unwrap() {
                    let key = row["key"].as_str().unwrap();
                    let total = row[format!("{prefix}_memory_usage")].as_i64();
                    let self_total = row[format!("self_{prefix}_memory_usage")].as_i64();
                    let Some(total) = total else { continue };
                    match history.operators.iter().find(|op| op.name == key) {
                        Some(op) => {
                            if op.usage.increase == total
                                && op.usage.self_increase == self_total.unwrap()
                                && op.calls == row["count"].as_u64().unwrap()
                            {
                                same += 1;
                            } else {
                                differ += 1;
                                println!(
                                    "  {device} {key}: {total} {self_total:?} {} ours {:?} {}",
                                    row["count"], op.usage, op.calls
                                );
                            }
                        }
                        None => {
                            if total != 0 || self_total != Some(0) {
                                absent.push((key.to_owned(), total, self_total));
                            }
                        }
                    }
                }
                println!("  device {device}: {same} same, {differ} differ, absent {absent:?}");
                let report = recording
                    .peak(&PeakOptions { devices: vec![device], by: GroupBy::Operator, ..PeakOptions::default() })
                    .unwrap();
                for row in report.devices[0].attribution.rows.iter().take(5) {
                    println!("     {} {}", row.bytes, row.label);
                }
            }
        }
    }
}
