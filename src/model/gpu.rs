//! GPUs by name: how much memory a program sees of each, and how many threads run at once.

use crate::error::Error;

/// A GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its name, as flags take it.
    pub name: &'static str,
    /// Bytes of memory in all, as PyTorch's messages name its total capacity.
    pub memory: u64,
    /// What it runs at once.
    pub threads: Threads,
}

/// What a GPU runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Streaming multiprocessors.
    pub processors: u64,
    /// Threads that each of them runs.
    pub each: u64,
}

/// The GPUs that are known by name, those first that recordings most likely come from.
///
/// Memory is what `torch.OutOfMemoryError` names as the total capacity in public reports of these GPUs, in GiB with two digits
/// behind the point. It depends on the driver by up to 0.2 GiB: this is the least of the figures that were found. Of the A100
/// with 40 GB it is what CUDA's `deviceQuery` printed, to the byte. That of the L40S is what an L40 names, and that of the A10G
/// what an A10 names: they have the same memory. Processors and threads are those of NVIDIA's data sheets and of the table of
/// compute capabilities in the CUDA programming guide.
pub const GPUS: [Gpu; 14] = [
    Gpu { name: "a100-40gb", memory: 42_298_834_944, threads: threads(108, 2048) },
    Gpu { name: "a100-80gb", memory: gib(79, 15), threads: threads(108, 2048) },
    Gpu { name: "h100-80gb", memory: gib(79, 10), threads: threads(132, 2048) },
    Gpu { name: "h200", memory: gib(139, 72), threads: threads(132, 2048) },
    Gpu { name: "b200", memory: gib(178, 35), threads: threads(148, 2048) },
    Gpu { name: "v100-16gb", memory: gib(15, 75), threads: threads(80, 2048) },
    Gpu { name: "v100-32gb", memory: gib(31, 74), threads: threads(80, 2048) },
    Gpu { name: "l4", memory: gib(22, 3), threads: threads(58, 1536) },
    Gpu { name: "a10", memory: gib(21, 99), threads: threads(72, 1536) },
    Gpu { name: "a10g", memory: gib(21, 99), threads: threads(80, 1536) },
    Gpu { name: "t4", memory: gib(14, 56), threads: threads(40, 1024) },
    Gpu { name: "l40s", memory: gib(44, 40), threads: threads(142, 1536) },
    Gpu { name: "rtx-3090", memory: gib(23, 70), threads: threads(82, 1536) },
    Gpu { name: "rtx-4090", memory: gib(23, 52), threads: threads(128, 1536) },
];

const fn threads(processors: u64, each: u64) -> Threads {
    Threads { processors, each }
}

/// Bytes of whole GiB and hundredths of one.
const fn gib(whole: u64, hundredths: u64) -> u64 {
    (whole * 100 + hundredths) * (1 << 30) / 100
}

impl Gpu {
    /// The GPU of a name, in whatever case, with spaces or hyphens, with or without the name of the maker.
    ///
    /// # Errors
    /// When there is none of that name: with all names.
    pub fn named(text: &str) -> Result<&'static Self, Error> {
        let plain = |text: &str| text.to_ascii_lowercase().replace([' ', '-', '_'], "");
        let wanted = plain(text);
        let wanted = wanted.strip_prefix("nvidia").unwrap_or(&wanted);
        GPUS.iter().find(|gpu| plain(gpu.name) == wanted).ok_or_else(|| {
            let names: Vec<&str> = GPUS.iter().map(|gpu| gpu.name).collect();
            Error::Request(format!("expected one of {}, found {text:?}", names.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_however_they_are_typed() {
        for text in ["h100-80gb", "H100 80GB", "NVIDIA_H100-80GB"] {
            assert_eq!(Gpu::named(text).map(|gpu| gpu.name).ok(), Some("h100-80gb"), "{text}");
        }
        let error = Gpu::named("h100").expect_err("two sizes").to_string();
        assert!(error.contains("h100-80gb") && error.contains("rtx-4090"), "{error}");
    }

    #[test]
    fn memory_is_what_messages_name() {
        let shown = |name: &str| Gpu::named(name).map(|gpu| crate::model::bytes::Bytes(gpu.memory).to_string()).ok();
        assert_eq!(shown("a100-40gb").as_deref(), Some("39.39 GiB"));
        assert_eq!(shown("l4").as_deref(), Some("22.03 GiB"));
        assert_eq!(shown("h100-80gb").as_deref(), Some("79.10 GiB"));
    }
}
