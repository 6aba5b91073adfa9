//! `memviz ranks` as CSV: a line for each rank and device, and for each input that could not be analyzed.

use crate::analysis::ranks::RanksReport;
use crate::analysis::ranks::Relation;
use crate::replay::{Bound, Counters, Metric};
use crate::report::common::csv::{Lines, cell};
use crate::wire::ranks::{DeviceMemory, RankLine, RankSummary};
use std::io::{self, Write};

const HEAD: &str = "rank,device,max_allocated_bytes,max_active_bytes,max_requested_bytes,max_reserved_bytes,\
     baseline_bytes,inactive_bytes,inactive_share,ooms,end_allocated_bytes,end_reserved_bytes,outlier,\
     largest_site,largest_site_bytes,largest_site_inferred,allocated_bound,active_bound,requested_bound,\
     reserved_bound,entries,complete_history,anomalies,rank_source,relation,program,signatures,device_total_bytes,\
     device_used_bytes,outside_bytes,path,error";

/// Number of columns.
const COLUMNS: usize = 32;

pub(crate) fn write(report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    for (index, line) in report.lines.iter().enumerate() {
        let record = match line {
            RankLine::Rank(rank) => record(report, index, rank),
            RankLine::Empty(empty) => without_figures(&empty.rank.to_string(), &empty.path, "no memory on any device"),
            RankLine::Failed(failed) => without_figures("", &failed.path, &failed.error),
            RankLine::Skipped(_) => continue,
        };
        csv.line(&record)?;
    }
    csv.end()
}

fn record(report: &RanksReport, row: usize, rank: &RankSummary) -> [String; COLUMNS] {
    let counter = |counters: &Counters, metric: Metric| match rank.bound(metric) {
        Some(Bound::Unknown) => String::new(),
        _ => counters.get(metric).to_string(),
    };
    let maximum = |metric: Metric| counter(&rank.maxima, metric);
    // Without a history, nothing is known about the start or about failed requests.
    let if_history = |shown: String| if rank.entries > 0 { shown } else { String::new() };
    let memory = |figure: fn(DeviceMemory) -> String| rank.device_memory.map(figure).unwrap_or_default();
    let bound = |metric: Metric| rank.bound(metric).map_or("exact", Bound::name).to_owned();
    let outliers = report.outliers.iter().filter(|outlier| outlier.row == row);
    let largest = rank.largest();
    let group = report.groups.iter().find(|group| group.members.contains(&row));
    let program = group.and_then(|group| match &group.relation {
        Relation::Programs(programs) => programs.iter().position(|rows| rows.contains(&row)),
        _ => None,
    });
    let source = serde_json::to_value(rank.rank_source).ok();
    [
        rank.rank.to_string(),
        rank.device.to_string(),
        maximum(Metric::Allocated),
        maximum(Metric::Active),
        maximum(Metric::Requested),
        maximum(Metric::Reserved),
        if_history(rank.baseline_bytes.to_string()),
        rank.inactive_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
        rank.inactive_share().map(|share| share.to_string()).unwrap_or_default(),
        if_history(rank.ooms.to_string()),
        counter(&rank.end, Metric::Allocated),
        counter(&rank.end, Metric::Reserved),
        outliers.map(|outlier| outlier.metric.name()).collect::<Vec<_>>().join(";"),
        largest.map(|row| cell(&row.label)).unwrap_or_default(),
        largest.map(|row| row.bytes.to_string()).unwrap_or_default(),
        largest.map(|row| row.inferred.to_string()).unwrap_or_default(),
        bound(Metric::Allocated),
        bound(Metric::Active),
        bound(Metric::Requested),
        bound(Metric::Reserved),
        rank.entries.to_string(),
        rank.complete_history.to_string(),
        rank.anomalies.to_string(),
        source.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned(),
        group.map(|group| group.relation.name().to_owned()).unwrap_or_default(),
        program.map(|program| program.to_string()).unwrap_or_default(),
        cell(&rank.failures.iter().map(|failure| failure.signature.id.as_str()).collect::<Vec<_>>().join(";")),
        memory(|memory| memory.total_bytes.to_string()),
        memory(|memory| memory.used_bytes.to_string()),
        memory(|memory| memory.outside_bytes.to_string()),
        cell(&rank.path),
        String::new(),
    ]
}

fn without_figures(rank: &str, path: &str, error: &str) -> [String; COLUMNS] {
    let mut record = [const { String::new() }; COLUMNS];
    rank.clone_into(&mut record[0]);
    record[COLUMNS - 2] = cell(path);
    record[COLUMNS - 1] = cell(error);
    record
}
