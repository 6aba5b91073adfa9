//! `memviz fit -o` of one recording: memory needed and reserved with each cure and plan, against the device.

use super::words;
use crate::analysis::advice::Saving;
use crate::analysis::fit::{FitFix, FitPlans, FitTogether};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::fixes;
use crate::report::common::notes::device_name;
use crate::report::common::picture::bars::{self, Bar};
use crate::report::common::picture::titles::title;
use crate::report::common::picture::{Picture, Room, heading, panels, stacked, warnings};
use crate::simulation::plans::{DevicePlans, Goal, Plan};
use svg::node::element::Group;

/// All devices below each other.
pub fn draw(sources: &[Source<'_>], report: &FitPlans) -> Picture {
    let mut parts: Vec<Picture> = sources.iter().map(|&source| heading(source, "what makes it fit")).collect();
    let cures = report.fixes.iter().zip(report.together.iter().zip(&report.with_plan));
    let devices: Vec<_> = report.plans.devices.iter().zip(cures).collect();
    parts.extend(panels(&devices, true, |&(device, (cures, (together, with_plan))), room| {
        panel(device, cures, [together.as_ref(), with_plan.as_ref()], room)
    }));
    stacked(parts)
}

fn panel(device: &DevicePlans, cures: &[FitFix], combined: [Option<&FitTogether>; 2], room: Room) -> Picture {
    let name = format!("{}: {}", device_name(device.device), words::headline_with(device, cures, combined));
    let (body, y) = title(Group::new(), 0.0, &name);
    let (body, y) = warnings(body, y, &if room.notes { words::limits(device) } else { Vec::new() });
    let Some(as_it_is) = &device.as_it_is else { return Picture { height: y + 16.0, body } };
    let plan = |plan: &Plan| bar_of_plan(device, plan);
    let mut shown = vec![plan(as_it_is)];
    let named = cures.iter().take(fixes::MOST).enumerate();
    let named = named.map(|(place, cure)| {
        (format!("{}. {}", place + 1, fixes::change(&cure.advice)), &cure.advice.saving, cure.fits)
    });
    let at_once = combined.into_iter().flatten().map(|it| (at_once(it), &it.fixes.saving, it.fits));
    shown.extend(named.chain(at_once).filter_map(|(name, saving, fits)| bar_of_cure(device, name, saving, fits)));
    shown.extend(device.plans.iter().chain(&device.nearest).map(plan));
    let (body, y) = bars::below(body, y, &shown, Some(device.goal.bytes()));
    Picture { height: y + 16.0, body }
}

fn bar_of_plan(device: &DevicePlans, plan: &Plan) -> Bar {
    bar(device, words::name(plan), device.measure(plan), plan.outcome.max_reserved)
}

/// A simulated cure; the others have no figures.
fn bar_of_cure(device: &DevicePlans, name: String, saving: &Saving, fits: Option<bool>) -> Option<Bar> {
    let Saving::Simulated { allocated, reserved, needs, .. } = saving else { return None };
    let needed = match device.goal {
        Goal::Device(_) => needs.unwrap_or(reserved.after),
        Goal::Allocated(_) => allocated.after,
    };
    Some(Bar { fails: fits == Some(false), ..bar(device, name, needed, reserved.after) })
}

fn bar(device: &DevicePlans, name: String, needed: u64, reserved: u64) -> Bar {
    let figures = [format!("{} needed", Bytes(needed)), format!("{} reserved", Bytes(reserved))];
    Bar { name, needed: Some(needed), reserved: Some(reserved), figures, fails: needed > device.goal.bytes() }
}

/// Cures by their numbers, counted from 1, and further changes.
fn at_once(together: &FitTogether) -> String {
    let numbers = together.fixes.places.iter().map(|place| place.saturating_add(1).to_string());
    let parts: Vec<String> = numbers.chain(together.plan.iter().flat_map(words::parts)).collect();
    format!("{} together", parts.join(" + "))
}
