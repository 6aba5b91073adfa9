//! Replay, attribution and simulation: entries per second from a snapshot to its histories, its peak, and a simulation of the
//! same requests.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memviz::Recording;
use memviz::analysis::peak::PeakOptions;
use memviz::facts::grouping::GroupBy;
use memviz::input::ReadOptions;
use memviz::replay::{Track, replay};
use memviz::simulation::{Program, Setup, simulate};

/// What each fixture exercises: (name, file).
const INPUTS: [(&str, &str); 4] = [
    ("gpt_train_from_the_start", "fixtures/snapshots/gpt_train/snapshot.pickle.gz"),
    ("gpt_late_with_baseline", "fixtures/snapshots/gpt_late/snapshot.pickle.gz"),
    ("expandable_segments", "fixtures/snapshots/expandable_live/snapshot.pickle.gz"),
    ("big_1m", "fixtures/snapshots/big_1m/snapshot.pickle.zst"),
];

fn open(file: &str) -> Recording {
    Recording::open(file.as_ref(), &ReadOptions::default()).expect("the fixture reads")
}

fn histories(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replay");
    group.sample_size(10);
    for (name, file) in INPUTS {
        let recording = open(file);
        group.throughput(Throughput::Elements(recording.snapshot.entries.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| replay(&recording.snapshot)));
    }
    group.finish();
}

fn peaks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("peak");
    group.sample_size(10);
    for (name, file) in INPUTS {
        let recording = open(file);
        group.throughput(Throughput::Elements(recording.snapshot.entries.len() as u64));
        for by in [GroupBy::Site, GroupBy::Function] {
            let options = PeakOptions::default().by(by);
            group.bench_function(format!("{name}/{}", by.name()), |bencher| {
                bencher.iter(|| recording.peak(&options).expect("the fixture has a peak"));
            });
        }
    }
    group.finish();
}

fn programs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("play");
    group.sample_size(10);
    for (name, file) in INPUTS {
        let recording = open(file);
        let track = Track::new(&recording.snapshot, &recording.histories[0]);
        let program = Program::of(track).expect("the fixture has few streams and pools");
        let setup = Setup::new(&recording.snapshot.settings, None, 0);
        group.throughput(Throughput::Elements(recording.snapshot.entries.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| simulate(&program, &setup)));
    }
    group.finish();
}

criterion_group!(benches, histories, peaks, programs);
criterion_main!(benches);
