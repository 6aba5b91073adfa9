//! Who allocated: PyTorch's allocator, or the library whose function called CUDA.

use super::blocks::{Block, Blocks};
use super::pytorch::Matches;
use crate::model::nsys::{Caller, MemoryKind, NsysProfile};
use crate::sorting::SortRows;
use indexmap::IndexMap;

/// Functions of PyTorch's allocators for devices and for pinned host memory.
const PYTORCH: [&str; 3] = ["CUDACachingAllocator", "CachingHostAllocator", "CUDAHostAllocator"];
/// Beginnings of the names of libraries that belong to CUDA itself, or to the profiler.
const PLUMBING: [&str; 7] =
    ["libcuda.so", "libcudart", "libcupti", "libToolsInjection", "libnvidia-", "nvcuda", "cudart64"];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NsysHolder {
    /// PyTorch's allocator, by the call chain or by a segment of the recording.
    Pytorch,
    Library(String),
    Unknown,
}

impl NsysHolder {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::Library(_) => "library",
            Self::Unknown => "unknown",
        }
    }

    fn of(caller: &Caller) -> Self {
        let mut symbols = caller.chain.iter().map(|frame| frame.symbol.as_str());
        if symbols.any(|symbol| PYTORCH.iter().any(|part| symbol.contains(part))) {
            return Self::Pytorch;
        }
        let mut names = caller.chain.iter().map(|frame| file_name(&frame.module));
        let is_told = |name: &&str| !name.is_empty() && !PLUMBING.iter().any(|start| name.starts_with(start));
        names.find(is_told).map_or(Self::Unknown, |name| Self::Library(name.to_owned()))
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// The blocks of one holder that were allocated in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NsysRow {
    pub holder: NsysHolder,
    /// The function of the CUDA API; `None` if unknown, and for variables of device code.
    pub call: Option<String>,
    pub kind: MemoryKind,
    pub allocations: u64,
    pub freed: u64,
    pub allocated_bytes: u64,
    /// Bytes of the blocks that are live at the peak; 0 if there is no peak.
    pub peak_bytes: u64,
    /// Bytes of the blocks that were not freed.
    pub end_bytes: u64,
}

/// The blocks by holder: the most bytes at the peak first, then the most bytes overall.
pub(super) fn rows(profile: &NsysProfile, blocks: &Blocks, matches: Option<&Matches>) -> Vec<NsysRow> {
    let of_caller: Vec<NsysHolder> = profile.callers.iter().map(NsysHolder::of).collect();
    let highest = blocks.highest().unwrap_or(0);
    let mut rows: IndexMap<(NsysHolder, Option<&str>, MemoryKind), NsysRow> = IndexMap::new();
    for block in &blocks.all {
        let caller = block.caller as usize;
        let is_segment = matches.is_some_and(|matches| matches.is_segment(block.event));
        let holder = if is_segment { NsysHolder::Pytorch } else { of_caller[caller].clone() };
        let call = profile.callers[caller].call.as_deref();
        let row = rows.entry((holder, call, block.kind)).or_insert_with_key(|(holder, call, kind)| NsysRow {
            holder: holder.clone(),
            call: call.map(str::to_owned),
            kind: *kind,
            allocations: 0,
            freed: 0,
            allocated_bytes: 0,
            peak_bytes: 0,
            end_bytes: 0,
        });
        row.add(block, highest);
    }
    let mut rows: Vec<NsysRow> = rows.into_values().collect();
    rows.sort_rows_by_key(|row| std::cmp::Reverse((row.peak_bytes, row.allocated_bytes)));
    rows
}

impl NsysRow {
    fn add(&mut self, block: &Block, highest: usize) {
        self.allocations += 1;
        self.allocated_bytes += block.bytes;
        if block.gone == usize::MAX {
            self.end_bytes += block.bytes;
        } else {
            self.freed += 1;
        }
        if block.born <= highest && highest < block.gone {
            self.peak_bytes += block.bytes;
        }
    }
}
