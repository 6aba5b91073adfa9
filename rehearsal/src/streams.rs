//! The CUDA runtime: streams and events. Queued work completes immediately.

use crate::exports::{drop_handle, new_handle, put};
use crate::graphs::{Graph, begin_capture, capture_graph};
use crate::runtime::version;
use crate::state::{remember, status};
use std::ffi::c_void;
use std::time::Instant;

/// A stream created by the program.
pub struct Stream {
    priority: i32,
    /// Number of the active capture.
    pub capture: Option<u64>,
}

/// An event: the time when it was last recorded.
pub struct Event {
    at: Instant,
}

/// Returns a stream of the program; `None` for the default streams, whose handles are small numbers.
pub unsafe fn made<'a>(stream: *mut Stream) -> Option<&'a mut Stream> {
    // SAFETY: other handles come from `new_handle`, and PyTorch uses a stream from one thread at a time.
    (stream as usize > 16).then(|| unsafe { &mut *stream })
}

unsafe fn new_stream(to: *mut *mut Stream, priority: i32) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { put(to, new_handle(Stream { priority, capture: None })) };
    status::SUCCESS
}

unsafe fn new_event(to: *mut *mut Event) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { put(to, new_handle(Event { at: Instant::now() })) };
    status::SUCCESS
}

unsafe fn record(event: *mut Event) -> i32 {
    // SAFETY: null, or from `new_event`.
    match unsafe { event.as_mut() } {
        Some(event) => event.at = Instant::now(),
        None => return remember(status::INVALID),
    }
    status::SUCCESS
}

unsafe fn elapsed(milliseconds: *mut f32, from: *const Event, to: *const Event) -> i32 {
    // SAFETY: null, or from `new_event`.
    let (Some(from), Some(to)) = (unsafe { from.as_ref() }, unsafe { to.as_ref() }) else {
        return remember(status::INVALID);
    };
    // SAFETY: as the caller promises.
    unsafe { put(milliseconds, to.at.saturating_duration_since(from.at).as_secs_f32() * 1e3) };
    status::SUCCESS
}

/// Writes a capture's state, number and graph.
unsafe fn capture_info(stream: *mut Stream, state: *mut i32, number: *mut u64, graph: *mut *mut Graph) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let capture = made(stream).and_then(|stream| stream.capture);
        put(state, i32::from(capture.is_some()));
        put(number, capture.unwrap_or(0));
        put(graph, if capture.is_some() { capture_graph() } else { std::ptr::null_mut() });
        capture.is_some()
    }
}

exports! {
    fn cudaStreamCreate(to: *mut *mut Stream) -> i32 {
        new_stream(to, 0)
    }
    fn cudaStreamCreateWithFlags(to: *mut *mut Stream, _flags: u32) -> i32 {
        new_stream(to, 0)
    }
    fn cudaStreamCreateWithPriority(to: *mut *mut Stream, _flags: u32, priority: i32) -> i32 {
        new_stream(to, priority)
    }
    fn cudaStreamDestroy(stream: *mut Stream) -> i32 {
        if made(stream).is_some() {
            drop_handle(stream);
        }
        status::SUCCESS
    }
    fn cudaStreamGetPriority(stream: *mut Stream, priority: *mut i32) -> i32 {
        put(priority, made(stream).map_or(0, |stream| stream.priority));
        status::SUCCESS
    }
    fn cudaStreamQuery(_stream: *mut Stream) -> i32 {
        status::SUCCESS
    }
    fn cudaStreamIsCapturing(stream: *mut Stream, state: *mut i32) -> i32 {
        put(state, i32::from(made(stream).is_some_and(|stream| stream.capture.is_some())));
        status::SUCCESS
    }
    // CUDA 13 uses this name for the former `_v3`, which has more results.
    fn cudaStreamGetCaptureInfo(
        stream: *mut Stream, state: *mut i32, number: *mut u64, graph: *mut *mut Graph, nodes: *mut *const c_void,
        edges: *mut *const c_void, count: *mut usize,
    ) -> i32 {
        if version() < 13_000 {
            capture_info(stream, state, number, std::ptr::null_mut());
            return status::SUCCESS;
        }
        cudaStreamGetCaptureInfo_v3(stream, state, number, graph, nodes, edges, count)
    }
    fn cudaStreamGetCaptureInfo_v2(
        stream: *mut Stream, state: *mut i32, number: *mut u64, graph: *mut *mut Graph, nodes: *mut *const c_void,
        count: *mut usize,
    ) -> i32 {
        cudaStreamGetCaptureInfo_v3(stream, state, number, graph, nodes, std::ptr::null_mut(), count)
    }
    fn cudaStreamGetCaptureInfo_v3(
        stream: *mut Stream, state: *mut i32, number: *mut u64, graph: *mut *mut Graph, nodes: *mut *const c_void,
        edges: *mut *const c_void, count: *mut usize,
    ) -> i32 {
        capture_info(stream, state, number, graph);
        put(nodes, std::ptr::null());
        put(edges, std::ptr::null());
        put(count, 0);
        status::SUCCESS
    }
    fn cudaStreamBeginCapture(stream: *mut Stream, _mode: i32) -> i32 {
        let Some(stream) = made(stream) else { return remember(status::INVALID) };
        stream.capture = Some(begin_capture());
        status::SUCCESS
    }
    fn cudaStreamEndCapture(stream: *mut Stream, graph: *mut *mut Graph) -> i32 {
        if let Some(stream) = made(stream) {
            stream.capture = None;
        }
        put(graph, capture_graph());
        status::SUCCESS
    }
    fn cudaLaunchHostFunc(_stream: *mut Stream, function: extern "C" fn(*mut c_void), argument: *mut c_void) -> i32 {
        function(argument);
        status::SUCCESS
    }
    fn cudaStreamAddCallback(
        stream: *mut Stream, function: extern "C" fn(*mut Stream, i32, *mut c_void), argument: *mut c_void, _flags: u32,
    ) -> i32 {
        function(stream, status::SUCCESS, argument);
        status::SUCCESS
    }
    fn cudaEventCreate(to: *mut *mut Event) -> i32 {
        new_event(to)
    }
    fn cudaEventCreateWithFlags(to: *mut *mut Event, _flags: u32) -> i32 {
        new_event(to)
    }
    fn cudaEventDestroy(event: *mut Event) -> i32 {
        drop_handle(event);
        status::SUCCESS
    }
    fn cudaEventRecord(event: *mut Event, _stream: *mut Stream) -> i32 {
        record(event)
    }
    fn cudaEventRecordWithFlags(event: *mut Event, _stream: *mut Stream, _flags: u32) -> i32 {
        record(event)
    }
    fn cudaEventQuery(_event: *mut Event) -> i32 {
        status::SUCCESS
    }
    fn cudaEventElapsedTime(milliseconds: *mut f32, from: *const Event, to: *const Event) -> i32 {
        elapsed(milliseconds, from, to)
    }
    fn cudaEventElapsedTime_v2(milliseconds: *mut f32, from: *const Event, to: *const Event) -> i32 {
        elapsed(milliseconds, from, to)
    }
}
