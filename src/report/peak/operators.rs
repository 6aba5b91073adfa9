//! What passed through each operator, as TensorBoard's memory view shows it.

use crate::model::bytes::Bytes;
use crate::replay::OperatorUsage;
use crate::report::common::notes::signed;

/// Rows for people; JSON has all.
pub const ROWS: usize = 20;

/// Names of the columns next to the operator's, the more important ones first.
pub const COLUMNS: [&str; 7] = ["self size", "self increase", "self allocs", "calls", "size", "increase", "allocs"];

/// One row.
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
