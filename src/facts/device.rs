//! The devices of a recording, with the facts that analyses need. Each fact is computed once, on first use.

use super::code::sites::Sites;
use super::held::Held;
use super::time::annotations::Annotations;
use super::time::when::{Purpose, When};
use super::training::library::library_lines;
use super::training::steps::{NoSteps, StepRule, Steps};
use super::training::{BackwardSites, Categories, Category, Phases, Roles};
use crate::error::{Error, Result};
use crate::model::{DeviceFile, DeviceId, HOST_DEVICE, Snapshot, StackId, device_words};
use crate::parallel;
use crate::replay::{Allocation, History, Instant, Metric, Track};
use indexmap::IndexSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// All devices of a recording. They share the facts that several analyses need, so a report with all analyses computes each
/// fact once.
#[derive(Clone, Debug)]
pub struct Devices<'a> {
    all: Vec<Device<'a>>,
    shared: Arc<InCommon<'a>>,
    device_file: Option<&'a DeviceFile>,
}

/// One device: its track, and the facts derived from it.
#[derive(Clone, Debug)]
pub struct Device<'a> {
    /// The entries of the device and their history.
    pub track: Track<'a>,
    shared: Arc<InCommon<'a>>,
    own: Arc<Own<'a>>,
}

/// Facts that all devices of a recording share. If several threads request one at once, one of them computes it and the
/// others wait. So computing these facts must not start work on other threads.
#[derive(Debug)]
struct InCommon<'a> {
    snapshot: &'a Snapshot,
    histories: &'a [History],
    annotations: OnceLock<Annotations>,
    sites: OnceLock<Sites<'a>>,
    deep_sites: OnceLock<Sites<'a>>,
    roles: OnceLock<Roles>,
    step_rule: OnceLock<StepRule>,
}

/// Facts about one device.
#[derive(Debug, Default)]
struct Own<'a> {
    phases: OnceLock<Phases>,
    steps: OnceLock<std::result::Result<Steps, NoSteps>>,
    categories: OnceLock<Categories>,
    /// Whether a thread computes them, or did.
    has_begun: AtomicBool,
    backward: OnceLock<BackwardSites>,
    /// What holds each allocation.
    held: OnceLock<Option<Held<'a>>>,
    /// The stack of each allocation.
    stacks: OnceLock<Vec<StackId>>,
}

impl<'a> Devices<'a> {
    /// The devices of these histories. This computes nothing yet.
    pub fn of(snapshot: &'a Snapshot, histories: &'a [History]) -> Self {
        let shared = Arc::new(InCommon {
            snapshot,
            histories,
            annotations: OnceLock::new(),
            sites: OnceLock::new(),
            deep_sites: OnceLock::new(),
            roles: OnceLock::new(),
            step_rule: OnceLock::new(),
        });
        let device =
            |history| Device { track: Track::new(snapshot, history), shared: Arc::clone(&shared), own: Arc::default() };
        Self { all: histories.iter().map(device).collect(), shared, device_file: None }
    }

    /// The same, with the program's samples of whole devices.
    #[must_use]
    pub fn with_device_file(self, device_file: Option<&'a DeviceFile>) -> Self {
        Self { device_file, ..self }
    }

    /// The program's samples of whole devices, if they were read.
    pub fn device_file(&self) -> Option<&'a DeviceFile> {
        self.device_file
    }

    /// Total bytes of a device, if its samples or the device properties of a trace contain them.
    pub fn memory_of(&self, device: DeviceId) -> Option<u64> {
        let sampled = self.device_file.and_then(|file| file.devices.iter().find(|known| known.device == device));
        let sampled = sampled.and_then(|known| known.samples.last()).map(|sample| sample.total_bytes);
        let traced =
            || self.snapshot().notes.device_memory.iter().find(|(known, _)| *known == device).map(|(_, all)| *all);
        sampled.or_else(traced)
    }

    /// The recording.
    pub fn snapshot(&self) -> &'a Snapshot {
        self.shared.snapshot
    }

    /// The `record_function` ranges of the recording.
    pub fn annotations(&self) -> &Annotations {
        self.shared.annotations()
    }

    /// Labels of frames and stacks: see [`Sites::new`].
    pub fn sites(&self) -> &Sites<'a> {
        self.shared.sites()
    }

    /// What each stack shows about its part of a training step.
    pub fn roles(&self) -> &Roles {
        self.shared.roles()
    }

    /// Every device, in the order of [`Snapshot::traces`].
    pub fn all(&self) -> &[Device<'a>] {
        &self.all
    }

    /// A device, if it is in the recording.
    pub fn get(&self, device: DeviceId) -> Option<&Device<'a>> {
        self.all.iter().find(|known| known.id() == device)
    }

    /// The selected devices; if none is named, all that have data, host memory last.
    ///
    /// # Errors
    /// If the recording does not have a named device.
    pub fn wanted(&self, devices: &[DeviceId]) -> Result<Vec<&Device<'a>>> {
        if devices.is_empty() {
            let (host, gpus): (Vec<_>, Vec<_>) = self.all.iter().partition(|device| device.id() <= HOST_DEVICE);
            return Ok([gpus, host].concat());
        }
        let find = |&device: &DeviceId| {
            self.get(device).ok_or_else(|| {
                let known: Vec<String> = self.all.iter().map(|device| device.id().to_string()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Error::Request(format!("expected one of the recorded devices ({known}), found {device}"))
            })
        };
        let distinct: IndexSet<&DeviceId> = devices.iter().collect();
        distinct.into_iter().map(find).collect()
    }
}

impl<'a> Device<'a> {
    /// Its number: -1 for pinned host memory, -2 for CPU memory.
    pub fn id(&self) -> DeviceId {
        self.track.device()
    }

    /// The recording.
    pub fn snapshot(&self) -> &'a Snapshot {
        self.track.snapshot
    }

    /// The history of its entries.
    pub fn history(&self) -> &'a History {
        self.track.history
    }

    /// The `record_function` ranges of the recording.
    pub fn annotations(&self) -> &Annotations {
        self.shared.annotations()
    }

    /// Labels of frames and stacks, with lines of the user's own code as sites. Analyses that compare recordings or steps
    /// always use these labels.
    pub fn sites(&self) -> &Sites<'a> {
        self.shared.sites()
    }

    /// The same for analyses of this recording alone, in which sites may be lines of a library: see
    /// [`crate::model::View::library_lines`].
    pub fn deep_sites(&self) -> &Sites<'a> {
        self.shared.deep_sites()
    }

    /// Lines of the user's own code that run a library's model, as labels in order: answers with
    /// [`crate::model::View::library_lines`] show the library's lines instead.
    pub(crate) fn library_below(&self) -> Vec<String> {
        self.shared.going_down().map(|sites| sites.library_below()).unwrap_or_default()
    }

    /// What each stack shows about its part of a training step.
    pub fn roles(&self) -> &Roles {
        self.shared.roles()
    }

    /// Which entries are forward, backward, optimizer and data.
    pub fn phases(&self) -> &Phases {
        self.own.phases.get_or_init(|| Phases::of(self.track, self.annotations(), self.roles()))
    }

    /// The steps of the program, or why there are none.
    ///
    /// # Errors
    /// If the recording does not show them.
    pub fn steps(&self) -> std::result::Result<&Steps, NoSteps> {
        let steps = || self.shared.step_rule().steps(self.track, self.sites(), self.roles(), self.phases());
        self.own.steps.get_or_init(steps).as_ref().map_err(|why| *why)
    }

    /// Resolves an instant that the user named.
    ///
    /// # Errors
    /// If the device's trace has no such entry, time, step, annotation or oom.
    pub fn instant(&self, when: &When, metric: Metric, purpose: Purpose) -> Result<Instant> {
        let step_ends = || match self.steps() {
            Ok(steps) if steps.are_steps() => Ok(steps.ends.clone()),
            _ => Err(Error::Request(format!(
                "{}: no steps found; to mark steps, run each one in torch.profiler.record_function(f\"step_{{n}}\")",
                device_words(self.id())
            ))),
        };
        when.resolve(self.track, self.annotations(), step_ends, (metric, purpose))
    }

    /// The category of each allocation.
    pub fn categories(&self) -> &Categories {
        self.own
            .categories
            .get_or_init(|| Categories::of(self.track, self.phases(), self.roles(), self.sites(), self.held()))
    }

    /// The allocations of a category with their indexes, in order. This reads only these, which is much faster than searching all
    /// allocations.
    pub(crate) fn allocations_of(&self, category: Category) -> impl Iterator<Item = (u32, &'a Allocation)> {
        let all = &self.history().allocations;
        self.categories().all_of(category).filter_map(|index| Some((index, all.get(index as usize)?)))
    }

    /// The allocations with wanted stacks, and their indexes, in order. This reads a column of stacks and only these allocations.
    pub(crate) fn allocations_by(
        &self,
        is_wanted: impl Fn(StackId) -> bool,
    ) -> impl Iterator<Item = (u32, &'a Allocation, StackId)> {
        let all = &self.history().allocations;
        let column = || self.track.allocations().map(|(.., stack)| stack).collect();
        let stacks = (0u32..).zip(self.own.stacks.get_or_init(column));
        stacks.filter(move |&(_, &stack)| is_wanted(stack)).map(|(index, &stack)| (index, &all[index as usize], stack))
    }

    /// What holds each allocation; `None` if the recording does not say.
    pub(crate) fn held(&self) -> Option<&Held<'a>> {
        self.own.held.get_or_init(|| Held::of(self.track)).as_ref()
    }

    /// Makes sure that the phases are computed, as [`prepare_categories`](Self::prepare_categories) does for what needs them.
    pub(crate) fn prepare_phases(&self) {
        if self.own.has_begun.load(Ordering::Relaxed) {
            while self.own.phases.get().is_none() && rayon::yield_now() == Some(rayon::Yield::Executed) {}
        }
        self.phases();
    }

    /// Makes sure that the categories are computed, before anything that asks for them. If another thread computes them, this
    /// one works on something else meanwhile, so the caller must hold no lock that such work may wait for.
    pub(crate) fn prepare_categories(&self) {
        if self.own.has_begun.swap(true, Ordering::Relaxed) {
            self.backward();
            while self.own.categories.get().is_none() && rayon::yield_now() == Some(rayon::Yield::Executed) {}
        }
        self.categories();
    }

    /// The forward lines of allocations by backward, each pass inferred when it is first requested.
    pub fn backward(&self) -> &BackwardSites {
        self.own.backward.get_or_init(|| BackwardSites::of(self.track, self.roles()))
    }
}

impl<'a> InCommon<'a> {
    fn annotations(&self) -> &Annotations {
        self.annotations.get_or_init(|| Annotations::of(self.snapshot))
    }

    fn sites(&self) -> &Sites<'a> {
        self.sites.get_or_init(|| Sites::new(self.snapshot))
    }

    fn deep_sites(&self) -> &Sites<'a> {
        let sites = self.sites();
        if !self.snapshot.view.library_lines || !sites.has_packages() {
            return sites;
        }
        self.deep_sites.get_or_init(|| self.going_down().unwrap_or_else(|| sites.clone()))
    }

    /// Sites with lines of a library below those that run its model; `None` if no stack has other packages.
    fn going_down(&self) -> Option<Sites<'a>> {
        let sites = self.sites();
        let tracks = self.histories.iter().map(|history| Track::new(self.snapshot, history));
        sites.has_packages().then(|| sites.clone().going_down(library_lines(sites, self.roles(), tracks)))
    }

    fn roles(&self) -> &Roles {
        self.roles.get_or_init(|| Roles::of(self.sites()))
    }

    fn step_rule(&self) -> &StepRule {
        self.step_rule.get_or_init(|| StepRule::of(self.snapshot, self.annotations()))
    }
}

/// The answer for each device, in order, and the errors of devices without one.
///
/// # Errors
/// The first one, if there is an error for every device.
pub(crate) fn ask_each<'a, D: Send>(
    devices: &[&Device<'a>],
    answer: impl Fn(&Device<'a>) -> Result<D> + Sync,
) -> Result<(Vec<D>, Vec<String>)> {
    let results: Vec<Result<D>> = parallel::map(devices, |device| answer(device));
    let (mut answers, mut skipped, mut first_error) = (Vec::new(), Vec::new(), None);
    for result in results {
        match result {
            Ok(answer) => answers.push(answer),
            Err(error) => {
                skipped.push(error.to_string());
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) if answers.is_empty() => Err(error),
        _ => Ok((answers, skipped)),
    }
}
