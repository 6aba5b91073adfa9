//! `memviz report`.

use super::{Answer, with_folded};
use crate::analysis::{PeakOptions, TimelineOptions};
use crate::cli::args::{PageFormatArg, ReportArgs};
use crate::cli::{Failure, Outcome, output};
use crate::report::page::Page;
use crate::report::timeline;

/// Bands of the timeline.
const TOP: usize = 10;

pub fn run(args: &ReportArgs) -> Result<Outcome, Failure> {
    let format = format(args)?;
    if format == PageFormatArg::Svg {
        output::check_picture_target(&args.common)?;
    }
    let peak = PeakOptions {
        by: args.by.into(),
        top: Some(TOP),
        inference: (&args.infer).into(),
        devices: args.common.devices(),
        ..PeakOptions::default()
    };
    with_folded(&args.common, args.frames.fold(true), |recording| {
        let devices = if peak.devices.is_empty() { recording.histories.len() } else { peak.devices.len() };
        let columns = timeline::columns(devices);
        let overview = recording.overview(&TimelineOptions { peak, axis: args.x.into(), columns, inactive: false })?;
        Ok(Answer {
            warnings: Vec::new(),
            write: Box::new(move |source, out| {
                let page = Page { source, overview: &overview };
                match format {
                    PageFormatArg::Svg => page.svg(out),
                    PageFormatArg::Markdown => page.markdown(out),
                    PageFormatArg::Html => page.html(out),
                }
            }),
        })
    })
}

/// The format asked for, or else what the output's extension stands for.
fn format(args: &ReportArgs) -> Result<PageFormatArg, Failure> {
    if let Some(format) = args.format {
        return Ok(format);
    }
    let output = args.common.output.as_deref();
    let extension = output.and_then(|path| path.extension()).and_then(|extension| extension.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("svg") => Ok(PageFormatArg::Svg),
        Some("md" | "markdown") => Ok(PageFormatArg::Markdown),
        Some("html" | "htm") => Ok(PageFormatArg::Html),
        _ => {
            let found = output.map_or("no output file".to_owned(), |path| path.display().to_string());
            Err(Failure::Message(format!("expected -o with a name in .svg, .md or .html, or --format; found {found}")))
        }
    }
}
