//! A recording as tables, for databases: columns of numbers and texts that refer to one another by number.

mod curve;
mod device;
mod ranks;
mod shared;

pub use curve::of_curve;
pub use ranks::of_ranks;

use crate::error::{Error, Result};
use crate::facts::device::{Device, Devices};
use crate::model::DeviceId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub rows: usize,
    pub columns: Vec<TableColumn>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumn {
    pub name: &'static str,
    /// A value for each row; arbitrary if the row has none.
    pub values: Values,
    /// Whether each row has a value, if rows may have none.
    pub present: Option<Vec<bool>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Numbers that mostly differ little from the previous row.
    Rising(Vec<i64>),
    /// Numbers that repeat, such as sizes.
    Whole(Vec<i64>),
    /// Addresses and other numbers that use all 64 bits.
    Unsigned(Vec<u64>),
    Flags(Vec<bool>),
    /// Texts, each stored once, and the number of each row's text.
    Text(Vec<String>, Vec<u32>),
    /// Texts that do not repeat.
    Lines(Vec<String>),
}

names! {
    /// A table of a recording.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
    pub enum TableName {
        /// A row for each allocation: its size, lifetime, site, category, phase and step.
        #[default]
        Allocations = "allocations",
        /// A row for each entry of the trace, with the counters after it.
        Entries = "entries",
        /// A row for each frame of each stack.
        Stacks = "stacks",
        /// A row for each frame: file, line and function.
        Frames = "frames",
        /// A row for each segment, or mapped range of an expandable one.
        Segments = "segments",
        /// A row for each step.
        Steps = "steps",
        /// A row for each `record_function` range.
        Annotations = "annotations",
    }
}

impl TableName {
    pub const ALL: [Self; 7] =
        [Self::Allocations, Self::Entries, Self::Stacks, Self::Frames, Self::Segments, Self::Steps, Self::Annotations];

    /// Builds the table, one part per device, so that only one device is in memory at a time. All parts have the same
    /// columns.
    ///
    /// # Errors
    /// If a device does not exist, there is none, or `each` fails.
    pub fn of<E>(
        self,
        recording: &Devices<'_>,
        devices: &[DeviceId],
        mut each: impl FnMut(Table) -> std::result::Result<(), E>,
    ) -> Result<std::result::Result<(), E>> {
        let make: fn(&Device<'_>) -> Table = match self {
            Self::Stacks => return Ok(each(shared::stacks(recording))),
            Self::Frames => return Ok(each(shared::frames(recording))),
            Self::Annotations => return Ok(each(shared::annotations(recording))),
            Self::Allocations => device::allocations,
            Self::Entries => device::entries,
            Self::Segments => device::segments,
            Self::Steps => device::steps,
        };
        let wanted = recording.wanted(devices)?;
        if wanted.is_empty() {
            return Err(Error::Request(
                "expected a recording with memory on at least one device, found none".to_owned(),
            ));
        }
        Ok(wanted.into_iter().try_for_each(|device| each(make(device))))
    }
}

impl Table {
    fn new(rows: usize, columns: impl IntoIterator<Item = TableColumn>) -> Self {
        Self { rows, columns: columns.into_iter().collect() }
    }
}

impl TableColumn {
    fn new(name: &'static str, values: Values) -> Self {
        Self { name, values, present: None }
    }

    fn whole(name: &'static str, values: impl IntoIterator<Item = i64>) -> Self {
        Self::new(name, Values::Whole(values.into_iter().collect()))
    }

    fn rising(name: &'static str, values: impl IntoIterator<Item = i64>) -> Self {
        Self::new(name, Values::Rising(values.into_iter().collect()))
    }

    fn unsigned(name: &'static str, values: impl IntoIterator<Item = u64>) -> Self {
        Self::new(name, Values::Unsigned(values.into_iter().collect()))
    }

    fn flags(name: &'static str, values: impl IntoIterator<Item = bool>) -> Self {
        Self::new(name, Values::Flags(values.into_iter().collect()))
    }

    fn text(name: &'static str, texts: Vec<String>, rows: Vec<u32>) -> Self {
        Self::new(name, Values::Text(texts, rows))
    }

    /// Numbers, some of which may be missing.
    fn maybe(name: &'static str, values: impl IntoIterator<Item = Option<i64>>) -> Self {
        let (values, present) = values.into_iter().map(|value| (value.unwrap_or(0), value.is_some())).unzip();
        Self { name, values: Values::Whole(values), present: Some(present) }
    }

    /// The same for numbers that mostly rise.
    fn maybe_rising(name: &'static str, values: impl IntoIterator<Item = Option<i64>>) -> Self {
        let column = Self::maybe(name, values);
        match column.values {
            Values::Whole(values) => Self { values: Values::Rising(values), ..column },
            values => Self { values, ..column },
        }
    }

    /// Texts, some of which may be missing, each with its number.
    fn maybe_text(name: &'static str, texts: Vec<String>, rows: impl IntoIterator<Item = Option<u32>>) -> Self {
        let (rows, present) = rows.into_iter().map(|row| (row.unwrap_or(0), row.is_some())).unzip();
        Self { name, values: Values::Text(texts, rows), present: Some(present) }
    }
}
