//! Allocator settings in words.

use crate::allocator::SettingsWarning;
use crate::model::AllocatorSettings;
use crate::model::bytes::Bytes;

pub fn settings(settings: &AllocatorSettings) -> Vec<String> {
    if !settings.recorded {
        return vec!["allocator settings were not recorded".to_owned()];
    }
    let mut lines = Vec::new();
    if !settings.alloc_conf.is_empty() {
        lines.push(format!("PYTORCH_CUDA_ALLOC_CONF={}", settings.alloc_conf));
    }
    if let Some(size) = settings.max_split_size {
        lines.push(format!("max_split_size {}", Bytes(size)));
    }
    if settings.expandable_segments {
        lines.push("expandable_segments active".to_owned());
    }
    if settings.garbage_collection_threshold > 0.0 {
        lines.push(format!("garbage_collection_threshold {}", settings.garbage_collection_threshold));
    }
    if settings.roundup_power2_divisions.iter().any(|&divisions| divisions > 1) {
        lines.push("roundup_power2_divisions active".to_owned());
    }
    if lines.is_empty() {
        lines.push("default allocator settings".to_owned());
    }
    lines
}

pub fn settings_warnings(settings: &AllocatorSettings) -> Vec<String> {
    SettingsWarning::of_recorded(settings).into_iter().map(settings_warning).collect()
}

pub fn settings_warning(warning: SettingsWarning) -> String {
    match warning {
        SettingsWarning::ExpandableAndMaxSplit => {
            "expandable_segments and max_split_size_mb conflict: free ranges grow beyond the limit and then cannot serve \
             smaller requests, so reserved memory grows step by step"
                .to_owned()
        }
        SettingsWarning::CollectionWithoutFraction => {
            "garbage_collection_threshold has no effect without a memory fraction below 1 \
             (per_process_memory_fraction, or torch.cuda.set_per_process_memory_fraction, which recordings do not contain)"
                .to_owned()
        }
        SettingsWarning::ThrowWithoutFraction => {
            "throw_on_cudamalloc_oom has no effect without a memory fraction below 1".to_owned()
        }
        SettingsWarning::RoundingWithoutMaxSplit => {
            "max_non_split_rounding_mb has no effect without max_split_size_mb".to_owned()
        }
        SettingsWarning::NotInForce(key) => format!(
            "{key} was not active although PYTORCH_CUDA_ALLOC_CONF sets it: the platform or the release does not support \
             it, or the program changed it"
        ),
        SettingsWarning::SinceRelease(key, release) => {
            format!("{key} needs PyTorch {release} or later; older releases fail at startup")
        }
    }
}
