//! Tables that all devices share.

use super::{Table, TableColumn as Column};
use crate::facts::device::Devices;
use crate::model::{StackId, StrId};
use foldhash::fast::RandomState;
use indexmap::IndexSet;

#[derive(Default)]
struct Texts(IndexSet<StrId, RandomState>);

impl Texts {
    fn number(&mut self, text: StrId) -> u32 {
        self.0.insert_full(text).0 as u32
    }

    fn column(self, name: &'static str, recording: &Devices<'_>, rows: Vec<u32>) -> Column {
        let strings = &recording.snapshot().strings;
        Column::text(name, self.0.into_iter().map(|id| strings.get(id).to_owned()).collect(), rows)
    }
}

pub(super) fn stacks(recording: &Devices<'_>) -> Table {
    let stacks = &recording.snapshot().stacks;
    let (mut ids, mut depths, mut frames) = (Vec::new(), Vec::new(), Vec::new());
    for id in 0..stacks.len() {
        for (depth, frame) in stacks.frame_ids(StackId(id as u32)).iter().enumerate() {
            ids.push(id as i64);
            depths.push(depth as i64);
            frames.push(frame.index() as i64);
        }
    }
    Table::new(
        ids.len(),
        [Column::rising("stack_id", ids), Column::rising("depth", depths), Column::whole("frame_id", frames)],
    )
}

pub(super) fn frames(recording: &Devices<'_>) -> Table {
    let all: Vec<_> = recording.snapshot().stacks.all_frames().collect();
    let (mut files, mut names) = (Texts::default(), Texts::default());
    let of_file = all.iter().map(|frame| files.number(frame.filename)).collect();
    let of_name = all.iter().map(|frame| names.number(frame.name)).collect();
    // Compiled code has no line.
    let lines = all.iter().map(|frame| i64::try_from(frame.line).ok());
    Table::new(
        all.len(),
        [
            Column::rising("frame_id", 0..all.len() as i64),
            files.column("file", recording, of_file),
            Column::maybe("line", lines),
            names.column("name", recording, of_name),
        ],
    )
}

pub(super) fn annotations(recording: &Devices<'_>) -> Table {
    let ranges = &recording.annotations().ranges;
    let mut names = Texts::default();
    let of_name = ranges.iter().map(|range| names.number(range.name)).collect();
    Table::new(
        ranges.len(),
        [
            names.column("name", recording, of_name),
            Column::maybe_rising(
                "start_us",
                ranges.iter().map(|range| Some(range.start_us).filter(|&at| at != i64::MIN)),
            ),
            Column::maybe_rising("end_us", ranges.iter().map(|range| Some(range.end_us).filter(|&at| at != i64::MAX))),
            Column::whole("depth", ranges.iter().map(|range| range.depth as i64)),
        ],
    )
}
