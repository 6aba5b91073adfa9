//! Notes about a rehearsed recording: what it covers and what it does not.

use super::words::count;
use crate::model::bytes::Bytes;
use crate::model::rehearsal::{Rehearsal, ValueReads, ValueUse};
use crate::report::common::json::keys;

/// Maximum number of named lines; of more lines, only the number is shown.
const SHOWN: usize = 3;

/// A line about the recording, and whether it is a warning; then lines about unknown facts.
pub fn lines(rehearsal: &Rehearsal) -> Vec<(String, bool)> {
    let memory = if rehearsal.memory > 0 { format!(" with {}", Bytes(rehearsal.memory)) } else { String::new() };
    let alone = if rehearsal.ranks > 1 {
        format!(", as one of {} ranks, without the others", rehearsal.ranks)
    } else {
        String::new()
    };
    let mut lines = vec![(
        format!(
            "rehearsed for {}{memory}, without a GPU{alone}: PyTorch's own allocator served every request, no kernel ran, and times \
             are not GPU times",
            rehearsal.gpu
        ),
        false,
    )];
    if rehearsal.sizes().next().is_some() {
        let named = named(rehearsal.sizes());
        let values = match rehearsal.assumed.as_str() {
            "" => "which were returned as 0".to_owned(),
            assumed => format!("which were assumed ({assumed}) or returned as 0"),
        };
        lines.push((format!("not exact: some sizes depend on values read from the device, {values} ({named})"), true));
    }
    for (kind, done, what, end) in
        [(ValueUse::Value, "read", "value", "from the device"), (ValueUse::Copy, "copied", "tensor", "to the host")]
    {
        let reads = || rehearsal.reads.iter().filter(|reads| reads.kind == kind);
        let number = reads().fold(0, |number: u64, reads| number.saturating_add(reads.count));
        if number > 0 {
            let what = count(number, what);
            let named = named(reads());
            let zeros = "a rehearsal returns zeros, so figures are exact only if no allocation depends on these values";
            lines.push((format!("the program {done} {what} {end}: {zeros} ({named})"), true));
        }
    }
    if rehearsal.cudnn_operations > 0 {
        lines.push((
            format!(
                "the workspaces of {} are unknown and not counted",
                count(rehearsal.cudnn_operations, "cuDNN operation")
            ),
            true,
        ));
    }
    if rehearsal.cudnn_uncertain > 0 {
        lines.push((
            format!(
                "of {} planned without a device, {} may need up to {} more workspace: a peak of allocated memory \
                 may be higher by as much, and one of reserved memory by more",
                count(rehearsal.cudnn_planned, "cuDNN operation"),
                rehearsal.cudnn_uncertain,
                Bytes(rehearsal.cudnn_larger)
            ),
            true,
        ));
    }
    if !rehearsal.refused.is_empty() {
        lines.push((format!("not rehearsed (failed or left out): {}", rehearsal.refused.join(", ")), true));
    }
    if !rehearsal.without_weights.is_empty() {
        lines.push((format!("built without weights: {}", rehearsal.without_weights.join(", ")), false));
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

keys! { schema
    /// The facts of a rehearsal. No kernel ran, and every value read from a device was 0.
    #[derive(Clone)]
    pub struct RehearsalFacts(rehearsal: &Rehearsal) {
        /// The kind of GPU, as `memviz rehearse --list` names it.
        pub gpu: String = rehearsal.gpu.clone(),
        /// Memory of each device: the total capacity in PyTorch's messages.
        pub memory_bytes: u64 = rehearsal.memory,
        /// Memory that CUDA itself was assumed to use.
        pub context_bytes: u64 = rehearsal.context,
        /// The number of ranks, one of which was rehearsed alone; 1 if all ran, or if there are none.
        pub ranks: u64 = rehearsal.ranks,
        /// Whether the size of something came from a value, so that no figure is exact.
        pub sizes_from_values: bool = rehearsal.sizes().next().is_some(),
        /// The assumption about such values; null if there was none.
        pub assumed: Option<String> = known(&rehearsal.assumed),
        /// Lines that read values, those that decided about sizes first.
        pub value_reads: Vec<ValueReadsRow> = rehearsal.reads.iter().map(ValueReadsRow::of).collect(),
        /// The number of cuDNN operations whose workspaces are unknown and were assumed to be 0.
        pub cudnn_operations: u64 = rehearsal.cudnn_operations,
        /// The number of cuDNN operations whose workspaces cuDNN itself planned, without a device.
        pub cudnn_planned: u64 = rehearsal.cudnn_planned,
        /// The number of these whose workspaces may be smaller or larger on the GPU.
        pub cudnn_uncertain: u64 = rehearsal.cudnn_uncertain,
        /// By how much such a workspace, and so a peak of allocated memory, may be smaller.
        pub cudnn_smaller_bytes: u64 = rehearsal.cudnn_smaller,
        /// By how much such a workspace, and so a peak of allocated memory, may be larger.
        pub cudnn_larger_bytes: u64 = rehearsal.cudnn_larger,
        /// Calls that are not rehearsed, and so failed or were left out.
        pub not_rehearsed: Vec<String> = rehearsal.refused.clone(),
        /// Models that were built without their weights.
        pub without_weights: Vec<String> = rehearsal.without_weights.clone(),
        /// Why it ended before the program; null if it did not.
        pub ended: Option<String> = known(&rehearsal.ended),
    }
}

keys! { schema
    /// A line that read values of a device.
    #[derive(Clone)]
    pub struct ValueReadsRow(reads: &ValueReads) {
        /// Its file; null for backward's own threads.
        pub file: Option<String> = known(&reads.file),
        /// The line.
        pub line: u64 = reads.line,
        /// Its text.
        pub code: String = reads.code.clone(),
        /// The purpose: `copy` to the host, one `value`, or the `size` of something.
        pub kind: &'static str = reads.kind.name(),
        /// Number of reads.
        pub count: u64 = reads.count,
    }
}

fn known(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}
