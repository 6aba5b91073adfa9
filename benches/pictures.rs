//! Pictures: entries per second from histories to SVG.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memviz::Recording;
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::timeline::{TimelineOptions, XAxis};
use memviz::input::ReadOptions;
use memviz::report::Source;
use memviz::report::page::Page;
use memviz::report::{plot_columns, timeline};

const INPUTS: [(&str, &str); 3] = [
    ("gpt_train", "fixtures/snapshots/gpt_train/snapshot.pickle.gz"),
    ("fragmented", "fixtures/snapshots/fragmented/snapshot.pickle.gz"),
    ("big_1m", "fixtures/snapshots/big_1m/snapshot.pickle.zst"),
];

fn reports(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("report");
    group.sample_size(10);
    for (name, path) in INPUTS {
        let recording = Recording::open(path.as_ref(), &ReadOptions::default()).expect("the fixture reads");
        let source = Source { path, recording: &recording };
        let options = TimelineOptions::default()
            .peak(PeakOptions::default().top(Some(10)))
            .axis(XAxis::Time)
            .columns(plot_columns(1))
            .inactive(false);
        group.throughput(Throughput::Elements(recording.snapshot.entries.len() as u64));
        group.bench_function(format!("{name}/timeline"), |bencher| {
            bencher.iter(|| {
                let report = recording.timeline(&options).expect("the fixture has a timeline");
                timeline::draw(source, &report).write(&mut std::io::sink()).expect("a sink takes everything");
            });
        });
        group.bench_function(format!("{name}/whole"), |bencher| {
            bencher.iter(|| {
                let overview = recording.overview(&options).expect("the fixture has an overview");
                Page { source, overview: &overview }.svg(&mut std::io::sink()).expect("a sink takes everything");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, reports);
criterion_main!(benches);
