//! `memviz fragmentation`.

use super::{Answer, for_people, with_folded, with_recording};
use crate::analysis::{Filter, FragmentationOptions, GroupBy, PeakOptions};
use crate::cli::args::{FormatArg, FormatOrSvgArg, FragmentationArgs};
use crate::cli::{Failure, Outcome, output};
use crate::report::fragmentation;
use crate::report::fragmentation::BlockColor;

/// Rows of the pinning for people; machines get all.
const DEFAULT_TOP: usize = 20;
/// Colours of the picture.
const DEFAULT_COLORS: usize = 10;
/// Rows over time for people.
const POINTS_TO_READ: u32 = 24;
/// Rows over time for plotting.
const POINTS_TO_PLOT: u32 = 400;

pub fn run(args: &FragmentationArgs) -> Result<Outcome, Failure> {
    let filter = args.filter.compile()?;
    match FormatOrSvgArg::resolve(args.format, args.common.output.as_deref()) {
        Some(format) => tell(args, format, filter),
        None => draw(args, filter),
    }
}

fn tell(args: &FragmentationArgs, format: FormatArg, filter: Filter) -> Result<Outcome, Failure> {
    let for_people = for_people(format);
    let points = args.points.unwrap_or(if for_people { POINTS_TO_READ } else { POINTS_TO_PLOT });
    let options = FragmentationOptions {
        at: args.at.clone(),
        by: args.by.map(GroupBy::from).unwrap_or_default(),
        top: args.top.or(for_people.then_some(DEFAULT_TOP)),
        filter,
        inference: (&args.infer).into(),
        points: args.over_time.then_some(points),
        devices: args.common.devices(),
    };
    let renderer = output::renderer(&args.common, format);
    with_folded(&args.common, args.frames.fold(for_people), |recording| {
        let mut report = recording.fragmentation(&options)?;
        Ok(Answer {
            warnings: std::mem::take(&mut report.skipped),
            write: Box::new(move |source, out| renderer.fragmentation(source, &report, out)),
        })
    })
}

fn draw(args: &FragmentationArgs, filter: Filter) -> Result<Outcome, Failure> {
    output::check_picture_target(&args.common)?;
    if args.over_time {
        return Err(Failure::Message("--over-time gives rows; memviz timeline draws memory over time".to_owned()));
    }
    let options = PeakOptions {
        by: args.by.map(GroupBy::from).unwrap_or_default(),
        at: args.at.clone(),
        filter,
        inference: (&args.infer).into(),
        devices: args.common.devices(),
        ..PeakOptions::default()
    };
    let color = args.by.map_or(BlockColor::State, |_| BlockColor::Group(args.top.unwrap_or(DEFAULT_COLORS)));
    with_recording(&args.common, |recording| {
        let mut report = recording.segment_map(&options)?;
        Ok(Answer {
            warnings: std::mem::take(&mut report.skipped),
            write: Box::new(move |source, out| fragmentation::draw(source, &report, color).write(out)),
        })
    })
}
