//! Names and numbers in words, the same in every format.

use crate::facts::segments::figures::SizeClass;
use crate::model::bytes::Bytes;
use crate::model::{PoolId, SegmentType};
use crate::replay::Bound;
use crate::report::percent;
use crate::simulation::{Context, DEFAULT_CONTEXT};
use std::fmt::Display;

/// What an answer about a recording without memory says. An empty snapshot does not tell whether recording was on.
pub const NOTHING: &str = "no GPU memory was allocated while recording, or recording was off";

/// A number of things: `1 segment`, `3 segments`.
pub fn count<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// The sign before a number that may be a bound: `≥` for a lower one, `≤` for an upper one, `~` if it may be either.
pub fn mark(bound: Option<Bound>) -> &'static str {
    match bound {
        None => "",
        Some(Bound::Lower) => "\u{2265}",
        Some(Bound::Upper) => "\u{2264}",
        Some(Bound::Unknown) => "~",
    }
}

pub fn listed(items: &[String]) -> String {
    match items {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => items.concat(),
    }
}

/// A share in whole percent for sentences: `100%` only for the whole, and `0%` only for nothing.
pub fn share(part: u64, total: u64) -> String {
    let rounded = percent(part, total).round();
    if rounded >= 100.0 && part < total {
        ">99%".to_owned()
    } else if rounded < 1.0 && part > 0 {
        "<1%".to_owned()
    } else {
        format!("{rounded:.0}%")
    }
}

/// The word for a category's memory in a sentence, given the category's name in JSON: `optimizer state`, `activations`.
pub fn category(name: &str) -> &str {
    match name {
        "parameter" => "parameters",
        "buffer" => "buffers",
        "gradient" => "gradients",
        "optimizer_state" => "optimizer state",
        "model_state" => "model or optimizer state",
        "before_recording" => "unknown (before the recording)",
        "activation" => "activations",
        "kv_cache" => "KV cache",
        "temporary" => "temporary tensors",
        "input" => "inputs",
        "workspace" => "workspaces",
        other => other,
    }
}

/// Why a request failed, in a few words, given the cause's name in JSON.
pub fn cause(name: &str) -> &str {
    match name {
        "capacity" => "not enough memory",
        "leak" => "memory that accumulates",
        "private_pool" => "a private pool that cannot use the free memory of others",
        "other_process" => "memory of another process",
        "limit" => "a limit on the process",
        other => other,
    }
}

/// Memory of a device that the allocator cannot use: the CUDA context, and recorded memory of other processes.
pub fn kept(capacity: u64, context: Context) -> String {
    let total = Bytes(capacity.saturating_add(context.bytes));
    if capacity == 0 && context.is_assumed {
        let assumed = Bytes(DEFAULT_CONTEXT);
        return format!("outside PyTorch's allocator: all {total} (assumed: {assumed}; set it with --context)");
    }
    let assumed = if context.is_assumed { " (assumed; set it with --context)" } else { "" };
    format!("outside PyTorch's allocator: {} of {total}{assumed}", Bytes(context.bytes))
}

/// Two sizes between which a figure lies; one if both are written alike.
pub fn range(least: u64, most: u64) -> String {
    let [least, most] = [least, most].map(|bytes| Bytes(bytes).to_string());
    if least == most { least } else { format!("{least} to {most}") }
}

/// The name of a row, with a star if it is inferred: [`super::notes::inferred`].
pub fn starred(label: &str, inferred: bool) -> String {
    if inferred { format!("{label} *") } else { label.to_owned() }
}

/// Segments that serve the same requests: `large pool, stream 0`, `small pool, stream 7, private pool (0, 1)`.
pub fn pool(segment_type: SegmentType, stream: Option<u64>, pool: Option<PoolId>, expandable: bool) -> String {
    let mut name = match segment_type {
        SegmentType::Small => "small pool".to_owned(),
        SegmentType::Large => "large pool".to_owned(),
    };
    match stream {
        Some(stream) => name += &format!(", stream {stream}"),
        None => name += ", stream not recorded",
    }
    // Before PyTorch 2.15, the pool of segments released before the dump is unknown; private pools are rare.
    match pool {
        None | Some((0, 0)) => {}
        Some((first, second)) => name += &format!(", private pool ({first}, {second})"),
    }
    if expandable {
        name += ", expandable";
    }
    name
}

/// The sizes in a class: `4 MiB to 8 MiB`.
pub fn size_class(class: &SizeClass) -> String {
    let power = |bytes: u64| {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let unit = units.iter().find(|&&(unit, _)| bytes >= unit);
        unit.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{} {name}", bytes / unit))
    };
    format!("{} to {}", power(class.min_bytes), power(class.min_bytes.saturating_mul(2)))
}

/// `2nd`, `3rd`, `4th`, `11th`, `21st`.
pub fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_by_their_limits() {
        let class = |min_bytes| size_class(&SizeClass { min_bytes, ..SizeClass::default() });
        assert_eq!(class(512), "512 bytes to 1 KiB");
        assert_eq!(class(1 << 20), "1 MiB to 2 MiB");
        assert_eq!(class(1 << 29), "512 MiB to 1 GiB");
    }

    #[test]
    fn only_all_is_a_hundred_percent() {
        let shares = [(0, 8), (1, 800), (1, 8), (997, 1000), (8, 8)].map(|(part, total)| share(part, total));
        assert_eq!(shares, ["0%", "<1%", "13%", ">99%", "100%"]);
    }

    #[test]
    fn ordinals_end_as_people_say_them() {
        let ends: Vec<String> = [2, 3, 4, 11, 12, 13, 21, 22].map(ordinal).into();
        assert_eq!(ends, ["2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd"]);
    }
}
