//! Settings that do not have the effect that people expect.

use crate::model::AllocatorSettings;

/// Why settings do not have the expected effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsWarning {
    /// `expandable_segments` together with `max_split_size_mb`: free ranges merge until they exceed the latter, and then
    /// serve no smaller requests, so reserved memory grows from step to step.
    ExpandableAndMaxSplit,
    /// `garbage_collection_threshold` without a memory fraction in the settings: nothing is collected unless the program sets
    /// one.
    CollectionWithoutFraction,
    /// `throw_on_cudamalloc_oom` without a memory fraction in the settings: no request fails early.
    ThrowWithoutFraction,
    /// `max_non_split_rounding_mb` without `max_split_size_mb`: it has no effect.
    RoundingWithoutMaxSplit,
    /// The string sets it, but the settings that PyTorch recorded differ: the platform or the release does not support it, or
    /// the program changed it.
    NotInForce(&'static str),
    /// A setting that older releases refuse, and the first release that accepts it.
    SinceRelease(&'static str, &'static str),
}

impl SettingsWarning {
    /// Warnings about settings that a program ran with.
    pub fn of_recorded(settings: &AllocatorSettings) -> Vec<Self> {
        let has_fraction = settings.memory_fraction.is_some_and(|fraction| fraction < 1.0);
        let has_max_split = settings.max_split_size.is_some();
        let mut found = Vec::new();
        if settings.expandable_segments && has_max_split {
            found.push(Self::ExpandableAndMaxSplit);
        }
        if settings.garbage_collection_threshold > 0.0 && !has_fraction {
            found.push(Self::CollectionWithoutFraction);
        }
        if settings.throws_on_oom && !has_fraction {
            found.push(Self::ThrowWithoutFraction);
        }
        if settings.max_non_split_rounding.is_some() && !has_max_split {
            found.push(Self::RoundingWithoutMaxSplit);
        }
        if settings.recorded {
            found.extend(not_in_force(settings).map(Self::NotInForce));
        }
        found
    }

    /// Warnings about settings that a user may want to run with.
    pub fn of_proposed(settings: &AllocatorSettings) -> Vec<Self> {
        let mut found = Self::of_recorded(&AllocatorSettings { recorded: false, ..settings.clone() });
        let since = [
            (settings.max_non_split_rounding.is_some(), "max_non_split_rounding_mb", "2.6"),
            (settings.record_stream_reuse, "graph_capture_record_stream_reuse", "2.9"),
            (settings.memory_fraction.is_some(), "per_process_memory_fraction", "2.10"),
            (settings.large_segment_size.is_some(), "large_segment_size_mb", "2.11"),
            (settings.throws_on_oom, "throw_on_cudamalloc_oom", "2.12"),
            (settings.pinned_max_round_threshold.is_some(), "pinned_max_round_threshold_mb", "2.13"),
            (settings.pinned_max_cached_size.is_some(), "pinned_max_cached_size_mb", "2.13"),
        ];
        found.extend(
            since.iter().filter(|(is_set, ..)| *is_set).map(|&(_, key, release)| Self::SinceRelease(key, release)),
        );
        found
    }
}

/// Settings that the string names and that differ from those that the recording contains separately. Recordings contain the
/// three settings compared here since PyTorch 2.3.
fn not_in_force(settings: &AllocatorSettings) -> impl Iterator<Item = &'static str> + use<> {
    let value = |key: &str| {
        let mut pairs = settings.alloc_conf.split(',').filter_map(|pair| pair.split_once(':'));
        pairs.rfind(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
    };
    let expandable = value("expandable_segments") == Some("True") && !settings.expandable_segments;
    let max_split = value("max_split_size_mb").is_some() && settings.max_split_size.is_none();
    let collection = value("garbage_collection_threshold").is_some() && settings.garbage_collection_threshold == 0.0;
    let all = [
        (expandable, "expandable_segments"),
        (max_split, "max_split_size_mb"),
        (collection, "garbage_collection_threshold"),
    ];
    all.into_iter().filter_map(|(is_off, key)| is_off.then_some(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::alloc_conf::{Rest, parse};

    #[test]
    fn settings_that_do_nothing_are_named() {
        let of = |text| SettingsWarning::of_proposed(&parse(text, Rest::AfterLast).unwrap());
        assert_eq!(of("expandable_segments:True"), []);
        assert_eq!(of("expandable_segments:True,max_split_size_mb:64"), [SettingsWarning::ExpandableAndMaxSplit]);
        assert_eq!(of("garbage_collection_threshold:0.8"), [SettingsWarning::CollectionWithoutFraction]);
        assert_eq!(
            of("garbage_collection_threshold:0.8,per_process_memory_fraction:0.9"),
            [SettingsWarning::SinceRelease("per_process_memory_fraction", "2.10")]
        );
        assert_eq!(
            of("max_non_split_rounding_mb:64"),
            [
                SettingsWarning::RoundingWithoutMaxSplit,
                SettingsWarning::SinceRelease("max_non_split_rounding_mb", "2.6")
            ]
        );
    }

    #[test]
    fn settings_not_in_force_are_reported_for_recordings_only() {
        let mut settings = parse("expandable_segments:True", Rest::AfterLast).unwrap();
        settings.recorded = true;
        assert_eq!(SettingsWarning::of_recorded(&settings), []);
        settings.expandable_segments = false;
        assert_eq!(SettingsWarning::of_recorded(&settings), [SettingsWarning::NotInForce("expandable_segments")]);
        assert_eq!(SettingsWarning::of_proposed(&settings), []);
    }
}
