//! cuDNN: convolutions and attention through its graphs of operations, and batch norms.
//!
//! The user's own cuDNN plans the graphs ([`crate::plans`]). Without one that plans without a device, one engine handles
//! every graph, and requests no workspace. Operations whose workspaces are unknown are counted, so that a report can show
//! how many there were.

use crate::config::config;
use crate::exports::{drop_handle, new_handle, put};
use crate::plans::{Range, planner};
use crate::state::status;
use crate::stubs;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a handle or a descriptor points to.
type Opaque = [u64; 8];

/// Where a handle stores its stream.
const STREAM: usize = 0;

/// The attributes of descriptors that are read (`cudnnBackendAttributeName_t`).
mod attribute {
    pub const HEURISTIC_RESULTS: i32 = 202;
    pub const ENGINE: i32 = 300;
    pub const INTERMEDIATES: i32 = 301;
    pub const KNOB_CHOICES: i32 = 302;
    pub const ENGINE_WORKSPACE: i32 = 303;
    /// Has 4 bytes, unlike other sizes.
    pub const ENGINE_SHARED_MEMORY: i32 = 304;
    pub const PLAN_WORKSPACE: i32 = 402;
    pub const PLAN_INTERMEDIATES: i32 = 403;
    pub const ENGINES: i32 = 802;
    pub const ENGINE_NUMBER: i32 = 1301;
    /// Knobs, numerical notes, layouts and behavior notes of an engine.
    pub const ENGINE_NOTES: std::ops::RangeInclusive<i32> = 1302..=1305;
}

/// `CUDNN_STATUS_NOT_SUPPORTED`, in version 9 and later, and in earlier versions.
fn not_supported() -> i32 {
    if version() >= 90_000 { 3000 } else { 9 }
}

/// Number of operations whose workspaces are unknown.
static UNKNOWN: AtomicU64 = AtomicU64::new(0);
/// Number of operations with a plan of cuDNN.
static PLANNED: AtomicU64 = AtomicU64::new(0);
/// Number of these whose workspaces may be of another size than planned.
static UNCERTAIN: AtomicU64 = AtomicU64::new(0);
/// By how many bytes one workspace may be smaller.
static SMALLER: AtomicU64 = AtomicU64::new(0);
/// By how many bytes one workspace may be larger.
static LARGER: AtomicU64 = AtomicU64::new(0);

/// Operations so far: the number with unknown workspaces, with planned ones, and with planned ones that are uncertain;
/// and by how many bytes one of these may be smaller and larger.
pub fn counts() -> [u64; 5] {
    [&UNKNOWN, &PLANNED, &UNCERTAIN, &SMALLER, &LARGER].map(|count| count.load(Ordering::Relaxed))
}

fn version() -> usize {
    config().map_or(0, |config| config.cudnn)
}

fn operation() -> i32 {
    UNKNOWN.fetch_add(1, Ordering::Relaxed);
    status::SUCCESS
}

unsafe fn create(to: *mut *mut Opaque) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { put(to, new_handle([0; 8])) };
    status::SUCCESS
}

unsafe fn destroy(handle: *mut Opaque) -> i32 {
    // SAFETY: from `create`, as the caller promises.
    unsafe { drop_handle(handle) };
    status::SUCCESS
}

/// Descriptors that are created, filled in and destroyed.
macro_rules! descriptors {
    ($($create:ident $destroy:ident)*) => {
        exports! {$(
            fn $create(to: *mut *mut Opaque) -> i32 {
                create(to)
            }
            fn $destroy(handle: *mut Opaque) -> i32 {
                destroy(handle)
            }
        )*}
    };
}

descriptors! {
    cudnnCreate cudnnDestroy
    cudnnCreateActivationDescriptor cudnnDestroyActivationDescriptor
    cudnnCreateConvolutionDescriptor cudnnDestroyConvolutionDescriptor
    cudnnCreateDropoutDescriptor cudnnDestroyDropoutDescriptor
    cudnnCreateFilterDescriptor cudnnDestroyFilterDescriptor
    cudnnCreatePoolingDescriptor cudnnDestroyPoolingDescriptor
    cudnnCreateSpatialTransformerDescriptor cudnnDestroySpatialTransformerDescriptor
    cudnnCreateTensorDescriptor cudnnDestroyTensorDescriptor
}

exports! {
    fn cudnnGetVersion() -> usize {
        version()
    }
    fn cudnnGetCudartVersion() -> usize {
        crate::runtime::version() as usize
    }
    fn cudnnGetProperty(which: i32, to: *mut i32) -> i32 {
        let version = version();
        let thousand = if version >= 90_000 { 10_000 } else { 1000 };
        put(to, match which { 0 => version / thousand, 1 => version % thousand / 100, _ => version % 100 } as i32);
        status::SUCCESS
    }
    fn cudnnGetErrorString(_error: i32) -> *const c_char {
        c"not supported by memviz's rehearsal".as_ptr()
    }
    fn cudnnGetLastErrorString(to: *mut c_char, room: usize) {
        if !to.is_null() && room > 0 {
            to.write(0);
        }
    }
    fn cudnnSetStream(handle: *mut Opaque, stream: u64) -> i32 {
        if let Some(handle) = handle.as_mut() {
            handle[STREAM] = stream;
        }
        status::SUCCESS
    }
    fn cudnnGetStream(handle: *mut Opaque, to: *mut u64) -> i32 {
        put(to, handle.as_ref().map_or(0, |handle| handle[STREAM]));
        status::SUCCESS
    }
    fn cudnnBackendCreateDescriptor(kind: i32, to: *mut *mut Opaque) -> i32 {
        planner().map_or_else(|| create(to), |planner| planner.create(kind, to.cast()))
    }
    fn cudnnBackendDestroyDescriptor(descriptor: *mut Opaque) -> i32 {
        planner().map_or_else(|| destroy(descriptor), |planner| planner.destroy(descriptor.cast()))
    }
    fn cudnnBackendSetAttribute(
        descriptor: *mut Opaque, name: i32, kind: i32, count: i64, values: *const c_void,
    ) -> i32 {
        planner().map_or(status::SUCCESS, |planner| planner.set(descriptor.cast(), name, kind, count, values))
    }
    fn cudnnBackendFinalize(descriptor: *mut Opaque) -> i32 {
        planner().map_or(status::SUCCESS, |planner| planner.finalize(descriptor.cast()))
    }
    fn cudnnBackendGetAttribute(
        descriptor: *mut Opaque, name: i32, kind: i32, room: i64, count: *mut i64, values: *mut c_void,
    ) -> i32 {
        if let Some(planner) = planner() {
            return planner.get(descriptor.cast(), name, kind, room, count, values);
        }
        match name {
            // The caller has created descriptors for the results. Ours are empty, so there is nothing to fill in.
            attribute::HEURISTIC_RESULTS | attribute::ENGINE => put(count, 1),
            attribute::ENGINES | attribute::ENGINE_WORKSPACE | attribute::PLAN_WORKSPACE | attribute::ENGINE_NUMBER => {
                put(count, 1);
                if room > 0 {
                    put(values.cast::<i64>(), i64::from(name == attribute::ENGINES));
                }
            }
            attribute::ENGINE_SHARED_MEMORY => {
                put(count, 1);
                if room > 0 {
                    put(values.cast::<i32>(), 0);
                }
            }
            attribute::INTERMEDIATES | attribute::KNOB_CHOICES | attribute::PLAN_INTERMEDIATES => put(count, 0),
            name if attribute::ENGINE_NOTES.contains(&name) => put(count, 0),
            _ => {
                stubs::refused(c"cudnnBackendGetAttribute");
                return not_supported();
            }
        }
        status::SUCCESS
    }
    fn cudnnBackendExecute(_handle: *mut Opaque, plan: *mut Opaque, _values: *mut Opaque) -> i32 {
        let Some(planner) = planner() else { return operation() };
        PLANNED.fetch_add(1, Ordering::Relaxed);
        let range = planner.range(plan.cast());
        UNCERTAIN.fetch_add(u64::from(range != Range::default()), Ordering::Relaxed);
        SMALLER.fetch_max(range.smaller, Ordering::Relaxed);
        LARGER.fetch_max(range.larger, Ordering::Relaxed);
        status::SUCCESS
    }
    fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        _handle: *mut Opaque, _mode: i32, _operation: i32, _x: *mut Opaque, _z: *mut Opaque, _y: *mut Opaque, _scale: *mut Opaque,
        _activation: *mut Opaque, size: *mut usize,
    ) -> i32 {
        put(size, 0);
        operation()
    }
    fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        _handle: *mut Opaque, _mode: i32, _operation: i32, _x: *mut Opaque, _y: *mut Opaque, _dy: *mut Opaque, _dz: *mut Opaque,
        _dx: *mut Opaque, _scale: *mut Opaque, _activation: *mut Opaque, size: *mut usize,
    ) -> i32 {
        put(size, 0);
        operation()
    }
    fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
        _handle: *mut Opaque, _mode: i32, _operation: i32, _activation: *mut Opaque, _x: *mut Opaque, size: *mut usize,
    ) -> i32 {
        put(size, 0);
        operation()
    }
}
