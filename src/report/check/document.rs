//! `memviz check` for people.

use super::words::{self, CheckedInput};
use crate::analysis::check::{Check, CheckKind, CheckVerdict};
use crate::model::bytes::Bytes;
use crate::report::common::document::{Cell, Column, Cut, Document, Table, Tone};
use crate::report::common::next::Next;
use crate::report::common::words::starred;

pub(crate) fn document(inputs: &[CheckedInput]) -> Document {
    let mut document = Document::new(format!("GPU memory budgets: {}", words::verdict(inputs).name()));
    document.each(inputs.iter(), checked);
    document.next(next(inputs));
    document
}

/// The command to run next: the one that explains the first budget that is exceeded.
fn next(inputs: &[CheckedInput]) -> Option<Next> {
    let failed = |input: &&CheckedInput| input.checks().iter().any(|check| check.verdict == CheckVerdict::Failed);
    let input = inputs.iter().find(failed)?;
    let check = input.checks().iter().find(|check| check.verdict == CheckVerdict::Failed)?;
    let (name, about) = match &check.kind {
        CheckKind::MaxPeak | CheckKind::MaxSite(_) | CheckKind::BaselinePeak => {
            ("peak", "everything that holds memory at that instant")
        }
        CheckKind::MaxReserved | CheckKind::MaxFragmentation | CheckKind::BaselineReserved => {
            ("fragmentation", "what is reserved but not in use, and why")
        }
        CheckKind::MaxResidue(between) => {
            let (from, to) = between.split_once("..")?;
            let [from, to] = [from, to].map(|at| format!("{}@{at}", input.path));
            return Some(Next::new("diff", &[&from, &to], "", "everything left behind, and what was freed"));
        }
        CheckKind::MaxLeak => ("leaks", "what grows step after step, with stacks"),
    };
    Some(Next::new(name, &[&input.path], "", about))
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
    let [device, limit] = if are_several { [0, 60] } else { [60, 0] };
    let mut table = Table::new([
        Column::left(7, ""),
        Column::right(6, "device").from(device),
        Column::right(13, "measured").gap(2),
        Column::right(11, "limit").gap(2).from(limit),
        Column::right(13, "left").gap(2).from(76),
        Column::label("budget").cut(Cut::End),
    ])
    .indent(2);
    for check in checks {
        let cells = [
            check.verdict.name().to_owned(),
            words::device(check),
            words::measured(check),
            words::amount(check.limit),
            words::headroom(check),
        ];
        let row = table.row(cells, Cell::code(words::name(check)));
        if check.verdict != CheckVerdict::Passed {
            row.cell(0, Tone::Warn);
        }
    }
    document.table(table);
    for check in checks {
        details(document, check);
    }
}

/// Why a limit is exceeded, or why that is unknown.
fn details(document: &mut Document, check: &Check) {
    let title = words::title(check);
    let mut paragraph = |text: String| {
        document.gap();
        document.paragraph(text);
    };
    if let Some(no_match) = words::no_match(check) {
        paragraph(format!("{title} {no_match}"));
    }
    match (check.verdict, check.doubt.as_ref().map(words::doubt)) {
        (CheckVerdict::Passed, None) => {}
        (CheckVerdict::Passed, Some(doubt)) => paragraph(format!("{title} is certainly met, although {doubt}")),
        (CheckVerdict::Unknown, reason) => {
            paragraph(format!("{title} cannot be judged: {}", reason.unwrap_or_default()));
        }
        (CheckVerdict::Failed, _) => {
            paragraph(format!("{title}: {}", words::excess(check)));
            document.toned(Tone::Plain, 2, format!("{}:", words::basis(check)));
            let mut table = Table::new([Column::right(11, "bytes"), Column::label("site")]).head(None).indent(2);
            for site in &check.culprits.sites {
                table.row([Bytes(site.bytes).to_string()], Cell::code(starred(&site.label, site.inferred)));
            }
            if let Some(more) = words::left_out(check) {
                table.short("", more);
            }
            document.table(table);
            document.legends(words::star(check));
            document.legends(words::library_below(check));
        }
    }
}
