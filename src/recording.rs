//! From a file to its histories.

use crate::analysis::blocks::{BlocksOptions, BlocksReport};
use crate::analysis::check::{CheckOptions, CheckReport};
use crate::analysis::checkpoint::{CheckpointOptions, CheckpointReport};
use crate::analysis::diff::DiffInput;
use crate::analysis::export::{LivesOptions, LivesReport, SamplesOptions, SamplesReport, TracksOptions, TracksReport};
use crate::analysis::fix::{FixOptions, FixReport, ReadSource};
use crate::analysis::flame::{FlameOptions, FlameReport};
use crate::analysis::fragmentation::segment_map::SegmentMapReport;
use crate::analysis::fragmentation::{FragmentationOptions, FragmentationReport};
use crate::analysis::info::InfoReport;
use crate::analysis::leaks::{LeakOptions, LeakReport};
use crate::analysis::ledger::{LedgerOptions, LedgerReport};
use crate::analysis::oom::{OomOptions, OomReport};
use crate::analysis::overview::Overview;
use crate::analysis::peak::{PeakOptions, PeakReport};
use crate::analysis::simulate::{SimulateOptions, SimulateReport};
use crate::analysis::timeline::{CurveOptions, CurveReport, TimelineOptions, TimelineReport};
use crate::analysis::triage::{TriageOptions, TriageReport};
use crate::error::{Error, Result};
use crate::facts::device::Devices;
use crate::input::{self, Compression, Contents, ReadOptions, Unpacked};
use crate::model::{DeviceFile, DeviceId, Snapshot};
use crate::replay::{HeadStart, History, InferredRule, profile, require_plausible};
use crate::simulation::plans::{PlanOptions, PlanReport};
use std::io::Read;
use std::path::Path;

/// A recording with its histories: the start of every question. Profiler traces and memory timelines become snapshots
/// without segments ([`crate::model::SourceNotes::format`] has the original format).
#[derive(Clone, Debug)]
pub struct Recording {
    pub snapshot: Snapshot,
    /// Its histories, one per device, in the order of [`Snapshot::traces`].
    pub histories: Vec<History>,
    pub compression: Compression,
    /// Size of the file or stream in bytes, compressed if it is.
    pub bytes: u64,
    /// Samples of whole devices; `None` unless they were read with [`input::device_file::beside`].
    pub device_file: Option<DeviceFile>,
}

impl Recording {
    /// Reads and replays the recording at `path`: a snapshot, a profiler trace or a memory timeline. The replay runs while the file is still being read.
    ///
    /// # Errors
    /// If the file cannot be read, is not a recording, is damaged, or exceeds a limit.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        Self::read(input::open(path)?, options)
    }

    /// Like [`Recording::open`], from a stream.
    ///
    /// # Errors
    /// Like [`Recording::open`].
    pub fn read(stream: impl Read + Send + 'static, options: &ReadOptions) -> Result<Self> {
        Self::unpacked(Unpacked::new(stream, options)?, options)
    }

    /// Like [`Recording::open`], from an input whose first bytes were already read.
    ///
    /// # Errors
    /// Like [`Recording::open`].
    pub fn unpacked(input: Unpacked, options: &ReadOptions) -> Result<Self> {
        let input = input.read(options, HeadStart::default())?;
        let (snapshot, histories) = match input.contents {
            Contents::Snapshot(snapshot, head_start) => {
                let histories = head_start.finish(&snapshot);
                (*snapshot, histories)
            }
            Contents::Trace(profile) => profile::convert(profile),
            Contents::Timeline(timeline) => profile::convert_timeline(timeline),
            Contents::Live(live) => profile::convert_live(live),
        };
        require_plausible(&snapshot, &histories)?;
        let mut snapshot = Snapshot { view: options.view.clone(), ..snapshot };
        let is_ascend = |history: &History| history.completeness.inferred_rule == Some(InferredRule::Ascend);
        snapshot.settings.pads_requests = histories.iter().any(is_ascend);
        Ok(Self { snapshot, histories, compression: input.compression, bytes: input.bytes, device_file: None })
    }

    /// Its devices. Facts that several answers share are computed once for all answers from the returned value.
    pub fn devices(&self) -> Devices<'_> {
        Devices::of(&self.snapshot, &self.histories).with_device_file(self.device_file.as_ref())
    }

    /// Checks that the recording covers more than one instant, as `question` requires.
    ///
    /// # Errors
    /// If it does not.
    pub fn require_history(&self, question: &str) -> Result<()> {
        let format = self.snapshot.notes.format;
        if !format.is_one_instant() {
            return Ok(());
        }
        Err(Error::Request(format!(
            "a {} records the live buffers at one instant, which peak, flamegraph, diff and other commands can show; {question} needs a history",
            format.title()
        )))
    }

    /// The verdict, and what to look at next.
    pub fn triage(&self, options: &TriageOptions) -> Result<TriageReport> {
        TriageReport::of(&self.devices(), options)
    }

    /// The peak of each device and what holds it.
    pub fn peak(&self, options: &PeakOptions) -> Result<PeakReport> {
        PeakReport::of(&self.devices(), options)
    }

    pub fn timeline(&self, options: &TimelineOptions) -> Result<TimelineReport> {
        self.require_history("timeline")?;
        TimelineReport::of(&self.devices(), options)
    }

    /// The same as data: counters and groups at the highest instant of each part of the history.
    pub fn curve(&self, options: &CurveOptions) -> Result<CurveReport> {
        self.require_history("timeline")?;
        CurveReport::of(&self.devices(), options)
    }

    pub fn flame(&self, options: &FlameOptions) -> Result<FlameReport> {
        FlameReport::of(&self.devices(), options)
    }

    /// Bytes and blocks by stack and labels: held at an instant, and allocated over the history.
    pub fn samples(&self, options: &SamplesOptions) -> Result<SamplesReport> {
        SamplesReport::of(&self.devices(), options)
    }

    /// The counters over time, with annotations, steps, phases and failed requests.
    pub fn tracks(&self, options: &TracksOptions) -> Result<TracksReport> {
        self.require_history("exporting a trace")?;
        TracksReport::of(&self.devices(), options)
    }

    /// Every allocation and free, with addresses and stacks.
    pub fn lives(&self, options: &LivesOptions) -> Result<LivesReport> {
        self.require_history("exporting all allocations")?;
        LivesReport::of(&self.devices(), options)
    }

    /// Every segment at an instant, and whose blocks are in it. Without a requested instant, at the first failed
    /// request, or else where the most memory is inactive.
    pub fn segment_map(&self, options: &PeakOptions) -> Result<SegmentMapReport> {
        SegmentMapReport::where_it_matters(&self.devices(), options)
    }

    pub fn overview(&self, options: &TimelineOptions) -> Result<Overview> {
        self.require_history("report")?;
        Overview::of(&self.devices(), options)
    }

    /// How much reserved memory is inactive, and which blocks keep it reserved.
    pub fn fragmentation(&self, options: &FragmentationOptions) -> Result<FragmentationReport> {
        self.require_history("fragmentation")?;
        FragmentationReport::of(&self.devices(), options)
    }

    /// Every request that failed, and why.
    pub fn oom(&self, options: &OomOptions) -> Result<OomReport> {
        self.require_history("oom")?;
        OomReport::of(&self.devices(), options)
    }

    /// The memory that survives step after step on each device.
    pub fn leaks(&self, options: &LeakOptions) -> Result<LeakReport> {
        self.require_history("leaks")?;
        LeakReport::of(&self.devices(), options)
    }

    /// Single blocks of each device.
    pub fn blocks(&self, options: &BlocksOptions) -> Result<BlocksReport> {
        BlocksReport::of(&self.devices(), options)
    }

    /// The memory in use on whole devices, by PyTorch and by others.
    pub fn ledger(&self, options: &LedgerOptions) -> Result<LedgerReport> {
        LedgerReport::of(&self.devices(), options)
    }

    /// Fixes of known mistakes as changes to the source code, which `read` provides.
    pub fn fix(&self, options: &FixOptions, read: ReadSource<'_>) -> Result<FixReport> {
        self.require_history("fix")?;
        FixReport::of(&self.devices(), options, read)
    }

    /// What activation checkpointing would save on each device.
    pub fn checkpoint(&self, options: &CheckpointOptions) -> Result<CheckpointReport> {
        self.require_history("checkpoint")?;
        CheckpointReport::of(&self.devices(), options)
    }

    /// What each device would need under other allocator settings, and on another device.
    pub fn simulate(&self, options: &SimulateOptions) -> Result<SimulateReport> {
        self.require_history("simulate")?;
        SimulateReport::of(&self.devices(), options)
    }

    /// Changes that make the program fit a device.
    pub fn plan(&self, options: &PlanOptions) -> Result<PlanReport> {
        PlanReport::of(&self.devices(), options)
    }

    pub fn check(&self, options: &CheckOptions) -> CheckReport {
        CheckReport::of(&self.devices(), options)
    }

    /// The data of this recording that a comparison with another one needs.
    pub fn diff_input(&self, options: &PeakOptions) -> Result<DiffInput> {
        DiffInput::of(&self.devices(), options)
    }

    /// The contents of the file, for `devices`, or for all devices if empty.
    pub fn info(&self, devices: &[DeviceId]) -> Result<InfoReport> {
        InfoReport::of(&self.devices(), devices)
    }

    pub fn history(&self, device: DeviceId) -> Option<&History> {
        self.histories.iter().find(|history| history.device == device)
    }

    /// Number of contradictions in all histories.
    pub fn anomalies(&self) -> u64 {
        self.histories.iter().map(|history| history.anomalies.total()).sum()
    }

    /// Whether the file was read to its end, and every history is complete: see
    /// [`crate::replay::Completeness::is_complete`]. A snapshot without any does not show whether recording was on.
    pub fn is_complete(&self) -> bool {
        let is_recorded = !self.histories.is_empty() || !self.snapshot.notes.format.has_segments();
        self.snapshot.notes.truncated_at.is_none()
            && is_recorded
            && self.histories.iter().all(|history| history.completeness.is_complete())
    }
}
