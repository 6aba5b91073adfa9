//! `memviz leaks`.

use super::{Answer, with_recording};
use crate::analysis::{Filter, LeakOptions};
use crate::cli::args::{FormatArg, LeaksArgs};
use crate::cli::{Failure, Outcome};

/// Rows for people; machines get all.
const DEFAULT_TOP: usize = 20;

pub fn run(args: &LeaksArgs) -> Result<Outcome, Failure> {
    let for_people = matches!(args.common.format, FormatArg::Text | FormatArg::Markdown);
    let options = LeakOptions {
        by: args.by.into(),
        steps: args.steps.clone(),
        capacity: args.capacity.map(|capacity| capacity.0),
        filter: Filter::new(&args.include, &args.exclude).map_err(|error| Failure::Message(error.to_string()))?,
        top: args.top.or(for_people.then_some(DEFAULT_TOP)),
        devices: args.common.devices(),
    };
    with_recording(&args.common, |recording| {
        let report = recording.leaks(&options)?;
        Ok(Answer {
            warnings: Vec::new(),
            write: Box::new(move |renderer, source, out| renderer.leaks(source, &report, out)),
        })
    })
}
