//! The memory that each operator allocated and freed, as in TensorBoard's memory view.

use crate::model::bytes::Bytes;
use crate::replay::OperatorUsage;
use crate::report::common::notes::signed;

/// Number of rows for people; JSON has all.
pub const ROWS: usize = 20;

/// Names of the columns next to the operator's, the more important ones first.
pub const COLUMNS: [&str; 7] = ["self size", "self increase", "self allocs", "calls", "size", "increase", "allocs"];

pub fn cells(operator: &OperatorUsage) -> [String; COLUMNS.len()] {
    let usage = &operator.usage;
    [
        Bytes(usage.self_allocated).to_string(),
        signed(usage.self_increase),
        usage.self_allocations.to_string(),
        operator.calls.to_string(),
        Bytes(usage.allocated).to_string(),
        signed(usage.increase),
        usage.allocations.to_string(),
    ]
}
