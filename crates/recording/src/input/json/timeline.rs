//! From `export_memory_timeline` to [`MemoryTimeline`].
//!
//! `.raw.json.gz` is a list of `[time_ns, action, bytes, category]`. `.json` and `.json.gz` contain `[times_us, [[0, bytes of
//! each category], ...]]`. The start of the second element distinguishes the two.

use super::cursor::{Cursor, Parsed, missing};
use super::feed::Feed;
use super::trace::end;
use crate::error::{Error, Result};
use crate::input::ReadOptions;
use crate::model::Format;
use crate::model::profile::{CATEGORIES, MemoryTimeline, TimelineStep};
use std::io::Read;

/// Reads a timeline, starting at its outermost array.
pub fn read<R: Read>(feed: &mut Feed<R>, options: &ReadOptions) -> Result<MemoryTimeline> {
    let mut timeline = MemoryTimeline::default();
    let result = top(feed, &mut timeline);
    let notes = &mut timeline.notes;
    notes.format = Format::MemoryTimeline;
    notes.has_times = true;
    match result {
        Err(Error::Truncated { at, .. }) if options.allow_truncated => notes.truncated_at = Some(at),
        result => result?,
    }
    notes.bytes = feed.offset();
    Ok(timeline)
}

fn top<R: Read>(feed: &mut Feed<R>, timeline: &mut MemoryTimeline) -> Result<()> {
    let open = |cursor: &mut Cursor<'_>| cursor.expect(b'[', "an array");
    feed.item("the start", open)?;
    if !feed.item("the start", |cursor| cursor.element(true, b']'))? {
        return end(feed);
    }
    let first_at = feed.offset();
    let mut numbers: Vec<i64> = Vec::new();
    feed.item("the first array", open)?;
    list(feed, |cursor| {
        numbers.push(cursor.integer("an integer")?);
        Ok(())
    })?;
    if !feed.item("the outermost array", |cursor| cursor.element(false, b']'))? {
        timeline.steps.push(step(first_at, &numbers)?);
        return end(feed);
    }
    feed.item("the second array", open)?;
    timeline.is_sums = feed.item("the second array", |cursor| Ok(matches!(cursor.peek()?, b'[' | b']')))?;
    if timeline.is_sums {
        sums(feed, &numbers, timeline)?;
        return feed.item("the outermost array", |cursor| cursor.expect(b']', "\"]\"")).and_then(|()| end(feed));
    }
    timeline.steps.push(step(first_at, &numbers)?);
    // The opening bracket of the second array is already consumed.
    let second = feed.item("the second array", |cursor| integers(cursor, true))?;
    timeline.steps.push(step(first_at, &second)?);
    let base = feed.offset();
    let mut first = false;
    let mut bad = None;
    feed.items("the outermost array", |cursor| {
        if !cursor.element(first, b']')? {
            return Ok(false);
        }
        cursor.expect(b'[', "an array")?;
        let numbers = integers(cursor, true)?;
        match step(base, &numbers) {
            Ok(step) => timeline.steps.push(step),
            Err(error) => bad = Some(error),
        }
        first = false;
        Ok(bad.is_none())
    })?;
    match bad {
        Some(error) => Err(error),
        None => end(feed),
    }
}

/// The elements of an array after its opening bracket, one item each.
fn list<R: Read>(feed: &mut Feed<R>, mut read: impl FnMut(&mut Cursor<'_>) -> Parsed<()>) -> Result<()> {
    let mut first = true;
    feed.items("an array", |cursor| {
        if !cursor.element(first, b']')? {
            return Ok(false);
        }
        read(cursor)?;
        first = false;
        Ok(true)
    })
}

fn integers(cursor: &mut Cursor<'_>, mut first: bool) -> Parsed<Vec<i64>> {
    let mut numbers = Vec::with_capacity(CATEGORIES.len() + 1);
    while cursor.element(first, b']')? {
        numbers.push(cursor.integer("an integer")?);
        first = false;
    }
    Ok(numbers)
}

fn step(at: u64, numbers: &[i64]) -> Result<TimelineStep> {
    let &[time_ns, 1..=4, bytes, category @ 0..=7] = numbers else {
        return Err(Error::malformed(at, "expected [time, action 1 to 4, bytes, category 0 to 7]"));
    };
    Ok(TimelineStep { time_ns, category: category as u8, bytes, starts_row: true })
}

/// Rows of sums, one for each of `times`; the opening bracket around them is already consumed.
fn sums<R: Read>(feed: &mut Feed<R>, times: &[i64], timeline: &mut MemoryTimeline) -> Result<()> {
    let mut before = [0; CATEGORIES.len()];
    let mut times = times.iter();
    let steps = &mut timeline.steps;
    list(feed, |cursor| {
        cursor.expect(b'[', "an array")?;
        let at = cursor.at();
        let row = integers(cursor, true)?;
        let (Some(0), Some(sums)) = (row.first(), row.get(1..).filter(|sums| sums.len() == CATEGORIES.len())) else {
            return missing(at, "a row of 0 and the bytes of eight categories");
        };
        let Some(time_ns) = times.next().map(|time| time.saturating_mul(1000)) else {
            return missing(at, "as many rows as times");
        };
        let mut starts_row = true;
        for (category, (&bytes, before)) in sums.iter().zip(&mut before).enumerate() {
            if bytes != *before {
                *before = bytes;
                steps.push(TimelineStep { time_ns, category: category as u8, bytes, starts_row });
                starts_row = false;
            }
        }
        Ok(())
    })?;
    if times.len() > 0 {
        return Err(Error::malformed(feed.offset(), "expected as many rows as times"));
    }
    Ok(())
}
