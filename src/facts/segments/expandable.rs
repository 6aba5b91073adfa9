//! Finds code in a program that conflicts with expandable segments.

use crate::facts::code::frames::installed_path;
use crate::facts::code::sites::Sites;
use crate::facts::grouping::private_pools::{PoolKind, PrivatePools};
use crate::model::Snapshot;
use crate::replay::Track;

/// Reasons why `expandable_segments:True` may fail in this program, as far as its recording shows, each as a part of a
/// sentence.
pub(crate) fn conflicts(track: Track<'_>, sites: &Sites<'_>) -> Vec<&'static str> {
    let snapshot = track.snapshot;
    let is_graph = |kind: PoolKind| matches!(kind, PoolKind::CapturedGraph | PoolKind::CudagraphTrees);
    let captures = PrivatePools::of(track, sites).all().iter().any(|pool| is_graph(pool.kind));
    let shares = shares_memory(snapshot)
        .then_some("this program shares memory between processes, which expandable segments may not support");
    let captures = captures.then_some(
        "this program captures CUDA graphs, whose pools might not use expandable segments before PyTorch 2.9",
    );
    shares.into_iter().chain(captures).collect()
}

/// Whether a program passes tensors to other processes, or reduces them in memory that it shares with other processes.
fn shares_memory(snapshot: &Snapshot) -> bool {
    snapshot.stacks.all_frames().any(|frame| {
        let path = installed_path(snapshot.strings.get(frame.filename)).unwrap_or("").replace('\\', "/");
        path.starts_with("torch/multiprocessing/")
            || path.ends_with("custom_all_reduce.py")
            || snapshot.strings.get(frame.name).contains("cudaIpc")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recording;
    use crate::model::Frame;

    /// The parts of the sentence for the first device of a recording.
    fn said(name: &str) -> Vec<&'static str> {
        let path = format!("fixtures/snapshots/{name}/snapshot.pickle.gz");
        let recording = Recording::open(path.as_ref(), &crate::input::ReadOptions::default()).unwrap();
        let devices = recording.devices();
        let device = &devices.all()[0];
        conflicts(device.track, device.sites())
    }

    #[test]
    fn memory_shared_between_processes_is_a_conflict() {
        let shares = |file: &str, name: &str| {
            let mut snapshot = Snapshot::default();
            let [filename, name] = [file, name].map(|text| snapshot.strings.intern(text));
            snapshot.stacks.intern_frame(Frame { filename, name, line: 7, fx: None });
            shares_memory(&snapshot)
        };
        let library = |rest: &str| format!("/opt/venv/lib/python3.11/site-packages/{rest}");
        assert!(shares(&library("torch/multiprocessing/reductions.py"), "rebuild_cuda_tensor"));
        let custom = "vllm/distributed/device_communicators/custom_all_reduce.py";
        assert!(shares(&library(custom), "create_shared_buffer"));
        assert!(shares("??", "cudaIpcOpenMemHandle"));
        // The user's own files may have such names.
        assert!(!shares("/home/user/torch/multiprocessing/train.py", "main"));
        assert!(!shares(&library("torch/nn/functional.py"), "relu"));
    }

    #[test]
    fn captured_graphs_are_a_conflict() {
        assert!(said("cuda_graph").iter().any(|part| part.contains("captures CUDA graphs")));
        assert!(said("gpt_train").is_empty());
    }
}
