//! How much reserved memory is unused at an instant, and why it cannot be used.

pub(crate) mod over_time;
pub(crate) mod segment_map;
mod stranded;

use crate::error::Result;
use crate::facts::device::{Device, Devices, ask_each};
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::private_pools::{PrivatePool, PrivatePools};
use crate::facts::grouping::{GroupBy, Grouper, Inference};
use crate::facts::segments::figures::{Figures, SizeClass, size_classes};
use crate::facts::segments::layout::{Layout, SegmentLayout, segment_type};
use crate::facts::segments::pinning::Pinning;
use crate::facts::time::moment::Moment;
use crate::facts::time::when::{Purpose, When};
use crate::model::{Action, DeviceId, PoolId, SegmentType};
use crate::replay::{Anomalies, Completeness, Counters, Metric};
use crate::simulation::SettingsAdvice;
use crate::sorting::SortRows;
use indexmap::IndexMap;
use over_time::{MostInactive, OverTimeRow, affordable, most_inactive, over_time};
use segment_map::require_segments;
use serde::Serialize;
use std::cmp::Reverse;
pub use stranded::Stranded;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct FragmentationOptions {
        /// The instant; if `None`, the first failed request, or else the instant with the most inactive memory.
        pub at: Option<When>,
        /// What rows of non-releasable memory represent.
        pub by: GroupBy,
        /// Maximum number of those rows; the rest is one row.
        pub top: Option<usize>,
        pub filter: Filter,
        pub inference: Inference,
        /// Into how many equal parts the history is divided for rows over time; `None` for no such rows.
        pub points: Option<u32>,
        /// Whether to simulate other allocator settings if much memory is non-releasable, to determine how much memory
        /// would be reserved at the instant with them.
        pub simulate: bool,
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
    }
}

/// The instant that an answer shows if none is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    Failure,
    MostInactive,
}

/// Segments whose free blocks can serve the same requests: the allocator keeps these groups separate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Pool"))]
pub struct PoolFragmentation {
    /// `small` for blocks of up to 1 MiB, otherwise `large`.
    #[serde(serialize_with = "segment_type")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub segment_type: SegmentType,
    /// CUDA stream; null if the file does not record it.
    pub stream: Option<u64>,
    /// Pool id, (0, 0) for the default one; null if the file does not record it.
    #[serde(rename = "pool_id")]
    pub pool: Option<PoolId>,
    /// Details of a private pool. Left out for other pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<PrivatePool>,
    /// Whether its segments are expandable.
    pub expandable: bool,
    /// Sums over its segments.
    #[serde(flatten)]
    pub figures: Figures,
    /// Its free blocks by size.
    pub free_blocks: Vec<SizeClass>,
}

/// A segment and how it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Segment"))]
pub struct SegmentFragmentation {
    #[serde(flatten)]
    pub segment: SegmentLayout,
    /// Site of the request that created it.
    pub made_by: String,
    /// Sums over its blocks.
    #[serde(flatten)]
    pub figures: Figures,
}

#[derive(Clone, Debug)]
pub struct DeviceFragmentation {
    /// Device, -1 for pinned host memory.
    pub device: DeviceId,
    pub moment: Moment,
    /// Why this instant, if none was requested; `None` also if nothing is ever inactive.
    pub chosen: Option<Chosen>,
    /// Whether this is the peak of allocated bytes.
    pub is_peak: bool,
    pub entries: u32,
    pub figures: Figures,
    /// The same by pool and stream, the largest first. They sum to the total.
    pub pools: Vec<PoolFragmentation>,
    /// Free memory that only one side stream or pool can use, if there is much.
    pub stranded: Option<Stranded>,
    pub free_blocks: Vec<SizeClass>,
    /// Blocks in use and pending free by size, for their rounding loss.
    pub used_blocks: Vec<SizeClass>,
    /// The blocks that keep free memory reserved, by group.
    pub by: GroupBy,
    pub pinning: Pinning,
    pub segments: Vec<SegmentFragmentation>,
    /// The instant of the whole history at which the most memory is inactive.
    pub most_inactive: MostInactive,
    pub over_time: Option<Vec<OverTimeRow>>,
    /// What other settings would have reserved at the instant, simulated; `None` if not requested, if little is
    /// non-releasable, or if it is unknown.
    pub settings: Option<SettingsAdvice>,
    /// Number of points, if the requested number takes too long with this many segments and blocks.
    pub fewer_points: Option<u32>,
    /// Counters at the instant. They differ from the figures only if the recording contradicts itself.
    pub counters: Counters,
    /// Number and bytes of active blocks that are in no segment or overlap: the recording contradicts itself.
    pub stray: (u64, u64),
    pub baseline: Counters,
    pub completeness: Completeness,
    pub anomalies: Anomalies,
}

#[derive(Clone, Debug, Default)]
pub struct FragmentationReport {
    pub devices: Vec<DeviceFragmentation>,
    pub skipped: Vec<String>,
}

impl FragmentationReport {
    /// Computes the fragmentation of each device.
    ///
    /// # Errors
    /// If the recording has no segments or does not show the groups, a device does not exist, or none has the requested instant.
    pub fn of(recording: &Devices<'_>, options: &FragmentationOptions) -> Result<Self> {
        require_segments(recording.snapshot())?;
        options.by.require_told(recording)?;
        let wanted = recording.wanted(&options.devices)?;
        let (devices, skipped) = ask_each(&wanted, |device| DeviceFragmentation::of(device, options))?;
        Ok(Self { devices, skipped })
    }
}

impl DeviceFragmentation {
    fn of(device: &Device<'_>, options: &FragmentationOptions) -> Result<Self> {
        let (track, history) = (device.track, device.history());
        let metric = Metric::Allocated;
        let peak = history.maxima[metric as usize].instant;
        let most = most_inactive(track, 1).first().copied().unwrap_or_default();
        let (instant, chosen) = match &options.at {
            Some(when) => (device.instant(when, metric, Purpose::At)?, None),
            None if track.count_of(Action::Oom) > 0 => {
                (device.instant(&When::Oom, metric, Purpose::At)?, Some(Chosen::Failure))
            }
            None if most.instant > 0 => (most.instant, Some(Chosen::MostInactive)),
            None => (peak, None),
        };
        let layout = Layout::at(track, instant);
        let grouper = Grouper::new(device, device.deep_sites(), &options.filter, options.by).inferring(
            device,
            options.inference,
            metric,
        );
        let mut pinning = Pinning::of(&grouper, &layout);
        if let Some(top) = options.top {
            pinning.keep_top(top, options.by.is_inclusive());
        }
        let points = options.points.map(|points| affordable(history, points));
        let stray_bytes =
            layout.stray.iter().fold(0, |sum: u64, &index| sum.wrapping_add(history.allocations[index].size));
        let segments = layout.segments.iter().map(|segment| SegmentFragmentation {
            figures: Figures::of_segment(history, &layout, segment),
            made_by: device.deep_sites().site(segment.stack),
            segment: segment.clone(),
        });
        let figures = Figures::of(history, &layout);
        let is_simulated = options.simulate && points.is_none() && figures.pins_much();
        let pools = pools(device, &layout);
        Ok(Self {
            device: device.id(),
            moment: Moment::of(track, device.annotations(), instant),
            chosen,
            is_peak: instant == peak && !history.completeness.no_entries,
            entries: history.entries(),
            figures,
            stranded: Stranded::of(device, &pools),
            pools,
            free_blocks: size_classes(history, &layout, layout.segments.iter(), true),
            used_blocks: size_classes(history, &layout, layout.segments.iter(), false),
            by: options.by,
            pinning,
            segments: segments.collect(),
            most_inactive: most,
            over_time: points.map(|points| over_time(track, device.annotations(), points)),
            settings: if is_simulated { SettingsAdvice::at(device, instant, figures.reserved) } else { None },
            fewer_points: points.filter(|_| points != options.points),
            counters: track.counters_at(instant),
            stray: (layout.stray.len() as u64, stray_bytes),
            baseline: history.start,
            completeness: history.completeness,
            anomalies: history.anomalies.clone(),
        })
    }
}

/// How much memory is inactive on a device at its first failed request, or at its peak, and how much of it only one
/// side stream or pool can use: only these figures of a [`FragmentationReport`].
pub(crate) fn idle(device: &Device<'_>, at: Option<&When>) -> Result<(Figures, Option<Stranded>)> {
    require_segments(device.snapshot())?;
    let metric = Metric::Allocated;
    let peak = device.history().maxima[metric as usize].instant;
    let instant = at.map_or(Ok(peak), |when| device.instant(when, metric, Purpose::At))?;
    let layout = Layout::at(device.track, instant);
    Ok((Figures::of(device.history(), &layout), Stranded::of(device, &pools(device, &layout))))
}

/// The segments, grouped by the properties by which the allocator separates them.
fn pools(device: &Device<'_>, layout: &Layout) -> Vec<PoolFragmentation> {
    type Key = (bool, Option<u64>, Option<PoolId>, bool);
    let (history, private) = (device.history(), PrivatePools::of(device.track, device.sites()));
    let mut groups: IndexMap<Key, Vec<&SegmentLayout>> = IndexMap::new();
    for segment in &layout.segments {
        let large = segment.segment_type == SegmentType::Large;
        groups.entry((large, segment.stream, segment.pool, segment.expandable)).or_default().push(segment);
    }
    let pool = |((large, stream, pool, expandable), segments): (Key, Vec<&SegmentLayout>)| PoolFragmentation {
        segment_type: if large { SegmentType::Large } else { SegmentType::Small },
        stream,
        pool,
        private: pool.and_then(|id| private.get(id)).cloned(),
        expandable,
        figures: segments
            .iter()
            .fold(Figures::default(), |sum, segment| sum.plus(&Figures::of_segment(history, layout, segment))),
        free_blocks: size_classes(history, layout, segments.into_iter(), true),
    };
    let mut pools: Vec<PoolFragmentation> = groups.into_iter().map(pool).collect();
    pools.sort_rows_by_key(|pool| {
        (Reverse(pool.figures.reserved), pool.pool, pool.stream, pool.segment_type == SegmentType::Small)
    });
    pools
}
