//! What a recording does not show is unknown in every output, not 0: the reserved memory of memory timelines.

use crate::support::{memviz, open};
use memviz::analysis::export::{Table, TableName, TracksOptions};
use memviz::replay::Metric;
use serde_json::Value;

const TIMELINE: &str = "fixtures/traces/profiler_traces/fake_cuda_modules.timeline.raw.json.gz";
/// A trace of the same program, which records the reserved bytes of the GPU.
const TRACE: &str = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";

/// How many rows of a column have a value, and how many rows there are.
fn present(table: &Table, name: &str) -> (usize, usize) {
    let column = table.columns.iter().find(|column| column.name == name).unwrap();
    let present = column.present.as_ref().map_or(table.rows, |present| present.iter().filter(|&&is| is).count());
    (present, table.rows)
}

#[test]
fn tables_have_no_value() {
    for (path, is_known) in [(TIMELINE, false), (TRACE, true)] {
        let recording = open(path);
        let mut rows = 0;
        let part = |table: Table| -> Result<(), ()> {
            rows += table.rows;
            assert_eq!(present(&table, "allocated_after"), (table.rows, table.rows), "{path}");
            assert_eq!(
                present(&table, "reserved_after"),
                (if is_known { table.rows } else { 0 }, table.rows),
                "{path}"
            );
            Ok(())
        };
        TableName::Entries.of(&recording.devices(), &[0], part).unwrap().unwrap();
        assert!(rows > 100, "{path}");
    }
}

#[test]
fn traces_for_perfetto_have_no_counter() {
    for (path, is_known) in [(TIMELINE, false), (TRACE, true)] {
        let tracks = open(path).tracks(&TracksOptions::default().devices(vec![0])).unwrap();
        assert_eq!(tracks.devices[0].metrics.contains(&Metric::Reserved), is_known, "{path}");
    }
}

#[test]
fn ranks_leave_it_out() {
    for (path, is_known) in [(TIMELINE, false), (TRACE, true)] {
        let ranks =
            |format: &str| memviz(&["ranks", "--device", "0", "--format", format, path]).expect(0).stdout.clone();
        let gauges = ranks("prometheus");
        assert!(gauges.contains("counter=\"allocated\"") && !gauges.contains("counter=\"requested\""), "{gauges}");
        assert_eq!(gauges.contains("counter=\"reserved\""), is_known, "{gauges}");
        let csv = ranks("csv");
        let [head, row] = csv.lines().collect::<Vec<_>>().try_into().unwrap();
        let cell = |name: &str| row.split(',').nth(head.split(',').position(|column| column == name).unwrap()).unwrap();
        for name in ["max_reserved_bytes", "end_reserved_bytes"] {
            assert_eq!(cell(name).parse::<u64>().is_ok_and(|bytes| bytes > 0), is_known, "{name}: {csv}");
            assert_eq!(cell(name).is_empty(), !is_known, "{name}: {csv}");
        }
        let json = ranks("json");
        let rank: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        assert_eq!(rank["bounds"]["reserved_bytes"] == "unknown", !is_known, "{rank}");
    }
}
