//! The JSON of `memviz fix`.

use super::unified;
use crate::analysis::fix::{FixReport, ProposedFix};
use crate::report::common::fixes::AdviceRow;
use crate::report::common::json::{InputHead, keys};
use crate::report::{Answer, Source};
use crate::wire::SCHEMA_VERSION;

keys! { schema
    /// `memviz fix`.
    pub struct FixAnswer<'a>(source: Source<'a>, report: &FixReport) {
        /// Version of the keys: see `memviz schema`.
        pub schema_version: u32 = SCHEMA_VERSION,
        /// The subcommand.
        pub command: &'static str = FixReport::COMMAND,
        /// The file.
        pub input: InputHead<'a> = InputHead::of(source),
        /// The fixes of all devices, in the order of the advice.
        pub fixes: Vec<FixRow> = report.fixes.iter().map(FixRow::of).collect(),
        /// The changes of all written fixes as a unified diff; empty if none was written.
        pub diff: String = unified::diff(report),
    }
}

keys! { schema
    /// A fix, and whether the diff contains it.
    pub struct FixRow(fix: &ProposedFix) {
        /// Its number, which `--only` takes.
        pub number: usize = fix.number,
        /// Device.
        pub device: i32 = fix.device,
        /// The changed file, below the folder; null if the fix was not written.
        pub file: Option<String> = fix.written.as_ref().ok().map(|written| written.path.clone()),
        /// The change that the diff makes: that of the advice, or of one of its alternatives; null if the fix was not written.
        pub change: Option<String> = fix.written.as_ref().ok().map(|written| written.change.clone()),
        /// Why the fix was not written; null if it was.
        pub reason: Option<String> = fix.written.as_ref().err().cloned(),
        /// The fix as other answers describe it.
        pub advice: AdviceRow = AdviceRow::of(&fix.advice),
    }
}
