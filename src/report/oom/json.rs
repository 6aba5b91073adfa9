//! The JSON of `memviz oom`.

use super::words as oom_words;
use super::words::Statement;
use crate::analysis::ledger::Ledger;
use crate::analysis::oom::{Cause, DeviceOoms, Oom, OomReport, Request};
use crate::facts::grouping::attribution::Attribution;
use crate::facts::segments::figures::Figures;
use crate::facts::segments::layout::segment_type;
use crate::facts::time::moment::Moment;
use crate::model::{PoolId, SegmentType};
use crate::report::Source;
use crate::report::common::fixes::AdviceRow;
use crate::report::common::json::Head;
use crate::report::common::notes;
use crate::report::common::rescue::OomFit;
use crate::report::fit::single::json::FitSearch;
use crate::report::fragmentation::json::PinningGroup;
use crate::report::peak::json::PeakDevice;
use crate::wire::ranks::FailureSignature;
use indexmap::IndexMap;
use serde::Serialize;

/// `memviz oom`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OomDevice<'a> {
    /// Device, -1 for pinned host memory.
    pub device: i32,
    /// Allocated before the first kept entry.
    pub baseline_bytes: i64,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// What is missing, in words.
    pub notes: Vec<String>,
    /// Figures in `ooms` that are not exact: an `upper` or `lower` bound, or `unknown`. Left out when all are exact.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub bounds: IndexMap<&'static str, &'static str>,
    /// Number of failed requests.
    pub failed_requests: usize,
    /// Failed requests, in order: all of them, unless there are too many; the last ones are then only counted.
    pub ooms: Vec<FailedRequest<'a>>,
    /// The peak, if no device of the recording has a failed request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<PeakDevice<'a>>,
    /// Changes to the program that would have made room for the failed request; null if unknown, or if other allocator
    /// settings are enough.
    pub plans: Option<FitSearch>,
    /// Changes to the program, the largest saving first.
    pub advice: Vec<AdviceRow>,
    /// What used the device when a request failed. Left out unless `torch_memviz.record` sampled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<&'a Ledger>,
}

/// A failed request. Figures are those after the allocator released what it could and tried again.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailedRequest<'a> {
    /// Where it happened.
    #[serde(flatten)]
    pub at: &'a Moment,
    /// Bytes of the requested block: the request, rounded up.
    pub requested_bytes: u64,
    /// Bytes that the driver would have had to supply for it: a whole segment, or whole pages.
    pub driver_bytes: u64,
    /// Free bytes of the device.
    pub device_free_bytes: u64,
    /// Bytes of all segments.
    pub reserved_bytes: u64,
    /// Bytes of blocks in use.
    pub allocated_bytes: u64,
    /// Bytes of blocks freed by the program that another stream may still use.
    pub pending_free_bytes: u64,
    /// Bytes of free blocks.
    pub inactive_bytes: u64,
    /// The largest of them.
    pub largest_free_block_bytes: u64,
    /// Free bytes in segments, or pages of expandable ones, without a live block.
    pub releasable_bytes: u64,
    /// Free bytes that live blocks keep from being released.
    pub pinned_free_bytes: u64,
    /// Rounding loss of blocks in use.
    pub rounding_bytes: i64,
    /// Bytes that the allocator returned to the driver right before.
    pub retry_freed_bytes: u64,
    /// The number of segments or mapped ranges of these bytes.
    pub retry_freed_segments: u64,
    /// The pool that could have served the request.
    pub serving: ServingPool<'a>,
    /// The code that made the request.
    pub request: &'a Request,
    /// Why it failed.
    pub cause: Cause,
    /// The evidence.
    pub evidence: Vec<Statement>,
    /// What would have helped, as far as the recording shows.
    pub advice: Vec<Statement>,
    /// For the first failed request, whether the program fits, and with what. Left out for others, and if that takes long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<OomFit>,
    /// The code that keeps free bytes from being released.
    pub pinning: Vec<PinningGroup>,
    /// The groups that hold the allocated bytes.
    pub attribution: &'a Attribution,
    /// The variables that keep them: recordings with holders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holders: Option<&'a Attribution>,
    /// The signature, which the same failure shares with other runs. Left out unless rows are sites, of all stacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<&'a FailureSignature>,
}

/// The pool and stream of a request.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServingPool<'a> {
    /// `small` for requests of up to 1 MiB, otherwise `large`.
    #[serde(serialize_with = "segment_type")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub segment_type: SegmentType,
    /// CUDA stream.
    pub stream: u64,
    /// Pool id; null before PyTorch 2.15, which does not record it.
    pub pool_id: Option<PoolId>,
    /// Whether there are private pools and the request is only assumed to belong to none of them.
    pub pool_assumed: bool,
    /// Whether its segments are expandable.
    pub expandable: bool,
    /// The largest free block in it, without those that `max_split_size` keeps for other requests.
    pub largest_usable_block_bytes: u64,
    /// Sums over its segments.
    #[serde(flatten)]
    pub figures: &'a Figures,
}

impl<'a> From<&'a Oom> for FailedRequest<'a> {
    fn from(oom: &'a Oom) -> Self {
        let Oom { request, figures, serving, .. } = oom;
        Self {
            at: &oom.moment,
            requested_bytes: request.bytes,
            driver_bytes: request.driver_bytes,
            device_free_bytes: oom.device_free,
            reserved_bytes: figures.reserved,
            allocated_bytes: figures.allocated,
            pending_free_bytes: figures.pending_free,
            inactive_bytes: figures.inactive,
            largest_free_block_bytes: figures.largest_free_block,
            releasable_bytes: figures.releasable,
            pinned_free_bytes: figures.pinned_free,
            rounding_bytes: figures.rounding(),
            retry_freed_bytes: oom.retry.bytes,
            retry_freed_segments: oom.retry.segments,
            serving: ServingPool {
                segment_type: request.segment_type(),
                stream: request.stream,
                pool_id: request.pool,
                pool_assumed: serving.assumed,
                expandable: request.expandable,
                largest_usable_block_bytes: serving.largest_usable,
                figures: &serving.figures,
            },
            request,
            cause: oom.cause,
            evidence: oom.evidence.iter().map(|evidence| oom_words::evidence(oom, evidence)).collect(),
            advice: oom.advice.iter().map(|advice| oom_words::advice(oom, advice)).collect(),
            fit: None,
            pinning: oom.pinning.rows.iter().map(PinningGroup::of).collect(),
            attribution: &oom.attribution,
            holders: oom.holders.as_ref(),
            signature: oom.signature.as_ref(),
        }
    }
}

impl<'a> From<&'a DeviceOoms> for OomDevice<'a> {
    fn from(device: &'a DeviceOoms) -> Self {
        let at_end = |oom: &Oom| notes::is_end(&oom.moment, device.entries, &device.completeness);
        let mut ooms: Vec<FailedRequest<'_>> = device.ooms.iter().map(FailedRequest::from).collect();
        if let (Some(first), Some(rescue)) = (ooms.first_mut(), &device.rescue) {
            first.fit = Some(OomFit::of(rescue, &device.cures));
        }
        Self {
            device: device.device,
            baseline_bytes: device.baseline.allocated,
            complete_history: device.completeness.is_complete(),
            notes: notes::ooms(device),
            bounds: notes::figure_bounds(&device.completeness, device.ooms.iter().all(at_end), false),
            failed_requests: device.failed,
            ooms,
            peak: device.peak.as_ref().map(PeakDevice::of),
            plans: device.plans.as_ref().map(FitSearch::from),
            advice: device.cures.iter().map(AdviceRow::of).collect(),
            ledger: device.ledger.as_ref(),
        }
    }
}

/// The whole answer of `memviz oom`.
pub fn oom<'a>(source: Source<'a>, report: &'a OomReport) -> Head<'a, OomDevice<'a>> {
    Head::of::<OomReport>(source, report.comparison.as_ref(), report.devices.iter().map(OomDevice::from).collect())
}
