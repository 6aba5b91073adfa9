//! Runs at other numbers, predicted from every two and three recordings of a family of programs, against what PyTorch did.
//!
//! Nobody made the rules of `fit` with all of these families: an unmarked figure must be right on each, and few may be marked.

use crate::support::{REQUIRE_CORPUS, names, open, read_text, skipped};
use memviz::analysis::fit::{DeviceFit, FitInput, FitOptions, FitReport, Prediction};
use memviz::facts::device::Devices;
use memviz::simulation::Trust;
use rayon::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Recordings that belong to the repository, those that only some machines have, and the variable that names more.
const FIXTURE: &str = "fixtures/families";
const MORE: [&str; 2] = ["../shared/whatif", "../shared/families/rec"];
const YET_MORE: &str = "MEMVIZ_FAMILIES";

/// Folder names of families: what varies, and its value after the last underscore.
const VARY: [(&str, &str); 3] = [("b_", "batch"), ("bp_", "batch"), ("s_", "seq")];

/// The allowed error of a figure, in thousandths.
const ALLOCATED: f64 = 10.0;
const RESERVED: f64 = 20.0;
/// Of all predictions, in percent.
const LEAST_RIGHT: usize = 85;
const MOST_MARKED: usize = 25;

/// Runs of one program at several numbers.
struct Family {
    name: String,
    parameter: &'static str,
    /// Ascending: the number, the recording and what PyTorch counted, allocated and reserved.
    runs: Vec<(u64, String, [u64; 2])>,
}

fn families(root: &str) -> Vec<Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for folder in names(root) {
        let Some(&(_, parameter)) = VARY.iter().find(|(prefix, _)| folder.starts_with(prefix)) else { continue };
        let Some((name, value)) = folder.rsplit_once('_') else { continue };
        let Ok(value) = value.parse() else { continue };
        let truth: Value = serde_json::from_str(&read_text(&format!("{root}/{folder}/truth.json"))).unwrap();
        let counted = |key: &str| truth["devices"][0][key].as_u64().unwrap();
        let counted = [counted("max_memory_allocated"), counted("max_memory_reserved")];
        let new = || Family { name: name.to_owned(), parameter, runs: Vec::new() };
        let family = families.entry(name.to_owned()).or_insert_with(new);
        family.runs.push((value, format!("{root}/{folder}/snapshot.pickle.gz"), counted));
    }
    let mut families: Vec<Family> = families.into_values().filter(|family| family.runs.len() > 2).collect();
    for family in &mut families {
        family.runs.sort();
    }
    families
}

/// A prediction against the truth.
struct Row {
    what: String,
    /// Thousandths that the figures are off.
    off: [f64; 2],
    is_marked: bool,
    /// Whether ranges, if there are some, contain the truth.
    is_held: bool,
    because: String,
}

impl Row {
    fn is_right(&self) -> bool {
        self.off[0].abs() <= ALLOCATED && self.off[1].abs() <= RESERVED
    }
}

/// All pairs and triples of places.
fn subsets(of: usize) -> Vec<Vec<usize>> {
    let mut subsets = Vec::new();
    for a in 0..of {
        for b in a + 1..of {
            subsets.push(vec![a, b]);
            subsets.extend((b + 1..of).map(|c| vec![a, b, c]));
        }
    }
    subsets
}

impl Family {
    fn rows(&self) -> Vec<Row> {
        let recordings: Vec<_> = self.runs.iter().map(|(_, path, _)| open(path)).collect();
        let devices: Vec<Devices<'_>> = recordings.iter().map(|recording| recording.devices()).collect();
        subsets(self.runs.len()).par_iter().flat_map_iter(|subset| self.rows_from(subset, &devices)).collect()
    }

    fn rows_from<'a>(&self, subset: &[usize], devices: &'a [Devices<'a>]) -> Vec<Row> {
        let inputs = subset.iter().map(|&at| FitInput { value: self.runs[at].0, devices: &devices[at] });
        let inputs: Vec<FitInput<'a>> = inputs.collect();
        let others: Vec<&(u64, String, [u64; 2])> =
            (0..self.runs.len()).filter(|at| !subset.contains(at)).map(|at| &self.runs[at]).collect();
        let options = FitOptions::default().at(others.iter().map(|run| run.0).collect());
        let fit = FitReport::of(self.parameter, &inputs, &options).unwrap().devices.remove(0);
        let bases: Vec<u64> = inputs.iter().map(|input| input.value).collect();
        let what = |value: u64| format!("{} {bases:?} {value}", self.name);
        if let Some(refusal) = &fit.refused {
            let because = format!("{refusal:?}");
            let refused = |run: &&(u64, String, [u64; 2])| Row {
                what: what(run.0),
                off: [f64::INFINITY; 2],
                is_marked: true,
                is_held: true,
                because: because.clone(),
            };
            return others.iter().map(refused).collect();
        }
        others.iter().map(|run| Row { what: what(run.0), ..row(&fit, run.0, run.2) }).collect()
    }
}

fn row(fit: &DeviceFit, value: u64, counted: [u64; 2]) -> Row {
    let prediction: &Prediction = fit.predictions.iter().find(|prediction| prediction.value == value).unwrap();
    let outcome = &prediction.outcome;
    let off = |predicted: u64, counted: u64| (predicted as f64 / counted as f64 - 1.0) * 1000.0;
    let holds = |range: Option<(u64, u64)>, counted: u64| range.is_none_or(|(a, b)| (a..=b).contains(&counted));
    Row {
        what: String::new(),
        off: [off(outcome.max_allocated, counted[0]), off(outcome.max_reserved, counted[1])],
        is_marked: prediction.trust == Trust::Uncertain,
        is_held: holds(prediction.reserved_range, counted[1]),
        because: format!("{:?} {:?}", fit.doubts, prediction.doubts),
    }
}

/// The rows as a table, and whether the limits hold.
fn judge(roots: &[&str]) {
    let mut text = String::new();
    let mut all: Vec<Row> = Vec::new();
    let summary = |name: &str, rows: &[Row]| {
        let count = |wanted: &dyn Fn(&&Row) -> bool| rows.iter().filter(wanted).count();
        let (right, marked) = (count(&|row| row.is_right()), count(&|row| row.is_marked));
        let false_confidence = count(&|row| !row.is_marked && !row.is_right());
        let needless = count(&|row| row.is_marked && row.is_right());
        let outside = count(&|row| !row.is_held);
        format!(
            "{name:28} {:5} predictions  {right:5} right  {marked:5} marked, {needless:5} of them right  {outside} out of range  {false_confidence:5} wrong and unmarked",
            rows.len()
        )
    };
    let mut lines = Vec::new();
    for family in roots.iter().flat_map(|root| families(root)) {
        let rows = family.rows();
        lines.push(summary(&family.name, &rows));
        all.extend(rows);
    }
    for row in &all {
        let mark = if row.is_marked { "marked" } else { "" };
        let wrong = if row.is_right() { "" } else { "WRONG" };
        let [allocated, reserved] = row.off.map(|off| off / 10.0);
        writeln!(text, "{:40} {allocated:+8.2} {reserved:+8.2} {mark:7} {wrong:6} {}", row.what, row.because).unwrap();
    }
    lines.push(summary("all", &all));
    text += &lines.join("\n");
    println!("{text}");
    let right = all.iter().filter(|row| row.is_right()).count();
    let marked = all.iter().filter(|row| row.is_marked).count();
    let false_confidence: Vec<&str> =
        all.iter().filter(|row| !row.is_marked && !row.is_right()).map(|row| row.what.as_str()).collect();
    assert!(false_confidence.is_empty(), "wrong and not marked: {false_confidence:#?}");
    assert!(right * 100 >= all.len() * LEAST_RIGHT, "{right} of {} are right", all.len());
    assert!(marked * 100 <= all.len() * MOST_MARKED, "{marked} of {} are marked", all.len());
}

#[test]
fn families_that_belong_to_the_repository() {
    judge(&[FIXTURE]);
}

#[test]
fn families_that_only_some_machines_have() {
    let more = std::env::var(YET_MORE).ok();
    let mut roots: Vec<&str> = match &more {
        Some(folder) => vec![folder],
        None => MORE.to_vec(),
    };
    if let Some(missing) = roots.iter().find(|root| !Path::new(root).is_dir()) {
        let required = std::env::var(REQUIRE_CORPUS).is_ok_and(|value| value == "1");
        assert!(!required, "{REQUIRE_CORPUS}=1, but there is no {missing}");
        skipped(&format!("there is no {missing}; {REQUIRE_CORPUS}=1 makes that a failure"));
        roots.clear();
    }
    if !roots.is_empty() {
        judge(&roots);
    }
}
