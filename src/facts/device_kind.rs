//! The kind of device that a recording is from, and what shows it: frames, names of settings, sizes of blocks, or a trace.

use crate::model::profile::DeviceType;
use crate::model::{Frame, Snapshot};
use crate::replay::{History, InferredRule};
use serde::Serialize;

names! {
    /// The kind of device, by the part of PyTorch that allocates its memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum DeviceKind {
        /// `torch.cuda` on NVIDIA GPUs.
        Cuda = "cuda",
        /// `torch.cuda` on AMD GPUs.
        Rocm = "rocm",
        /// `torch.xpu` on Intel GPUs.
        Xpu = "xpu",
        /// `torch_npu` on Huawei's Ascend NPUs.
        Ascend = "ascend",
    }
}

impl DeviceKind {
    /// The name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Cuda => "CUDA",
            Self::Rocm => "ROCm",
            Self::Xpu => "XPU",
            Self::Ascend => "Ascend NPU",
        }
    }

    /// The kind, and what shows it; `None` if nothing does.
    pub(crate) fn of<'h>(snapshot: &Snapshot, histories: impl Iterator<Item = &'h History>) -> Option<(Self, String)> {
        by_frames(snapshot)
            .or_else(|| by_settings(snapshot))
            .or_else(|| by_rule(histories))
            .or_else(|| by_trace(snapshot))
    }
}

/// What names of functions and files contain only where this kind of device is used. `torch.cuda` serves AMD GPUs, too.
const IN_FRAMES: [(&str, DeviceKind); 13] = [
    ("c10_npu::", DeviceKind::Ascend),
    ("/torch_npu/", DeviceKind::Ascend),
    ("XPUCachingAllocator", DeviceKind::Xpu),
    ("c10::xpu::", DeviceKind::Xpu),
    ("libtorch_xpu", DeviceKind::Xpu),
    ("HIPCachingAllocator", DeviceKind::Rocm),
    ("c10::hip::", DeviceKind::Rocm),
    ("libtorch_hip", DeviceKind::Rocm),
    ("libc10_hip", DeviceKind::Rocm),
    ("CUDACachingAllocator", DeviceKind::Cuda),
    ("c10::cuda::", DeviceKind::Cuda),
    ("libtorch_cuda", DeviceKind::Cuda),
    ("libc10_cuda", DeviceKind::Cuda),
];

fn by_frames(snapshot: &Snapshot) -> Option<(DeviceKind, String)> {
    let texts = |frame: &Frame| [frame.filename, frame.name].map(|id| snapshot.strings.get(id));
    let place = |frame: &Frame| {
        texts(frame).iter().filter_map(|text| IN_FRAMES.iter().position(|(part, _)| text.contains(part))).min()
    };
    let (part, kind) = IN_FRAMES[snapshot.stacks.all_frames().filter_map(place).min()?];
    Some((kind, format!("frames contain {part}")))
}

/// Builds for `ROCm` have `hip` in the names of these settings.
fn by_settings(snapshot: &Snapshot) -> Option<(DeviceKind, String)> {
    let kind = |name: &str| match name {
        "release_lock_on_hipmalloc" | "pinned_use_hip_host_register" => Some(DeviceKind::Rocm),
        "release_lock_on_cudamalloc" | "pinned_use_cuda_host_register" => Some(DeviceKind::Cuda),
        "PYTORCH_NPU_ALLOC_CONF" => Some(DeviceKind::Ascend),
        _ => None,
    };
    snapshot.settings.other.iter().find_map(|(name, _)| Some((kind(name)?, format!("a setting is named {name}"))))
}

fn by_rule<'h>(mut histories: impl Iterator<Item = &'h History>) -> Option<(DeviceKind, String)> {
    let is_ascend = |history: &'h History| history.completeness.inferred_rule == Some(InferredRule::Ascend);
    let evidence = "inferred: only its allocator explains the sizes of blocks";
    histories.any(is_ascend).then(|| (DeviceKind::Ascend, evidence.to_owned()))
}

/// A trace calls AMD's GPUs CUDA devices, too.
fn by_trace(snapshot: &Snapshot) -> Option<(DeviceKind, String)> {
    let is_xpu = snapshot.notes.device_type == Some(DeviceType::Xpu);
    is_xpu.then(|| (DeviceKind::Xpu, "memory events name the type of device".to_owned()))
}
