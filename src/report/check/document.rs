//! `memviz check` for people.

use super::words::{self, CheckedInput};
use crate::analysis::check::{Check, CheckKind, CheckVerdict};
use crate::report::common::document::{Cell, Column, Cut, Document, Table, Tone};
use crate::report::common::next::Next;
use crate::report::common::words::starred;
use unicode_width::UnicodeWidthStr;

/// Narrower screens show either devices or limits.
const ALL_FROM: usize = 60;
/// Narrower screens do not show what is left of budgets.
const LEFT_FROM: usize = 76;
/// Widths of the columns before the budget: on every screen, and from the two widths on.
const NARROW: usize = 39;
const MIDDLE: usize = NARROW + 7;
const WIDE: usize = MIDDLE + 15;

pub(crate) fn document(inputs: &[CheckedInput]) -> Document {
    let mut document = Document::new(format!("GPU memory budgets: {}", words::verdict(inputs).name()));
    document.each(inputs.iter(), checked);
    document.next(next(inputs));
    document
}

/// The commands to run next: those that explain the budgets that the first of the inputs exceeds.
fn next(inputs: &[CheckedInput]) -> Vec<Next> {
    let of_input = |input: &CheckedInput| {
        let failed = input.checks().iter().filter(|check| check.verdict == CheckVerdict::Failed);
        let mut commands: Vec<Next> = failed.filter_map(|check| explaining(input, check)).collect();
        let mut seen = Vec::new();
        commands.retain(|command| {
            let is_new = !seen.contains(command);
            seen.push(command.clone());
            is_new
        });
        commands
    };
    inputs.iter().map(of_input).find(|commands| !commands.is_empty()).unwrap_or_default()
}

/// The command that explains an exceeded budget.
fn explaining(input: &CheckedInput, check: &Check) -> Option<Next> {
    let (name, options, about) = match &check.kind {
        CheckKind::MaxPeak | CheckKind::MaxSite(_) | CheckKind::BaselinePeak => {
            ("peak", "", "everything that holds this memory")
        }
        CheckKind::MaxReserved | CheckKind::MaxFragmentation | CheckKind::BaselineReserved => {
            ("fragmentation", "--at peak", "what is reserved but not in use, and why")
        }
        CheckKind::MaxResidue(between) => {
            let (from, to) = between.split_once("..")?;
            let [from, to] = [from, to].map(|at| format!("{}@{at}", input.path));
            return Some(Next::new("diff", &[&from, &to], "", "everything left behind, and what was freed"));
        }
        CheckKind::MaxLeak => ("leaks", "", "what grows step after step, with stacks"),
    };
    Some(Next::new(name, &[&input.path], options, about))
}

fn checked(document: &mut Document, input: &CheckedInput) {
    if let Err(reason) = &input.answer {
        document.heading(&input.path, "cannot be read");
        return document.note(reason);
    }
    let checks = input.checks();
    document.heading(&input.path, words::summary(checks));
    document.notes(input.notes());
    if checks.is_empty() {
        return;
    }
    // Without the device, budgets of several devices look the same; without the limit, the verdict still says the result.
    let are_several = checks.iter().any(|check| check.device != checks[0].device);
    let [device, limit] = if are_several { [0, ALL_FROM] } else { [ALL_FROM, 0] };
    let mut table = Table::new([
        Column::left(7, ""),
        Column::right(6, "device").from(device),
        Column::right(13, "measured").gap(2),
        Column::right(11, "limit").gap(2).from(limit),
        Column::right(13, "left").gap(2).from(LEFT_FROM),
        Column::label("budget").cut(Cut::Wrapped),
    ])
    .indent(2)
    .below(11);
    for check in checks {
        let cells = [
            check.verdict.name().to_owned(),
            words::device(check),
            words::measured(check),
            words::amount(check.limit),
            words::headroom(check),
        ];
        let row = table.row(cells, Cell::code(words::name(check)));
        if matches!(check.verdict, CheckVerdict::Failed | CheckVerdict::Unknown) {
            row.cell(0, Tone::Warn);
        }
        let name = words::name(check);
        row.is_said = Some(match name.width() {
            width if WIDE + width > LEFT_FROM => WIDE + width,
            width if MIDDLE + width > ALL_FROM => MIDDLE + width,
            width => NARROW + width,
        });
        row.below(&[name]);
    }
    document.table(table);
    for check in checks {
        details(document, input, check);
    }
    for (names, because) in words::unknown(checks) {
        document.gap();
        document.paragraph(format!("{names} cannot be judged: {because}"));
    }
}

fn details(document: &mut Document, input: &CheckedInput, check: &Check) {
    let title = words::title(check);
    let mut paragraph = |text: String| {
        document.gap();
        document.paragraph(text);
    };
    if let Some(no_match) = words::no_match(check) {
        paragraph(format!("{title} {no_match}"));
    }
    match (check.verdict, check.doubt.as_ref().map(words::doubt)) {
        (CheckVerdict::Passed, Some(doubt)) => paragraph(format!("{title} is met in any case, although {doubt}")),
        (CheckVerdict::Shown, Some(doubt)) => paragraph(format!("{title} is only partly known: {doubt}")),
        (CheckVerdict::Passed, None) | (CheckVerdict::Unknown, _) => {}
        (CheckVerdict::Shown, None) if check.culprits.sites.is_empty() => {}
        (CheckVerdict::Failed | CheckVerdict::Shown, _) => {
            paragraph(format!("{title}: {}", words::excess(check)));
            document.toned(Tone::Plain, 2, format!("{}:", words::basis(check)));
            let mut table = Table::new([Column::right(11, "bytes"), Column::label("site")]).indent(2);
            for site in &check.culprits.sites {
                table.row([Cell::size(site.bytes)], Cell::code(starred(&site.label, site.inferred)));
            }
            if let Some(more) = words::left_out(check) {
                table.short("", more);
            }
            document.table(table);
            document.legends(words::not_counted(check));
            document.legends(words::star(check));
            document.legends(words::no_stacks(input, check));
            document.legends(words::library_below(check));
        }
    }
}
