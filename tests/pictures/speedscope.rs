//! What speedscope, in a real browser, makes of an export.

use super::browser::{browser, run};
use crate::support::{fixture, memviz, skipped};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// When this is 1, speedscope has to be there.
const REQUIRE: &str = "MEMVIZ_REQUIRE_SPEEDSCOPE";

/// The page of speedscope: its package from npm contains it.
fn page() -> Option<PathBuf> {
    let folders = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let program = folders.iter().find_map(|folder| folder.join("speedscope").canonicalize().ok());
    let page = program.and_then(|program| Some(program.parent()?.parent()?.join("dist/release/index.html")));
    let page = page.filter(|page| page.is_file());
    if page.is_none() {
        assert!(!env::var(REQUIRE).is_ok_and(|value| value == "1"), "{REQUIRE}=1, but speedscope is not installed");
        skipped(&format!("speedscope is not installed; {REQUIRE}=1 makes that a failure"));
    }
    page
}

#[test]
fn speedscope_shows_the_totals_of_memviz() {
    let (Some(browser), Some(page)) = (browser(), page()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let export = folder.path().join("run.speedscope.json");
    memviz(&["export", "-q", &fixture("gpt_train"), "-o", export.to_str().unwrap()]).expect(0);
    // As its own program does it: a script hands the file over.
    let profile = fs::read_to_string(&export).unwrap();
    let script = folder.path().join("profile.js");
    let encoded = format!("btoa(unescape(encodeURIComponent({})))", serde_json::to_string(&profile).unwrap());
    fs::write(&script, format!("speedscope.loadFileFromBase64('run.speedscope.json', {encoded})")).unwrap();
    let address = format!("{}#view=sandwich&localProfilePath={}", page.display(), script.display());
    let dom = run(browser, Path::new(&address), &["--dump-dom", "--virtual-time-budget=10000"]);
    // The list of profiles has the sum of each.
    let profiles: serde_json::Value = serde_json::from_str(&profile).unwrap();
    let total = |weights: &serde_json::Value| {
        weights.as_array().unwrap().iter().map(|weight| weight.as_u64().unwrap()).sum::<u64>()
    };
    let answer = memviz(&["peak", "--format", "json", &fixture("gpt_train")]).json();
    let held = total(&profiles["profiles"][0]["weights"]);
    assert_eq!(answer["devices"][0]["attribution"]["total_bytes"].as_u64(), Some(held));
    for profile in profiles["profiles"].as_array().unwrap() {
        let sum = format!("{:.2} GB", total(&profile["weights"]) as f64 / f64::from(1 << 30));
        let row = format!("<tr title=\"{}\"", profile["name"].as_str().unwrap());
        let (_, row) = dom.split_once(&row).unwrap_or_else(|| panic!("{row}: {dom}"));
        let row = row.split("</tr>").next().unwrap();
        assert!(row.contains(&format!(">{sum}<")), "{sum}: {row}");
    }
    // The outermost frame holds all of it.
    assert!(dom.contains("(100%)"), "{dom}");
}
