//! Plans of the user's own cuDNN, which 9.8 and later make for a device that is only described.
//!
//! The description replaces the handle: with it, heuristics choose engines, and plans state their workspaces, without a
//! GPU. Only the documented functions of `libcudnn_graph.so.9` are called.
//!
//! # Unsafe code
//! Loading a library and calling its functions require it. The addresses come from `dlsym`, for names that cuDNN's
//! headers declare with these types. Descriptors and values are passed on as PyTorch passes them.

use crate::config::{Config, config};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A descriptor of cuDNN.
pub type Descriptor = *mut c_void;

/// Kinds of descriptors (`cudnnBackendDescriptorType_t`).
mod kind {
    pub const CONVOLUTION: i32 = 1;
    pub const ENGINE: i32 = 2;
    pub const CONFIGURATION: i32 = 3;
    pub const HEURISTICS: i32 = 4;
    pub const PLAN: i32 = 5;
    pub const KNOB_CHOICE: i32 = 7;
    pub const FORWARD: i32 = 10;
    pub const GRAPH: i32 = 15;
    pub const TENSOR: i32 = 17;
    pub const DEVICE: i32 = 38;
}

/// Attributes (`cudnnBackendAttributeName_t`).
mod attribute {
    pub const RESULTS: i32 = 202;
    pub const HEURISTICS_DEVICE: i32 = 204;
    pub const KNOB_CHOICES: i32 = 302;
    pub const CONFIGURATION: i32 = 401;
    pub const WORKSPACE: i32 = 402;
    pub const PLAN_DEVICE: i32 = 407;
    pub const KNOB: i32 = 600;
    pub const ENGINE_DEVICE: i32 = 1307;
    pub const DEVICE_TEXT: i32 = 2702;
    /// What heuristics, a configuration, a plan and an engine are made from.
    pub const MADE_FROM: [i32; 4] = [201, 300, CONFIGURATION, 1300];
}

/// Types of values (`cudnnBackendAttributeType_t`).
mod value {
    pub const HANDLE: i32 = 0;
    pub const DATA: i32 = 1;
    pub const INT64: i32 = 3;
    pub const FLOAT: i32 = 4;
    pub const CONVOLUTION_MODE: i32 = 7;
    pub const HEURISTICS_MODE: i32 = 8;
    pub const KNOB: i32 = 9;
    pub const DESCRIPTOR: i32 = 15;
    pub const CHARACTERS: i32 = 24;
}

/// The knob that only engines for clusters of blocks have (`CUDNN_KNOB_TYPE_TILE_CGA_M`).
const CLUSTER: i32 = 27;

/// Room for a list of descriptors: no engine has as many knobs.
const ROOM: usize = 64;

/// What an engine for clusters may add to its workspace, per multiprocessor: one tile of results. It adds tiles by the
/// number of blocks that the device runs at once, which cuDNN asks the device itself for.
const TILE: u64 = 64 << 10;

/// What such an engine may also leave out, with the rounding of an allocation.
const ROUNDING: u64 = 512;

/// How long the plans in the copy of the process may take, which is less than a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// The smallest and the largest workspace among the plans of a graph of operations. If there are several plans, PyTorch
/// has chosen by their times (`torch.backends.cudnn.benchmark`), which mean nothing here.
struct Workspaces {
    least: AtomicU64,
    most: AtomicU64,
}

/// A plan, or what it is made from.
#[derive(Clone)]
struct Known {
    kind: i32,
    /// Those of its graph.
    workspaces: Arc<Workspaces>,
    /// Of a plan: the configuration of its engine.
    configuration: usize,
    /// Of a plan: its workspace.
    workspace: u64,
    /// Of a plan: whether its engine is for clusters of blocks.
    is_for_clusters: bool,
}

/// By how many bytes a workspace may be smaller, or larger, than its plan says.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Range {
    pub smaller: u64,
    pub larger: u64,
}

/// The functions of cuDNN, and the described device.
pub struct Planner {
    create: unsafe extern "C" fn(i32, *mut Descriptor) -> i32,
    destroy: unsafe extern "C" fn(Descriptor) -> i32,
    finalize: unsafe extern "C" fn(Descriptor) -> i32,
    set: unsafe extern "C" fn(Descriptor, i32, i32, i64, *const c_void) -> i32,
    get: unsafe extern "C" fn(Descriptor, i32, i32, i64, *mut i64, *mut c_void) -> i32,
    /// A descriptor, as a number so that threads can share it.
    device: usize,
    multiprocessors: u64,
    known: Mutex<HashMap<usize, Known>>,
}

/// The user's cuDNN; `None` if there is none, or none that plans without a device.
pub fn planner() -> Option<&'static Planner> {
    static PLANNER: OnceLock<Option<Planner>> = OnceLock::new();
    let load = || {
        let config = config()?;
        let path = CString::new(config.planner.as_deref()?).ok()?;
        let found = works_elsewhere(config, &path).then(|| Planner::load(config, &path)).flatten();
        if found.is_none() {
            eprintln!(
                "memviz: rehearsal: {} plans nothing here, so its workspaces are unknown",
                path.to_string_lossy()
            );
        }
        found
    };
    PLANNER.get_or_init(load).as_ref()
}

/// Whether a plan can be made in a copy of this process: where cuDNN misses a function, it ends the process.
fn works_elsewhere(config: &Config, path: &CStr) -> bool {
    // SAFETY: the copy calls cuDNN and ends, without running anything else of this program. If another thread held a
    // lock that it needs, it waits until it is ended below.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return false;
    }
    if child == 0 {
        // SAFETY: what cuDNN says when it ends is not for the user; the descriptors are the copy's own.
        unsafe {
            let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
            libc::dup2(nothing, 1);
            libc::dup2(nothing, 2);
            let works = Planner::load(config, path).is_some_and(|planner| planner.plans_a_convolution());
            libc::_exit(i32::from(!works))
        }
    }
    let start = Instant::now();
    let mut code: c_int = 0;
    loop {
        // SAFETY: this process's own child, which nothing else waits for.
        match unsafe { libc::waitpid(child, &raw mut code, libc::WNOHANG) } {
            0 if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(2)),
            0 => {
                // SAFETY: as above.
                unsafe {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, &raw mut code, 0);
                }
                return false;
            }
            ended => return ended == child && code == 0,
        }
    }
}

/// Looks up a function of a library.
///
/// # Safety
/// The type is that of a pointer to the function with this name.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    // SAFETY: the library is loaded, and the type is a pointer, as the caller promises.
    unsafe {
        let at = libc::dlsym(library, name.as_ptr());
        (!at.is_null()).then(|| std::mem::transmute_copy(&at))
    }
}

impl Planner {
    fn load(config: &Config, path: &CStr) -> Option<Self> {
        // SAFETY: the fields have the types that cuDNN's headers declare for these names.
        let mut planner = unsafe {
            // Its own functions come before those of the same name here.
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND);
            if library.is_null() {
                return None;
            }
            Self {
                create: function(library, c"cudnnBackendCreateDescriptor")?,
                destroy: function(library, c"cudnnBackendDestroyDescriptor")?,
                finalize: function(library, c"cudnnBackendFinalize")?,
                set: function(library, c"cudnnBackendSetAttribute")?,
                get: function(library, c"cudnnBackendGetAttribute")?,
                device: 0,
                multiprocessors: config.multiprocessors as u64,
                known: Mutex::new(HashMap::new()),
            }
        };
        let text = description(config);
        planner.device = planner.made(kind::DEVICE, &[(attribute::DEVICE_TEXT, value::CHARACTERS, text.as_bytes())])?;
        Some(planner)
    }

    /// Makes a descriptor of the bytes of its attributes.
    fn made(&self, kind: i32, attributes: &[(i32, i32, &[u8])]) -> Option<usize> {
        let mut made = std::ptr::null_mut();
        // SAFETY: the descriptor is new, and each slice has as many values as its length says.
        unsafe {
            if (self.create)(kind, &raw mut made) != 0 {
                return None;
            }
            for &(name, kind, bytes) in attributes {
                let size = match kind {
                    value::CHARACTERS => 1,
                    value::INT64 | value::DESCRIPTOR => 8,
                    _ => 4,
                };
                if (self.set)(made, name, kind, (bytes.len() / size) as i64, bytes.as_ptr().cast()) != 0 {
                    return None;
                }
            }
            ((self.finalize)(made) == 0).then_some(made as usize)
        }
    }

    /// Plans a small convolution, as PyTorch does.
    fn plans_a_convolution(&self) -> bool {
        let longs = |values: &[i64]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
        let ints = |value: i32| value.to_ne_bytes();
        let tensor = |number: i64, sizes: &[i64; 4]| {
            let [_, channels, height, width] = *sizes;
            let strides = [channels * height * width, height * width, width, 1];
            self.made(
                kind::TENSOR,
                // Data type, sizes, strides, identifier, alignment.
                &[
                    (901, value::DATA, &ints(0)),
                    (902, value::INT64, &longs(sizes)),
                    (903, value::INT64, &longs(&strides)),
                    (906, value::INT64, &longs(&[number])),
                    (900, value::INT64, &longs(&[16])),
                ],
            )
        };
        let planned = || {
            let (x, w, y) = (tensor(1, &[8, 64, 32, 32])?, tensor(2, &[64, 64, 3, 3])?, tensor(3, &[8, 64, 32, 32])?);
            let ones = longs(&[1, 1]);
            let convolution = self.made(
                kind::CONVOLUTION,
                // Data type, mode, dilations, strides, paddings after and before, number of spatial dimensions.
                &[
                    (100, value::DATA, &ints(0)),
                    (101, value::CONVOLUTION_MODE, &ints(1)),
                    (102, value::INT64, &ones),
                    (103, value::INT64, &ones),
                    (104, value::INT64, &ones),
                    (105, value::INT64, &ones),
                    (106, value::INT64, &longs(&[2])),
                ],
            )?;
            let at = |descriptor: usize| descriptor.to_ne_bytes();
            let forward = self.made(
                kind::FORWARD,
                // Alpha, beta, convolution, weights, input, output.
                &[
                    (700, value::FLOAT, &1f32.to_ne_bytes()),
                    (701, value::FLOAT, &0f32.to_ne_bytes()),
                    (702, value::DESCRIPTOR, &at(convolution)),
                    (703, value::DESCRIPTOR, &at(w)),
                    (704, value::DESCRIPTOR, &at(x)),
                    (705, value::DESCRIPTOR, &at(y)),
                ],
            )?;
            let graph = self.made(kind::GRAPH, &[(801, value::DESCRIPTOR, &at(forward))])?;
            let heuristics = self.made(
                kind::HEURISTICS,
                &[
                    (201, value::DESCRIPTOR, &at(graph)),
                    (200, value::HEURISTICS_MODE, &ints(1)),
                    (attribute::HEURISTICS_DEVICE, value::DESCRIPTOR, &at(self.device)),
                ],
            )?;
            let plan = |configuration: Descriptor| {
                self.made(
                    kind::PLAN,
                    &[
                        (attribute::CONFIGURATION, value::DESCRIPTOR, &at(configuration as usize)),
                        (attribute::PLAN_DEVICE, value::DESCRIPTOR, &at(self.device)),
                    ],
                )
            };
            // Engines look up what they need when they are planned.
            let configurations = self.list(kind::CONFIGURATION, heuristics as Descriptor, attribute::RESULTS);
            Some(configurations.into_iter().filter_map(plan).count())
        };
        planned().is_some_and(|plans| plans > 0)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<usize, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    /// As `cudnnBackendCreateDescriptor`, and so on for the functions below.
    pub unsafe fn create(&self, kind: i32, to: *mut Descriptor) -> i32 {
        // SAFETY: as the caller promises.
        unsafe {
            let status = (self.create)(kind, to);
            if status == 0 {
                let workspaces = Arc::new(Workspaces { least: AtomicU64::new(u64::MAX), most: AtomicU64::new(0) });
                let known = Known { kind, workspaces, configuration: 0, workspace: 0, is_for_clusters: false };
                self.known().insert(*to as usize, known);
            }
            status
        }
    }

    pub unsafe fn destroy(&self, descriptor: Descriptor) -> i32 {
        self.known().remove(&(descriptor as usize));
        // SAFETY: as the caller promises.
        unsafe { (self.destroy)(descriptor) }
    }

    pub unsafe fn set(&self, to: Descriptor, name: i32, kind: i32, count: i64, values: *const c_void) -> i32 {
        // Handles are the stand-in's own, and the description of the device replaces them.
        if kind == value::HANDLE {
            return 0;
        }
        // SAFETY: as the caller promises; these attributes are one descriptor each.
        unsafe {
            if attribute::MADE_FROM.contains(&name) {
                self.inherit(*values.cast::<usize>(), &[to as usize]);
                if let (attribute::CONFIGURATION, Some(known)) = (name, self.known().get_mut(&(to as usize))) {
                    known.configuration = *values.cast::<usize>();
                }
            }
            (self.set)(to, name, kind, count, values)
        }
    }

    pub unsafe fn get(
        &self,
        of: Descriptor,
        name: i32,
        kind: i32,
        room: i64,
        count: *mut i64,
        values: *mut c_void,
    ) -> i32 {
        // SAFETY: as the caller promises; results are as many descriptors as the number says, up to the room for them.
        unsafe {
            let status = (self.get)(of, name, kind, room, count, values);
            if name == attribute::RESULTS && status == 0 && room > 0 && !count.is_null() {
                let found = usize::try_from((*count).min(room)).unwrap_or(0);
                self.inherit(of as usize, std::slice::from_raw_parts(values.cast(), found));
            }
            status
        }
    }

    /// Notes that descriptors are for the same graph of operations as another one.
    fn inherit(&self, from: usize, to: &[usize]) {
        let mut known = self.known();
        let Some(workspaces) = known.get(&from).map(|from| Arc::clone(&from.workspaces)) else { return };
        for descriptor in to {
            if let Some(known) = known.get_mut(descriptor) {
                known.workspaces = Arc::clone(&workspaces);
            }
        }
    }

    pub unsafe fn finalize(&self, descriptor: Descriptor) -> i32 {
        let known = self.known().get(&(descriptor as usize)).cloned();
        let name = match known.as_ref().map_or(0, |known| known.kind) {
            kind::ENGINE => attribute::ENGINE_DEVICE,
            kind::HEURISTICS => attribute::HEURISTICS_DEVICE,
            kind::PLAN => attribute::PLAN_DEVICE,
            // SAFETY: as the caller promises.
            _ => return unsafe { (self.finalize)(descriptor) },
        };
        // SAFETY: as the caller promises; the attribute is one descriptor.
        let status = unsafe {
            match (self.set)(descriptor, name, value::DESCRIPTOR, 1, (&raw const self.device).cast()) {
                0 => (self.finalize)(descriptor),
                status => status,
            }
        };
        if let (0, attribute::PLAN_DEVICE, Some(mut known)) = (status, name, known) {
            known.workspace = self.workspace(descriptor);
            known.is_for_clusters = self.has_knob(known.configuration, CLUSTER);
            known.workspaces.least.fetch_min(known.workspace, Ordering::Relaxed);
            known.workspaces.most.fetch_max(known.workspace, Ordering::Relaxed);
            self.known().insert(descriptor as usize, known);
        }
        status
    }

    fn workspace(&self, plan: Descriptor) -> u64 {
        let (mut bytes, mut count) = (0i64, 0i64);
        // SAFETY: the plan is complete, and this attribute is one number.
        unsafe { (self.get)(plan, attribute::WORKSPACE, value::INT64, 1, &raw mut count, (&raw mut bytes).cast()) };
        u64::try_from(bytes).unwrap_or(0)
    }

    /// The range of the workspace of a plan.
    pub fn range(&self, plan: Descriptor) -> Range {
        let known = self.known();
        let Some(known) = known.get(&(plan as usize)) else { return Range::default() };
        let (rounding, tiles) = if known.is_for_clusters { (ROUNDING, self.multiprocessors * TILE) } else { (0, 0) };
        Range {
            smaller: known.workspace.saturating_sub(known.workspaces.least.load(Ordering::Relaxed)) + rounding,
            larger: known.workspaces.most.load(Ordering::Relaxed).saturating_sub(known.workspace) + tiles,
        }
    }

    /// The first descriptors of a kind that an attribute of another descriptor lists, for the caller to destroy.
    fn list(&self, kind: i32, of: Descriptor, name: i32) -> Vec<Descriptor> {
        let (mut listed, mut count) = (vec![std::ptr::null_mut(); ROOM], 0);
        // SAFETY: `of` exists, and there is a new descriptor for as many as there is room for.
        unsafe {
            for descriptor in &mut listed {
                (self.create)(kind, descriptor);
            }
            (self.get)(of, name, value::DESCRIPTOR, ROOM as i64, &raw mut count, listed.as_mut_ptr().cast());
            for surplus in listed.drain(usize::try_from(count).unwrap_or(0).min(ROOM)..) {
                (self.destroy)(surplus);
            }
        }
        listed
    }

    fn has_knob(&self, configuration: usize, wanted: i32) -> bool {
        let choices = self.list(kind::KNOB_CHOICE, configuration as Descriptor, attribute::KNOB_CHOICES);
        // SAFETY: the descriptors are new, and one number is read from each.
        choices.into_iter().fold(false, |found, choice| unsafe {
            let (mut knob, mut count): (i32, i64) = (-1, 0);
            (self.get)(choice, attribute::KNOB, value::KNOB, 1, &raw mut count, (&raw mut knob).cast());
            (self.destroy)(choice);
            found || knob == wanted
        })
    }
}

/// The device in the format that cuDNN reads. What the list of GPUs does not have is the same for all that cuDNN plans
/// for, according to the table of compute capabilities in the CUDA programming guide, or concerns only times.
fn description(config: &Config) -> String {
    let reserved = if config.capability >= 80 { 1024 } else { 0 };
    format!(
        "{{\"deviceVer\":{},\"deviceName\":\"{}\",\"multiProcessorCount\":{},\"maxSharedMemoryPerBlockOptin\":{},\
         \"reservedSharedMemoryPerBlock\":{reserved},\"maxCtasPerSM\":{},\"maxThreadsPerSM\":{},\"totalGlobalMem\":{},\
         \"l2CacheSize\":{},\"memoryBusWidth\":{},\"driverVer\":{},\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\
         \"maxRegistersPerSM\":65536,\"regsPerBlock\":65536,\"maxThreadsPerBlock\":1024,\"maxBlockSize\":[1024,1024,64],\
         \"maxGridSize\":[2147483647,65535,65535],\"smClockRateKHz\":1500000,\"memClockRateKHz\":1500000,\
         \"supportCoopLaunch\":1,\"pciDeviceId\":0,\"isTccDriver\":0,\"cudaDeviceId\":0}}",
        config.capability * 10,
        config.name,
        config.multiprocessors,
        config.shared_per_block,
        config.blocks_per_multiprocessor,
        config.threads_per_multiprocessor,
        config.memory,
        config.cache,
        config.bus,
        config.cuda,
    )
}
