//! Single blocks: the use of each, the code that allocated it, and the code that freed it.

use crate::error::{Error, Result};
use crate::facts::code::sites::{CodeOrigin, LONGEST_STACK};
use crate::facts::device::{Device, Devices, ask_each};
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Holder, Inference};
use crate::facts::time::moment::Moment;
use crate::facts::time::when::{Purpose, When};
use crate::model::logged::tensor_bytes;
use crate::model::{DEFAULT_POOL, DeviceId, PoolId, StackId};
use crate::replay::{Allocation, Anomalies, Completeness, Counters, History, Instant, Metric, NEVER, Track};
use serde::{Serialize, Serializer};
use std::cmp::Reverse;

/// Number of listed blocks if nothing else is requested.
pub const TOP: usize = 20;

options! {
    /// Which blocks to show. Without IDs and addresses, those that are allocated at an instant, the largest first.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct BlocksOptions {
        /// IDs of blocks: their places among all blocks of a device, in the order in which they are allocated.
        pub ids: Vec<usize>,
        /// Addresses: all blocks that contain one of them, at the given instant or otherwise at any time.
        pub addresses: Vec<u64>,
        /// Only blocks whose free is pending: the program has requested it, and other streams may still use the memory.
        pub pending: bool,
        /// The instant; if `None`, the peak of allocated memory, or the instant at which the frees of most memory are pending.
        pub at: Option<When>,
        /// Maximum number of blocks listed for each device. The rest are summed up.
        pub top: usize,
        /// Whether to infer the forward line of memory that backward allocated.
        pub inference: Inference,
        /// Devices; all if empty.
        pub devices: Vec<DeviceId>,
    }
}

impl Default for BlocksOptions {
    fn default() -> Self {
        let (ids, addresses, devices) = (Vec::new(), Vec::new(), Vec::new());
        Self { ids, addresses, pending: false, at: None, top: TOP, inference: Inference::default(), devices }
    }
}

#[derive(Clone, Debug, Default)]
pub struct BlocksReport {
    pub devices: Vec<DeviceBlocks>,
}

#[derive(Clone, Debug)]
pub struct DeviceBlocks {
    pub device: DeviceId,
    /// The instant of the blocks; `None` for blocks of any time.
    pub at: Option<Moment>,
    pub blocks: Vec<Block>,
    pub found: usize,
    pub total_bytes: u64,
    pub entries: u32,
    /// Allocated before the recording.
    pub baseline: Counters,
    pub completeness: Completeness,
    pub anomalies: Anomalies,
}

/// One block.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about a block")]
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "BlockRow"))]
pub struct Block {
    /// Its place among all blocks of the device, for `--id`.
    pub id: usize,
    /// Its address, in hexadecimal.
    #[serde(serialize_with = "hexadecimal")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub address: u64,
    pub requested_bytes: u64,
    /// Bytes as the allocator rounded them.
    pub bytes: u64,
    /// When it was allocated; null if before the recording.
    pub allocated: Option<Moment>,
    /// When the program freed it; null if it did not while recording.
    pub freed: Option<Moment>,
    /// When its memory could be used again, later than the free if another stream still used it; null if it could not while
    /// recording.
    pub completed: Option<Moment>,
    /// CUDA stream; null if not recorded.
    pub stream: Option<u64>,
    /// Private pool; null if it is in none, or if pools are not recorded.
    pub pool_id: Option<PoolId>,
    /// The line that allocated it.
    pub site: String,
    /// Its category.
    pub category: &'static str,
    /// The evidence for the category.
    pub evidence: &'static str,
    /// Whether the site or the category is inferred.
    pub inferred: bool,
    #[serde(skip)]
    pub site_inferred: bool,
    #[serde(skip)]
    pub category_inferred: bool,
    /// The phase in which it was allocated; null if unknown.
    pub phase: Option<&'static str>,
    /// The step in which it was allocated, from 1; null if unknown.
    pub step: Option<u64>,
    /// Tensors of its size that torch-snapkit logged at its address, each shape and type once. Left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<Tensor>,
    /// Whether the device has other blocks of this size at this address, so that a tensor may be in one of them.
    #[serde(skip)]
    pub shares_address: bool,
    /// The line that allocated it, if the recording contains the source code and the caller asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The file and the line of the site.
    #[serde(skip)]
    pub line: Option<(String, u64)>,
    /// The stack that allocated it, innermost frame first.
    pub stack: Vec<String>,
    /// The line that freed it; null if not recorded.
    pub freed_by: Option<String>,
    /// The stack that freed it, innermost frame first; empty if not recorded.
    pub free_stack: Vec<String>,
}

/// A tensor in a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "BlockTensor"))]
pub struct Tensor {
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its type, such as `float32`.
    pub dtype: String,
    /// The first operator that returned it.
    pub operator: String,
}

pub(crate) fn address(address: u64) -> String {
    format!("{address:#x}")
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn hexadecimal<S: Serializer>(number: &u64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&address(*number))
}

impl BlocksReport {
    /// Looks blocks up.
    ///
    /// # Errors
    /// If a device does not exist, has no such block or no such instant, and for IDs on several devices.
    pub fn of(recording: &Devices<'_>, options: &BlocksOptions) -> Result<Self> {
        let wanted = recording.wanted(&options.devices)?;
        if !options.ids.is_empty() && wanted.len() > 1 {
            let found = wanted.len();
            return Err(Error::Request(format!(
                "expected one device for block IDs, found {found}; --device selects one"
            )));
        }
        let (devices, _) = ask_each(&wanted, |device| DeviceBlocks::of(device, options))?;
        Ok(Self { devices })
    }
}

impl DeviceBlocks {
    fn of(device: &Device<'_>, options: &BlocksOptions) -> Result<Self> {
        let (track, history) = (device.track, device.history());
        let all = &history.allocations;
        let metric = Metric::Allocated;
        let at = match &options.at {
            Some(When::Peak) => Some(history.maxima[metric as usize].instant),
            Some(when) => Some(device.instant(when, metric, Purpose::At)?),
            None if options.pending => Some(most_pending(track)),
            None if options.ids.is_empty() && options.addresses.is_empty() => {
                Some(history.maxima[metric as usize].instant)
            }
            None => None,
        };
        let there = |index: &usize| {
            let block = &all[*index];
            let is_pending = |at| block.freed <= at && at < block.completed;
            at.is_none_or(|at| if options.pending { is_pending(at) } else { block.allocated_at(at) })
        };
        let mut found: Vec<usize> = if options.ids.is_empty() && options.addresses.is_empty() {
            let mut live: Vec<usize> = (0..all.len()).filter(there).collect();
            live.sort_by_key(|&index| Reverse(all[index].size));
            live
        } else {
            let contains = |index: &usize| {
                let block = &all[*index];
                options
                    .addresses
                    .iter()
                    .any(|&address| address.checked_sub(block.addr).is_some_and(|at| at < block.size))
            };
            let named = if options.addresses.is_empty() { 0..0 } else { 0..all.len() };
            options.ids.iter().copied().chain(named.filter(contains)).collect()
        };
        if let Some(id) = found.iter().find(|&&id| id >= all.len()) {
            let (device, most) = (device.id(), all.len());
            return Err(Error::Request(format!("device {device}: expected a block ID below {most}, found {id}")));
        }
        found.retain(there);
        let (number, total_bytes) =
            (found.len(), found.iter().fold(0, |sum: u64, &index| sum.wrapping_add(all[index].size)));
        found.truncate(options.top);
        let filter = Filter::default();
        let grouper = Grouper::new(device, device.deep_sites(), &filter, GroupBy::Site);
        let grouper = grouper.inferring(device, options.inference, metric);
        let block = |index: usize| Block::of(device, &grouper, index);
        Ok(Self {
            device: device.id(),
            at: at.map(|at| Moment::of(track, device.annotations(), at)),
            blocks: found.into_iter().filter_map(block).collect(),
            found: number,
            total_bytes,
            entries: history.entries(),
            baseline: history.start,
            completeness: history.completeness,
            anomalies: history.anomalies.clone(),
        })
    }
}

/// The tensors of a block's size that were logged at its address.
fn tensors(track: Track<'_>, block: &Allocation) -> Vec<Tensor> {
    let strings = &track.snapshot.strings;
    let mut found: Vec<Tensor> = Vec::new();
    for logged in &track.snapshot.notes.tensors {
        let dtype = strings.get(logged.dtype);
        let is_here = logged.device.is_none_or(|device| device == track.device()) && logged.address == block.addr;
        if is_here
            && tensor_bytes(&logged.shape, dtype) == Some(block.requested)
            && !found.iter().any(|known| *known.shape == *logged.shape && known.dtype == dtype)
        {
            let operator = strings.get(logged.operator).to_owned();
            found.push(Tensor { shape: logged.shape.to_vec(), dtype: dtype.to_owned(), operator });
        }
    }
    found
}

/// The first instant at which the frees of most memory are pending.
fn most_pending(track: Track<'_>) -> Instant {
    let pending = |counters: &Counters| counters.active.saturating_sub(counters.allocated);
    let mut most = (pending(&track.history.start), 0);
    track.walk(|instant, counters| {
        if pending(counters) > most.0 {
            most = (pending(counters), instant);
        }
    });
    most.1
}

impl Block {
    fn of(device: &Device<'_>, grouper: &Grouper<'_>, id: usize) -> Option<Self> {
        let (track, sites) = (device.track, device.deep_sites());
        let holder = Holder::of_allocation(track, Metric::Allocated, id)?;
        let made = track.allocation(id)?;
        let entry = History::entry_before(made.born);
        let context = entry.filter(|_| track.snapshot.notes.format.has_segments()).map(|entry| track.context(entry));
        let old = track.history.baseline.get(id);
        let pool = context.and_then(|context| context.pool).or(old.and_then(|old| old.pool));
        let moment = |instant: Instant| {
            let happens = instant != NEVER && instant != 0;
            happens.then(|| Moment::of(track, device.annotations(), instant))
        };
        let decision = device.categories().get(id);
        let origin = grouper.origin(&holder);
        let site_inferred = origin.forward.is_some() && !origin.is_recorded;
        // That nothing is known about the use of a block is no inference.
        let is_known = decision.category.is_known();
        let category_inferred = is_known && !decision.evidence.is_recorded();
        let site = grouper.keys(&holder).first().map(|key| grouper.label(key, false)).unwrap_or_default();
        let free = if made.freed == NEVER { None } else { History::entry_before(made.freed) };
        let free_stack = free.map(|entry| track.stack(entry)).filter(|&stack| stack != StackId::EMPTY);
        let steps = device.steps().ok().filter(|steps| steps.are_steps());
        let step = steps.zip(entry).and_then(|(steps, entry)| {
            let step = steps.ends.partition_point(|&end| end <= entry);
            (step < steps.ends.len()).then_some(step as u64 + 1)
        });
        let made_stack = origin.forward.unwrap_or(origin.stack);
        let tensors = tensors(track, made);
        let mut others = track.history.allocations.iter().enumerate();
        let is_twin = |(index, other): (usize, &Allocation)| {
            index != id && other.addr == made.addr && other.requested == made.requested
        };
        Some(Self {
            id,
            address: made.addr,
            requested_bytes: made.requested,
            bytes: made.size,
            allocated: moment(made.born),
            freed: moment(made.freed),
            completed: moment(made.completed),
            stream: context.map(|context| context.stream).or(old.map(|old| old.stream)),
            pool_id: pool.filter(|&pool| pool != DEFAULT_POOL),
            site,
            shares_address: !tensors.is_empty() && others.any(is_twin),
            tensors,
            code: None,
            line: sites
                .site_frame(made_stack)
                .and_then(|id| track.snapshot.stacks.frame(id))
                .map(|frame| (track.snapshot.strings.get(frame.filename).to_owned(), frame.line)),
            category: decision.category.name(),
            evidence: decision.evidence.words(),
            inferred: site_inferred || category_inferred,
            site_inferred,
            category_inferred,
            phase: entry.and_then(|entry| device.phases().span(entry)).map(|span| span.phase.name()),
            step,
            stack: sites.origin_labels(origin, LONGEST_STACK),
            freed_by: free_stack.map(|stack| sites.site(stack)),
            free_stack: free_stack
                .map(|stack| sites.origin_labels(CodeOrigin::of(stack), LONGEST_STACK))
                .unwrap_or_default(),
        })
    }
}
