//! Sums up which tests were skipped, and why. Cargo runs the groups in the order of their names, so this one is the last.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

fn main() {
    let list = support::list_of_skipped();
    let Ok(text) = fs::read_to_string(&list) else { return };
    let _ = fs::remove_file(&list);
    let tests: BTreeSet<&str> = text.lines().collect();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, reason) in tests.iter().filter_map(|line| line.split_once('\t')) {
        *reasons.entry(reason).or_default() += 1;
    }
    println!("\nskipped, completely or in part, although counted as passed: {} tests", tests.len());
    for (reason, tests) in reasons {
        println!("{tests:>4}  {reason}");
    }
}
