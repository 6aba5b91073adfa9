//! What is said of a recording that was rehearsed: what it covers and what it does not.

use super::words::count;
use crate::model::bytes::Bytes;
use crate::model::rehearsal::{Rehearsal, ValueReads, ValueUse};

/// Lines that are named; of more there is the number.
const SHOWN: usize = 3;

/// A line on what it is, and whether it worries; then those on what is not known.
pub fn lines(rehearsal: &Rehearsal) -> Vec<(String, bool)> {
    let memory = if rehearsal.memory > 0 { format!(" with {}", Bytes(rehearsal.memory)) } else { String::new() };
    let alone = if rehearsal.ranks > 1 { format!(", one of {} ranks, alone", rehearsal.ranks) } else { String::new() };
    let mut lines = vec![(
        format!(
            "rehearsed without a GPU, as {}{memory}{alone}: PyTorch's own allocator served every request, no kernel ran, and times \
             are not those of a GPU",
            rehearsal.gpu
        ),
        false,
    )];
    if rehearsal.sizes().next().is_some() {
        let named = named(rehearsal.sizes());
        lines.push((format!("not exact: sizes came from values of the device, which were 0 ({named})"), true));
    }
    let values = || rehearsal.reads.iter().filter(|reads| reads.kind == ValueUse::Value);
    let number: u64 = values().map(|reads| reads.count).sum();
    if number > 0 {
        let reads = count(number, "value");
        lines.push((
            format!(
                "{reads} read from the device, all 0: exact as long as the program allocates nothing by them ({})",
                named(values())
            ),
            true,
        ));
    }
    if rehearsal.cudnn_operations > 0 {
        lines.push((
            format!(
                "{} of cuDNN: their workspaces are not known, and taken for 0",
                count(rehearsal.cudnn_operations, "operation")
            ),
            true,
        ));
    }
    if !rehearsal.refused.is_empty() {
        lines.push((
            format!("not rehearsed, so that they failed or were left out: {}", rehearsal.refused.join(", ")),
            true,
        ));
    }
    if !rehearsal.ended.is_empty() {
        lines.push((format!("the rehearsal ended before the program did: {}", rehearsal.ended), false));
    }
    lines
}

fn named<'a>(reads: impl Iterator<Item = &'a ValueReads>) -> String {
    let all: Vec<String> = reads.map(|reads| format!("{}, {}", reads.place(), count(reads.count, "time"))).collect();
    let more = all.len().saturating_sub(SHOWN);
    let shown = all[..all.len().min(SHOWN)].join("; ");
    if more > 0 { format!("{shown}; and {}", count(more as u64, "other line")) } else { shown }
}
