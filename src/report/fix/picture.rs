//! `memviz fix -o`: memory as recorded, and with the written fixes.

use super::words;
use crate::analysis::fix::{FixReport, FixedDevice, ProposedFix};
use crate::report::Source;
use crate::report::common::notes::{self, signed};
use crate::report::common::picture::pair::{BASE, NEW, Scale, both, point};
use crate::report::common::picture::plot::{LEGEND, LEGEND_LINE, LEGEND_TOP, Labels};
use crate::report::common::picture::shape::{Anchor, px, rectangle, text};
use crate::report::common::picture::{Picture, Room, heading, palette, panels, remarks, stacked, titles};
use svg::node::element::Group;

pub fn draw(source: Source<'_>, report: &FixReport, devices: &[FixedDevice]) -> Picture {
    let mut parts = vec![heading(source, "memory with the fixes of known mistakes, predicted")];
    parts.extend(panels(devices, true, |device, room| panel(report, device, room)));
    if devices.is_empty() {
        let (body, height) = remarks(Group::new(), 0.0, &words::summary(report));
        parts.push(Picture { height, body });
    }
    stacked(parts)
}

fn panel(report: &FixReport, device: &FixedDevice, _room: Room) -> Picture {
    let name = notes::device_name(device.device);
    let Some((before, after, curves)) = &device.curves else {
        let (body, y) = titles::title(Group::new(), 0.0, &format!("{name}: these fixes cannot be simulated together"));
        return Picture { height: y + 16.0, body };
    };
    let title = format!("{name}: predicted peak {} instead of {}", signed(*after), signed(*before));
    let (body, y) = titles::title(Group::new(), 0.0, &title);
    let scale = Scale::of(curves);
    let top = y + 14.0 + 32.0;
    let mut labels = Labels::default();
    let mut plot = both(curves, &scale).set("transform", format!("translate(0 {})", px(top)));
    for (what, column, bytes, color) in
        [("predicted", curves.new.mark, *after, NEW), ("recorded", curves.base.mark, *before, BASE)]
    {
        let label = format!("{what} peak {}", signed(bytes));
        plot = point(plot, &mut labels, &scale, (column, bytes), (&label, "", color));
    }
    let mut y = LEGEND_TOP;
    for (color, name) in [(BASE, "recorded"), (NEW, "predicted with these fixes:")] {
        let line = text(LEGEND + 18.0, y, Anchor::Start, palette::TEXT, name);
        plot = plot.add(rectangle(LEGEND, y - 9.5, 11.0, 11.0, color)).add(line);
        y += LEGEND_LINE;
    }
    let is_drawn = |fix: &&ProposedFix| device.fixes.contains(&fix.number);
    let drawn: Vec<String> = report.fixes.iter().filter(is_drawn).map(words::headline).collect();
    let (plot, y) = remarks(plot, y, &drawn);
    Picture { height: top + y + 6.0, body: body.add(plot) }
}
