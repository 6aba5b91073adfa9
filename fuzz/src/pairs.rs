//! Two files, each a changed recording: compared, as ranks of one run, as runs of two batch sizes, and one as the baseline of
//! the other.

use super::mutation;
use arbitrary::Arbitrary;
use memviz::Recording;
use memviz::analysis::check::{Budgets, CheckOptions, CheckVerdict, EarlierRun};
use memviz::analysis::diff::DiffReport;
use memviz::analysis::fit::{FitInput, FitOptions, FitReport};
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::ranks::{RanksReport, SummaryOptions, rank_numbers, summarize};
use memviz::input::ReadOptions;
use memviz::replay::Metric;
use memviz::report::{AnswerFormat, Source, Sources, TextStyle};
use memviz::wire::rank_lines::{read_lines, write_line};
use std::io::Cursor;

/// Both files.
#[derive(Arbitrary, Debug)]
pub struct Plan {
    base: mutation::Plan,
    new: mutation::Plan,
    top: u8,
}

const PATHS: [&str; 2] = ["rank0.pickle", "rank1.pickle"];
const STYLE: TextStyle = TextStyle { width: Some(80), color: false, advice: true, program: None, all: false };

/// Compares them.
///
/// # Panics
/// When answers contradict one another.
pub fn run(plan: &Plan) {
    let [Some(base), Some(new)] = [&plan.base, &plan.new].map(open) else { return };
    let sides = [&base, &new].map(|recording| recording.diff_input(&PeakOptions::default()).ok());
    if let [Some(left), Some(right)] = &sides {
        let there = DiffReport::of(left, right, Some(plan.top.into()));
        let back = DiffReport::of(right, left, Some(plan.top.into()));
        for device in &there.devices {
            let other = back.devices.iter().find(|other| other.base.peak.device == device.new.peak.device);
            let other = other.expect("a device of both is compared both ways");
            assert_eq!(device.delta_bytes, other.delta_bytes.wrapping_neg(), "growth there is shrinkage back");
        }
        let source = |at: usize, recording| Source { path: PATHS[at], recording };
        for format in AnswerFormat::ALL {
            let sources = Sources { base: source(0, &base), new: source(1, &new) };
            format.write(&there, sources, STYLE, &mut Vec::new()).expect("there is room");
        }
    }
    rank([&base, &new]);
    fit([&base, &new]);
    judge(&base, &new);
}

fn open(plan: &mutation::Plan) -> Option<Recording> {
    let mut options = ReadOptions::default();
    options.on_one_thread = true;
    Recording::read(Cursor::new(plan.file()), &options).ok()
}

/// What is summarized and written is what is read.
fn rank(recordings: [&Recording; 2]) {
    let numbers = rank_numbers(&PATHS);
    let mut lines = Vec::new();
    for ((recording, number), path) in recordings.into_iter().zip(numbers).zip(PATHS) {
        lines.extend(summarize(path, number, &recording.devices(), &SummaryOptions::default()).unwrap_or_default());
    }
    let mut written = Vec::new();
    for line in &lines {
        write_line(line, &mut written).expect("there is room");
    }
    let (read, problem) = read_lines(&*written, Metric::Allocated, &[]);
    assert!(problem.is_none() && read.len() == lines.len(), "{problem:?} in {}", String::from_utf8_lossy(&written));
    let report = RanksReport::of(read, Metric::Allocated);
    for format in AnswerFormat::ALL {
        format.write(&report, (), STYLE, &mut Vec::new()).expect("there is room");
    }
}

/// What a third batch size would need. Errors are fine.
fn fit(recordings: [&Recording; 2]) {
    let devices = recordings.map(Recording::devices);
    let inputs = [FitInput { value: 2, devices: &devices[0] }, FitInput { value: 4, devices: &devices[1] }];
    let options = FitOptions::default().at(vec![3, 8]).capacity(Some(1 << 30));
    let _ = FitReport::of("batch", &inputs, &options);
}

/// A recording has not grown over itself.
fn judge(base: &Recording, new: &Recording) {
    let Ok(earlier) = EarlierRun::of(&base.devices()) else { return };
    let options = CheckOptions::default().budgets(vec![Budgets::default().baseline(Some(earlier))]);
    let _ = new.check(&options);
    let itself = base.check(&options);
    assert_ne!(itself.verdict(), CheckVerdict::Failed, "{:?}", itself.checks);
}
