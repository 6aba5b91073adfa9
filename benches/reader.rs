//! Reading: bytes per second from a pickle in memory to a snapshot.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memviz::input::{ReadOptions, read_path, read_stream};
use std::hint::black_box;
use std::io::{Cursor, Read};
use std::path::Path;

/// Fixtures of growing size: (name, file).
const INPUTS: [(&str, &str); 3] = [
    ("cuda_graph_59_entries", "fixtures/snapshots/cuda_graph/snapshot.pickle.gz"),
    ("gpt_train_9k_entries", "fixtures/snapshots/gpt_train/snapshot.pickle.gz"),
    ("big_1m_1m_entries", "fixtures/snapshots/big_1m/snapshot.pickle.zst"),
];

/// The decompressed bytes of a fixture.
fn unpacked(file: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packed = std::fs::File::open(file).expect("the fixture is there");
    let result = match Path::new(file).extension().and_then(|extension| extension.to_str()) {
        Some("gz") => flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes),
        _ => zstd::Decoder::new(packed).expect("the fixture is zstd").read_to_end(&mut bytes),
    };
    result.expect("the fixture unpacks");
    bytes
}

fn plain(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read");
    group.sample_size(10);
    for (name, file) in INPUTS {
        let bytes = unpacked(file);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || Cursor::new(bytes.clone()),
                |stream| read_stream(stream, &ReadOptions::default()).expect("the fixture reads"),
                criterion::BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn compressed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read_compressed");
    group.sample_size(10);
    for (name, file) in INPUTS {
        let size = std::fs::metadata(file).expect("the fixture is there").len();
        group.throughput(Throughput::Bytes(size));
        group.bench_function(name, |bencher| {
            bencher.iter(|| read_path(black_box(file.as_ref()), &ReadOptions::default()).expect("the fixture reads"));
        });
    }
    group.finish();
}

criterion_group!(benches, plain, compressed);
criterion_main!(benches);
