//! Two parts of a recording are lost, which contains the counters of PyTorch: no budget is met that the whole exceeds.

use super::mutation::FILES;
use arbitrary::Arbitrary;
use memviz::Recording;
use memviz::analysis::check::{Budgets, CheckOptions, CheckVerdict};
use memviz::input::{Compression, ReadOptions};
use memviz::model::memory_stats::MemoryStats;
use memviz::model::trace_entry::TraceEntries;
use memviz::model::{AllocatorSettings, Snapshot};
use memviz::replay::{Counters, History, Metric, replay};
use std::io::Cursor;
use std::ops::Range;
use std::sync::LazyLock;

/// The recordings that have a budget to exceed.
static WHOLE: LazyLock<Vec<Recording>> = LazyLock::new(|| {
    let opened = |file: &&[u8]| Recording::read(Cursor::new(file.to_vec()), &ReadOptions::default());
    let recordings = FILES.iter().map(|file| with_counters(&opened(file).expect("the fixtures can be read")));
    recordings.filter(|recording| !just_below(recording).is_empty()).collect()
});

/// What is lost of which file.
#[derive(Arbitrary, Debug)]
pub struct Plan {
    file: u8,
    parts: [Part; 2],
}

/// A part of a recording. Numbers count modulo the number of parts.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Part {
    Entry {
        place: u16,
    },
    Entries {
        from: u16,
        count: u16,
    },
    FirstEntries {
        device: u8,
        count: u8,
    },
    /// The first entries, and the first segment.
    Beginning {
        device: u8,
        count: u8,
    },
    Segment {
        place: u16,
    },
    Block {
        segment: u16,
        place: u16,
    },
    /// Entries and segments of a device.
    Device {
        device: u8,
    },
    /// All entries of a device.
    Trace {
        device: u8,
    },
    Settings,
    Annotations,
    Overflowed,
}

/// Loses both parts.
///
/// # Panics
/// When a budget is met then that the whole exceeds.
pub fn run(plan: &Plan) {
    let whole = &WHOLE[usize::from(plan.file) % WHOLE.len()];
    assert_eq!(met_without(whole, &plan.parts), Vec::<String>::new());
}

/// The recording with the counters that PyTorch would have had, which are the replayed ones.
pub fn with_counters(recording: &Recording) -> Recording {
    let number = |name: &str, value: i64| format!("\"{name}\":{value}");
    let counted = |requests: u64, counters: &Counters, peaks: &dyn Fn(Metric) -> i64| {
        let of_metric = |metric: Metric| {
            let name = metric.name();
            let current = number(&format!("{name}_bytes.all.current"), counters.get(metric));
            format!("{current},{}", number(&format!("{name}_bytes.all.peak"), peaks(metric)))
        };
        let bytes: Vec<String> = Metric::ALL.into_iter().map(of_metric).collect();
        format!("{{{},{}}}", number(MemoryStats::REQUESTS, requests.cast_signed()), bytes.join(","))
    };
    let of_device = |history: &History| {
        let rows = &recording.snapshot.entries.actions()[history.rows.clone()];
        // Before the first use of a device, PyTorch has no counters.
        let start = match &history.start {
            empty if *empty == Counters::default() => "{}".to_owned(),
            start => counted(0, start, &|metric| start.get(metric)),
        };
        let requests = memviz::model::Action::Alloc.count_in(rows) as u64;
        let end = counted(requests, &history.end, &|metric| history.maxima[metric as usize].bytes);
        format!("{{\"start\":{start},\"end\":{end}}}")
    };
    let highest = recording.histories.iter().map(|history| history.device).max().unwrap_or(-1);
    let devices: Vec<String> = (0..=highest)
        .map(|device| {
            let history = recording.histories.iter().find(|history| history.device == device);
            history.map_or("{}".to_owned(), of_device)
        })
        .collect();
    let mut snapshot = recording.snapshot.clone();
    let text = format!("{{\"version\":1,\"devices\":[{}]}}", devices.join(","));
    snapshot.notes.memory_stats = MemoryStats::of_json(&text);
    assert!(snapshot.notes.memory_stats.is_some(), "{text}");
    replayed(snapshot)
}

fn replayed(snapshot: Snapshot) -> Recording {
    let histories = replay(&snapshot);
    Recording { snapshot, histories, compression: Compression::None, bytes: 0, device_file: None }
}

/// For each kind of budget, one that the whole exceeds by a byte.
fn just_below(whole: &Recording) -> Vec<Budgets> {
    let highest = |metric: Metric| {
        let devices = whole.histories.iter().filter(|history| history.device >= 0);
        let bytes = devices.map(|history| history.maxima[metric as usize].bytes).max().unwrap_or(0);
        u64::try_from(bytes).unwrap_or(0).checked_sub(1)
    };
    let budgets = [
        highest(Metric::Allocated).map(|below| Budgets::default().max_peak(Some(below))),
        highest(Metric::Reserved).map(|below| Budgets::default().max_reserved(Some(below))),
    ];
    let budgets = budgets.into_iter().flatten();
    budgets.filter(|budgets| verdict(whole, budgets) == CheckVerdict::Failed).collect()
}

fn verdict(recording: &Recording, budgets: &Budgets) -> CheckVerdict {
    recording.check(&CheckOptions::default().budgets(vec![budgets.clone()]).top(1)).verdict()
}

/// The budgets that are met when some parts are lost, although the whole exceeds them.
pub fn met_without(whole: &Recording, parts: &[Part]) -> Vec<String> {
    let mut left = whole.snapshot.clone();
    for part in parts {
        part.lose(&mut left);
    }
    let left = replayed(left);
    let met = just_below(whole).into_iter().filter(|budgets| verdict(&left, budgets) == CheckVerdict::Passed);
    met.map(|budgets| format!("{budgets:?} without {parts:?}")).collect()
}

impl Part {
    fn lose(self, snapshot: &mut Snapshot) {
        let (rows, devices) = (snapshot.entries.len(), snapshot.traces.len());
        match self {
            _ if rows == 0 || devices == 0 => {}
            Self::Entry { place } => lose_rows(snapshot, usize::from(place) % rows, 1),
            Self::Entries { from, count } => lose_rows(snapshot, usize::from(from) % rows, count.into()),
            Self::FirstEntries { device, count } => {
                let first = snapshot.traces[usize::from(device) % devices].rows.start;
                lose_rows(snapshot, first, count.into());
            }
            Self::Beginning { device, count } => {
                Self::FirstEntries { device, count }.lose(snapshot);
                let device = snapshot.traces[usize::from(device) % devices].device;
                let first = snapshot.segments.iter().position(|segment| segment.device == device);
                first.map(|first| snapshot.segments.remove(first));
            }
            Self::Segment { .. } | Self::Block { .. } if snapshot.segments.is_empty() => {}
            Self::Segment { place } => {
                let place = usize::from(place) % snapshot.segments.len();
                snapshot.segments.remove(place);
            }
            Self::Block { segment, place } => {
                let segment = usize::from(segment) % snapshot.segments.len();
                let blocks = &mut snapshot.segments[segment].blocks;
                if !blocks.is_empty() {
                    blocks.remove(usize::from(place) % blocks.len());
                }
            }
            Self::Device { device } => {
                let lost = snapshot.traces.remove(usize::from(device) % devices).device;
                snapshot.segments.retain(|segment| segment.device != lost);
            }
            Self::Trace { device } => {
                let Range { start, end } = snapshot.traces[usize::from(device) % devices].rows;
                lose_rows(snapshot, start, end - start);
            }
            Self::Settings => snapshot.settings = AllocatorSettings::default(),
            Self::Annotations => snapshot.annotations.clear(),
            Self::Overflowed => snapshot.notes.trace_overflowed = None,
        }
    }
}

/// Removes rows up to the end of their device.
fn lose_rows(snapshot: &mut Snapshot, from: usize, count: usize) {
    let Some(end) = snapshot.traces.iter().find(|trace| trace.rows.contains(&from)).map(|trace| trace.rows.end) else {
        return;
    };
    let lost = from..(from + count).min(end);
    let mut kept = TraceEntries::default();
    for entry in snapshot.entries.rows(0..lost.start).chain(snapshot.entries.rows(lost.end..snapshot.entries.len())) {
        kept.push(entry);
    }
    snapshot.entries = kept;
    let moved = |row: usize| row - (row.clamp(lost.start, lost.end) - lost.start);
    for trace in &mut snapshot.traces {
        trace.rows = moved(trace.rows.start)..moved(trace.rows.end);
    }
}
