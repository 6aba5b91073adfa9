//! Sentences about how simulations end: on which devices a program fails, and which requests.

use super::words::{name, own};
use crate::analysis::simulate::DeviceSimulation;
use crate::model::bytes::Bytes;
use crate::report::common::words::{count, listed};
use crate::simulation::{Capacities, Outcome, Run};
use indexmap::IndexMap;

/// Maximum number of listed ranges of capacities on which a program fails.
const HOLES_TOLD: usize = 4;

/// Devices on which settings work and others on which they do not, if that does not depend on size alone, or not all were
/// tried; those of several settings once.
pub fn holes(runs: &[Run]) -> Vec<String> {
    let mut names: IndexMap<String, Vec<String>> = IndexMap::new();
    for run in runs {
        if let Some(sizes) = holes_of(run) {
            names.entry(sizes).or_default().push(name(run));
        }
    }
    names.into_iter().map(|(sizes, names)| format!("{}{sizes}", names.join(", "))).collect()
}

fn holes_of(run: &Run) -> Option<String> {
    let Capacities { first, safe, enough, ref holes } = run.capacities;
    let first = first?;
    let Some(safe) = safe else {
        let enough = enough?;
        let size = sizes(&[first, enough]);
        let (first, enough) = (size(first), size(enough));
        return Some(format!(": {first} is also enough; not all sizes between that and {enough} were tried"));
    };
    let (told, more) = holes.split_at(holes.len().min(HOLES_TOLD));
    let all: Vec<u64> = told.iter().flat_map(|&(from, to)| [from, to]).chain([first, safe]).collect();
    let size = sizes(&all);
    // The column may write the last size in another unit.
    let column = Bytes(safe).to_string();
    let same = if size(safe) == column { String::new() } else { format!(" ({column})") };
    let range = |&(from, to): &(u64, u64)| {
        let same = if to == safe { same.as_str() } else { "" };
        format!("{} to just below {}{same}", size(from), size(to))
    };
    let mut ranges: Vec<String> = told.iter().map(range).collect();
    ranges.extend((!more.is_empty()).then(|| count(more.len() as u64, "more range")));
    let first = size(first);
    match ranges.as_slice() {
        [] => None,
        [one] => Some(format!(": {first} is also enough, but sizes from {one} are not")),
        all => Some(format!(": {first} is also enough, but sizes in these ranges are not: {}", listed(all))),
    }
}

/// How to write sizes of devices: in MiB if two of them, which may differ by a few MiB only, would look the same otherwise.
fn sizes(all: &[u64]) -> impl Fn(u64) -> String + use<> {
    let mut usual: Vec<(u64, String)> = all.iter().map(|&bytes| (bytes, Bytes(bytes).to_string())).collect();
    usual.sort_unstable();
    usual.dedup_by_key(|(bytes, _)| *bytes);
    let are_alike = usual.windows(2).any(|pair| pair[0].1 == pair[1].1);
    move |bytes| {
        if are_alike { format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20)) } else { Bytes(bytes).to_string() }
    }
}

/// How simulations ended early, one line each, and why others were not possible: a reason that several share is shown once.
pub fn endings(runs: &[Run]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut refused: IndexMap<&str, Vec<&Run>> = IndexMap::new();
    for run in runs {
        match &run.outcome {
            Some(outcome) => lines.extend(outcome.fails_at.map(|entry| {
                format!("{}: out of memory at entry {entry}, a request that succeeded when recorded", name(run))
            })),
            None => refused.entry(&run.because).or_default().push(run),
        }
    }
    lines.extend(refused.into_iter().map(|(because, refused)| {
        let who = match refused.as_slice() {
            all if all.iter().all(|run| !run.changes.is_empty()) => "the changed program".to_owned(),
            [run] => name(run),
            all => format!("{} of {} rows", all.len(), runs.len()),
        };
        format!("cannot simulate {who}: {because}")
    }));
    lines
}

/// Where a request fails: with which settings, if the table has several.
fn where_it_fails(device: &DeviceSimulation) -> &'static str {
    let fails_before = |run: &Run| run.outcome.as_ref().is_some_and(|outcome| outcome.fails_at.is_some());
    match device.runs.len() {
        0 | 1 => "in the simulation",
        _ if device.runs.iter().any(fails_before) => "on this device, with every setting above that reaches it",
        _ => "on this device, with every setting above",
    }
}

/// The results for requests that were refused in the recording, a line each: which settings serve all of them, and what
/// the figures mean with them.
pub fn refusals(device: &DeviceSimulation) -> Vec<String> {
    let outcomes = device.runs.iter().filter_map(|run| Some((run, run.outcome.as_ref()?)));
    let Some(all) = outcomes.clone().map(|(_, outcome)| outcome.refusals.len()).max().filter(|&all| all > 0) else {
        return Vec::new();
    };
    let requests = count(all as u64, "failed request");
    let those = if all == 1 { "the failed request".to_owned() } else { format!("the {requests}") };
    let serves = |(run, outcome): (&Run, &Outcome)| outcome.failure().is_none().then(|| name(run));
    let serving: Vec<String> = outcomes.filter_map(serves).collect();
    let mut lines = vec![match serving.as_slice() {
        _ if device.refused_otherwise => format!(
            "the simulated device serves {those}: something that is not recorded, such as \
             torch.cuda.set_per_process_memory_fraction, caused the failure{}",
            if all == 1 { "" } else { "s" }
        ),
        [] if all == 1 => format!("the failed request also fails {}", where_it_fails(device)),
        [] => format!("of {those}, at least one also fails {}", where_it_fails(device)),
        names if all == 1 => format!("the failed request succeeds on this device with {}", names.join("; ")),
        names => format!("all {requests} succeed on this device with {}", names.join("; ")),
    }];
    let (noun, they) = if all == 1 { ("request", "it fails") } else { ("requests", "they fail") };
    lines.push(match device.runs.first().and_then(|run| run.as_it_went) {
        Some(bytes) => format!(
            "the program continued after the failed {noun}: whether or not {they} again, the rest of the program needs {} with \
             the {}; the needs column includes the failed {noun}",
            Bytes(bytes),
            device.runs.first().map_or("recorded settings", own)
        ),
        None => {
            format!(
                "the needs column includes the failed {noun}; what the program would have requested next is unknown, so the whole \
                 step may need more: memviz fit FILE says what is known of that"
            )
        }
    });
    lines
}
