//! GPUs by name: how much memory a program sees on each, and how many threads run at once.

use crate::error::Error;
use crate::model::gpu::Threads;
use std::sync::LazyLock;

/// The table, which `rehearse` reads too. The GPUs that recordings most likely come from are first.
///
/// The memory is the total capacity that PyTorch's messages name, from public reports of these GPUs. It depends on the driver
/// by up to 0.2 GiB; the table has the smallest value found, in whole MiB. If no report was found (`measured` is `no`), it is
/// the value for a GPU with the same memory, or the value of the data sheet minus what drivers reserve. The other columns are
/// from NVIDIA's data sheets and from the table of compute capabilities in the CUDA programming guide.
const TABLE: &str = include_str!("../../python/src/torch_memviz/_rehearsal/gpus.csv");

static GPUS: LazyLock<Vec<Gpu>> = LazyLock::new(|| {
    let mut lines = TABLE.lines();
    let columns: Vec<&'static str> = lines.next().unwrap_or_default().split(',').collect();
    lines.filter_map(|line| Gpu::from_row(&columns, line)).collect()
});

/// A GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its name, as options accept it.
    pub name: &'static str,
    /// Its name in the driver.
    pub driver_name: &'static str,
    /// Total bytes of memory: the total capacity in PyTorch's messages.
    pub memory: u64,
    /// Whether the memory is that of a report, rather than derived from a similar GPU or the data sheet.
    pub is_measured: bool,
    /// How many threads it runs at once.
    pub threads: Threads,
}

impl Gpu {
    /// The GPUs that are known by name. Those that recordings most likely come from are first.
    pub fn known() -> &'static [Self] {
        &GPUS
    }

    /// The GPU with a name, in upper or lower case, with spaces or hyphens, with or without the name of the manufacturer.
    ///
    /// # Errors
    /// If there is no GPU with that name; the error lists the names that start with it, or all names if none does.
    pub fn named(text: &str) -> Result<&'static Self, Error> {
        let plain = |text: &str| text.to_ascii_lowercase().replace([' ', '-', '_'], "");
        let wanted = plain(text);
        let wanted = wanted.strip_prefix("nvidia").unwrap_or(&wanted);
        Self::known().iter().find(|gpu| plain(gpu.name) == wanted).ok_or_else(|| {
            let (similar, others): (Vec<&str>, Vec<&str>) =
                Self::known().iter().map(|gpu| gpu.name).partition(|name| plain(name).starts_with(wanted));
            let names = if similar.is_empty() { others } else { similar };
            Error::Request(format!("expected one of {}, found {text:?}", names.join(", ")))
        })
    }

    /// The GPU in a line of the table.
    fn from_row(columns: &[&str], line: &'static str) -> Option<Self> {
        let cell = |wanted: &str| {
            let place = columns.iter().position(|column| *column == wanted)?;
            line.split(',').nth(place)
        };
        let number = |wanted: &str| cell(wanted)?.parse::<u64>().ok();
        let threads = Threads { processors: number("multiprocessors")?, each: number("threads")? };
        Some(Self {
            name: cell("key")?,
            driver_name: cell("name")?,
            memory: number("memory_mib")? << 20,
            is_measured: cell("measured")? == "yes",
            threads,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::bytes::Bytes;

    #[test]
    fn every_row_of_the_table_is_a_gpu_of_its_own() {
        assert_eq!(Gpu::known().len(), TABLE.lines().count() - 1);
        for gpu in Gpu::known() {
            assert_eq!(Gpu::named(gpu.name).ok(), Some(gpu));
        }
    }

    #[test]
    fn names_are_found_however_they_are_typed() {
        for text in ["h100-80gb", "H100 80GB", "NVIDIA_H100-80GB"] {
            assert_eq!(Gpu::named(text).map(|gpu| gpu.name).ok(), Some("h100-80gb"), "{text}");
        }
        assert_eq!(Gpu::named("RTX 3090").ok(), Gpu::named("rtx-3090").ok());
    }

    #[test]
    fn an_unknown_name_leads_to_those_that_start_with_it() {
        let error = |text| Gpu::named(text).expect_err("unknown").to_string();
        assert_eq!(error("NVIDIA A100"), "expected one of a100-40gb, a100-80gb, found \"NVIDIA A100\"");
        assert!(error("tpu").contains("h100-80gb") && error("tpu").contains("rtx4090"));
    }

    #[test]
    fn memory_matches_error_messages() {
        let shown = |name: &str| Gpu::named(name).map(|gpu| Bytes(gpu.memory).to_string()).ok();
        assert_eq!(shown("a100-40gb").as_deref(), Some("39.39 GiB"));
        assert_eq!(shown("l4").as_deref(), Some("22.03 GiB"));
        assert_eq!(shown("h100-80gb").as_deref(), Some("79.10 GiB"));
        assert_eq!(shown("rtx3090").as_deref(), Some("23.56 GiB"));
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let columns = ["threads", "key", "multiprocessors", "memory_mib", "name", "measured"];
        let threads = Threads { processors: 2, each: 1024 };
        let gpu = Gpu { name: "one", driver_name: "NVIDIA One", memory: 3 << 20, is_measured: true, threads };
        assert_eq!(Gpu::from_row(&columns, "1024,one,2,3,NVIDIA One,yes"), Some(gpu));
        assert_eq!(Gpu::from_row(&columns, "1024,one,2,much,NVIDIA One,yes"), None);
    }
}
