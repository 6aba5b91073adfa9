//! Compares the peaks of two recordings site by site.
//!
//!     cargo run --release --example compare_runs -- fixtures/snapshots/gpt_train/snapshot.pickle.gz \
//!         fixtures/snapshots/gpt_train_ckpt/snapshot.pickle.gz

use memviz::analysis::peak::PeakOptions;
use memviz::{ReadOptions, Recording};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Bytes at the peak of the first device, by site.
fn sites(path: &str) -> memviz::Result<BTreeMap<String, i128>> {
    let recording = Recording::open(path.as_ref(), &ReadOptions::default())?;
    let report = recording.peak(&PeakOptions::default())?;
    let rows = report.devices.into_iter().next().map(|device| device.attribution.rows).unwrap_or_default();
    Ok(rows.into_iter().map(|row| (row.label, i128::from(row.bytes))).collect())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> memviz::Result<()> {
    let mut paths = std::env::args().skip(1);
    let mut next = |default: &str| paths.next().unwrap_or_else(|| default.to_owned());
    let base = sites(&next("fixtures/snapshots/gpt_train/snapshot.pickle.gz"))?;
    let new = sites(&next("fixtures/snapshots/gpt_train_ckpt/snapshot.pickle.gz"))?;
    let mut deltas: Vec<(i128, &String)> = base
        .keys()
        .chain(new.keys().filter(|label| !base.contains_key(*label)))
        .map(|label| (new.get(label).unwrap_or(&0) - base.get(label).unwrap_or(&0), label))
        .filter(|(delta, _)| *delta != 0)
        .collect();
    deltas.sort();
    for (delta, label) in &deltas {
        println!("{delta:>+16}  {label}");
    }
    println!("{:>+16}  total", deltas.iter().map(|(delta, _)| delta).sum::<i128>());
    Ok(())
}
