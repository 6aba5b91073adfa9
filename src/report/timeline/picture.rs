//! `memviz timeline`: live memory over time, stacked by group, with reserved memory, marks and annotations.

pub(crate) use super::legend::Key;
pub(crate) use super::scale::Tops;
use super::scale::{NO_LABELS, Scale};
pub(crate) use super::stacked::Colors;
use super::stacked::Stack;
use super::{legend, marks, ribbons, stack, strip, ticks};
use crate::analysis::timeline::{DeviceTimeline, TimelineReport};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::picture::chart::{self, Area};
use crate::report::common::picture::plot::{LABEL_LINE, LABEL_LINES, LEFT, LEGEND_TOP, PLOT_HEIGHT, PLOT_WIDTH};
use crate::report::common::picture::shape::px;
use crate::report::common::picture::{Picture, Room, device_heading, heading, panels, stacked, warnings};
use svg::node::Blob;
use svg::node::element::Group;

pub fn draw(source: Source<'_>, report: &TimelineReport) -> Picture {
    let mut parts = vec![heading(source, "live memory")];
    let colors = Colors::of(report.devices.iter());
    let tops = Tops::of(report.devices.iter());
    parts.extend(panels(&report.devices, true, |device, room| panel(device, &colors, &tops, room)));
    stacked(parts)
}

pub fn panel(device: &DeviceTimeline, colors: &Colors<'_>, tops: &Tops, room: Room) -> Picture {
    plot(device, &Stack::of(device, colors), tops, room)
}

pub fn categories(device: &DeviceTimeline, tops: &Tops, room: Room) -> Picture {
    plot(device, &Stack::of_categories(device), tops, room)
}

/// The legend of [`panel`], or of [`categories`] without colors, for a page that writes it as text.
pub fn keys(device: &DeviceTimeline, colors: Option<&Colors<'_>>) -> Vec<Key> {
    let stack = colors.map_or_else(|| Stack::of_categories(device), |colors| Stack::of(device, colors));
    legend::keys(device, &stack)
}

fn plot(device: &DeviceTimeline, stack: &Stack<'_>, tops: &Tops, room: Room) -> Picture {
    let (body, y) = device_heading(&device.peak, room);
    if device.peak.completeness.no_entries {
        // There is only one instant, so there is no curve.
        let bar = stack::bar(device, stack);
        let (legend, height) = legend::draw(device, stack, 0.0);
        let bar = bar.set("transform", format!("translate(0 {})", px(y + 12.0)));
        let legend = legend.set("transform", format!("translate(0 {})", px(y + 12.0 + stack::BAR + 24.0)));
        return Picture { height: y + 12.0 + stack::BAR + 24.0 + height + 10.0, body: body.add(bar).add(legend) };
    }
    let scale = Scale::of(device, tops);
    let (mut body, mut y) = warnings(body, y, &remarks(device, &scale));
    if let Some(run) = &device.run {
        let (whole, height) = strip::draw(run, device.peak.metric);
        body = body.add(whole.set("transform", format!("translate(0 {})", px(y + 12.0))));
        y += 12.0 + height;
    }
    let top = y + 14.0 + LABEL_LINE * LABEL_LINES as f64;
    if let Some(run) = &device.run {
        body = body.add(strip::lead(run, y, top));
    }
    let mut plot = Group::new().set("transform", format!("translate(0 {})", px(top)));
    // Smoothed edges of bands that are painted over each other would shine through.
    plot = plot.add(stack::draw(device, stack, &scale).set("shape-rendering", "crispEdges"));
    let area = Area { left: LEFT, top: 0, width: PLOT_WIDTH, height: PLOT_HEIGHT };
    plot = plot.add(Blob::new(chart::draw(area, NO_LABELS, scale.y, "", &[])));
    plot = stack::pending(device, &scale).into_iter().fold(plot, Group::add);
    plot = plot.add(stack::reserved(device, &scale)).add(ticks::draw(device));
    plot = marks::draw(plot, device, &scale);
    let below = f64::from(PLOT_HEIGHT + chart::BELOW) + 6.0;
    let (ribbons, ribbons_height) = ribbons::draw(device, room);
    plot = plot.add(ribbons.set("transform", format!("translate(0 {})", px(below))));
    let legend_top = LEGEND_TOP + if ribbons_height > 0.0 { ribbons_height + 8.0 } else { 0.0 };
    let (legend, legend_end) = legend::draw(device, stack, legend_top);
    Picture { height: top + legend_end + 14.0, body: body.add(plot.add(legend)) }
}

/// Facts that the plot does not show.
fn remarks(device: &DeviceTimeline, scale: &Scale) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(capacity) = scale.capacity.filter(|_| !scale.capacity_in_sight) {
        let capacity = Bytes(capacity);
        lines.push(format!("reserved memory and free device memory at the OOM add up to {capacity}"));
    }
    if scale.differs {
        lines.push("bytes have another scale than on devices with far more memory in use".to_owned());
    }
    if device.ooms.len() > 1 {
        lines.push(format!("{} requests failed (OOM); those close to each other share a mark", device.ooms.len()));
    }
    lines
}
