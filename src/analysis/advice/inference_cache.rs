//! vLLM and SGLang fill a share of the device with their cache of keys and values when they start, also next to training. Its
//! size depends on a setting, and not on the tensors of the program.
//!
//! **Sign:** blocks of the library's function for its cache hold at least a fifth of the peak.
//!
//! **Fix:** lower `gpu_memory_utilization` or `mem_fraction_static`.
//!
//! **Figures:** none, since a recording does not show how much of the cache is needed.

use super::rules::Evidence;
use super::stacks::Marked;
use super::{Edit, Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::model::StackId;
use crate::model::bytes::Bytes;
use crate::replay::Metric;

/// The cache is at least this fraction (1/N) of the peak.
const PART_OF_PEAK: u64 = 5;

/// A library, the functions that allocate its cache, and the setting that decides its size.
struct Library {
    name: &'static str,
    package: &'static str,
    makes: fn(&str, &str) -> bool,
    setting: &'static str,
    code: &'static str,
}

const LIBRARIES: [Library; 2] = [
    Library {
        name: "vLLM",
        package: "vllm/",
        makes: |_, function| function.contains("allocate_kv_cache") || function.contains("initialize_kv_cache"),
        setting: "gpu_memory_utilization",
        code: "llm = LLM(model, gpu_memory_utilization=...)  # lower than now: the share of the device that vLLM may fill",
    },
    Library {
        name: "SGLang",
        package: "sglang/",
        makes: |path, _| path.contains("mem_cache/memory_pool"),
        setting: "mem_fraction_static",
        code: "engine = Engine(model_path=model, mem_fraction_static=0.5)",
    },
];

/// One finding for each library whose cache is a large part of the peak.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    LIBRARIES.iter().filter_map(|library| finding(device, library)).collect()
}

fn finding(device: &Device<'_>, library: &Library) -> Option<Finding> {
    let marked = Marked::of(device, |path, name, _| path.starts_with(library.package) && (library.makes)(path, name));
    if !marked.any() {
        return None;
    }
    let history = device.history();
    let peak = history.maxima[Metric::Allocated as usize];
    let (mut bytes, mut stack) = (0u64, StackId::EMPTY);
    for (index, allocation) in history.allocations.iter().enumerate() {
        let of_block = device.track.stack_of(index);
        if allocation.allocated_at(peak.instant) && marked.has(of_block) {
            bytes = bytes.saturating_add(allocation.size);
            stack = of_block;
        }
    }
    let all = u64::try_from(peak.bytes).unwrap_or(0);
    (bytes > 0 && bytes >= all / PART_OF_PEAK).then(|| Finding {
        kind: RuleKind::InferenceCache,
        line: device.sites().site_frame(stack),
        evidence: format!(
            "{} of the {} allocated is {}'s KV cache, as large as its setting allows",
            Bytes(bytes),
            Bytes(all),
            library.name
        ),
        cost: Some(format!("{} will serve fewer requests at a time", library.name)),
        fixes: vec![Fix::new(
            format!("lower {}'s {}", library.name, library.setting),
            [library.code],
            Edit::unsimulated("the recording does not show how much of the cache is needed"),
        )],
    })
}
