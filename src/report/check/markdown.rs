//! `memviz check` as Markdown.

use super::words::{self, CheckedInput};
use crate::analysis::check::{Check, CheckVerdict};
use crate::model::bytes::Bytes;
use crate::report::common::markdown::{cell, code, escape};
use crate::report::common::words::starred;
use std::io::{self, Write};

pub(crate) fn write(inputs: &[CheckedInput], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## GPU memory budgets: {}\n", words::verdict(inputs).name())?;
    inputs.iter().try_for_each(|input| checked_input(input, out))
}

fn checked_input(input: &CheckedInput, out: &mut dyn Write) -> io::Result<()> {
    let path = code(&input.path);
    if let Err(reason) = &input.answer {
        return writeln!(out, "### {path}: cannot be read\n\n> {}\n", escape(reason));
    }
    let checks = input.checks();
    writeln!(out, "### {path}: {}\n", words::summary(checks))?;
    for line in input.notes() {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if checks.is_empty() {
        return Ok(());
    }
    writeln!(out, "| | Budget | Device | Measured | Limit | Left |\n|---|---|--:|--:|--:|--:|")?;
    for check in checks {
        let verdict = match check.verdict {
            CheckVerdict::Passed => check.verdict.name().to_owned(),
            _ => format!("**{}**", check.verdict.name()),
        };
        let device = words::device(check);
        let (measured, limit, left) = (words::measured(check), words::amount(check.limit), words::headroom(check));
        writeln!(out, "| {verdict} | {} | {device} | {measured} | {limit} | {left} |", cell(&words::name(check)))?;
    }
    writeln!(out)?;
    checks.iter().try_for_each(|check| details(check, out))
}

/// Why a limit is not kept, or not known to be.
fn details(check: &Check, out: &mut dyn Write) -> io::Result<()> {
    let title = escape(&words::title(check));
    if let Some(no_match) = words::no_match(check) {
        writeln!(out, "{title} {no_match}.\n")?;
    }
    match check.verdict {
        CheckVerdict::Passed => {
            let Some(doubt) = &check.doubt else { return Ok(()) };
            writeln!(out, "{title} is certainly met, although {}.\n", escape(&words::doubt(doubt)))
        }
        CheckVerdict::Unknown => {
            let reason = check.doubt.as_ref().map(words::doubt).unwrap_or_default();
            writeln!(out, "**{title}** cannot be judged: {}.\n", escape(&reason))
        }
        CheckVerdict::Failed => {
            writeln!(out, "**{title}**: {}; {}:\n", words::excess(check), words::basis(check))?;
            writeln!(out, "| Bytes | Site |\n|--:|---|")?;
            for site in &check.culprits.sites {
                writeln!(out, "| {} | {} |", Bytes(site.bytes), cell(&starred(&site.label, site.inferred)))?;
            }
            words::left_out(check).map_or(Ok(()), |more| writeln!(out, "| | {more} |"))?;
            writeln!(out)?;
            words::star(check).map_or(Ok(()), |star| writeln!(out, "{}\n", escape(star)))
        }
    }
}
