//! Allocator settings that differ.

use crate::model::AllocatorSettings;
use indexmap::IndexMap;
use serde::Serialize;

/// The name of the only difference if one file has no settings.
pub(crate) const NO_SETTINGS: &str = "allocator_settings";

/// A setting with two values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SettingValues"))]
pub struct SettingDiff {
    /// Its name, as in the snapshot.
    pub name: String,
    /// Its value in the base as text; null if not recorded.
    pub base: Option<String>,
    /// Its value in the new file as text; null if not recorded.
    pub new: Option<String>,
}

/// The differing settings, in their order. If one file has no settings, that is the only difference.
pub(super) fn differences(base: &AllocatorSettings, new: &AllocatorSettings) -> Vec<SettingDiff> {
    if base.recorded != new.recorded {
        let known = |settings: &AllocatorSettings| settings.recorded.then(|| "recorded".to_owned());
        return vec![SettingDiff { name: NO_SETTINGS.to_owned(), base: known(base), new: known(new) }];
    }
    let (base, new) = (values(base), values(new));
    let names = base.keys().chain(new.keys().filter(|&name| !base.contains_key(name)));
    let differing = names.filter(|&name| base.get(name) != new.get(name));
    let setting =
        |name: &String| SettingDiff { name: name.clone(), base: base.get(name).cloned(), new: new.get(name).cloned() };
    differing.map(setting).collect()
}

/// Every setting as text; empty if the file has none.
fn values(settings: &AllocatorSettings) -> IndexMap<String, String> {
    if !settings.recorded {
        return IndexMap::new();
    }
    let divisions = settings.roundup_power2_divisions.map(|divisions| divisions.to_string()).join(",");
    let known = [
        ("PYTORCH_CUDA_ALLOC_CONF", settings.alloc_conf.clone()),
        ("max_split_size", settings.max_split_size.map_or("unlimited".to_owned(), |bytes| bytes.to_string())),
        ("expandable_segments", settings.expandable_segments.to_string()),
        ("garbage_collection_threshold", settings.garbage_collection_threshold.to_string()),
        ("roundup_power2_divisions", divisions),
    ];
    let known = known.map(|(name, value)| (name.to_owned(), value));
    known.into_iter().chain(settings.other.iter().cloned()).collect()
}
