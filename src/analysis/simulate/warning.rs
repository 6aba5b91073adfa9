//! Settings that do not do what people set them for.

use crate::model::AllocatorSettings;

/// Why settings are not what they seem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsWarning {
    /// `expandable_segments` together with `max_split_size_mb`: free ranges merge until they exceed the latter, and then
    /// serve nothing smaller, so that reserved memory grows from step to step.
    ExpandableAndMaxSplit,
    /// `large_segment_size_mb`, which older releases refuse.
    NewSetting,
    /// `garbage_collection_threshold` without a memory fraction in the settings: nothing is collected, unless the program
    /// sets one.
    CollectionWithoutFraction,
}

impl SettingsWarning {
    /// What is to be said of these settings.
    pub fn of(settings: &AllocatorSettings) -> Vec<Self> {
        let has_fraction = settings.memory_fraction.is_some_and(|fraction| fraction < 1.0);
        let mut found = Vec::new();
        if settings.expandable_segments && settings.max_split_size.is_some() {
            found.push(Self::ExpandableAndMaxSplit);
        }
        if settings.garbage_collection_threshold > 0.0 && !has_fraction {
            found.push(Self::CollectionWithoutFraction);
        }
        if settings.large_segment_size.is_some() {
            found.push(Self::NewSetting);
        }
        found
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::ExpandableAndMaxSplit => {
                "expandable_segments and max_split_size_mb work against each other: free ranges grow beyond the limit and \
                 then serve no smaller request, so reserved memory grows step by step"
            }
            Self::NewSetting => {
                "large_segment_size_mb is known to PyTorch 2.12 and later; older releases refuse to start"
            }
            Self::CollectionWithoutFraction => {
                "garbage_collection_threshold collects nothing without a memory fraction below 1 \
                 (per_process_memory_fraction, or torch.cuda.set_per_process_memory_fraction, which recordings do not hold)"
            }
        }
    }
}
