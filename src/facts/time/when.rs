//! Instants as people name them: `peak`, `oom`, `end`, `entry:N`, `time:12.5s`, `step:N:end`, `annotation:NAME#K:start`.

use super::annotations::{AnnotationRange, Annotations};
use crate::error::{Error, Result};
use crate::model::{Action, Snapshot, device_words};
use crate::replay::{Instant, Metric, Track};
use std::str::FromStr;

/// A named instant, resolved for each device on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Where the metric first reaches its maximum.
    Peak,
    /// The first failed request.
    Oom,
    /// Before the first kept entry.
    Start,
    /// After the last entry.
    End,
    /// After this entry of the device's trace, counted from 0.
    Entry(u32),
    /// The device's last entry at most this many microseconds after the first one of the recording.
    Time(i64),
    /// A step, counted from 1, or one of its ends.
    Step(u32, Option<Edge>),
    /// A `record_function` range: its name, which of its occurrences, counted from 1, and which of its ends.
    Annotation(String),
}

/// An end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Before its first entry.
    Start,
    /// After its last one.
    End,
}

impl Edge {
    /// The part before `:start` or `:end`, and which of the two it is.
    fn split(text: &str) -> Option<(&str, Self)> {
        let start = text.strip_suffix(":start").map(|range| (range, Self::Start));
        start.or_else(|| text.strip_suffix(":end").map(|range| (range, Self::End)))
    }
}

/// The forms of an instant, as listed in messages.
const FORMS: &str =
    "peak, oom, start, end, entry:N, time:12.5s, step:N[:start|:end] or annotation:NAME[#K][:start|:end]";

/// The purpose of an instant: a range of annotations has a start, an end and a highest point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A single instant: the highest point of a range.
    At,
    /// The start of a window.
    From,
    /// The end of a window.
    To,
}

impl FromStr for When {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            // A number without a keyword, or with a unit, lacks only the keyword.
            let kind = match text.parse::<u32>() {
                Ok(_) => Some("entry"),
                Err(_) => parse_duration(text).map(|_| "time"),
            };
            // A single word may be the name of a range; other forms contain a colon.
            let is_name = !text.is_empty() && !text.contains(|next: char| next == ':' || next.is_control());
            let kind = kind.or(is_name.then_some("annotation"));
            let meant = kind.map(|kind| format!("; did you mean {kind}:{text}?")).unwrap_or_default();
            Error::Request(format!("expected {FORMS}, found {text:?}{meant}"))
        };
        match text.split_once(':') {
            None => match text {
                "peak" => Ok(Self::Peak),
                "oom" => Ok(Self::Oom),
                "start" => Ok(Self::Start),
                "end" => Ok(Self::End),
                _ => Err(bad()),
            },
            Some(("entry", number)) => number.parse().map(Self::Entry).map_err(|_| bad()),
            Some(("time", duration)) => parse_duration(duration).map(Self::Time).ok_or_else(bad),
            Some(("step", step)) => {
                let (number, edge) = Edge::split(step).map_or((step, None), |(number, edge)| (number, Some(edge)));
                number.parse().ok().filter(|&number| number > 0).map(|number| Self::Step(number, edge)).ok_or_else(bad)
            }
            Some(("annotation", name)) if !name.is_empty() => Ok(Self::Annotation(name.to_owned())),
            Some(_) => Err(bad()),
        }
    }
}

/// A duration in microseconds: `12.5s`, `300ms`, `40us`; a number without a unit is in seconds.
fn parse_duration(text: &str) -> Option<i64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("", 1e6)];
    let (number, scale) = units.iter().find_map(|&(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    let micros = number.parse::<f64>().ok()? * scale;
    (micros.is_finite() && (0.0..9e15).contains(&micros)).then_some(micros.round() as i64)
}

impl When {
    /// The instant on one device, or why there is none. `ends` finds the instants at which steps end.
    pub(in crate::facts) fn resolve(
        &self,
        track: Track<'_>,
        annotations: &Annotations,
        step_ends: impl FnOnce() -> Result<Vec<Instant>>,
        (metric, purpose): (Metric, Purpose),
    ) -> Result<Instant> {
        let Track { snapshot, history } = track;
        let device = history.device;
        let times = track.times();
        match self {
            Self::Peak => Ok(history.maxima[metric as usize].instant),
            Self::Start => Ok(0),
            Self::End => Ok(history.entries()),
            Self::Oom => {
                let actions = track.actions();
                let entry = actions.iter().position(|&action| action == Action::Oom);
                let entry =
                    entry.ok_or_else(|| Error::Request(format!("{} has no oom entry", device_words(device))))?;
                Ok(entry as Instant + 1)
            }
            Self::Entry(entry) if *entry < history.entries() => Ok(entry + 1),
            Self::Entry(entry) => {
                let count = history.entries();
                let entries = if count == 1 { "entry" } else { "entries" };
                Err(Error::Request(format!("{} has no entry {entry}: it has {count} {entries}", device_words(device))))
            }
            Self::Time(offset) => {
                if !snapshot.notes.has_times {
                    return Err(Error::Request("this recording has no times (PyTorch 2.0); use entry:N".to_owned()));
                }
                let none = || Error::Request("the recording has no entries".to_owned());
                let first = snapshot.first_time().ok_or_else(none)?;
                let last = snapshot.last_time().unwrap_or(first).saturating_sub(first);
                if *offset > last {
                    let [last, offset] = [last, *offset].map(|micros| micros as f64 / 1e6);
                    let message = format!("the recording ends at {last:.3} s, before {offset:.3} s");
                    return Err(Error::Request(message));
                }
                let limit = first.saturating_add(*offset);
                Ok(times.partition_point(|&time| time <= limit) as Instant)
            }
            Self::Step(number, edge) => {
                let ends = step_ends()?;
                let index = *number as usize - 1;
                let end = *ends.get(index).ok_or_else(|| {
                    let count = ends.len();
                    let steps = if count == 1 { "step" } else { "steps" };
                    Error::Request(format!("{} has no step {number}: it has {count} {steps}", device_words(device)))
                })?;
                // A step starts at the end of the previous one.
                let start = index.checked_sub(1).map_or(0, |before| ends[before]);
                Ok(within(track, (start, end), metric, edge.map_or(purpose, Purpose::from)))
            }
            Self::Annotation(name) => {
                let (range, edge) = find(snapshot, annotations, name)?;
                require_within(snapshot, range, edge, name)?;
                let start = times.partition_point(|&time| time < range.start_us) as Instant;
                let end = times.partition_point(|&time| time < range.end_us) as Instant;
                Ok(within(track, (start, end), metric, edge.map_or(purpose, Purpose::from)))
            }
        }
    }
}

impl From<Edge> for Purpose {
    fn from(edge: Edge) -> Self {
        match edge {
            Edge::Start => Self::From,
            Edge::End => Self::To,
        }
    }
}

/// Checks that the requested edge of an annotation range is within the recorded entries.
fn require_within(snapshot: &Snapshot, range: &AnnotationRange, edge: Option<Edge>, name: &str) -> Result<()> {
    let refuse = |why: String| Err(Error::Request(why));
    let (Some(first), Some(last)) = (snapshot.first_time(), snapshot.last_time()) else { return Ok(()) };
    if !snapshot.notes.has_times {
        return refuse(
            "this recording has no times (PyTorch 2.0), so annotations cannot be located; use entry:N".to_owned(),
        );
    }
    if first == last && snapshot.entries.len() > 1 {
        return refuse("all entries have the same time, so annotations cannot be located; use entry:N".to_owned());
    }
    if range.end_us < first || range.start_us > last {
        return refuse(format!("annotation {name:?} is outside the recorded entries"));
    }
    match edge {
        Some(Edge::Start) if range.start_us == i64::MIN => {
            refuse(format!("annotation {name:?} starts before the recording"))
        }
        Some(Edge::End) if range.end_us == i64::MAX => {
            refuse(format!("annotation {name:?} has no end in the recording"))
        }
        _ => Ok(()),
    }
}

/// The requested instant of a range.
fn within(track: Track<'_>, (start, end): (Instant, Instant), metric: Metric, purpose: Purpose) -> Instant {
    match purpose {
        Purpose::From => start,
        Purpose::To => end,
        Purpose::At => track.highest(metric, start, end).instant,
    }
}

/// The range that `name` means, and which of its ends. An exact name takes precedence, since names such as `ProfilerStep#3`
/// contain a `#` themselves.
fn find<'a>(
    snapshot: &Snapshot,
    annotations: &'a Annotations,
    name: &str,
) -> Result<(&'a AnnotationRange, Option<Edge>)> {
    let by_name = |name: &str, occurrence| {
        annotations.ranges.iter().filter(|range| snapshot.strings.get(range.name) == name).nth(occurrence)
    };
    let numbered = |name: &str| {
        let (name, occurrence) = name.rsplit_once('#')?;
        by_name(name, occurrence.parse::<usize>().ok()?.checked_sub(1)?)
    };
    let named = |name: &str| by_name(name, 0).or_else(|| numbered(name));
    let whole = named(name).map(|range| (range, None));
    let edge = || Edge::split(name).and_then(|(name, edge)| Some((named(name)?, Some(edge))));
    whole.or_else(edge).ok_or_else(|| {
        let name = Edge::split(name).map_or(name, |(name, _)| name);
        let known = annotations.known_names(snapshot);
        Error::Request(format!("expected an annotation named {name:?}, {known}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_parsed() {
        assert_eq!("peak".parse::<When>().unwrap(), When::Peak);
        assert_eq!("entry:12".parse::<When>().unwrap(), When::Entry(12));
        assert_eq!("time:12.5s".parse::<When>().unwrap(), When::Time(12_500_000));
        assert_eq!("time:3ms".parse::<When>().unwrap(), When::Time(3000));
        assert_eq!("time:2".parse::<When>().unwrap(), When::Time(2_000_000));
        assert_eq!("annotation:a:b#2".parse::<When>().unwrap(), When::Annotation("a:b#2".to_owned()));
        assert_eq!("step:3".parse::<When>().unwrap(), When::Step(3, None));
        assert_eq!("step:3:end".parse::<When>().unwrap(), When::Step(3, Some(Edge::End)));
        let bad =
            ["", "top", "entry:", "entry:-1", "time:x", "time:-1s", "time:infs", "annotation:", "step:0", "step:1:mid"];
        for bad in bad {
            assert!(bad.parse::<When>().is_err(), "{bad:?}");
        }
    }
}
