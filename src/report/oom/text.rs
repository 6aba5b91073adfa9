//! `memviz oom` as text.

use super::words as oom_words;
use crate::analysis::oom::{Cause, DeviceOoms, Oom, OomReport};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::fit::shorten;
use crate::report::common::next::Next;
use crate::report::common::notes::{self, device_name, safe};
use crate::report::common::text::TextStyle;
use crate::report::common::words;
use crate::report::fit::single::words as plan;
use std::io::{self, Write};

/// Indent of the frames of a request.
const FRAME_INDENT: &str = "      ";
/// Failed requests that are told in full; of a program that catches hundreds the first ones tell enough.
const IN_FULL: usize = 10;

pub(crate) fn write(text: TextStyle, source: Source<'_>, report: &OomReport, out: &mut dyn Write) -> io::Result<()> {
    text.file_notes(source, out)?;
    if report.devices.is_empty() {
        return writeln!(out, "{}: no memory was allocated on any device while recording", safe(source.path));
    }
    if report.count() == 0 {
        let (why, shown) = (notes::no_oom(source.recording, report.elsewhere), oom_words::instead(report));
        text.words("", &format!("{why}; showing {shown} instead:"), out)?;
    }
    for (index, device) in report.devices.iter().enumerate() {
        if index > 0 || report.count() == 0 {
            writeln!(out)?;
        }
        text.oom_device(device, source.recording.snapshot.notes.format.has_segments(), out)?;
    }
    report.comparison.iter().try_for_each(|comparison| text.comparison(comparison, out))?;
    text.advice(source, out)?;
    text.next(&next(source, report), out)
}

/// What to type next, by why the first request failed.
fn next(source: Source<'_>, report: &OomReport) -> Vec<Next> {
    let Some(first) = report.devices.iter().flat_map(|device| &device.ooms).next() else { return Vec::new() };
    let settings = || Next::new("simulate", &[source.path], "--sweep", "what it needs under other allocator settings");
    let fit = |about: &str| Next::new("fit", &[source.path], "", about);
    let has_plans = report.devices.iter().any(|device| device.plans.is_some());
    let can_plan = report.devices.iter().any(|device| device.can_plan);
    match first.cause {
        Cause::Capacity if has_plans => {
            vec![fit("what would free enough memory, and the Python code for it"), settings()]
        }
        Cause::Capacity if can_plan => vec![fit("whether changes to the program make room"), settings()],
        Cause::Capacity => vec![settings()],
        Cause::Fragmentation => {
            let pins = Next::new("fragmentation", &[source.path], "--at oom", "which lines pin free memory");
            vec![settings(), pins]
        }
        Cause::OtherProcess | Cause::Limit | Cause::Unknown => Vec::new(),
    }
}

impl TextStyle {
    fn oom_device(&self, device: &DeviceOoms, is_snapshot: bool, out: &mut dyn Write) -> io::Result<()> {
        if let Some(peak) = &device.peak {
            return self.peak_device(peak, is_snapshot, out);
        }
        let name = device_name(device.device);
        if device.ooms.is_empty() {
            writeln!(out, "{}: {}", self.bold(&name), notes::failures(0))?;
        }
        for (index, oom) in device.ooms.iter().take(IN_FULL).enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            let title = format!("{name}: out of memory, {} requested", Bytes(oom.request.bytes));
            self.heading(&title, &notes::position(&oom.moment, device.entries, &device.completeness), out)?;
            self.notes(&notes::ooms(device), out)?;
            self.oom(oom, out)?;
        }
        self.cures(&device.cures, device.failed > 0, out)?;
        if let Some(room) = device.plans.as_ref().and_then(plan::room) {
            writeln!(out, "\n{}", self.bold("What would make room"))?;
            self.item(&room, out)?;
        }
        let more = device.failed.saturating_sub(device.ooms.len().min(IN_FULL));
        if more > 0 {
            writeln!(out)?;
            self.words("", &format!("{name}: {} later; --format csv lists all", notes::failures(more)), out)?;
        }
        Ok(())
    }

    fn oom(&self, oom: &Oom, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "  cause: {}", self.bold(oom.cause.name()))?;
        for evidence in &oom.evidence {
            self.item(&oom_words::evidence(oom, evidence).text, out)?;
        }
        writeln!(out)?;
        self.figure("requested", &Bytes(oom.request.bytes).to_string(), "", out)?;
        if oom.request.driver_bytes != oom.request.bytes {
            self.figure("new segment", &Bytes(oom.request.driver_bytes).to_string(), "", out)?;
        }
        self.figure("device free", &Bytes(oom.device_free).to_string(), "", out)?;
        self.figures(&oom.figures, out)?;
        let segments = words::count(oom.retry.segments, "segment");
        self.figure("freed by retry", &Bytes(oom.retry.bytes).to_string(), &segments, out)?;

        writeln!(out)?;
        self.words("  ", &format!("requested by {}, from {}", oom.request.site, oom_words::serving(oom)), out)?;
        let width = self.room(FRAME_INDENT.len());
        for frame in &oom.request.stack {
            writeln!(out, "{FRAME_INDENT}{}", self.dim(&shorten(&safe(frame), width)))?;
        }
        for line in oom_words::request(oom) {
            self.words("  ", &line, out)?;
        }
        if !oom.advice.is_empty() {
            writeln!(out, "\n{}", self.bold("What would and would not have helped"))?;
            for advice in &oom.advice {
                self.item(&oom_words::advice(oom, advice).text, out)?;
            }
        }
        writeln!(out, "\n{}", self.bold(&format!("What holds the memory, by {}", oom.attribution.by.name())))?;
        self.attribution(&oom.attribution, true, out)?;
        if oom.cause == Cause::Fragmentation {
            self.pinning(oom.attribution.by, &oom.pinning, out)?;
        }
        Ok(())
    }

    /// One of several statements.
    fn item(&self, statement: &str, out: &mut dyn Write) -> io::Result<()> {
        for (index, line) in self.broken(4, statement).iter().enumerate() {
            writeln!(out, "  {} {line}", if index == 0 { "-" } else { " " })?;
        }
        Ok(())
    }
}
