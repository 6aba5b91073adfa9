//! What operators allocated and freed, if the recording shows it.

/// Label for memory that was allocated or freed outside every operator.
pub const NO_OPERATOR: &str = "(no operator)";

/// Memory that one operator allocated and freed while the trace was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes allocated minus bytes freed, by the operator and everything it called.
    pub increase: i64,
    /// Bytes allocated minus bytes freed by the operator itself.
    pub self_increase: i64,
    /// Number of allocations, by the operator and everything it called.
    pub allocations: u64,
    pub self_allocations: u64,
    /// Bytes allocated, by the operator and everything it called.
    pub allocated: u64,
    pub self_allocated: u64,
}

impl Usage {
    pub(super) fn add(&mut self, bytes: i64, is_self: bool) {
        let allocated = u64::try_from(bytes).unwrap_or(0);
        let allocations = u64::from(bytes > 0);
        self.increase = self.increase.wrapping_add(bytes);
        self.allocated = self.allocated.wrapping_add(allocated);
        self.allocations += allocations;
        if is_self {
            self.self_increase = self.self_increase.wrapping_add(bytes);
            self.self_allocated = self.self_allocated.wrapping_add(allocated);
            self.self_allocations += allocations;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorUsage {
    /// Name of the operator, or [`NO_OPERATOR`].
    pub name: String,
    pub calls: u64,
    /// Its memory on the device.
    pub usage: Usage,
}
