//! Complete outputs, compared with the files in `tests/golden`.
//!
//! `MEMVIZ_BLESS=1 cargo test --test golden` rewrites the files; read the diff before committing it.
#![cfg(feature = "cli")]

mod support;

use memviz::Recording;
use memviz::analysis::advice::{Simulate, advice};
use memviz::analysis::blocks::BlocksOptions;
use memviz::analysis::check::{Budgets, CheckOptions};
use memviz::analysis::checkpoint::CheckpointOptions;
use memviz::analysis::diff::DiffReport;
use memviz::analysis::fragmentation::FragmentationOptions;
use memviz::analysis::leaks::LeakOptions;
use memviz::analysis::oom::OomOptions;
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::peak::each::EachOptions;
use memviz::analysis::triage::TriageOptions;
use memviz::facts::grouping::GroupBy;
use memviz::facts::time::when::When;
use memviz::input::ReadOptions;
use memviz::model::{Action, View};
use memviz::report::check::words::CheckedInput;
use memviz::report::{Answer, InputHead, Source, Sources, TextStyle};
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use support::difference::difference;
use support::{BLESS, fixture, is_blessing, names};
use unicode_width::UnicodeWidthStr;

const GOLDEN: &str = "tests/golden";
/// A profiler trace.
const TRACE: &str = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";
/// What others are compared with.
const GPT_TRAIN: &str = "fixtures/snapshots/gpt_train/snapshot.pickle.gz";
/// One program at two batch sizes.
const BATCH_4: &str = "fixtures/fit/minigpt_batch4/snapshot.pickle.gz";
const GENERATION: &str = "fixtures/generation/snapshot.pickle.gz";
const BATCH_8: &str = "fixtures/fit/minigpt_batch8/snapshot.pickle.gz";
static BASE: LazyLock<Recording> = LazyLock::new(|| support::open(GPT_TRAIN));
/// Rows that people get.
const TOP: usize = 20;

/// Golden file, recording, arguments. The recording is a fixture's name, or a path. Text shows every case; Markdown and CSV, which
/// renderers make of the same document and rows, once for each kind of answer.
const ANSWERS: &[(&str, &str, &[&str])] = &[
    ("tiny.peak.txt", "tiny", &["peak"]),
    ("tiny.peak.json", "tiny", &["peak", "--format", "json"]),
    ("tiny.info.txt", "tiny", &["info"]),
    ("tiny.info.json", "tiny", &["info", "--format", "json"]),
    ("tiny.info.csv", "tiny", &["info", "--format", "csv"]),
    ("oom.triage.txt", "oom", &["triage"]),
    ("oom.triage.color.txt", "oom", &["triage", "--color", "always"]),
    ("oom.triage.json", "oom", &["triage", "--format", "json"]),
    ("gpt_train.triage.txt", "gpt_train", &["triage"]),
    ("leak.triage.txt", "leak", &["triage"]),
    ("fragmented.triage.txt", "fragmented", &["triage"]),
    ("multi_gpu.triage.txt", "multi_gpu", &["triage"]),
    ("state_only.triage.txt", "state_only", &["triage"]),
    ("gpt_late_t201.triage.txt", "gpt_late_t201", &["triage"]),
    ("trace.triage.txt", TRACE, &["triage"]),
    ("leak.triage.csv", "leak", &["triage", "--format", "csv"]),
    ("leak.triage.md", "leak", &["triage", "--format", "markdown"]),
    ("tiny.peak.color.txt", "tiny", &["peak", "--color", "always"]),
    ("gpt_train.site.txt", "gpt_train", &["peak", "--by", "site"]),
    ("gpt_train.site.json", "gpt_train", &["peak", "--by", "site", "--format", "json"]),
    ("gpt_train.function.txt", "gpt_train", &["peak", "--by", "function"]),
    ("gpt_train.stack.txt", "gpt_train", &["peak", "--by", "stack", "--top", "3"]),
    ("gpt_train.stack.md", "gpt_train", &["peak", "--by", "stack", "--top", "8", "--format", "markdown"]),
    ("gpt_train.reserved.txt", "gpt_train", &["peak", "--metric", "reserved"]),
    ("gpt_train.end.txt", "gpt_train", &["peak", "--at", "end"]),
    ("gpt_train.window.txt", "gpt_train", &["peak", "--from", "annotation:step_3", "--top", "5"]),
    ("gpt_train.filtered.txt", "gpt_train", &["peak", "--exclude", "minigpt"]),
    ("gpt_train.info.txt", "gpt_train", &["info"]),
    ("gpt_train.info.json", "gpt_train", &["info", "--format", "json"]),
    ("multi_gpu.peak.txt", "multi_gpu", &["peak"]),
    ("multi_gpu.peak.json", "multi_gpu", &["peak", "--top", "3", "--format", "json"]),
    ("multi_gpu.peak.csv", "multi_gpu", &["peak", "--top", "5", "--format", "csv"]),
    ("multi_gpu.peak.md", "multi_gpu", &["peak", "--top", "5", "--format", "markdown"]),
    ("multi_gpu.stream.txt", "multi_gpu", &["peak", "--by", "stream"]),
    ("multi_gpu.info.txt", "multi_gpu", &["info"]),
    ("multi_gpu.info.json", "multi_gpu", &["info", "--format", "json"]),
    ("multi_gpu.info.md", "multi_gpu", &["info", "--format", "markdown"]),
    ("oom.peak.txt", "oom", &["peak"]),
    ("oom.at_oom.txt", "oom", &["peak", "--at", "oom", "--top", "5"]),
    ("oom.info.txt", "oom", &["info"]),
    ("oom.info.json", "oom", &["info", "--format", "json"]),
    ("state_only.peak.txt", "state_only", &["peak"]),
    ("state_only.peak.json", "state_only", &["peak", "--format", "json"]),
    ("state_only.info.txt", "state_only", &["info"]),
    ("state_only.info.json", "state_only", &["info", "--format", "json"]),
    ("compiled_fx.peak.txt", "compiled_fx", &["peak"]),
    ("compiled_fx.peak.json", "compiled_fx", &["peak", "--top", "2", "--format", "json"]),
    ("compiled_fx.augmented.txt", "fixtures/snapshots/compiled_fx/snapshot_fx.pickle.gz", &["peak"]),
    ("compiled_fx.info.txt", "compiled_fx", &["info"]),
    ("llama_hf_all.peak.txt", "llama_hf_all", &["peak"]),
    ("llama_hf_all.stack.txt", "llama_hf_all", &["peak", "--by", "stack", "--top", "3"]),
    ("llama_hf_all.own.txt", "llama_hf_all", &["peak", "--own", "modeling_llama"]),
    ("gpt_train.module_path.txt", "gpt_train", &["peak", "--by", "module-path"]),
    ("trace.module_path.txt", TRACE, &["peak", "--by", "module-path"]),
    ("no_history_t201.peak.txt", "no_history_t201", &["peak"]),
    ("llama_hf_all.peak.json", "llama_hf_all", &["peak", "--top", "4", "--format", "json"]),
    ("llama_hf_all.function.txt", "llama_hf_all", &["peak", "--by", "function"]),
    ("llama_hf_all.module.txt", "llama_hf_all", &["peak", "--by", "module"]),
    ("llama_hf_all.info.txt", "llama_hf_all", &["info"]),
    ("retained_graph_mdn.leaks.txt", "fixtures/stories/retained_graph_mdn_flawed/snapshot.pickle.gz", &["leaks"]),
    ("eval_without_no_grad_gpt2.fix.txt", EVALUATION, &["fix", "--source", EVALUATION_CODE]),
    ("eval_without_no_grad_gpt2.fix.json", EVALUATION, &["fix", "--source", EVALUATION_CODE, "--format", "json"]),
    ("eval_without_no_grad_gpt2.fix.md", EVALUATION, &["fix", "--source", EVALUATION_CODE, "--format", "markdown"]),
    ("kept_outputs_dict.fix.txt", KEPT_OUTPUTS, &["fix", "--source", KEPT_OUTPUTS_CODE]),
    ("kept_outputs_dict.fix.csv", KEPT_OUTPUTS, &["fix", "--source", KEPT_OUTPUTS_CODE, "--format", "csv"]),
    ("llama_hf_all_t215.peak.txt", "llama_hf_all_t215", &["peak"]),
    ("pinned_t215.peak.txt", "pinned_t215", &["peak"]),
    ("pinned_t215.peak.json", "pinned_t215", &["peak", "--format", "json"]),
    ("pinned_t215.info.txt", "pinned_t215", &["info"]),
    ("pinned_t215.info.json", "pinned_t215", &["info", "--format", "json"]),
    ("gpt_train.blocks.txt", "gpt_train", &["blocks", "--top", "5"]),
    ("gpt_train.blocks.md", "gpt_train", &["blocks", "--top", "5", "--format", "markdown"]),
    ("gpt_train.blocks.csv", "gpt_train", &["blocks", "--top", "5", "--format", "csv"]),
    ("gpt_train.blocks.json", "gpt_train", &["blocks", "--top", "1", "--format", "json"]),
    ("gpt_train.block.txt", "gpt_train", &["blocks", "--id", "200"]),
    ("oom.ranks.txt", "oom", &["ranks", "--earlier", "fixtures/snapshots/oom_t201/snapshot.pickle.gz"]),
    ("oom.ranks.prom", "oom", &["ranks", "--format", "prometheus"]),
    ("oom.check.prom", "oom", &["check", "--max-peak", "8GiB", "--format", "prometheus"]),
    ("ledger.ledger.txt", "fixtures/ledger/snapshot.pickle.gz", &["ledger"]),
    ("ledger.ledger.json", "fixtures/ledger/snapshot.pickle.gz", &["ledger", "--format", "json"]),
    ("ledger.ledger.csv", "fixtures/ledger/snapshot.pickle.gz", &["ledger", "--format", "csv"]),
    ("ledger.ledger.md", "fixtures/ledger/snapshot.pickle.gz", &["ledger", "--format", "markdown"]),
    ("oom.ledger.txt", "oom", &["ledger", "--capacity", "8GiB"]),
    ("training.nsys.txt", "fixtures/nsys/training.sqlite", &["nsys"]),
    ("training.nsys.json", "fixtures/nsys/training.sqlite", &["nsys", "--device", "0", "--format", "json"]),
    ("training.nsys.csv", "fixtures/nsys/training.sqlite", &["nsys", "--format", "csv"]),
    ("training.nsys.md", "fixtures/nsys/training.sqlite", &["nsys", "--format", "markdown"]),
    ("annotated.annotation.txt", "annotated", &["peak", "--by", "annotation"]),
    ("annotated.annotation.json", "annotated", &["peak", "--by", "annotation", "--format", "json"]),
    ("annotated.info.txt", "annotated", &["info"]),
    ("annotated.info.json", "annotated", &["info", "--format", "json"]),
    ("private_pool.pool.txt", "private_pool", &["peak", "--by", "pool"]),
    ("pools_t215.pool.txt", "pools_t215", &["peak", "--by", "pool"]),
    ("pools_t215.pool.json", "pools_t215", &["peak", "--by", "pool", "--format", "json"]),
    ("pools_t215.metadata.txt", "pools_t215", &["peak", "--by", "metadata"]),
    ("pools_t215.owner.txt", "pools_t215", &["peak", "--by", "metadata:owner"]),
    ("empty.peak.txt", "empty", &["peak"]),
    ("empty.peak.json", "empty", &["peak", "--format", "json"]),
    ("empty.info.txt", "empty", &["info"]),
    ("no_history.peak.txt", "no_history", &["peak"]),
    ("ring.peak.txt", "ring", &["peak", "--top", "5"]),
    ("ring.peak.json", "ring", &["peak", "--top", "1", "--format", "json"]),
    ("gpt_late_t201.peak.txt", "gpt_late_t201", &["peak", "--top", "5"]),
    ("skip_actions.peak.txt", "skip_actions", &["peak", "--top", "5"]),
    ("conf_roundup.info.txt", "conf_roundup", &["info"]),
    ("expandable.info.txt", "expandable", &["info"]),
    ("contradicting.peak.txt", "fixtures/malformed/free-of-unknown-address.pickle", &["peak"]),
    ("contradicting.peak.json", "fixtures/malformed/free-of-unknown-address.pickle", &["peak", "--format", "json"]),
    ("contradicting.info.json", "fixtures/malformed/free-of-unknown-address.pickle", &["info", "--format", "json"]),
    ("lookalike.one_all.info.txt", "fixtures/lookalike/one_all.pickle.gz", &["info"]),
    ("lookalike.one_all.category.txt", "fixtures/lookalike/one_all.pickle.gz", &["peak", "--by", "category"]),
    ("lookalike.one_all.leaks.txt", "fixtures/lookalike/one_all.pickle.gz", &["leaks"]),
    ("lookalike.one_all.checkpoint.txt", "fixtures/lookalike/one_all.pickle.gz", &["checkpoint"]),
    ("lookalike.one_rebind.info.txt", "fixtures/lookalike/one_rebind.pickle.gz", &["info"]),
    ("lookalike.one_rebind.category.txt", "fixtures/lookalike/one_rebind.pickle.gz", &["peak", "--by", "category"]),
    ("lookalike.one_rebind.leaks.txt", "fixtures/lookalike/one_rebind.pickle.gz", &["leaks"]),
    ("lookalike.one_rebind.checkpoint.txt", "fixtures/lookalike/one_rebind.pickle.gz", &["checkpoint"]),
    ("lookalike.fwd.info.txt", "fixtures/lookalike/fwd.pickle.gz", &["info"]),
    ("lookalike.fwd.category.txt", "fixtures/lookalike/fwd.pickle.gz", &["peak", "--by", "category"]),
    ("lookalike.fwd.leaks.txt", "fixtures/lookalike/fwd.pickle.gz", &["leaks"]),
    ("lookalike.fwd.checkpoint.txt", "fixtures/lookalike/fwd.pickle.gz", &["checkpoint"]),
    ("lookalike.infer.info.txt", "fixtures/lookalike/infer.pickle.gz", &["info"]),
    ("lookalike.infer.category.txt", "fixtures/lookalike/infer.pickle.gz", &["peak", "--by", "category"]),
    ("lookalike.infer.leaks.txt", "fixtures/lookalike/infer.pickle.gz", &["leaks"]),
    ("lookalike.infer.checkpoint.txt", "fixtures/lookalike/infer.pickle.gz", &["checkpoint"]),
    ("leak.leaks.txt", "leak", &["leaks", "--capacity", "80GiB"]),
    ("leak.leaks.all.txt", "leak", &["leaks", "--all"]),
    ("leak.leaks.json", "leak", &["leaks", "--capacity", "80GiB", "--top", "2", "--format", "json"]),
    ("leak.leaks.csv", "leak", &["leaks", "--format", "csv"]),
    ("leak.leaks.md", "leak", &["leaks", "--capacity", "80GiB", "--format", "markdown"]),
    ("leak_slow.leaks.txt", "leak_slow", &["leaks"]),
    ("leak_slow.leaks.color.txt", "leak_slow", &["leaks", "--color", "always"]),
    ("leak_slow.stack.txt", "leak_slow", &["leaks", "--by", "stack", "--top", "3"]),
    ("leak_t201.leaks.txt", "leak_t201", &["leaks", "--by", "file"]),
    ("gpt_train.leaks.txt", "gpt_train", &["leaks"]),
    ("fragmented.leaks.txt", "fragmented", &["leaks"]),
    ("fragmented.leaks.json", "fragmented", &["leaks", "--top", "1", "--format", "json"]),
    ("multi_gpu.leaks.txt", "multi_gpu", &["leaks"]),
    ("multi_gpu.leaks.json", "multi_gpu", &["leaks", "--format", "json"]),
    ("ring.leaks.txt", "ring", &["leaks"]),
    ("no_history.leaks.txt", "no_history", &["leaks"]),
    ("no_history.leaks.json", "no_history", &["leaks", "--format", "json"]),
    ("random_sizes.leaks.txt", "random_sizes", &["leaks"]),
    ("empty.leaks.txt", "empty", &["leaks"]),
    ("empty.leaks.json", "empty", &["leaks", "--format", "json"]),
    ("minigpt.fit.txt", BATCH_8, &["fit", BATCH_4]),
    ("minigpt.fit.at.txt", BATCH_8, &["fit", BATCH_4, "--vary", "batch=4,8", "--at", "batch=16", "--top", "4"]),
    ("minigpt.fit.csv", BATCH_8, &["fit", BATCH_4, "--capacity", "4GiB", "--format", "csv"]),
    ("minigpt.fit.md", BATCH_8, &["fit", BATCH_4, "--capacity", "4GiB", "--top", "4", "--format", "markdown"]),
    ("minigpt.fit.json", BATCH_8, &["fit", BATCH_4, "--capacity", "4GiB", "--top", "2", "--format", "json"]),
    ("minigpt.fit.svg", BATCH_8, &["fit", BATCH_4, "--capacity", "4GiB", "--format", "svg"]),
    ("minigpt.plan.txt", BATCH_8, &["fit", "--capacity", "900MiB"]),
    ("minigpt.plan.md", BATCH_8, &["fit", "--capacity", "900MiB", "--format", "markdown"]),
    ("minigpt.plan.json", BATCH_8, &["fit", "--capacity", "900MiB", "--format", "json"]),
    ("minigpt.plan.nothing.txt", BATCH_8, &["fit", "--capacity", "520MiB"]),
    ("oom.plan.txt", "oom", &["fit"]),
    ("tiny.fit.txt", "tiny", &["fit", "--capacity", "8GiB"]),
    ("generation.fit.txt", GENERATION, &["fit", "--capacity", "1000MiB", "--context", "450MiB"]),
    ("generation.fit.json", GENERATION, &["fit", "--capacity", "1000MiB", "--context", "450MiB", "--format", "json"]),
    ("gpt_train.checkpoint.fit.txt", "gpt_train", &["checkpoint", "--fit", "3GiB"]),
    ("gpt_train.fit.txt", "gpt_train", &["fit", BATCH_4, "--vary", "batch=4,8"]),
    ("gpt_train_ckpt.diff.txt", "gpt_train_ckpt", &["diff", GPT_TRAIN]),
    ("gpt_train_ckpt.diff.json", "gpt_train_ckpt", &["diff", GPT_TRAIN, "--top", "2", "--format", "json"]),
    ("gpt_train_ckpt.diff.csv", "gpt_train_ckpt", &["diff", GPT_TRAIN, "--format", "csv"]),
    ("gpt_train_ckpt.diff.md", "gpt_train_ckpt", &["diff", GPT_TRAIN, "--format", "markdown"]),
    ("gpt_train_ckpt.diff.function.txt", "gpt_train_ckpt", &["diff", GPT_TRAIN, "--by", "function", "--top", "5"]),
    ("tiny.diff.svg", "tiny", &["diff", GPT_TRAIN, "--format", "svg", "--align", "entry"]),
    ("multi_gpu.diff.txt", "multi_gpu", &["diff", GPT_TRAIN, "--by", "stack", "--top", "1"]),
    ("no_history.diff.txt", "no_history", &["diff", GPT_TRAIN, "--top", "3"]),
    ("empty.diff.txt", "empty", &["diff", GPT_TRAIN]),
    ("trace.diff.txt", TRACE, &["diff", GPT_TRAIN, "--top", "5"]),
    ("gpt_train.checkpoint.txt", "gpt_train", &["checkpoint"]),
    ("gpt_train.checkpoint.json", "gpt_train", &["checkpoint", "--top", "1", "--format", "json"]),
    ("gpt_train.checkpoint.csv", "gpt_train", &["checkpoint", "--format", "csv"]),
    ("gpt_train.checkpoint.md", "gpt_train", &["checkpoint", "--format", "markdown"]),
    ("gpt_train.checkpoint.color.txt", "gpt_train", &["checkpoint", "--top", "2", "--color", "always"]),
    ("gpt_train_t201.checkpoint.txt", "gpt_train_t201", &["checkpoint", "--top", "1"]),
    ("gpt_train_ckpt.checkpoint.txt", "gpt_train_ckpt", &["checkpoint"]),
    ("gpt_train_ckpt.checkpoint.json", "gpt_train_ckpt", &["checkpoint", "--format", "json"]),
    ("gpt_train_ckpt_every2.checkpoint.txt", "gpt_train_ckpt_every2", &["checkpoint"]),
    ("multi_gpu.checkpoint.txt", "multi_gpu", &["checkpoint"]),
    ("multi_gpu.checkpoint.svg", "multi_gpu", &["checkpoint", "--format", "svg"]),
    ("ring.checkpoint.txt", "ring", &["checkpoint", "--top", "1"]),
    ("resnet_train.checkpoint.txt", "resnet_train", &["checkpoint", "--top", "3"]),
    ("llama_hf_all.checkpoint.txt", "llama_hf_all", &["checkpoint", "--top", "3"]),
    ("oom.checkpoint.txt", "oom", &["checkpoint"]),
    ("oom.checkpoint.json", "oom", &["checkpoint", "--format", "json"]),
    ("oom.checkpoint.svg", "oom", &["checkpoint", "--format", "svg"]),
    ("no_history.checkpoint.txt", "no_history", &["checkpoint"]),
    ("tiny.checkpoint.txt", "tiny", &["checkpoint"]),
    ("empty.checkpoint.txt", "empty", &["checkpoint"]),
    ("trace.checkpoint.txt", TRACE, &["checkpoint", "--device", "0"]),
    ("unknown_keys.info.txt", "fixtures/malformed/unknown-keys.pickle", &["info"]),
    ("gpt_train.steps.txt", "gpt_train", &["peak", "--each", "step"]),
    ("gpt_train.steps.json", "gpt_train", &["peak", "--each", "step", "--top", "2", "--format", "json"]),
    ("gpt_train.steps.csv", "gpt_train", &["peak", "--each", "step", "--format", "csv"]),
    ("gpt_train.steps.md", "gpt_train", &["peak", "--each", "step", "--top", "3", "--format", "markdown"]),
    ("gpt_train.phases.txt", "gpt_train", &["peak", "--each", "phase"]),
    ("gpt_train.ranges.txt", "gpt_train", &["peak", "--each", "annotation", "--by", "category", "--top", "3"]),
    ("leak_slow.steps.txt", "leak_slow", &["peak", "--each", "step", "--metric", "reserved"]),
    ("resnet_train.phases.txt", "resnet_train", &["peak", "--each", "phase", "--by", "file"]),
    ("multi_gpu.ranges.txt", "multi_gpu", &["peak", "--each", "annotation:step_1$"]),
    ("tiny.fragmentation.txt", "tiny", &["fragmentation", "--at", "end"]),
    ("tiny.fragmentation.json", "tiny", &["fragmentation", "--at", "end", "--format", "json"]),
    ("tiny.fragmentation.csv", "tiny", &["fragmentation", "--at", "end", "--format", "csv"]),
    ("tiny.fragmentation.md", "tiny", &["fragmentation", "--at", "end", "--format", "markdown"]),
    ("fragmented.fragmentation.txt", "fragmented", &["fragmentation", "--at", "oom"]),
    ("fragmented.fragmentation.all.txt", "fragmented", &["fragmentation", "--all"]),
    ("fragmented.stack.txt", "fragmented", &["fragmentation", "--at", "oom", "--by", "stack", "--top", "2"]),
    ("fragmented.over_time.txt", "fragmented", &["fragmentation", "--over-time", "--all"]),
    ("fragmented.over_time.csv", "fragmented", &["fragmentation", "--over-time", "--points", "5", "--format", "csv"]),
    (
        "fragmented.over_time.md",
        "fragmented",
        &["fragmentation", "--over-time", "--points", "5", "--format", "markdown"],
    ),
    ("tiny.over_time.json", "tiny", &["fragmentation", "--over-time", "--points", "2", "--format", "json"]),
    ("expandable_live.fragmentation.txt", "expandable_live", &["fragmentation", "--top", "5"]),
    ("private_pool.fragmentation.txt", "private_pool", &["fragmentation", "--at", "end"]),
    ("pools_t215.fragmentation.txt", "pools_t215", &["fragmentation"]),
    ("multi_gpu.fragmentation.txt", "multi_gpu", &["fragmentation", "--top", "5"]),
    ("side_stream.fragmentation.txt", "side_stream", &["fragmentation", "--by", "stream"]),
    ("no_history.fragmentation.txt", "no_history", &["fragmentation"]),
    ("pinned_t215.fragmentation.txt", "pinned_t215", &["fragmentation"]),
    ("empty.fragmentation.txt", "empty", &["fragmentation"]),
    (
        "contradicting.fragmentation.txt",
        "fixtures/malformed/overlapping-alloc.pickle",
        &["fragmentation", "--at", "entry:9"],
    ),
    ("fragmented.oom.txt", "fragmented", &["oom"]),
    ("fragmented.oom.all.txt", "fragmented", &["oom", "--all"]),
    ("fragmented.oom.json", "fragmented", &["oom", "--top", "2", "--format", "json"]),
    ("fragmented.oom.csv", "fragmented", &["oom", "--format", "csv"]),
    ("fragmented.oom.md", "fragmented", &["oom", "--top", "5", "--format", "markdown"]),
    ("oom.oom.txt", "oom", &["oom"]),
    ("oom.oom.stack.txt", "oom_forward", &["oom", "--by", "stack", "--top", "1"]),
    ("tiny.simulate.txt", "tiny", &["simulate"]),
    ("tiny.simulate.csv", "tiny", &["simulate", "--alloc-conf", "max_split_size_mb:64", "--format", "csv"]),
    ("gpt_train.simulate.txt", "gpt_train", &["simulate", "--sweep"]),
    ("gpt_train.inference.txt", "gpt_train", &["simulate", "--inference"]),
    ("gpt_train.offload.txt", "gpt_train", &["simulate", "--offload", "activations"]),
    ("gpt_train.accumulate.txt", "gpt_train", &["simulate", "--accumulate", "2"]),
    ("gpt_train.chunk_loss.txt", "gpt_train", &["simulate", "--chunk-loss", "4"]),
    ("gpt_train.optimizer.txt", "gpt_train", &["simulate", "--optimizer", "sgd"]),
    ("gpt_train.shard.txt", "gpt_train", &["simulate", "--shard-optimizer", "4"]),
    ("encoder.inference.txt", "encoder", &["simulate", "--inference"]),
    ("encoder.offload.txt", "encoder", &["simulate", "--offload", "activations"]),
    ("mlp_accumulate.accumulate.txt", "mlp_accumulate", &["simulate", "--accumulate", "2"]),
    ("gpt_train.simulate.md", "gpt_train", &["simulate", "--sweep", "--format", "markdown"]),
    ("fragmented.simulate.txt", "fragmented", &["simulate", "--sweep"]),
    (
        "fragmented.simulate.json",
        "fragmented",
        &["simulate", "--alloc-conf", "expandable_segments:True", "--format", "json"],
    ),
    ("oom_expandable.simulate.txt", "oom_expandable", &["simulate", "--sweep"]),
    ("oom_caught.simulate.txt", "oom_caught", &["simulate", "--alloc-conf", "expandable_segments:True"]),
    ("oom_capped.simulate.txt", "oom_capped", &["simulate", "--sweep"]),
    ("conf_gc.simulate.json", "conf_gc", &["simulate", "--alloc-conf", "", "--capacity", "4GiB", "--format", "json"]),
    ("conf_max_split.simulate.txt", "conf_max_split", &["simulate", "--sweep"]),
    ("conf_roundup.simulate.txt", "conf_roundup", &["simulate", "--sweep"]),
    (
        "conf_expandable_random.simulate.txt",
        "conf_expandable_random",
        &["simulate", "--alloc-conf", "expandable_segments:True,max_split_size_mb:32"],
    ),
    ("pinned_t215.simulate.txt", "pinned_t215", &["simulate", "--sweep"]),
    ("oom_caught.oom.txt", "oom_caught", &["oom", "--top", "5"]),
    ("oom_capped.oom.txt", "oom_capped", &["oom", "--top", "5"]),
    ("oom_expandable.oom.txt", "oom_expandable", &["oom", "--top", "5"]),
    ("gpt_train.oom.txt", "gpt_train", &["oom", "--top", "3"]),
    ("tiny.oom.json", "tiny", &["oom", "--format", "json"]),
    ("empty.oom.txt", "empty", &["oom"]),
    ("cut.peak.txt", "fixtures/malformed/truncated-in-segments.pickle", &["peak", "--allow-truncated"]),
    ("tiny.timeline.svg", "tiny", &["timeline", "-o", "-"]),
    ("tiny.timeline.active.svg", "tiny", &["timeline", "--metric", "active", "--by", "stream", "--x", "entry"]),
    ("tiny.flamegraph.svg", "tiny", &["flamegraph", "-o", "-"]),
    ("tiny.flamegraph.end.svg", "tiny", &["flamegraph", "--at", "end", "-o", "-"]),
    ("tiny.folded.txt", "tiny", &["flamegraph", "--format", "folded"]),
    ("tiny.segments.svg", "tiny", &["fragmentation", "--format", "svg"]),
    ("tiny.report.svg", "tiny", &["report", "--format", "svg"]),
    ("tiny.report.html", "tiny", &["report", "--format", "html"]),
    ("oom.report.md", "oom", &["report", "--format", "markdown"]),
    ("oom.timeline.svg", "oom", &["timeline", "--x", "entry", "--top", "3"]),
    ("private_pool.timeline.svg", "private_pool", &["timeline", "--x", "entry", "--inactive"]),
    ("multi_gpu.timeline.svg", "multi_gpu", &["timeline", "--by", "file", "--top", "2"]),
    ("multi_gpu.folded.txt", "multi_gpu", &["flamegraph", "--format", "folded", "--at", "end"]),
    ("private_pool.segments.svg", "private_pool", &["fragmentation", "--by", "pool", "--format", "svg"]),
    ("state_only.timeline.svg", "state_only", &["timeline", "--top", "3"]),
    ("no_history.segments.svg", "no_history", &["fragmentation", "--device", "0", "--format", "svg"]),
    ("empty.report.svg", "empty", &["report", "--format", "svg"]),
    ("empty.report.md", "empty", &["report", "--format", "markdown"]),
    ("trace.peak.txt", TRACE, &["peak"]),
    ("trace.peak.json", TRACE, &["peak", "--device", "0", "--top", "3", "--format", "json"]),
    ("trace.operator.txt", TRACE, &["peak", "--by", "operator", "--device", "0"]),
    ("trace.operator.json", TRACE, &["peak", "--by", "operator", "--device", "-2", "--format", "json"]),
    ("trace.nn_module.txt", TRACE, &["peak", "--by", "nn-module", "--device", "0"]),
    ("trace.stack.txt", TRACE, &["peak", "--by", "stack", "--device", "0", "--top", "3"]),
    ("trace.info.txt", TRACE, &["info"]),
    ("trace.info.json", TRACE, &["info", "--format", "json"]),
    ("trace.folded.txt", TRACE, &["flamegraph", "--format", "folded", "--device", "0"]),
    ("trace_cpu.peak.txt", "fixtures/traces/profiler_traces/cpu.trace.json.gz", &["peak"]),
    (
        "trace_t201.peak.txt",
        "fixtures/traces/profiler_traces_t201/fake_cuda_modules.trace.json.gz",
        &["peak", "--device", "0"],
    ),
    (
        "memory_timeline.raw.peak.txt",
        "fixtures/traces/profiler_traces/fake_cuda_modules.timeline.raw.json.gz",
        &["peak"],
    ),
    (
        "memory_timeline.peak.json",
        "fixtures/traces/profiler_traces/fake_cuda_modules.timeline.json.gz",
        &["peak", "--format", "json"],
    ),
    ("ranks8.ranks.txt", RANKS8, &["ranks"]),
    ("ranks8.ranks.json", RANKS8, &["ranks", "--format", "json", "--top", "3"]),
    ("ranks8.ranks.csv", RANKS8, &["ranks", "--format", "csv"]),
    ("ranks8.ranks.md", RANKS8, &["ranks", "--format", "markdown"]),
    ("ranks8.ranks.reserved.txt", RANKS8, &["ranks", "--metric", "reserved", "--top", "5"]),
    ("multi_gpu.ranks.txt", "multi_gpu", &["ranks"]),
    ("empty.ranks.txt", "empty", &["ranks"]),
    ("no_history.ranks.txt", "no_history", &["ranks"]),
    ("memory_timeline.info.txt", "fixtures/traces/profiler_traces/fake_cuda_modules.timeline.json.gz", &["info"]),
];

/// Programs with fixes, and their code.
const EVALUATION: &str = "fixtures/stories/eval_without_no_grad_gpt2_flawed/snapshot.pickle.gz";
const EVALUATION_CODE: &str = "fixtures/stories/eval_without_no_grad_gpt2_flawed";
const KEPT_OUTPUTS: &str = "fixtures/stories/kept_outputs_dict_flawed/snapshot.pickle.gz";
const KEPT_OUTPUTS_CODE: &str = "fixtures/stories/kept_outputs_dict_flawed";

/// The recordings of a run's ranks, for answers about several.
const RANKS8: &str = "fixtures/snapshots/ranks8";

/// Where the pictures of README and book are.
const PICTURES: &str = "docs/src/pictures";
/// Pictures, drawn by the commands next to them: file, fixture, arguments.
const DRAWN: &[(&str, &str, &[&str])] = &[
    ("timeline.svg", "gpt_train", &["timeline", "-o", "-"]),
    ("flamegraph.svg", "gpt_train", &["flamegraph", "-o", "-"]),
    ("segments.svg", "private_pool", &["fragmentation", "--by", "site", "--format", "svg"]),
    ("diff.svg", "gpt_train_ckpt", &["diff", GPT_TRAIN, "--format", "svg", "--align", "step"]),
    ("checkpoint.svg", "gpt_train", &["checkpoint", "--format", "svg"]),
    ("report.svg", "oom", &["report", "--format", "svg"]),
    ("ranks.svg", "fixtures/snapshots/ranks8/*.gz", &["ranks", "--format", "svg"]),
];

/// Golden file, exit code, format, recordings. Budgets that are met, exceeded, and cannot be judged.
const CHECKS: &[(&str, i32, &str, &[&str])] = &[
    ("gpt_train.check.txt", 1, "text", &["gpt_train"]),
    ("gpt_train.check.json", 1, "json", &["gpt_train"]),
    ("gpt_train.check.md", 1, "markdown", &["gpt_train"]),
    ("gpt_train.check.junit.xml", 1, "junit", &["gpt_train"]),
    ("gpt_train.check.github.txt", 1, "github", &["gpt_train"]),
    ("multi_gpu.check.txt", 2, "text", &["multi_gpu", "ring"]),
    ("multi_gpu.check.junit.xml", 2, "junit", &["multi_gpu", "ring"]),
    ("multi_gpu.check.github.txt", 2, "github", &["multi_gpu", "ring"]),
];
/// Their budgets.
const BUDGETS: [&str; 8] =
    ["--max-peak", "4GiB", "--max-reserved", "5GB", "--max-fragmentation", "30%", "--max-site", r"minigpt\.py=1GiB"];

/// Text as wide as a terminal, once for each kind of answer: stem of the golden file, fixture, question.
const IN_TERMINALS: &[(&str, &str, Question)] = &[
    ("gpt_train.site", "gpt_train", Question::Peak(GroupBy::Site)),
    ("gpt_train.stack", "gpt_train", Question::Peak(GroupBy::Stack)),
    ("gpt_train.steps", "gpt_train", Question::Each("step", 1)),
    ("leak.leaks", "leak", Question::Leaks),
    ("multi_gpu.check", "multi_gpu", Question::Check),
    ("gpt_train.blocks", "gpt_train", Question::Blocks),
    ("gpt_train_ckpt.diff", "gpt_train_ckpt", Question::Diff(GroupBy::Site)),
    ("gpt_train.checkpoint", "gpt_train", Question::Checkpoint),
    ("conf_roundup.info", "conf_roundup", Question::Info),
    ("fragmented.fragmentation", "fragmented", Question::Fragmentation(GroupBy::Site)),
    ("fragmented.over_time", "fragmented", Question::OverTime),
    ("fragmented.oom", "fragmented", Question::Oom(GroupBy::Site)),
    ("oom.triage", "oom", Question::Triage),
];

/// Columns of these terminals.
const WIDTHS: [usize; 2] = [50, 120];

#[derive(Clone, Copy, Debug)]
enum Question {
    Peak(GroupBy),
    /// With this many rows of each range.
    Each(&'static str, usize),
    Info,
    Fragmentation(GroupBy),
    OverTime,
    Oom(GroupBy),
    Leaks,
    Blocks,
    Triage,
    Check,
    /// Against `gpt_train`.
    Diff(GroupBy),
    Checkpoint,
}

#[test]
fn answers_are_as_before() {
    let mut failures = Vec::new();
    let mut used = BTreeSet::from([".gitattributes".to_owned()]);
    for (golden, recording, args) in ANSWERS {
        let path = path_of(recording);
        let run = support::memviz(&[*args, &[path.as_str()]].concat());
        run.expect(0);
        assert_eq!(run.stderr, "", "{golden}");
        assert!(used.insert((*golden).to_owned()), "{golden} is there twice");
        failures.extend(compare(&format!("{GOLDEN}/{golden}"), &run.stdout));
    }
    for (golden, code, format, recordings) in CHECKS {
        let paths: Vec<String> = recordings.iter().map(|recording| path_of(recording)).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let run = support::memviz(&[&["check", "--format", format], &BUDGETS[..], &paths].concat());
        run.expect(*code);
        assert!(used.insert((*golden).to_owned()), "{golden} is there twice");
        failures.extend(compare(&format!("{GOLDEN}/{golden}"), &run.stdout));
    }
    for (picture, recording, args) in DRAWN {
        let run = support::memviz(&[*args, &[path_of(recording).as_str()]].concat());
        failures.extend(compare(&format!("{PICTURES}/{picture}"), &run.expect(0).stdout));
    }
    for (stem, name, question) in IN_TERMINALS {
        let texts = render(&open(name), &path_of(name), *question, &WIDTHS.map(Some));
        assert_eq!(texts.len(), WIDTHS.len(), "{stem}");
        for (width, text) in WIDTHS.iter().zip(&texts) {
            let golden = format!("{stem}.{width}.txt");
            failures.extend(compare(&format!("{GOLDEN}/{golden}"), text));
            assert!(used.insert(golden), "{stem} is there twice");
        }
    }
    let stale: Vec<String> = names(GOLDEN).into_iter().filter(|name| !used.contains(name)).collect();
    assert!(stale.is_empty(), "no test compares {stale:?} in {GOLDEN}");
    let hint = format!("{BLESS}=1 cargo test --test golden takes the new answers over");
    assert!(failures.is_empty(), "{} answers changed; {hint}\n\n{}", failures.len(), failures.join("\n"));
}

/// The library gives what the binary gives.
#[test]
fn pipes_get_the_rendering_of_the_library() {
    for (name, question, args) in [
        ("gpt_train", Question::Peak(GroupBy::Site), &["peak"] as &[&str]),
        ("multi_gpu", Question::Peak(GroupBy::Stream), &["peak", "--by", "stream"]),
        ("multi_gpu", Question::Each("step", 1), &["peak", "--each", "step"]),
        ("annotated", Question::Info, &["info"]),
        ("fragmented", Question::OverTime, &["fragmentation", "--over-time", "--all"]),
        ("oom", Question::Oom(GroupBy::Stack), &["oom", "--by", "stack", "--top", "10"]),
        ("leak_slow", Question::Leaks, &["leaks", "--top", "20"]),
        ("multi_gpu", Question::Diff(GroupBy::Stack), &["diff", GPT_TRAIN, "--by", "stack"]),
        ("resnet_train", Question::Checkpoint, &["checkpoint"]),
    ] {
        let path = fixture(name);
        let run = support::memviz(&[args, &[path.as_str()]].concat());
        let mut recording = open(name);
        if matches!(question, Question::Diff(_)) {
            recording.snapshot.view = View::default();
        }
        assert_eq!([run.stdout], *render(&recording, &path, question, &[None]), "{name} {args:?}");
    }
}

#[test]
fn every_line_fits_into_the_terminal() {
    let groups = [
        GroupBy::Site,
        GroupBy::Stack,
        GroupBy::Function,
        GroupBy::File,
        GroupBy::Module,
        GroupBy::Stream,
        GroupBy::Pool,
        GroupBy::Annotation,
        GroupBy::ModulePath,
    ];
    let both = [GroupBy::Site, GroupBy::Stack].map(Question::Diff);
    let one = [Question::Info, Question::OverTime, Question::Leaks, Question::Blocks, Question::Check];
    let one = one.into_iter().chain([Question::Checkpoint]);
    let ranges = [("step", 1), ("phase", 1), ("annotation", 3)].map(|(each, top)| Question::Each(each, top));
    let questions = one.chain(both).chain(ranges);
    let questions = questions.chain(groups.map(Question::Peak)).chain(groups.map(Question::Fragmentation));
    let questions: Vec<Question> = questions.chain(groups.map(Question::Oom)).collect();
    let widths: Vec<Option<usize>> = (50..=120).step_by(10).map(Some).collect();
    let mut problems = BTreeSet::new();
    for name in [
        "gpt_train",
        "multi_gpu",
        "llama_hf_all",
        "annotated",
        "gpt_late_t201",
        "conf_roundup",
        "skip_actions",
        "fragmented",
        "oom",
        "oom_caught",
        "oom_capped",
        "cuda_graph",
        "leak_slow",
        "leak_t201",
        "no_history_t201",
        "state_only",
    ] {
        let recording = open(name);
        let devices = recording.devices();
        let cures = devices.all().iter().flat_map(|device| advice(device, Simulate::Quick));
        let python: HashSet<String> = cures.flat_map(|cure| cure.code).map(|line| line.trim().to_owned()).collect();
        for &question in &questions {
            let texts = render(&recording, "snapshot.pickle", question, &widths);
            for (text, width) in texts.iter().zip(widths.iter().flatten()) {
                for line in text.lines() {
                    // To be copied unchanged.
                    let code = [
                        "memviz ",
                        "PYTORCH_CUDA_ALLOC_CONF=",
                        "torch.utils",
                        "def chunk_loss(",
                        "chunks = zip(",
                        "with torch.utils",
                        "loss = sum(torch.utils",
                        "block.forward = ",
                        "model.gradient_",
                    ];
                    let is_code = line.ends_with(" \\") // A path goes on a line of its own, whole.
                        || code.iter().any(|code| line.trim_start().starts_with(code)) || python.contains(line.trim());
                    if line.width() > *width && !is_code {
                        problems.insert(format!("{name} {question:?} in {width} columns: {line:?}"));
                    }
                }
            }
        }
    }
    support::assert_none(&problems.into_iter().collect::<Vec<_>>());
}

#[test]
fn differences_are_readable() {
    let before = "a\nb\nc\nd\ne\nf\ng\n";
    assert_eq!(difference(before, before), None);
    assert_eq!(difference(before, "a\nb\nc\nd\nE\nf\ng\n").unwrap(), "  ...\n  c\n  d\n- e\n+ E\n  f\n  g\n");
    assert_eq!(difference(before, "a\nb\nc\nd\ne\nf\n").unwrap(), "  ...\n  e\n  f\n- g\n");
    assert_eq!(difference("", "a\n").unwrap(), "+ a\n");
    assert_eq!(difference("a\n", "a").unwrap(), "  a\n+ (no line break at the end)\n");
}

/// The path of a recording that is named by its case, or by its path.
fn path_of(recording: &str) -> String {
    if recording.contains('/') { recording.to_owned() } else { fixture(recording) }
}

fn open(name: &str) -> Recording {
    let mut recording = Recording::open(path_of(name).as_ref(), &ReadOptions::default()).unwrap();
    recording.snapshot.view = View::default().library_lines(true).fold(true);
    recording
}

/// The answer to a question as text of each width.
fn render(recording: &Recording, path: &str, question: Question, widths: &[Option<usize>]) -> Vec<String> {
    let source = Source { path, recording };
    let texts = |write: &dyn Fn(&TextStyle, &mut Vec<u8>)| -> Vec<String> {
        let text = |&width| {
            let mut out = Vec::new();
            write(&TextStyle { width, advice: true, all: true, ..TextStyle::default() }, &mut out);
            String::from_utf8(out).unwrap()
        };
        widths.iter().map(text).collect()
    };
    match question {
        Question::Peak(by) => {
            let options = PeakOptions::default().by(by).top(Some(TOP));
            // Groups that a recording does not show are refused.
            let Ok(report) = recording.peak(&options) else { return Vec::new() };
            texts(&|text, out| report.text(source, *text, out).unwrap())
        }
        Question::Each(each, top) => {
            let each = Some(EachOptions::new(each.parse().unwrap()).top(top));
            // If there are no such ranges, there is nothing to render.
            let Ok(report) = recording.peak(&PeakOptions::default().each(each)) else { return Vec::new() };
            texts(&|text, out| report.text(source, *text, out).unwrap())
        }
        Question::Fragmentation(by) => {
            let at = recording.snapshot.entries.actions().contains(&Action::Oom).then_some(When::Oom);
            let options = FragmentationOptions::default().by(by).at(at).top(Some(TOP)).simulate(true);
            let Ok(report) = recording.fragmentation(&options) else { return Vec::new() };
            texts(&|text, out| report.text(source, *text, out).unwrap())
        }
        Question::OverTime => {
            let options = FragmentationOptions::default().points(Some(24));
            let report = recording.fragmentation(&options).unwrap();
            texts(&|text, out| report.text(source, *text, out).unwrap())
        }
        Question::Oom(by) => {
            let options = OomOptions::default().by(by).top(Some(10)).plans(true).cures(Some(Simulate::All));
            let Ok(report) = recording.oom(&options) else { return Vec::new() };
            texts(&|text, out| report.text(source, *text, out).unwrap())
        }
        Question::Check => {
            let budgets = Budgets::default()
                .max_peak(Some(300 << 20))
                .max_reserved(Some(80 << 30))
                .max_fragmentation("0.5%".parse().ok())
                .max_leak(Some(1 << 20))
                .max_sites(vec![r"forward|cases\.py:\d+ \w+=100MiB".parse().unwrap()]);
            let report = recording.check(&CheckOptions::default().budgets(vec![budgets]).top(5));
            let answer = Ok((InputHead::of(source).into_owned(), report));
            let inputs = [CheckedInput { path: path.to_owned(), answer }];
            texts(&|text, out| inputs.text((), *text, out).unwrap())
        }
        Question::Blocks => {
            let report = recording.blocks(&BlocksOptions::default().top(8)).unwrap();
            texts(&|text, out| report.text(source, *text, out).unwrap())
        }
        Question::Checkpoint => {
            // As many candidates as people get.
            let options = CheckpointOptions::default().top(Some(10));
            let report = recording.checkpoint(&options).unwrap();
            texts(&|text, out| report.text(source, *text, out).unwrap())
        }
        Question::Leaks => {
            let options = LeakOptions::default().top(Some(TOP)).cures(Some(Simulate::All));
            let report = recording.leaks(&options).unwrap();
            texts(&|text, out| report.text(source, *text, out).unwrap())
        }
        Question::Triage => {
            let report = recording.triage(&TriageOptions::default()).unwrap();
            texts(&|text, out| report.text(source, *text, out).unwrap())
        }
        Question::Diff(by) => {
            let base = &*BASE;
            let options = PeakOptions::default().by(by);
            let [from, to] = [base, recording].map(|side| side.diff_input(&options).unwrap());
            let sources = Sources { base: Source { path: GPT_TRAIN, recording: base }, new: source };
            let report = DiffReport::of(&from, &to, Some(TOP));
            texts(&|text, out| report.text(sources, *text, out).unwrap())
        }
        Question::Info => {
            let report = recording.info(&[]).unwrap();
            texts(&|text, out| report.text(source, *text, out).unwrap())
        }
    }
}

/// What is different from the golden file, unless the file is to be written.
fn compare(path: &str, found: &str) -> Option<String> {
    // A file with raw escape sequences cannot be viewed.
    let found = found.replace('\u{1b}', "\\e");
    if is_blessing() {
        fs::write(path, found).unwrap();
        return None;
    }
    if !Path::new(&path).exists() {
        return Some(format!("{path} does not exist; the answer is\n{found}"));
    }
    difference(&support::read_text(path), &found).map(|difference| format!("{path}\n{difference}"))
}
