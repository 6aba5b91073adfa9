//! Sentences about runs at other numbers, the same in every format.

use crate::analysis::fit::{Check, DeviceFit, Doubt, Largest, Matching, Mismatch, Prediction, Refusal};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::notes;
use crate::report::common::words::{count, kept, listed, range};
use crate::simulation::Trust;

/// The first line about a device, without its name.
pub fn headline(parameter: &str, device: &DeviceFit) -> String {
    if let Some(refusal) = &device.refused {
        return format!("no prediction: {}", refused(parameter, refusal));
    }
    let figures = figures(parameter, device);
    if device.changes.is_empty() { figures } else { format!("with {}: {figures}", device.changes.join(", ")) }
}

fn figures(parameter: &str, device: &DeviceFit) -> String {
    match (device.largest, device.capacity) {
        (Some(largest), Some(capacity)) => {
            let capacity = Bytes(capacity);
            let tokens = device.tokens.map_or(String::new(), |tokens| format!(" with {tokens} tokens in the cache"));
            match largest {
                Largest::UpTo { value, .. } if device.is_far(value) => {
                    format!(
                        "the largest value of {parameter} that fits in {capacity}{tokens} is about {} ({})",
                        two_digits(value),
                        not_verified(parameter, device, value)
                    )
                }
                Largest::UpTo { value, fails } => {
                    format!(
                        "{parameter} {value} is the largest value that fits in {capacity}{tokens}; {fails} does not fit"
                    )
                }
                Largest::None { fails } => format!("not even {parameter} {fails} fits in {capacity}{tokens}"),
                Largest::Unlimited { tried } => {
                    format!("memory does not grow with {parameter}: even {tried} fits in {capacity}{tokens}")
                }
            }
        }
        _ => match asked(device) {
            Some(prediction) => format!(
                "the predicted maxima for {parameter}={} are {} reserved and {} allocated",
                prediction.value,
                reserved(prediction),
                allocated(prediction)
            ),
            None => format!("memory at other values of {parameter}"),
        },
    }
}

/// A number far from the recorded ones, with two digits: more digits would suggest a certainty that does not exist.
pub(super) fn two_digits(value: u64) -> u64 {
    let unit = 10u64.pow(value.max(1).ilog10().saturating_sub(1));
    value / unit * unit
}

/// The value to record so that a number is no longer far from the recorded ones: the geometric mean of the two, rounded to a power of two.
fn not_verified(parameter: &str, device: &DeviceFit, value: u64) -> String {
    let largest = device.points.iter().map(|point| point.value).max().unwrap_or(1).max(1);
    let between = (largest as f64 * value as f64).sqrt() as u64;
    let near = between.max(1).next_power_of_two();
    format!(
        "simulated: {value}, far from the recorded {largest}; a recording with {parameter}={} would narrow it down",
        if near - between > between / 2 { near / 2 } else { near }
    )
}

/// The largest number that fits, in short.
#[cfg(feature = "plot")]
pub(crate) fn largest(device: &DeviceFit, value: u64) -> String {
    if device.is_far(value) { format!("about {}, not verified", two_digits(value)) } else { format!("{value} fits") }
}

/// The prediction that was requested: the largest number beyond those recorded.
fn asked(device: &DeviceFit) -> Option<&Prediction> {
    device.predictions.iter().rfind(|prediction| !prediction.is_recorded)
}

/// Why there is no prediction.
pub fn refused(parameter: &str, refusal: &Refusal) -> String {
    match refusal {
        Refusal::NotSimulated(value, because) => format!("{parameter} {value}: {because}"),
        Refusal::OutOfMemory(value) => format!(
            "the run with {parameter} {value} ran out of memory: what would have followed is unknown; record a run with a \
             smaller value that finishes"
        ),
        Refusal::NoDevice(value) => format!("{parameter} {value} was not recorded on this device"),
        Refusal::Differ(mismatch) => differ(parameter, mismatch),
        Refusal::Change(change, because) => format!("{change}: {because}"),
        Refusal::Tokens(because) => (*because).to_owned(),
        Refusal::Settings(because) => format!("the settings cannot be simulated: {because}"),
    }
}

fn differ(parameter: &str, mismatch: &Mismatch) -> String {
    let Mismatch { values: (first, second), matching, first: places } = mismatch;
    let mut text = format!(
        "{parameter}={first} and {parameter}={second} have too little in common: {} of {} match",
        matching.matched,
        count(matching.longest(), "allocation")
    );
    if let Some([a, b]) = places {
        let place = |(entry, bytes, site): &(u32, u64, String)| format!("{} at {site} (entry {entry})", Bytes(*bytes));
        text +=
            &format!("; the first allocation that differs is {} in one run and {} in the other", place(a), place(b));
    }
    text
}

/// The recorded figures, and how well they match.
pub fn basis(parameter: &str, device: &DeviceFit) -> Vec<String> {
    let mut lines = Vec::new();
    for (pair, matching) in device.points.windows(2).zip(&device.matching) {
        lines.push(matched(parameter, (pair[0].value, pair[1].value), matching));
    }
    if !device.changes.is_empty() {
        lines.push(
            "the recordings were made without the changes; all figures below include them and are predicted".to_owned(),
        );
    }
    lines.extend(device.assumptions.iter().map(|assumption| format!("assumed: {assumption}")));
    lines
}

fn matched(parameter: &str, (first, second): (u64, u64), matching: &Matching) -> String {
    let allocations = count(matching.matched, "allocation");
    match matching.alone {
        (0, 0) => {
            format!(
                "with {parameter}={first} and {parameter}={second}, the program makes {allocations} in the same order"
            )
        }
        (a, b) => {
            format!(
                "with {parameter}={first} and {parameter}={second}: {allocations} in both, {a} only in the former, {b} only in the latter"
            )
        }
    }
}

/// The simulated settings.
pub fn settings(device: &DeviceFit) -> String {
    let name = match device.alloc_conf.trim() {
        "" => "defaults".to_owned(),
        conf => conf.to_owned(),
    };
    let whose = if device.is_default_assumed {
        "settings (assumed: none were recorded)"
    } else if device.is_recorded {
        "recorded settings"
    } else {
        "settings"
    };
    match device.capacity {
        Some(capacity) => {
            let kept = device.context.map_or(String::new(), |context| format!("; {}", kept(capacity, context)));
            format!("{whose}: {name}; simulated device: {} for the allocator{kept}", Bytes(capacity))
        }
        None => format!("{whose}: {name}"),
    }
}

/// How the prediction of a recorded run compares with the recording.
pub fn check(parameter: &str, check: &Check) -> String {
    let Check { predicted, measured } = check;
    let off = |simulated: u64, recorded: i64| (simulated as i64).wrapping_sub(recorded);
    let allocated = off(predicted.outcome.max_allocated, measured.max_allocated);
    let reserved = off(predicted.outcome.max_reserved, measured.max_reserved);
    let value = measured.value;
    if allocated == 0 && reserved == 0 {
        return format!("{parameter} {value}, predicted from the smaller ones, matches its recording to the byte");
    }
    format!(
        "{parameter} {value}, predicted from the smaller ones, differs from its recording: allocated by {}, reserved by {}",
        difference(allocated, measured.max_allocated),
        difference(reserved, measured.max_reserved)
    )
}

fn difference(bytes: i64, of: i64) -> String {
    let percent = if of == 0 { 0.0 } else { bytes as f64 * 100.0 / of as f64 };
    format!("{} ({percent:+.2}%)", notes::signed(bytes))
}

/// What the columns of bytes are.
pub const COLUMNS: &str = "allocated and reserved: max_memory_allocated() and max_memory_reserved()";

/// Notes about one device, one line each.
pub fn limits(parameter: &str, device: &DeviceFit) -> Vec<String> {
    let mut lines: Vec<String> = device.doubts.iter().map(|&it| doubt(parameter, it)).collect();
    // Each doubt once, with all values that it concerns.
    let mut about: Vec<(Doubt, Vec<String>)> = Vec::new();
    for prediction in &device.predictions {
        for &it in &prediction.doubts {
            match about.iter_mut().find(|(other, _)| *other == it) {
                Some((_, values)) => values.push(prediction.value.to_string()),
                None => about.push((it, vec![prediction.value.to_string()])),
            }
        }
    }
    lines.extend(about.iter().map(|(it, values)| format!("{parameter} {}: {}", listed(values), doubt(parameter, *it))));
    lines
}

/// Why a prediction is not certain.
pub fn doubt(parameter: &str, doubt: Doubt) -> String {
    match doubt {
        Doubt::BaseOfOne => format!("a recording at {parameter} 1 is a poor base: it has no copies or broadcasts"),
        Doubt::StartsLate(value) => {
            format!(
                "the recording of {parameter} {value} starts late: what existed before is assumed not to grow with {parameter}"
            )
        }
        Doubt::NotComplete(value) => {
            format!("the recording of {parameter} {value} is not complete, or contradicts itself")
        }
        Doubt::NotReproduced(value) => {
            format!("the simulation of {parameter} {value} does not reproduce its recording exactly")
        }
        Doubt::Unmatched(bytes) => {
            format!("at any one time, up to {} belongs to requests that only one recording contains", Bytes(bytes))
        }
        Doubt::WeakRule(bytes) => format!(
            "at any one time, up to {} is neither constant nor proportional to {parameter}; one more recording would show how it grows",
            Bytes(bytes)
        ),
        Doubt::Far => "far from the recorded values, where kernels may need different workspaces".to_owned(),
        Doubt::Below => "below the recorded values, where kernels may need different workspaces".to_owned(),
        Doubt::PerhapsSums => {
            "sums over this many rows may need buffers that no recording shows; simulated with and without them"
                .to_owned()
        }
        Doubt::OneRecording => format!(
            "a single recording does not show what grows with {parameter}; low end: only the memory that forward keeps grows in \
             proportion to it; high end: everything grows except what the model and the optimizer own; both ends are widened by 5%; for 13 \
             programs the range contained the measured figures in 25 of 26 predictions at twice the batch size, and in 34 of \
             39 at four times the batch size"
        ),
        Doubt::OtherOrder => {
            "kernels needed different buffers in one of the recordings; simulated with either set of buffers".to_owned()
        }
        Doubt::Placement => "the driver's placement of segments is unknown; four placements were simulated".to_owned(),
    }
}

/// How far you can trust a row.
pub fn trust(device: &DeviceFit, prediction: &Prediction) -> &'static str {
    if prediction.is_recorded && device.is_recorded { "recorded" } else { prediction.trust.name() }
}

/// Why a prediction is not exact.
pub fn because(parameter: &str, device: &DeviceFit, prediction: &Prediction) -> String {
    if prediction.trust == Trust::Exact {
        return String::new();
    }
    let doubts: Vec<String> = device.doubts.iter().chain(&prediction.doubts).map(|&it| doubt(parameter, it)).collect();
    if !doubts.is_empty() {
        return doubts.join("; ");
    }
    let values: Vec<String> = device.points.iter().map(|point| point.value.to_string()).collect();
    format!("predicted from {parameter} {}", listed(&values))
}

/// The maximum of allocated memory, as a range if it is not known exactly; empty if the simulation ends early.
pub fn allocated(prediction: &Prediction) -> String {
    match prediction.allocated_range {
        _ if !prediction.fits() => "-".to_owned(),
        Some((least, most)) => range(least, most),
        None => Bytes(prediction.outcome.max_allocated).to_string(),
    }
}

/// The maximum of reserved memory, as a range if it is not known exactly; empty if the simulation ends early.
pub fn reserved(prediction: &Prediction) -> String {
    match prediction.reserved_range {
        _ if !prediction.fits() => "-".to_owned(),
        Some((least, most)) => range(least, most),
        None => Bytes(prediction.outcome.max_reserved).to_string(),
    }
}

/// Whether a prediction fits the device; empty if none was named.
pub fn fits(device: &DeviceFit, prediction: &Prediction) -> &'static str {
    match device.capacity {
        None => "",
        Some(_) if prediction.fits() => "yes",
        Some(_) => "no",
    }
}

/// Where the most memory is allocated.
pub fn peak(parameter: &str, value: u64, bytes: u64) -> String {
    format!("at {parameter} {value}, {} is allocated at the peak", Bytes(bytes))
}

/// What a prediction does not include.
pub const PREDICTED: &str = "predicted: sizes are computed from the recorded ones; buffers that kernels allocate only at \
                             other sizes are not included";

/// The meaning of the star after lines.
pub const INFERRED: &str = "* inferred: backward has no Python frames";

/// Notes about the files.
pub fn files(sources: &[Source<'_>]) -> Vec<String> {
    let about = |source: &Source<'_>| {
        let lines = notes::source(source.recording).into_iter();
        lines.map(|line| format!("{}: {line}", notes::safe(source.path))).collect::<Vec<_>>()
    };
    sources.iter().flat_map(about).collect()
}
