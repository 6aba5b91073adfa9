//! What `memviz fix` says about each fix.

use crate::analysis::fix::{FixReport, ProposedFix};
use crate::report::common::fixes::{change, saves};

pub(crate) const NOTHING: &str = "no fixes: memviz found no known mistake in this recording";

/// `1. move zero_grad before the forward pass, at train.py:58 main: saves 180 MiB of 1.2 GiB allocated (predicted)`.
pub(crate) fn headline(fix: &ProposedFix) -> String {
    let (number, advice) = (fix.number, &fix.advice);
    let place =
        |change: &str| advice.line.as_ref().map_or(change.to_owned(), |line| format!("{change}, at {}", line.label));
    match &fix.written {
        Ok(written) => format!("{number}. {}: {}", place(&written.change), saves(&written.saving)),
        Err(because) => format!("{number}. not written: {}: {because}", change(advice)),
    }
}

/// What the answer says before the diffs, in lines: each fix, with the code of those that are not written.
pub(crate) fn summary(report: &FixReport) -> Vec<String> {
    if report.fixes.is_empty() {
        return vec![NOTHING.to_owned()];
    }
    let lines = report.fixes.iter().flat_map(|fix| {
        let code = if fix.written.is_err() { &fix.advice.code[..] } else { &[] };
        std::iter::once(headline(fix)).chain(code.iter().map(|line| format!("     {line}")))
    });
    lines.collect()
}
