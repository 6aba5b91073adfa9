//! Functions whose names show what they allocate: caches of inference engines, buffers of distributed training, weights.
//!
//! By file and function in the source of the libraries: vLLM 0.2 to 0.10, `SGLang` 0.3 to 0.5, transformers 4.36 to 4.56,
//! Megatron-LM core 0.5 to 0.12, `DeepSpeed` 0.10 to 0.17, PEFT, bitsandbytes, FSDP of PyTorch 2.0 to 2.15. For programs with
//! their own code, names that are usual for it count.

use super::category::Category;

/// The category that the name of a function implies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Blocks of this function that stay live have this category.
    Stays(Category),
    /// Keys and values of attention. In training, the same code may allocate what backward needs.
    Cache,
    /// Parameters gathered from all ranks for the duration of a call.
    Gathered,
    /// The constructor that allocates one buffer for parameters and one for gradients.
    Buffers,
}

/// The category of a function's allocations, by its file and name.
pub(super) fn named(file: &str, function: &str) -> Option<Named> {
    let within = |folder: &str| file.starts_with(folder) || file.contains(&format!("/{folder}"));
    let name = file.rsplit('/').next().unwrap_or(file);
    match (name, function) {
        (_, "_allocate_kv_cache" | "_allocate_kv_cache_tensors" | "allocate_gpu_cache") if within("vllm/") => {
            Some(Named::Stays(Category::KvCache))
        }
        ("memory_pool.py", _) if within("sglang/srt/mem_cache/") => Some(Named::Stays(Category::KvCache)),
        (_, "create_weights") if within("vllm/") || within("sglang/") => Some(Named::Stays(Category::Parameter)),
        _ if within("torch/distributed/fsdp/") => sharded_by_pytorch(name, function),
        _ if within("megatron/") => megatron(name, function),
        _ if within("deepspeed/runtime/") => deepspeed(name, function),
        (_, "__init__" | "update_layer") if within("peft/tuners/") => Some(Named::Stays(Category::Parameter)),
        (_, "init_state" | "get_state_buffer") if within("bitsandbytes/optim/") => {
            Some(Named::Stays(Category::OptimizerState))
        }
        ("modules.py", "_quantize" | "cuda" | "to") if within("bitsandbytes/nn/") => {
            Some(Named::Stays(Category::Parameter))
        }
        _ if holds_keys_and_values(name, function) => Some(Named::Cache),
        (
            _,
            "init_weight" | "init_weights" | "init_weight_list" | "init_all_weights" | "load_weight" | "load_weights",
        ) => Some(Named::Stays(Category::Parameter)),
        _ => None,
    }
}

fn holds_keys_and_values(name: &str, function: &str) -> bool {
    let file = name.to_ascii_lowercase();
    let function = function.to_ascii_lowercase();
    ["cache_utils", "kv_cache", "kvcache"].iter().any(|part| file.contains(part))
        || ["kv_cache", "kvcache", "past_key_value", "setup_caches"].iter().any(|part| function.contains(part))
}

fn sharded_by_pytorch(name: &str, function: &str) -> Option<Named> {
    match (name, function) {
        ("_flat_param.py", "_alloc_padded_unsharded_flat_param" | "_all_gather_flat_param" | "unshard")
        | ("_fsdp_param.py", "init_all_gather_outputs" | "alloc_all_gather_outputs" | "init_unsharded_param") => {
            Some(Named::Gathered)
        }
        ("_flat_param.py", "flatten_tensors" | "flatten_tensors_into_flat_param" | "_get_shard" | "shard")
        | ("_fsdp_param.py", "_init_sharded_param") => Some(Named::Stays(Category::Parameter)),
        _ => None,
    }
}

fn megatron(name: &str, function: &str) -> Option<Named> {
    match (name, function) {
        ("param_and_grad_buffer.py", "__init__") => Some(Named::Buffers),
        ("grad_buffer.py", "__init__") => Some(Named::Stays(Category::Gradient)),
        // Copies of the parameters in full precision, which the optimizer keeps.
        ("distrib_optimizer.py", "_build_model_and_main_param_groups") => Some(Named::Stays(Category::OptimizerState)),
        _ => None,
    }
}

fn deepspeed(name: &str, function: &str) -> Option<Named> {
    match (name, function) {
        ("stage3.py", "_create_fp32_partitions") => Some(Named::Stays(Category::OptimizerState)),
        ("stage3.py", "_create_fp16_partitions_with_defragmentation" | "defragment")
        | ("stage_1_and_2.py", "flatten_dense_tensors_aligned")
        | ("partition_parameters.py", "_partition_param") => Some(Named::Stays(Category::Parameter)),
        ("partition_parameters.py", function) if function.contains("gather") => Some(Named::Gathered),
        ("coalesced_collectives.py", _) => Some(Named::Stays(Category::Communication)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_say_what_they_allocate() {
        let stays = |category| Some(Named::Stays(category));
        assert_eq!(named("vllm/worker/cache_engine.py", "_allocate_kv_cache"), stays(Category::KvCache));
        assert_eq!(named("/app/vllm/worker/cache_engine.py", "_allocate_kv_cache"), stays(Category::KvCache));
        assert_eq!(named("sglang/srt/mem_cache/memory_pool.py", "_create_buffers"), stays(Category::KvCache));
        let buffer = "/opt/megatron/core/distributed/param_and_grad_buffer.py";
        assert_eq!(named(buffer, "__init__"), Some(Named::Buffers));
        assert_eq!(named("/home/u/flexgen/flex_opt.py", "init_weight_list"), stays(Category::Parameter));
        assert_eq!(named("transformers/cache_utils.py", "update"), Some(Named::Cache));
        assert_eq!(named("/home/u/models/cache_utils_V2.py", "update_new"), Some(Named::Cache));
        assert_eq!(named("torch/distributed/fsdp/_flat_param.py", "unshard"), Some(Named::Gathered));
    }

    #[test]
    fn caches_of_other_things_are_not_keys_and_values() {
        for function in ["_set_cos_sin_cache", "build_rope_cache", "clear_cache", "lru_cache", "forward"] {
            assert_eq!(named("/home/u/model.py", function), None, "{function}");
        }
        assert_eq!(named("/home/u/train.py", "update"), None);
        assert_eq!(named("vllm/worker/cache_engine.py", "swap_in"), None);
    }
}
