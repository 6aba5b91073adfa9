//! `memviz report`: one file that says it all, for an issue. SVG, Markdown and static HTML.

mod figures;
mod findings;
mod html;
mod markdown;
mod svg;

use super::Source;
use super::common::picture::{MAX_PANELS, Picture, PictureFormat, panels};
use super::flamegraph::picture as flamegraph;
use super::fragmentation::picture as segments;
use super::fragmentation::picture::BlockColor;
use super::timeline::picture as timeline;
use crate::analysis::{DevicePeak, Overview};
use std::io::{self, Write};

/// Rows of the segment map in a report, of all devices; the rest is summed up.
const SEGMENT_ROWS: usize = 60;
/// Rows of the table of sites.
const SITES: usize = 14;

/// What a report can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum PageFormat {
    /// One picture.
    Svg,
    /// The same for a chat, where memviz is built with it.
    Png,
    /// Tables for a GitHub issue.
    Markdown,
    /// A static page.
    Html,
}

/// A report about one recording.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The recording.
    pub source: Source<'a>,
    /// What is known of it.
    pub overview: &'a Overview,
}

impl Page<'_> {
    /// Writes it in a format.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write(&self, format: PageFormat, out: &mut dyn Write) -> io::Result<()> {
        match format {
            PageFormat::Svg => self.svg(out),
            PageFormat::Png => svg::page(self).write_as(PictureFormat::Png, out),
            PageFormat::Markdown => self.markdown(out),
            PageFormat::Html => self.html(out),
        }
    }

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
        // Where memory ran out, holes matter most.
        let at_oom = |device| overview.segments_at_oom.devices.iter().find(|map| map.peak.device == device);
        let maps: Vec<_> = overview.segments.devices.iter().map(|map| at_oom(map.peak.device).unwrap_or(map)).collect();
        let mut pictures = vec![
            ("Live memory over time", panels(&overview.timeline.devices, true, timeline::panel)),
            ("Live bytes by stack, outermost caller on top", panels(&overview.flame.devices, false, flamegraph::panel)),
        ];
        if !maps.is_empty() {
            let panel = |map: &&_, room| segments::panel(map, BlockColor::State, SEGMENT_ROWS, room);
            pictures.push(("Segments and their blocks, holes first", panels(&maps, false, panel)));
        }
        pictures
    }

    /// The peaks whose rows are written out, and how many of their rows.
    fn tables(&self) -> (&[DevicePeak], usize) {
        let devices = &self.overview.peak.devices;
        let rows = if devices.len() > 4 { SITES / 2 } else { SITES };
        (&devices[..devices.len().min(MAX_PANELS)], rows)
    }
}
