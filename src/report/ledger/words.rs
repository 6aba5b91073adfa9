//! The sentences and labels of `memviz ledger`, for every format.

use crate::analysis::ledger::{DeviceLedger, Holder, Ledger, LedgerDoubt, LedgerReport, PoolShare};
use crate::facts::segments::figures::NOTABLE;
use crate::model::bytes::Bytes;
use crate::model::device_file::{HostSample, Occasion};
use crate::report::common::fit::shorten_end;
use crate::report::common::notes::{device_name, safe, signed};
use crate::report::common::words::count;
use crate::sorting::SortRows;

/// Room for the name of a point.
const NAME: usize = 11;

/// `Device 0 (NVIDIA H100): 43.21 of 79.18 GiB in use at the end of the recording`.
pub(crate) fn headline(device: &DeviceLedger) -> String {
    let name = device.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let title = format!("{}{name}", device_name(device.device));
    let Some(highest) = device.highest() else { return title };
    let when = when(highest.at);
    format!("{title}: {} of {} in use {when}", Bytes(highest.used_bytes), Bytes(highest.total_bytes))
}

fn when(at: Occasion) -> &'static str {
    match at {
        Occasion::Start => "at the start of the recording",
        Occasion::Peak => "at the highest sample (end of a step)",
        Occasion::Oom => "at the failed request",
        Occasion::Point => "at a point of the program",
        Occasion::Dump => "when the recording was written",
        Occasion::End => "at the end of the recording",
    }
}

/// The name of a sample, as the header of its column. The highest sample is not PyTorch's peak.
pub(crate) fn column(at: Occasion) -> &'static str {
    match at {
        Occasion::Peak => "highest",
        other => other.name(),
    }
}

/// The header of the column of a device's sample: the name of a point.
pub(crate) fn header(sample: &Ledger) -> String {
    sample.name.as_deref().map_or_else(|| column(sample.at).to_owned(), |name| shorten_end(&safe(name), NAME))
}

/// The pools of one kind, as the label of a row.
pub(crate) fn pool(share: &PoolShare) -> String {
    match (share.kind, share.pools) {
        (None, _) => "default pool".to_owned(),
        (Some(kind), 1) => format!("private pool, {}", kind.words()),
        (Some(kind), number) => format!("{number} private pools, {}", kind.words()),
    }
}

pub(crate) fn doubts(device: &DeviceLedger) -> Vec<String> {
    device.doubts.iter().map(doubt).collect()
}

fn doubt(doubt: &LedgerDoubt) -> String {
    match doubt {
        LedgerDoubt::NoProcesses(why) => {
            let why = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            format!(
                "the processes on the device are unknown{why}: the CUDA context, libraries and other processes count as unexplained"
            )
        }
        LedgerDoubt::OwnNotListed { pid, listed, bytes } => format!(
            "the driver lists {} with {} in total, but not the recorded process, {pid}: inside a container, processes have different IDs, so which process was recorded is unknown",
            processes(*listed),
            Bytes(*bytes)
        ),
        LedgerDoubt::UnknownBytes(number) => {
            format!("the driver does not report memory for {}; it counts as unexplained", processes(*number))
        }
        LedgerDoubt::Rounded => "the processes were listed by nvidia-smi, which rounds to MiB".to_owned(),
        LedgerDoubt::UsedAtStart(bytes) => {
            format!("{} was in use when recording started, including the CUDA context", Bytes(*bytes))
        }
        LedgerDoubt::ReservedDiffers { segments, counter } => format!(
            "pools are not shown: the segments in the recording add up to {}, but PyTorch's counter says {}",
            Bytes(*segments),
            Bytes(*counter)
        ),
        LedgerDoubt::Contradiction(number) => format!(
            "the figures contradict each other in {}: a row is negative, for example because processes share memory, which \
             the driver counts twice",
            count(*number, "sample")
        ),
        LedgerDoubt::FromFailedRequest => {
            "a failed request records only what was free: the CUDA context, NCCL and other processes count as unexplained"
                .to_owned()
        }
    }
}

fn processes(number: usize) -> String {
    if number == 1 { "one process".to_owned() } else { format!("{number} processes") }
}

/// The title of the samples of pinned host memory.
pub(crate) const PINNED: &str = "Pinned host memory of this process, which is not on the device";

/// The pinned host memory, if recorded and not sampled.
pub(crate) fn pinned(report: &LedgerReport) -> Option<String> {
    let bytes = report.pinned_bytes.filter(|_| report.host.is_empty())?;
    Some(format!("Pinned host memory: {} reserved by PyTorch when the recording was written", signed(bytes)))
}

/// What else used the device at the failed request; `None` if none of it is notable.
pub(crate) fn outside(ledger: &Ledger) -> Option<String> {
    let told = ledger.rows.iter().filter(|row| row.holder != Holder::Pytorch && row.bytes >= signed_notable());
    let told: Vec<String> = told.map(|row| format!("{} {}", signed(row.bytes), row.holder.label())).collect();
    let total = Bytes(ledger.total_bytes);
    (!told.is_empty()).then(|| format!("outside PyTorch's allocator, on a device with {total}: {}", told.join(", ")))
}

fn signed_notable() -> i64 {
    i64::try_from(NOTABLE).unwrap_or(i64::MAX)
}

/// The rows of all samples of a device.
pub(crate) struct Table {
    pub rows: Vec<TableRow>,
}

/// A holder, or a sum.
pub(crate) struct TableRow {
    pub label: String,
    /// At each sample; `None` if the sample has no figure for it.
    pub bytes: Vec<Option<i64>>,
    pub is_part: bool,
}

impl Table {
    /// Holders, with the pools below PyTorch's allocator, then totals.
    pub fn of(device: &DeviceLedger) -> Self {
        let mut holders: Vec<&Holder> = Vec::new();
        for row in device.samples.iter().flat_map(|ledger| &ledger.rows) {
            if row.holder != Holder::Unexplained && !holders.contains(&&row.holder) {
                holders.push(&row.holder);
            }
        }
        holders.sort_rows_by_key(|holder| rank(holder));
        holders.push(&Holder::Unexplained);
        let bytes = |ledger: &Ledger, wanted: &Holder| {
            ledger.rows.iter().find(|row| row.holder == *wanted).map(|row| row.bytes)
        };
        let mut rows = Vec::new();
        for wanted in holders {
            let at_each = device.samples.iter().map(|ledger| bytes(ledger, wanted)).collect();
            rows.push(TableRow { label: wanted.label(), bytes: at_each, is_part: false });
            if *wanted == Holder::Pytorch {
                rows.extend(pools(device));
            }
        }
        let sums = |name: &str, figure: &dyn Fn(&Ledger) -> u64| {
            let bytes = device.samples.iter().map(|ledger| i64::try_from(figure(ledger)).ok()).collect();
            TableRow { label: name.to_owned(), bytes, is_part: false }
        };
        rows.push(sums("in use", &|ledger| ledger.used_bytes));
        rows.push(sums("free", &|ledger| ledger.total_bytes.saturating_sub(ledger.used_bytes)));
        Self { rows }
    }
}

pub(crate) fn pinned_rows(samples: &[HostSample]) -> [TableRow; 2] {
    let row = |label: &str, figure: fn(&HostSample) -> u64, is_part| {
        let bytes = samples.iter().map(|sample| i64::try_from(figure(sample)).ok()).collect();
        TableRow { label: label.to_owned(), bytes, is_part }
    };
    [
        row("PyTorch's allocator (pinned)", |sample| sample.reserved_bytes, false),
        row("  of which in use", |sample| sample.active_bytes, true),
    ]
}

/// The order of the rows: from the program outward.
fn rank(holder: &Holder) -> u8 {
    match holder {
        Holder::Pytorch => 0,
        Holder::Nccl(_) => 1,
        Holder::Context => 2,
        Holder::Process { .. } => 3,
        Holder::Other { .. } => 4,
        Holder::Unexplained => 5,
    }
}

/// The allocated part of the bytes that PyTorch's allocator has reserved, and its pools if there are several.
fn pools(device: &DeviceLedger) -> Vec<TableRow> {
    let part = |label: String, bytes: Vec<Option<i64>>| TableRow { label: format!("  {label}"), bytes, is_part: true };
    let allocated = device.samples.iter().map(|ledger| i64::try_from(ledger.allocated_bytes).ok());
    let mut rows = vec![part("of which allocated".to_owned(), allocated.collect())];
    let last = device.samples.len().saturating_sub(1);
    for share in device.samples.iter().flat_map(|ledger| &ledger.pools).filter(|_| has_pools(device)) {
        let bytes = (0..device.samples.len()).map(|at| i64::try_from(share.bytes).ok().filter(|_| at == last));
        rows.push(part(format!("reserved in {}", pool(share)), bytes.collect()));
    }
    rows
}

fn has_pools(device: &DeviceLedger) -> bool {
    device.samples.iter().flat_map(|ledger| &ledger.pools).any(|share| share.kind.is_some())
}

pub(crate) fn pools_unknown(device: &DeviceLedger) -> Option<&'static str> {
    let has_earlier = device.samples.len() > 1;
    (has_earlier && has_pools(device)).then_some("pools: known only for the last sample, from the recorded segments")
}

/// A cell: `-` if the sample has no figure.
pub(crate) fn cell(bytes: Option<i64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), signed)
}
