//! `memviz blocks`: single blocks, compared with the dump and with the answers about all blocks.

use crate::support::{self, fixture, memviz};
use memviz::model::BlockState;
use serde_json::Value;

fn blocks(args: &[&str]) -> Value {
    memviz(&[&["blocks", "--format", "json"], args].concat()).json()["devices"][0].clone()
}

#[test]
fn blocks_of_the_dump_are_found_by_their_addresses() {
    let path = fixture("gpt_train");
    let recording = support::open(&path);
    let dumped: Vec<_> = recording.snapshot.segments.iter().flat_map(|segment| &segment.blocks).collect();
    let dumped: Vec<_> = dumped.into_iter().filter(|block| block.state == BlockState::ActiveAllocated).collect();
    assert!(dumped.len() > 10);
    for block in dumped.iter().take(12) {
        // Any address inside of the block leads to it.
        let address = format!("{:#x}", block.address + block.size / 2);
        let found = blocks(&[&path, "--address", &address, "--at", "end"]);
        let [one] = found["blocks"].as_array().unwrap().as_slice() else { panic!("{address}: {found}") };
        assert_eq!(one["address"], format!("{:#x}", block.address));
        assert_eq!(
            (one["bytes"].as_u64(), one["requested_bytes"].as_u64()),
            (Some(block.size), Some(block.requested_size))
        );
        assert_eq!(one["freed"], Value::Null);
        // Its ID leads to the same block, and decimal addresses are understood.
        let again = blocks(&[&path, "--id", &one["id"].to_string()]);
        assert_eq!(again["blocks"][0], *one);
        let decimal = blocks(&[&path, "--address", &block.address.to_string(), "--at", "end"]);
        assert_eq!(decimal["blocks"][0], *one);
    }
}

#[test]
fn blocks_at_an_instant_sum_to_what_is_allocated() {
    for name in ["tiny", "gpt_train", "oom", "multi_gpu", "no_history", "gpt_late"] {
        let path = fixture(name);
        let peak = memviz(&["peak", "--format", "json", &path]).json();
        let answer = memviz(&["blocks", "--format", "json", "--top", "1000000", &path]).json();
        for (device, peak) in answer["devices"].as_array().unwrap().iter().zip(peak["devices"].as_array().unwrap()) {
            let rows = device["blocks"].as_array().unwrap();
            let sum: u64 = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
            assert_eq!(device["total_bytes"].as_u64(), Some(sum), "{name}");
            assert_eq!(device["total_bytes"], peak["attribution"]["total_bytes"], "{name}");
            assert_eq!(device["found"].as_u64(), Some(rows.len() as u64));
            assert!(rows.is_sorted_by_key(|row| std::cmp::Reverse(row["bytes"].as_u64())), "{name}");
        }
    }
}

#[test]
fn blocks_have_the_stacks_of_allocation_and_free() {
    let path = fixture("gpt_train");
    let device = blocks(&[&path, "--top", "1000"]);
    let entries = memviz(&["info", "--format", "json", &path]).json()["devices"][0]["entries"].as_u64().unwrap();
    let mut freed_by = 0;
    for block in device["blocks"].as_array().unwrap() {
        let allocated = block["allocated"]["entry"].as_u64().unwrap();
        if let Some(freed) = block["freed"]["entry"].as_u64() {
            assert!(allocated < freed && freed < entries, "{block}");
            assert!(block["completed"]["entry"].as_u64().is_none_or(|completed| completed >= freed));
        }
        assert_eq!(block["freed_by"].is_null(), block["free_stack"].as_array().unwrap().is_empty());
        freed_by += usize::from(!block["freed_by"].is_null());
    }
    assert!(freed_by > 0, "the recording has stacks of frees");
    // Blocks at one address follow each other.
    let address = device["blocks"][0]["address"].as_str().unwrap();
    let there = blocks(&[&path, "--address", address, "--top", "1000"]);
    assert_eq!(there["at"], Value::Null);
    let ends: Vec<(u64, u64)> = there["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| {
            let at = |key: &str| block[key]["entry"].as_u64();
            (at("allocated").unwrap(), at("completed").unwrap_or(u64::MAX))
        })
        .collect();
    assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ends:?}");
}

#[test]
fn missing_blocks_are_errors() {
    let path = fixture("gpt_train");
    memviz(&["blocks", &path, "--id", "100000000"]).expect_error("expected a block ID below");
    memviz(&["blocks", &path, "--address", "0xxyz"]).expect_error("expected an address such as");
    memviz(&["blocks", &fixture("multi_gpu"), "--id", "0"]).expect_error("expected one device for block IDs, found 2");
    let none = memviz(&["blocks", &path, "--address", "16"]);
    assert!(none.expect(0).stdout.contains("no such block"), "{}", none.stdout);
}
