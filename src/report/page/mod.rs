//! `memviz report`: one file with everything, for an issue. SVG, Markdown and static HTML.

mod figures;
pub(super) mod findings;
mod html;
mod markdown;
mod svg;
pub(super) mod verdict;

use super::Source;
use super::common::picture::{MAX_PANELS, Picture, PictureFormat, panels};
use super::common::source::file_names;
use super::flamegraph::colors::Colors;
use super::flamegraph::picture as flamegraph;
use super::fragmentation::picture as segments;
use super::timeline::picture as timeline;
use crate::analysis::fragmentation::segment_map::DeviceSegmentMap;
use crate::analysis::overview::Overview;
use crate::analysis::peak::DevicePeak;
use crate::facts::grouping::GroupBy;
use crate::facts::training::Category;
use crate::model::{CPU_DEVICE, DeviceId, Format};
use crate::sorting::SortRows;
use std::io::{self, Write};

/// Lines of the segment map in a report, for all devices; the rest is summarized.
const SEGMENT_LINES: usize = 60;
const SEGMENT_COLORS: usize = 10;
/// Rows of the table of sites, unless the command requests another number, and the rows that are not collapsed.
const SITES: usize = 14;
const FIRST_SITES: usize = 5;

struct Section {
    caption: &'static str,
    pictures: Vec<Picture>,
}

/// The formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum PageFormat {
    /// One picture.
    Svg,
    /// The same picture as a bitmap, for a chat.
    #[cfg_attr(all(feature = "cli", not(feature = "png")), value(hide = true))]
    Png,
    /// Tables for a GitHub issue.
    Markdown,
    /// A static page.
    Html,
}

#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    pub source: Source<'a>,
    pub overview: &'a Overview,
}

impl Page<'_> {
    fn name(&self) -> &str {
        file_names(&[self.source.path]).first().copied().unwrap_or_default()
    }

    /// The kind of memory: of a GPU, or of the CPU if nothing else was recorded.
    fn title(&self) -> &'static str {
        let devices = &self.overview.peak.devices;
        let is_of_cpu = !devices.is_empty() && devices.iter().all(|peak| peak.device == CPU_DEVICE);
        if is_of_cpu { "CPU memory report" } else { "GPU memory report" }
    }

    pub fn write(&self, format: PageFormat, out: &mut dyn Write) -> io::Result<()> {
        match format {
            PageFormat::Svg => self.svg(out),
            PageFormat::Png => svg::page(self).write_as(PictureFormat::Png, out),
            PageFormat::Markdown => self.markdown(out),
            PageFormat::Html => self.html(out),
        }
    }

    /// Writes one picture with everything.
    pub fn svg(&self, out: &mut dyn Write) -> io::Result<()> {
        svg::page(self).write(out)
    }

    /// Writes GitHub Flavored Markdown that can be pasted into an issue: tables, and full stacks to unfold.
    pub fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        markdown::write(self, out)
    }

    /// Writes a static page without scripts and references: the same pictures and tables.
    pub fn html(&self, out: &mut dyn Write) -> io::Result<()> {
        html::write(self, out)
    }

    /// The timeline of each device, the most important device first: by category if that is known. A report shows one, and
    /// collapses those of other devices.
    fn first_pictures(&self) -> Section {
        let devices = self.first_first(&self.overview.timeline.devices, |device| device.peak.device);
        let tops = timeline::Tops::of(devices.iter().copied());
        if self.is_by_category() {
            let pictures = panels(&devices, true, |device, room| timeline::categories(device, &tops, room));
            Section { caption: "Memory over time, by category", pictures }
        } else {
            let colors = timeline::Colors::of(devices.iter().copied());
            let pictures = panels(&devices, true, |device, room| timeline::panel(device, &colors, &tops, room));
            let has_history = devices.iter().any(|device| !device.peak.completeness.no_entries);
            let caption = if has_history { "Memory over time" } else { "Memory at dump time" };
            Section { caption, pictures }
        }
    }

    /// The device of the first of [`Self::first_pictures`], and the legend of its picture.
    fn first_keys(&self) -> Option<(&DevicePeak, Vec<timeline::Key>)> {
        let devices = self.first_first(&self.overview.timeline.devices, |device| device.peak.device);
        let colors = (!self.is_by_category()).then(|| timeline::Colors::of(devices.iter().copied()));
        let first = *devices.first()?;
        Some((&first.peak, timeline::keys(first, colors.as_ref())))
    }

    /// Devices, with the one to look at first in front.
    fn first_first<'d, D>(&self, devices: &'d [D], id: impl Fn(&D) -> DeviceId) -> Vec<&'d D> {
        let first = self.first_device();
        let mut devices: Vec<&D> = devices.iter().collect();
        devices.sort_rows_by_key(|device| Some(id(device)) != first);
        devices
    }

    fn first_device(&self) -> Option<DeviceId> {
        let triage = &self.overview.triage;
        triage.devices.get(triage.first).map(|first| first.peak.device)
    }

    /// Whether there are sites and stacks: memory timelines have only categories.
    fn has_sites(&self) -> bool {
        self.source.recording.snapshot.notes.format != Format::MemoryTimeline
    }

    /// Whether categories are informative: the use of most of the memory is known, and not only that it is from before.
    fn is_by_category(&self) -> bool {
        let attributions = self.overview.triage.devices.iter().map(|device| &device.categories);
        let of = |label: &str| {
            let rows = attributions.clone().flat_map(|categories| &categories.rows);
            rows.filter(|row| row.label == label).map(|row| u128::from(row.bytes)).sum::<u128>()
        };
        let total: u128 = attributions.clone().map(|categories| u128::from(categories.total_bytes)).sum();
        let is_by_site =
            self.overview.timeline.devices.iter().any(|device| device.peak.attribution.by == GroupBy::Site);
        is_by_site
            && total > 0
            && (of(Category::Unknown.name()) + of(Category::BeforeRecording.name())) * 10 < total * 9
    }

    /// All other pictures: segments, if free ranges matter, and stacks.
    fn more_pictures(&self) -> Vec<Section> {
        let overview = self.overview;
        let mut sections = Vec::new();
        let maps = &overview.segments.devices;
        if !maps.is_empty() {
            let colors = segments::Colors::of(maps, SEGMENT_COLORS);
            let panel = |map: &DeviceSegmentMap, room| segments::panel(map, &colors, SEGMENT_LINES, room);
            sections.push(Section { caption: "Segments and their free blocks", pictures: panels(maps, false, panel) });
        }
        if self.has_sites() {
            let devices = self.first_first(&overview.flame.devices, |device| device.peak.device);
            let colors = Colors::of(devices.iter().flat_map(|device| &device.nodes));
            let pictures = panels(&devices, false, |device, room| flamegraph::panel(device, &colors, room));
            sections.push(Section { caption: "Live bytes by stack, outermost caller on top", pictures });
        }
        sections
    }

    fn first_peak(&self) -> Option<&DevicePeak> {
        let peaks = &self.overview.peak.devices;
        peaks.iter().find(|peak| Some(peak.device) == self.first_device()).or(peaks.first())
    }

    /// The peaks whose rows are listed, and how many of their rows.
    fn tables(&self) -> (&[DevicePeak], usize) {
        let devices = &self.overview.peak.devices;
        let rows = self.overview.top.unwrap_or(SITES);
        let rows = if devices.len() > 4 { rows.div_ceil(2) } else { rows };
        (&devices[..devices.len().min(MAX_PANELS)], rows)
    }
}
