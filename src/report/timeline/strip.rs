//! The whole run as a thin strip, above the enlarged step.

use super::scale::{at, column};
use super::stack::outline;
use crate::analysis::timeline::Run;
use crate::analysis::timeline::XAxis;
use crate::replay::Metric;
use crate::report::common::notes;
use crate::report::common::picture::palette;
use crate::report::common::picture::plot::{LEFT, PLOT_WIDTH, vertical};
use crate::report::common::picture::shape::{Anchor, px, rectangle, text, titled};
use crate::report::common::words::count;
use svg::node::element::{Circle, Group, Path};

/// Height of the strip, and of the line of text above it.
const HEIGHT: f64 = 44.0;
const TITLE: f64 = 17.0;
/// The most steps whose ends are marked.
const STEPS: usize = 120;

/// The strip, and its height including the text above it.
pub(super) fn draw(run: &Run, metric: Metric) -> (Group, f64) {
    let mut group = Group::new();
    let (first, last) = run.axis.range();
    let length = match run.axis.counts {
        XAxis::Time => notes::duration(last.saturating_sub(first)),
        XAxis::Entry => format!("{} entries", last.saturating_sub(first)),
    };
    let steps = count(run.steps.len() as u64, "step");
    let name = notes::safe(&run.name);
    let shown = if run.step.is_some() { name } else { format!("what follows {name}") };
    let title = format!("the whole recording: {steps}, {length}; {shown} is shown below");
    group = group.add(text(f64::from(LEFT), TITLE - 7.0, Anchor::Start, palette::MUTED, &title));
    let level = |column: &crate::analysis::timeline::Column| column.counters.get(metric).max(0) as f64;
    let highest = run.columns.iter().map(level).fold(1.0, f64::max);
    let bottom = TITLE + HEIGHT;
    let edge: Vec<f64> = run.columns.iter().map(|column| bottom - HEIGHT * level(column) / highest).collect();
    let area = outline(&edge, bottom) + &format!("V{}z", px(bottom));
    group = group.add(Path::new().set("d", area).set("fill", palette::OTHER.light).set("fill-opacity", "0.55"));
    let axis = rectangle(f64::from(LEFT), bottom, f64::from(PLOT_WIDTH), 1.0, palette::MUTED);
    group = group.add(axis);
    if run.steps.len() <= STEPS {
        for &end in &run.steps {
            group = group.add(vertical(at(&run.axis, end), bottom, bottom + 3.0, palette::MUTED));
        }
    }
    let (left, right) = window(run);
    let frame = rectangle(left, TITLE, right - left, HEIGHT, palette::TEXT).set("fill-opacity", "0.12");
    group = group.add(frame.set("stroke", palette::TEXT.light).set("stroke-width", "0.8"));
    let peak = Circle::new().set("cx", px(at(&run.axis, run.peak))).set("cy", px(TITLE)).set("r", "2.5");
    group = group.add(titled("the peak").add(peak.set("fill", palette::TEXT.light)));
    let mut drawn = f64::MIN;
    for oom in &run.ooms {
        let x = at(&run.axis, oom.x);
        if x - drawn >= 3.0 {
            drawn = x;
            group = group.add(titled("OOM").add(vertical(x, TITLE, bottom, palette::ALARM).set("stroke-width", "1.5")));
        }
    }
    (group, bottom + 4.0)
}

/// The extent on the strip of the step that is shown enlarged, visible however short it is.
fn window(run: &Run) -> (f64, f64) {
    let (left, right) = (at(&run.axis, run.shown.0), at(&run.axis, run.shown.1));
    let end = column(1, 1);
    let right = right.max(left + 3.0).min(end);
    (left.min(right - 3.0), right)
}

/// Lines from the step on the strip, which ends at `from`, to the plot below.
pub(super) fn lead(run: &Run, from: f64, to: f64) -> Path {
    let (left, right) = window(run);
    let line = |x: f64, edge: u32| format!("M{} {}L{edge} {}", px(x), px(from - 4.0), px(to));
    Path::new()
        .set("d", line(left, LEFT) + &line(right, LEFT + PLOT_WIDTH))
        .set("fill", "none")
        .set("stroke", palette::MUTED.light)
        .set("stroke-width", "0.6")
        .set("stroke-dasharray", "2 3")
}
