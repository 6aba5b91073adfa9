//! Prints which lines of code hold the memory at the peak, and what happened just before it.
//!
//!     cargo run --release --example peak_attribution -- fixtures/snapshots/gpt_train/snapshot.pickle.gz

use memviz::analysis::peak::PeakOptions;
use memviz::{Bytes, GroupBy, ReadOptions, Recording};
use std::process::ExitCode;

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
    let path = std::env::args().nth(1).unwrap_or_else(|| "fixtures/snapshots/tiny/snapshot.pickle.gz".to_owned());
    let recording = Recording::open(path.as_ref(), &ReadOptions::default())?;
    let options = PeakOptions::default().by(GroupBy::Site).top(Some(5));
    for device in recording.peak(&options)?.devices {
        println!("device {} holds {} bytes at its peak", device.device, device.at.allocated);
        for row in &device.attribution.rows {
            println!("  {:>12}  {} in {} blocks", Bytes(row.bytes).to_string(), row.label, row.blocks);
        }

        // The history behind the answer: the last allocations before the peak, with their true block sizes.
        let Some(history) = recording.histories.iter().find(|history| history.device == device.device) else {
            continue;
        };
        let Some(entry) = device.entry else { continue };
        println!("  the entries that led there:");
        for entry in entry.saturating_sub(4)..=entry {
            let row = recording.snapshot.entries.get(history.rows.start + entry as usize);
            let (Some(row), Some(allocation)) = (row, history.allocation_of(entry)) else { continue };
            println!("    {entry:>6} {:14} {:>12}", row.action.name(), Bytes(allocation.size).to_string());
        }
    }
    Ok(())
}
