//! The segment map: segments with holes to scale, all at one scale, their blocks by address; the others summed up.

use crate::analysis::fragmentation::segment_map::{DeviceSegmentMap, SegmentMapReport};
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::{OTHER, Row};
use crate::facts::segments::figures::Figures;
use crate::facts::segments::layout::{Piece, SegmentLayout};
use crate::model::bytes::Bytes;
use crate::model::{BlockState, SegmentType};
use crate::report::common::fit::shorten;
use crate::report::common::notes::safe;
use crate::report::common::picture::palette::{self, Color, Member};
use crate::report::common::picture::shape::{Anchor, MONO, MONO_SIZE, px, rectangle, text, titled};
use crate::report::common::picture::{Picture, Room, Script, WIDTH, device_heading, heading, panels, stacked};
use crate::report::common::words::{category, count, starred};
use crate::report::{Source, percent};
use crate::sorting::SortRows;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use svg::node::element::{Group, Path};

/// Left edge and width of the bars, in pixels.
const LEFT: f64 = 270.0;
const BAR: f64 = 508.0;
const HEIGHT: f64 = 12.0;
const ROW: f64 = 16.0;
/// Lines of segments drawn per picture; the rest is combined into one.
const MAX_LINES: usize = 120;
/// Least number of lines, however many devices share the picture.
const MIN_LINES: usize = 6;
const BETWEEN: f64 = 0.7;
/// Blocks at least this wide are drawn on their own; narrower ones share pixels.
const ALONE_FROM: f64 = 3.0;
/// Blocks at least this wide have a tooltip, as long as there are few.
const TITLED_FROM: f64 = 10.0;
const MAX_TITLED: usize = 500;
/// Free ranges at least this wide show their size.
const HOLE_FROM: f64 = 84.0;
/// The most lines of the request that failed.
const REQUEST_LINES: u64 = 8;
/// The least number of bytes that a full line may represent.
const FINEST: u64 = 16 << 20;

/// The segments; this many groups have their own color.
pub fn draw(source: Source<'_>, report: &SegmentMapReport, top: usize) -> Picture {
    let mut parts = vec![heading(source, "segments and their blocks")];
    let colors = Colors::of(&report.devices, top);
    parts.extend(panels(&report.devices, true, |device, room| panel(device, &colors, MAX_LINES, room)));
    stacked(parts)
}

pub(crate) fn panel(device: &DeviceSegmentMap, colors: &Colors<'_>, max_lines: usize, room: Room) -> Picture {
    let (body, mut y) = device_heading(&device.peak, room);
    let mut drawing = Drawing {
        body,
        device,
        paint: Paint::of(device, colors),
        titled: 0,
        max_titled: MAX_TITLED / room.devices.max(1),
    };
    y += 4.0;
    let star = if drawing.paint.inferred { " (* inferred)" } else { "" };
    for line in Script::Body.lines(&format!("{}{star}", totals(device))) {
        y += ROW;
        drawing.add(text(16.0, y, Anchor::Start, palette::TEXT, &line));
    }
    y = drawing.legend(y + 8.0);

    let segments = device.layout.segments.iter().zip(&device.figures);
    let (small, mut large): (Vec<Segment<'_>>, Vec<_>) =
        segments.partition(|(segment, _)| segment.segment_type == SegmentType::Small);
    // Segments with free ranges first, then full ones, then empty ones, which could be released.
    large.sort_rows_by_key(|(segment, figures)| (Kind::of(figures), Reverse(figures.inactive), segment.addr));
    let of_kind = |kind| large.iter().copied().filter(move |(_, figures)| Kind::of(figures) == kind);
    let mut holed: Vec<Segment<'_>> = of_kind(Kind::Holed).collect();
    let lines = (max_lines / room.devices.max(1)).max(MIN_LINES);
    let scale = scale(&holed, lines);
    if !holed.is_empty() || device.failed.is_some() {
        y += 30.0;
        let segments = count(holed.len() as u64, "segment");
        let title = format!("{segments} with free blocks, drawn to the same scale; a full row is {}", Bytes(scale));
        drawing.add(text(16.0, y, Anchor::Start, palette::MUTED, &title));
        y -= 6.0;
    }
    if let Some(bytes) = device.failed {
        y = drawing.request(bytes, scale, y);
    }
    let mut used = 0;
    let fits = holed.iter().take_while(|(segment, _)| {
        used += segment.size.div_ceil(scale) as usize;
        used <= lines
    });
    let rest = holed.split_off(fits.count().max(1).min(holed.len()));
    for (segment, figures) in holed {
        y = drawing.segment(segment, figures, scale, y);
    }
    y += 6.0;
    let sums = [
        ("more with free blocks", rest),
        ("full", of_kind(Kind::Full).collect()),
        ("not in use", of_kind(Kind::Empty).collect()),
        ("in the small pool", small),
    ];
    for (name, segments) in sums.iter().filter(|(_, segments)| !segments.is_empty()) {
        y += ROW;
        drawing.summary(name, &sum(segments), y);
    }
    Picture { height: y + 26.0, body: drawing.body }
}

type Segment<'a> = (&'a SegmentLayout, &'a Figures);

/// The visible features of a segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Holed,
    Full,
    Empty,
}

impl Kind {
    fn of(figures: &Figures) -> Self {
        match figures {
            Figures { blocks: 0, .. } => Self::Empty,
            Figures { inactive: 0, .. } => Self::Full,
            _ => Self::Holed,
        }
    }
}

fn sum(segments: &[Segment<'_>]) -> Figures {
    Figures::sum(segments.iter().map(|(_, figures)| *figures))
}

/// Bytes that a full line represents, the same for all segments: as few as there is room for lines, so that a segment takes
/// several of them, and its free ranges are visible.
fn scale(segments: &[Segment<'_>], lines: usize) -> u64 {
    let largest = segments.iter().map(|(segment, _)| segment.size).max().unwrap_or(FINEST);
    let needed = |scale: u64| segments.iter().map(|(segment, _)| segment.size.div_ceil(scale)).sum::<u64>();
    let mut scale = FINEST;
    while scale < largest && needed(scale) > lines as u64 {
        scale *= 2;
    }
    scale
}

fn totals(device: &DeviceSegmentMap) -> String {
    let all = Figures::sum(&device.figures);
    let segments = count(all.segments, "segment");
    let chosen = if device.is_most_inactive { "inactive memory is highest at this instant: " } else { "" };
    let mut line =
        format!("{chosen}{} reserved in {segments}, {} allocated", Bytes(all.reserved), Bytes(all.allocated));
    if all.pending_free > 0 {
        line += &format!(", {} pending free", Bytes(all.pending_free));
    }
    line += &format!(", {} inactive", Bytes(all.inactive));
    if all.inactive > 0 {
        let (pinned, largest) = (Bytes(all.pinned_free), Bytes(all.largest_free_block));
        line += &format!(" ({pinned} non-releasable because of live blocks); the largest free block is {largest}");
    }
    let stray = device.layout.stray.len() as u64;
    if stray > 0 {
        line += &format!("; {} outside of any segment", count(stray, "block"));
    }
    line
}

/// The colors of the largest groups, the same on all devices.
pub(crate) struct Colors<'a>(HashMap<&'a str, Color>);

impl<'a> Colors<'a> {
    pub(crate) fn of(devices: &'a [DeviceSegmentMap], top: usize) -> Self {
        let attributions = devices.iter().map(|device| &device.peak.attribution);
        let mut rows: Vec<(&Row, GroupBy)> =
            attributions.flat_map(|it| it.rows.iter().take(top).map(|row| (row, it.by))).collect();
        // If a group is on several devices, the larger one determines its place.
        rows.sort_rows_by_key(|(row, _)| Reverse(row.bytes));
        let mut seen = HashSet::new();
        rows.retain(|(row, _)| seen.insert(row.label.as_str()));
        let members: Vec<Member<'_>> = rows.iter().map(|&(row, by)| Member::of_row(row, by)).collect();
        Self(rows.iter().map(|(row, _)| row.label.as_str()).zip(palette::together(&members)).collect())
    }
}

struct Paint {
    /// One per row of the attribution.
    rows: Vec<Color>,
    legend: Vec<(String, Color)>,
    inferred: bool,
}

const ALLOCATED: Color = palette::FIGURE;
/// A color that no group has.
const PENDING: Color = palette::TEXT;

impl Paint {
    fn of(device: &DeviceSegmentMap, Colors(colors): &Colors<'_>) -> Self {
        let pending = device.layout.pieces.iter().any(|piece| piece.state == BlockState::ActivePendingFree);
        let pending = pending.then(|| ("pending free".to_owned(), PENDING));
        let free = ("free".to_owned(), palette::FREE);
        let groups = &device.peak.attribution.rows;
        let is_whole = device.peak.attribution.by == GroupBy::Category;
        let color = |row: &Row| colors.get(row.label.as_str()).copied();
        // Every category is inferred, so an asterisk would carry no information.
        let name = |row: &Row| {
            if is_whole { category(&row.label).to_owned() } else { starred(&row.label, row.inferred) }
        };
        let named: Vec<(String, Color)> = groups.iter().filter_map(|row| Some((name(row), color(row)?))).collect();
        let rows: Vec<Color> = groups.iter().map(|row| color(row).unwrap_or(palette::OTHER)).collect();
        let more = groups.len() > named.len();
        let inferred = !is_whole && groups.iter().any(|row| row.inferred && color(row).is_some());
        let other = more.then(|| (OTHER.to_owned(), palette::OTHER));
        let legend = named.into_iter().chain(other).chain(pending).chain([free]).collect();
        Self { rows, legend, inferred }
    }

    fn color(&self, device: &DeviceSegmentMap, piece: &Piece) -> Color {
        match piece.state {
            BlockState::Inactive => palette::FREE,
            BlockState::ActivePendingFree => PENDING,
            BlockState::ActiveAllocated => {
                let block = piece.allocation.and_then(|index| device.blocks.get(&index));
                block.and_then(|block| self.rows.get(block.row)).copied().unwrap_or(ALLOCATED)
            }
        }
    }
}

struct Drawing<'a> {
    body: Group,
    device: &'a DeviceSegmentMap,
    paint: Paint,
    /// Blocks with tooltips so far, and the most of them.
    titled: usize,
    max_titled: usize,
}

impl Drawing<'_> {
    fn add(&mut self, node: impl Into<Box<dyn svg::Node>>) {
        self.body = std::mem::replace(&mut self.body, Group::new()).add(node);
    }

    fn legend(&mut self, mut y: f64) -> f64 {
        let mut x = 16.0;
        y += 14.0;
        for (name, color) in self.paint.legend.clone() {
            let name = shorten(&safe(&name), 40);
            let width = 17.0 + Script::Body.width(&name) + 18.0;
            if x + width > f64::from(WIDTH) {
                x = 16.0;
                y += ROW;
            }
            self.add(
                rectangle(x, y - 9.5, 11.0, 11.0, color).set("stroke", palette::MUTED.light).set("stroke-width", "0.5"),
            );
            self.add(text(x + 17.0, y, Anchor::Start, palette::MUTED, &name));
            x += width;
        }
        y
    }

    fn label(&mut self, x: f64, y: f64, anchor: Anchor, content: &str) {
        let label = text(x, y + 10.0, anchor, palette::TEXT, content);
        self.add(label.set("font-family", MONO).set("font-size", MONO_SIZE));
    }

    fn frame(&mut self, width: f64, y: f64) {
        let frame = rectangle(LEFT, y, width.max(1.0), HEIGHT, palette::FREE);
        self.add(frame.set("stroke", palette::MUTED.light).set("stroke-width", "0.5"));
    }

    fn request(&mut self, bytes: u64, scale: u64, mut y: f64) -> f64 {
        self.label(16.0, y + ROW, Anchor::Start, "failed request");
        self.label(LEFT - 8.0, y + ROW, Anchor::End, &Bytes(bytes).to_string());
        let largest = Figures::sum(&self.device.figures).largest_free_block;
        let note = if largest < bytes { "fits no block" } else { "" };
        self.label(LEFT + BAR + 10.0, y + ROW, Anchor::Start, note);
        let lines = bytes.div_ceil(scale).max(1);
        // A request far larger than any segment is shown as a number.
        for line in 0..lines.min(REQUEST_LINES) {
            y += ROW;
            let width = BAR * (bytes - line * scale).min(scale) as f64 / scale as f64;
            let bar = rectangle(LEFT, y, width.max(1.0), HEIGHT, palette::ALARM).set("fill-opacity", "0.35");
            self.add(bar.set("stroke", palette::ALARM.light).set("stroke-width", "1.2"));
        }
        if lines > REQUEST_LINES {
            y += ROW;
            self.label(LEFT, y, Anchor::Start, &count(lines - REQUEST_LINES, "more row"));
        }
        y + 6.0
    }

    /// Many segments as one bar, their parts added up.
    fn summary(&mut self, name: &str, figures: &Figures, y: f64) {
        self.label(16.0, y, Anchor::Start, &format!("{} {name}", figures.segments));
        self.label(LEFT - 8.0, y, Anchor::End, &Bytes(figures.reserved).to_string());
        self.frame(BAR, y);
        let width = |bytes: u64| BAR * percent(bytes, figures.reserved) / 100.0;
        let (allocated, pending) = (width(figures.allocated), width(figures.pending_free));
        for (x, width, color) in [(LEFT, allocated, ALLOCATED), (LEFT + allocated, pending, PENDING)] {
            if width > 0.0 {
                // Pale, since it is a sum rather than blocks in their places.
                self.add(rectangle(x, y, width, HEIGHT, color).set("fill-opacity", "0.55"));
            }
        }
        self.label(LEFT + BAR + 10.0, y, Anchor::Start, &holes(figures));
    }

    /// A segment on as many lines as needed. Starts below `y` and returns where it ends.
    fn segment(&mut self, segment: &SegmentLayout, figures: &Figures, scale: u64, mut y: f64) -> f64 {
        let mut name = format!("0x{:x}", segment.addr);
        match segment.pool {
            Some(pool) if pool != (0, 0) => name += &format!(" pool {}.{}", pool.0, pool.1),
            _ if segment.stream.is_some_and(|stream| stream != 0) => name += " side stream",
            _ if segment.expandable => name += " expandable",
            _ => {}
        }
        self.label(16.0, y + ROW, Anchor::Start, &name);
        self.label(LEFT - 8.0, y + ROW, Anchor::End, &Bytes(segment.size).to_string());
        self.label(LEFT + BAR + 10.0, y + ROW, Anchor::Start, &holes(figures));
        let mut from = 0;
        while from < segment.size {
            y += ROW;
            let length = scale.min(segment.size - from);
            let (alike, is_free) = self.lines_alike(segment, from, scale);
            if alike > 1 {
                // Lines that are full, or free, all look the same.
                self.frame(BAR, y);
                if !is_free {
                    self.add(rectangle(LEFT, y, BAR, HEIGHT, ALLOCATED).set("fill-opacity", "0.55"));
                }
                let what = format!("{alike} {} rows", if is_free { "free" } else { "full" });
                let note = text(LEFT + BAR / 2.0, y + 9.5, Anchor::Middle, palette::TEXT, &what);
                self.add(note.set("font-size", 10));
                from += scale * alike;
                continue;
            }
            self.line(segment, segment.addr + from, length, scale, y);
            from += length;
        }
        y
    }

    /// Number of consecutive lines from an offset on that are entirely free, or have no hole; and which of the two.
    fn lines_alike(&self, segment: &SegmentLayout, from: u64, scale: u64) -> (u64, bool) {
        let pieces = self.device.layout.pieces_of(segment);
        let start = segment.addr + from;
        let pieces = &pieces[pieces.partition_point(|piece| piece.addr + piece.size <= start)..];
        let is_free = |piece: &Piece| piece.state == BlockState::Inactive;
        let first = pieces.first().is_some_and(is_free);
        let end = pieces.iter().find(|piece| is_free(piece) != first).map(|piece| piece.addr);
        ((end.unwrap_or(segment.addr + segment.size) - start) / scale, first)
    }

    /// The part of a segment that starts at `start`.
    fn line(&mut self, segment: &SegmentLayout, start: u64, length: u64, scale: u64, y: f64) {
        let (device, end) = (self.device, start + length);
        let width = |bytes: u64| BAR * bytes as f64 / scale as f64;
        self.frame(width(length), y);
        // Blocks that are too narrow share pixels: bytes in use in each, and the color of the last.
        let mut pixels: Vec<(f64, Color)> = vec![(0.0, ALLOCATED); BAR as usize + 1];
        let mut wide: Vec<(Color, String)> = Vec::new();
        let pieces = device.layout.pieces_of(segment);
        let first = pieces.partition_point(|piece| piece.addr + piece.size <= start);
        for piece in pieces[first..].iter().take_while(|piece| piece.addr < end) {
            let from = piece.addr.max(start);
            let size = width((piece.addr + piece.size).min(end) - from);
            let x = LEFT + width(from - start);
            let color = self.paint.color(device, piece);
            if piece.state == BlockState::Inactive {
                // A free range that spans several lines is labeled where it starts.
                if size >= HOLE_FROM && piece.addr >= start {
                    let bytes = Bytes(piece.size).to_string();
                    let hole = text(x + size / 2.0, y + 9.5, Anchor::Middle, palette::MUTED, &bytes);
                    self.add(hole.set("font-size", 10));
                }
            } else if size >= TITLED_FROM && self.titled < self.max_titled {
                self.titled += 1;
                let block = rectangle(x, y, size - BETWEEN, HEIGHT, color);
                self.add(titled(&self.title(piece)).add(block));
            } else if size >= ALONE_FROM {
                wide.push((color, outline(x, y, size - BETWEEN)));
            } else {
                share_pixels(&mut pixels, x - LEFT, size, color);
            }
        }
        self.paths(wide);
        self.pixels(&pixels, y);
    }

    fn paths(&mut self, mut outlines: Vec<(Color, String)>) {
        outlines.sort_rows_by_key(|(color, _)| color.light);
        for outlines in outlines.chunk_by(|a, b| a.0 == b.0) {
            let path: String = outlines.iter().map(|(_, outline)| outline.as_str()).collect();
            self.add(Path::new().set("d", path).set("fill", outlines[0].0.light));
        }
    }

    /// Pixels shared by narrow blocks: the fuller the stronger, and visible with a single byte.
    fn pixels(&mut self, pixels: &[(f64, Color)], y: f64) {
        let level = |&(bytes, color): &(f64, Color)| {
            // Sums of parts of a pixel miss a whole one by a rounding error.
            let level = if bytes <= 0.0 { 0 } else { 2 + ((bytes + 1e-6).min(1.0) * 2.0) as u32 };
            (level, color)
        };
        let mut x = 0;
        for run in pixels.chunk_by(|a, b| level(a) == level(b)) {
            let (strength, color) = level(&run[0]);
            if strength > 0 {
                let block = rectangle(LEFT + x as f64, y, run.len() as f64, HEIGHT, color);
                self.add(block.set("fill-opacity", f64::from(strength) / 4.0));
            }
            x += run.len();
        }
    }

    /// The group, category and site of a block, and where it is.
    fn title(&self, piece: &Piece) -> String {
        let place = format!("{} at 0x{:x}", Bytes(piece.size), piece.addr);
        let device = self.device;
        let Some(block) = piece.allocation.and_then(|index| device.blocks.get(&index)) else {
            return format!("pending free\n{place}");
        };
        let attribution = &device.peak.attribution;
        let is_other = |by: &GroupBy| !matches!(by, GroupBy::Category | GroupBy::Site);
        let group = attribution.rows.get(block.row).filter(|_| is_other(&attribution.by)).map(|row| row.label.clone());
        let site = device.sites.get(block.site).map(|site| starred(&site.label, site.inferred));
        let purpose = Some(category(block.category.name()).to_owned());
        group.into_iter().chain(purpose).chain(site).chain([place]).collect::<Vec<_>>().join("\n")
    }
}

/// Adds a narrow block to every pixel that it covers a part of.
fn share_pixels(pixels: &mut [(f64, Color)], from: f64, size: f64, color: Color) {
    let first = from as usize;
    for (index, pixel) in pixels.iter_mut().enumerate().skip(first).take(size as usize + 2) {
        let left = from.max(index as f64);
        let right = (from + size).min((index + 1) as f64);
        if right > left {
            *pixel = (pixel.0 + right - left, color);
        }
    }
}

fn outline(x: f64, y: f64, width: f64) -> String {
    format!("M{} {}h{}v{}h-{}z", px(x), px(y), px(width), px(HEIGHT), px(width))
}

fn holes(figures: &Figures) -> String {
    match figures.inactive {
        0 => "full".to_owned(),
        _ if figures.blocks == 0 => "no block in use".to_owned(),
        free => format!("{} free", Bytes(free)),
    }
}
