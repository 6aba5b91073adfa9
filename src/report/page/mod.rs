//! `memviz report`: one file that says it all, for an issue. SVG, Markdown and static HTML.

mod figures;
mod findings;
mod html;
mod markdown;
mod svg;

use super::Source;
use super::picture::{BlockColor, Picture, Room, flamegraph, segments, timeline};
use crate::analysis::Overview;
use std::io::{self, Write};

/// Rows of the segment map in a report, of all devices; the rest is summed up.
const SEGMENT_ROWS: usize = 60;
/// Rows of the table of sites.
const SITES: usize = 15;

/// A report about one recording.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The recording.
    pub source: Source<'a>,
    /// What is known of it.
    pub overview: &'a Overview,
}

impl Page<'_> {
    /// Writes one picture with everything.
    ///
    /// # Errors
    /// When writing fails.
    pub fn svg(&self, out: &mut dyn Write) -> io::Result<()> {
        svg::page(self).write(out)
    }

    /// Writes GitHub-flavoured Markdown that can be pasted into an issue: tables, and full stacks to unfold.
    ///
    /// # Errors
    /// When writing fails.
    pub fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        markdown::write(self, out)
    }

    /// Writes a static page without scripts and references: the same pictures and tables.
    ///
    /// # Errors
    /// When writing fails.
    pub fn html(&self, out: &mut dyn Write) -> io::Result<()> {
        html::write(self, out)
    }

    /// The pictures of each device with their captions: timeline, flame graph, segment map.
    fn pictures(&self) -> Vec<(&'static str, Vec<Picture>)> {
        let overview = self.overview;
        let room = Room { devices: overview.timeline.devices.len(), notes: true };
        let quiet = Room { notes: false, ..room };
        let timelines = overview.timeline.devices.iter();
        let flames = overview.flame.devices.iter();
        // Where memory ran out, holes matter most.
        let at_oom = |device| overview.segments_at_oom.devices.iter().find(|map| map.peak.device == device);
        let maps = overview.segments.devices.iter().map(|map| at_oom(map.peak.device).unwrap_or(map));
        vec![
            ("Live memory over time", timelines.map(|device| timeline::panel(device, room)).collect()),
            (
                "Live bytes by stack, outermost caller on top",
                flames.map(|device| flamegraph::panel(device, quiet)).collect(),
            ),
            (
                "Segments and their blocks, holes first",
                maps.map(|device| segments::panel(device, BlockColor::State, SEGMENT_ROWS, quiet)).collect(),
            ),
        ]
    }
}
