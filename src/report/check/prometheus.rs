//! `memviz check` as gauges for Prometheus.

use super::words::{self, CheckedInput};
use crate::analysis::check::{Amount, Check, CheckVerdict};
use crate::report::common::gauges::Gauges;
use std::io::{self, Write};

/// Writes a gauge for each budget on each device: whether it is exceeded, its limit and the measured value.
pub fn write(inputs: &[CheckedInput], out: &mut dyn Write) -> io::Result<()> {
    let mut gauges = Gauges(out);
    let name = "check_verdict";
    gauges.head(name, "Verdict on a budget, in the label verdict; the value is always 1.")?;
    each(inputs, |labels, check| {
        let labels = [labels, &[("verdict", check.verdict.name())]].concat();
        gauges.line(name, &labels, 1)
    })?;
    let name = "check_limit";
    gauges.head(name, "Limit of a budget in bytes, or as a share from 0 to 1.")?;
    each(inputs, |labels, check| check.limit.map_or(Ok(()), |limit| gauges.line(name, labels, number(limit))))?;
    let name = "check_measured";
    gauges.head(
        name,
        "What was measured for a budget, in bytes or as a share from 0 to 1; the label bound marks lower and upper bounds.",
    )?;
    each(inputs, |labels, check| {
        let (Some(measured), bound) = check.measured() else { return Ok(()) };
        let labels: Vec<_> = labels.iter().copied().chain(bound.map(|bound| ("bound", bound))).collect();
        gauges.line(name, &labels, number(measured))
    })?;
    let name = "check_unread";
    gauges.head(name, "Inputs that could not be read.")?;
    gauges.line(name, &[], inputs.iter().filter(|input| input.answer.is_err()).count())?;
    let name = "check_passed";
    gauges.head(name, "Whether all budgets are met.")?;
    gauges.line(name, &[], u8::from(words::verdict(inputs) == CheckVerdict::Passed))
}

/// Calls `write` with each budget and its labels: the file, the budget, and the device.
fn each(inputs: &[CheckedInput], mut write: impl FnMut(&[(&str, &str)], &Check) -> io::Result<()>) -> io::Result<()> {
    for input in inputs {
        for check in input.checks() {
            let device = check.device.map(|device| device.to_string());
            let title = words::title_below(&input.path, check);
            let mut labels = vec![("file", input.path.as_str()), ("kind", check.kind.name()), ("budget", &title)];
            labels.extend(device.as_deref().map(|device| ("device", device)));
            write(&labels, check)?;
        }
    }
    Ok(())
}

fn number(amount: Amount) -> String {
    match amount {
        Amount::Bytes(bytes) => bytes.to_string(),
        Amount::Share(share) => share.to_string(),
    }
}
