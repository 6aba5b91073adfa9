//! The text about a failed request, the same in every format.

use crate::analysis::oom::{Advice, Fit, KnownCapacity, Oom, OomReport, Replayed, Symptom};
use crate::analysis::peak::DevicePeak;
use crate::facts::code::sites::NO_STACK;
use crate::facts::grouping::GroupBy;
use crate::model::bytes::Bytes;
use crate::replay::History;
use crate::report::common::notes::START;
use crate::report::common::words::{category, count, listed, pool};
use indexmap::IndexMap;
use serde::Serialize;

/// A statement with its figures.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Said"))]
pub struct Statement {
    /// Name of its kind.
    pub kind: &'static str,
    /// The statement in words: one sentence, without a full stop.
    pub text: String,
    /// The figures that support it.
    #[serde(flatten)]
    pub figures: IndexMap<&'static str, u64>,
}

fn statement<const N: usize>(kind: &'static str, figures: [(&'static str, u64); N], text: String) -> Statement {
    Statement { kind, text, figures: figures.into_iter().collect() }
}

/// The text for what is shown if no request failed: without a history there is no peak.
pub fn instead(report: &OomReport) -> &'static str {
    let mut peaks = report.devices.iter().filter_map(|device| device.peak.as_ref());
    if peaks.clone().all(|peak| peak.completeness.no_entries) {
        "the state at dump time"
    } else if peaks.clone().all(|peak| peak.is_single() && peak.instant == 0) {
        "the start of the recording"
    } else if peaks.all(DevicePeak::is_single) {
        "the state after the only entry"
    } else {
        "the peak"
    }
}

/// The free blocks that may serve the request: `large pool, stream 0`.
pub fn serving(oom: &Oom) -> String {
    let request = &oom.request;
    let mut name = pool(request.segment_type(), Some(request.stream), request.pool, request.expandable);
    if request.is_pool_inferred {
        name += " (inferred: all live blocks with this stack are there)";
    }
    if oom.serving.assumed {
        name += " (its pool is not recorded; the default one is assumed)";
    }
    name
}

/// What the device was used for, in a line.
pub fn figures(oom: &Oom) -> String {
    let [reserved, allocated, inactive] =
        [oom.figures.reserved, oom.figures.allocated, oom.figures.inactive].map(Bytes);
    format!("reserved {reserved}: {allocated} allocated, {inactive} inactive")
}

/// The code that made the request.
pub fn requester(oom: &Oom) -> String {
    match oom.request.site.as_str() {
        NO_STACK => "requested by code without a recorded stack".to_owned(),
        site => format!("requested by {site}"),
    }
}

/// What else is known about the origin of the request, one line each: for requests without Python frames, the tensors
/// that they may belong to.
pub fn request(oom: &Oom) -> Vec<String> {
    let request = &oom.request;
    let mut lines = Vec::new();
    if request.stack.is_empty() {
        lines.push("backward passes have no Python frames; stacks=\"all\" records C++ frames".to_owned());
    }
    if let (Some(entry), Some(site)) = (request.last_known_entry, &request.last_known_site) {
        lines.push(format!("the previous request with a Python stack came from {site} (entry {entry})"));
    }
    if !request.same_size.is_empty() {
        let sites: Vec<String> =
            request.same_size.iter().map(|of| format!("{} ({})", of.label, count(of.blocks, "block"))).collect();
        lines.push(format!(
            "live blocks of the same size (if the request is a gradient, likely its parameter or activation): {}",
            sites.join(", ")
        ));
    }
    if !request.compile_context.is_empty() {
        lines.push(format!("torch.compile context {}", request.compile_context));
    }
    if !request.user_metadata.is_empty() {
        lines.push(format!("metadata {}", request.user_metadata));
    }
    lines
}

/// The evidence for the cause.
pub fn evidence(oom: &Oom, evidence: &Symptom) -> Statement {
    let free_and_inactive = |together: u64| {
        let (free, inactive) = (Bytes(oom.device_free), Bytes(oom.figures.inactive));
        format!("{free} is free on the device and {inactive} is inactive: {} in total", Bytes(together))
    };
    let requested = oom.request.bytes;
    match *evidence {
        Symptom::Accumulates { ref label, reserved, capacity } => accumulates(label.as_deref(), reserved, capacity),
        Symptom::NotEnough { together, needed } => {
            let what = if needed == requested {
                format!("{} requested", Bytes(needed))
            } else {
                format!("{} that the driver must supply to serve a request of {}", Bytes(needed), Bytes(requested))
            };
            let missing = needed - together;
            statement(
                "not_enough",
                [("together_bytes", together), ("needed_bytes", needed), ("missing_bytes", missing)],
                format!("{}, {} less than the {what}", free_and_inactive(together), Bytes(missing)),
            )
        }
        Symptom::Enough { together } => statement(
            "enough",
            [("together_bytes", together), ("needed_bytes", requested)],
            format!("{}, enough for the {} requested", free_and_inactive(together), Bytes(requested)),
        ),
        Symptom::LargestBlock { bytes } => statement(
            "largest_block",
            [("largest_free_block_bytes", bytes)],
            match bytes {
                0 => format!("the pool of the request ({}) has no free block", serving(oom)),
                _ => {
                    format!("the largest free block in the pool of the request ({}) is {}", serving(oom), Bytes(bytes))
                }
            },
        ),
        Symptom::DeviceShort { free, needed } => statement(
            "device_short",
            [("device_free_bytes", free), ("needed_bytes", needed)],
            format!(
                "a new segment would have taken {}, more than the {} that the device had free",
                Bytes(needed),
                Bytes(free)
            ),
        ),
        Symptom::Pinned { bytes, blocks, ref top } => pinned(oom, bytes, blocks, top.as_ref()),
        Symptom::KeptBack { bytes } => statement(
            "kept_back",
            [("free_block_bytes", bytes)],
            format!("a free block of {} was not used: max_split_size_mb keeps it for larger requests", Bytes(bytes)),
        ),
        Symptom::FreedTooLate { bytes } => statement(
            "freed_too_late",
            [("free_block_bytes", bytes)],
            format!(
                "a free block of {} is large enough, but it became free only during the retry, when pending frees completed; after \
                 that, the allocator asks only the driver for memory",
                Bytes(bytes)
            ),
        ),
        Symptom::BlockWouldDo { bytes } => statement(
            "block_would_do",
            [("free_block_bytes", bytes)],
            format!(
                "a free block of {} looks large enough; the recording does not show why it was not used",
                Bytes(bytes)
            ),
        ),
        Symptom::DeviceHadEnough { free, needed, reserved } => device_had_enough(free, needed, reserved),
        Symptom::LimitSet { fraction, reserved, segment, device } => statement(
            "limit_set",
            [("reserved_bytes", reserved), ("segment_bytes", segment), ("device_bytes_at_least", device)],
            format!(
                "the device had {} free, but per_process_memory_fraction:{fraction} limits the process to that fraction of the \
                 device's memory: {} reserved plus a new segment of {} is {}, more than {fraction} of the {} that the device is known to have",
                Bytes(oom.device_free),
                Bytes(reserved),
                Bytes(segment),
                Bytes(reserved.saturating_add(segment)),
                Bytes(device)
            ),
        ),
        Symptom::Shrunk { known, here } => shrunk(known, here),
        Symptom::InPrivatePool { largest, elsewhere } => in_private_pool(oom, largest, elsewhere),
        Symptom::KeptSince { entry, kept, freed } => kept_since(entry, kept, freed),
        Symptom::KnownInPart => statement(
            "known_in_part",
            [],
            "the file was cut off and its beginning is missing: reserved memory is only partly known".to_owned(),
        ),
    }
}

fn in_private_pool(oom: &Oom, largest: u64, elsewhere: u64) -> Statement {
    let own = match largest {
        0 => "which has no free block".to_owned(),
        _ => format!("whose largest free block is {}", Bytes(largest)),
    };
    let (pool, number) = oom.request.pool.unwrap_or_default();
    statement(
        "in_private_pool",
        [("largest_free_block_bytes", largest), ("elsewhere_bytes", elsewhere)],
        format!(
            "the request belongs to private pool ({pool}, {number}), {own}; {} is free in other pools, which the allocator neither uses nor releases \
             for it: torch.cuda.empty_cache() before the pool is used releases it",
            Bytes(elsewhere)
        ),
    )
}

fn kept_since(entry: u32, kept: u64, freed: u64) -> Statement {
    let what = match freed {
        0 => format!("nothing was freed in between ({})", Bytes(kept)),
        _ => format!("only {} was freed in between, and {} is still in use", Bytes(freed), Bytes(kept)),
    };
    statement(
        "kept_since",
        [("kept_bytes", kept), ("freed_bytes", freed)],
        format!(
            "of what was in use when the request at entry {entry} failed, {what}: a variable or the caught exception keeps the first \
             attempt; delete it before trying again, outside the except block"
        ),
    )
}

fn pinned(oom: &Oom, bytes: u64, blocks: u64, top: Option<&(String, u64)>) -> Statement {
    // A category is no place that blocks come from.
    let is_category = oom.attribution.by == GroupBy::Category;
    let most = top.map_or_else(String::new, |(label, bytes)| match (is_category, blocks) {
        (true, 1) => format!(": {}", category(label)),
        (true, _) => format!("; {} of it: {}", Bytes(*bytes), category(label)),
        (false, 1) => format!(": {label}"),
        (false, _) => format!("; those from {label} keep {}", Bytes(*bytes)),
    });
    let blocks_text = count(blocks, "live block");
    let keep = if blocks == 1 { "keeps" } else { "keep" };
    statement(
        "pinned",
        [("pinned_free_bytes", bytes), ("blocks", blocks)],
        format!("{blocks_text} {keep} {} of inactive memory reserved{most}", Bytes(bytes)),
    )
}

fn accumulates(label: Option<&str>, reserved: u64, capacity: u64) -> Statement {
    let place = label.map_or_else(String::new, |label| format!(" at {label}"));
    statement(
        "accumulates",
        [("reserved_bytes", reserved), ("capacity_bytes", capacity)],
        format!(
            "memory accumulates{place}; with that fixed, {} of {} would be reserved",
            Bytes(reserved),
            Bytes(capacity)
        ),
    )
}

fn device_had_enough(free: u64, needed: u64, reserved: u64) -> Statement {
    statement(
        "device_had_enough",
        [("device_free_bytes", free), ("needed_bytes", needed)],
        format!(
            "the device had {} free and would have had to supply {}; the request probably failed because of a per-process limit \
             between {} and {}, such as torch.cuda.set_per_process_memory_fraction, which snapshots do not record",
            Bytes(free),
            Bytes(needed),
            Bytes(reserved),
            Bytes(reserved.saturating_add(needed))
        ),
    )
}

fn shrunk(known: KnownCapacity, here: u64) -> Statement {
    let missing = known.bytes - here;
    let then = History::entry_before(known.instant).map_or(START.to_owned(), |entry| format!("entry {entry}"));
    statement(
        "shrunk",
        [("known_bytes", known.bytes), ("here_bytes", here), ("missing_bytes", missing)],
        format!(
            "reserved and device free add up to {}, {} less than at {then}: something outside PyTorch's \
             allocator, such as another process, uses the difference",
            Bytes(here),
            Bytes(missing)
        ),
    )
}

/// What would have helped.
pub fn advice(oom: &Oom, advice: &Advice) -> Statement {
    match *advice {
        Advice::FreeSites { ref sites, some_stacks, fit } => {
            let bytes = sites.iter().map(|(_, bytes, _)| bytes).sum();
            let blocks = sites.iter().map(|(_, _, blocks)| blocks).sum();
            let names: Vec<String> = sites.iter().map(|(label, ..)| label.clone()).collect();
            let how = match fit {
                Fit::Block(block) => format!("given a free block of {}, enough for the request", Bytes(block)),
                Fit::Driver(supply) => format!("left {} free on the device", Bytes(supply)),
            };
            statement(
                "free_sites",
                [("bytes", bytes), ("blocks", blocks)],
                format!(
                    "freeing the {} ({}) from {}{} would have {how}; most earlier blocks from there were freed",
                    count(blocks, "live block"),
                    Bytes(bytes),
                    if some_stacks { "some of the stacks at " } else { "" },
                    listed(&names)
                ),
            )
        }
        Advice::ExpandableSegments(replayed) => expandable(oom, replayed),
        Advice::ExpandableConflict(because) => statement("expandable_conflict", [], format!("test expandable_segments:True before you rely on it: {because}")),
        Advice::Settings { ref alloc_conf, replayed: Replayed { reserved, capacity, .. } } => {
            let settings = if alloc_conf.is_empty() {
                "the allocator's default settings".to_owned()
            } else {
                format!("PYTORCH_CUDA_ALLOC_CONF={alloc_conf}")
            };
            statement(
                "settings",
                [("replayed_reserved_bytes", reserved), ("capacity_bytes", capacity)],
                format!(
                    "{settings} would have helped: in simulation, {} of {} would be reserved",
                    Bytes(reserved),
                    Bytes(capacity)
                ),
            )
        }
        Advice::AlreadyExpandable => statement(
            "already_expandable",
            [],
            "expandable_segments is already enabled, so PyTorch's advice to enable it does not help".to_owned(),
        ),
        Advice::NoSettings { tried } => statement(
            "no_settings",
            [("tried", tried as u64)],
            "in simulation, the request, or one before it, also fails with every other allocator setting that memviz tried".to_owned(),
        ),
        Advice::WholePages { whole_pages, page, together, needed } => statement(
            "whole_pages",
            [("whole_pages_bytes", whole_pages), ("together_bytes", together), ("needed_bytes", needed)],
            format!(
                "{} of inactive memory is in whole pages of {}, which expandable_segments:True could have used elsewhere; together \
                 with the free memory of the device, this is {} of the {} that the request needs",
                Bytes(whole_pages),
                Bytes(page),
                Bytes(together),
                Bytes(needed)
            ),
        ),
        Advice::OtherPool { segment_type, stream, pool: id, kind, inactive, largest } => statement(
            "other_pool",
            [("inactive_bytes", inactive), ("largest_free_block_bytes", largest)],
            format!(
                "{}{} has {} inactive (largest free block {}) that this request ({}) could not use",
                pool(segment_type, stream, id, false),
                kind.map(|kind| format!(" ({})", kind.words())).unwrap_or_default(),
                Bytes(inactive),
                Bytes(largest),
                serving(oom)
            ),
        ),
        Advice::PendingFree { bytes } => statement(
            "pending_free",
            [("pending_free_bytes", bytes)],
            format!("{} was freed, but another stream may still be using it (record_stream)", Bytes(bytes)),
        ),
        Advice::Rounding { bytes, missing } => statement(
            "rounding",
            [("rounding_bytes", bytes), ("missing_bytes", missing)],
            format!(
                "roundup_power2_divisions loses {} to rounding; the request was {} short",
                Bytes(bytes),
                Bytes(missing)
            ),
        ),
        Advice::RecordEarlier { bytes } => statement(
            "record_earlier",
            [("bytes", bytes)],
            format!(
                "{} was allocated before the recording and has no stack: start recording earlier, or with a larger \
                 max_entries, to see which code allocated it",
                Bytes(bytes)
            ),
        ),
    }
}

fn expandable(oom: &Oom, Replayed { fails_at, reserved, capacity }: Replayed) -> Statement {
    let figures = [("replayed_reserved_bytes", reserved), ("capacity_bytes", capacity)];
    let free = capacity.saturating_sub(reserved);
    // Expandable segments grow by 20 MiB in the large pool.
    let grows = if free < oom.request.bytes { "" } else { ", which is less than the minimum by which a segment grows" };
    let (mapped, free) = (Bytes(reserved), Bytes(free));
    let (kind, text) = match fails_at {
        None => (
            "expandable_segments",
            format!(
                "expandable_segments:True would have helped: in simulation, {mapped} of {} would be reserved",
                Bytes(capacity)
            ),
        ),
        Some(entry) if Some(entry) == oom.moment.entry => (
            "expandable_segments_not_enough",
            format!(
                "expandable_segments:True alone would not help: in simulation, the same request fails with {mapped} reserved and \
                 {free} free on the device{grows}"
            ),
        ),
        Some(entry) => (
            "expandable_segments_not_enough",
            format!(
                "expandable_segments:True alone would not help: in simulation, an earlier request fails at entry {entry}, with \
                 {mapped} reserved and {free} free on the device"
            ),
        ),
    };
    statement(kind, figures, text)
}
