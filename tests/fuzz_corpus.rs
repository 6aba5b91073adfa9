//! Inputs of the fuzz targets, those that once failed among them: every file of `fuzz/seeds`, with its target. A panic fails.
#![cfg(feature = "cli")]

mod support;
#[path = "../fuzz/src/lib.rs"]
mod targets;

use arbitrary::{Arbitrary, Unstructured};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::fs;
use std::path::Path;
use targets::{bytes, commands, cuts, entries, looks, mutation, pairs, plays, texts};

/// Files of a target.
fn files(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new("fuzz/seeds").join(target);
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no files in {}", folder.display());
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

fn bytes_of(target: &str, run: fn(&[u8])) {
    for file in files(target) {
        run(&file);
    }
}

fn texts_of(target: &str, run: fn(&str)) {
    files(target).iter().filter_map(|file| std::str::from_utf8(file).ok()).for_each(run);
}

fn plans_of<P: for<'a> Arbitrary<'a>>(target: &str, run: fn(&P)) {
    for file in files(target) {
        if let Ok(plan) = P::arbitrary_take_rest(Unstructured::new(&file)) {
            run(&plan);
        }
    }
}

#[test]
fn files_of_any_bytes() {
    bytes_of("pickle", bytes::pickle);
    bytes_of("json", bytes::json);
    bytes_of("html", bytes::html);
    bytes_of("pprof", bytes::pprof);
    bytes_of("compression", bytes::compression);
    bytes_of("summaries", bytes::summaries);
}

#[test]
fn texts_of_configs_settings_instants_and_changes() {
    texts_of("config", texts::config);
    texts_of("settings", texts::settings);
    texts_of("when", texts::when);
    texts_of("changes", texts::changes);
}

#[test]
fn recordings_that_were_changed_and_made_up() {
    plans_of("snapshot_mutation", mutation::run);
    plans_of("replay", entries::run);
    plans_of("plays", plays::run);
    plans_of("looks", looks::run);
    plans_of("pairs", pairs::run);
    plans_of("commands", commands::run);
    plans_of("cuts", cuts::run);
}

/// Pairs of parts that each fixture loses.
const PAIRS: usize = 20;

/// What the counters of PyTorch are for: without them, some of what is left is the recording of a smaller program.
#[test]
fn no_two_parts_of_a_recording_keep_a_budget_by_being_lost() {
    let mut problems = Vec::new();
    let mut judged = 0;
    for case in support::cases(support::FIXTURES) {
        let whole = support::open(&case.path);
        if whole.snapshot.entries.len() > 5000 {
            continue;
        }
        let whole = cuts::with_counters(&whole);
        let mut runner = TestRunner::deterministic();
        for _ in 0..PAIRS {
            let bytes = vec(any::<u8>(), 32).new_tree(&mut runner).unwrap().current();
            let parts = <[cuts::Part; 2]>::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
            let met = cuts::met_without(&whole, &parts);
            problems.extend(met.into_iter().map(|met| format!("{}: {met}", case.path)));
            judged += 1;
        }
    }
    support::assert_none(&problems);
    assert!(judged > 1000, "only {judged} pairs were judged");
}
