//! Tables with rows about devices.

use super::{Table, TableColumn as Column};
use crate::facts::device::Device;
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Groups, Holder};
use crate::facts::training::steps::Steps;
use crate::model::Action;
use crate::replay::{Allocation, Bound, Counters, History, Instant, Metric, NEVER};

fn steps_of<'d>(device: &'d Device<'_>) -> Option<&'d Steps> {
    device.steps().ok().filter(|steps| steps.are_steps())
}

/// A number for each row, always the device.
fn device_column(device: &Device<'_>, rows: usize) -> Column {
    Column::whole("device", std::iter::repeat_n(i64::from(device.id()), rows))
}

fn entry_before(instant: Instant) -> Option<i64> {
    History::entry_before(instant).filter(|_| instant != NEVER).map(i64::from)
}

pub(super) fn entries(device: &Device<'_>) -> Table {
    let (track, history) = (device.track, device.history());
    let rows = track.actions().len();
    let mut after: Vec<Counters> = Vec::with_capacity(rows);
    track.walk(|_, counters| after.push(*counters));
    let counter = |name, metric| {
        let is_known = history.completeness.bound(metric) != Some(Bound::Unknown);
        Column::maybe_rising(name, after.iter().map(|counters| is_known.then(|| counters.get(metric))))
    };
    let has_times = track.has_times();
    let actions = Action::ALL.map(|action| action.name().to_owned()).to_vec();
    let entries = || (0..rows).map(|entry| entry as u32);
    let addresses = entries().map(|entry| track.entry(entry).map_or(0, |entry| entry.addr));
    Table::new(
        rows,
        [
            device_column(device, rows),
            Column::rising("entry", 0..rows as i64),
            Column::maybe_rising("time_us", track.times().iter().map(|&time| has_times.then_some(time))),
            Column::text("action", actions, track.actions().iter().map(|&action| action as u32).collect()),
            Column::unsigned("addr", addresses),
            Column::unsigned("bytes", track.sizes().iter().copied()),
            Column::unsigned("stream", entries().map(|entry| track.context(entry).stream)),
            Column::whole("stack_id", track.stacks().iter().map(|stack| stack.index() as i64)),
            counter("allocated_after", Metric::Allocated),
            counter("active_after", Metric::Active),
            counter("requested_after", Metric::Requested),
            counter("reserved_after", Metric::Reserved),
        ],
    )
}

pub(super) fn allocations(device: &Device<'_>) -> Table {
    let (track, history) = (device.track, device.history());
    let all = &history.allocations;
    let rows = all.len();
    let peak = history.maxima[Metric::Allocated as usize].instant;
    let everything = Filter::default();
    let grouper = |by| Grouper::new(device, device.sites(), &everything, by);
    // Labels as in the rows of `peak --by`.
    let labels = |name, by| {
        let grouper = grouper(by);
        let mut groups = Groups::new(&grouper);
        let holders = (0..rows).map(|index| Holder::of_allocation(track, Metric::Allocated, index));
        let of_row: Vec<Option<u32>> = holders.map(|holder| Some(*groups.of(&holder?).first()? as u32)).collect();
        Column::maybe_text(name, groups.keys().map(|key| grouper.label(key, false)).collect(), of_row)
    };
    let steps = steps_of(device);
    let step = |made: &Allocation| Some(steps?.containing(History::entry_before(made.born)?)? as i64);
    let has_times = track.has_times();
    let time = |instant: Instant| {
        let entry = History::entry_before(instant).filter(|_| has_times && instant != NEVER)?;
        track.times().get(entry as usize).copied()
    };
    let stream = |(index, born): (usize, Instant)| match History::entry_before(born) {
        Some(entry) => track.context(entry).stream,
        None => history.baseline.get(index).map_or(0, |origin| origin.stream),
    };
    Table::new(
        rows,
        [
            device_column(device, rows),
            Column::rising("allocation", 0..rows as i64),
            Column::unsigned("addr", all.iter().map(|made| made.addr)),
            Column::unsigned("requested", all.iter().map(|made| made.requested)),
            Column::unsigned("bytes", all.iter().map(|made| made.size)),
            Column::maybe_rising("alloc_entry", all.iter().map(|made| entry_before(made.born))),
            Column::maybe_rising("free_requested_entry", all.iter().map(|made| entry_before(made.freed))),
            Column::maybe_rising("free_completed_entry", all.iter().map(|made| entry_before(made.completed))),
            Column::maybe_rising("alloc_us", all.iter().map(|made| time(made.born))),
            Column::maybe_rising("free_us", all.iter().map(|made| time(made.freed))),
            Column::unsigned("stream", all.iter().map(|made| made.born).enumerate().map(stream)),
            labels("pool", GroupBy::Pool),
            Column::whole("stack_id", (0..rows).map(|index| track.stack_of(index).index() as i64)),
            labels("site", GroupBy::Site),
            labels("category", GroupBy::Category),
            labels("phase", GroupBy::Phase),
            Column::maybe("step", all.iter().map(step)),
            Column::flags("live_at_peak", all.iter().map(|made| made.allocated_at(peak))),
            Column::flags("from_before", all.iter().map(Allocation::is_baseline)),
        ],
    )
}

pub(super) fn segments(device: &Device<'_>) -> Table {
    let all = &device.history().segments;
    Table::new(
        all.len(),
        [
            device_column(device, all.len()),
            Column::unsigned("addr", all.iter().map(|span| span.addr)),
            Column::unsigned("bytes", all.iter().map(|span| span.size)),
            Column::flags("expandable", all.iter().map(|span| span.expandable)),
            Column::maybe_rising("alloc_entry", all.iter().map(|span| entry_before(span.born))),
            Column::maybe_rising("free_entry", all.iter().map(|span| entry_before(span.gone))),
            Column::whole("stack_id", all.iter().map(|span| span.stack.index() as i64)),
        ],
    )
}

pub(super) fn steps(device: &Device<'_>) -> Table {
    let track = device.track;
    let steps = steps_of(device);
    let ends: &[Instant] = steps.map_or(&[], |steps| &steps.ends);
    let starts: Vec<Instant> = std::iter::once(0).chain(ends.iter().copied()).take(ends.len()).collect();
    let mut highest = vec![None::<i64>; ends.len()];
    let mut step = 0;
    track.walk(|instant, counters| {
        while ends.get(step).is_some_and(|&end| end < instant) {
            step += 1;
        }
        if let Some(highest) = highest.get_mut(step) {
            *highest = (*highest).max(Some(counters.allocated));
        }
    });
    let is_inferred = steps.is_some_and(|steps| steps.source.is_inferred());
    let is_empty = |step: usize| starts[step] == ends[step];
    let rows = 0..ends.len();
    Table::new(
        ends.len(),
        [
            device_column(device, ends.len()),
            Column::rising("step", rows.clone().map(|step| step as i64 + 1)),
            Column::maybe_rising("first_entry", rows.clone().map(|at| (!is_empty(at)).then(|| i64::from(starts[at])))),
            Column::maybe_rising("last_entry", rows.clone().map(|at| entry_before(ends[at]).filter(|_| !is_empty(at)))),
            Column::maybe_rising("allocated_max", highest),
            Column::flags("inferred", rows.map(|_| is_inferred)),
        ],
    )
}
