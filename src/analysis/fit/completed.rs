//! Completes a recording that ran out of memory with another recording of the same program, which has the missing
//! steps.

use super::align::{Request, StackNumbers, Values, align};
use super::scaling::have_same_lines;
use super::{LEAST_MATCHED, program, same_device};
use crate::allocator::SizeRules;
use crate::error::{Error, Result};
use crate::facts::device::{Device, Devices, ask_each};
use crate::model::bytes::Bytes;
use crate::model::{Action, HOST_DEVICE};
use crate::simulation::plans::{Above, DevicePlans, Failed, Need, PlanOptions, PlanReport, Reference, Sizes};
use crate::simulation::{DEFAULT_CONTEXT, Program, Simulator};
use std::collections::HashMap;

/// At most one request in this many may have another size in two runs of the same program: the loss of one is still live.
const MOST_OTHER: usize = 20;

/// Why there is no advice if the simulation does not fail like the other recording.
const FITS: &str = "in simulation, the run that finished fits the device on which the other one ran out of memory; how the \
                    two runs differ is unknown";

/// Whether a request was refused in a recording, on any device.
pub fn ran_out(devices: &Devices<'_>) -> bool {
    devices.all().iter().any(|device| device.track.count_of(Action::Oom) > 0)
}

/// Finds changes that make the program of a recording fit the device on which another recording of it, `failed`, ran
/// out of memory.
///
/// # Errors
/// If a device is named that the recording does not have, a recording cannot be simulated, or the two are not from the same
/// program: the error says what differs.
pub fn plans_beside(failed: &Devices<'_>, other: &Devices<'_>, options: &PlanOptions) -> Result<PlanReport> {
    let mut wanted = other.wanted(&options.devices)?;
    wanted.retain(|device| device.id() > HOST_DEVICE);
    let devices = ask_each(&wanted, |device| {
        let failed = same_device(device, failed);
        let failed = failed.ok_or_else(|| Error::Request("the devices of the two recordings differ".to_owned()))?;
        of_device(failed, device, options)
    })?;
    Ok(PlanReport { devices: devices.0 })
}

fn of_device(failed: &Device<'_>, other: &Device<'_>, options: &PlanOptions) -> Result<DevicePlans> {
    let simulated = |device: &Device<'_>| program(device).map_err(|because| Error::Request(because.to_owned()));
    let programs = [simulated(failed)?, simulated(other)?];
    let (compared, sizes) = compare((failed, &programs[0]), (other, &programs[1]))?;
    let mut options = options.clone();
    // The minimum that follows from a refused request is a safe assumption.
    let told = programs[0].refusals.iter().map(|&(_, bytes)| bytes).min();
    let is_told = options.capacity.is_none();
    if let (None, Some(told)) = (options.capacity, told) {
        let context = options.context.unwrap_or(DEFAULT_CONTEXT);
        (options.capacity, options.context) = (Some(told.saturating_add(context)), Some(context));
    }
    let mut plans = DevicePlans::resized(other, &options, sizes)?;
    plans.failed = Some(compared);
    let high = plans.as_it_is.as_ref().map(|plan| plans.measure(plan));
    let [of_failed, of_other] = programs;
    let simulator = Simulator::new(failed.track, of_failed.clone(), None, None);
    let finished = of_other.live_bytes(&SizeRules::device(&simulator.settings));
    plans.need = Need::between(&of_failed, &simulator, (Some(finished), high), Above::Recording(compared));
    if is_told {
        plans.context = None;
        if plans.fits {
            (plans.refused, plans.as_it_is) = (Some(FITS.to_owned()), None);
            plans.need = plans.need.map(|need| Need { high: None, above: Above::Nothing(FITS), ..need });
        }
    }
    Ok(plans)
}

/// Compares the failed recording with the other one, up to the failure: how much of it the other one repeats, and the sizes that
/// requests of the other one have in the failed run, if they differ.
fn compare(failed: (&Device<'_>, &Program), other: (&Device<'_>, &Program)) -> Result<(Failed, Option<Sizes>)> {
    let asked = |by_line: bool| -> Vec<Vec<Request>> {
        let runs = [(failed.0.track, failed.1), (other.0.track, other.1)];
        let mut numbers = StackNumbers::without_launchers(by_line, runs);
        let mut before = numbers.requests(failed.0.track, failed.1);
        let refused = failed.1.refusals.first().map_or(u32::MAX, |&(entry, _)| entry);
        before.retain(|request| failed.1.steps[request.step as usize].entry < refused);
        vec![before, numbers.requests(other.0.track, other.1)]
    };
    let by_line = asked(true);
    let asked = if have_same_lines(&by_line) { by_line } else { asked(false) };
    let (before, all) = (&asked[0], &asked[1]);
    let mut pairs = align(before, all, Values { first: 1, second: 1 });
    if let Some(values) = usual_ratio(&pairs, before, all) {
        pairs = align(before, all, values);
    }
    let differs = |a: usize, b: usize| match (before.get(a), all.get(b)) {
        (Some(a), Some(b)) => {
            format!(
                "; the first request that differs is {} in the run that ran out of memory and {} in the run that finished",
                place(failed, a),
                place(other, b)
            )
        }
        (Some(a), None) => {
            format!("; the first request that occurs only in the run that ran out of memory is {}", place(failed, a))
        }
        (None, _) => String::new(),
    };
    if pairs.len() as u64 * 100 < before.len() as u64 * LEAST_MATCHED {
        let first = pairs.iter().zip(0..).find(|&(&pair, place)| pair != (place, place));
        let first = first.map_or(pairs.len(), |(_, place)| place as usize);
        return Err(Error::Request(format!(
            "the two recordings are not of the same program: {} of the {} requests before the failed one are in both{}",
            pairs.len(),
            before.len(),
            differs(first, first)
        )));
    }
    let is_equal = |&&(a, b): &&(u32, u32)| before[a as usize].bytes == all[b as usize].bytes;
    let equal = pairs.iter().filter(is_equal).count();
    let is_resized = (pairs.len() - equal) * MOST_OTHER > pairs.len();
    let sizes = is_resized.then(|| {
        let allocation = |request: &Request| other.1.steps[request.step as usize].allocation;
        let references = all.iter().map(|request| Reference::of(other.0, allocation(request), request.bytes));
        let sizes = pairs.iter().map(|&(a, b)| (allocation(&all[b as usize]), before[a as usize].bytes));
        Sizes::at_most(references, sizes)
    });
    Ok((Failed { requests: before.len(), equal, is_resized }, sizes))
}

/// The ratio in which most requests of different sizes differ: that of the batches, which identifies requests of backward. `None`
/// if most sizes are equal.
fn usual_ratio(pairs: &[(u32, u32)], first: &[Request], second: &[Request]) -> Option<Values> {
    let mut times: HashMap<(u64, u64), usize> = HashMap::new();
    for (first, second) in pairs.iter().map(|&(a, b)| (first[a as usize].bytes, second[b as usize].bytes)) {
        let divisor = greatest_common_divisor(first, second);
        if first != second && divisor > 0 {
            *times.entry((first / divisor, second / divisor)).or_default() += 1;
        }
    }
    let differ: usize = times.values().sum();
    let ((first, second), _) = times.into_iter().max_by_key(|&(ratio, times)| (times, std::cmp::Reverse(ratio)))?;
    (differ * MOST_OTHER > pairs.len()).then_some(Values { first, second })
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    let (mut one, mut other) = (one, other);
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// A request: its entry, its bytes and its line.
fn place((device, program): (&Device<'_>, &Program), request: &Request) -> String {
    let entry = program.steps[request.step as usize].entry;
    format!("{} at {} (entry {entry})", Bytes(request.bytes), device.sites().site(device.track.stack(entry)))
}
