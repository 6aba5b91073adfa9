//! `memviz fragmentation`.

use super::{Answer, with_recording};
use crate::analysis::{GroupBy, PeakOptions};
use crate::cli::args::FragmentationArgs;
use crate::cli::{Failure, Outcome, output};
use crate::report::picture::{self, BlockColor};

pub fn run(args: &FragmentationArgs) -> Result<Outcome, Failure> {
    output::check_picture_target(&args.common)?;
    let by = args.by.map(GroupBy::from);
    let options = PeakOptions {
        by: by.unwrap_or_default(),
        at: args.at.clone(),
        devices: args.common.devices(),
        ..PeakOptions::default()
    };
    let color = by.map_or(BlockColor::State, |_| BlockColor::Group(args.top));
    with_recording(&args.common, |recording| {
        let mut report = recording.segment_map(&options)?;
        Ok(Answer {
            warnings: std::mem::take(&mut report.skipped),
            write: Box::new(move |source, out| picture::segment_map(source, &report, color).write(out)),
        })
    })
}
