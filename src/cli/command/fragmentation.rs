//! `memviz fragmentation`.

use super::{Answer, for_people, with_recording};
use crate::analysis::{Filter, FragmentationOptions};
use crate::cli::args::FragmentationArgs;
use crate::cli::{Failure, Outcome};

/// Rows of the pinning for people; machines get all.
const DEFAULT_TOP: usize = 20;
/// Rows over time for people.
const POINTS_TO_READ: u32 = 24;
/// Rows over time for plotting.
const POINTS_TO_PLOT: u32 = 400;

pub fn run(args: &FragmentationArgs) -> Result<Outcome, Failure> {
    let for_people = for_people(&args.common);
    let points = args.points.unwrap_or(if for_people { POINTS_TO_READ } else { POINTS_TO_PLOT });
    let options = FragmentationOptions {
        at: args.at.clone(),
        by: args.by.into(),
        top: args.top.or(for_people.then_some(DEFAULT_TOP)),
        filter: Filter::new(&args.include, &args.exclude).map_err(|error| Failure::Message(error.to_string()))?,
        points: args.over_time.then_some(points),
        devices: args.common.devices(),
    };
    with_recording(&args.common, |recording| {
        let mut report = recording.fragmentation(&options)?;
        Ok(Answer {
            warnings: std::mem::take(&mut report.skipped),
            write: Box::new(move |renderer, source, out| renderer.fragmentation(source, &report, out)),
        })
    })
}
