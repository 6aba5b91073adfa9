//! The rehearsed device, as described in the environment.
//!
//! `MEMVIZ_REHEARSAL` holds `key=value` pairs separated by `;`, with sizes in bytes. The Python package writes all of
//! them from the table of GPUs when a rehearsal starts, and child processes inherit them.

use std::sync::OnceLock;

/// The variable that describes the device. Without it, there is no device.
pub const VARIABLE: &str = "MEMVIZ_REHEARSAL";

/// Architectures that PyTorch is built for: its CUB kernels search them for that of the device.
#[cfg(not(target_arch = "aarch64"))]
const BUILT: [i32; 9] = [120, 100, 90, 86, 80, 75, 70, 60, 50];
#[cfg(target_arch = "aarch64")]
const BUILT: [i32; 5] = [120, 110, 100, 90, 80];

/// How a driver places allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Linux: in arenas of 32 MiB or more, each below the previous one.
    Downwards,
    /// Windows and WSL: at the lowest free address.
    Upwards,
}

/// Properties of the device, and of the CUDA version that PyTorch was built for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name, as shown by PyTorch.
    pub name: String,
    /// CUDA version, such as 12040 for 12.4.
    pub cuda: i32,
    /// cuDNN version, such as 90100 for 9.1.0.
    pub cudnn: usize,
    /// The path of a cuDNN that plans without a device, if there is one.
    pub planner: Option<String>,
    /// Number of identical devices.
    pub devices: usize,
    /// Memory of each device in bytes, as shown in PyTorch's messages.
    pub memory: usize,
    /// Bytes of it that CUDA itself uses from the start.
    pub context: usize,
    /// Compute capability times ten.
    pub capability: i32,
    /// Number of multiprocessors.
    pub multiprocessors: i32,
    /// Maximum shared memory per block, in bytes.
    pub shared_per_block: i32,
    /// Shared memory per multiprocessor, in bytes.
    pub shared_per_multiprocessor: i32,
    /// Maximum threads per multiprocessor.
    pub threads_per_multiprocessor: i32,
    /// Maximum blocks per multiprocessor.
    pub blocks_per_multiprocessor: i32,
    /// L2 cache, in bytes.
    pub cache: i32,
    /// Width of the memory bus, in bits.
    pub bus: i32,
    /// Placement of segments.
    pub placement: Placement,
}

impl Config {
    /// Parses a description.
    ///
    /// # Errors
    /// Returns the key that is missing or has an invalid value. Only `planner` may be missing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value = |key: &str| {
            let pairs = text.split(';').filter_map(|pair| pair.split_once('='));
            let found = pairs.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim()).next_back();
            found.ok_or_else(|| format!("expected {key} in {VARIABLE}, found none"))
        };
        let number = |key: &str| {
            let text = value(key)?;
            text.parse::<usize>().map_err(|_| format!("expected a number for {key} in {VARIABLE}, found {text:?}"))
        };
        let small = |key: &str| {
            let found = number(key)?;
            i32::try_from(found)
                .map_err(|_| format!("expected a smaller number for {key} in {VARIABLE}, found {found}"))
        };
        Ok(Self {
            name: value("name")?.to_owned(),
            cuda: small("cuda")?,
            cudnn: number("cudnn")?,
            planner: value("planner").ok().map(str::to_owned),
            devices: number("devices")?,
            memory: number("memory")?,
            context: number("context")?,
            capability: small("capability")?,
            multiprocessors: small("multiprocessors")?,
            shared_per_block: small("shared_per_block")?,
            shared_per_multiprocessor: small("shared_per_multiprocessor")?,
            threads_per_multiprocessor: small("threads_per_multiprocessor")?,
            blocks_per_multiprocessor: small("blocks_per_multiprocessor")?,
            cache: small("cache")?,
            bus: small("bus")?,
            placement: match value("placement")? {
                "linux" => Placement::Downwards,
                "windows" => Placement::Upwards,
                other => return Err(format!("expected placement linux or windows in {VARIABLE}, found {other:?}")),
            },
        })
    }

    /// Returns the architecture of the code that a device of this capability runs: the one with the same major number
    /// among those that PyTorch is built for.
    pub fn code(&self) -> i32 {
        let fits = |&&code: &&i32| code <= self.capability && code / 10 == self.capability / 10;
        BUILT.iter().find(fits).copied().unwrap_or(self.capability)
    }
}

/// Returns the description in the environment, or `None` if it is missing or invalid. An invalid one is reported once.
pub fn config() -> Option<&'static Config> {
    static CONFIG: OnceLock<Option<Config>> = OnceLock::new();
    let read = || {
        let text = std::env::var(VARIABLE).ok()?;
        let config = Config::parse(&text);
        config.inspect_err(|message| eprintln!("memviz: {message}")).ok()
    };
    CONFIG.get_or_init(read).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name=NVIDIA H100 80GB HBM3;cuda=13000;cudnn=91900;devices=2;memory=85028372480;context=0;capability=89;\
        multiprocessors=132;shared_per_block=232448;shared_per_multiprocessor=233472;threads_per_multiprocessor=2048;\
        blocks_per_multiprocessor=32;cache=52428800;bus=5120;placement=linux";

    #[test]
    fn a_description_is_read() {
        let config = Config::parse(TEXT).unwrap();
        assert_eq!((config.name.as_str(), config.devices, config.memory), ("NVIDIA H100 80GB HBM3", 2, 85_028_372_480));
        assert_eq!(config.planner, None);
        assert_eq!(Config::parse(&format!("{TEXT};planner=/a b")).unwrap().planner.as_deref(), Some("/a b"));
        assert_eq!(config.code(), if cfg!(target_arch = "aarch64") { 80 } else { 86 });
    }

    #[test]
    fn what_is_wrong_with_one_is_named() {
        let wrong = |from: &str, to: &str| Config::parse(&TEXT.replace(from, to)).unwrap_err();
        assert_eq!(wrong("cuda=13000;", ""), "expected cuda in MEMVIZ_REHEARSAL, found none");
        assert_eq!(
            wrong("devices=2", "devices=two"),
            "expected a number for devices in MEMVIZ_REHEARSAL, found \"two\""
        );
        assert!(wrong("bus=5120", "bus=5000000000").starts_with("expected a smaller number for bus"));
        assert!(wrong("=linux", "=beos").starts_with("expected placement linux or windows"));
    }
}
