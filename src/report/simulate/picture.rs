//! `memviz simulate -o`: memory needed and reserved with each of the settings, against the device.

use super::words;
use crate::analysis::simulate::{DeviceSimulation, SimulateReport};
use crate::report::Source;
use crate::report::common::notes;
use crate::report::common::picture::bars::{self, Bar};
use crate::report::common::picture::shape::{Anchor, text};
use crate::report::common::picture::titles::title;
use crate::report::common::picture::{Picture, Room, heading, palette, panels, remarks, stacked, warnings};
use crate::report::common::words::count;
use crate::simulation::Run;
use svg::node::element::Group;

const ROWS: usize = 12;

pub fn draw(source: Source<'_>, report: &SimulateReport) -> Picture {
    let mut parts = vec![heading(source, "memory needed with each allocator setting")];
    parts.extend(panels(&report.devices, true, panel));
    stacked(parts)
}

fn panel(device: &DeviceSimulation, room: Room) -> Picture {
    let name = format!("{}: {}", notes::device_name(device.device), words::headline(device));
    let (body, y) = title(Group::new(), 0.0, &name);
    let (alarms, doubts) = if room.notes {
        (words::alarms(device), words::doubts(device.runs.iter().take(ROWS)))
    } else {
        Default::default()
    };
    let (body, y) = warnings(body, y, &alarms);
    let (body, y) = remarks(body, y, &doubts);
    if device.runs.is_empty() {
        return Picture { height: y + 16.0, body };
    }
    let shown: Vec<Bar> = device.runs.iter().take(ROWS).map(bar).collect();
    let (mut body, mut y) = bars::below(body, y, &shown, device.capacity);
    let more = device.runs.len().saturating_sub(ROWS);
    if more > 0 {
        y += 16.0;
        let need = if more == 1 { "needs" } else { "need" };
        let more = format!("{} {need} as much or more", count(more as u64, "more setting"));
        body = body.add(text(16.0, y, Anchor::Start, palette::MUTED, &more));
    }
    Picture { height: y + 16.0, body }
}

fn bar(run: &Run) -> Bar {
    let fails = run.needs().is_none();
    let needed = match (fails, run.outcome.is_some()) {
        (false, _) => format!("{} needed", words::needs(run)),
        (true, true) => "fails".to_owned(),
        (true, false) => "cannot be simulated".to_owned(),
    };
    let reserved = run.outcome.as_ref().map(|outcome| outcome.max_reserved);
    Bar {
        name: words::name(run),
        needed: run.needs(),
        reserved,
        figures: [needed, reserved.map_or(String::new(), |_| format!("{} reserved", words::reserved(run)))],
        fails: fails && run.outcome.is_some(),
    }
}
