//! Settings worth trying.

use crate::allocator::SettingsWarning;
use crate::input::alloc_conf::{Rest, parse};
use crate::model::AllocatorSettings;
use crate::sorting::SortRows;

/// Settings that change how much memory is reserved, the simplest first. Garbage collection needs a device of known
/// size.
const WORTH_TRYING: [&str; 13] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
    "large_segment_size_mb:12",
    "large_segment_size_mb:64",
    "expandable_segments:True,large_segment_size_mb:12",
];
const ON_A_KNOWN_DEVICE: &str = "garbage_collection_threshold:0.8,per_process_memory_fraction:0.95";

/// The settings that a sweep simulates, without the recorded ones.
pub(crate) fn candidates(recorded: &AllocatorSettings, is_known_device: bool) -> Vec<AllocatorSettings> {
    let last = is_known_device.then_some(ON_A_KNOWN_DEVICE);
    let all = WORTH_TRYING.iter().copied().chain(last);
    all.filter(|text| *text != recorded.alloc_conf.trim())
        .filter_map(|text| Some(parse(text, Rest::AfterLast).ok()?.on_device_of(recorded)))
        .collect()
}

/// Settings for a line of advice: the defaults first, then the one that helps most often. Settings that need a certain
/// release, or that are ineffective, are left out.
pub(crate) fn advisable(recorded: &AllocatorSettings) -> Vec<AllocatorSettings> {
    let mut all = candidates(recorded, false);
    all.retain(|settings| SettingsWarning::of_proposed(settings).is_empty());
    all.sort_rows_by_key(|settings| (!settings.alloc_conf.is_empty(), !settings.expandable_segments));
    all
}

/// How simple a settings string is: its place among those worth trying, or after them if it is none of these.
pub(crate) fn simplicity(alloc_conf: &str) -> usize {
    WORTH_TRYING.iter().position(|text| *text == alloc_conf.trim()).unwrap_or(WORTH_TRYING.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_is_a_string_that_pytorch_takes() {
        let recorded =
            AllocatorSettings { alloc_conf: "max_split_size_mb:64".to_owned(), ..AllocatorSettings::default() };
        assert_eq!(candidates(&recorded, true).len(), WORTH_TRYING.len());
    }
}
