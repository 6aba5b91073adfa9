//! What uses the memory of a device: PyTorch's allocator by pool, NCCL, the CUDA context, other processes, and the rest.
//!
//! The rows of a ledger add up to the bytes in use, which the driver reports (`torch.cuda.mem_get_info`). PyTorch's allocator
//! and NCCL report their own bytes, and the driver those of each process; the rest of the recorded process is its context,
//! kernels and libraries. The remainder is unexplained, and negative if these figures contradict each other.

use crate::error::{Error, Result};
use crate::facts::device::{Device, Devices};
use crate::facts::grouping::private_pools::{PoolKind, PrivatePools};
use crate::model::device_file::{DeviceFile, DeviceSample, DeviceSamples, GpuProcess, HostSample, Occasion};
use crate::model::{Action, DEFAULT_POOL, DeviceId, HOST_DEVICE};
use crate::replay::Instant;
use crate::sorting::SortRows;
use indexmap::IndexMap;
use serde::Serialize;
use std::collections::BTreeMap;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct LedgerOptions {
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
        /// Total bytes of the device. Used for a recording that has a failed request but no samples.
        pub capacity: Option<u64>,
    }
}

#[derive(Clone, Debug, Default)]
pub struct LedgerReport {
    pub devices: Vec<DeviceLedger>,
    /// Bytes of pinned host memory that PyTorch had reserved when the recording was written, if recorded. They belong to no
    /// device.
    pub pinned_bytes: Option<i64>,
    /// Pinned host memory of the process at each sample, in chronological order; empty if the samples do not have it. It belongs
    /// to no device.
    pub host: Vec<HostSample>,
    /// Whether a capacity was requested although samples show it.
    pub capacity_is_unused: bool,
}

#[derive(Clone, Debug)]
pub struct DeviceLedger {
    pub device: DeviceId,
    pub name: Option<String>,
    pub samples: Vec<Ledger>,
    pub doubts: Vec<LedgerDoubt>,
}

/// A device at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "LedgerSample"))]
pub struct Ledger {
    /// When the sample was taken.
    pub at: Occasion,
    /// The name that the program gave to a point; left out for other samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its time since the epoch; null if unknown.
    pub time_us: Option<i64>,
    /// Bytes of the device.
    pub total_bytes: u64,
    /// Bytes in use: the sum of all rows.
    pub used_bytes: u64,
    /// Bytes by holder; those that no other row accounts for are last.
    pub rows: Vec<LedgerRow>,
    /// Memory reserved by PyTorch's allocator, by kind of pool; empty if unknown. Adds up to its row.
    pub pools: Vec<PoolShare>,
    /// The number of reserved bytes that are allocated.
    pub allocated_bytes: u64,
    /// All counters of `torch.cuda.memory_stats` by name; absent if the sample does not have them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub memory_stats: BTreeMap<String, i64>,
}

/// The bytes of one holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "LedgerHolder"))]
pub struct LedgerRow {
    #[serde(flatten)]
    pub holder: Holder,
    /// Bytes; negative if figures contradict each other.
    pub bytes: i64,
}

/// What uses memory on a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "HolderKeys"))]
#[serde(into = "HolderKeys")]
pub enum Holder {
    /// PyTorch's caching allocator in the recorded process.
    Pytorch,
    /// The communicators of an NCCL process group, by its name.
    Nccl(String),
    /// The CUDA context of the recorded process, with the kernels that were loaded when recording started.
    Context,
    /// Everything else in the recorded process: kernels, workspaces of libraries, other allocators. Includes the context if the
    /// samples do not separate it.
    Process {
        /// Whether the context is included.
        with_context: bool,
    },
    /// Another process.
    Other {
        /// Its process ID.
        pid: u64,
        /// The name of its program.
        name: Option<String>,
    },
    /// Bytes in use that no other row accounts for.
    Unexplained,
}

/// The keys of [`Holder`].
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HolderKeys {
    /// `pytorch`, `nccl`, `context`, `process`, `other_process` or `unexplained`.
    holder: &'static str,
    /// The holder in words.
    label: String,
    /// The ID of another process; absent for all other holders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u64>,
}

impl From<Holder> for HolderKeys {
    fn from(holder: Holder) -> Self {
        let pid = if let Holder::Other { pid, .. } = holder { Some(pid) } else { None };
        Self { holder: holder.name(), label: holder.label(), pid }
    }
}

impl Holder {
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Pytorch => "PyTorch's allocator (reserved)".to_owned(),
            Self::Nccl(group) => format!("NCCL, group {group}"),
            Self::Context => "CUDA context".to_owned(),
            Self::Process { with_context: true } => "this process: context, libraries".to_owned(),
            Self::Process { with_context: false } => "this process: libraries".to_owned(),
            Self::Other { pid, name: Some(name) } => format!("{name} (process {pid})"),
            Self::Other { pid, name: None } => format!("process {pid}"),
            Self::Unexplained => "unexplained".to_owned(),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::Nccl(_) => "nccl",
            Self::Context => "context",
            Self::Process { .. } => "process",
            Self::Other { .. } => "other_process",
            Self::Unexplained => "unexplained",
        }
    }
}

/// The segments of pools of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "LedgerPool"))]
pub struct PoolShare {
    /// The use of the pools; null for the default pool.
    pub kind: Option<PoolKind>,
    /// Number of pools.
    pub pools: usize,
    /// Bytes of their segments.
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerDoubt {
    /// The processes could not be listed, for this reason if one was recorded.
    NoProcesses(Option<String>),
    /// Processes are listed, but the recorded one is not among them: it has a different ID outside its container.
    OwnNotListed {
        pid: u64,
        listed: usize,
        /// Their bytes at the last sample.
        bytes: u64,
    },
    /// The driver does not report the memory of this many processes.
    UnknownBytes(usize),
    /// `nvidia-smi` lists the processes, in whole MiB.
    Rounded,
    /// This many bytes were in use when recording started; the samples do not show by what.
    UsedAtStart(u64),
    /// The recording and PyTorch's counter disagree about the memory reserved when the recording was written.
    ReservedDiffers { segments: u64, counter: u64 },
    /// The figures of this many samples contradict each other: a row is negative.
    Contradiction(usize),
    /// The only sample is a failed request, which records what the device had free. What else used the device is unknown.
    FromFailedRequest,
}

impl LedgerReport {
    /// The ledger of each device that has samples; without samples, that of its first failed request.
    ///
    /// # Errors
    /// If no device has either, or the recording does not have a requested device.
    pub fn of(recording: &Devices<'_>, options: &LedgerOptions) -> Result<Self> {
        let file = recording.device_file();
        let known = |wanted: DeviceId| file.and_then(|file| file.devices.iter().find(|one| one.device == wanted));
        let wanted = recording.wanted(&options.devices)?;
        let wanted = wanted.into_iter().filter(|device| device.id() > HOST_DEVICE);
        let devices: Vec<DeviceLedger> = wanted
            .filter_map(|device| {
                if let (Some(samples), Some(file)) = (known(device.id()), file) {
                    return DeviceLedger::of_samples(device, samples, file);
                }
                let capacity = options.capacity.or_else(|| recording.memory_of(device.id()))?;
                DeviceLedger::of_failed_request(device, capacity)
            })
            .collect();
        if devices.is_empty() {
            let has_failed = |device: &Device<'_>| device.track.actions().contains(&Action::Oom);
            let found = match recording.all().iter().any(has_failed) {
                true if options.capacity.is_none() => {
                    "a failed request without --capacity: add --capacity with the memory of the device"
                }
                true => "a failed request whose reserved and free memory together exceed that of the device",
                false if options.capacity.is_some() => "no failed request",
                false => "neither samples nor a failed request",
            };
            return Err(Error::Request(format!(
                "expected samples of the device's memory (torch_memviz.record writes them to NAME.device.json next to the \
                 recording), or a failed request together with --capacity or --gpu; found {found}"
            )));
        }
        let host = recording.get(HOST_DEVICE).map(|host| host.history().end.reserved);
        let samples = file.map(|file| file.host.clone()).unwrap_or_default();
        let is_sampled = |device: &DeviceLedger| known(device.device).is_some();
        let capacity_is_unused = options.capacity.is_some() && devices.iter().all(is_sampled);
        Ok(Self { devices, pinned_bytes: host.filter(|&bytes| bytes != 0), host: samples, capacity_is_unused })
    }

    /// The ledgers of devices, as far as they are known without further options.
    pub(crate) fn known(recording: &Devices<'_>, devices: &[DeviceId]) -> Vec<DeviceLedger> {
        let options = LedgerOptions::default().devices(devices.to_vec());
        Self::of(recording, &options).map(|report| report.devices).unwrap_or_default()
    }
}

impl Ledger {
    /// Bytes in use that PyTorch's allocator did not reserve.
    pub fn outside_bytes(&self) -> i64 {
        let outside = self.rows.iter().filter(|row| row.holder != Holder::Pytorch);
        outside.fold(0, |sum, row| row.bytes.saturating_add(sum))
    }

    /// The ledger of a device at the failed request, if the device was sampled then, or if a trace contains its capacity.
    pub(crate) fn when_failed(recording: &Devices<'_>, device: &Device<'_>) -> Option<Self> {
        let Some(file) = recording.device_file() else {
            // A trace does not record the free memory of the device.
            let capacity =
                recording.memory_of(device.id()).filter(|_| device.snapshot().notes.format.has_segments())?;
            return DeviceLedger::of_failed_request(device, capacity)?.samples.pop();
        };
        let samples = file.devices.iter().find(|samples| samples.device == device.id())?;
        let ledger = DeviceLedger::of_samples(device, samples, file)?;
        ledger.samples.into_iter().rfind(|sample| sample.at == Occasion::Oom)
    }
}

impl DeviceLedger {
    fn of_samples(device: &Device<'_>, samples: &DeviceSamples, file: &DeviceFile) -> Option<Self> {
        let mut ledgers: Vec<Ledger> = Vec::with_capacity(samples.samples.len());
        let context = samples.samples.iter().find(|sample| sample.at == Occasion::Start).and_then(|start| {
            let own = own_bytes(start, file.pid)?;
            Some(beyond(own, start))
        });
        for sample in &samples.samples {
            ledgers.push(Ledger::of(sample, file.pid, context));
        }
        let (last, ledger) = samples.samples.last().zip(ledgers.last_mut())?;
        let pools = pools(device);
        let segments = pools.iter().map(|pool| pool.bytes).fold(0, u64::saturating_add);
        if segments == last.reserved_bytes {
            ledger.pools = pools;
        }
        let mut doubts = Vec::new();
        match &last.processes {
            None => doubts.push(LedgerDoubt::NoProcesses(samples.processes_missing.clone())),
            Some(listed) if listed.iter().all(|process| process.pid != file.pid) => {
                let bytes = listed.iter().filter_map(|process| process.bytes).fold(0, u64::saturating_add);
                doubts.push(LedgerDoubt::OwnNotListed { pid: file.pid, listed: listed.len(), bytes });
            }
            Some(listed) => {
                let unknown = listed.iter().filter(|process| process.bytes.is_none()).count();
                doubts.extend((unknown > 0).then_some(LedgerDoubt::UnknownBytes(unknown)));
            }
        }
        if file.processes_from.as_deref() == Some("nvidia-smi") {
            doubts.push(LedgerDoubt::Rounded);
        }
        let start = samples.samples.iter().find(|sample| sample.at == Occasion::Start);
        if let Some(start) = start.filter(|start| own_bytes(start, file.pid).is_none() && start.used_bytes() > 0) {
            doubts.push(LedgerDoubt::UsedAtStart(start.used_bytes()));
        }
        if segments != last.reserved_bytes {
            doubts.push(LedgerDoubt::ReservedDiffers { segments, counter: last.reserved_bytes });
        }
        doubts.extend(contradiction(&ledgers));
        Some(Self { device: device.id(), name: samples.name.clone(), samples: ledgers, doubts })
    }

    /// The ledger at the first failed request, on a device of this size.
    fn of_failed_request(device: &Device<'_>, capacity: u64) -> Option<Self> {
        let (track, history) = (device.track, device.history());
        let (entry, _) = (0u32..).zip(track.actions()).find(|&(_, &action)| action == Action::Oom)?;
        let instant: Instant = entry.saturating_add(1);
        let spans = history.segments.iter().filter(|span| span.reserved_at(instant));
        let live = history.allocations.iter().filter(|made| made.allocated_at(instant));
        let sample = DeviceSample {
            at: Occasion::Oom,
            name: None,
            time_us: track.has_times().then(|| track.times()[entry as usize]),
            total_bytes: capacity,
            // The address of the entry is the free memory that the driver reported.
            free_bytes: track.entry(entry)?.addr,
            reserved_bytes: spans.map(|span| span.size).fold(0, u64::saturating_add),
            allocated_bytes: live.map(|made| made.size).fold(0, u64::saturating_add),
            processes: None,
            nccl: Vec::new(),
            memory_stats: BTreeMap::new(),
        };
        (sample.free_bytes.saturating_add(sample.reserved_bytes) <= capacity).then(|| {
            let samples = vec![Ledger::of(&sample, 0, None)];
            Self { device: device.id(), name: None, samples, doubts: vec![LedgerDoubt::FromFailedRequest] }
        })
    }

    /// The sample with the most memory in use.
    pub fn highest(&self) -> Option<&Ledger> {
        self.samples.iter().max_by_key(|ledger| ledger.used_bytes)
    }
}

impl Ledger {
    /// The rows of a sample, given the bytes of the process's context when recording started.
    fn of(sample: &DeviceSample, pid: u64, context: Option<i64>) -> Self {
        let mut rows = vec![LedgerRow { holder: Holder::Pytorch, bytes: signed(sample.reserved_bytes) }];
        rows.extend(
            sample
                .nccl
                .iter()
                .map(|group| LedgerRow { holder: Holder::Nccl(group.group.clone()), bytes: signed(group.bytes) }),
        );
        if let Some(own) = own_bytes(sample, pid) {
            let rest = beyond(own, sample);
            let context = context.filter(|&context| 0 < context && context <= rest);
            rows.extend(context.map(|bytes| LedgerRow { holder: Holder::Context, bytes }));
            let rest = rest - context.unwrap_or(0);
            if rest != 0 {
                rows.push(LedgerRow { holder: Holder::Process { with_context: context.is_none() }, bytes: rest });
            }
            let others = sample.processes.iter().flatten().filter(|process| process.pid != pid);
            let mut others: Vec<LedgerRow> = others.filter_map(other).collect();
            others.sort_rows_by_key(|row| std::cmp::Reverse(row.bytes));
            rows.extend(others);
        }
        let told: i64 = rows.iter().map(|row| row.bytes).sum();
        rows.push(LedgerRow { holder: Holder::Unexplained, bytes: signed(sample.used_bytes()) - told });
        Self {
            at: sample.at,
            name: sample.name.clone(),
            time_us: sample.time_us,
            total_bytes: sample.total_bytes,
            used_bytes: sample.used_bytes(),
            rows,
            pools: Vec::new(),
            allocated_bytes: sample.allocated_bytes,
            memory_stats: sample.memory_stats.clone(),
        }
    }
}

/// Converts a figure, which the reader has bounded.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The samples that have a negative row.
fn contradiction(ledgers: &[Ledger]) -> Option<LedgerDoubt> {
    let negative = ledgers.iter().filter(|ledger| ledger.rows.iter().any(|row| row.bytes < 0)).count();
    (negative > 0).then_some(LedgerDoubt::Contradiction(negative))
}

fn other(process: &GpuProcess) -> Option<LedgerRow> {
    let bytes = signed(process.bytes?);
    Some(LedgerRow { holder: Holder::Other { pid: process.pid, name: process.name.clone() }, bytes })
}

/// Bytes of the recorded process according to the driver.
fn own_bytes(sample: &DeviceSample, pid: u64) -> Option<u64> {
    sample.processes.as_ref()?.iter().find(|process| process.pid == pid)?.bytes
}

/// Bytes of the process beyond those of PyTorch's allocator and NCCL.
fn beyond(own: u64, sample: &DeviceSample) -> i64 {
    let groups: i64 = sample.nccl.iter().map(|group| signed(group.bytes)).sum();
    signed(own) - signed(sample.reserved_bytes) - groups
}

/// Reserved bytes by pool when the recording was written: the default pool first, then by size.
fn pools(device: &Device<'_>) -> Vec<PoolShare> {
    let known = PrivatePools::of(device.track, device.sites());
    let mut of_pool: IndexMap<_, u64> = IndexMap::new();
    for segment in device.track.segments() {
        let bytes = of_pool.entry(segment.pool.unwrap_or(DEFAULT_POOL)).or_default();
        *bytes = bytes.saturating_add(segment.total_size);
    }
    let mut shares: Vec<PoolShare> = Vec::new();
    for (id, bytes) in of_pool {
        let kind = known.get(id).filter(|_| id != DEFAULT_POOL).map(|pool| pool.kind);
        match shares.iter_mut().find(|share| share.kind == kind) {
            Some(share) => {
                share.pools += 1;
                share.bytes = share.bytes.saturating_add(bytes);
            }
            None => shares.push(PoolShare { kind, pools: 1, bytes }),
        }
    }
    shares.sort_rows_by_key(|share| (share.kind.is_some(), std::cmp::Reverse(share.bytes)));
    shares
}
