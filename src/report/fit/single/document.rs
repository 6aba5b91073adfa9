//! `memviz fit` of one recording for people.

use super::words;
use crate::analysis::advice::{Advice, Rescue};
use crate::analysis::fit::{FIRST, FitFix, FitPlans, FitTogether};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::document::{Cell, Column, Cut, Document, Table, Tone};
use crate::report::common::fixes::change;
use crate::report::common::notes::device_name;
use crate::report::common::words::count;
use crate::report::simulate::words as simulate;
use crate::simulation::plans::{DevicePlans, Plan};
use unicode_width::UnicodeWidthStr;

/// On narrower screens, the columns for allocated memory and retries are left out.
const DETAILS_FROM: usize = 100;
/// On narrower screens, the column for the time of recomputation is left out.
const RECOMPUTE_FROM: usize = 64;
/// The least width of the name of a plan; on screens narrower than [`BESIDE_FROM`], longer names are below the figures.
const NAME: usize = 20;
const BESIDE_FROM: usize = 56;

pub(crate) fn document(sources: &[Source<'_>], report: &FitPlans) -> Document {
    let Some((&last, others)) = sources.split_last() else { return Document::default() };
    let combined = report.together.iter().zip(&report.with_plan);
    let fixes = report.fixes.iter().zip(&report.rescues);
    let devices = report.plans.devices.iter().zip(fixes.zip(combined));
    let mut document = Document::devices(
        "What makes it fit:",
        last,
        devices,
        |document, (device, ((cures, rescue), (together, with_plan)))| {
            plans(document, device, (cures, rescue.as_ref()), [together.as_ref(), with_plan.as_ref()]);
        },
    );
    document.advice_for_simulation(last);
    document.first(|document| others.iter().for_each(|&source| document.file_notes(source)));
    document
}

fn plans(
    document: &mut Document,
    device: &DevicePlans,
    (cures, rescue): (&[FitFix], Option<&Rescue>),
    combined: [Option<&FitTogether>; 2],
) {
    document.title(format!("{}: {}", device_name(device.device), words::headline_with(device, cures, combined)));
    document.facts(words::facts(device));
    document.notes(words::limits(device));
    match rescue {
        Some(rescue) => {
            let advice: Vec<Advice> = cures.iter().map(|cure| cure.advice.clone()).collect();
            document.rescue(rescue, &advice, false);
        }
        None => first_cures(document, device, cures, combined),
    }
    if device.left_out > 0 {
        document.fact(format!("{} not shown; --all lists them", count(device.left_out as u64, "more plan")));
    }
    let Some(as_it_is) = &device.as_it_is else { return };
    let with_plan = combined[1];
    let cured = with_plan.and_then(|together| together.plan.as_ref());
    // After a failed request, people look for the change first.
    let is_code_first = device.need.is_some();
    if is_code_first {
        code(document, device, with_plan);
    }
    document.gap();
    let mut table = Table::new([
        Column::right(12, "needs"),
        Column::right(11, "reserved").from(DETAILS_FROM),
        Column::right(11, "allocated").from(DETAILS_FROM),
        Column::right(7, "retries").from(DETAILS_FROM),
        Column::right(10, "recompute").from(RECOMPUTE_FROM),
        Column::right(4, "fits"),
        Column::left(9, "certainty"),
        Column::label("changes").gap(1).cut(Cut::Wrapped).least(NAME),
    ])
    .below(4);
    // The closest plan is sought if none fits.
    let plans = device.plans.iter().map(|plan| (plan, true)).chain(device.nearest.iter().map(|plan| (plan, false)));
    for (plan, fits) in std::iter::once((as_it_is, device.fits)).chain(plans) {
        let Plan { outcome, .. } = plan;
        let cells = [
            Bytes(device.measure(plan)).to_string(),
            Bytes(outcome.max_reserved).to_string(),
            Bytes(outcome.max_allocated).to_string(),
            outcome.retries.to_string(),
            words::time(plan),
            (if fits { "yes" } else { "no" }).to_owned(),
            device.trust(plan).name().to_owned(),
        ];
        let name = words::name(plan);
        let row = table.row(cells, Cell::code(name.clone()));
        if name.width() > NAME {
            row.is_said = Some(BESIDE_FROM);
            row.below(&[name]);
        }
    }
    document.table(table);
    document.legend(simulate::NEEDS);
    document.legends(words::holes(device));
    document.wide(DETAILS_FROM, |document| document.legend(words::COLUMNS));
    let all = std::iter::once(as_it_is).chain(&device.plans).chain(&device.nearest);
    if all.into_iter().any(|plan| plan.outcome.retries > 0) {
        document.wide(DETAILS_FROM, |document| document.legend(simulate::RETRIES));
    }
    if !words::changes(device, cured).is_empty() {
        document.wide(RECOMPUTE_FROM, |document| document.legend(words::TIMES));
        document.legends(words::uncertain(device, with_plan));
    }
    if !is_code_first {
        code(document, device, with_plan);
    }
    let assumed = words::assumptions(device, cured).into_iter().map(|line| format!("assumed: {line}"));
    let below: Vec<String> = assumed.chain(words::not_played(device)).collect();
    if !below.is_empty() {
        document.gap();
    }
    document.legends(below);
}

/// The code of all changes, and of the settings.
fn code(document: &mut Document, device: &DevicePlans, with_plan: Option<&FitTogether>) {
    let cured = with_plan.and_then(|together| together.plan.as_ref());
    for change in words::changes(device, cured) {
        let (place, line) = words::code(change);
        document.gap();
        document.fact(format!("for {}, {place}:", words::short(&change.change)));
        document.code(4, line.lines());
    }
    let enough = cured.filter(|_| with_plan.is_some_and(|together| together.fits == Some(true)));
    if let Some((place, export)) = enough.into_iter().chain(device.best()).find_map(words::export) {
        document.gap();
        document.fact(place);
        document.code(4, [export]);
    }
}

/// The first few cures, each with whether it is enough, and all of these together.
fn first_cures(document: &mut Document, device: &DevicePlans, cures: &[FitFix], combined: [Option<&FitTogether>; 2]) {
    if cures.is_empty() {
        return;
    }
    document.gap();
    document.toned(Tone::Bold, 2, "What to change first");
    for (number, cure) in (1..).zip(cures.iter().take(FIRST)) {
        document.number(number, 4, Tone::Plain, change(&cure.advice));
        document.detail(7, words::cure(device, cure));
    }
    for together in combined.into_iter().flatten() {
        document.toned(Tone::Plain, 4, words::together(device, together));
    }
}
