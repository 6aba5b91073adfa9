//! An evaluation without a model: for each question about a recording, the call that answers it, the length of the answer,
//! and that it contains the facts known from other sources: PyTorch's counters (`truth.json`), and the changes to the program
//! (`story.json`). `MEMVIZ_BLESS=1` writes the table in the book.

use crate::client::Client;
use crate::support::difference::difference;
use crate::support::{CORPUS, is_blessing, names, open, read_text};
use memviz::model::BlockState;
use memviz::model::bytes::Bytes;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The page with the table, and the line above it.
const PAGE: &str = "docs/src/commands/mcp.md";
const HEADING: &str =
    "| question | call | bytes | fact in the answer, known from another source |\n|---|---|--:|---|\n";

/// The cure of each story, in words one of which an answer about it must contain.
const CURES: [(&str, &str); 17] = [
    ("accumulating_metrics", "CPU"),
    ("attention_matrix", "scaled_dot_product_attention"),
    ("dataloader_prefetch_gpu", "move each batch"),
    ("duplicate_model", "CPU"),
    ("eval_without_no_grad", "torch.no_grad()"),
    ("foreach_temporaries", "fused=True"),
    ("fp32_logits", "chunks"),
    ("fragmentation_varlen", "expandable_segments"),
    ("graph_pools", "one pool"),
    ("grads_kept", "free the gradients"),
    ("kept_outputs", "delete the model's output"),
    ("kv_cache_growth", "once, at its full length"),
    ("optimizer_states_of_frozen", "freeze"),
    ("release_cache", "empty_cache()"),
    ("side_stream_stranding", "default stream"),
    ("retained_graph", "detach|no_grad"),
    ("zero_grad_late", "gradients"),
];

/// A question, the call that answers it, and what has to be in the answer.
struct Question {
    asks: String,
    tool: &'static str,
    arguments: Value,
    known: Vec<String>,
}

fn about(question: &str, tool: &'static str, arguments: Value, known: &[String]) -> Question {
    Question { asks: question.to_owned(), tool, arguments, known: known.to_vec() }
}

fn file(path: &str) -> Value {
    serde_json::from_str(&read_text(path)).unwrap()
}

/// PyTorch's counters of a fixture's device.
fn truth(case: &str, device: usize) -> Value {
    file(&format!("fixtures/{case}/truth.json"))["devices"][device].clone()
}

fn bytes(value: &Value) -> String {
    Bytes(value.as_u64().unwrap()).to_string()
}

fn counted(case: &str, key: &str) -> String {
    bytes(&truth(case, 0)[key])
}

fn exact(key: &str, value: &Value) -> String {
    format!("\"{key}\":{value}")
}

/// What is wrong, at which line, and what cures it: one line that the story names, and its cure.
fn of_story(folder: &str, input: &str, client: &mut Client) -> Question {
    let story = file(&format!("{folder}/story.json"));
    let name = Path::new(folder).file_name().unwrap().to_str().unwrap().to_owned();
    let answer = client.answer("triage", &json!({ "input": input }));
    let also = story["culprit_also"].as_array().cloned().unwrap_or_default();
    let line = |culprit: &Value| {
        let file = culprit["file"].as_str().unwrap();
        format!("{}:{}", file.rsplit('/').next().unwrap(), culprit["line"])
    };
    let lines: Vec<String> = [story["culprit"].clone()].iter().chain(&also).map(line).collect();
    // After a failed request, the fixes are those with which it may succeed.
    let cure = ["What to change", "Will it fit"].iter().find_map(|title| answer.split_once(title));
    let cure = cure.map(|(_, cure)| cure).unwrap_or_default();
    let named = lines.iter().find(|line| answer.contains(line.as_str()));
    let named = named.unwrap_or_else(|| panic!("{name}: none of {lines:?} in\n{answer}")).clone();
    let words = CURES.iter().find(|(kind, _)| *kind == story["story"]).unwrap().1;
    let said = words.split('|').find(|words| cure.contains(words));
    let said = said.unwrap_or_else(|| panic!("{name}: {words} is not in\n{answer}"));
    let question = format!("What is wrong with `{name}`, where, and how is it fixed?");
    about(&question, "triage", json!({ "input": input }), &[named, said.to_owned()])
}

/// Questions about known mistakes.
fn of_stories(client: &mut Client) -> Vec<Question> {
    let stories = [
        "accumulating_metrics_sampler_flawed",
        "attention_matrix_functional_flawed",
        "dataloader_prefetch_gpu_recsys_flawed",
        "duplicate_model_gpt_flawed",
        "eval_without_no_grad_vit_flawed",
        "fp32_logits_dpo_flawed",
        "graph_pools_mlp_flawed",
        "kept_outputs_llama_flawed",
        "optimizer_states_of_frozen_mlp_flawed",
        "release_cache_mlp_flawed",
        "retained_graph_gpt_flawed",
        "zero_grad_late_unet_flawed",
    ];
    let of = |name| of_story(&format!("fixtures/stories/{name}"), &format!("stories/{name}"), client);
    stories.into_iter().map(of).collect()
}

/// Questions about peaks, failed requests and leaks.
fn of_the_past() -> Vec<Question> {
    let (gpt, oom) = ("snapshots/gpt_train", "snapshots/oom");
    let failed = |case: &str, key: &str| bytes(&file(&format!("fixtures/{case}/truth.json"))["oom_observer"][key]);
    vec![
        about(
            "Is anything wrong with `healthy_target_network`?",
            "triage",
            json!({ "input": "stories/healthy_target_network" }),
            &["No known mistake found".to_owned()],
        ),
        about(
            "How many bytes are allocated at the peak?",
            "peak",
            json!({ "input": gpt, "format": "json" }),
            &[exact("allocated_bytes", &truth(gpt, 0)["max_memory_allocated"])],
        ),
        about(
            "What is the highest number of bytes reserved?",
            "peak",
            json!({ "input": "snapshots/leak", "format": "json" }),
            &[exact("reserved_bytes", &truth("snapshots/leak", 0)["max_memory_reserved"])],
        ),
        about(
            "How many bytes are allocated at the end?",
            "peak",
            json!({ "input": gpt, "at": "end", "format": "json" }),
            &[exact("allocated_bytes", &truth(gpt, 0)["memory_allocated"])],
        ),
        about(
            "Which request failed, and how much was free?",
            "oom",
            json!({ "input": oom }),
            &[failed(oom, "alloc"), failed(oom, "device_free")],
        ),
        about(
            "Which request failed in forward?",
            "oom",
            json!({ "input": "snapshots/oom_forward" }),
            &[failed("snapshots/oom_forward", "alloc"), failed("snapshots/oom_forward", "device_free")],
        ),
        about(
            "Why did it fail with 1.60 GiB reserved but unallocated?",
            "oom",
            json!({ "input": "snapshots/fragmented" }),
            &["cause: fragmentation".to_owned(), failed("snapshots/fragmented", "alloc")],
        ),
        about(
            "Does it leak, and what is left at the end?",
            "leaks",
            json!({ "input": "snapshots/leak" }),
            &["leaks".to_owned(), counted("snapshots/leak", "memory_allocated")],
        ),
    ]
}

/// Questions about plans, budgets, and whole devices.
/// The largest block that PyTorch lists in the dump: its address, and its size.
fn dumped_block(case: &str) -> (String, String) {
    let recording = open(&format!("fixtures/{case}/snapshot.pickle.gz"));
    let blocks = recording.snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let in_use = blocks.filter(|block| block.state == BlockState::ActiveAllocated);
    let block = in_use.max_by_key(|block| (block.size, block.address)).unwrap();
    (format!("{:#x}", block.address), Bytes(block.size).to_string())
}

fn of_plans_and_budgets() -> Vec<Question> {
    let gpt = "snapshots/gpt_train";
    let (first, second) = (truth("snapshots/multi_gpu", 0), truth("snapshots/multi_gpu", 1));
    let samples = file("fixtures/ledger/snapshot.device.json").to_string();
    assert!(samples.contains("vllm") && samples.contains("4711"), "the samples name another process");
    let entries = file("fixtures/snapshots/gpt_train/truth.json")["trace_entries"][0].to_string();
    let peak = truth(gpt, 0)["max_memory_allocated"].as_u64().unwrap();
    let fits = ["fit/minigpt_batch4", "fit/minigpt_batch8"];
    let (address, block) = dumped_block(gpt);
    vec![
        about(
            "Which block is at this address at the end, as the dump lists it?",
            "blocks",
            json!({ "input": gpt, "address": [address], "at": "end" }),
            &[block],
        ),
        about(
            "What will batch 16 need?",
            "fit",
            json!({ "inputs": fits, "vary": "batch=4,8", "at": ["16"] }),
            &[
                counted("fit/minigpt_batch16", "max_memory_allocated"),
                counted("fit/minigpt_batch16", "max_memory_reserved"),
            ],
        ),
        about(
            "What will the peak be with checkpointing?",
            "checkpoint",
            json!({ "input": gpt }),
            &[counted("snapshots/gpt_train_ckpt", "max_memory_allocated")],
        ),
        about(
            "What did checkpointing change?",
            "diff",
            json!({ "base": gpt, "new": "snapshots/gpt_train_ckpt" }),
            &[counted(gpt, "max_memory_allocated"), counted("snapshots/gpt_train_ckpt", "max_memory_allocated")],
        ),
        about(
            "Which device holds the most memory?",
            "ranks",
            json!({ "inputs": ["snapshots/multi_gpu"] }),
            &[bytes(&first["max_memory_allocated"]), bytes(&second["max_memory_allocated"])],
        ),
        about(
            "Which device reserves the most memory, and how many bytes?",
            "ranks",
            json!({ "inputs": ["snapshots/multi_gpu"], "format": "json" }),
            &[exact("reserved_bytes", &second["max_memory_reserved"])],
        ),
        about(
            "Does it stay within a limit equal to its exact peak?",
            "check",
            json!({ "inputs": [gpt], "max_peak": peak.to_string() }),
            &["passed".to_owned()],
        ),
        about(
            "And with a limit one byte lower?",
            "check",
            json!({ "inputs": [gpt], "max_peak": (peak - 1).to_string() }),
            &["failed".to_owned()],
        ),
        about(
            "What else uses the device?",
            "ledger",
            json!({ "input": "ledger" }),
            &["vllm (process 4711)".to_owned()],
        ),
        about(
            "What holds device memory besides PyTorch, according to Nsight Systems?",
            "nsys",
            json!({ "input": "nsys/training.sqlite", "snapshot": "snapshots/tiny/snapshot.pickle.gz" }),
            &[counted("snapshots/tiny", "memory_reserved"), "libnccl.so.2".to_owned()],
        ),
        about(
            "How much is reserved at the end?",
            "peak",
            json!({ "input": gpt, "at": "end" }),
            &[counted(gpt, "memory_reserved"), counted(gpt, "memory_allocated")],
        ),
        about(
            "How does reserved memory change over time, and what is its maximum?",
            "timeline",
            json!({ "input": "snapshots/leak", "points": 5 }),
            &[counted("snapshots/leak", "max_memory_reserved")],
        ),
        about("How many entries does the recording have?", "info", json!({ "input": gpt }), &[entries]),
    ]
}

#[test]
fn thirty_questions_are_answered() {
    let mut client = Client::new(&["fixtures"]);
    let questions: Vec<Question> =
        of_stories(&mut client).into_iter().chain(of_the_past()).chain(of_plans_and_budgets()).collect();
    assert!(questions.len() >= 30, "{}", questions.len());
    let mut table = String::new();
    for Question { asks, tool, arguments, known } in questions {
        let answer = client.answer(tool, &arguments);
        for known in &known {
            assert!(answer.contains(known), "{asks} {tool} {arguments}: {known} is not in\n{answer}");
        }
        let known: Vec<String> = known.iter().map(|known| format!("`{known}`")).collect();
        table += &format!("| {asks} | `{tool}` `{arguments}` | {} | {} |\n", answer.len(), known.join(", "));
    }
    let page = read_text(PAGE);
    let (before, rest) = page.split_once(HEADING).expect("the page has the table");
    let after = rest.find("\n\n").map_or("", |end| &rest[end + 1..]);
    let new = format!("{before}{HEADING}{table}{after}");
    if is_blessing() {
        fs::write(PAGE, &new).unwrap();
    } else if let Some(difference) = difference(&page, &new) {
        panic!("{PAGE} has another table\n{difference}");
    }
}

/// The same for stories that only some machines have: 17 programs that were not used to write memviz.
#[test]
fn every_story_of_the_corpus_is_found() {
    let folder = "../shared/stories";
    if !Path::new(CORPUS).exists() && !Path::new(folder).exists() {
        println!("skipped: {folder} is not there");
        return;
    }
    let mut client = Client::new(&[folder]);
    let flawed: Vec<String> = names(folder).into_iter().filter(|name| name.ends_with("_flawed")).collect();
    for name in &flawed {
        of_story(&format!("{folder}/{name}"), name, &mut client);
    }
    assert_eq!(flawed.len(), 17);
}
