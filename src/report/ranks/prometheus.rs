//! `memviz ranks` as gauges for Prometheus.

use crate::analysis::ranks::RanksReport;
use crate::replay::{Bound, Counters, Metric};
use crate::report::common::gauges::Gauges;
use crate::wire::ranks::RankSummary;
use std::fmt::Display;
use std::io::{self, Write};

/// Writes gauges of all rows, each with its rank, device and path as labels, and those of failures by signature.
pub fn write(report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
    let mut gauges = Gauges(out);
    counters(&mut gauges, report, "max", "Highest value of a counter on a rank.", |rank| &rank.maxima)?;
    counters(&mut gauges, report, "end", "Value of a counter at the end of the recording of a rank.", |rank| {
        &rank.end
    })?;
    // Without a history, no failed request is recorded, whether or not there was one.
    of_each(&mut gauges, report, "rank_failed_requests", "Requests that failed on a rank.", |rank| {
        (rank.entries > 0).then_some(rank.ooms)
    })?;
    of_each(&mut gauges, report, "rank_complete", "Whether the history of a rank is complete.", |rank| {
        Some(u64::from(rank.complete_history))
    })?;
    of_each(&mut gauges, report, "rank_anomalies", "Number of contradictions in the recording of a rank.", |rank| {
        Some(rank.anomalies)
    })?;
    let outside = "Memory of the device in use but not reserved by the allocator of a rank, at the highest sample.";
    of_each(&mut gauges, report, "rank_outside_bytes", outside, |rank| {
        rank.device_memory.map(|memory| memory.outside_bytes)
    })?;
    let name = "rank_outlier_score";
    gauges.head(name, "Robust z-score of a rank whose maximum is an outlier.")?;
    for outlier in &report.outliers {
        let Some(rank) = report.rank(outlier.row) else { continue };
        labeled(rank, &[("counter", outlier.metric.name())], |labels| gauges.line(name, labels, outlier.score))?;
    }
    let name = "failed_requests_by_signature";
    gauges.head(name, "Failed requests of all ranks by signature.")?;
    for failure in &report.failures {
        let signature = &failure.signature;
        let labels = [("signature", signature.id.as_str()), ("cause", &signature.cause)];
        gauges.line(name, &labels, failure.requests())?;
    }
    let name = "unanalyzed_inputs";
    gauges.head(name, "Inputs that could not be analyzed.")?;
    gauges.line(name, &[], report.failed().count())
}

/// Calls `write` with the labels of a rank and more.
fn labeled(
    rank: &RankSummary,
    more: &[(&str, &str)],
    write: impl FnOnce(&[(&str, &str)]) -> io::Result<()>,
) -> io::Result<()> {
    let (number, device) = (rank.rank.to_string(), rank.device.to_string());
    let mut labels = vec![("rank", number.as_str()), ("device", &device), ("path", &rank.path)];
    labels.extend(more);
    write(&labels)
}

/// A gauge of all ranks that have a value.
fn of_each<V: Display>(
    gauges: &mut Gauges<'_>,
    report: &RanksReport,
    name: &str,
    help: &str,
    value: impl Fn(&RankSummary) -> Option<V>,
) -> io::Result<()> {
    gauges.head(name, help)?;
    report.ranks().try_for_each(|(_, rank)| {
        value(rank).map_or(Ok(()), |value| labeled(rank, &[], |labels| gauges.line(name, labels, value)))
    })
}

/// A gauge of all counters that a recording shows. Maxima that are bounds have the label `bound`.
fn counters(
    gauges: &mut Gauges<'_>,
    report: &RanksReport,
    at: &str,
    help: &str,
    counters: impl Fn(&RankSummary) -> &Counters,
) -> io::Result<()> {
    let name = format!("rank_{at}_bytes");
    gauges.head(&name, help)?;
    for (_, rank) in report.ranks() {
        for metric in Metric::ALL {
            let bound = rank.bound(metric);
            if bound == Some(Bound::Unknown) {
                continue;
            }
            let bound = bound.filter(|_| at == "max").map(|bound| ("bound", bound.name()));
            let more: Vec<(&str, &str)> = [("counter", metric.name())].into_iter().chain(bound).collect();
            labeled(rank, &more, |labels| gauges.line(&name, labels, counters(rank).get(metric)))?;
        }
    }
    Ok(())
}
