//! `memviz check` as text.

use super::words::{self, CheckedInput};
use crate::analysis::check::{Check, CheckKind, CheckVerdict};
use crate::model::bytes::Bytes;
use crate::report::common::fit::{shorten, shorten_end};
use crate::report::common::next::Next;
use crate::report::common::notes::safe;
use crate::report::common::text::TextStyle;
use crate::report::common::words::starred;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Terminals narrower than this do without what is left.
const HEADROOM_FROM: usize = 76;
/// Terminals narrower than this do without the device, which is named below where it matters.
const DEVICE_FROM: usize = 60;

pub(crate) fn write(text: TextStyle, inputs: &[CheckedInput], out: &mut dyn Write) -> io::Result<()> {
    for (index, input) in inputs.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        text.checked_input(input, out)?;
    }
    text.next(next(inputs).as_slice(), out)
}

/// What to type next: what explains the first budget that is exceeded.
fn next(inputs: &[CheckedInput]) -> Option<Next> {
    let failed = |input: &&CheckedInput| input.checks().iter().any(|check| check.verdict == CheckVerdict::Failed);
    let input = inputs.iter().find(failed)?;
    let check = input.checks().iter().find(|check| check.verdict == CheckVerdict::Failed)?;
    let (name, about) = match &check.kind {
        CheckKind::MaxPeak | CheckKind::MaxSite(_) | CheckKind::BaselinePeak => {
            ("peak", "everything that holds memory at that instant")
        }
        CheckKind::MaxReserved | CheckKind::MaxFragmentation | CheckKind::BaselineReserved => {
            ("fragmentation", "what is reserved and not in use, and why")
        }
        CheckKind::MaxResidue(between) => {
            let (from, to) = between.split_once("..")?;
            let [from, to] = [from, to].map(|at| format!("{}@{at}", input.path));
            return Some(Next::new("diff", &[&from, &to], "", "all that is left behind, and what was freed"));
        }
        CheckKind::MaxLeak => ("leaks", "what grows step after step, with stacks"),
    };
    Some(Next::new(name, &[&input.path], "", about))
}

impl TextStyle {
    fn checked_input(&self, input: &CheckedInput, out: &mut dyn Write) -> io::Result<()> {
        let path = safe(&input.path);
        if let Err(reason) = &input.answer {
            self.heading(&path, "cannot be read", out)?;
            return self.notes(std::slice::from_ref(reason), out);
        }
        let checks = input.checks();
        self.heading(&path, &words::summary(checks), out)?;
        self.notes(&input.notes(), out)?;
        if checks.is_empty() {
            return Ok(());
        }
        self.checks_head(out)?;
        checks.iter().try_for_each(|check| self.check_row(check, out))?;
        checks.iter().try_for_each(|check| self.check_details(check, out))
    }

    fn checks_head(&self, out: &mut dyn Write) -> io::Result<()> {
        let line = self.check_columns(["", "device", "measured", "limit", "left"]);
        writeln!(out, "{}", self.dim(&format!("{line}budget")))
    }

    fn check_row(&self, check: &Check, out: &mut dyn Write) -> io::Result<()> {
        let device = words::device(check);
        let (measured, limit, left) = (words::measured(check), words::amount(check.limit), words::headroom(check));
        let verdict = check.verdict.name();
        let line = self.check_columns([verdict, &device, &measured, &limit, &left]);
        let room = self.room(line.width());
        let name = shorten_end(&safe(&words::name(check)), room);
        let line = match check.verdict {
            CheckVerdict::Passed => line,
            _ => line.replacen(verdict, &self.warn(verdict), 1),
        };
        writeln!(out, "{line}{name}")
    }

    /// Verdict, device, what was measured, its limit and what is left.
    fn check_columns(&self, [verdict, device, measured, limit, left]: [&str; 5]) -> String {
        let mut line = format!("  {verdict:7}  ");
        if self.has(DEVICE_FROM) {
            line += &format!("{device:>6}  ");
        }
        line += &format!("{measured:>13}  {limit:>11}  ");
        if self.has(HEADROOM_FROM) {
            line += &format!("{left:>12}  ");
        }
        line
    }

    /// Why a limit is not kept, or not known to be.
    fn check_details(&self, check: &Check, out: &mut dyn Write) -> io::Result<()> {
        let title = words::title(check);
        if let Some(no_match) = words::no_match(check) {
            writeln!(out)?;
            self.words("", &format!("{title} {no_match}"), out)?;
        }
        match check.verdict {
            CheckVerdict::Passed => {
                let Some(doubt) = &check.doubt else { return Ok(()) };
                writeln!(out)?;
                self.words("", &format!("{title} is certainly met, although {}", words::doubt(doubt)), out)
            }
            CheckVerdict::Unknown => {
                writeln!(out)?;
                let reason = check.doubt.as_ref().map(words::doubt).unwrap_or_default();
                self.words("", &format!("{title} cannot be judged: {reason}"), out)
            }
            CheckVerdict::Failed => {
                writeln!(out)?;
                self.words("", &format!("{title}: {}", words::excess(check)), out)?;
                self.words("  ", &format!("{}:", words::basis(check)), out)?;
                for site in &check.culprits.sites {
                    let room = self.room(15);
                    let bytes = Bytes(site.bytes).to_string();
                    let label = shorten(&starred(&safe(&site.label), site.inferred), room);
                    writeln!(out, "  {bytes:>11}  {label}")?;
                }
                if let Some(more) = words::left_out(check) {
                    writeln!(out, "  {:>11}  {}", "", self.dim(&more))?;
                }
                words::star(check).map_or(Ok(()), |star| self.legend(star, out))
            }
        }
    }
}
