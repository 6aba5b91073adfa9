//! What people type, and files write, as text: settings, instants, changes of a program, and budgets. An error is one line.

use memviz::Recording;
use memviz::analysis::check::config;
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::simulate::SimulateOptions;
use memviz::facts::time::when::When;
use memviz::input::ReadOptions;
use memviz::input::alloc_conf::{self, Rest};
use memviz::model::AllocatorSettings;
use memviz::model::bytes::Bytes;
use memviz::simulation::changes::Change;
use std::fmt::Display;
use std::io::Cursor;
use std::sync::LazyLock;

/// A small training, and a recording with failed requests.
static RECORDINGS: LazyLock<[Recording; 2]> = LazyLock::new(|| {
    let files: [&[u8]; 2] = [
        include_bytes!("../../fixtures/snapshots/mlp_keep/snapshot.pickle.gz"),
        include_bytes!("../../fixtures/snapshots/oom/snapshot.pickle.gz"),
    ];
    files.map(|file| Recording::read(Cursor::new(file), &ReadOptions::default()).expect("fixtures are recordings"))
});

/// A text as a `memviz.toml`.
pub fn config(text: &str) {
    for text in [text, &format!("[[budget]]\ninput = \"a\"\n{text}")] {
        for capacity in [None, Some(Bytes(80 << 30))] {
            one_line(config::read(text, capacity));
        }
    }
}

/// A text as allocator settings, typed and recorded. What is taken as typed is understood where it is recorded.
///
/// # Panics
/// When it is not.
pub fn settings(text: &str) {
    let mut recorded = AllocatorSettings { alloc_conf: text.to_owned(), ..AllocatorSettings::default() };
    let problems = alloc_conf::read(text, &mut recorded);
    for rest in [Rest::AfterLast, Rest::FromLast] {
        if let Some(parsed) = one_line(alloc_conf::parse(text, rest)) {
            assert!(problems.is_empty() || parsed.other_backend, "{text:?}: {problems:?}");
            assert!(alloc_conf::contradictions(&parsed).is_empty(), "{text:?} contradicts itself");
        }
    }
    assert!(problems.iter().all(|problem| problem.lines().count() <= 1), "{problems:?}");
    let _ = alloc_conf::contradictions(&recorded);
}

/// A text as an instant, looked at.
pub fn when(text: &str) {
    let Some(when) = one_line(text.parse::<When>()) else { return };
    for recording in &*RECORDINGS {
        one_line(recording.peak(&PeakOptions::default().at(Some(when.clone())).top(Some(3))));
    }
}

/// Each line of a text as a change of a program, played.
pub fn changes(text: &str) {
    let changes: Vec<Change> = text.lines().take(4).filter_map(|line| one_line(line.parse())).collect();
    let options = SimulateOptions::default().changes(changes).capacity(Some(8 << 30));
    one_line(RECORDINGS[0].simulate(&options));
}

fn one_line<T, E: Display>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| assert!(error.to_string().lines().count() <= 1, "an error is one line: {error}")).ok()
}
