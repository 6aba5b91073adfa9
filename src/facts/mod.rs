//! Facts about a recording that several analyses need: pure functions of its histories.
//!
//! In: a [`crate::replay::Track`]. Out: facts that do not belong to one question alone. [`code`] reads stacks, [`time`] names
//! instants, [`training`] finds phases, steps, calls and categories; [`device`] computes each of these once per device;
//! [`grouping`] attributes bytes to rows, [`segments`] lays out segments, [`doubts`] lists why a figure is not exact.
//! [`device_kind`] is the kind of the device, and [`gpu`] a table of GPUs.

pub mod code;
pub mod device;
pub mod device_kind;
pub(crate) mod doubts;
pub(crate) mod gpu;
pub mod grouping;
pub(crate) mod held;
pub mod segments;
pub mod time;
pub mod training;
